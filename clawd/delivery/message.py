"""A row of the outbox as its adapter gets it: in the channel's own form, marked where it may be a repeat, and in words
where its file cannot go."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import anyio

from clawd.channel import ChannelLimits
from clawd.ledger.db import Row
from clawd.ledger.deliveries import REPEAT
from clawd.markdown import formatted
from clawd.model import Button, Outgoing

log = logging.getLogger(__name__)


def outgoing(row: Row, blobs: Path) -> Outgoing:
    """A row as it stands, as a reader of the terminal gets it."""
    return Outgoing(
        delivery=row["id"],
        channel=row["channel"],
        account=row["account"],
        chat=row["chat"],
        thread=row["thread"],
        kind=row["kind"],
        text=row["text"],
        nonce=row["nonce"],
        session=row["session"],
        turn=row["turn"],
        path=blobs / row["blob"] if row["blob"] else None,
        name=row["name"],
        repeat=row["state"] in ("unknown", "resent"),
        target=row["target"],
        reply_to=row["reply_to"],
        buttons=tuple(Button(*each) for each in json.loads(row["buttons"] or "[]")),
    )


async def shaped(row: Row, blobs: Path, limits: ChannelLimits, repeat: bool = False, plain: bool = False) -> Outgoing:
    """A row, as `deliveries.head` gives it, as its adapter gets it: in the channel's own form, unless it is to go
    `plain`; a `repeat` says so."""
    message = replace(outgoing(row, blobs), chat=row["now"], edits=None if repeat else row["edited"])
    if not limits.buttons:
        message = replace(message, buttons=())
    if message.path is not None and (lack := _lack(message.path, message.name, row["channel"], limits)):
        text = f"{message.text}\n\n{lack}".lstrip()
        message = replace(message, kind="text", text=text, path=None, name=None)
    if repeat:
        message = replace(message, text=REPEAT + message.text, repeat=True)
    if plain or row["kind"] not in ("text", "stream") or limits.markup == "plain":
        return message
    try:
        form = await anyio.to_thread.run_sync(formatted, message.text, limits)
    except Exception:  # a defect of ours costs the form, not the message
        log.exception("delivery %s cannot be put into the form of %s", row["id"], row["channel"])
        return message
    return replace(message, formatted=form)


def _lack(path: Path, name: str | None, channel: str, limits: ChannelLimits) -> str | None:
    """Why a file cannot go out by a channel."""
    try:
        size = path.stat().st_size
    except OSError:
        return f"The file {name} was to be here; it is gone."
    if not limits.files:
        return f"The file {name} cannot be sent: {channel} takes none from me."
    if size > limits.file_bytes:
        has, takes = (f"{each / 1e6:.1f} MB" for each in (size, limits.file_bytes))
        return f"The file {name} cannot be sent: it has {has}, and {channel} takes {takes}."
    return None
