"""What a command is, and the arguments that several of them take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as `argparse` takes it."""

    names: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """`does` is `module:function` beneath `clawd.cli`, called with (options, home) and giving the exit code.

    `failure` replaces the exit code of our own failures; `home` says whether the home must exist already.
    """

    words: tuple[str, ...]
    help: str
    does: str = ""
    arguments: tuple[Argument, ...] = ()
    failure: int | None = None
    home: bool = True


def argument(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


def seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def number(text: str) -> int:
    number = int(text)
    if not 0 < number < 1 << 63:
        raise ValueError
    return number


def dollars(text: str) -> float:
    dollars = float(text)
    if not 0 < dollars < 1e9:
        raise ValueError
    return dollars


# argparse names them in its sentences
seconds.__name__, number.__name__, dollars.__name__ = "number of seconds", "number", "number of dollars"

GROUP = argument("group", metavar="GROUP", help="its name (clawd groups list)")
OF_GROUP = argument("--group", metavar="G", help="of this group alone")
IN_GROUP = argument("--group", metavar="G", default="main", help="the group (default: main)")
