"""The Python client of the Plant Store interface.

A Client calls one server with one token:

    with Client("https://plants.example.com", token) as store:
        store.create(Plant(1, "Monstera", "tropical"))
        print(store.get(1))

An AsyncClient is the same for asyncio:

    async with AsyncClient("https://plants.example.com", token) as store:
        await store.create(Plant(1, "Monstera", "tropical"))
        async for plant in store.list():
            print(plant)

Every failure of a call is a PlantstoreError. Requests that fail in transit, and those
to which the server or a proxy responds with 429, 502, 503 or 504, are retried after a
pause.

Every write of a plant can be retried: creating the same plant again is a success, and
so are replacing a plant with what it already is, patching it again and deleting what a
lost attempt has deleted. One caveat: if someone else writes the same plant between a
lost attempt and its retry, a put, patch or delete without a condition undoes that write. if_match prevents it:
with a version, it raises an OutcomeError if it is not known whether a lost attempt was applied.
What returns a secret is retried only if the server has certainly not applied it.
"""

from ._async_client import AsyncClient, AsyncExport
from ._client import Client, Export
from ._errors import (
    Code,
    ForbiddenError,
    GoneError,
    IdTakenError,
    NotFoundError,
    OutcomeError,
    PlantstoreError,
    PreconditionError,
    ResponseError,
    TransportError,
    UnauthorizedError,
    UnavailableError,
)
from ._types import (
    KEEP,
    LATEST,
    NEVER,
    About,
    AboutLog,
    Bucket,
    Count,
    Delivery,
    Event,
    EventPage,
    Failing,
    ImportLine,
    ImportMode,
    ImportReport,
    Keep,
    Limits,
    LineError,
    NewToken,
    Order,
    Page,
    Plant,
    SearchIndex,
    StoredPlant,
    TagCount,
    TagPage,
    Token,
    Webhook,
    WebhookError,
    WebhookWithSecret,
)
from ._webhooks import verify_webhook

__all__ = [
    "KEEP",
    "LATEST",
    "NEVER",
    "About",
    "AboutLog",
    "AsyncClient",
    "AsyncExport",
    "Bucket",
    "Client",
    "Code",
    "Count",
    "Delivery",
    "Event",
    "EventPage",
    "Export",
    "Failing",
    "ForbiddenError",
    "GoneError",
    "IdTakenError",
    "ImportLine",
    "ImportMode",
    "ImportReport",
    "Keep",
    "Limits",
    "LineError",
    "NewToken",
    "NotFoundError",
    "Order",
    "OutcomeError",
    "Page",
    "Plant",
    "PlantstoreError",
    "PreconditionError",
    "ResponseError",
    "SearchIndex",
    "StoredPlant",
    "TagCount",
    "TagPage",
    "Token",
    "TransportError",
    "UnauthorizedError",
    "UnavailableError",
    "Webhook",
    "WebhookError",
    "WebhookWithSecret",
    "verify_webhook",
]
