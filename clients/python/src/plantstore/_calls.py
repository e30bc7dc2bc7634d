"""The calls of both clients, as coroutines."""

from __future__ import annotations

import builtins
import random
import re
import ssl
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timezone
from typing import IO, Any, Literal, TypeVar, cast, overload
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from . import _wire as wire
from ._errors import Code, IdTakenError, NotFoundError, OutcomeError, PlantstoreError, PreconditionError, ResponseError
from ._errors import Transient, TransportError, foreign_error, server_error, with_message
from ._http import BUFFER, Connect, Pool, Response, lost, retry_after
from ._types import KEEP, LATEST, About, Bucket, Count, Delivery, Event, EventPage, ImportLine, ImportMode, ImportReport, Keep
from ._types import LineError, Never, NewToken, Order, Page, Plant, StoredPlant, TagCount, TagPage, Token, Webhook
from ._types import WebhookWithSecret

T = TypeVar("T")

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
CURSOR = "Plantstore-Cursor"

# A server tries to write for 30 s before it gives up, so a response may take a little
# longer than that.
RESPONSE_TIMEOUT = 45.0
STREAM_TIMEOUT = 600.0

MIN_PAUSE, MAX_PAUSE = 0.1, 5.0
MAX_BODY = 64 << 20  # far more than a server sends in one response
MAX_ERROR_BODY = 256 << 10
MAX_EVENT = 16 << 20
MAX_LINE_ERRORS = 100


