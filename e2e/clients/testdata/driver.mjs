// Drives the TypeScript client: reads calls as JSON lines and writes outcomes.
import { createInterface } from "node:readline";

const { OutcomeError, Plantstore, PlantstoreError, verifyWebhook } = await import(process.env.PLANTSTORE_CLIENT);

const clients = new Map();

function clientOf({ url, token, retries, retryTimeout }) {
  let client = clients.get(url);
  if (client === undefined) {
    client = new Plantstore({
      url,
      token,
      retries: retries === 0 ? undefined : Math.max(0, retries),
      retryTimeout: retryTimeout === 0 ? undefined : retryTimeout * 1000,
    });
    clients.set(url, client);
  }
  return client;
}

const plantOf = ({ id, name, tag, ifVersion }) => ({ id: BigInt(id), name, tag, ifVersion });

async function collect(values, take = Infinity) {
  const all = [];
  for await (const value of values) {
    all.push(value);
    if (all.length === take) {
      break;
    }
  }
  return all;
}

const withIds = (args, ...names) => {
  const converted = { ...args, ids: args.ids?.map(BigInt) };
  for (const name of names) {
    if (name in converted) {
      converted[name] = BigInt(converted[name]);
    }
  }
  return converted;
};

function linesOf({ count, lines, seekable }) {
  let text = lines;
  if (count) {
    text = "";
    for (let i = 0; i < count; i++) {
      text += `{"id":${i},"name":"Imported plant"}\n`;
    }
  }
  return seekable ? text : text.match(/.*\n/g).values();
}

const operations = {
  create: (c, a) => c.create(plantOf(a.plant)),
  get: (c, a) => c.get(BigInt(a.id), a),
  put: (c, a) => c.put(plantOf(a.plant), a),
  patch: (c, a) => c.patch(BigInt(a.id), a.patch, a),
  delete: (c, a) => c.delete(BigInt(a.id), a),
  page: async (c, a) => {
    const page = await c.page(withIds(a, "after"));
    return { ...page, next: page.next ?? null, count: page.count ?? null };
  },
  list: (c, a) => collect(c.list(withIds(a, "after"))),
  export: async (c, a) => {
    const exported = await c.export(withIds(a, "after"));
    return { plants: await collect(exported), cursor: exported.cursor };
  },
  import: (c, a) => c.import(a.plants.map(plantOf), a),
  importLines: (c, a) => c.importLines(linesOf(a), a),
  eventPage: (c, a) => c.eventPage(withIds(a, "id")),
  histogram: async (c, a) => (await c.histogram(a)).map((bucket) => ({ partial: false, ...bucket })),
  events: (c, a) => collect(c.events(withIds(a, "id")), a.take),
  createWebhook: (c, a) => c.createWebhook(a.url, a),
  rotateWebhook: (c, a) => c.rotateWebhook(a.webhook),
  webhooks: (c) => c.webhooks(),
  webhook: (c, a) => c.webhook(a.webhook),
  replaceWebhook: (c, a) => c.replaceWebhook(a.webhook, a.url, a),
  deleteWebhook: (c, a) => c.deleteWebhook(a.webhook),
  testWebhook: (c, a) => c.testWebhook(a.webhook),
  pauseWebhook: (c, a) => c.pauseWebhook(a.webhook),
  retryWebhook: (c, a) => c.retryWebhook(a.webhook),
  resumeWebhook: (c, a) => c.resumeWebhook(a.webhook),
  replayWebhook: (c, a) => c.replayWebhook(a.webhook, a.since ? { since: new Date(a.since) } : { after: a.after }),
  deliveries: (c, a) => c.deliveries(a.webhook),
  tags: async (c, a) => (await collect(c.tags(a))).map((tag) => ({ more: false, ...tag })),
  about: (c) => c.about(),
  token: (c) => c.token(),
  createToken: (c, a) => c.createToken({ ...a, expires: a.never ? null : a.expires && new Date(a.expires) }),
  tokens: (c) => c.tokens(),
  getToken: (c, a) => c.getToken(a.token),
  revokeToken: (c, a) => c.revokeToken(a.token),
  verifyWebhook: (_, a) => verifyWebhook(a.headers, a.body, a.secret),
};

async function run(job) {
  if (job.op === "close") {
    clients.delete(job.url);
    return {};
  }
  try {
    return { value: await operations[job.op](clientOf(job), job.args) };
  } catch (err) {
    if (err instanceof PlantstoreError) {
      const unknown = err instanceof OutcomeError ? { now: err.now, readCode: err.readError?.code } : undefined;
      return { error: { code: err.code, status: err.status, message: err.message, unknown } };
    }
    return { error: { code: -1, status: -1, message: `not a PlantstoreError: ${err?.stack ?? err}` } };
  }
}

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const job = JSON.parse(line);
  run(job).then((outcome) => {
    const show = function (name, value) {
      if (this[name] instanceof Date) {
        return this[name].toISOString().replace(".000Z", "Z"); // as other languages write it
      }
      return typeof value === "bigint" ? String(value) : value;
    };
    process.stdout.write(JSON.stringify({ id: job.id, ...outcome }, show) + "\n");
  });
}
