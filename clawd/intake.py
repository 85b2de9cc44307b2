"""Intake: what an adapter received becomes a row of the ledger, with rights, or a sentence for its sender.

When `receive` returns, the message is durable and may be acknowledged. The same message again gives the same receipt.
Strangers leave nothing behind. Commands are rows too: they are carried out by the daemon, once.
"""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import anyio

from clawd import faults
from clawd.channel import ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.errors import ClawdError, StorageError, UsageError
from clawd.ledger import groups, inbound, steering
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.inbound import Accepted
from clawd.model import Incoming, Part, Receipt
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from clawd.text import units
from clawd.trust import Role, at_least, origin_of

log = logging.getLogger(__name__)

MAX_TEXT_UNITS = 256 << 10
RATE_MESSAGES, RATE_WINDOW_S = 20, 60.0
STRANGER = "This is a private assistant, and its owner has not let you speak to it."


_WORD = re.compile(r"/([a-z][a-z_]{0,31})(?:@\S+)?(?:\s+(.*))?", re.DOTALL)


class CommandContext(Protocol):
    """What commands may ask of the daemon."""

    def stopped(self, live: list[int], waiting: list[int]) -> None:
        """A stop is durable: of live turns, which are told so now, and of turns that waited."""
        ...

    def state_of(self, group: str) -> str:
        """One line on the group's sandbox and engine."""
        ...

    def decide(
        self, tx: Transaction, row: Row, verdict: Literal["approve", "deny"], which: str
    ) -> tuple[str, Callable[[], None] | None]:
        """`/approve` and `/deny` by this message: the reply, and what is to be done once it is durable. Raises
        ClawdError."""
        ...

    async def usage(self, group: str, session: str) -> str:
        """What `/usage` says."""
        ...

    async def model(self, group: str, words: str) -> str:
        """What `/model` says, and does. Raises ClawdError."""
        ...

    async def pair(self, person: str | None) -> str:
        """What `/pair` says to an owner: a code for another account of theirs. Raises ClawdError."""
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """A command's reply, and what is to be done once it is durable."""

    reply: str
    after: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """`needs` is the lowest role that may say it."""

    help: str
    needs: Role
    run: Callable[[Transaction, CommandContext, Row, str, str], Done]
    before: Callable[[CommandContext, Row, str], Awaitable[str]] | None = None
    """What is done outside of the ledger, and may be done twice: its words are the reply, and `run` is not called."""


def parse(text: str) -> tuple[str, str] | None:
    """(word, rest) of a message that is a command, else None. `/etc/passwd` and `/ x` are no commands."""
    match = _WORD.fullmatch(text.strip())
    return (match[1], (match[2] or "").strip()) if match else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message belongs: its group and the plain id of its conversation."""

    group: str
    base: str


class Rates:
    """How often each sender spoke lately: a sliding window, bounded by forgetting whoever is quiet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._times: dict[str, deque[float]] = {}
        self._slowed: dict[str, float] = {}  # who was told to wait, and until when that is so

    def wait(self, sender: str) -> float:
        """Seconds until the sender may speak again: 0 now, and then it counts."""
        now = self._clock.monotonic()
        for quiet in [each for each, times in self._times.items() if now - times[-1] > RATE_WINDOW_S]:
            del self._times[quiet]
        times = self._times.setdefault(sender, deque())
        while times and now - times[0] >= RATE_WINDOW_S:
            times.popleft()
        if len(times) < RATE_MESSAGES:
            times.append(now)
            return 0.0
        return RATE_WINDOW_S - (now - times[0])

    def is_told(self, sender: str, wait: float) -> bool:
        """Whether a sender who must wait was told so before, and has waited since; from now on that is so."""
        now = self._clock.monotonic()
        self._slowed = {each: until for each, until in self._slowed.items() if until >= now}
        known = sender in self._slowed
        self._slowed[sender] = now + wait
        return known


