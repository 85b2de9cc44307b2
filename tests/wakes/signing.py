"""Requests as GitHub, Slack, Stripe and others sign them, by their own documents: an independent second hand."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

SECRET = "It's a Secret to Everybody"


def _hex(secret: str, *pieces: str | bytes) -> str:
    whole = b"".join(piece if isinstance(piece, bytes) else piece.encode() for piece in pieces)
    return hmac.new(secret.encode(), whole, hashlib.sha256).hexdigest()


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def github(content: bytes, id: str = "72d3162e-cc78-11e3-81ab-4c9367dc0958", event: str = "push") -> dict[str, str]:
    signature = f"sha256={_hex(SECRET, content)}"
    return {"X-Hub-Signature-256": signature, "X-GitHub-Delivery": id, "X-GitHub-Event": event}


def slack(content: bytes, at: float) -> dict[str, str]:
    signature = f"v0={_hex(SECRET, f'v0:{int(at)}:', content)}"
    return {"X-Slack-Request-Timestamp": str(int(at)), "X-Slack-Signature": signature}


def stripe(content: bytes, at: float, *more: str) -> dict[str, str]:
    given = [f"t={int(at)}", *more, f"v0={'0' * 64}", f"v1={_hex(SECRET, f'{int(at)}.', content)}"]
    return {"Stripe-Signature": ",".join(given)}


def bearer(id: str | None = None) -> dict[str, str]:
    return {"Authorization": f"Bearer {SECRET}"} | ({"Idempotency-Key": id} if id else {})
