"""How senders prove that they know a hook's secret, and by which names a request is known again. Pure.

`github` signs the body, `slack` and `stripe` the time as well, `bearer` shows the secret itself. Every comparison takes
the same time wherever it fails, and whatever a header or a body holds is an answer, never an exception. An id that is
not signed is never the only name of what was signed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

WINDOW_S = 300  # Slack's and Stripe's: an older or a later request is refused
MOST_SIGNATURES = 16  # of one Stripe-Signature: one for each secret that is in force there while they are changed

Scheme = Literal["github", "slack", "stripe", "bearer"]
Header = Callable[[str], Sequence[str]]
"""All values of a header, by its name."""
Reason = Literal["signature", "timestamp", "id"]
"""Why a request is refused; `timestamp` and `id` only where the secret was known."""

_TIME = re.compile(r"[0-9]{1,12}")
_ID = re.compile(r"[!-~]{1,200}")
_EVENT = re.compile(r"[a-z0-9_.]{1,64}")
_IDS = ("Idempotency-Key", "webhook-id", "X-Request-Id")  # of a bearer's request: the first of them that it has
_NOT_JSON = object()


@dataclass(frozen=True, slots=True)
class Genuine:
    """A request whose sender knows the secret. It is known again by any of `keys`; without one each is another.
    `answer` is what the sender wants to hear where it only tries the hook, and nobody is to be woken."""

    keys: tuple[str, ...]
    is_json: bool
    event: str = ""
    answer: dict[str, Any] | None = None


def judge(scheme: Scheme, secret: bytes, header: Header, body: bytes, now: float) -> Genuine | Reason:
    """`now` in seconds since the epoch. A secret of nothing but blanks proves nothing."""
    proven, moment = _PROOFS[scheme](secret, header, body)
    if not proven or not secret.strip():
        return "signature"
    if moment is not None and abs(now - moment) > WINDOW_S:
        return "timestamp"
    value = _parsed(body)
    fields = value if isinstance(value, dict) else {}
    keys = _keys(scheme, header, fields, body)
    if keys is None:
        return "id"
    answer = _tried(scheme, header, fields)
    return Genuine(keys, value is not _NOT_JSON, _event(scheme, header, fields), answer)


def _only(header: Header, name: str) -> str:
    """The value of a header that is there once; else nothing."""
    values = header(name)
    return values[0] if len(values) == 1 else ""


def _same(given: str, due: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), due.encode())


def _signed(secret: bytes, *pieces: bytes) -> str:
    return hmac.new(secret, b"".join(pieces), hashlib.sha256).hexdigest()


def _github(secret: bytes, header: Header, body: bytes) -> tuple[bool, int | None]:
    return _same(_only(header, "X-Hub-Signature-256"), f"sha256={_signed(secret, body)}"), None


def _slack(secret: bytes, header: Header, body: bytes) -> tuple[bool, int | None]:
    time, moment = _moment(_only(header, "X-Slack-Request-Timestamp"))
    same = _same(_only(header, "X-Slack-Signature"), f"v0={_signed(secret, b'v0:', time, b':', body)}")
    return same and moment is not None, moment


def _stripe(secret: bytes, header: Header, body: bytes) -> tuple[bool, int | None]:
    pairs = [pair.partition("=") for pair in _only(header, "Stripe-Signature").split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    given = [value for name, _, value in pairs if name == "v1"][:MOST_SIGNATURES]
    time, moment = _moment(times[0] if len(times) == 1 else "")
    due = _signed(secret, time, b".", body)
    same = [_same(each, due) for each in given]  # all of them, whichever is right
    return any(same) and moment is not None, moment


def _bearer(secret: bytes, header: Header, body: bytes) -> tuple[bool, int | None]:
    word, _, token = _only(header, "Authorization").partition(" ")
    shown = hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()  # one length, whatever was shown
    return _same(shown, hashlib.sha256(secret).hexdigest()) and word.lower() == "bearer", None


_PROOFS: dict[Scheme, Callable[[bytes, Header, bytes], tuple[bool, int | None]]] = {
    "github": _github,
    "slack": _slack,
    "stripe": _stripe,
    "bearer": _bearer,
}


def _moment(text: str) -> tuple[bytes, int | None]:
    """A time as it was signed, and the seconds that it names."""
    return (text.encode(), int(text)) if _TIME.fullmatch(text) else (b"", None)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError):
        return _NOT_JSON


def _keys(scheme: Scheme, header: Header, fields: dict[str, Any], body: bytes) -> tuple[str, ...] | None:
    """None where the sender's id cannot be one."""
    content = f"body:{hashlib.sha256(body).hexdigest()}"
    if scheme == "github":  # the id is not signed: what was heard once could be sent again under another
        id = _only(header, "X-GitHub-Delivery")
        return (content, f"id:{id}") if _ID.fullmatch(id) else (content,)
    if scheme != "bearer":
        named = fields.get("event_id" if scheme == "slack" else "id")
        return (f"id:{named}",) if isinstance(named, str) and _ID.fullmatch(named) else (content,)
    name = next((name for name in _IDS if header(name)), None)
    if name is None:
        return ()
    return (f"id:{id}",) if _ID.fullmatch(id := _only(header, name)) else None


def _tried(scheme: Scheme, header: Header, fields: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to a request that only asks whether the hook works, by what is signed in it."""
    if scheme == "slack" and fields.get("type") == "url_verification" and isinstance(fields.get("challenge"), str):
        return {"challenge": fields["challenge"]}
    if scheme == "github" and _event(scheme, header, fields) == "ping" and {"zen", "hook_id"} <= fields.keys():
        return {"ok": True}
    return None


def _event(scheme: Scheme, header: Header, fields: dict[str, Any]) -> str:
    """What the sender calls it."""
    if scheme == "slack" and isinstance(fields.get("event"), dict):
        fields = fields["event"]
    name = _only(header, "X-GitHub-Event") if scheme == "github" else fields.get("type")
    return name if scheme != "bearer" and isinstance(name, str) and _EVENT.fullmatch(name) else ""
