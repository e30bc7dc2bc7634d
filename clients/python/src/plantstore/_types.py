"""The resources of the interface."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Final, Generic, Literal, TypeVar

LATEST: Final = "latest"
"""The position after the last event at the time of the call."""


class Never(Enum):
    """The type of NEVER."""

    NEVER = "never"


NEVER: Final = Never.NEVER
"""The end of a token that never expires."""


class Keep(Enum):
    """The type of KEEP."""

    KEEP = "keep"


KEEP: Final = Keep.KEEP
"""What a patch leaves as it is."""


@dataclass(frozen=True)
class Plant:
    """A plant. The id is any integer of 64 bits; a tag of None is absent."""

    id: int
    name: str
    tag: str | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plant) and (self.id, self.name, self.tag) == (other.id, other.name, other.tag)


@dataclass(frozen=True, eq=False)
class StoredPlant(Plant):
    """A plant with its version. It equals a Plant with the same id, name and tag.

    created and updated are when it was created and last changed, if that was asked for with
    details=True and the server knows it.
    """

    version: str = field(kw_only=True)
    created: datetime | None = field(default=None, kw_only=True)
    updated: datetime | None = field(default=None, kw_only=True)

    @property
    def etag(self) -> str:
        """What if_match takes: the version in quotes."""
        return f'"{self.version}"'


P_co = TypeVar("P_co", bound=Plant, covariant=True)


@dataclass(frozen=True)
class Page(Generic[P_co]):
    """A page of plants. The next one is after next, unless that is None.

    In an order by name, next is None, and the next one is after_name=next_name, unless that is None.
    count is how many plants match, if it was asked for and is known.
    """

    plants: list[P_co]
    next: int | None
    count: Count | None = None
    next_name: str | None = None


@dataclass(frozen=True)
class Count:
    """A number of plants, counted up to 10,000: more says whether there are more."""

    plants: int
    more: bool = False


@dataclass(frozen=True)
class TagCount:
    """A tag, and how many plants have it, counted up to 1000: more says whether there are more."""

    tag: str
    plants: int
    more: bool = False


@dataclass(frozen=True)
class TagPage:
    """A page of tags. The next one starts at next, unless that is None."""

    tags: list[TagCount]
    next: str | None


Order = Literal["id", "-id", "name", "-name"]
"""The order of plants: by id or by name, or backwards."""

ImportMode = Literal["create", "replace", "delete"]
"""What an import does with each plant: what create, put or delete does."""


@dataclass(frozen=True)
class ImportLine:
    """A plant to replace or delete. Only to delete it does the id suffice.

    if_version is the version that the plant must have: otherwise the line fails with 41201.
    """

    id: int
    name: str | None = None
    tag: str | None = None
    if_version: str | None = None


@dataclass(frozen=True)
class LineError:
    """Why one line of an import failed. The first line is 1."""

    line: int
    code: int
    message: str


@dataclass(frozen=True)
class ImportReport:
    """How many lines of an import created, replaced or deleted a plant, left it unchanged or failed.

    replaced and deleted are 0 without a mode. errors says why the first lines failed, 100 at
    most.
    """

    created: int
    unchanged: int
    failed: int
    errors: list[LineError]
    replaced: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class Event:
    """A change. plant is the plant after it, or before a deletion.

    cursor is the position after the event, by the public id of the token that made the
    change. version is that of the plant after it, if details were asked for.
    """

    cursor: str
    time: datetime
    type: str
    plant: Plant
    by: str
    version: str | None = None


@dataclass(frozen=True)
class Bucket:
    """How many events there were from a time on until the next bucket begins.

    If it is partial, it begins before the events that are kept: there may have been more.
    """

    time: datetime
    events: int
    partial: bool = False


@dataclass(frozen=True)
class EventPage:
    """A page of events. cursor is the position at its end."""

    events: list[Event]
    cursor: str
    more: bool


@dataclass(frozen=True)
class Failing:
    """An event that could not be delivered so far.

    since is when the first attempt failed, since the webhook was resumed or had its URL changed.
    """

    since: datetime
    attempts: int
    error: str


@dataclass(frozen=True)
class WebhookError:
    """Why an attempt to deliver an event failed, at which URL, and when that attempt began."""

    url: str
    time: datetime
    error: str


@dataclass(frozen=True)
class Webhook:
    """An endpoint to which changes are sent.

    reason says why it is disabled, and by who created it, if the server knows. delivered is
    when an event last was. failing is the oldest event that could not be delivered, if the
    last attempt, at the present URL, failed. pending is how many were not delivered, counted up
    to 1000, and lag_ms the age of the oldest. health is healthy, catching_up, failing, paused or
    disabled. next_attempt is when an event that has failed is sent again. last_error is why an
    attempt last failed, also if events have arrived since.
    """

    id: str
    url: str
    types: list[str]
    description: str
    state: str
    created: datetime
    reason: str | None = None
    by: str | None = None
    delivered: datetime | None = None
    failing: Failing | None = None
    pending: int = 0
    lag_ms: int = 0
    health: str = "healthy"
    next_attempt: datetime | None = None
    last_error: WebhookError | None = None


@dataclass(frozen=True)
class WebhookWithSecret(Webhook):
    """A webhook with the secret that signs what is sent."""

    secret: str = field(default="", repr=False)


@dataclass(frozen=True)
class Delivery:
    """One attempt to deliver an event. status is 0 if there was no response."""

    event: str
    type: str
    attempt: int
    time: datetime
    status: int
    duration_ms: int
    error: str | None = None
    response: str | None = None


@dataclass(frozen=True)
class Token:
    """A token without its secret. It never expires if expires is None.

    The token of an identity provider has an issuer and a subject. rate is how many requests
    the token may make, such as 200/s,burst=400, or None for the server's default.
    """

    id: str | None
    name: str | None
    scopes: list[str]
    created: datetime | None
    expires: datetime | None
    issuer: str | None = None
    subject: str | None = None
    rate: str | None = None


@dataclass(frozen=True)
class NewToken(Token):
    """A token with its secret, which is shown once."""

    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Limits:
    """The limits that a client meets. None is no limit; sizes are in bytes."""

    max_body: int
    max_header: int
    max_page_size: int
    max_token_name: int
    max_tokens: int
    max_webhooks: int
    rate_limit: str | None
    log_keep_seconds: int | None
    log_max_bytes: int | None


@dataclass(frozen=True)
class AboutLog:
    """What is kept of the log of changes. oldest is None if that is nothing."""

    events: int
    bytes: int
    oldest: datetime | None = None


@dataclass(frozen=True)
class SearchIndex:
    """The index of names. state is "off", "building" or "ready"; plants is how many it has."""

    state: str
    plants: int


@dataclass(frozen=True)
class About:
    """A server. plants is None if the token may not read them.

    started is when the server started, and bytes the size of its store on disk. They, log and
    search_index are None if the token lacks the scope ops:read.
    """

    version: str
    interface: str
    store: str
    limits: Limits
    plants: int | None = None
    started: datetime | None = None
    bytes: int | None = None
    log: AboutLog | None = None
    search_index: SearchIndex | None = None
