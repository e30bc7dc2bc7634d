"""Sockets that block, and how coroutines run on them without an event loop."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

from ._http import BUFFER, CONNECT_TIMEOUT

T = TypeVar("T")


def run(call: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end. Nothing in it waits: its sockets and its pauses block."""
    try:
        call.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    call.close()
    raise AssertionError("a coroutine of the blocking client has waited")


def iterate(values: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yields what an asynchronous generator yields, and closes it."""

    async def step() -> T:
        return await values.__anext__()

    try:
        while True:
            try:
                value = run(step())
            except StopAsyncIteration:
                return
            yield value
    finally:
        run(_close(values))


async def _close(values: AsyncGenerator[Any, None]) -> None:
    await values.aclose()


async def sleep(seconds: float) -> None:
    time.sleep(seconds)


async def connect(host: str, port: int, context: ssl.SSLContext | None) -> BlockingSocket:
    sock = socket.create_connection((host, port), CONNECT_TIMEOUT)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return BlockingSocket(sock if context is None else context.wrap_socket(sock, server_hostname=host))
    except BaseException:
        sock.close()
        raise


class BlockingSocket:
    """A Socket for one thread at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._read = b""  # what readable has read

    async def read(self, timeout: float) -> bytes:
        if self._read:
            data, self._read = self._read, b""
            return data
        self._sock.settimeout(timeout)
        return self._sock.recv(BUFFER)

    async def write(self, data: bytes, timeout: float) -> None:
        self._sock.settimeout(timeout)
        self._sock.sendall(data)

    async def readable(self, seconds: float) -> bool:
        if self._read:
            return True
        # TLS has messages of its own, so only reading tells whether there is something to read.
        end = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while poll.poll(max(0.0, end - time.monotonic()) * 1000):
            self._sock.settimeout(0)
            try:
                self._read = self._sock.recv(BUFFER)
                return True
            except (BlockingIOError, ssl.SSLWantReadError):
                pass
            except OSError:
                return True  # read fails the same way
        return False

    def close(self) -> None:
        self._sock.close()
