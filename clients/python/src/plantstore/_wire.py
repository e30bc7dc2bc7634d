"""The JSON of the interface."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Callable, TypeVar

from ._errors import Code, PlantstoreError, server_error
from ._types import (
    About,
    AboutLog,
    Bucket,
    Delivery,
    Event,
    Failing,
    ImportLine,
    ImportReport,
    Keep,
    Limits,
    LineError,
    NewToken,
    Plant,
    SearchIndex,
    StoredPlant,
    TagCount,
    Token,
    Webhook,
    WebhookError,
    WebhookWithSecret,
)

T = TypeVar("T")

MIN_ID, MAX_ID = -(2**63), 2**63 - 1


class Malformed(Exception):
    """Text that is not what the interface says."""


def check_id(id: int) -> int:
    """Returns the id, or fails if it is not an integer of 64 bits."""
    if type(id) is not int:
        raise TypeError(f"an id must be an int, got {type(id).__name__}")
    if not MIN_ID <= id <= MAX_ID:
        raise server_error(Code.RANGE, f'"id" must be from {MIN_ID} to {MAX_ID}, got {id}')
    return id


def to_bytes(text: str) -> bytes:
    """Returns UTF-8, which text with an unpaired surrogate does not have."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise server_error(Code.NOT_JSON, "text must be valid Unicode, without unpaired surrogates") from None


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def dump(value: object) -> bytes:
    return to_bytes(_encode(value))


def _encode_text(name: str, text: str | None) -> str:
    if not isinstance(text, str):
        raise TypeError(f"a plant's {name} must be a str, got {type(text).__name__}")
    return _encode(text)


def encode_plant(plant: Plant | ImportLine, *, with_id: bool) -> bytes:
    id = f'"id":{check_id(plant.id)},' if with_id else ""
    tag = "" if plant.tag is None else ',"tag":' + _encode_text("tag", plant.tag)
    return to_bytes(f'{{{id}"name":{_encode_text("name", plant.name)}{tag}}}')


def encode_line(line: Plant | ImportLine, *, only_id: bool) -> bytes:
    plant = b'{"id":%d}' % check_id(line.id) if only_id else encode_plant(line, with_id=True)
    if not isinstance(line, ImportLine) or line.if_version is None:
        return plant
    return plant[:-1] + to_bytes(f',"if_version":{_encode_text("if_version", line.if_version)}}}')


def encode_patch(name: str | Keep, tag: str | None | Keep) -> bytes:
    members = []
    if not isinstance(name, Keep):
        members.append('"name":' + _encode_text("name", name))
    if not isinstance(tag, Keep):
        members.append('"tag":' + ("null" if tag is None else _encode_text("tag", tag)))
    return to_bytes("{" + ",".join(members) + "}")


def _number(text: str) -> int | float:
    """Reads a number with a fraction or an exponent, exactly if it is an integer."""
    number = Decimal(text)
    if number.is_finite() and number.adjusted() < 20 and number == number.to_integral_value():
        return int(number)
    return float(text)


def _constant(text: str) -> None:
    raise ValueError(text)


def load(body: bytes) -> Any:
    """Reads JSON. Integers are exact."""
    try:
        return json.loads(body, parse_float=_number, parse_constant=_constant)
    except (ValueError, RecursionError, ArithmeticError):
        raise Malformed("not JSON") from None


def member(value: Any, name: str, kind: type[T]) -> T:
    """Returns a member that is required."""
    if type(value) is not dict:
        raise Malformed("not an object")
    got = value.get(name)
    if type(got) is not kind:
        raise Malformed(f'"{name}" is missing or has the wrong type')
    return got


def optional(value: Any, name: str, kind: type[T]) -> T | None:
    """Returns a member that may be absent or null."""
    return None if value.get(name) is None else member(value, name, kind)


def many(value: Any, decode: Callable[[Any], T]) -> list[T]:
    if type(value) is not list:
        raise Malformed("not an array")
    return [decode(element) for element in value]


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Malformed("not a string")
    return value


def _plant_members(value: Any, id: int | None) -> tuple[int, str, str | None]:
    tag = member(value, "tag", str) if type(value) is dict and "tag" in value else None
    if id is None:
        id = member(value, "id", int)
        if not MIN_ID <= id <= MAX_ID:
            raise Malformed('"id" is out of range')
    return id, member(value, "name", str), tag


def decode_plant(value: Any, id: int | None = None) -> Plant:
    """Reads a plant: without an id if that is given."""
    return Plant(*_plant_members(value, id))


def decode_stored(value: Any, id: int | None = None, version: str | None = None) -> StoredPlant:
    """Reads a plant with details: without an id and a version if these are given."""
    members = _plant_members(value, id)
    return StoredPlant(
        *members,
        version=member(value, "version", str) if version is None else version,
        created=_optional_time(value, "created"),
        updated=_optional_time(value, "updated"),
    )


def decode_tag(value: Any) -> TagCount:
    return TagCount(member(value, "tag", str), member(value, "plants", int), optional(value, "more", bool) or False)


def decode_error(value: Any) -> PlantstoreError:
    return server_error(member(value, "error", int), member(value, "message", str))


def _line_error(value: Any) -> LineError:
    return LineError(member(value, "line", int), member(value, "error", int), member(value, "message", str))


