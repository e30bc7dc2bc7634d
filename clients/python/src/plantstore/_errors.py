"""The errors of the interface."""

from __future__ import annotations

from enum import IntEnum

from ._types import StoredPlant


class Code(IntEnum):
    """The numbers of the errors. A number divided by 100 is the HTTP status."""

    NOT_JSON = 40001
    NOT_OBJECT = 40002
    MISSING = 40003
    TYPE = 40004
    RANGE = 40005
    PARAMETER = 40006
    TOO_MANY_TO_SORT = 40007
    NOT_CSV = 40008
    ID_TAKEN = 40010
    NO_TOKEN = 40101
    BAD_TOKEN = 40102
    TOKEN_EXPIRED = 40103
    SCOPE = 40301
    GRANT = 40302
    NO_PATH = 40401
    NO_PLANT = 40402
    NO_SUCH_TOKEN = 40403
    NO_WEBHOOK = 40404
    METHOD = 40501
    TIMEOUT = 40801
    LAST_TOKEN = 40901
    TOO_MANY = 40902
    DISABLED = 40903
    GONE = 41001
    PRECONDITION = 41201
    TOO_LARGE = 41301
    MEDIA_TYPE = 41501
    RATE = 42901
    HEADERS = 43101
    INTERNAL = 50001
    UNAVAILABLE = 50301


class PlantstoreError(Exception):
    """A call that failed.

    code is the number of the error, see Code, or 0 if the server has sent none. status
    is the HTTP status, or 0 if there was no response. The message never contains the
    token.
    """

    def __init__(self, message: str, code: int = 0, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code: int = int(code)  # not a Code, which Python 3.10 prints as its name
        self.status: int = code // 100 if status is None else status


class UnauthorizedError(PlantstoreError):
    """The token is missing, unknown, revoked or expired."""


class ForbiddenError(PlantstoreError):
    """The token does not have what the operation needs."""


class NotFoundError(PlantstoreError):
    """There is no such plant, webhook, token or path."""


class IdTakenError(PlantstoreError):
    """Another plant has the id."""


class GoneError(PlantstoreError):
    """The cursor is from another store, or the events after it are no longer kept."""


class PreconditionError(PlantstoreError):
    """if_match or if_none_match does not hold."""


class UnavailableError(PlantstoreError):
    """The server is overloaded, or its store cannot be reached, or too many requests."""


class TransportError(PlantstoreError):
    """There was no response, or it was cut off."""


class ResponseError(PlantstoreError):
    """The response is not what a Plant Store sends."""


class OutcomeError(PlantstoreError):
    """A write with a version as its condition of which nobody knows whether it was applied.

    The response to an attempt was lost, and the repeated one failed with the error in
    __cause__. now is the plant after that. If that is None, read_error says why: a
    NotFoundError if there is no plant.
    """

    def __init__(
        self,
        message: str,
        code: int = 0,
        status: int | None = None,
        now: StoredPlant | None = None,
        read_error: PlantstoreError | None = None,
    ) -> None:
        super().__init__(message, code, status)
        self.now = now
        self.read_error = read_error


_BY_STATUS: dict[int, type[PlantstoreError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    410: GoneError,
    412: PreconditionError,
    429: UnavailableError,
    503: UnavailableError,
}

# The codes for the statuses of proxies and other servers. A 404 of theirs says nothing
# about a plant.
_CODE_OF = {
    401: Code.BAD_TOKEN,
    403: Code.SCOPE,
    404: Code.NO_PATH,
    405: Code.METHOD,
    408: Code.TIMEOUT,
    410: Code.GONE,
    412: Code.PRECONDITION,
    413: Code.TOO_LARGE,
    415: Code.MEDIA_TYPE,
    429: Code.RATE,
    431: Code.HEADERS,
    500: Code.INTERNAL,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.UNAVAILABLE,
}


def server_error(code: int, message: str) -> PlantstoreError:
    """Returns an error with the class for its code."""
    if code == Code.ID_TAKEN:
        return IdTakenError(message, code)
    return _BY_STATUS.get(code // 100, PlantstoreError)(message, code)


def foreign_error(status: int, message: str) -> PlantstoreError:
    """Returns the error for a response that is not from a Plant Store."""
    if status in _CODE_OF:
        return server_error(_CODE_OF[status], message)
    return ResponseError(message, 0, status)


def with_message(err: PlantstoreError, message: str) -> PlantstoreError:
    """Returns the same error with another message."""
    return type(err)(message, err.code, err.status)


class Transient(Exception):
    """A failure that may not recur.

    after is how long the server asks to wait. maybe_applied says that the server may
    have applied the request, progress that the attempt achieved something, so that the
    retries start over.
    """

    def __init__(
        self, err: PlantstoreError, *, after: float = 0, maybe_applied: bool = False, progress: bool = False
    ) -> None:
        super().__init__(err.message)
        self.err = err
        self.after = after
        self.maybe_applied = maybe_applied
        self.progress = progress
