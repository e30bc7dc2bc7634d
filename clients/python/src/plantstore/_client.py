"""The blocking client."""

from __future__ import annotations

import builtins
import ssl
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import IO, Generic, Literal, cast, overload

from ._blocking import connect, iterate, run, sleep
from ._calls import NDJSON, RESPONSE_TIMEOUT, Calls, Lines, plant_filter
from ._errors import PlantstoreError
from ._types import KEEP, About, Bucket, Delivery, Event, EventPage, ImportLine, ImportMode, ImportReport, Keep, Never
from ._types import NewToken, Order, P_co, Page, Plant, StoredPlant, TagCount, TagPage, Token, Webhook
from ._types import WebhookWithSecret


class Client:
    """Calls one server with one token. Threads may share it.

    Without a token, every call raises an UnauthorizedError that says so.

    retries is how often a failed call is retried, 0 for never. The pauses between
    attempts double from 0.1 s to 5 s, and each is shortened at random by up to half. A
    Retry-After of the server is added to the pause. retry_timeout limits how long after
    its first failure a call is retried, in seconds; a Retry-After beyond it ends the call
    immediately. retrying, if given, is called before each retry with the error of the
    failed attempt and the pause.

    timeout is how many seconds the server may send nothing. ssl_context is for https.
    Redirects are refused, because they would carry the token elsewhere.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        *,
        retries: int = 18,
        retry_timeout: float = 60.0,
        timeout: float = RESPONSE_TIMEOUT,
        ssl_context: ssl.SSLContext | None = None,
        retrying: Callable[[PlantstoreError, float], None] | None = None,
    ) -> None:
        self._calls = Calls(
            url, token, retries, retry_timeout, timeout, ssl_context, retrying, connect, sleep
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that no call uses. The client can still be used."""
        self._calls._pool.close()

    # Plants.

    def create(self, plant: Plant) -> None:
        """Adds a plant. When it returns, the plant is durable.

        Creating the same plant again succeeds and changes nothing. It raises an
        IdTakenError if another plant has the id.
        """
        run(self._calls.create(plant))

    def get(self, id: int, *, details: bool = False) -> StoredPlant:
        """Returns the plant with that id, with details with its times, or raises a NotFoundError."""
        return run(self._calls.get(id, details=details))

    def put(self, plant: Plant, *, if_match: str | None = None, if_none_match: str | None = None) -> None:
        """Creates the plant, or replaces the one with its id. When it returns, the plant is durable.

        With if_match, an ETag, only if the plant has that; with if_none_match="*", only
        if it does not exist. Otherwise it raises a PreconditionError. If a response was lost
        and if_match is not "*", nobody knows why the repeated request fails: it raises an
        OutcomeError, as patch and delete do.
        """
        run(self._calls.put(plant, if_match=if_match, if_none_match=if_none_match))

    def patch(
        self,
        id: int,
        *,
        name: str | Keep = KEEP,
        tag: str | None | Keep = KEEP,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> StoredPlant:
        """Changes the name or the tag of the plant with that id, and returns the plant as it is then.

        What is not given stays, and a tag of None is removed. It raises a NotFoundError if
        there is no such plant, and with if_match, if the plant does not have that ETag, a
        PreconditionError. When it returns, the change is durable.
        """
        return run(
            self._calls.patch(id, name=name, tag=tag, if_match=if_match, if_none_match=if_none_match)
        )

    def delete(self, id: int, *, if_match: str | None = None, if_none_match: str | None = None) -> None:
        """Removes the plant with that id, or raises a NotFoundError. When it returns, that is durable.

        With if_match, only if the plant has that ETag; otherwise it raises a
        PreconditionError. If an attempt is lost and the next one finds no plant, the lost
        one is taken to have deleted it.
        """
        run(self._calls.delete(id, if_match=if_match, if_none_match=if_none_match))

    @overload
    def page(
        self,
        *,
        ids: Sequence[int] | None = None,
        after: int | None = None,
        after_name: str | None = None,
        order: Order | None = None,
        tag: str | Sequence[str] | None = None,
        tag_prefix: str | None = None,
        untagged: bool = False,
        q: str | None = None,
        limit: int | None = None,
        count: bool = False,
        details: Literal[True],
    ) -> Page[StoredPlant]: ...

    @overload
    def page(
        self,
        *,
        ids: Sequence[int] | None = None,
        after: int | None = None,
        after_name: str | None = None,
        order: Order | None = None,
        tag: str | Sequence[str] | None = None,
        tag_prefix: str | None = None,
        untagged: bool = False,
        q: str | None = None,
        limit: int | None = None,
        count: bool = False,
        details: bool = False,
    ) -> Page[Plant]: ...

    def page(
        self,
        *,
        ids: Sequence[int] | None = None,
        after: int | None = None,
        after_name: str | None = None,
        order: Order | None = None,
        tag: str | Sequence[str] | None = None,
        tag_prefix: str | None = None,
        untagged: bool = False,
        q: str | None = None,
        limit: int | None = None,
        count: bool = False,
        details: bool = False,
    ) -> Page[Plant]:
        """Returns one page of the plants that match, in the order, which is by default that of their ids.

        tag, which may be several, tag_prefix and untagged select plants with one of these tags,
        with one that begins with a text, or without one: those that one of the three selects,
        whose name contains every word of q.

        It may have fewer than the limit and still not be the last. An order by name takes a million
        plants at most: otherwise it raises an error, 40007. With ids, 1000 at most, it has the plants with these ids; nothing else that selects plants is then allowed, and the
        limit is ignored. With details they are StoredPlants. With count the page has how many
        plants match, unless that would be too much work.
        """
        return run(
            self._calls.page(
                ids=ids,
                after=after,
                after_name=after_name,
                order=order,
                tag=tag,
                tag_prefix=tag_prefix,
                untagged=untagged,
                q=q,
                limit=limit,
                count=count,
                details=details,
            )
        )

    @overload
    def list(
        self,
        *,
        ids: Sequence[int] | None = None,
        after: int | None = None,
        after_name: str | None = None,
        order: Order | None = None,
        tag: str | Sequence[str] | None = None,
        tag_prefix: str | None = None,
        untagged: bool = False,
        q: str | None = None,
        limit: int = 1000,
        details: Literal[True],
    ) -> Iterator[StoredPlant]: ...

    @overload
    def list(
        self,
        *,
        ids: Sequence[int] | None = None,
        after: int | None = None,
        after_name: str | None = None,
        order: Order | None = None,
        tag: str | Sequence[str] | None = None,
        tag_prefix: str | None = None,
        untagged: bool = False,
        q: str | None = None,
        limit: int = 1000,
        details: bool = False,
    ) -> Iterator[Plant]: ...

    def list(
        self,
        *,
        ids: Sequence[int] | None = None,
        after: int | None = None,
        after_name: str | None = None,
        order: Order | None = None,
        tag: str | Sequence[str] | None = None,
        tag_prefix: str | None = None,
        untagged: bool = False,
        q: str | None = None,
        limit: int = 1000,
        details: bool = False,
    ) -> Iterator[Plant]:
        """Yields the plants that match, in the order, as page does: all of them, one page at a time.

        The limit is that of a page. A plant that is written in the meantime may or may not be
        seen: export reads one snapshot. With details they are StoredPlants.
        """
        return iterate(
            self._calls.list(
                ids=ids,
                after=after,
                after_name=after_name,
                order=order,
                tag=tag,
                tag_prefix=tag_prefix,
                untagged=untagged,
                q=q,
                limit=limit,
                details=details,
            )
        )

    def tag_page(
        self, *, prefix: str = "", q: str | None = None, start: str = "", limit: int | None = None
    ) -> TagPage:
        """Returns one page of the tags that begin with prefix and are not before start, in byte order.

        With q, only those that contain every word of it, ignoring case and diacritics. Each has how many plants have it, counted up to 1000. The page may have fewer than
        the limit and still not be the last.
        """
        return run(self._calls.tag_page(prefix=prefix, q=q, start=start, limit=limit))

    def tags(self, *, prefix: str = "", q: str | None = None, limit: int = 1000) -> Iterator[TagCount]:
        """Yields the tags that begin with prefix, and have every word of q, in byte order, with how many plants have each.

        Plants are counted up to 1000. The limit is that of a page, whose counts are of the
        same moment.
        """
        return iterate(self._calls.tags(prefix=prefix, q=q, limit=limit))

    @overload
    def export(
        self,
        *,
        ids: Sequence[int] | None = None,
        after: int | None = None,
        after_name: str | None = None,
        order: Order | None = None,
        tag: str | Sequence[str] | None = None,
        tag_prefix: str | None = None,
        untagged: bool = False,
        q: str | None = None,
        details: Literal[True],
    ) -> Export[StoredPlant]: ...

    @overload
    def export(
        self,
        *,
        ids: Sequence[int] | None = None,
        after: int | None = None,
        after_name: str | None = None,
        order: Order | None = None,
        tag: str | Sequence[str] | None = None,
        tag_prefix: str | None = None,
        untagged: bool = False,
        q: str | None = None,
        details: bool = False,
    ) -> Export[Plant]: ...

    def export(
        self,
        *,
        ids: Sequence[int] | None = None,
        after: int | None = None,
        after_name: str | None = None,
        order: Order | None = None,
        tag: str | Sequence[str] | None = None,
        tag_prefix: str | None = None,
        untagged: bool = False,
        q: str | None = None,
        details: bool = False,
    ) -> Export[Plant]:
        """Returns an iterator over all plants that match, in the order, from one snapshot.

        It raises an error if it is cut off, and never ends early without one. With details
        they are StoredPlants.
        """
        filter = plant_filter(order, after_name, tag, tag_prefix, untagged, q)
        lines = self._calls._export(ids, after, filter, details)
        run(lines.begin())
        return Export(lines)

    def import_plants(
        self, plants: Iterable[Plant | ImportLine], *, mode: ImportMode | None = None, dry_run: bool = False
    ) -> ImportReport:
        """Creates many plants, or with a mode replaces or deletes them, each independently of the others.

        An ImportLine may have the version that the plant must have, and needs only an id to
        delete it; a plant that is not there to be deleted counts as unchanged. With dry_run
        nothing is written: the report says what would happen.

        The n-th plant is line n of the report. When it returns, everything that the
        report counts is durable. After an error some plants may have been imported, and
        importing the same plants again is safe, except that what has an if_version may fail
        then. It is retried only while nothing has been sent. A server may cut off an import
        that is slower than 1 KiB per second.
        """
        return run(self._calls.import_plants(plants, mode=mode, dry_run=dry_run))

    def import_lines(
        self,
        lines: IO[bytes] | Iterable[bytes],
        *,
        mode: ImportMode | None = None,
        dry_run: bool = False,
        media: str = NDJSON,
        versions: bool = False,
    ) -> ImportReport:
        """Is import_plants for plants that are already encoded.

        They are NDJSON, or with another media a table, text/csv, or an array,
        application/json. If lines is a file that can seek, an import that fails half-way is
        retried from the file's initial position; otherwise only while nothing has been sent.
        versions says that lines have an if_version: then, too, it is retried only while
        nothing has been sent, because a line that was imported already would fail.
        """
        return run(self._calls.import_lines(lines, mode=mode, dry_run=dry_run, media=media, versions=versions))

    # The log of changes.

    def event_page(
        self,
        *,
        after: str | None = None,
        since: datetime | None = None,
        id: int | None = None,
        types: Sequence[str] = (),
        by: str | None = None,
        q: str | None = None,
        limit: int | None = None,
        newest: bool = False,
        before: str | None = None,
        details: bool = False,
    ) -> EventPage:
        """Returns one page of the log of changes, in order, or with newest=True the newest first.

        It may have fewer events than the limit and still not be the last. Pass its cursor
        as after to continue, or as before if the newest is first. With q, only events of plants
        whose name contains every word of it, ignoring case and diacritics. With details the events
        have the versions of their plants. It raises a GoneError if the events at the position
        are no longer kept.
        """
        return run(
            self._calls.event_page(
                after=after,
                since=since,
                id=id,
                types=types,
                by=by,
                q=q,
                limit=limit,
                newest=newest,
                before=before,
                details=details,
            )
        )

    def histogram(
        self, since: datetime, *, until: datetime | None = None, buckets: int | None = None
    ) -> builtins.list[Bucket]:
        """Returns how many events the log of changes has in each of some buckets of equal length.

        All events count. Without until the last bucket ends now.
        """
        return run(self._calls.histogram(since, until=until, buckets=buckets))

    def events(
        self,
        *,
        after: str | None = None,
        since: datetime | None = None,
        id: int | None = None,
        types: Sequence[str] = (),
        by: str | None = None,
        q: str | None = None,
        details: bool = False,
    ) -> Iterator[Event]:
        """Yields every event that matches, in order, and then waits for the next ones.

        Without after and since it starts with the oldest event kept; after=LATEST starts
        with the next event. It reconnects when its connection is lost, and never skips
        or repeats an event. To continue later, even in another process, store the cursor
        of the last event and pass it as after. Events of tokens, and of what this version
        does not know, are skipped. With details the events have the versions of their
        plants. It raises a GoneError if the events after the position are no longer kept.
        """
        return iterate(
            self._calls.events(after=after, since=since, id=id, types=types, by=by, q=q, details=details)
        )

    # Webhooks.

    def create_webhook(
        self, url: str, *, types: Sequence[str] = (), description: str = "", after: str | None = None
    ) -> WebhookWithSecret:
        """Creates a webhook: changes of these types are sent to the URL, from now on or from a position.

        It is not retried if the server may have created the webhook.
        """
        return run(self._calls.create_webhook(url, types=types, description=description, after=after))

    def webhooks(self) -> builtins.list[Webhook]:
        """Returns all webhooks, in order of creation."""
        return run(self._calls.webhooks())

    def webhook(self, id: str) -> Webhook:
        """Returns the webhook with that id, or raises a NotFoundError."""
        return run(self._calls.webhook(id))

    def replace_webhook(self, id: str, url: str, *, types: Sequence[str] = (), description: str = "") -> Webhook:
        """Sets the URL, the types and the description of a webhook."""
        return run(self._calls.replace_webhook(id, url, types=types, description=description))

    def delete_webhook(self, id: str) -> None:
        """Removes a webhook, or raises a NotFoundError."""
        run(self._calls.delete_webhook(id))

    def rotate_webhook(self, id: str) -> WebhookWithSecret:
        """Gives a webhook a new secret. For 24 hours the old one signs too.

        It is not retried if the server may have made a secret already.
        """
        return run(self._calls.rotate_webhook(id))

    def test_webhook(self, id: str) -> Delivery:
        """Sends a webhook.test now and returns what came back. A failed delivery is not an error."""
        return run(self._calls.test_webhook(id))

    def pause_webhook(self, id: str) -> Webhook:
        """Stops a webhook until it is resumed. The error for a disabled one has the code DISABLED."""
        return run(self._calls.pause_webhook(id))

    def retry_webhook(self, id: str) -> Webhook:
        """Sends undelivered events now. The error for a disabled or paused webhook has the code DISABLED."""
        return run(self._calls.retry_webhook(id))

    def resume_webhook(self, id: str) -> Webhook:
        """Makes a disabled or paused webhook active again, from where it stood."""
        return run(self._calls.resume_webhook(id))

    def replay_webhook(self, id: str, *, after: str | None = None, since: datetime | None = None) -> Webhook:
        """Moves a webhook: the events after a cursor, or from a time on, are sent, again if they were before."""
        return run(self._calls.replay_webhook(id, after=after, since=since))

    def deliveries(self, id: str) -> builtins.list[Delivery]:
        """Returns the last attempts to deliver to a webhook, the newest first."""
        return run(self._calls.deliveries(id))

    # The server.

    def about(self) -> About:
        """Returns what the server is, and the limits that this client meets there."""
        return run(self._calls.about())

    # Tokens.

    def token(self) -> Token:
        """Returns the token of this client."""
        return run(self._calls.token())

    def create_token(
        self, name: str, scopes: Sequence[str], *, expires: datetime | Never | None = None, rate: str | None = None
    ) -> NewToken:
        """Creates a token. Without expires it ends after 90 days, or with the caller's own if that is sooner.

        rate, such as 200/s,burst=400, is how many requests it may make: by default as many
        as the caller's own token.

        It is not retried if the server may have created the token.
        """
        return run(self._calls.create_token(name, scopes, expires=expires, rate=rate))

    def tokens(self) -> builtins.list[Token]:
        """Returns all tokens."""
        return run(self._calls.tokens())

    def get_token(self, id: str) -> Token:
        """Returns the token with that id, or raises a NotFoundError."""
        return run(self._calls.get_token(id))

    def revoke_token(self, id: str) -> None:
        """Revokes a token, or raises a NotFoundError. Revoking it again succeeds."""
        run(self._calls.revoke_token(id))


class Export(Iterator[P_co], Generic[P_co]):
    """An export under way. cursor is its position in the log of changes.

    The events after the cursor are exactly the changes that the export does not have. A
    with statement closes an export that is not read to its end.
    """

    def __init__(self, lines: Lines) -> None:
        self.cursor: str = lines.cursor
        self._export = lines
        self._lines = _flatten(lines)

    def __enter__(self) -> Export[P_co]:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the export."""
        self._lines.close()
        self._export.close()

    def __next__(self) -> P_co:
        return cast(P_co, self._export.decode(next(self._lines)))

    def lines(self) -> Iterator[bytes]:
        """Returns the rest as NDJSON, line by line, which import_lines takes."""
        return self._lines


def _flatten(lines: Lines) -> Generator[bytes, None, None]:
    for block in iterate(lines.blocks()):
        yield from block
