"""Requests from outside that wake a group, as the `[[webhook]]` tables of its `group.toml` allow them.

Nothing listens while no group has one. What is answered with 200 is durable: the body is a file in the group's inbox,
and its rows, its wake and its turn are one commit; the same request again wakes nobody. A file whose commit never came
is marked by a hidden, empty one beside it, and goes with the next start.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import math
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from clawd import faults
from clawd.clock import Clock, backoff, rfc3339
from clawd.config.home import Home, group_folders
from clawd.config.live import LiveConfig
from clawd.errors import ClawdError, ConfigError
from clawd.files import open_beneath, sync_directory, walk_beneath
from clawd.ids import is_group_name, new_id
from clawd.ledger import hooks
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import address_of
from clawd.model import Part
from clawd.tasks import Whole
from clawd.text import made_visible
from clawd.trust import Origin
from clawd.wakes.hook import Hook, Key, Patience, Refusal, Refusals
from clawd.wakes.signatures import Genuine

if TYPE_CHECKING:
    from clawd.wakes.listener import Listener

log = logging.getLogger(__name__)

INSIDE = "/group/inbox"
EXCERPT = 2000  # characters of a body that are shown; the file has all of it
PATIENCE_S = 20.0  # for what is durable to be so
_MARK = "."  # before the name of a file whose commit is not known yet
_UNASKED = "Something came to this webhook. See what it is about, and tell what matters."
_HELP = {
    errno.EADDRINUSE: "another program listens there. End it, or write another [webhooks] listen into config.toml",
    errno.EADDRNOTAVAIL: "this machine has no such address. Write another [webhooks] listen into config.toml",
    errno.EACCES: "this user may not. Write a [webhooks] listen with a port above 1023 into config.toml",
}


class Webhooks:
    """`base` gives the plain id of a group's own conversation, `adopt` has the ledger know the group, `wake` has its
    turns claimed. `told` tells the owner, `trouble` does so once a day a sentence. Implements `listener.Desk`."""

    def __init__(
        self,
        home: Home,
        config: LiveConfig,
        ledger: Ledger,
        clock: Clock,
        *,
        base: Callable[[str], Awaitable[str]],
        adopt: Callable[[str], Awaitable[object]],
        wake: Callable[[str], None],
        told: Callable[[str], None],
        trouble: Callable[[str], None],
        patience: Patience | None = None,
    ) -> None:
        self._home, self._config, self._ledger, self._clock = home, config, ledger, clock
        self._base, self._adopt, self._wake = base, adopt, wake
        self._told, self._trouble, self._patience = told, trouble, patience or Patience()
        self._refusals = Refusals(clock, trouble)
        self._listener: Listener | None = None
        self._wanted: str | None = None
        self._at: str | None = None
        self._error: str | None = None
        self._closed = False
        self._looked = anyio.Event()
        self._one = anyio.Lock()  # what is known when a file is put into an inbox is known when it is committed
        self._whole = Whole()

    # ── listening ──

    def look(self) -> None:
        """The config or a group's file may say something else now: open, close or move. In the event loop."""
        self._looked.set()

    def status(self) -> dict[str, Any] | None:
        """{listen, state: live|degraded, error}; None while no group has a webhook."""
        if self._wanted is None:
            return None
        return {"listen": self._at or self._wanted, "state": "live" if self._at else "degraded", "error": self._error}

    async def run(self) -> None:
        """Listen where it is wanted, for ever."""
        swept, failures = False, 0
        while not self._closed:
            self._looked = anyio.Event()
            try:
                swept = swept or await self._sweep()
                wanted = await to_thread.run_sync(self._where)
                if wanted != self._wanted or self._at is None:
                    failures = failures + 1 if not await self._move(wanted) else 0
            except Exception:  # a defect: what is listened for stays
                log.exception("webhooks were not looked at")
                failures += 1
            with anyio.move_on_after(backoff(failures, random.random()) if failures else math.inf):
                await self._looked.wait()

    async def close(self) -> None:
        """Nothing more is taken: the daemon ends."""
        self._closed = True
        self.look()
        await self._shut()

    def _where(self) -> str | None:
        """Where to listen; None while no group has a hook. Of very many groups only the files that name one are
        parsed."""
        listen = self._config.current.webhooks.listen
        return listen if any(self._has_hook(folder) for folder in group_folders(self._home)) else None

    def _has_hook(self, folder: str) -> bool:
        if not self._names_hook(folder):
            return False
        try:
            return bool(self._config.group(folder).webhook)
        except ConfigError:
            return True  # who sends there hears that it cannot be taken now

    def _names_hook(self, folder: str) -> bool:
        try:
            return self._home.group(folder).says(b"webhook")
        except OSError:
            return False

    async def _move(self, wanted: str | None) -> bool:
        """Listen there, and nowhere else. Whether that is so now."""
        await self._shut()
        self._wanted = wanted
        if wanted is None or self._closed:
            self._error = None
            return True
        made = await to_thread.run_sync(_import)
        listener = made(self, self._clock, self._patience)
        host, _, port = wanted.rpartition(":")
        try:
            self._at = await listener.open(host.strip("[]"), int(port))
        except (OSError, UnicodeError) as error:
            why = _HELP.get(
                getattr(error, "errno", None) or 0, getattr(error, "strerror", None) or "that is no address"
            )
            self._error = why
            self._trouble(f"Webhooks cannot be listened for at {wanted}: {why}. It is tried again and again.")
            log.warning("no webhooks at %s: %s", wanted, error)
            return False
        if self._error is not None:
            self._told(f"Webhooks are listened for at {self._at} now.")
        self._listener, self._error = listener, None
        if self._closed:
            await self._shut()
        log.info("webhooks are listened for at %s", self._at)
        return True

    async def _shut(self) -> None:
        listener, self._listener, self._at = self._listener, None, None
        if listener is not None:
            await listener.close()

    # ── requests ──

    def find(self, group: str, name: str) -> Hook | None:
        """In any thread. Raises Refusal while the group's file or the secret cannot be read: what an edit was to take
        away must not stay because of a slip of the pen."""
        root = self._home.group(group).root
        if not is_group_name(group) or root.is_symlink() or not root.is_dir():
            return None
        try:
            config = self._config.group(group)
            if (problem := self._config.problem_of(group)) is not None:
                raise problem
        except ClawdError as error:
            why = f"Requests to webhooks of group {group} are refused: its group.toml cannot be understood"
            raise Refusal(503, f"unreadable {group}", "not now", why=why) from error
        table = next((each for each in config.webhook if each.name == name), None)
        if table is None:
            return None
        try:
            secret = table.secret.reveal()
            if not secret.strip():
                raise ConfigError(f"the secret {table.secret} is blank")
        except ConfigError as error:
            raise Refusal(503, "secret", "not now", why=error.message, about=(group, name)) from error
        return Hook(group, name, table.scheme, table.prompt, secret.encode())

    def refused(self, hook: Key | None, refusal: Refusal, size: int) -> None:
        where = {"group": hook[0], "hook": hook[1]} if hook else {}
        log.info("a request to a webhook was refused: %s", refusal.kind, extra={**where, "bytes": size})
        self._refusals.note(hook, refusal.kind, refusal.why)

    async def take(self, hook: Hook, genuine: Genuine, body: bytes) -> bool:
        """False for what came before. Raises Refusal, and nothing was done then."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._whole(self._take(hook, genuine, body))
        except TimeoutError:  # it may be taken yet: then it is known when it comes again
            raise Refusal(503, "storage", "not now") from None

    async def _take(self, hook: Hook, genuine: Genuine, body: bytes) -> bool:
        keys = genuine.keys or (f"once:{new_id()}",)
        try:
            async with self._one:
                if self._closed:
                    raise Refusal(503, "ending", "not now")
                self._ledger.check_room()
                await self._adopt(hook.group)
                if await self._ledger.do(lambda tx: hooks.is_known(tx, *hook.key, keys)):
                    return False
                return await self._keep(hook, genuine, body, keys)
        except (ClawdError, OSError) as error:
            log.error("a request to a webhook was not taken: %s", error, extra={"group": hook.group, "hook": hook.name})
            raise Refusal(503, "storage", "not now") from error

    async def _keep(self, hook: Hook, genuine: Genuine, body: bytes, keys: tuple[str, ...]) -> bool:
        now, inbox = self._clock.now(), self._home.group(hook.group).inbox
        short, suffix = hashlib.sha256(keys[0].encode()).hexdigest()[:8], "json" if genuine.is_json else "txt"
        file = f"hook-{hook.name}-{now:%Y%m%d-%H%M%S}-{short}.{suffix}"
        await to_thread.run_sync(partial(self._put, hook, inbox, file, body))
        faults.passing("hook-kept")
        try:
            base, to = await self._base(hook.group), address_of(self._config.first_binding(hook.group))
            woken = await self._ledger.do(
                lambda tx: hooks.take(
                    tx,
                    *hook.key,
                    keys,
                    file=file,
                    base=base,
                    to=to,
                    parts=_parts(hook, genuine, body, file),
                    now=rfc3339(now),
                )
            )
        except Exception:  # undone; what is cancelled may be done yet, and stays marked
            await to_thread.run_sync(_settle, inbox, file, False)
            raise
        faults.passing("hook-committed")
        await to_thread.run_sync(_settle, inbox, file, woken is not None)
        if woken is None:
            return False
        about = {"group": hook.group, "hook": hook.name, "bytes": len(body), "wake": woken.wake, "turn": woken.turn}
        log.info("a webhook was taken", extra=about)
        self._wake(hook.group)
        return True

    def _put(self, hook: Hook, inbox: Path, file: str, body: bytes) -> None:
        """A file that is there whole, and marked as one that is not committed. Raises OSError; Refusal where the inbox
        has no room for it."""
        inbox.mkdir(mode=0o755, exist_ok=True)
        quota, used = self._config.for_group(hook.group).sandbox.inbox, 0
        for _, status in walk_beneath(inbox.resolve()):
            used += status.st_size
        if used + len(body) > quota:
            why = f"the group's inbox/ may hold {quota:,} bytes, and is full. Remove some of its files"
            raise Refusal(507, "full", "there is no room for it", why=why)
        _write(inbox, _MARK + file, b"")
        try:
            _write(inbox, file, body)
            sync_directory(inbox)
        except OSError:
            _settle(inbox, file, False)
            raise

    async def _sweep(self) -> bool:
        """What an earlier life put into an inbox: kept if it was committed, else removed. Its sender sends it again."""
        known = await self._ledger.insist(hooks.groups)
        marked = await to_thread.run_sync(self._marked, known)
        for group, file in marked:
            kept = await self._ledger.insist(lambda tx, group=group, file=file: hooks.has_file(tx, group, file))  # type: ignore[misc]
            await to_thread.run_sync(_settle, self._home.group(group).inbox, file, kept)
        return True

    def _marked(self, known: set[str]) -> list[tuple[str, str]]:
        """(group, file) of each marked file, of groups that something came to or that have hooks."""
        found = []
        for folder in {*known, *filter(self._names_hook, group_folders(self._home))}:
            with suppress(OSError), os.scandir(self._home.group(folder).inbox) as entries:
                names = [entry.name for entry in entries if entry.name.startswith(f"{_MARK}hook-")]
                found += [(folder, name.removeprefix(_MARK)) for name in names]
        return found


def _parts(hook: Hook, genuine: Genuine, body: bytes, file: str) -> list[Part]:
    """What the person wrote into the hook's table, then what came: a path, and how it begins."""
    text = body[: 4 * EXCERPT].decode("utf-8", "replace")
    shown = made_visible(text[:EXCERPT])[:EXCERPT]
    event = f", event {genuine.event}" if genuine.event else ""
    head = f"{INSIDE}/{file} ({len(body):,} bytes), the body of a request to the webhook {hook.name}{event}"
    whole = f"{head}. {'All of it' if made_visible(text) == shown else 'It begins'}:\n\n{shown}" if body else f"{head}."
    return [
        Part("typed", Origin.OWNER, hook.prompt or _UNASKED),
        Part("attachment", Origin.EXTERNAL, whole, name=file),
    ]


def _write(inbox: Path, name: str, content: bytes) -> None:
    """A new file that whoever reaches it can read, durably but for its name. Raises OSError."""
    descriptor = open_beneath(inbox.resolve(), name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o644)
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _settle(inbox: Path, file: str, kept: bool) -> None:
    """It is known what became of a file."""
    for name in (_MARK + file,) if kept else (file, _MARK + file):
        try:
            (inbox / name).unlink(missing_ok=True)
        except OSError as error:  # the next start does it
            log.warning("%s stays in an inbox: %s", name, error.strerror)
            return


def _import() -> type[Listener]:
    from clawd.wakes.listener import Listener

    return Listener
