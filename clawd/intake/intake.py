"""Intake: what an adapter received becomes a row of the ledger, with rights, or a sentence for its sender.

When `receive` returns, the message is durable and may be acknowledged; the place up to which its platform was read is
in the same commit. The same message again gives the same receipt. Strangers leave nothing behind. Commands and buttons
are rows too: they are carried out by the daemon, once. What a terminal is told comes with the receipt, what another
channel is told goes into the outbox with the row that it is about.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import anyio

from clawd import faults
from clawd.approvals.context import why_shut
from clawd.channel import ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.errors import ClawdError, Ending, StorageError, UsageError
from clawd.intake import decision
from clawd.intake.attachments import Attachments, not_fetched
from clawd.intake.commands import Command, CommandContext, Done, Filed, Press, parse
from clawd.intake.decision import Rules
from clawd.intake.rates import RATE_MESSAGES, Rates
from clawd.intake.waiting import Waiting, interrupted, why_held
from clawd.ledger import changes, chats, contexts, deliveries, groups, held, inbound, questions
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.inbound import Accepted
from clawd.model import Incoming, Part, Receipt
from clawd.people.bindings import Place
from clawd.people.door import Admits, Admitted
from clawd.signals import News, Signals
from clawd.tasks import Tasks
from clawd.trust import Role, at_least, origin_of

log = logging.getLogger(__name__)

DEFECT = "That could not be taken in, by a defect of clawd; its log says more."
_MERGED = "Many messages wait already; this one will be answered together with the last of them."
_IGNORED = Receipt(None, "ignored", None, None)


class _NotOurs(Exception):
    """A button that we did not put there, or that is not for whoever pressed it: nothing of it is kept."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a transaction made of a message: `interrupted` is the live turn that is to stop for it, `told` what its
    sender is to know, which is in the outbox already but for the terminal's."""

    accepted: Accepted
    row: Row
    reason: str | None = None
    interrupted: Row | None = None
    told: str | None = None


