"""Drives the Python clients: reads calls as JSON lines and writes outcomes.

With the argument async it drives AsyncClient in one event loop, otherwise Client in threads.
"""

import asyncio
import inspect
import io
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import plantstore
from plantstore import AsyncClient, Client, ImportLine, OutcomeError, Plant, PlantstoreError, StoredPlant

kind = AsyncClient if sys.argv[1:] == ["async"] else Client
clients = {}
lock = threading.Lock()


def client_of(job):
    with lock:
        client = clients.get(job["url"])
        if client is None:
            retries = {0: 18, -1: 0}.get(job["retries"], job["retries"])
            client = kind(job["url"], job["token"], retries=retries, retry_timeout=job["retryTimeout"] or 60.0)
            clients[job["url"]] = client
        return client


async def result(value):
    """Returns a value that is awaited in one client, and not in the other."""
    return await value if inspect.isawaitable(value) else value


async def collect(values, take=None):
    """Returns the first values of an iterator of either client, and closes it."""
    taken = []
    if hasattr(values, "__aiter__"):
        async for value in values:
            taken.append(value)
            if len(taken) == take:
                break
        await (values.close if isinstance(values, plantstore.AsyncExport) else values.aclose)()
    else:
        for value in values:
            taken.append(value)
            if len(taken) == take:
                break
        values.close()
    return taken


def plant_of(value):
    return Plant(int(value["id"]), value["name"], value.get("tag"))


def line_of(value):
    if "ifVersion" not in value and "name" in value:
        return plant_of(value)
    return ImportLine(int(value["id"]), value.get("name"), value.get("tag"), value.get("ifVersion"))


def import_options(args):
    return {"mode": args.get("mode"), "dry_run": args.get("dryRun", False)}


def lines_options(args):
    return import_options(args) | {name: args[name] for name in ("media", "versions") if name in args}


def time_of(text):
    return None if text is None else datetime.fromisoformat(text.replace("Z", "+00:00"))


