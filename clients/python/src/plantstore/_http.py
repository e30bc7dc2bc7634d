"""HTTP/1.1 on http.client, strict about responses that are cut off."""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import IO, Any, cast
from urllib.parse import SplitResult

from ._errors import TransportError, Transient

CONNECT_TIMEOUT = 10.0
IDLE_TIMEOUT = 90.0  # less than the server's
MAX_IDLE = 256
CONTINUE_TIMEOUT = 5.0
BUFFER = 64 << 10


class CutOff(http.client.HTTPException):
    """The connection ended before the response did."""

    def __init__(self) -> None:
        super().__init__("the response was cut off")


class _Lines:
    """Reads what http.client reads, but takes no end of a connection for that of a line."""

    def __init__(self, fp: IO[bytes]) -> None:
        self._fp = fp
        self._pushed = b""

    def push(self, line: bytes) -> None:
        """Has the next readline return this line."""
        self._pushed = line

    def readline(self, limit: int = -1) -> bytes:
        if self._pushed:
            line, self._pushed = self._pushed, b""
            return line
        line = self._fp.readline(limit)
        if not line.endswith(b"\n") and not 0 <= limit <= len(line):
            raise CutOff
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fp, name)


class _Response(http.client.HTTPResponse):
    """A response whose end is certain."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lines = _Lines(self.fp)
        self.fp = cast(io.BufferedReader, self.lines)


class Response:
    """An open response. Closing it gives its connection back if it was read to its end."""

    def __init__(self, pool: Pool, conn: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._pool = pool
        self._conn = conn
        self._response = response
        self._ended = self._closed = False
        self.status = response.status
        self.title = f"{response.status} {response.reason}"
        # Bodies without a length end with the connection: an end that proves nothing.
        self.has_end = response.chunked or response.length is not None

    def header(self, name: str) -> str:
        return ", ".join(self._response.headers.get_all(name, []))

    def media(self) -> str:
        return self.header("Content-Type").partition(";")[0].strip().lower()

    def read1(self, size: int = BUFFER) -> bytes:
        """Returns some of the body, b"" at its end."""
        if self._ended:
            return b""
        data = self._response.read1(size)
        if not data:
            if self._response.length:  # http.client ignores that some is missing
                raise CutOff
            self._ended = True
        return data

    def read(self, limit: int) -> bytes:
        """Returns the rest of the body, or if that is longer, more than limit."""
        parts, size = [], 0
        while size <= limit:
            part = self.read1()
            if not part:
                break
            parts.append(part)
            size += len(part)
        return b"".join(parts)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        keep = self._ended and not self._response.will_close
        self._response.close()
        if keep:
            self._pool.put(self._conn)
        else:
            self._conn.close()

    def __enter__(self) -> Response:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def split_lines(self, limit: int) -> Iterator[bytes]:
        """Yields the lines of the body with their ends, the last one even without."""
        rest = b""
        while data := self.read1():
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
    """Connections to one server. It may be used by several threads."""

    def __init__(self, url: SplitResult, context: ssl.SSLContext | None) -> None:
        self._host = url.hostname or ""
        self._port = url.port
        self._context = None
        if url.scheme == "https":
            self._context = context or ssl.create_default_context()
        self._lock = threading.Lock()  # guards _idle
        self._idle: list[tuple[http.client.HTTPConnection, float]] = []

    def put(self, conn: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE:
                self._idle.append((conn, time.monotonic()))
                return
        conn.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for conn, _ in idle:
            conn.close()

    def _take(self) -> http.client.HTTPConnection | None:
        """Returns an idle connection that the server has not closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                conn, since = self._idle.pop()
            if time.monotonic() - since < IDLE_TIMEOUT and not readable(conn.sock, 0):
                return conn
            conn.close()

    def _connect(self) -> http.client.HTTPConnection:
        conn: http.client.HTTPConnection
        if self._context is None:
            conn = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_TIMEOUT)
        else:
            conn = http.client.HTTPSConnection(self._host, self._port, timeout=CONNECT_TIMEOUT, context=self._context)
        conn.response_class = _Response
        try:
            conn.connect()
        except OSError as err:
            failed = TransportError(f"connect to {self._host}: {err}")
            unknown = isinstance(err, socket.gaierror) and err.errno == socket.EAI_NONAME
            if unknown or isinstance(err, ssl.SSLCertVerificationError):
                raise failed from err
            raise Transient(failed) from err
        return conn

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Response:
        """Sends a request and returns the response once it has begun."""
        conn = self._take() or self._connect()
        try:
            conn.sock.settimeout(timeout)
            conn.request(method, target, body, dict(headers))
            return Response(self, conn, conn.getresponse())
        except (OSError, http.client.HTTPException) as err:
            conn.close()
            raise lost(err) from err
        except BaseException:
            conn.close()
            raise

    def upload(
        self, target: str, headers: Mapping[str, str], body: Iterator[bytes], timeout: float
    ) -> Response:
        """Posts a body of any length. It sends none of it to a server that refuses it.

        A server may respond before it has read the body. The rest is not sent then.
        """
        conn = self._connect()
        try:
            conn.sock.settimeout(timeout)
            conn.putrequest("POST", target)
            for name, value in headers.items():
                conn.putheader(name, value)
            conn.putheader("Transfer-Encoding", "chunked")
            conn.putheader("Expect", "100-continue")
            conn.endheaders()
            response = _Response(conn.sock, method="POST")
            if not readable(conn.sock, CONTINUE_TIMEOUT) or _continues(response):
                _send(conn, body)
            response.begin()
            response.will_close = True
            return Response(self, conn, response)
        except (OSError, http.client.HTTPException) as err:
            conn.close()
            raise lost(err) from err
        except BaseException:
            conn.close()
            raise


def readable(sock: Any, seconds: float) -> bool:
    """Reports whether there is something to read within that time."""
    if isinstance(sock, ssl.SSLSocket) and sock.pending():
        return True
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _continues(response: _Response) -> bool:
    """Reads a 100. Anything else is left for begin."""
    line = response.lines.readline()
    if line.split(None, 2)[1:2] != [b"100"]:
        response.lines.push(line)
        return False
    while response.lines.readline() not in (b"\r\n", b"\n"):
        pass
    return True


def _send(conn: http.client.HTTPConnection, body: Iterator[bytes]) -> None:
    for data in body:
        # TLS has messages of its own, which make a connection readable.
        if not isinstance(conn.sock, ssl.SSLSocket) and readable(conn.sock, 0):
            return
        if not data:
            continue
        try:
            conn.sock.sendall(b"%x\r\n%s\r\n" % (len(data), data))
        except (BrokenPipeError, ConnectionResetError):
            return  # the response may say why
    try:
        conn.sock.sendall(b"0\r\n\r\n")
    except (BrokenPipeError, ConnectionResetError):
        pass


def lost(err: Exception) -> Transient:
    """Returns the failure of a request that may have been sent."""
    text = str(err) or type(err).__name__
    if isinstance(err, http.client.IncompleteRead):
        text = str(CutOff())
    return Transient(TransportError(text), maybe_applied=True)


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
