"""Fault points: what is planned happens at the passage that was meant, and nothing without a plan."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from clawd import faults


@pytest.fixture(autouse=True)
def unplanned() -> Iterator[None]:
    yield
    faults.load(None)


@pytest.mark.parametrize("spec", [None, "", "raise@other", "kill@other:1"])
def test_without_a_plan_for_it_a_point_is_passed(spec: str | None) -> None:
    faults.load(spec)
    for _ in range(3):
        faults.passing("claimed")


@pytest.mark.parametrize(("spec", "nth"), [("raise@claimed", 1), ("raise@sent, raise@claimed:3", 3)])
def test_a_fault_happens_once_at_its_passage(spec: str, nth: int) -> None:
    faults.load(spec)
    happened = []
    for passage in range(1, 6):
        try:
            faults.passing("claimed")
        except faults.InjectedFault:
            happened.append(passage)
    assert happened == [nth]


@pytest.mark.parametrize("spec", ["claimed", "kill@", "stop@x", "kill@x:y", "kill@x:0", "@x", "raise@ok,nonsense"])
def test_a_plan_that_is_not_understood_is_refused_whole(spec: str) -> None:
    with pytest.raises(ValueError, match="CLAWD_FAULT"):
        faults.load(spec)
    faults.passing("ok")


def test_kill_ends_the_process_at_once() -> None:
    program = "from clawd import faults; faults.load('kill@x:2'); faults.passing('x'); print('one', flush=True)\n"
    program += "try: faults.passing('x')\nfinally: print('never')\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "one\n")
