"""Processes by pid and start time, and who descends from whom."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from clawd.sandbox.processes import descends, process, seeing


def test_a_process_is_known_until_it_ends_and_never_taken_for_another() -> None:
    child = subprocess.Popen(["sleep", "600"])
    it = process(child.pid)
    assert it is not None and it.alive()
    other = replace(it, start=it.start + 1)
    assert not other.alive()
    other.kill()
    assert it.alive()
    it.kill()
    assert os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT) is not None
    assert not it.alive()  # a zombie does not live
    assert child.wait() == -9
    assert process(child.pid) is None
    it.kill()


def test_descent() -> None:
    me = process(os.getpid())
    assert me is not None
    child = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        one = process(child.pid)
        assert one is not None
        assert descends(grandchild, [one]) and descends(child.pid, [one]) and descends(grandchild, [me])
        assert not descends(os.getpid(), [one])
        assert not descends(grandchild, [replace(one, start=one.start - 1)])
        assert not descends(grandchild, [])
        assert not descends(1 << 22, [one])
    finally:
        if it := process(grandchild):
            it.kill()
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def test_who_sees_a_directory(tmp_path: Path) -> None:
    """Whoever has mounts of its own and sees it there; never one that shares ours, whatever it sees."""
    assert process(os.getpid()) not in seeing(tmp_path, str(tmp_path))
    if os.geteuid() == 0:
        child = subprocess.Popen(["unshare", "--mount", "sleep", "60"])
        try:
            deadline = time.monotonic() + 20
            while process(child.pid) not in seeing(tmp_path, str(tmp_path)):
                assert time.monotonic() < deadline
        finally:
            child.kill()
            child.wait()
    assert seeing(tmp_path, "/run/clawd") == set()
    assert seeing(tmp_path / "missing", str(tmp_path)) == set()
