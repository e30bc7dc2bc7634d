"""HTTP/1.1, strict about responses that are cut off.

It is written once for both clients, as coroutines over a Socket. Those of the blocking
client block instead of waiting: _blocking.run runs them without an event loop.
"""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Protocol
from urllib.parse import SplitResult

from ._errors import Transient, TransportError

CONNECT_TIMEOUT = 10.0
IDLE_TIMEOUT = 90.0  # less than the server's
MAX_IDLE = 256
CONTINUE_TIMEOUT = 5.0
BUFFER = 64 << 10
MAX_HEAD = 256 << 10


class CutOff(ConnectionError):
    """The connection ended before the response did."""

    def __init__(self) -> None:
        super().__init__("the response was cut off")


class NotHTTP(ConnectionError):
    """What arrived is not a response."""

    def __init__(self, what: str, got: bytes) -> None:
        super().__init__(f"the response is not HTTP/1.1: {what}, got {got[:40]!r}")


class Socket(Protocol):
    """A connection of bytes. Its failures are OSErrors, a timeout among them."""

    async def read(self, timeout: float) -> bytes:
        """Returns what has arrived, b"" at the end."""

    async def write(self, data: bytes, timeout: float) -> None: ...

    async def readable(self, seconds: float) -> bool:
        """Reports whether read would return at once, after at most that time."""

    def close(self) -> None: ...


# Opens a connection to a host and a port.
Connect = Callable[[str, int, ssl.SSLContext | None], Awaitable[Socket]]


class Connection:
    """A Socket with what was read from it and not yet used."""

    def __init__(self, sock: Socket) -> None:
        self.sock = sock
        self.timeout = CONNECT_TIMEOUT
        self._data = bytearray()
        self._ended = False

    async def send(self, data: bytes) -> None:
        await self.sock.write(data, self.timeout)

    async def readable(self, seconds: float) -> bool:
        return bool(self._data) or await self.sock.readable(seconds)

    async def _fill(self) -> bool:
        """Reads more, and reports whether there was any."""
        if not self._ended:
            data = await self.sock.read(self.timeout)
            self._data += data
            self._ended = not data
        return not self._ended

    async def line(self) -> bytes:
        """Returns a line without its end."""
        start = 0
        while (end := self._data.find(b"\n", start)) < 0:
            start = len(self._data)
            if start > MAX_HEAD:
                raise NotHTTP("a line is too long", self._data)
            if not await self._fill():
                raise CutOff
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        return line.removesuffix(b"\r")

    async def some(self, limit: int) -> bytes:
        """Returns at most so many bytes, b"" at the end of the connection."""
        if not self._data and not await self._fill():
            return b""
        data = bytes(self._data[:limit])
        del self._data[:limit]
        return data

    async def head(self) -> Head:
        """Reads the head of a response."""
        status = await self.line()
        match = re.fullmatch(rb"HTTP/1\.([01]) [1-9]\d\d(?: .*)?", status)
        if match is None:
            raise NotHTTP("the first line must be a status", status)
        headers: dict[str, str] = {}
        size = 0
        while line := await self.line():
            size += len(line)
            name, colon, value = line.partition(b":")
            if size > MAX_HEAD or not colon or not name or name.strip() != name:
                raise NotHTTP("a line must be a header", line)
            key, text = name.decode("latin-1").lower(), value.strip().decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        return Head(status[9:].decode("latin-1"), match[1] == b"1", headers)


class Head:
    """The status and the headers of a response, and where its body ends."""

    def __init__(self, title: str, persistent: bool, headers: Mapping[str, str]) -> None:
        self.title = title
        self.status = status = int(title[:3])
        self.interim = status < 200
        if status == 101:
            raise NotHTTP("nobody has asked for another protocol", b"101")
        self.headers = headers
        self.chunked = False
        # The length of the body, or None if it is chunked or ends with the connection.
        self.length: int | None = None
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if self.interim or status in (204, 304):
            self.length = 0
        elif coding is not None:
            if coding.lower() != "chunked":
                raise NotHTTP("Transfer-Encoding must be chunked", coding.encode())
            self.chunked = True
        elif length is not None:
            if not re.fullmatch(r"\d{1,18}", length, re.ASCII):
                raise NotHTTP("Content-Length must be a number", length.encode())
            self.length = int(length)
        options = [option.strip().lower() for option in headers.get("connection", "").split(",")]
        self.persistent = persistent and "close" not in options


class Response:
    """An open response. Closing it gives its connection back if it was read to its end."""

    def __init__(self, pool: Pool, conn: Connection, head: Head) -> None:
        self._pool = pool
        self._conn = conn
        self._head = head
        self._left = head.length or 0  # of the body, or of the chunk
        self._in_chunks = False
        self._ended = head.length == 0
        self._closed = False
        self.status = head.status
        self.title = head.title
        # Bodies without a length end with the connection: an end that proves nothing.
        self.has_end = head.chunked or head.length is not None

    def header(self, name: str) -> str:
        return self._head.headers.get(name.lower(), "")

    def media(self) -> str:
        return self.header("Content-Type").partition(";")[0].strip().lower()

    async def read1(self) -> bytes:
        """Returns some of the body, b"" at its end."""
        if self._ended:
            return b""
        if self._head.chunked and not self._left:
            await self._next_chunk()
            if self._ended:
                return b""
        data = await self._conn.some(self._left if self.has_end else BUFFER)
        if self.has_end:
            if not data:
                raise CutOff
            self._left -= len(data)
            self._ended = not self._left and not self._head.chunked
        else:
            self._ended = not data
        return data

    async def _next_chunk(self) -> None:
        if self._in_chunks and (end := await self._conn.line()):
            raise NotHTTP("a chunk must end with a line break", end)
        self._in_chunks = True
        line = await self._conn.line()
        size = line.partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,15}", size):
            raise NotHTTP("a chunk must begin with its size", line)
        self._left = int(size, 16)
        if self._left == 0:
            while await self._conn.line():
                pass  # trailers
            self._ended = True

    async def read(self, limit: int) -> bytes:
        """Returns the rest of the body, or if that is longer, more than limit."""
        parts, size = [], 0
        while size <= limit:
            part = await self.read1()
            if not part:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._ended and self.has_end and self._head.persistent:
            self._pool.put(self._conn)
        else:
            self._conn.sock.close()

    def __enter__(self) -> Response:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    async def split_lines(self, limit: int) -> AsyncGenerator[bytes, None]:
        """Yields the lines of the body with their ends, the last one even without."""
        rest = b""
        while data := await self.read1():
            lines = (rest + data).split(b"\n") if rest else data.split(b"\n")
            rest = lines.pop()
            for line in lines:
                yield line + b"\n"
            if len(rest) > limit:
                yield rest
                return
        if rest:
            yield rest


