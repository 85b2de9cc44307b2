"""Limits: where cgroups lie, what is written into them, and the order in which a holder is found."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from clawd.sandbox import limits
from clawd.sandbox.limits import Cgroup, Place
from clawd.sandbox.protocol import SandboxLimits

V1 = """31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"""
V2 = "30 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
NESTED = "30 23 0:27 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw"


@pytest.mark.parametrize(
    ("mountinfo", "own", "expected"),
    [
        (
            V1,
            "9:name=systemd:/\n8:pids:/\n4:memory:/a/b\n2:cpu,cpuacct:/c:d\n0::/",
            {
                "cpu": ("/sys/fs/cgroup/cpu,cpuacct/c:d", 1),
                "memory": ("/sys/fs/cgroup/memory/a/b", 1),
                "pids": ("/sys/fs/cgroup/pids", 1),
                "": ("/sys/fs/cgroup/unified", 2),
            },
        ),
        (V2, "0::/system.slice/clawd.service", {"": ("/sys/fs/cgroup/system.slice/clawd.service", 2)}),
        (NESTED, "0::/docker/abc", {"": ("/sys/fs/cgroup", 2)}),
        (NESTED, "0::/docker/abc/x", {"": ("/sys/fs/cgroup/x", 2)}),
        (NESTED, "0::/docker/abcd", {}),
        ("22 1 8:1 / / rw - ext4 /dev/sda1 rw", "0::/", {}),
    ],
)
def test_where_cgroups_lie(mountinfo: str, own: str, expected: dict[str, tuple[str, int]]) -> None:
    found = limits.places_of(mountinfo, own)
    assert {name: (str(place.directory).rstrip("/"), place.version) for name, place in found.items()} == expected


@pytest.mark.parametrize(
    ("controller", "version", "expected"),
    [
        ("memory", 1, {"memory.limit_in_bytes": "1000", "memory.memsw.limit_in_bytes": "1000"}),
        ("memory", 2, {"memory.max": "1000", "memory.swap.max": "0"}),
        ("pids", 1, {"pids.max": "7"}),
        ("pids", 2, {"pids.max": "7"}),
        ("cpu", 1, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}),
        ("cpu", 2, {"cpu.max": "150000 100000"}),
    ],
)
def test_what_is_written(controller: str, version: int, expected: dict[str, str]) -> None:
    bounds = SandboxLimits(memory_bytes=1000, pids=7, cpus=1.5)
    assert {file: value for file, value, _ in limits.settings(controller, version, bounds)} == expected


def test_options_of_each_kind() -> None:
    bounds = SandboxLimits(memory_bytes=1000, pids=7, cpus=0.5, file_bytes=9)
    shared = ["--core=0", "--nofile=4096", "--fsize=9"]
    assert limits.prlimit_options("cgroup", bounds) == limits.prlimit_options("scope", bounds) == shared
    assert limits.prlimit_options("rlimit", bounds) == [*shared, "--nproc=7", "--data=1000"]
    user = limits.scope_command(bounds, root=False)
    assert user[:3] == ["systemd-run", "--user", "--scope"]
    assert {"--property=MemoryMax=1000", "--property=TasksMax=7", "--property=CPUQuota=50%"} <= set(user)
    assert "--user" not in limits.scope_command(bounds, root=True)


def test_counts_are_read_from_both_versions(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for directory, file, text in (
        (old, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        (new, "memory.events", "low 0\nmax 9\noom 1\noom_kill 1\n"),
    ):
        directory.mkdir()
        (directory / file).write_text(text)
        assert Cgroup([directory]).out_of_memory()
        assert not Cgroup([directory]).out_of_processes()
    (new / "pids.events").write_text("max 3\n")
    assert Cgroup([old, new]).out_of_processes()
    assert not Cgroup([tmp_path]).out_of_memory()


def test_a_cgroup_that_cannot_hold_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    places = {"memory": Place(tmp_path / "memory", 2), "pids": Place(tmp_path / "missing", 2)}
    with pytest.raises(OSError, match="missing"):
        Cgroup.of(places, "clawd-x").create(places, SandboxLimits())


def test_the_holder_is_true_to_its_word() -> None:
    holder = limits.find_holder(f"test{os.getpid()}")
    if holder.kind != "cgroup":
        assert holder.places == {}
        pytest.skip(f"no cgroup can be written here: {holder.kind} holds")
    cgroup = Cgroup.of(holder.places, f"clawd-test{os.getpid()}-limits")
    cgroup.create(holder.places, SandboxLimits())
    script = "".join(f"echo 0 > {path}; " for path in cgroup.join) + "sleep 600 & echo; wait"
    child = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"\n"
        assert child.pid in cgroup.pids()
        assert len(cgroup.pids()) == 2
        assert not cgroup.remove()
        while cgroup.pids():
            cgroup.kill()
        assert child.wait(20) == -9
    finally:
        child.kill()
        child.wait()
        child.stdout.close()  # type: ignore[union-attr]
    assert cgroup.remove()
