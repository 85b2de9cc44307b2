"""A real turn with real processes and files. Only the daemon is missing: what is posted to it is taken and kept."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from agent import tools
from agent.processes import Processes, kill_group
from agent.turn import Place, Turn

TOKEN = "claw-" + "aB3_-" * 8 + "xyz"


class Posted:
    """Where calls to the daemon end up; every host tool answers with its arguments."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def call(self, method: str, target: str, body: dict[str, Any]) -> dict[str, Any]:
        self.bodies.append({"target": target, **body})
        return {"schema": 1, "result": body.get("arguments")}


class Kept(Processes):
    """The same, and it knows all that it ever started."""

    def __init__(self) -> None:
        super().__init__(forwarder=0)
        self.all: list[subprocess.Popen[bytes]] = []

    def start(self, *given: Any, **how: Any) -> subprocess.Popen[bytes]:
        self.all.append(super().start(*given, **how))
        return self.all[-1]

    def finished(self, process: subprocess.Popen[bytes]) -> int:
        code = super().finished(process)
        self.all.remove(process)
        return code


class Bench:
    """A turn in `root/work`, and a short way to call its tools."""

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.work.mkdir()
        self.processes = Kept()
        self.posted = Posted()
        offer = {
            "turn": 7,
            "attempt": 1,
            "wakes": [{"id": 1}],
            "steps": [],
            "context": {},
            "limits": {"tool_s": 30, "output_bytes": 4000},
        }
        place = Place(str(root), TOKEN, "2026-11-29T14:00:00.000+02:00")
        self.turn = Turn(cast(Any, self.posted), offer, 0, self.processes, place)
        self.limits = self.turn.limits

    def __call__(self, name: str, *, again: bool = False, **arguments: Any) -> str:
        return str(tools.run(self.turn, name, arguments, 0, again))

    def file(self, name: str, data: bytes | str) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for process in list(made.processes.all):  # jobs
        with suppress(ProcessLookupError):
            kill_group(process.pid)
        process.wait()
    for log in Path("/tmp").glob("job-7-*.log"):
        if log.stat().st_uid == os.getuid():
            log.unlink()
