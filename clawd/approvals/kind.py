"""The seam for what can be approved: a kind of effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from clawd.ledger.db import Row, Transaction

DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Words:
    """What the person is told, the daemon's words first: `title` completes "may I …", `lines` are sentences. What
    others wrote comes last: `quoted`, whole, called `called`. `blob` is a file that it is about, (sha256, name)."""

    title: str
    lines: Sequence[str] = ()
    called: str = ""
    quoted: str = ""
    blob: tuple[str, str] | None = None


class Kind:
    """A kind of effect. `Effect` is a frozen dataclass of JSON values that says what will be done, whole: nothing else
    is kept of it. Its functions run inside the ledger's transaction, and may read the person's files; `edit` runs
    between two of them."""

    name: ClassVar[str]
    Effect: ClassVar[type[Any]]
    again: ClassVar[timedelta | None] = DAY
    """After a no, or no answer, the same thing is asked again after so long; None: never."""
    most: ClassVar[int] = 5
    """So many may be open, of one group where the effect has one."""
    edits: ClassVar[bool] = False
    """Whether files are edited: then `edit` is called."""
    waits: ClassVar[bool] = False
    """Whether something waits for a no as well: then `over` is called."""
    undoes: ClassVar[bool] = False
    """Whether something is taken back after a no, or no answer: then `undo` is called."""

    def subject(self, effect: Any) -> str:
        """What it is about: the same thing is asked once."""
        raise NotImplementedError

    def group(self, effect: Any) -> str | None:
        """The group that it concerns, as the ledger knows it."""
        return None

    def words(self, tx: Transaction, effect: Any) -> Words:
        raise NotImplementedError

    def reminder(self, effect: Any) -> str:
        """What the agent that asked is told that it was, where an agent asks."""
        return ""

    def rests_on(self, tx: Transaction, effect: Any) -> Any:
        """What must still be so when it is done: a JSON value, hashed with the effect. Raises ClawdError."""
        return None

    def refuse(self, tx: Transaction, effect: Any) -> str | None:
        """Why it cannot be done as things are now; None when it can."""
        return None

    def edit(self, effect: Any) -> None:
        """Edit files, in a thread, between the commits of `executing` and `done`. It may be called again after a crash,
        and must come to the same. Raises ClawdError or OSError."""

    def undo(self, effect: Any) -> None:
        """Take back what was made for the question, in a thread, once the no is durable. A crash may leave it. Raises
        OSError."""

    def execute(self, tx: Transaction, effect: Any, now: str) -> str:
        """Do what the ledger holds of it, in the transaction in which it becomes `done`. Gives what was done, in
        words. Raises ClawdError."""
        raise NotImplementedError

    def after(self, effect: Any) -> None:
        """It is done, durably: whoever waits for it is told. In the event loop."""

    def closed(self, tx: Transaction, effect: Any, row: Row, now: str) -> None:
        """The approval `row` came to nothing (denied, expired, void, failed), in the transaction that says so."""

    def over(self, effect: Any) -> None:
        """The same, durably. In the event loop."""
