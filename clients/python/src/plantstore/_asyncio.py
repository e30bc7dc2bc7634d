"""Sockets of an event loop."""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

from ._http import BUFFER, CONNECT_TIMEOUT


async def connect(host: str, port: int, context: ssl.SSLContext | None) -> AsyncSocket:
    loop = asyncio.get_running_loop()
    opening = loop.create_connection(AsyncSocket, host, port, ssl=context)
    try:
        _, sock = await asyncio.wait_for(opening, CONNECT_TIMEOUT)
    except asyncio.TimeoutError:
        raise TimeoutError("timed out") from None
    return sock


class AsyncSocket(asyncio.Protocol):
    """A Socket for one task at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._data = bytearray()
        self._paused = False  # there is enough to read
        self._ended = False
        self._err: Exception | None = None  # why the connection was lost
        self._full = False  # the transport has enough to write
        self._waiter: asyncio.Future[None] | None = None

    # The transport calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) >= BUFFER and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._err = self._err or exc
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self, end: float) -> bool:
        """Waits until something has happened, and reports whether it was before the end."""
        if self._loop.time() >= end:
            return False
        self._waiter = self._loop.create_future()
        timer = self._loop.call_at(end, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None
        return True

    async def read(self, timeout: float) -> bytes:
        end = self._loop.time() + timeout
        while not self._data and not self._ended:
            if not await self._wait(end):
                raise TimeoutError("timed out")
        if not self._data and self._err is not None:
            raise self._err
        data = bytes(self._data)
        self._data.clear()
        if self._paused and not self._ended:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes, timeout: float) -> None:
        if self._ended:
            raise self._err or ConnectionResetError("the connection was closed")
        self._transport.write(data)
        end = self._loop.time() + timeout
        while self._full and not self._ended:
            if not await self._wait(end):
                raise TimeoutError("timed out")

    async def readable(self, seconds: float) -> bool:
        end = self._loop.time() + seconds
        await asyncio.sleep(0)  # what has arrived is noticed by the loop
        while not self._data and not self._ended:
            if not await self._wait(end):
                return False
        return True

    def close(self) -> None:
        self._transport.abort()