class Intake:
    """Implements `channel.Inbox`, but for the cursor's own calls. `presses` are buttons by the word before the first
    colon of their value; `noted` is told that the recorder has something to note."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        clock: Clock,
        signals: Signals,
        tasks: Tasks,
        door: Admits,
        commands: Mapping[str, Command],
        context: CommandContext,
        wake: Callable[[str], None],
        deliver: Callable[[Address], None],
        limits: Callable[[str], ChannelLimits],
        rules: Callable[[str], Rules],
        attachments: Attachments,
        stale_hours: Callable[[str], float] = lambda channel: 24.0,
        presses: Mapping[str, Press] | None = None,
        noted: Callable[[], None] = lambda: None,
    ) -> None:
        self._ledger, self._clock, self._signals, self._door = ledger, clock, signals, door
        self._commands, self._context, self._presses = commands, context, presses or {}
        self._wake, self._deliver, self._limits, self._rules = wake, deliver, limits, rules
        self._stale_hours, self._noted = stale_hours, noted
        self._rates = Rates(clock)
        self._waiting = Waiting(
            ledger=ledger,
            clock=clock,
            tasks=tasks,
            rates=self._rates,
            attachments=attachments,
            rules=rules,
            stale_hours=stale_hours,
            go_on=self._go_on,
            tell=self._tell,
            deliver=deliver,
        )
        self.closed = False

    async def receive(self, incoming: Incoming, cursor: str | None = None) -> Receipt:
        """Take a message in. Raises StorageError when it cannot be kept; at the terminal alone, UsageError for what
        cannot be a message: elsewhere its sender is told, and the platform is read on."""
        if self.closed:
            raise Ending("clawd is ending; send it again when it runs")
        terminal = incoming.channel == "terminal"
        if not terminal:
            named = decision.storable(incoming)
            incoming = await self._ledger.do(lambda tx: _by_first_name(tx, named))
        try:
            admitted = await self._door.admit(incoming)
        except (ClawdError, OSError):
            raise
        except Exception:  # a message that is asked for again and again would be the last of its channel
            if terminal:
                raise
            log.exception("whose message it is could not be told, of %s", incoming.channel)
            admitted = Admitted(Role.NONE, told=DEFECT if incoming.direct else None)
        if admitted.place is None:
            await self._keep(incoming.channel, cursor)
            return Receipt(None, "refused", None, None, admitted.told)
        try:
            return await self._admit(incoming, admitted, admitted.place, cursor)
        except StorageError:
            raise
        except Exception as error:  # whatever a message holds: the next ones must come through
            if terminal:
                raise
            if not isinstance(error, ClawdError):
                log.exception("a message of %s could not be taken in", incoming.channel)
            why = str(error) if isinstance(error, ClawdError) else DEFECT
            return await self._refuse(incoming, admitted, why, cursor)

    async def _admit(self, incoming: Incoming, admitted: Admitted, place: Place, cursor: str | None) -> Receipt:
        stop = parse("".join(incoming.texts[:1])) == ("stop", "")
        if not stop:  # the turn that fills the disk can be stopped all the same
            self._ledger.check_room()
        with anyio.CancelScope(shield=True):  # what is durable is carried on, also when its sender goes away meanwhile
            if incoming.kind in ("edit", "delete"):
                return await self._change(incoming, admitted, cursor)
            if incoming.kind == "button":
                return await self._press(incoming, admitted, place, cursor)
            return await self._take(incoming, admitted, place, cursor)
        raise AssertionError("a shielded scope swallows nothing")

    # ── messages and commands ──

    async def _take(self, incoming: Incoming, admitted: Admitted, place: Place, cursor: str | None) -> Receipt:
        role, rules, now = admitted.role, self._rules(place.group), self._clock.now()
        command = decision.command_of(incoming, self._commands)
        incoming = replace(incoming, kind="message" if command is None else "command")
        ours = decision.is_for_us(incoming, rules, command is not None)
        late = decision.is_late(incoming.at, now, self._stale_hours(incoming.channel))
        late = late and incoming.channel != "terminal"
        if not ours:
            ours = await self._ledger.do(lambda tx: _is_choice(tx, incoming, role, place))
        if not ours and (late or not (rules.listen or incoming.album)):
            await self._keep(incoming.channel, cursor)
            return _IGNORED
        try:
            incoming = decision.checked(incoming)
        except UsageError:
            if ours:
                raise
            await self._keep(incoming.channel, cursor)
            return _IGNORED
        wait = 0.0
        if ours and not late and command is None and not at_least(role, Role.ADMIN):
            known, mates = await self._ledger.do(lambda tx: (inbound.known(tx, incoming), held.has_album(tx, incoming)))
            wait = 0.0 if known or mates else self._waiting.wait(incoming.sender)
        reason = why_held(incoming, ours, wait)
        told = admitted.told
        if wait and not self._rates.is_told(incoming.sender, wait):
            told = f"That is more than {RATE_MESSAGES} messages a minute; this one is taken in {wait:.0f} s."
            told += " So is what follows: it is kept, and taken by and by."
        stamp = rfc3339(now)

        def accept(tx: Transaction) -> _Taken:
            self._kept(tx, incoming.channel, cursor)
            session = groups.open_session(tx, place.base, place.group, stamp)
            parts = decision.parts_of(incoming, role, inbound.is_ours(tx, incoming))
            if reason == held.LISTENING:
                parts += [not_fetched(each.name) for each in incoming.attachments]
            accepted = inbound.accept(
                tx,
                incoming,
                group=place.group,
                session=session.id,
                role=role,
                parts=parts if command is None else parts[: len(incoming.texts)],
                now=stamp,
                held=held.OLD if late else reason,
                person=admitted.person,
            )
            row = inbound.get(tx, accepted.seq)
            if not accepted.fresh:
                return _Taken(accepted, row)
            chats.met(tx, incoming, admitted.person, stamp)
            if late:
                tx.move("inbound", accepted.seq, "expire", reason=held.OLD)
                return _Taken(replace(accepted, state="stale"), row, held.OLD)
            if reason == held.LISTENING:
                held.bound_lines(tx, accepted.seq)
            shut = why_shut(contexts.find(tx, session.id)) if accepted.turn is not None else None
            if shut:
                tx.execute("UPDATE inbound SET told = 1 WHERE seq = ?", accepted.seq)
            said = told or shut or (_MERGED if accepted.merged else None)
            if said and incoming.channel != "terminal":
                self._tell(tx, row, said, stamp)
            return _Taken(accepted, row, reason, interrupted(tx, accepted, rules.followups, stamp), said)

        taken = await self._ledger.do(accept)
        accepted, row = taken.accepted, taken.row
        said = taken.told if incoming.channel == "terminal" else None
        receipt = Receipt(accepted.seq, accepted.state, accepted.session, accepted.turn, said, accepted.fresh)
        if not accepted.fresh:
            return receipt
        faults.passing("received")
        self._news(row, accepted.state)
        if taken.told and not said:
            self._deliver(Address.of(row))
        if taken.reason is not None:
            self._waiting.begin(row, taken.reason)
        elif command is not None:
            await self.carry_out(accepted.seq)
        else:
            self._go_on(place.group, taken.interrupted)
        return receipt

    # ── edits, deletions, buttons ──

    async def _change(self, incoming: Incoming, admitted: Admitted, cursor: str | None) -> Receipt:
        now = rfc3339(self._clock.now())

        def change(tx: Transaction) -> tuple[changes.Change, Row | None]:
            self._kept(tx, incoming.channel, cursor)
            if incoming.kind == "delete":
                return changes.delete(tx, incoming, now)
            try:
                said = decision.checked(replace(incoming, said=(), attachments=()))
            except UsageError:
                return "ignored", None
            typed = [Part("typed", origin_of(admitted.role), text) for text in said.texts]
            return changes.edit(tx, said, admitted.role, typed, now, admitted.person)

        what, row = await self._ledger.do(change)
        if what == "ignored" or row is None:
            return _IGNORED
        if what == "noted":
            self._noted()
        elif what == "steers":
            self._wake(row["grp"])
        elif what == "withdrawn":
            self._news(row, "withdrawn")
        return Receipt(row["seq"], what, row["session"], row["turn"])

    async def _press(self, incoming: Incoming, admitted: Admitted, place: Place, cursor: str | None) -> Receipt:
        now = rfc3339(self._clock.now())
        press = self._presses.get(incoming.value.partition(":")[0])
        answers = incoming.value.startswith("answer:")

        def act(tx: Transaction) -> tuple[Accepted, Row, Done | None]:
            if old := inbound.known(tx, incoming):
                return old, inbound.get(tx, old.seq), None
            if not (press or answers) or not inbound.is_ours_to_press(tx, incoming):
                raise _NotOurs
            session = groups.open_session(tx, place.base, place.group, now)
            what = {"group": place.group, "session": session.id, "role": admitted.role, "person": admitted.person}
            seq = inbound.insert(tx, incoming, parts=[], now=now, **what)  # type: ignore[arg-type]
            row = inbound.get(tx, seq)
            done = inbound.choose(tx, row, now) if press is None else press(tx, row, now)
            if done is None:
                raise _NotOurs
            self._kept(tx, incoming.channel, cursor)
            if isinstance(done, Accepted):
                return done, inbound.get(tx, seq), None
            if isinstance(done, str):
                done = Done(done)
            inbound.answer_command(tx, seq, done.reply, now, self._limits(incoming.channel))
            return Accepted(seq, "answered", session.id, None), row, done

        try:
            accepted, row, done = await self._ledger.do(act)
        except _NotOurs:
            log.warning(
                "a button that is not ours, or not its sender's, was pressed", extra={"sender": incoming.sender}
            )
            await self._keep(incoming.channel, cursor)
            return _IGNORED
        if not accepted.fresh:
            await self._keep(incoming.channel, cursor)
        elif accepted.turn is not None:
            self._go_on(place.group, None)
        elif done is not None:
            if done.after is not None:
                done.after()
            self._deliver(Address.of(row))
        return Receipt(accepted.seq, accepted.state, accepted.session, accepted.turn, None, accepted.fresh)

    # ── what was accepted ──

    async def carry_out_open(self) -> None:
        """After a restart, before any turn goes on: a `/stop` that was accepted holds."""
        for seq in await self._ledger.do(inbound.open_commands):
            try:
                await self.carry_out(seq)
            except Exception:
                log.exception("command %s could not be carried out", seq)

    async def recover(self) -> None:
        """After a restart: what was held waits for its time, its album or its files again."""
        await self._waiting.recover()

    async def carry_out(self, seq: int) -> None:
        """Do what an accepted command says and answer it; both in one transaction, so that it is done once."""
        row = await self._ledger.do(lambda tx: inbound.get(tx, seq))
        parsed = parse(str(json.loads(row["parts"])[0]["text"]))
        assert parsed is not None
        word, rest = parsed
        command = self._commands.get(word)
        now, limits = rfc3339(self._clock.now()), self._limits(row["channel"])
        after: Callable[[], None] | None = None
        file: tuple[str, str] | None = None
        if command is None:
            reply = f"There is no command /{word}. /help lists them."
        elif not at_least(Role(row["role"]), command.needs):
            reply = f"/{word} is for the {command.needs} alone."
        elif command.before is not None:
            try:
                said = await command.before(self._context, row, rest)
                reply, file = (said.reply, (said.blob, said.name)) if isinstance(said, Filed) else (said, None)
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
            return inbound.answer_command(tx, seq, words, now, limits, file)

        if await self._ledger.insist(act):
            if after is not None:
                after()
            self._deliver(Address.of(row))
        self._news(row, "answered")

    def _go_on(self, group: str, interrupted: Row | None) -> None:
        """A message has its turn, and what was to stop for it is durable: both are told."""
        self._wake(group)
        if interrupted is not None:
            self._context.stopped([interrupted["id"]], [])
            self._deliver(Address.of(interrupted))

    def _news(self, row: Row, state: str) -> None:
        data = {"message": row["seq"], "state": state}
        self._signals.emit(News("message", row["grp"], row["session"], data))

    # ── the chat is told, and where its platform was read up to ──

    def _tell(self, tx: Transaction, row: Row, text: str, now: str) -> None:
        deliveries.enqueue(
            tx,
            Address.of(row),
            session=row["session"],
            kind="notice",
            text=text,
            now=now,
            limits=self._limits(row["channel"]),
        )

    async def _refuse(self, incoming: Incoming, admitted: Admitted, why: str, cursor: str | None) -> Receipt:
        """It is not taken in, for it never could be; who floods us with such is told no more."""
        quiet = not at_least(admitted.role, Role.ADMIN) and self._rates.wait(incoming.sender) > 0
        quiet = quiet or admitted.role is Role.NONE
        to = Address(incoming.channel, incoming.account, incoming.chat, incoming.thread)
        base, now = admitted.place.base if admitted.place else "", rfc3339(self._clock.now())

        def refuse(tx: Transaction) -> None:
            self._kept(tx, incoming.channel, cursor)
            if not quiet:
                limits = self._limits(incoming.channel)
                deliveries.enqueue(tx, to, session=base, kind="notice", text=why, now=now, limits=limits)

        await self._ledger.do(refuse)
        self._deliver(to)
        return Receipt(None, "refused", None, None)

    async def _keep(self, channel: str, cursor: str | None) -> None:
        if cursor is not None:
            await self._ledger.do(lambda tx: self._kept(tx, channel, cursor))

    def _kept(self, tx: Transaction, channel: str, cursor: str | None) -> None:
        if cursor is not None:
            chats.keep(tx, channel, cursor, rfc3339(self._clock.now()))


def _by_first_name(tx: Transaction, incoming: Incoming) -> Incoming:
    """A chat that moved keeps the id that it was known by first."""
    return replace(incoming, chat=chats.first_of(tx, incoming.channel, incoming.account, incoming.chat))


def _is_choice(tx: Transaction, incoming: Incoming, role: Role, place: Place) -> bool:
    """Whether it is one of the choices of a question that is open in its chat: then it is for us, mention or not."""
    session = groups.session(tx, place.base)
    if session is None or incoming.kind != "message" or not incoming.texts:
        return False
    return questions.is_choice(tx, session.id, incoming, role)
