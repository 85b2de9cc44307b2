"""What a command is, and the arguments that several of them take."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
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
    return _above_0(text, float, float("inf"), "number of seconds")


def number(text: str) -> int:
    return int(_above_0(text, int, 1 << 63, "whole number"))


def dollars(text: str) -> float:
    return _above_0(text, float, 1e9, "number of dollars")


def _above_0(text: str, read: Callable[[str], float], most: float, called: str) -> float:
    """Raises ArgumentTypeError, whose words argparse says."""
    try:
        value = read(text)
    except ValueError:
        value = 0
    if not 0 < value < most:
        raise ArgumentTypeError(f"{text!a} is no {called} above 0")
    return value


GROUP = argument("group", metavar="GROUP", help="its name (clawd groups list)")
OF_GROUP = argument("--group", metavar="G", help="of this group alone")
IN_GROUP = argument("--group", metavar="G", default="main", help="the group (default: main)")
