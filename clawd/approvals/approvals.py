"""Asking the owner, taking their word, and doing what they said yes to: once, also when a crash comes between.

`open → approved → executing → done` or `failed` are commits. What was approved is carried out by a task, which the next
start begins again: the ledger's part of an effect is done in the transaction that ends it, edits of files come to the
same when they are made twice. The hash and the rights are checked in the transaction that begins to execute; without
files to edit that is the one that does it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
from anyio import to_thread

from clawd import faults
from clawd.approvals import words as wording
from clawd.approvals.kind import Kind, Words
from clawd.channel import ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.errors import ClawdError, StorageError, UsageError
from clawd.files import Blobs
from clawd.ledger import approvals, deliveries, turns
from clawd.ledger.approvals import Verdict
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.deadlines import Deadlines
from clawd.ledger.deliveries import TERMINAL, Address, binding_of
from clawd.model import Button, Part
from clawd.text import made_visible, split, units
from clawd.trust import Origin, Role

log = logging.getLogger(__name__)

WAITS = timedelta(hours=24)
BY_ITSELF = "by the turn itself"
_NUMBER = re.compile(r"#?([1-9][0-9]{5})")
After = Callable[[], None]
_BUTTONS: tuple[tuple[str, Verdict], ...] = (("Approve", "approve"), ("Deny", "deny"))
# What becomes of an approval, in the words of its message.
_SAID = {
    "done": "Done",
    "failed": "This could not be done",
    "denied": "Denied: nothing was done",
    "expired": "Nobody answered in time: nothing was done",
    "void": "Nothing was done",
}


_ACTIVE = re.compile(r"[*_~`|\[<\\#]")  # of Markdown: what takes itself away, or what it stands around


def _room(limits: ChannelLimits) -> int:
    """UTF-16 units of one message, also when it must be marked as a repeat."""
    return limits.text - len(deliveries.REPEAT)


class Owners(Protocol):
    """Who decides, as people.toml has it now, and where they are asked. All may be called in the ledger's thread."""

    def where(self, tx: Transaction, but_not: str | None = None, here: Address | None = None) -> tuple[str, Address]:
        """An owner's name, and their direct chat `here`, else their newest on a channel that is live and is not
        `but_not`; else the terminal."""
        ...

    def names(self) -> Sequence[str]:
        """Every owner's."""
        ...

    def name_of(self, channel: str, sender: str) -> str | None:
        """What the owner is called whose account this is; None for anybody else's."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """The approval that was asked for; not `fresh`: it was asked before, and nobody is asked again."""

    number: int
    fresh: bool
    state: str = "open"


class Approvals:
    """`start_soon` begins a task, None where nothing is carried out; `deliver` and `wake` are told which chat, and
    which group, has news. `run` is the timer of what nobody decides; `look_again` tells it of what is new."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        start_soon: Callable[..., None] | None,
        kinds: Mapping[str, Kind],
        owners: Owners,
        *,
        limits: Callable[[str], ChannelLimits],
        deliver: Callable[[Address], None],
        wake: Callable[[str], None],
        blobs: Path,
    ) -> None:
        self._ledger, self._clock, self._start_soon, self._kinds, self._owners = (
            ledger,
            clock,
            start_soon,
            kinds,
            owners,
        )
        self._doing: dict[int, anyio.Event] = {}
        self._limits, self._deliver, self._wake, self._blobs = limits, deliver, wake, Blobs(blobs)
        self._deadlines = Deadlines(ledger, clock, self._expire, self._look_at)
        self.run, self.look_again = self._deadlines.run, self._deadlines.look_again

    # ── asking ──

    async def ask(self, kind: str, effect: Mapping[str, Any], *, but_not: str | None = None) -> Asked:
        """Ask the owner, unless this was asked already. `effect` are the fields of the kind's `Effect`. Raises
        ClawdError where it could not be done anyway, or too much is asked already."""
        asked = await self._ledger.do(lambda tx: self.ask_in(tx, kind, effect, but_not=but_not))
        self.look_again()
        return asked

    def ask_soon(self, kind: str, effect: Mapping[str, Any]) -> None:
        """The same, where nobody waits for it."""
        assert self._start_soon is not None
        self._start_soon(self._ask_anyhow, kind, effect)

    async def _ask_anyhow(self, kind: str, effect: Mapping[str, Any]) -> None:
        try:
            await self.ask(kind, effect)
        except ClawdError as error:
            log.warning("the owner is not asked (%s): %s", kind, error)

    def ask_in(
        self,
        tx: Transaction,
        kind: str,
        effect: Mapping[str, Any],
        *,
        turn: int | None = None,
        but_not: str | None = None,
        here: Address | None = None,
    ) -> Asked:
        """The same as a part of a transaction; call `look_again` when that is durable. `turn` asks for it, and its
        session is told what became of it. It is asked `here`, if that is a direct chat of an owner."""
        of, now = self._kinds[kind], self._clock.now()
        what = of.Effect(**effect)
        subject, group = of.subject(what), of.group(what)
        if old := approvals.lately(tx, kind, subject, None if of.again is None else now - of.again):
            return Asked(old["number"], False, old["state"])
        if refusal := of.refuse(tx, what):
            raise UsageError(refusal)
        if approvals.open_count(tx, kind, group) >= of.most:
            raise UsageError(f"{of.most} questions of this kind wait for the owner already")
        person, at = self._owners.where(tx, but_not, here)
        known = asdict(what)
        hash = approvals.digest(kind, known, of.rests_on(tx, what))
        row = approvals.add(
            tx, kind, known, hash, subject=subject, person=person, at=at, group=group, turn=turn, now=now,
            expires=now + WAITS,
        )  # fmt: skip
        self._show(tx, row, of.words(tx, what), at)
        log.info("approval %s is asked", row["number"], extra={"kind": kind})
        return Asked(row["number"], True)

    def do_in(self, tx: Transaction, kind: str, effect: Mapping[str, Any], *, turn: int) -> None:
        """As a part of a transaction, have done what a turn may do by itself: nobody is asked, and only what fails is
        told. Call `look_again` when that is durable. Raises UsageError where it cannot be done."""
        of, now = self._kinds[kind], self._clock.now()
        what = of.Effect(**effect)
        if refusal := of.refuse(tx, what):
            raise UsageError(refusal)
        known = asdict(what)
        row = approvals.add(
            tx, kind, known, approvals.digest(kind, known, of.rests_on(tx, what)), subject=of.subject(what),
            person="", at=TERMINAL, group=of.group(what), turn=turn, now=now, expires=now + WAITS,
        )  # fmt: skip
        approvals.shown(tx, row["id"], of.words(tx, what).title, None)
        approvals.decide(tx, row, "approve", BY_ITSELF, None, now)

    def void_in(self, tx: Transaction, id: int, why: str) -> None:
        """As a part of a transaction: an open approval is asked no more."""
        tx.move("approval", id, "void", result=why)
        self._end(tx, id)

    def _show(self, tx: Transaction, row: Row, words: Words, at: Address) -> None:
        """Put the message into the outbox. What does not fit into it goes before it, whole, as a file."""
        limits = self._limits(at.channel)
        head = wording.request(row["number"], words, limits.buttons)
        text = whole = wording.whole(head, words)
        say = partial(deliveries.enqueue, tx, at, session=binding_of(at), now=row["made"], limits=limits)
        if words.blob is not None:
            say(kind="file", text="", blob=words.blob[0], name=words.blob[1])
        # Where a client makes Markdown of whatever it is sent, some of it would not be seen.
        if units(whole) > _room(limits) or (limits.markup == "discord" and _ACTIVE.search(words.quoted)):
            text = f"{head}\n\n{words.called} It is in the file above, whole."
            blob = self._blobs.add(f"{words.called}\n\n{made_visible(words.quoted)}\n".encode())
            say(kind="file", text="", blob=blob, name=f"approval-{row['number']}.txt")
        buttons = [Button(label, approvals.value(row, verdict)) for label, verdict in _BUTTONS]
        delivery = say(kind="notice", text=text, buttons=buttons if limits.buttons else ())[-1]
        approvals.shown(tx, row["id"], whole, delivery)

    # ── deciding ──

    def typed(self, tx: Transaction, message: Row, verdict: Verdict, said: str) -> tuple[str, After | None]:
        """`/approve` and `/deny`: what is answered, and what is to be done once that is durable. Raises NotFound."""
        who = self._owners.name_of(message["channel"], message["sender"])
        if who is None or Role(message["role"]) is not Role.OWNER:
            return f"/{verdict} is for the owner alone.", None
        terminal = message["channel"] == "terminal"
        if not terminal and not message["direct"]:
            return f"Say /{verdict} to me in private; here it does nothing.", None
        number = _NUMBER.fullmatch(said)
        if number is None:
            which = f"Say which: /{verdict} and the approval's number, or a memory's id."
            return f"{which} `clawd approvals list` shows the ones, /memory the others.", None
        row = approvals.numbered(tx, int(number[1]))
        return self._decide(tx, row, verdict, f"by {who}, /{verdict}", None if terminal else who)

    def pressed(self, tx: Transaction, message: Row) -> tuple[str, After | None] | None:
        """A press of a button, a message of kind `button`: the same; None for one that does not count."""
        press = approvals.press_of(message["value"] or "")
        who = self._owners.name_of(message["channel"], message["sender"])
        row = tx.one("SELECT * FROM approval WHERE number = ?", press.number) if press is not None else None
        if (
            press is None
            or row is None
            or who is None
            or who != row["person"]
            or Role(message["role"]) is not Role.OWNER
            or not approvals.is_pressed(tx, row, press, message)
        ):
            log.warning("a button was pressed that does not count", extra={"channel": message["channel"]})
            return None
        return self._decide(tx, row, press.verdict, f"by {who}, button", who)

    async def by_hand(self, number: int, verdict: Verdict) -> Row:
        """The command line's word: who reaches the home is the owner. Gives what became of it. Raises NotFound, and
        ClawdError where it is decided already."""

        def decide(tx: Transaction) -> tuple[int, After]:
            row = approvals.numbered(tx, number)
            said, after = self._decide(tx, row, verdict, "on the command line", None)
            if after is None:
                raise ClawdError(said)
            return row["id"], after

        id, after = await self._ledger.do(decide)
        after()
        if (doing := self._doing.get(id)) is not None:
            await doing.wait()
        return await self._ledger.do(lambda tx: approvals.get(tx, id))

    def _decide(
        self, tx: Transaction, row: Row, verdict: Verdict, how: str, person: str | None
    ) -> tuple[str, After | None]:
        """Once: whoever comes second is told so."""
        if row["state"] != "open":
            return approvals.became(row), None
        if (state := approvals.decide(tx, row, verdict, how, person, self._clock.now())) == "approved":
            return f"Approved: {row['number']}.", partial(self._begin, row["id"])
        self._end(tx, row["id"])
        return f"{_SAID[state]} ({row['number']}).", partial(self._announce, row)

    def _expire(self, tx: Transaction, now: datetime) -> tuple[list[Row], datetime | None]:
        """What nobody decided in time ends. Gives it, with what is still to be sent, and when the next one ends."""
        over, following = approvals.over(tx, now)
        for row in over:
            tx.move("approval", row["id"], "expire", decided=rfc3339(now))
            self._end(tx, row["id"])
        return over + approvals.unsent(tx) + approvals.decided(tx, BY_ITSELF), following

    def _look_at(self, row: Row) -> None:
        """The timer found it: what a turn has done by itself is begun, of anything else its chat has news."""
        if row["state"] == "approved":
            self._begin(row["id"])
        else:
            self._announce(row)

    # ── doing ──

    async def recover(self) -> None:
        """After a restart: go on with what was said yes to."""
        for id in await self._ledger.insist(approvals.unfinished):
            self._begin(id)

    def _begin(self, id: int) -> None:
        if self._start_soon is None or id in self._doing:
            return
        self._doing[id] = anyio.Event()
        self._start_soon(self._carry_out, id, name=f"approval {id}")

    async def _carry_out(self, id: int) -> None:
        try:
            await self._execute(id)
        finally:
            self._doing.pop(id).set()

    async def _execute(self, id: int) -> None:
        faults.passing("approved")
        row = await self._ledger.insist(lambda tx: approvals.get(tx, id))
        if row["state"] not in ("approved", "executing"):  # it was begun twice, and is at its end
            return
        kind = effect = None
        try:
            kind, effect = self._known(row)
            if kind.edits:
                if not await self._ledger.insist(lambda tx: self._starts(tx, id)):
                    self._announce(row)
                    return
                faults.passing("executing")
                await to_thread.run_sync(kind.edit, effect)
                faults.passing("edited")
            done = await self._ledger.insist(lambda tx: self._finish(tx, id))
            faults.passing("executed")
        except faults.InjectedFault:
            raise
        except Exception as error:
            if isinstance(error, StorageError) and not self._ledger.patient:
                raise  # we are ending: the next start goes on
            expected = isinstance(error, ClawdError | OSError)
            log.warning("approval %s failed: %s", row["number"], error, exc_info=not expected)
            done, why = False, str(error) if expected else f"a defect of clawd ({type(error).__name__}); see its log"
            await self._ledger.insist(lambda tx: self._fail(tx, id, why))
        self._announce(row)
        if done and kind is not None:
            kind.after(effect)

    def _known(self, row: Row) -> tuple[Kind, Any]:
        """Raises ClawdError for what this clawd cannot do."""
        try:
            kind = self._kinds[row["kind"]]
            return kind, kind.Effect(**json.loads(row["effect"]))
        except (KeyError, TypeError):
            raise ClawdError(f"this clawd does not know what {row['kind']!r} is") from None

    def _starts(self, tx: Transaction, id: int) -> bool:
        """Whether what was approved is executed from here on, or was already when a crash came: if it is still what the
        owner was asked, and who said yes still an owner. Else it is void."""
        row = approvals.get(tx, id)
        if row["state"] == "executing":
            return True
        kind, effect = self._known(row)
        why = kind.refuse(tx, effect)
        if approvals.digest(row["kind"], asdict(effect), kind.rests_on(tx, effect)) != row["hash"]:
            why = "what this rests on has changed since you were asked"
        if row["decider"] is not None and row["decider"] not in self._owners.names():
            why = "who said yes is no owner any more"
        if why is not None:
            tx.move("approval", id, "void", result=why)
            self._end(tx, id)
            return False
        tx.move("approval", id, "begin")
        return True

    def _finish(self, tx: Transaction, id: int) -> bool:
        if not self._starts(tx, id):
            return False
        kind, effect = self._known(approvals.get(tx, id))
        result = kind.execute(tx, effect, rfc3339(self._clock.now()))
        tx.move("approval", id, "finish", result=result)
        self._end(tx, id)
        return True

    def _fail(self, tx: Transaction, id: int, why: str) -> None:
        if approvals.get(tx, id)["state"] == "approved":
            tx.move("approval", id, "begin")
        tx.move("approval", id, "fail", result=why)
        self._end(tx, id)

    # ── telling ──

    def _end(self, tx: Transaction, id: int) -> None:
        """Say what became of an approval: in its message, which loses its buttons; beside it where that could be
        overlooked; and to the agent that asked."""
        row, now = approvals.get(tx, id), rfc3339(self._clock.now())
        if row["state"] != "done" and row["kind"] in self._kinds:
            kind, effect = self._known(row)
            kind.closed(tx, effect, row, now)
        by_itself = (row["decided"] or "").endswith(BY_ITSELF)
        if by_itself and row["state"] == "done":
            return
        said = f"{_SAID[row['state']]}: {row['result']}" if row["result"] else _SAID[row["state"]]
        at = Address(row["channel"], row["account"], row["chat"], "")
        limits = self._limits(at.channel)
        say = partial(
            deliveries.enqueue, tx, at, session=binding_of(at), kind="notice", now=now, limits=limits
        )  # fmt: skip
        if limits.edits and row["delivery"] is not None:
            text = split(wording.outcome(said, row["words"]), _room(limits))[0]
            say(text=text, edits=row["delivery"])
        by_button = (row["decided"] or "").endswith("button")
        if not limits.edits or row["state"] in ("failed", "void") or (row["state"] == "done" and not by_button):
            say(text=f"Approval {row['number']}. {said}.")
        if row["turn"] is not None:
            self._remind(tx, row, said, now)

    def _remind(self, tx: Transaction, row: Row, said: str, now: str) -> None:
        """Wake the session whose turn asked; that acts for nobody above that turn, and is trusted no further."""
        turn, by_itself = turns.get(tx, row["turn"]), (row["decided"] or "").endswith(BY_ITSELF)
        authority, taint = Role(turn["authority"]), turn["taint"]
        try:
            kind, effect = self._known(row)
            asked = kind.reminder(effect)
        except ClawdError:
            asked = "You asked for what this clawd does not know."
        part = Part("quoted", Origin.SYSTEM, f"{asked} {'' if by_itself else 'The owner was asked. '}{said}.", "clawd")
        wake = tx.insert(
            "wake",
            kind="approval",
            key=f"approval:{row['id']}",
            authority=authority,
            trust=taint,
            origin=Origin.SYSTEM,
            state="pending",
            text=json.dumps([asdict(part)], ensure_ascii=False),
        )
        queued = turns.queue(tx, turn, authority, taint, now)
        tx.execute("INSERT INTO turn_wake (turn, wake) VALUES (?, ?)", queued, wake)

    def _announce(self, row: Row) -> None:
        """Its chat, and the group whose turn asked, have news."""
        self._deliver(Address(row["channel"], row["account"], row["chat"], ""))
        if row["grp"] is not None and row["turn"] is not None:
            self._wake(row["grp"])
        if row["kind"] in self._kinds and self._start_soon is not None:
            if self._kinds[row["kind"]].undoes:
                self._start_soon(self._undo, row["id"])
            if self._kinds[row["kind"]].waits:
                self._start_soon(self._over, row["id"])

    async def _over(self, id: int) -> None:
        """Whoever waits for what came to nothing is told."""
        row = await self._ledger.do(lambda tx: approvals.get(tx, id))
        if row["state"] in ("denied", "expired", "void", "failed"):
            kind, effect = self._known(row)
            kind.over(effect)

    async def _undo(self, id: int) -> None:
        """What was made for a question that got no yes is taken back."""
        row = await self._ledger.do(lambda tx: approvals.get(tx, id))
        if row["state"] in ("denied", "expired"):
            kind, effect = self._known(row)
            await to_thread.run_sync(kind.undo, effect)
