"""Files that came with messages: fetched into the group's `inbox/`, which its agent sees read-only as /group/inbox.

Only what is to be answered has its files fetched. What cannot be had is said in the message instead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from clawd.channel import Adapter, SendRefused
from clawd.errors import ClawdError, Refused
from clawd.files import settle_beneath, walk_beneath
from clawd.ids import file_name
from clawd.ledger import held
from clawd.ledger.db import Ledger, Row
from clawd.model import Attachment, Part
from clawd.trust import Origin

log = logging.getLogger(__name__)

INSIDE = "/group/inbox"
PAUSES = (1.0, 4.0, 15.0, 40.0)  # seconds between tries
TRY_S = 120.0  # that one takes at most
UNREACHED = "its platform did not give it"


class Listens(Protocol):
    """What turns spoken notes into text."""

    async def text(self, path: Path, mime: str) -> str | None:
        """What is said in a file; None where no service is set up for it. Raises ClawdError."""
        ...


class Attachments:
    """`adapter` gives the channel that is open under a name, `inbox` the directory of a group, `quota` the bytes that
    it may hold."""

    def __init__(
        self,
        ledger: Ledger,
        adapter: Callable[[str], Adapter | None],
        inbox: Callable[[str], Path],
        quota: Callable[[str], int],
        speech: Listens | None = None,
    ) -> None:
        self._ledger, self._adapter, self._inbox, self._quota, self._speech = ledger, adapter, inbox, quota, speech
        self._room = anyio.Lock()  # what is looked at is what is there when a file is put into it

    async def fetch(self, row: Row) -> None:
        """Deal with every file of a message, once each."""
        for n, file in enumerate(held.files(row)):
            if "done" not in file:
                parts = await self._parts(row, n, Attachment(**file))
                await self._ledger.insist(partial(held.dealt_with, seq=row["seq"], n=n, parts=parts))

    async def _parts(self, row: Row, n: int, file: Attachment) -> list[Part]:
        name, why = file_name(file.name), UNREACHED
        for pause in (*PAUSES, None):
            try:
                with anyio.fail_after(TRY_S):
                    name, size = await self._put(row, n, file, name)
                break
            except (SendRefused, ClawdError) as error:
                return [_not_there(name, str(error))]
            except Exception as error:  # its text may hold an address with a token
                log.info("message %s: a file was not fetched: %s", row["seq"], type(error).__name__)
                if pause is None:
                    return [_not_there(name, why)]
                await anyio.sleep(pause)
        what = f"{INSIDE}/{name} ({file.mime}, {size:,} bytes)" if file.mime else f"{INSIDE}/{name} ({size:,} bytes)"
        return [Part("attachment", Origin.EXTERNAL, what, name=name), *await self._heard(row, file, name)]

    async def _put(self, row: Row, n: int, file: Attachment, name: str) -> tuple[str, int]:
        """The name and size of a file in the inbox. Raises SendRefused and ClawdError with why it cannot be had."""
        adapter = self._adapter(row["channel"])
        if adapter is None:
            raise SendRefused(f"the channel {row['channel']} is closed")
        most, quota = adapter.limits.fetch_bytes, self._quota(row["grp"])
        _fits(file.size or 0, most)
        inbox = await anyio.to_thread.run_sync(_made, self._inbox(row["grp"]))
        # A name that a restart uses again: what a crash left is written over.
        temporary = inbox / f".{row['seq']}-{n}.tmp"
        try:
            await adapter.fetch(file, temporary)
            async with self._room:
                return await anyio.to_thread.run_sync(_settled, inbox, temporary, name, row["seq"], most, quota)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(partial(temporary.unlink, missing_ok=True))

    async def _heard(self, row: Row, file: Attachment, name: str) -> list[Part]:
        """What is said in a spoken note: never typed, whoever spoke."""
        if not file.voice or self._speech is None:
            return []
        try:
            said = await self._speech.text(self._inbox(row["grp"]) / name, file.mime)
        except ClawdError as error:
            said = f"[it could not be turned into text: {error.message}]"
        except Exception:  # the file is here all the same
            log.exception("message %s: a spoken note was not heard", row["seq"])
            said = "[it could not be turned into text, by a defect of clawd; its log says more]"
        else:
            if said is None:
                return []
            said = f"What is said in it: {said}"
        return [Part("attachment", Origin.EXTERNAL, said, name=name)]


def not_fetched(name: str) -> Part:
    """A file of a line that was not for us."""
    return Part("attachment", Origin.EXTERNAL, "[a file, which was not fetched]", name=file_name(name))


def _not_there(name: str, why: str) -> Part:
    return Part("attachment", Origin.EXTERNAL, f"[this file could not be fetched: {why}]", name=name)


def _fits(size: int, most: int) -> None:
    if size > most:
        raise Refused(f"it has {size:,} bytes, and at most {most:,} can be fetched here")


def _made(inbox: Path) -> Path:
    """The directory that it is, made where it is missing: readable by the group's own user."""
    inbox.mkdir(mode=0o755, exist_ok=True)
    return inbox.resolve()


def _settled(inbox: Path, temporary: Path, name: str, seq: int, most: int, quota: int) -> tuple[str, int]:
    size = temporary.stat().st_size
    _fits(size, most)
    used = sum(status.st_size for _, status in walk_beneath(inbox))  # with this one
    if used > quota:
        raise Refused(f"{inbox.parent.name}'s inbox/ may hold {quota:,} bytes; remove some of its files")
    stem, dot, suffix = name.rpartition(".")
    other = f"{stem}-{seq}{dot}{suffix}" if stem else f"{name}-{seq}"
    return settle_beneath(inbox, temporary.name, (name, other)), size
