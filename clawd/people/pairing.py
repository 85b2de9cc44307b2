"""Pairing codes: whoever sends one in a direct message gets its person's role. They live in memory alone, ten minutes,
and each is used once.

How often may be tried, so that nobody guesses a code, and no stranger burns the owner's:

- A sender has five wrong tries in ten minutes, at all codes together. After them nothing that they send is compared,
  right or wrong, until ten minutes have passed since the last: they are told once.
- So one account wears no code out. A code is void once twenty-five wrong tries were made while it lived, by whomever,
  which takes five accounts; the owner is told. A guess among so many hits one in 3·10¹⁰.
- A right code from an account of somebody else, who should not have seen it, is void at once, and the owner is told.

A message may come twice: a used code is known to whoever used it until it ends, and to nobody else.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta

from clawd.clock import Clock
from clawd.config.values import RoleName
from clawd.errors import ClawdError
from clawd.ids import folded

ALPHABET = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"  # nothing that looks like something else
LENGTH = 8
NONE = "-"
LIFE_S = 600.0
TRIES = 5  # of one sender
MOST_WRONG = 25  # of all senders, at one code
MOST_CODES = 20  # that live at one time
_MOST_SENDERS = 1000
_SHAPE = re.compile(f"[{ALPHABET}]{{{LENGTH}}}")
_COMMAND = re.compile(r"/pair(?:@\S+)?(?:\s+(.*))?", re.DOTALL)


@dataclass(slots=True)
class Code:
    """For an account of `person`, who has `role`, or will have it."""

    text: str
    person: str
    role: RoleName
    ends: float  # monotonic
    wrong: int = 0
    by: str | None = None  # the sender who used it


@dataclass(frozen=True, slots=True)
class Said:
    """What a message says of pairing. `code` is as we write one, `NONE` for what surely is no code; empty where `/pair`
    stands alone. `command`: it says so with `/pair`."""

    code: str
    command: bool


def said(text: str) -> Said | None:
    """A whole message that is `/pair`, `/pair CODE` or has the form of a code; case, spaces and dashes do not matter.
    None for any other."""
    command = _COMMAND.fullmatch(text.strip())
    rest = (command[1] or "") if command else text
    plain = re.sub(r"[ \t\r\n-]", "", rest[:64]).upper() if rest.isascii() else ""
    code = plain if len(rest) <= 64 and _SHAPE.fullmatch(plain) else NONE if rest else ""
    return Said(code, command is not None) if command or code not in (NONE, "") else None


class Codes:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._live: list[Code] = []
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()  # by sender: how many, and when the last was

    def make(self, person: str, role: RoleName) -> tuple[Code, datetime]:
        """A new code, and when it ends. Raises ClawdError while too many live."""
        self._forget()
        if len(self._live) >= MOST_CODES:
            raise ClawdError(f"{MOST_CODES} pairing codes live already; the first of them ends within ten minutes")
        text = "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))
        code = Code(text, person, role, self._clock.monotonic() + LIFE_S)
        self._live.append(code)
        return code, self._clock.now() + timedelta(seconds=LIFE_S)

    def any(self) -> bool:
        """Whether a code, used or not, has not ended."""
        self._forget()
        return bool(self._live)

    def is_shut_out(self, sender: str) -> bool:
        """Whether a sender has no try left."""
        self._forget()
        return self._wrong.get(sender, (0, 0.0))[0] >= TRIES

    def take(self, text: str, sender: str) -> tuple[Code, bool] | None:
        """The code of this text, and whether it was fresh: with that it is used, by this sender. None is a wrong try,
        and whatever comes of a sender who has none left."""
        if self.is_shut_out(sender):
            return None
        # All are compared, each in constant time.
        same = [code for code in self._live if hmac.compare_digest(code.text.encode(), text.encode())]
        for code in same:
            if code.by in (None, sender):
                fresh, code.by = code.by is None, sender
                return code, fresh
        self._wrong[sender] = (self._wrong.pop(sender, (0, 0.0))[0] + 1, self._clock.monotonic())
        while len(self._wrong) > _MOST_SENDERS:
            self._wrong.popitem(last=False)
        for code in self._live:
            code.wrong += 1
        return None

    def worn(self) -> list[Code]:
        """Codes that were tried too often, and are void from now on."""
        worn = [code for code in self._live if code.wrong >= MOST_WRONG and code.by is None]
        self._live = [code for code in self._live if code.wrong < MOST_WRONG]
        return worn

    def give_back(self, code: Code) -> None:
        """A code that was taken and could not be used."""
        code.by = None

    def drop(self, person: str) -> None:
        """Every code of a person is void."""
        self._live = [code for code in self._live if folded(code.person) != folded(person)]

    def _forget(self) -> None:
        now = self._clock.monotonic()
        self._live = [code for code in self._live if code.ends > now]
        while self._wrong and next(iter(self._wrong.values()))[1] + LIFE_S <= now:  # the last to be wrong stands last
            self._wrong.popitem(last=False)