class Calls:
    """Calls one server with one token, over connections that block or that wait.

    Client says what each call does.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        retries: int,
        retry_timeout: float,
        timeout: float,
        ssl_context: ssl.SSLContext | None,
        retrying: Callable[[PlantstoreError, float], None] | None,
        connect: Connect,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._prefix, self._pool = _open(url, ssl_context, connect)
        self._token = token or ""
        if self._token:
            _check_token(self._token)
        self._retries = retries
        self._retry_timeout = retry_timeout
        self._timeout = timeout
        self._retrying = retrying
        self._sleep = sleep

    # Plants.

    async def create(self, plant: Plant) -> None:
        await self._retry(f"create plant {plant.id}", lambda _: self._create_once(plant))

    async def _create_once(self, plant: Plant) -> None:
        (await self._call(200, "POST", "/plants", wire.encode_plant(plant, with_id=True))).confirm(plant)

    async def get(self, id: int, *, details: bool = False) -> StoredPlant:
        target = _plant_path(id) + _params({"details": _flag(details)})
        return await self._read(f"get plant {id}", "GET", target, None, lambda response: response.stored(id))

    async def put(self, plant: Plant, *, if_match: str | None = None, if_none_match: str | None = None) -> None:
        body = wire.encode_plant(plant, with_id=False)
        target = _plant_path(plant.id)

        async def attempt(headers: dict[str, str], maybe_applied: bool) -> None:
            try:
                (await self._call(200, "PUT", target, body, headers)).confirm(plant)
            except PreconditionError as err:
                if not maybe_applied or if_none_match != "*":
                    raise
                # The existing plant may be the one that an earlier attempt wrote. If so,
                # creating it changes nothing; if not, it is refused.
                try:
                    await self._create_once(plant)
                except IdTakenError:
                    raise err from None

        await self._write_if(f"put plant {plant.id}", plant.id, if_match, if_none_match, attempt)

    async def patch(
        self,
        id: int,
        *,
        name: str | Keep = KEEP,
        tag: str | None | Keep = KEEP,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> StoredPlant:
        body = wire.encode_patch(name, tag)
        target = _plant_path(id)

        async def attempt(headers: dict[str, str], _: bool) -> StoredPlant:
            return (await self._call(200, "PATCH", target, body, headers)).stored(id)

        return await self._write_if(f"patch plant {id}", id, if_match, if_none_match, attempt)

    async def delete(self, id: int, *, if_match: str | None = None, if_none_match: str | None = None) -> None:
        target = _plant_path(id)

        async def attempt(headers: dict[str, str], maybe_applied: bool) -> None:
            done = Code.NO_PLANT if maybe_applied and not _is_of_version(if_match) else None
            await self._delete_once(target, headers, done)

        await self._write_if(f"delete plant {id}", id, if_match, if_none_match, attempt)

    @overload
    async def page(
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
    async def page(
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

    async def page(
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
        filter = plant_filter(order, after_name, tag, tag_prefix, untagged, q)
        target = _plants_path(ids, after, {**filter, "count": _flag(count)}, limit, details)
        if target.endswith(("?id=", "&id=")):
            return Page([], None)
        decode = _plant_decoder(details)
        return await self._read(
            "list plants", "GET", target, None, lambda response: response.page(after, after_name, order, count, decode)
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
    ) -> AsyncGenerator[StoredPlant, None]: ...

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
    ) -> AsyncGenerator[Plant, None]: ...

    async def list(
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
    ) -> AsyncGenerator[Plant, None]:
        while True:
            page = await self.page(
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
            for plant in page.plants:
                yield plant
            if page.next is None and page.next_name is None:
                return
            after, after_name = page.next, page.next_name

    async def tag_page(
        self, *, prefix: str = "", q: str | None = None, start: str = "", limit: int | None = None
    ) -> TagPage:
        target = "/tags" + _params({"prefix": prefix or None, "q": q or None, "from": start or None, "limit": limit})
        return await self._read("list tags", "GET", target, None, lambda response: response.tag_page(start))

    async def tags(
        self, *, prefix: str = "", q: str | None = None, limit: int = 1000
    ) -> AsyncGenerator[TagCount, None]:
        start: str | None = ""
        while start is not None:
            page = await self.tag_page(prefix=prefix, q=q, start=start, limit=limit)
            for tag in page.tags:
                yield tag
            start = page.next

    def _export(
        self, ids: Sequence[int] | None, after: int | None, filter: dict[str, object], details: bool
    ) -> Lines:
        return Lines(self, _plants_path(ids, after, filter, None, details), _plant_decoder(details))

    async def import_plants(
        self,
        plants: Iterable[Plant | ImportLine] | AsyncIterable[Plant | ImportLine],
        *,
        mode: ImportMode | None = None,
        dry_run: bool = False,
    ) -> ImportReport:
        refused: builtins.list[LineError] = []
        line = failed = 0

        def encode(plant: Plant | ImportLine) -> bytes:
            nonlocal line, failed
            line += 1
            if isinstance(plant, ImportLine) and plant.if_version is not None and not dry_run:
                upload.versions = True
            try:
                return wire.encode_line(plant, only_id=mode == "delete") + b"\n"
            except PlantstoreError as err:
                # The server skips a blank line, and counts it.
                failed += 1
                if len(refused) < MAX_LINE_ERRORS:
                    refused.append(LineError(line, err.code, err.message))
                return b"\n"

        if isinstance(plants, AsyncIterable):
            upload = _Upload((encode(plant) async for plant in plants), dry_run=dry_run)
        else:
            upload = _Upload(map(encode, plants), dry_run=dry_run)
        report = await self._import(upload, mode, dry_run, NDJSON)
        errors = sorted(report.errors + refused, key=lambda e: e.line)[:MAX_LINE_ERRORS]
        return replace(report, failed=report.failed + failed, errors=errors)

    async def import_lines(
        self,
        lines: IO[bytes] | Iterable[bytes] | AsyncIterable[bytes],
        *,
        mode: ImportMode | None = None,
        dry_run: bool = False,
        media: str = NDJSON,
        versions: bool = False,
    ) -> ImportReport:
        return await self._import(_Upload(lines, versions, dry_run), mode, dry_run, media)

    async def _import(self, upload: _Upload, mode: ImportMode | None, dry_run: bool, media: str) -> ImportReport:
        target = self._prefix + "/plants/import" + _params({"mode": mode, "dry_run": _flag(dry_run)})

        async def attempt(_: bool) -> ImportReport:
            try:
                headers = {**self._headers(JSON), "Content-Type": media}
                async with aclosing(upload.begin()) as body:
                    with await self._pool.upload(target, headers, body, STREAM_TIMEOUT) as response:
                        report = (await self._whole(response, 200)).decode(wire.decode_report)
            except Transient as failed:
                raise upload.failed(failed) from failed
            if not upload.whole:
                raise ResponseError("the server responded before it had read all lines", 0, 200)
            errors = [LineError(e.line, e.code, self._redact(e.message)) for e in report.errors]
            return replace(report, errors=errors)

        return await self._retry("import plants", attempt)

    # The log of changes.

    async def event_page(
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
        order = {"order": "newest" if newest else None, "before": before, "limit": limit}
        target = "/events" + _params({**_event_params(after, since, id, types, by, q, details), **order})
        at = before or after
        return await self._read("read events", "GET", target, None, lambda response: response.event_page(at))

    async def histogram(
        self, since: datetime, *, until: datetime | None = None, buckets: int | None = None
    ) -> builtins.list[Bucket]:
        end = None if until is None else wire.format_time(until)
        target = "/events/histogram" + _params({"since": wire.format_time(since), "until": end, "buckets": buckets})
        return await self._value("count events", "GET", target, None, lambda value: wire.many(value, wire.decode_bucket))

    async def events(
        self,
        *,
        after: str | None = None,
        since: datetime | None = None,
        id: int | None = None,
        types: Sequence[str] = (),
        by: str | None = None,
        q: str | None = None,
        details: bool = False,
    ) -> AsyncGenerator[Event, None]:
        begin = since or datetime.fromtimestamp(0, timezone.utc)
        stream = _EventStream(self, after, begin, id, types, by, q, details)
        retries = _Retries(self, "follow events")
        while True:
            try:
                async with aclosing(stream.follow()) as events:
                    async for event in events:
                        yield event
            except Transient as failed:
                await retries.failed(failed)
            except PlantstoreError as err:
                raise self._fail("follow events", err) from None

    # Webhooks.

    async def create_webhook(
        self, url: str, *, types: Sequence[str] = (), description: str = "", after: str | None = None
    ) -> WebhookWithSecret:
        body = _webhook_body(url, types, description, after)
        return await self._secret("create a webhook", 201, "/webhooks", body, wire.decode_webhook_with_secret)

    async def webhooks(self) -> builtins.list[Webhook]:
        return await self._value(
            "list webhooks", "GET", "/webhooks", None, lambda value: wire.many(value, wire.decode_webhook)
        )

    async def webhook(self, id: str) -> Webhook:
        return await self._value(f"get webhook {id}", "GET", _webhook_path(id), None, wire.decode_webhook)

    async def replace_webhook(self, id: str, url: str, *, types: Sequence[str] = (), description: str = "") -> Webhook:
        body = _webhook_body(url, types, description, None)
        return await self._value(f"replace webhook {id}", "PUT", _webhook_path(id), body, wire.decode_webhook)

    async def delete_webhook(self, id: str) -> None:
        async def attempt(maybe_applied: bool) -> None:
            await self._delete_once(_webhook_path(id), {}, Code.NO_WEBHOOK if maybe_applied else None)

        await self._retry(f"delete webhook {id}", attempt)

    async def rotate_webhook(self, id: str) -> WebhookWithSecret:
        what = f"rotate the secret of webhook {id}"
        return await self._secret(what, 200, _webhook_path(id, "/rotate"), None, wire.decode_webhook_with_secret)

    async def test_webhook(self, id: str) -> Delivery:
        return await self._value(f"test webhook {id}", "POST", _webhook_path(id, "/test"), None, wire.decode_delivery)

    async def pause_webhook(self, id: str) -> Webhook:
        return await self._value(f"pause webhook {id}", "POST", _webhook_path(id, "/pause"), None, wire.decode_webhook)

    async def retry_webhook(self, id: str) -> Webhook:
        return await self._value(f"retry webhook {id}", "POST", _webhook_path(id, "/retry"), None, wire.decode_webhook)

    async def resume_webhook(self, id: str) -> Webhook:
        return await self._value(f"resume webhook {id}", "POST", _webhook_path(id, "/resume"), None, wire.decode_webhook)

    async def replay_webhook(self, id: str, *, after: str | None = None, since: datetime | None = None) -> Webhook:
        if (after is None) == (since is None):
            raise TypeError("give either after or since")
        body = wire.dump({"after": after} if since is None else {"since": wire.format_time(since)})
        return await self._value(f"replay webhook {id}", "POST", _webhook_path(id, "/replay"), body, wire.decode_webhook)

    async def deliveries(self, id: str) -> builtins.list[Delivery]:
        return await self._value(
            f"list the deliveries of webhook {id}",
            "GET",
            _webhook_path(id, "/deliveries"),
            None,
            lambda value: wire.many(value, wire.decode_delivery),
        )

    # The server.

    async def about(self) -> About:
        return await self._value("get the server's version and limits", "GET", "/about", None, wire.decode_about)

    # Tokens.

    async def token(self) -> Token:
        return await self._value("get the token", "GET", "/token", None, wire.decode_token)

    async def create_token(
        self, name: str, scopes: Sequence[str], *, expires: datetime | Never | None = None, rate: str | None = None
    ) -> NewToken:
        body: dict[str, object] = {"name": name, "scopes": [*scopes]}
        if expires is not None:
            body["expires"] = None if isinstance(expires, Never) else wire.format_time(expires)
        if rate is not None:
            body["rate"] = rate
        return await self._secret("create a token", 201, "/tokens", wire.dump(body), wire.decode_new_token)

    async def tokens(self) -> builtins.list[Token]:
        return await self._value("list tokens", "GET", "/tokens", None, lambda value: wire.many(value, wire.decode_token))

    async def get_token(self, id: str) -> Token:
        return await self._value(f"get token {id}", "GET", "/tokens/" + quote(id, safe=""), None, wire.decode_token)

    async def revoke_token(self, id: str) -> None:
        target = "/tokens/" + quote(id, safe="")
        await self._retry(f"revoke token {id}", lambda _: self._call(204, "DELETE", target))

    # How calls are made.

    def _headers(self, accept: str) -> dict[str, str]:
        if not self._token:
            text = "pass it as token, and check that PLANTSTORE_TOKEN is set if it comes from there"
            raise server_error(Code.NO_TOKEN, f"no token was given: {text}")
        return {"Authorization": "Bearer " + self._token, "Accept": accept}

    async def _call(
        self, status: int, method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Whole:
        """Makes one attempt at a call and reads the whole response, which must have the status."""
        headers = {**self._headers(JSON), **(headers or {})}
        if body is not None:
            headers["Content-Type"] = JSON
        with await self._pool.request(method, self._prefix + target, headers, body, self._timeout) as response:
            return await self._whole(response, status)

    async def _whole(self, response: Response, status: int) -> Whole:
        if response.status != status:
            raise await self._response_error(response)
        try:
            body = await response.read(MAX_BODY)
        except OSError as err:
            raise lost(err) from err
        if len(body) > MAX_BODY:
            raise ResponseError(f"the response is larger than the limit of {MAX_BODY >> 20} MiB", 0, status)
        return Whole(response, body)

    async def _response_error(self, response: Response) -> Exception:
        """Returns the error that a response stands for."""
        cut: Exception | None = None
        body = b""
        try:
            body = await response.read(MAX_ERROR_BODY)
        except OSError as failed:
            cut = failed
        err = Whole(response, body).error()
        if cut is not None:
            err = TransportError(f'the response "{response.title}" was cut off: {cut}')
        if response.status in (502, 503, 504):
            return Transient(err, after=retry_after(response), maybe_applied=True)
        if response.status == 429:
            return Transient(err, after=retry_after(response))
        if cut is not None:
            return Transient(err)
        return err

    async def _retry(self, what: str, attempt: Callable[[bool], Awaitable[T]]) -> T:
        """Makes attempts until one succeeds or fails permanently.

        It passes each attempt whether an earlier one may have been applied.
        """
        retries = _Retries(self, what)
        while True:
            try:
                return await attempt(retries.maybe_applied)
            except Transient as failed:
                await retries.failed(failed)
            except PlantstoreError as err:
                raise self._fail(what, err) from None

    async def _read(
        self, what: str, method: str, target: str, body: bytes | None, read: Callable[[Whole], T]
    ) -> T:
        """Makes a call that can be retried and reads its response."""

        async def attempt(_: bool) -> T:
            return read(await self._call(200, method, target, body))

        return await self._retry(what, attempt)

    async def _value(
        self, what: str, method: str, target: str, body: bytes | None, decode: Callable[[Any], T]
    ) -> T:
        return await self._read(what, method, target, body, lambda response: response.decode(decode))

    async def _secret(self, what: str, status: int, target: str, body: bytes | None, decode: Callable[[Any], T]) -> T:
        """Makes a call whose response has a secret. It retries only what the server has not applied."""

        async def attempt(_: bool) -> T:
            try:
                return (await self._call(status, "POST", target, body)).decode(decode)
            except Transient as failed:
                if not failed.maybe_applied:
                    raise
                message = f"{what}: {failed.err.message}: it may have taken effect"
                raise _Explained(with_message(failed.err, message)) from failed

        try:
            return await self._retry(what, attempt)
        except _Explained as explained:
            raise with_message(explained.err, self._redact(explained.err.message)) from explained.__cause__

    async def _delete_once(self, target: str, headers: dict[str, str], done: Code | None) -> None:
        """Makes one attempt at a deletion, for which an error with the number done is a success, too."""
        try:
            await self._call(204, "DELETE", target, None, headers)
        except NotFoundError as err:
            if err.code != done:
                raise

    async def _write_if(
        self,
        what: str,
        id: int,
        if_match: str | None,
        if_none_match: str | None,
        attempt: Callable[[dict[str, str], bool], Awaitable[T]],
    ) -> T:
        """Makes a write with a condition.

        It passes each attempt its headers, and whether an earlier one may have been applied.
        """
        headers = _condition(if_match, if_none_match)
        lost = False

        async def once(maybe_applied: bool) -> T:
            nonlocal lost
            lost = maybe_applied
            try:
                return await attempt(headers, maybe_applied)
            except Transient as failed:
                lost = lost or failed.maybe_applied
                raise

        try:
            return await self._retry(what, once)
        except PlantstoreError as err:
            if not lost or not _is_of_version(if_match):
                raise
            unknown = OutcomeError(
                f"the outcome is unknown, because a response was lost; after that: {err.message}", err.code, err.status
            )
            try:
                unknown.now = await self.get(id, details=True)
            except PlantstoreError as failed:
                unknown.read_error = failed
            raise unknown from err

    def _redact(self, text: str) -> str:
        return text.replace(self._token, "[token]") if self._token else text

    def _fail(self, what: str, err: PlantstoreError) -> PlantstoreError:
        """Every error that is raised passes through here.

        It adds what was attempted, unless the server has said what is wrong, and removes
        the token from the text.
        """
        message = err.message if err.code else f"{what}: {err.message}"
        return with_message(err, self._redact(message))


class _Explained(Exception):
    """A failure that must not be retried, and says so."""

    def __init__(self, err: PlantstoreError) -> None:
        super().__init__(err.message)
        self.err = err


class _Retries:
    """Counts the failed attempts of a call, and pauses between them."""

    def __init__(self, client: Calls, what: str) -> None:
        self.maybe_applied = False
        self._client = client
        self._what = what
        self._attempts = 0
        self._began = 0.0
        self._pause = MIN_PAUSE

    async def failed(self, failed: Transient) -> None:
        """Waits for the next attempt, or raises the error if there is none."""
        self.maybe_applied = self.maybe_applied or failed.maybe_applied
        client = self._client
        if failed.progress:
            self._attempts, self._pause = 0, MIN_PAUSE
        if self._attempts == 0:
            self._began = time.monotonic()
        self._attempts += 1
        wait = failed.after + self._pause * random.uniform(0.5, 1)
        self._pause = min(2 * self._pause, MAX_PAUSE)
        if self._attempts > client._retries or time.monotonic() - self._began + wait > client._retry_timeout:
            err = failed.err
            if self._attempts > 1:
                message = f"{self._what}: {self._attempts} attempts failed, the last one: {err.message}"
                raise with_message(err, client._redact(message)) from failed
            raise client._fail(self._what, err) from failed
        if client._retrying is not None:
            client._retrying(client._fail(self._what, failed.err), wait)
        await client._sleep(wait)


class Whole:
    """A response that has been read to its end."""

    def __init__(self, response: Response, body: bytes) -> None:
        self._response = response
        self._body = body

    def error(self) -> PlantstoreError:
        """Returns the error in the response, or one made from its status."""
        status = self._response.status
        if self._response.media() == JSON:
            try:
                err = wire.decode_error(wire.load(self._body))
                if err.code // 100 == status:
                    return err
            except wire.Malformed:
                pass
        return foreign_error(status, self.unexpected().message)

    def unexpected(self) -> ResponseError:
        """Says that the response does not come from a Plant Store."""
        response = self._response
        location = response.header("Location")
        if location:
            text = f"a redirect to {location[:40]!r}, which is not followed: is the base URL right?"
            return ResponseError(f'the response is "{response.title}", {text}', 0, response.status)
        media = response.header("Content-Type") or "no Content-Type"
        text = "not from a Plant Store: is the base URL right, and is there a proxy in between?"
        return ResponseError(f'the response is "{response.title}" with {media} and {text}', 0, response.status)

    def decode(self, decode: Callable[[Any], T]) -> T:
        if self._response.media() == JSON:
            try:
                return decode(wire.load(self._body))
            except wire.Malformed:
                pass
        raise self.unexpected()

    def stored(self, id: int) -> StoredPlant:
        """Returns the plant, whose id is known. Its ETag is in the header, which a proxy may have made a weak one."""
        version = self._response.header("ETag").removeprefix("W/").replace('"', "")
        return self.decode(lambda value: wire.decode_stored(value, id, version))

    def confirm(self, sent: Plant) -> None:
        """Checks that the response to a write is the plant that was sent."""
        if self.decode(lambda value: wire.decode_plant(value, sent.id)) != sent:
            title = self._response.title
            raise ResponseError(f'the response is "{title}" with a plant other than the one sent', 0, 200)

    def page(
        self,
        after: int | None,
        after_name: str | None,
        order: Order | None,
        count: bool,
        decode: Callable[[Any], Plant],
    ) -> Page[Plant]:
        plants = self.decode(lambda value: wire.many(value, decode))
        counted = self.count() if count else None
        link = _next_link(self._response.header("Link"))
        if link is None:
            return Page(plants, None, counted)
        try:
            query = parse_qs(urlsplit(link).query)
            if order in ("name", "-name"):
                name = query["after"][0]
                if name == after_name:
                    raise ResponseError(f"the next page starts after {name!r:.40}, as this page did", 0, 200)
                return Page(plants, None, counted, name)
            if "id" in query:  # the remaining ids
                next = int(query["id"][0].partition(",")[0]) - 1
            else:
                next = int(query["after"][0])
        except (ValueError, KeyError) as err:
            raise ResponseError('cannot read "after" in the link to the next page', 0, 200) from err
        if after is not None and (next >= after if _descends(order) else next <= after):
            raise ResponseError(
                f"the next page starts after {next}, but this page already started after {after}", 0, 200
            )
        return Page(plants, next, counted)

    def count(self) -> Count | None:
        """Returns the count of a page, or None if it is not known."""
        text = self._response.header("Plantstore-Count")
        if not re.fullmatch(r"[0-9]{1,9}\+?|\?", text):
            raise ResponseError("the response has no Plantstore-Count, or one that is no count", 0, 200)
        return None if text == "?" else Count(int(text.rstrip("+")), text.endswith("+"))

    def tag_page(self, start: str) -> TagPage:
        tags = self.decode(lambda value: wire.many(value, wire.decode_tag))
        link = _next_link(self._response.header("Link"))
        if link is None:
            return TagPage(tags, None)
        next = parse_qs(urlsplit(link).query).get("from", [""])[0]
        if next <= start:
            raise ResponseError(
                f"the next page starts at {next!r:.40}, but this page already started at {start!r:.40}", 0, 200
            )
        return TagPage(tags, next)

    def event_page(self, position: str | None) -> EventPage:
        cursor = self._response.header(CURSOR)
        if not cursor:
            raise self.unexpected()
        decoded = self.decode(lambda value: wire.many(value, wire.decode_event))
        events = [event for event in decoded if event is not None]
        more = _next_link(self._response.header("Link")) is not None
        if more and cursor == position:
            raise ResponseError(f"the next page is at {position}, but so was this one", 0, 200)
        return EventPage(events, cursor, more)


class Lines:
    """The lines of an export. cursor is known once it has begun."""

    def __init__(self, client: Calls, target: str, decode: Callable[[Any], Plant]) -> None:
        self.cursor: str = ""
        self._decode = decode
        self._client = client
        self._target = client._prefix + target
        self._response: Response | None = None
        self._first = b""

    async def begin(self) -> Response:
        """Opens the export, unless it is open."""
        if self._response is None:
            self._response = await self._client._retry("export plants", self._attempt)
        return self._response

    async def _attempt(self, _: bool) -> Response:
        client = self._client
        response = await client._pool.request("GET", self._target, client._headers(NDJSON), None, STREAM_TIMEOUT)
        try:
            if response.status != 200 or response.media() != NDJSON:
                raise await client._response_error(response)
            if not response.has_end:
                raise ResponseError(
                    "cannot tell whether the response is complete: is there an HTTP/1.0 proxy in between?", 0, 200
                )
            try:
                self._first = await response.read1()
            except OSError as err:
                raise lost(err) from err
        except BaseException:
            response.close()
            raise
        self.cursor = response.header(CURSOR)
        return response

    def close(self) -> None:
        if self._response is not None:
            self._response.close()

    async def blocks(self) -> AsyncGenerator[builtins.list[bytes], None]:
        """Yields the lines with their ends, as many at a time as have arrived."""
        response = await self.begin()
        rest = self._first
        try:
            while rest:
                lines = rest.split(b"\n")
                rest = lines.pop()
                yield [line + b"\n" for line in lines]
                parts = [rest]
                while data := await response.read1():
                    parts.append(data)
                    if b"\n" in data:
                        break
                rest = b"".join(parts)
                if rest and not data:
                    raise TransportError("the response was cut off: the last line has no end", 0, 200)
        except (OSError, TransportError) as err:
            text = str(err)
            if "cut off" not in text:
                text = f"the response was cut off: {text}"
            raise self._failed(TransportError(text)) from err
        finally:
            response.close()

    def decode(self, line: bytes) -> Plant:
        try:
            return self._decode(wire.load(line))
        except wire.Malformed as err:
            raise self._failed(ResponseError(f"a line of the response is not a plant: {err}", 0, 200)) from err

    def _failed(self, err: PlantstoreError) -> PlantstoreError:
        return self._client._fail("export plants", err)


class _Upload:
    """The lines of an import, sent in one attempt or several."""

    def __init__(
        self, lines: IO[bytes] | Iterable[bytes] | AsyncIterable[bytes], versions: bool = False, dry_run: bool = False
    ) -> None:
        self._lines = lines
        self.versions = versions and not dry_run  # a line that was imported already would fail
        self._dry_run = dry_run
        self._file: IO[bytes] | None = None
        # Where the lines begin, or None if they cannot be sent again.
        self._start: int | None = None
        self._sent = False
        self.whole = False
        if not isinstance(lines, AsyncIterable) and hasattr(lines, "read"):
            self._file = cast(IO[bytes], lines)
            try:
                self._start = self._file.tell() if self._file.seekable() else None
            except OSError:
                pass

    def begin(self) -> AsyncGenerator[bytes, None]:
        """Returns the body of the next attempt, which sends the lines from their beginning."""
        if self._sent and self._file is not None and self._start is not None:
            self._file.seek(self._start)
        self._sent = self.whole = False
        return self._body()

    async def _body(self) -> AsyncGenerator[bytes, None]:
        if isinstance(self._lines, AsyncIterable):
            block = _Block()
            async for line in self._lines:
                if block.add(line):
                    self._sent = True
                    yield block.take()
            if block.size:
                self._sent = True
                yield block.take()
        else:
            for data in self._blocks(self._lines):
                self._sent = True
                yield data
        self.whole = True

    def _blocks(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        if self._file is not None:
            while data := self._file.read(BUFFER):
                yield data
            return
        block = _Block()
        for line in lines:
            if block.add(line):
                yield block.take()
        if block.size:
            yield block.take()

    def failed(self, failed: Transient) -> Exception:
        """Returns the failure of an attempt, permanent if the lines cannot be sent again."""
        if not self._sent or (self._start is not None and not self.versions):
            return failed
        again = "importing the same lines again is safe"
        if self.versions:
            again = "those with a version fail if they are imported again"
        text = f"some lines may have been imported, and {again}"
        if self._dry_run:
            text = "nothing was written, because it was a dry run"
        return with_message(failed.err, f"{failed.err.message}: {text}")


class _Block:
    """Lines that are sent together."""

    def __init__(self) -> None:
        self._lines: builtins.list[bytes] = []
        self._since = time.monotonic()
        self.size = 0

    def add(self, line: bytes) -> bool:
        """Adds a line, and reports whether it is time to send."""
        self._lines.append(line)
        self.size += len(line)
        # A slow iterator must not look like a disconnected client.
        return self.size >= BUFFER or time.monotonic() - self._since >= 1

    def take(self) -> bytes:
        data = b"".join(self._lines)
        self._lines.clear()
        self.size, self._since = 0, time.monotonic()
        return data


class _EventStream:
    """Follows the log over one connection after another."""

    def __init__(
        self,
        client: Calls,
        after: str | None,
        since: datetime,
        id: int | None,
        types: Sequence[str],
        by: str | None,
        q: str | None,
        details: bool,
    ) -> None:
        self._client = client
        self._after = after  # the position that has been reached
        self._since = since
        self._id = id
        self._types = types
        self._by = by
        self._q = q
        self._details = details

    async def follow(self) -> AsyncGenerator[Event, None]:
        """Opens a connection and yields its events, until that is lost."""
        client = self._client
        since = self._since if self._after is None else None
        params = _event_params(self._after, since, self._id, self._types, self._by, self._q, self._details)
        target = client._prefix + "/events" + _params(params)
        headers = {**client._headers(EVENT_STREAM), "Cache-Control": "no-store"}
        # A server responds immediately, and then sends something every 15 s.
        with await client._pool.request("GET", target, headers, None, client._timeout) as response:
            if response.status != 200 or response.media() != EVENT_STREAM:
                raise await client._response_error(response)
            if self._after == LATEST:
                self._after = response.header(CURSOR)
                if not self._after:
                    text = f"the response has no {CURSOR}: is there a proxy in between that removes it?"
                    raise ResponseError(text, 0, 200)
            opened, start = time.monotonic(), self._after
            try:
                async with aclosing(self._read(response)) as events:
                    async for event in events:
                        yield event
                err: PlantstoreError = TransportError("the connection was lost: it was closed")
            except OSError as failed:
                err = TransportError(f"the connection was lost: {failed}")
            raise Transient(err, progress=self._after != start or time.monotonic() - opened >= MAX_PAUSE)

    async def _read(self, response: Response) -> AsyncGenerator[Event, None]:
        """Reads server-sent events.

        An event takes effect at the blank line that ends it, and so does an id without
        data, which says how far the log has been searched.
        """
        id, data = "", b""
        async for line in response.split_lines(MAX_EVENT):
            if not line.endswith(b"\n"):
                if len(line) > MAX_EVENT:
                    raise ResponseError(f"a line is longer than {MAX_EVENT >> 20} MiB", 0, 200)
                return  # incomplete, and does not count
            name, _, value = line.rstrip(b"\r\n").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"id":
                id = value.decode("ascii", "replace")
            elif name == b"data":
                data += value + b"\n"
                if len(data) > MAX_EVENT:
                    raise ResponseError(f"an event is longer than {MAX_EVENT >> 20} MiB", 0, 200)
            elif line in (b"\n", b"\r\n"):
                if data:
                    try:
                        event = wire.decode_event(wire.load(data))
                    except wire.Malformed as err:
                        raise ResponseError(f"the event after {self._after} cannot be read: {err}", 0, 200) from err
                    if event is not None and event.cursor != id:
                        raise ResponseError(f"the event with the id {id} has the cursor {event.cursor}", 0, 200)
                    self._after, data = id, b""
                    if event is not None:
                        yield event
                elif id:
                    self._after = id


def _open(url: str, context: ssl.SSLContext | None, connect: Connect) -> tuple[str, Pool]:
    """Returns the path before every target, and the connections."""
    try:
        base = urlsplit(url)
        good = base.scheme in ("http", "https") and bool(base.hostname) and base.username is None
        good = good and base.port != -1 and not re.search(r"[?#\s]", url) and url.isascii()
    except ValueError:
        good = False
    if not good:
        # The text is not shown: it may contain a password, or be the token.
        raise ValueError("the base URL must look like https://example.com or https://example.com/path")
    return base.path.rstrip("/"), Pool(base, context, connect)


_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _check_token(token: str) -> None:
    """Refuses what cannot be a token. The error never contains it."""
    if re.search("[<>…]", token) or (token.startswith("plt_") and "..." in token):
        raise ValueError("the token is a placeholder: put a real one in its place")
    if not re.fullmatch(r"[0-9A-Za-z\-._~+/]+=*", token):
        raise ValueError("the token has characters that are not allowed in a bearer token")
    if not token.startswith("plt_"):
        return
    if len(token) != 40:
        raise ValueError(f"a token that begins with plt_ has 40 characters, this one has {len(token)}")
    n, sum = zlib.crc32(token[4:34].encode()), ""
    for _ in range(6):
        n, digit = divmod(n, 62)
        sum = _BASE62[digit] + sum
    if sum != token[34:]:
        raise ValueError("the token's checksum is wrong: is it complete?")


def _condition(if_match: str | None, if_none_match: str | None) -> dict[str, str]:
    headers = {}
    for name, tags in (("If-Match", if_match), ("If-None-Match", if_none_match)):
        if tags is None:
            continue
        tag = r'(?:W/)?"[^\x00-\x20"\x7f-\U0010ffff]*"'
        if not re.fullmatch(rf"\*|{tag}(?:, *{tag})*", tags):
            raise server_error(Code.PARAMETER, f"{name} must be * or a list of quoted ETags, got {tags[:40]!r}")
        headers[name] = tags
    return headers


def _is_of_version(if_match: str | None) -> bool:
    """Whether the condition requires a version."""
    return if_match is not None and if_match != "*"


def _plant_path(id: int) -> str:
    return f"/plants/{wire.check_id(id)}"


def _webhook_path(id: str, action: str = "") -> str:
    return "/webhooks/" + quote(id, safe="") + action


def _descends(order: Order | None) -> bool:
    return order is not None and order.startswith("-")


def plant_filter(
    order: Order | None,
    after_name: str | None,
    tag: str | Sequence[str] | None,
    tag_prefix: str | None,
    untagged: bool,
    q: str | None,
) -> dict[str, object]:
    """Returns the parameters that select plants by what they contain, and their order."""
    tags = [tag] if isinstance(tag, str) else tag
    return {
        "order": order if order != "id" else None,
        "after": after_name,
        "tag": tags or None,
        "tag_prefix": tag_prefix,
        "untagged": _flag(untagged),
        "q": q or None,
    }


def _params(params: dict[str, object]) -> str:
    """Returns the query of a URL. Values of None are left out."""
    given = {name: value for name, value in params.items() if value is not None}
    try:
        return "?" + urlencode(given, doseq=True) if given else ""
    except UnicodeEncodeError:
        raise server_error(Code.PARAMETER, "a parameter must be valid Unicode") from None


def _flag(value: bool) -> str | None:
    """Returns the parameter for what is off without it."""
    return "true" if value else None


def _plants_path(
    ids: Sequence[int] | None, after: int | None, filter: dict[str, object], limit: int | None, details: bool
) -> str:
    if after is not None:
        wire.check_id(after)
    filter = {**filter, "details": _flag(details)}
    if ids is None:
        if after is not None:
            filter["after"] = after
        return "/plants" + _params({**filter, "limit": limit})
    rest = ",".join(str(wire.check_id(id)) for id in ids if after is None or id > after)
    return "/plants" + _params({**filter, "id": rest})


def _plant_decoder(details: bool) -> Callable[[Any], Plant]:
    if details:
        return wire.decode_stored
    return wire.decode_plant


def _event_params(
    after: str | None,
    since: datetime | None,
    id: int | None,
    types: Sequence[str],
    by: str | None,
    q: str | None,
    details: bool,
) -> dict[str, object]:
    if id is not None:
        wire.check_id(id)
    at = None if since is None or after is not None else wire.format_time(since)
    type = ",".join(types) or None
    return {"after": after, "since": at, "id": id, "type": type, "by": by, "q": q or None, "details": _flag(details)}


def _webhook_body(url: str, types: Sequence[str], description: str, after: str | None) -> bytes:
    body = {"url": url, "types": [*types], "description": description, "after": after}
    return wire.dump({name: value for name, value in body.items() if value})


def _next_link(header: str) -> str | None:
    """Returns the target of the link with rel="next" (RFC 8288)."""
    for target, params in re.findall(r"<([^>]*)>([^<]*)", header):
        for rel in re.findall(r';\s*rel\s*=\s*"?([^";,]*)', params, re.IGNORECASE):
            if "next" in rel.lower().split():
                return str(target)
    return None
