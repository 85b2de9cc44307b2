"""Where a PythonClaw home is, and whether PythonClaw runs on it. What lies in it is read as any stranger's, by
`foreign.place.Place`.

    pythonclaw.json · pythonclaw.pid · daemon.meta.json · context/{sessions, memory, groups/<id>/memory, skills, cron,
    persona, soul, tools, knowledge, files, compaction, logs}/

Source: pythonclaw 0.7.2, config.py, init.py, daemon.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from clawd.errors import UnsafePath, UsageError
from clawd.files import read_beneath

CONTEXT, CONFIG, PID, META = "context", "pythonclaw.json", "pythonclaw.pid", "daemon.meta.json"
_SAID = 3  # of many sentences of one kind


def found(home: Path) -> Path:
    """The home that a person means: this folder, or `.pythonclaw` in it. Raises UsageError."""
    for place in (home, home / ".pythonclaw"):
        with suppress(OSError):
            if (place / CONFIG).is_file() or (place / CONTEXT).is_dir():
                return place.absolute()
    raise UsageError(
        f"{home} is no home of PythonClaw: it has neither {CONFIG} nor {CONTEXT}/",
        hint="name the folder that they lie in, like ~/.pythonclaw",
    )


def daemon(root: Path) -> int | None:
    """The process id of the PythonClaw that runs on this home, None where none does.

    PythonClaw keeps that file in ~/.pythonclaw, whatever its home is; what its home is, it says beside it."""
    for place in dict.fromkeys((root, Path.home() / ".pythonclaw")):
        with suppress(OSError, ValueError, UnsafePath, RecursionError):
            pid = int(read_beneath(place, PID, 32))
            if pid > 1 and _lives(pid) and (place == root or _same(root, place)):
                return pid
    return None


def _same(root: Path, place: Path) -> bool:
    said = json.loads(read_beneath(place, META, 1 << 16))
    return isinstance(said, dict) and isinstance(said.get("cwd"), str) and Path(said["cwd"]).resolve() == root.resolve()


def _lives(pid: int) -> bool:
    """Whether it is a PythonClaw: the number may be another program's since, or ours."""
    if pid == os.getpid():
        return False
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return any(word.rpartition(b"/")[2] == b"pythonclaw" for word in words)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def lines(problems: list[str]) -> Iterator[str]:
    """The first of many sentences, and how many more there are."""
    yield from problems[:_SAID]
    if len(problems) > _SAID:
        yield f"and {len(problems) - _SAID} more of the kind"
