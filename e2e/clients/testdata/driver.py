"""Drives the Python client: reads calls as JSON lines and writes outcomes."""

import io
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import plantstore
from plantstore import Client, Plant, PlantstoreError

clients: dict[str, Client] = {}
lock = threading.Lock()


def client_of(job):
    with lock:
        client = clients.get(job["url"])
        if client is None:
            retries = {0: 18, -1: 0}.get(job["retries"], job["retries"])
            client = Client(job["url"], job["token"], retries=retries, retry_timeout=job["retryTimeout"] or 60.0)
            clients[job["url"]] = client
        return client


def plant_of(value):
    return Plant(int(value["id"]), value["name"], value.get("tag"))


def time_of(text):
    return None if text is None else datetime.fromisoformat(text.replace("Z", "+00:00"))


def show(value):
    if isinstance(value, Plant):
        shown = {"id": str(value.id), "name": value.name}
        if value.tag is not None:
            shown["tag"] = value.tag
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
    query = {name: args[name] for name in ("tag", "q", "limit") if name in args}
    if "after" in args:
        query["after"] = int(args["after"])
    return query


def event_query(args):
    return {
        "after": args.get("after"),
        "since": time_of(args.get("since")),
        "id": int(args["id"]) if "id" in args else None,
        "types": args.get("types", []),
    }


def webhook_config(args):
    return {"types": args.get("types", []), "description": args.get("description", "")}


def get(c, a):
    plant = c.get(int(a["id"]))
    return {**show(plant), "etag": plant.etag}


def export(c, a):
    with c.export(**plant_query(a)) as plants:
        return {"plants": list(plants), "cursor": plants.cursor}


def events(c, a):
    taken = []
    for event in c.events(**event_query(a)):
        taken.append(event)
        if len(taken) == a["take"]:
            break
    return taken


OPERATIONS = {
    "create": lambda c, a: c.create(plant_of(a["plant"])),
    "get": get,
    "put": lambda c, a: c.put(plant_of(a["plant"]), **conditions(a)),
    "delete": lambda c, a: c.delete(int(a["id"]), **conditions(a)),
    "list": lambda c, a: list(c.list(**plant_query(a))),
    "export": export,
    "import": lambda c, a: c.import_plants(map(plant_of, a["plants"])),
    "importLines": lambda c, a: c.import_lines(lines_of(a)),
    "eventPage": lambda c, a: c.event_page(**event_query(a), limit=a.get("limit")),
    "events": events,
    "createWebhook": lambda c, a: c.create_webhook(a["url"], **webhook_config(a), after=a.get("after")),
    "rotateWebhook": lambda c, a: c.rotate_webhook(a["webhook"]),
    "webhooks": lambda c, a: c.webhooks(),
    "webhook": lambda c, a: c.webhook(a["webhook"]),
    "replaceWebhook": lambda c, a: c.replace_webhook(a["webhook"], a["url"], **webhook_config(a)),
    "deleteWebhook": lambda c, a: c.delete_webhook(a["webhook"]),
    "testWebhook": lambda c, a: c.test_webhook(a["webhook"]),
    "resumeWebhook": lambda c, a: c.resume_webhook(a["webhook"]),
    "replayWebhook": lambda c, a: c.replay_webhook(a["webhook"], after=a.get("after"), since=time_of(a.get("since"))),
    "deliveries": lambda c, a: c.deliveries(a["webhook"]),
    "tags": lambda c, a: list(c.tags(**a)),
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


def run(job):
    reply = {"id": job["id"]}
    try:
        if job["op"] == "close":
            with lock:
                client = clients.pop(job["url"], None)
            if client:
                client.close()
        else:
            reply["value"] = show(OPERATIONS[job["op"]](client_of(job), job["args"]))
    except PlantstoreError as err:
        reply["error"] = {"code": err.code, "status": err.status, "message": err.message}
    except BaseException as err:
        reply["error"] = {"code": -1, "status": -1, "message": f"not a PlantstoreError: {err!r}"}
    with lock:
        print(json.dumps(reply), flush=True)


with ThreadPoolExecutor(256) as pool:
    for line in sys.stdin:
        pool.submit(run, json.loads(line)).add_done_callback(lambda done: done.result())
