"""Webhooks, from the receiver's side."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Mapping

from ._errors import PlantstoreError

_TOLERANCE = 300
_SECONDS = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)


def verify_webhook(headers: Mapping[str, str], body: bytes, secret: str) -> None:
    """Raises a PlantstoreError unless a message to a webhook is authentic.

    It is if it was signed with the secret, as Standard Webhooks defines it, less than
    five minutes ago. The body must be exactly as it was received. While the secret is
    rotated, a message is signed with the old one and the new one, and either will do.

    The same event may arrive more than once. The header webhook-id is the same then.
    """
    found = {name.lower(): value for name, value in headers.items()}
    id, at, signatures = (found.get("webhook-" + name, "") for name in ("id", "timestamp", "signature"))
    if not id or not at or not signatures:
        raise PlantstoreError("the request must have the headers webhook-id, webhook-timestamp and webhook-signature")
    if not _SECONDS.fullmatch(at):
        raise PlantstoreError(f"webhook-timestamp must be a number of seconds, got {at[:40]!r}")
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise PlantstoreError("the secret must be whsec_ and base64")
    now = int(time.time())
    if abs(now - int(at)) > _TOLERANCE:
        raise PlantstoreError(f"webhook-timestamp {at} is more than {_TOLERANCE} s from now, {now}")
    digest = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    want = "v1," + base64.b64encode(digest).decode()
    if not any(hmac.compare_digest(signature.encode(), want.encode()) for signature in signatures.split()):
        raise PlantstoreError(
            "no signature in webhook-signature matches: is it the right secret, and the body as it was received?"
        )
