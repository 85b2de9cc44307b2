"""From a run to a container's flags, by table."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawd.errors import SandboxUnavailable
from clawd.sandbox import hardening
from clawd.sandbox.directories import prepare
from clawd.sandbox.hardening import Holds, Mount
from clawd.sandbox.protocol import RunSpec, SandboxLimits

INFO: dict[str, Any] = {
    "OSType": "linux",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=default"],
    **dict.fromkeys(("MemoryLimit", "PidsLimit", "SwapLimit", "CpuCfsPeriod", "CpuCfsQuota"), True),
    "NCPU": 4,
}
ABLE = Holds("cgroup", swap=True, cpus=4, rootless=False)
STATUS = {
    "Name": "docker-init",
    "Uid": "64001\t64001\t64001\t64001",
    **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16),
    "NoNewPrivs": "1",
    "Seccomp": "2",
}


def spec(root: Path, **limits: Any) -> RunSpec:
    return RunSpec(
        run="r1",
        group="main",
        uid=64_001 if os.geteuid() == 0 else None,
        directory=root / "run",
        work=root / "groups" / "work",
        inbox=root / "groups" / "inbox",
        group_skills=root / "groups" / "skills",
        skills=root / "skills",
        limits=SandboxLimits(**limits),
    )


def made(able: Holds = ABLE, **limits: Any) -> dict[str, Any]:
    shown = [Mount(Path("/home/me/a:b,c"), "/group/work", True, 1, 2), Mount(Path("/v"), "/group", False, 1, 3)]
    return hardening.container(spec(Path("/x"), **limits), "i1", "sha256:abc", shown, able, "UTC")


def test_mounts_are_typed_private_and_writable_only_where_they_must_be() -> None:
    host = made()["HostConfig"]
    assert "Binds" not in host
    assert host["Mounts"] == [
        {
            "Type": "bind",
            "Source": source,
            "Target": target,
            "ReadOnly": read_only,
            "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
        }
        for source, target, read_only in (("/home/me/a:b,c", "/group/work", False), ("/v", "/group", True))
    ]


@pytest.mark.parametrize(
    ("able", "limits", "expected"),
    [
        (ABLE, {}, {"NanoCpus": 10**9, "Memory": 1 << 30, "MemorySwap": 1 << 30, "PidsLimit": 256}),
        (ABLE, {"cpus": 64.0}, {"NanoCpus": 4 * 10**9}),
        (ABLE, {"cpus": 0.001}, {"NanoCpus": 10**7}),
        (replace(ABLE, cpus=0.0), {}, {"NanoCpus": None}),
        (replace(ABLE, swap=False), {}, {"MemorySwap": None, "Memory": 1 << 30}),
    ],
)
def test_limits_are_what_the_engine_can_hold(able: Holds, limits: dict[str, Any], expected: dict[str, Any]) -> None:
    host = made(able, **limits)["HostConfig"]
    assert {name: host.get(name) for name in expected} == expected


@pytest.mark.parametrize(("kind", "more"), [("cgroup", {}), ("rlimit", {"nproc": 9, "data": 1 << 20})])
def test_resource_limits_stand_in_where_no_cgroup_holds(kind: Any, more: dict[str, int]) -> None:
    host = made(replace(ABLE, limits=kind), pids=9, memory_bytes=1 << 20, file_bytes=5)["HostConfig"]
    expected = {"core": 0, "nofile": 4096, "fsize": 5, **more}
    assert {it["Name"]: it["Hard"] for it in host["Ulimits"]} == expected
    assert all(it["Soft"] == it["Hard"] for it in host["Ulimits"])


def test_what_an_image_brings_along_does_not_run() -> None:
    body = made()
    assert body["Entrypoint"][:4] == ["python3", "-I", "-B", "-c"]
    assert body["Entrypoint"][-1] == "/opt/clawd/agent/runner.py"
    assert (body["Cmd"], body["Healthcheck"], body["Image"]) == ([], {"Test": ["NONE"]}, "sha256:abc")


def test_a_rootless_engine_s_root_is_this_user() -> None:
    body = made(replace(ABLE, rootless=True))
    assert body["User"] == "0:0"
    assert "uid=0,gid=0" in body["HostConfig"]["Tmpfs"]["/home/agent"]
    assert made()["User"] != "0:0"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ABLE),
        ({"PidsLimit": False}, replace(ABLE, limits="rlimit")),
        ({"MemoryLimit": None}, replace(ABLE, limits="rlimit")),
        ({"SwapLimit": False}, replace(ABLE, swap=False)),
        ({"CpuCfsQuota": False}, replace(ABLE, cpus=0.0)),
        ({"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"]}, replace(ABLE, rootless=True)),
        ({"SecurityOptions": ["name=apparmor"]}, None),
        ({"SecurityOptions": ["name=seccomp,profile=unconfined"]}, None),
        ({"SecurityOptions": None}, None),
        ({"OSType": "windows"}, None),
    ],
)
def test_what_an_engine_can_hold(change: dict[str, Any], expected: Holds | None) -> None:
    if expected:
        assert hardening.holds(INFO | change) == expected
    else:
        with pytest.raises(SandboxUnavailable, match="system calls"):
            hardening.holds(INFO | change)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, None),
        ({"Uid": "0\t0\t0\t0"}, "it runs as user 0, not 64001"),
        ({"Uid": "64001\t0\t64001\t64001"}, "it runs as user 64001, not 64001"),
        ({"Uid": "64002\t64002\t64002\t64002"}, "it runs as user 64002, not 64001"),
        ({"CapBnd": "0000000000000400"}, "it has capabilities"),
        ({"NoNewPrivs": "0"}, "it may gain privileges"),
        ({"Seccomp": "0"}, "no filter of system calls holds it"),
    ],
)
def test_what_is_not_shut_is_named(change: dict[str, str], expected: str | None) -> None:
    text = "".join(f"{name}:\t{value}\n" for name, value in (STATUS | change).items())
    assert hardening.loose(text, 64_001) == expected


def test_real_paths_are_mounted_and_remembered_as_they_are(tmp_path: Path) -> None:
    one = prepare(spec(tmp_path))
    (tmp_path / "real").mkdir()
    one.inbox.rmdir()
    one.inbox.symlink_to(tmp_path / "real")
    found = {mount.target: mount for mount in hardening.mounts(one, Path("/nonexistent/docker.sock"))}
    assert found["/group/inbox"].source == tmp_path / "real"
    assert found["/group/inbox"].inode == (tmp_path / "real").stat().st_ino
    assert [target for target, mount in found.items() if mount.writable] == ["/group/work"]
    one.skills.rmdir()
    with pytest.raises(FileNotFoundError):
        hardening.mounts(one, Path("/nonexistent/docker.sock"))


def test_the_engine_s_socket_is_shown_to_nobody(tmp_path: Path) -> None:
    one = prepare(spec(tmp_path))
    (tmp_path / "link").symlink_to(one.skills)
    for socket in (one.skills / "docker.sock", one.work / "a" / "docker.sock", tmp_path / "link" / "docker.sock"):
        with pytest.raises(SandboxUnavailable, match="holds the Docker Engine's socket"):
            hardening.mounts(one, socket)


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[0m", "a\x7f"])
def test_a_path_that_no_line_can_tell_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SandboxUnavailable, match="cannot be shown"):
        hardening.mounts(prepare(spec(tmp_path / name)), Path("/nonexistent/docker.sock"))


def test_a_relative_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SandboxUnavailable, match="cannot be shown"):
        hardening.mounts(prepare(spec(Path("home"))), Path("/nonexistent/docker.sock"))


def test_this_process_is_in_no_container_of_that_name() -> None:
    assert not any(hardening.within(pid, "a" * 64) for pid in (os.getpid(), 1, 0, -1, 1 << 22))
