"""The client for asyncio."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Generic, Literal, cast, overload

from ._asyncio import connect
from ._calls import RESPONSE_TIMEOUT, Calls, Lines, Whole, plant_filter
from ._client import Client
from ._errors import PlantstoreError
from ._types import Order, P_co, Plant, StoredPlant

# How many short calls are under way at once; the others wait for their turn.
MAX_CALLS = 100


class AsyncClient(Calls):
    """Is Client for asyncio, with the same methods and options. Tasks may share it.

    What returns one value is awaited. list, tags, export and events are iterated with
    async for. import_plants and import_lines take asynchronous iterables, too; others,
    files among them, are read in the event loop and must not block it for long.

    It uses no threads, except where the event loop looks up the name of the host. At most
    100 calls are under way at once, and further ones wait; exports, imports and events do
    not count. A call that is cancelled may have been applied. Use a client in one event
    loop only, and close it there.
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
        super().__init__(
            url, token, retries, retry_timeout, timeout, ssl_context, retrying, connect, asyncio.sleep
        )
        self._turns = asyncio.Semaphore(MAX_CALLS)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        self._pool.close()
        await asyncio.sleep(0)  # the event loop closes them

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
    ) -> AsyncExport[StoredPlant]: ...

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
    ) -> AsyncExport[Plant]: ...

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
    ) -> AsyncExport[Plant]:
        filter = plant_filter(order, after_name, tag, tag_prefix, untagged, q)
        return AsyncExport(self._export(ids, after, filter, details))

    async def _call(
        self, status: int, method: str, target: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Whole:
        async with self._turns:
            return await super()._call(status, method, target, body, headers)


class AsyncExport(AsyncIterator[P_co], Generic[P_co]):
    """Is Export for asyncio. It begins with the first plant, or with an async with statement.

    cursor is known from then on, and empty before.
    """

    def __init__(self, lines: Lines) -> None:
        self._export = lines
        self._lines = _flatten(lines)

    @property
    def cursor(self) -> str:
        return self._export.cursor

    async def __aenter__(self) -> AsyncExport[P_co]:
        await self._export.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the export."""
        await self._lines.aclose()
        self._export.close()

    async def __anext__(self) -> P_co:
        return cast(P_co, self._export.decode(await self._lines.__anext__()))

    def lines(self) -> AsyncIterator[bytes]:
        """Returns the rest as NDJSON, line by line, which import_lines takes."""
        return self._lines


async def _flatten(lines: Lines) -> AsyncGenerator[bytes, None]:
    async with aclosing(lines.blocks()) as blocks:
        async for block in blocks:
            for line in block:
                yield line


def _document() -> None:
    """Gives the methods the descriptions of those of Client, so that each is written once."""
    for name, method in vars(Client).items():
        own = getattr(AsyncClient, name, None)
        if not name.startswith("_") and own is not None:
            own.__doc__ = method.__doc__


_document()