def decode_report(value: Any) -> ImportReport:
    return ImportReport(
        member(value, "created", int),
        member(value, "unchanged", int),
        member(value, "failed", int),
        many(member(value, "errors", list), _line_error),
        replaced=optional(value, "replaced", int) or 0,
        deleted=optional(value, "deleted", int) or 0,
    )


_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)


def parse_time(text: str) -> datetime:
    """Reads an RFC 3339 time, to the microsecond."""
    match = _TIME.match(text)
    if match is None:
        raise Malformed("not a time")
    day, clock, fraction, zone = match.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{clock}" + ("+00:00" if zone in "Zz" else zone))
    except ValueError:
        raise Malformed("not a time") from None
    return at.astimezone(timezone.utc) + timedelta(microseconds=int((fraction or "0")[:6].ljust(6, "0")))


def format_time(at: datetime) -> str:
    if at.tzinfo is None:
        raise ValueError("a time must have a time zone: use datetime.now(timezone.utc)")
    return at.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _time(value: Any, name: str) -> datetime:
    return parse_time(member(value, name, str))


def _optional_time(value: Any, name: str) -> datetime | None:
    text = optional(value, name, str)
    return None if text is None else parse_time(text)


def decode_event(value: Any) -> Event | None:
    """Returns an event of a plant, or None for one of anything else."""
    type = member(value, "type", str)
    if not type.startswith("plant."):
        return None
    return Event(
        member(value, "cursor", str),
        _time(value, "time"),
        type,
        decode_plant(value.get("plant")),
        member(value, "by", str),
        optional(value, "version", str),
    )


def decode_bucket(value: Any) -> Bucket:
    return Bucket(_time(value, "time"), member(value, "events", int), optional(value, "partial", bool) or False)


def _decode_failing(value: Any) -> Failing:
    return Failing(_time(value, "since"), member(value, "attempts", int), member(value, "error", str))


def _decode_webhook_error(value: Any) -> WebhookError:
    return WebhookError(member(value, "url", str), _time(value, "time"), member(value, "error", str))


def _health(value: Any) -> str:
    """Returns the health of a webhook, also for a server before 0.3.0, which does not send it."""
    before = "failing" if "failing" in value else "healthy"
    return optional(value, "health", str) or ("disabled" if value["state"] == "disabled" else before)


def _webhook_members(value: Any) -> dict[str, Any]:
    return {
        "id": member(value, "id", str),
        "url": member(value, "url", str),
        "types": many(member(value, "types", list), _text),
        "description": member(value, "description", str),
        "state": member(value, "state", str),
        "created": _time(value, "created"),
        "reason": optional(value, "reason", str),
        "by": optional(value, "by", str),
        "delivered": _optional_time(value, "delivered"),
        "failing": _decode_failing(value["failing"]) if "failing" in value else None,
        "pending": optional(value, "pending", int) or 0,
        "lag_ms": optional(value, "lag_ms", int) or 0,
        "health": _health(value),
        "next_attempt": _optional_time(value, "next_attempt"),
        "last_error": _decode_webhook_error(value["last_error"]) if "last_error" in value else None,
    }


def decode_webhook(value: Any) -> Webhook:
    return Webhook(**_webhook_members(value))


def decode_webhook_with_secret(value: Any) -> WebhookWithSecret:
    return WebhookWithSecret(**_webhook_members(value), secret=member(value, "secret", str))


def decode_delivery(value: Any) -> Delivery:
    return Delivery(
        member(value, "event", str),
        member(value, "type", str),
        member(value, "attempt", int),
        _time(value, "time"),
        member(value, "status", int),
        member(value, "duration_ms", int),
        optional(value, "error", str),
        optional(value, "response", str),
    )


def _token_members(value: Any) -> dict[str, Any]:
    return {
        "scopes": many(member(value, "scopes", list), _text),
        "id": optional(value, "id", str),
        "name": optional(value, "name", str),
        "created": _optional_time(value, "created"),
        "expires": _optional_time(value, "expires"),
        "issuer": optional(value, "issuer", str),
        "subject": optional(value, "subject", str),
        "rate": optional(value, "rate", str),
    }


def decode_token(value: Any) -> Token:
    return Token(**_token_members(value))


def decode_new_token(value: Any) -> NewToken:
    return NewToken(**_token_members(value), token=member(value, "token", str))


def _decode_limits(value: Any) -> Limits:
    return Limits(
        member(value, "max_body", int),
        member(value, "max_header", int),
        member(value, "max_page_size", int),
        member(value, "max_token_name", int),
        member(value, "max_tokens", int),
        member(value, "max_webhooks", int),
        optional(value, "rate_limit", str),
        optional(value, "log_keep_seconds", int),
        optional(value, "log_max_bytes", int),
    )


def _decode_about_log(value: Any) -> AboutLog:
    return AboutLog(member(value, "events", int), member(value, "bytes", int), _optional_time(value, "oldest"))


def _decode_search_index(value: Any) -> SearchIndex:
    return SearchIndex(member(value, "state", str), member(value, "plants", int))


def decode_about(value: Any) -> About:
    return About(
        member(value, "version", str),
        member(value, "interface", str),
        member(value, "store", str),
        _decode_limits(value.get("limits")),
        optional(value, "plants", int),
        _optional_time(value, "started"),
        optional(value, "bytes", int),
        _decode_about_log(value["log"]) if "log" in value else None,
        _decode_search_index(value["search_index"]) if "search_index" in value else None,
    )