class Pool:
    """Connections to one server. It may be used by several threads if its sockets may."""

    def __init__(self, url: SplitResult, context: ssl.SSLContext | None, connect: Connect) -> None:
        self._host = url.hostname or ""
        tls = url.scheme == "https"
        standard = 443 if tls else 80
        self._port = url.port or standard
        self._context = (context or ssl.create_default_context()) if tls else None
        self._connect_to = connect
        name = f"[{self._host}]" if ":" in self._host else self._host
        self._authority = name if self._port == standard else f"{name}:{self._port}"
        self._lock = threading.Lock()  # guards _idle
        self._idle: list[tuple[Connection, float]] = []

    def put(self, conn: Connection) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append((conn, time.monotonic()))
                return
        conn.sock.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for conn, _ in idle:
            conn.sock.close()

    async def _take(self) -> Connection | None:
        """Returns an idle connection that the server has not closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                conn, since = self._idle.pop()
            if time.monotonic() - since < IDLE_TIMEOUT and not await conn.readable(0):
                return conn
            conn.sock.close()

    async def _connect(self) -> Connection:
        try:
            return Connection(await self._connect_to(self._host, self._port, self._context))
        except OSError as err:
            failed = TransportError(f"connect to {self._host}: {err}")
            unknown = isinstance(err, socket.gaierror) and err.errno == socket.EAI_NONAME
            if unknown or isinstance(err, ssl.SSLCertVerificationError):
                raise failed from err
            raise Transient(failed) from err

    def _request(self, method: str, target: str, headers: Mapping[str, str]) -> bytes:
        lines = [f"{method} {target or '/'} HTTP/1.1", f"Host: {self._authority}", "Accept-Encoding: identity"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("ascii")

    async def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Response:
        """Sends a request and returns the response once it has begun."""
        if body is not None or method not in ("GET", "DELETE"):
            body = body or b""
            headers = {**headers, "Content-Length": str(len(body))}
        request = self._request(method, target, headers) + (body or b"")
        conn = await self._take() or await self._connect()
        try:
            conn.timeout = timeout
            await conn.send(request)
            return Response(self, conn, await _final_head(conn))
        except OSError as err:
            conn.sock.close()
            raise lost(err) from err
        except BaseException:
            conn.sock.close()
            raise

    async def upload(
        self, target: str, headers: Mapping[str, str], body: AsyncGenerator[bytes, None], timeout: float
    ) -> Response:
        """Posts a body of any length. It sends none of it to a server that refuses it.

        A server may respond before it has read the body. The rest is not sent then.
        """
        headers = {**headers, "Transfer-Encoding": "chunked", "Expect": "100-continue", "Connection": "close"}
        conn = await self._connect()
        try:
            conn.timeout = timeout
            await conn.send(self._request("POST", target, headers))
            head: Head | None = None
            if await conn.readable(CONTINUE_TIMEOUT):
                head = await conn.head()
            if head is None or head.interim:
                head = await _send(conn, body) or await _final_head(conn)
            head.persistent = False
            return Response(self, conn, head)
        except OSError as err:
            conn.sock.close()
            raise lost(err) from err
        except BaseException:
            conn.sock.close()
            raise


async def _final_head(conn: Connection) -> Head:
    """Reads heads until one is not interim."""
    while (head := await conn.head()).interim:
        pass
    return head


async def _send(conn: Connection, body: AsyncGenerator[bytes, None]) -> Head | None:
    """Sends a body, or as much of it as the server waits for before it responds.

    It returns the head of such a response. Interim ones, of which a proxy may send
    several, do not end the body.
    """
    async for data in body:
        while await conn.readable(0):
            if not (head := await conn.head()).interim:
                return head
        try:
            await conn.send(b"%x\r\n%s\r\n" % (len(data), data))
        except (BrokenPipeError, ConnectionResetError):
            return None  # the response may say why
    try:
        await conn.send(b"0\r\n\r\n")
    except (BrokenPipeError, ConnectionResetError):
        pass
    return None


def lost(err: Exception) -> Transient:
    """Returns the failure of a request that may have been sent."""
    return Transient(TransportError(str(err) or type(err).__name__), maybe_applied=True)


def retry_after(response: Response) -> float:
    """Reads the header Retry-After: seconds, or a date by the server's clock."""
    text = response.header("Retry-After").strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        at = parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return 0.0
    try:
        now = parsedate_to_datetime(response.header("Date")).timestamp()
    except (TypeError, ValueError):
        now = time.time()
    return max(0.0, at - now)