def show(value):
    if isinstance(value, Plant):
        shown = {"id": str(value.id), "name": value.name}
        if value.tag is not None:
            shown["tag"] = value.tag
        if isinstance(value, StoredPlant):
            shown |= {"version": value.version, "etag": value.etag}
            shown |= {"created": show(value.created), "updated": show(value.updated)}
        return shown
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dict):
        return {name: show(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [show(element) for element in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: show(getattr(value, name)) for name in value.__dataclass_fields__}
    return value


def lines_of(args):
    if args.get("count"):
        text = "".join(f'{{"id":{i},"name":"Imported plant"}}\n' for i in range(int(args["count"])))
    else:
        text = args["lines"]
    lines = io.BytesIO(text.encode())
    return lines if args.get("seekable") else (line for line in lines)


def conditions(args):
    return {"if_match": args.get("ifMatch"), "if_none_match": args.get("ifNoneMatch")}


def plant_query(args):
    names = {name: name for name in ("order", "tag", "untagged", "q", "limit", "details")}
    names |= {"tagPrefix": "tag_prefix", "afterName": "after_name"}
    query = {names[name]: args[name] for name in names if name in args}
    if "after" in args:
        query["after"] = int(args["after"])
    if "ids" in args:
        query["ids"] = list(map(int, args["ids"]))
    return query


def event_query(args):
    return {
        "after": args.get("after"),
        "since": time_of(args.get("since")),
        "id": int(args["id"]) if "id" in args else None,
        "types": args.get("types", []),
        "by": args.get("by"),
        "q": args.get("q"),
        "details": args.get("details", False),
    }


def webhook_config(args):
    return {"types": args.get("types", []), "description": args.get("description", "")}


async def export(c, a):
    exported = c.export(**plant_query(a))
    return {"plants": await collect(exported), "cursor": exported.cursor}


OPERATIONS = {
    "create": lambda c, a: c.create(plant_of(a["plant"])),
    "get": lambda c, a: c.get(int(a["id"]), details=a.get("details", False)),
    "put": lambda c, a: c.put(plant_of(a["plant"]), **conditions(a)),
    "patch": lambda c, a: c.patch(int(a["id"]), **a["patch"], **conditions(a)),
    "delete": lambda c, a: c.delete(int(a["id"]), **conditions(a)),
    "page": lambda c, a: c.page(**plant_query(a), count=a.get("count", False)),
    "list": lambda c, a: collect(c.list(**plant_query(a))),
    "export": export,
    "import": lambda c, a: c.import_plants(map(line_of, a["plants"]), **import_options(a)),
    "importLines": lambda c, a: c.import_lines(lines_of(a), **lines_options(a)),
    "eventPage": lambda c, a: c.event_page(
        **event_query(a), limit=a.get("limit"), newest=a.get("newest", False), before=a.get("before")
    ),
    "histogram": lambda c, a: c.histogram(time_of(a["since"]), until=time_of(a.get("until")), buckets=a.get("buckets")),
    "events": lambda c, a: collect(c.events(**event_query(a)), a["take"]),
    "createWebhook": lambda c, a: c.create_webhook(a["url"], **webhook_config(a), after=a.get("after")),
    "rotateWebhook": lambda c, a: c.rotate_webhook(a["webhook"]),
    "webhooks": lambda c, a: c.webhooks(),
    "webhook": lambda c, a: c.webhook(a["webhook"]),
    "replaceWebhook": lambda c, a: c.replace_webhook(a["webhook"], a["url"], **webhook_config(a)),
    "deleteWebhook": lambda c, a: c.delete_webhook(a["webhook"]),
    "testWebhook": lambda c, a: c.test_webhook(a["webhook"]),
    "pauseWebhook": lambda c, a: c.pause_webhook(a["webhook"]),
    "retryWebhook": lambda c, a: c.retry_webhook(a["webhook"]),
    "resumeWebhook": lambda c, a: c.resume_webhook(a["webhook"]),
    "replayWebhook": lambda c, a: c.replay_webhook(a["webhook"], after=a.get("after"), since=time_of(a.get("since"))),
    "deliveries": lambda c, a: c.deliveries(a["webhook"]),
    "tags": lambda c, a: collect(c.tags(**a)),
    "about": lambda c, a: c.about(),
    "token": lambda c, a: c.token(),
    "createToken": lambda c, a: c.create_token(
        a["name"], a["scopes"], expires=plantstore.NEVER if a.get("never") else time_of(a.get("expires")), rate=a.get("rate")
    ),
    "tokens": lambda c, a: c.tokens(),
    "getToken": lambda c, a: c.get_token(a["token"]),
    "revokeToken": lambda c, a: c.revoke_token(a["token"]),
    "verifyWebhook": lambda c, a: plantstore.verify_webhook(a["headers"], a["body"].encode(), a["secret"]),
}


async def run(job):
    reply = {"id": job["id"]}
    try:
        if job["op"] == "close":
            with lock:
                client = clients.pop(job["url"], None)
            if client:
                await result(client.close())
        else:
            reply["value"] = show(await result(OPERATIONS[job["op"]](client_of(job), job["args"])))
    except PlantstoreError as err:
        reply["error"] = {"code": err.code, "status": err.status, "message": err.message}
        if isinstance(err, OutcomeError):
            reply["error"]["unknown"] = {"now": show(err.now), "readCode": err.read_error and err.read_error.code}
    except BaseException as err:
        reply["error"] = {"code": -1, "status": -1, "message": f"not a PlantstoreError: {err!r}"}
    with lock:
        print(json.dumps(reply), flush=True)


def run_blocking(job):
    try:
        run(job).send(None)
    except StopIteration:
        return
    raise AssertionError("the blocking client has waited")


async def run_tasks():
    loop, tasks = asyncio.get_running_loop(), set()
    jobs = asyncio.StreamReader(limit=64 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(jobs), sys.stdin)
    while line := await jobs.readline():
        task = loop.create_task(run(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    if threading.active_count() > 1:
        sys.exit(f"AsyncClient has started threads: {threading.enumerate()}")


if kind is AsyncClient:
    asyncio.run(run_tasks())
else:
    with ThreadPoolExecutor(256) as pool:
        for line in sys.stdin:
            pool.submit(run_blocking, json.loads(line)).add_done_callback(lambda done: done.result())