class Intake:
    """Implements `channel.Inbox`."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        tasks: Tasks,
        place: Callable[[Incoming], Awaitable[Place]],
        role: Callable[[Incoming], Role],
        commands: Mapping[str, Command],
        context: CommandContext,
        wake: Callable[[str], None],
        deliver: Callable[[Address], None],
        limits: Callable[[str], ChannelLimits],
        followups: Callable[[str], str],
    ) -> None:
        self._ledger, self._clock, self._signals, self._tasks = ledger, clock, signals, tasks
        self._place, self._role = place, role
        self._commands, self._context = commands, context
        self._wake, self._deliver, self._limits, self._followups = wake, deliver, limits, followups
        self._rates = Rates(clock)
        self.closed = False

    async def receive(self, incoming: Incoming) -> Receipt:
        """Take a message in. Raises UsageError for what cannot be a message, StorageError when it cannot be kept."""
        if self.closed:
            raise StorageError("clawd is ending; send it again when it runs")
        role = self._role(incoming)
        if not at_least(role, Role.MEMBER):
            log.info("a stranger was turned away", extra={"channel": incoming.channel})
            return Receipt(None, "refused", None, None, STRANGER)
        text = "\n".join(incoming.texts)
        if not text.strip():
            raise UsageError("an empty message was not sent")
        if units(text) > MAX_TEXT_UNITS:
            raise UsageError(
                f"the message is longer than {MAX_TEXT_UNITS >> 10} KB; put it into a file in work/ instead"
            )
        # A lone surrogate cannot be stored as UTF-8; what a platform sends is kept as far as it is text.
        texts = tuple(each.encode("utf-8", "replace").decode() for each in incoming.texts)
        incoming = replace(incoming, texts=texts)
        command = parse(texts[0]) if incoming.kind == "message" else None
        if command is None or command[0] != "stop":  # the turn that fills the disk can be stopped all the same
            self._ledger.check_room()
        if command is not None:
            incoming = replace(incoming, kind="command")
        place = await self._place(incoming)
        parts = [Part("typed", origin_of(role), each) for each in texts]
        now, followups = rfc3339(self._clock.now()), self._followups(place.group)
        wait = 0.0
        if not command and not at_least(role, Role.ADMIN):
            if old := await self._ledger.do(lambda tx: inbound.known(tx, incoming)):
                return Receipt(old.seq, old.state, old.session, old.turn, fresh=False)
            wait = self._rates.wait(incoming.sender)

        def accept(tx: Transaction) -> tuple[Accepted, Row | None]:
            session = groups.open_session(tx, place.base, place.group, now)
            accepted = inbound.accept(
                tx,
                incoming,
                group=place.group,
                session=session.id,
                role=role,
                parts=parts,
                now=now,
                held="rate" if wait else None,
            )
            return accepted, _interrupted(tx, accepted, followups, now)

        # What is durable must be carried on, also when whoever sent it goes away meanwhile.
        with anyio.CancelScope(shield=True):
            accepted, interrupted = await self._ledger.do(accept)
            if not accepted.fresh:
                return Receipt(accepted.seq, accepted.state, accepted.session, accepted.turn, fresh=False)
            faults.passing("received")
            data = {"message": accepted.seq, "state": accepted.state}
            self._signals.emit(News("message", place.group, accepted.session, data))
            told = None
            if command is not None:
                await self.carry_out(accepted.seq)
            elif wait:
                if not self._rates.is_told(incoming.sender, wait):
                    told = f"That is more than {RATE_MESSAGES} messages a minute; this one is taken in {wait:.0f} s."
                    told += " So is what follows: it is kept, and taken by and by."
                self._tasks.start_soon(self._release_later, accepted.seq, incoming.sender, place.group, wait)
            else:
                if accepted.merged:
                    told = "Many messages wait already; this one will be answered together with the last of them."
                self._go_on(place.group, interrupted)
        return Receipt(accepted.seq, accepted.state, accepted.session, accepted.turn, told)

    async def carry_out_open(self) -> None:
        """After a restart, before any turn goes on: a `/stop` that was accepted holds."""
        for seq in await self._ledger.do(inbound.open_commands):
            try:
                await self.carry_out(seq)
            except Exception:
                log.exception("command %s could not be carried out", seq)

    async def recover(self) -> None:
        """After a restart: held messages wait their turn again."""
        for row in await self._ledger.do(inbound.held_for_rate):
            wait = self._rates.wait(row["sender"])
            self._tasks.start_soon(self._release_later, row["seq"], row["sender"], row["grp"], wait)

    async def _release_later(self, seq: int, sender: str, group: str, wait: float) -> None:
        while wait:
            await anyio.sleep(wait)
            wait = self._rates.wait(sender)
        now, followups = rfc3339(self._clock.now()), self._followups(group)

        def release(tx: Transaction) -> tuple[Accepted | None, Row | None]:
            accepted = inbound.release(tx, seq, now)
            return accepted, _interrupted(tx, accepted, followups, now) if accepted else None

        accepted, interrupted = await self._ledger.insist(release)
        if accepted:
            self._go_on(group, interrupted)

    def _go_on(self, group: str, interrupted: Row | None) -> None:
        """A message has its turn, and what was to stop for it is durable: both are told."""
        self._wake(group)
        if interrupted is not None:
            self._context.stopped([interrupted["id"]], [])
            self._deliver(Address.of(interrupted))

    async def carry_out(self, seq: int) -> None:
        """Do what an accepted command says and answer it; both in one transaction, so that it is done once."""
        row = await self._ledger.do(lambda tx: _message(tx, seq))
        parsed = parse(_text(row))
        assert parsed is not None
        word, rest = parsed
        command = self._commands.get(word)
        now, limits = rfc3339(self._clock.now()), self._limits(row["channel"])
        after: Callable[[], None] | None = None
        if command is None:
            reply = f"There is no command /{word}. /help lists them."
        elif not at_least(Role(row["role"]), command.needs):
            reply = f"/{word} is for the {command.needs} alone."
        elif command.before is not None:
            try:
                reply = await command.before(self._context, row, rest)
            except ClawdError as error:
                reply = str(error)
        else:
            reply = ""

        def act(tx: Transaction) -> list[int]:
            nonlocal after
            words = reply
            if command is not None and not reply:
                try:
                    done = command.run(tx, self._context, row, rest, now)
                    words, after = done.reply, done.after
                except ClawdError as error:
                    words = str(error)
            return inbound.answer_command(tx, seq, words, now, limits)

        if await self._ledger.insist(act):
            if after is not None:
                after()
            self._deliver(Address.of(row))
        data = {"message": seq, "state": "answered"}
        self._signals.emit(News("message", row["grp"], row["session"], data))


def _interrupted(tx: Transaction, accepted: Accepted, followups: str, now: str) -> Row | None:
    """Where a newer message ends what is at work: the turn that is asked to stop for this one, durably."""
    if not accepted.fresh or accepted.turn is None or followups != "interrupt":
        return None
    return steering.interrupt(tx, accepted.turn, now)


def _message(tx: Transaction, seq: int) -> Row:
    row = tx.one("SELECT * FROM inbound WHERE seq = ?", seq)
    assert row is not None
    return row


def _text(row: Row) -> str:
    return str(json.loads(row["parts"])[0]["text"])
