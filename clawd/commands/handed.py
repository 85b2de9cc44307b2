"""What a program hands to the daemon beside the control socket, because it does not fit into one of its lines: a
private file in `state/injected/`, whose name is passed. The daemon reads it beneath that directory only, and removes
it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from clawd.config.home import Home
from clawd.control import wire
from clawd.errors import UnsafePath, UsageError
from clawd.files import open_beneath
from clawd.ids import new_id

MOST_BYTES = 64 << 20
LEFT_S = 3600.0  # a file that is older belongs to nobody who still waits
_FOLDER = "injected"
_NAME = re.compile(r"[\w-]{16}\.jsonl", re.ASCII)
_LISTS = ("pieces", "blocks", "entries")
_ROOM = 4096  # of a line, for what is around the params

Params = dict[str, Any]


@contextmanager
def handed(home: Home, params: Params) -> Iterator[Params]:
    """The params as they can be sent: themselves where they fit into a line, else the name of a file that is there as
    long as this is open. What is a list has a line for each, so that nobody needs long for any of them. Raises
    UsageError where they are too large."""
    if len(wire.encode(params)) <= wire.LIMIT - _ROOM:
        yield params
        return
    of = next((name for name in _LISTS if isinstance(params.get(name), list)), "")
    rest = {name: value for name, value in params.items() if name != of}
    lines = [wire.encode(each) for each in (rest | {"lines": of}, *params.get(of, ()))]
    if (size := sum(map(len, lines))) > MOST_BYTES:
        raise UsageError(
            f"that is {size / (1 << 20):.1f} MB; at most {MOST_BYTES >> 20} MB can be put in at a time",
            hint="put it in in pieces",
        )
    directory = home.state / _FOLDER
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{new_id()}.jsonl"
    try:
        with open(path, "xb", opener=_private) as file:
            file.writelines(lines)
        yield {"file": path.name}
    finally:
        path.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def taken(home: Home, params: Mapping[str, Any]) -> Params:
    """The params that were meant, out of their file where they are in one. Raises UsageError for what is no such file.
    It may take a while."""
    name = params.get("file")
    if name is None:
        return dict(params)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError("the name of the file is none that was handed over")
    try:
        descriptor = open_beneath(home.state, f"{_FOLDER}/{name}")
    except (OSError, UnsafePath) as error:
        raise UsageError(f"the file {name} cannot be read; put it in again") from error
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UsageError(f"the file {name} has more than {MOST_BYTES >> 20} MB")
    first, *rows = [wire.decode(line) for line in data.split(b"\n") if line] or [{}]
    of = first.pop("lines", "")
    return first | ({of: rows} if of in _LISTS else {})


def drop(home: Home, params: Mapping[str, Any]) -> None:
    """What was handed over is done with."""
    if isinstance(name := params.get("file"), str) and _NAME.fullmatch(name):
        with suppress(OSError):
            (home.state / _FOLDER / name).unlink()


def clear(home: Home) -> None:
    """Remove what programs left that were killed."""
    before = time.time() - LEFT_S
    with suppress(OSError):
        for path in (home.state / _FOLDER).iterdir():
            with suppress(OSError):
                if path.lstat().st_mtime < before:
                    path.unlink()
