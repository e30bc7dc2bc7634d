// The same service in JavaScript: Fastify with better-sqlite3, one INSERT per request.
import { createHash } from "node:crypto";
import Database from "better-sqlite3";
import Fastify from "fastify";

const db = new Database(process.argv[2]);
db.pragma("journal_mode = WAL");
db.pragma("synchronous = FULL");
db.defaultSafeIntegers(true);
db.exec("CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT)");
const insert = db.prepare("INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)");
const select = db.prepare("SELECT id, name, tag FROM plants WHERE id = ?");
const page = db.prepare("SELECT id, name, tag FROM plants WHERE id > ? ORDER BY id LIMIT ?");

const hash = (token) => createHash("sha256").update(token).digest("hex");
const tokens = new Set([hash(process.env.TOKEN)]);

// JSON.parse rounds ids above 2^53, so they are parsed from the text.
const app = Fastify({ bodyLimit: 1 << 20 });
app.removeContentTypeParser("application/json");
app.addContentTypeParser("application/json", { parseAs: "string" }, (request, body, done) => {
  try {
    const exact = /"id"\s*:\s*(-?\d+)/.exec(body);
    const plant = JSON.parse(body);
    plant.id = BigInt(exact[1]);
    done(null, plant);
  } catch (err) {
    err.statusCode = 400;
    done(err);
  }
});
app.addHook("onRequest", async (request, reply) => {
  const [, token] = (request.headers.authorization ?? "").split("Bearer ");
  if (!token || !tokens.has(hash(token))) {
    return reply.code(401).send({ error: 401, message: "unknown token" });
  }
});

const json = ({ id, name, tag }) =>
  `{"id":${id},"name":${JSON.stringify(name)}${tag === null ? "" : `,"tag":${JSON.stringify(tag)}`}}`;

app.post("/plants", (request, reply) => {
  const { id, name, tag } = request.body;
  if (typeof name !== "string") {
    return reply.code(400).send({ error: 400, message: "not a plant" });
  }
  try {
    insert.run(id, name, tag ?? null);
  } catch (err) {
    return reply.code(400).send({ error: 400, message: err.message });
  }
  return reply.send({ name, tag });
});
app.get("/plants/:id", (request, reply) => {
  const plant = select.get(BigInt(request.params.id));
  if (!plant) {
    return reply.code(404).send({ error: 404, message: "no such plant" });
  }
  return reply.type("application/json").send(json(plant));
});
app.get("/plants", (request, reply) => {
  const { after = "0", limit = "100" } = request.query;
  return reply.type("application/json").send(`[${page.all(BigInt(after), BigInt(limit)).map(json).join()}]`);
});

await app.listen({ host: "127.0.0.1", port: 0 });
console.log(JSON.stringify({ addr: `127.0.0.1:${app.server.address().port}` }));
