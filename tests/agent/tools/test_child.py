"""Commands: how they end, alone, and what goes on beside the turn."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent import tools
from agent.tools import child
from agent.turn import Stopped

from .conftest import Bench


def until(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_command_says_what_it_says_and_how_it_ended(bench: Bench) -> None:
    assert bench("bash", command="pwd; printf 'a\\0\\377'; exit 3") == f"{bench.work}\na\\x00\\xff\n[exit code 3]"
    assert bench("bash", command="cat") == ""  # nothing to wait for
    assert bench("bash", command="echo $CLAWD_TOKEN") == "[token]"
    assert "too long for one call" in bench("bash", command=f": {'x' * 200_000}")


def test_ten_megabytes_are_head_and_tail(bench: Bench) -> None:
    said = bench("bash", command="echo first; head -c 10000000 /dev/zero; echo last")
    assert said.startswith("first\n\\x00") and said.endswith("\\x00last") and len(said) < 4100
    assert re.search(r"\[… \d{8} bytes left out …\]", said)


@pytest.mark.parametrize(("limit", "arguments"), [(0.3, {}), (0.3, {"timeout": 9}), (30, {"timeout": 1})])
def test_a_late_command_ends_with_all_that_it_started_and_alone(
    bench: Bench, limit: float, arguments: dict[str, Any]
) -> None:
    bench("bash", command="sleep 600", background=True)
    (job,) = bench.processes.all
    bench.limits["tool_s"] = limit
    said = bench("bash", command="echo begun; sleep 600 & echo $! >child; wait", **arguments)
    seconds = arguments.get("timeout", 9) if limit == 30 else limit
    assert said == f"begun\n[The command was ended after {seconds:g} s.]"
    started = int((bench.work / "child").read_text())
    until(lambda: not running(started))
    assert job.poll() is None


def test_stop_ends_commands_and_jobs_and_what_only_waits(bench: Bench) -> None:
    bench("bash", command="sleep 600", background=True)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("bash", {"command": "sleep 600"}),
        ("sleep", {"seconds": 20}),
        ("grep", {"pattern": "(x+x+)+y", "path": "evil"}),
    ]
    bench.file("evil", "x" * 4000)
    ended: list[object] = []

    def call(name: str, arguments: dict[str, Any]) -> None:
        try:
            ended.append(bench(name, **arguments))
        except Stopped as stopped:
            ended.append(stopped)

    threads = [threading.Thread(target=call, args=each) for each in calls]
    for thread in threads:
        thread.start()
    until(lambda: len(bench.processes.all) == 3)
    began = time.monotonic()
    bench.turn.interrupt("stop")
    for thread in threads:
        thread.join(10)
    assert time.monotonic() - began < 10 and len(ended) == 3
    until(lambda: not bench.processes.all)
    with pytest.raises(Stopped):
        bench("bash", command="touch never")
    assert not (bench.work / "never").exists()


def test_a_job_goes_on_is_looked_at_and_is_ended(bench: Bench) -> None:
    said = bench("bash", command="echo $$ >pid; echo $CLAWD_TOKEN; sleep 600", background=True)
    found = re.fullmatch(r"job (\d+) runs until your turn ends. Output: (\S+). To end it: (kill -9 -\d+)", said)
    assert found
    until(lambda: bench("read", path=found[2]) == "[token]\n")
    assert running(int((bench.work / "pid").read_text()))
    assert bench("bash", command=found[3]) == ""
    until(lambda: not bench.processes.all)
    until(lambda: not running(int((bench.work / "pid").read_text())))


def test_a_job_says_how_it_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    said = bench("bash", command="echo done; exit 3", background=True)
    log = said.split("Output: ")[1].split(". To")[0]
    until(lambda: Path(log).read_text() == "done\n[exit code 3]\n")
    until(lambda: not bench.processes.all)
    said = bench("bash", command="sleep 600", background=True, timeout=1)
    until(lambda: not bench.processes.all)
    assert "too long for one call" in bench("bash", command=f": {'x' * 200_000}", background=True)
    monkeypatch.setattr(child, "_JOBS", "/nowhere")
    said = bench("bash", command="touch never", background=True)
    assert said.startswith("[The command could not be started: ") and "/nowhere/job-7-" in said
    until(lambda: not bench.processes.all)
    assert not (bench.work / "never").exists()


@pytest.mark.parametrize("arguments", [{"command": "touch x"}, {"command": "touch x", "background": True}])
def test_a_command_is_not_run_again(bench: Bench, arguments: dict[str, Any]) -> None:
    assert bench("bash", again=True, **arguments) == tools.INTERRUPTED
    assert not any(bench.work.iterdir())


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
