"""What only containers do: shut by flags, frozen, adopted, reconciled with an Engine. Everything is real."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from conftest import Ground, beside, inside, said, until

from clawd.errors import SandboxUnavailable
from clawd.resources import shipped
from clawd.sandbox import container, hardening, recipe
from clawd.sandbox import docker as docker_room
from clawd.sandbox.container import DockerSandbox
from clawd.sandbox.docker import Docker
from clawd.sandbox.engine import Engine
from clawd.sandbox.hardening import LABEL_INSTALL, LABEL_RUN
from clawd.sandbox.protocol import LeftOver, RunSpec, Sandbox

pytestmark = pytest.mark.anyio

SLEEPER = "import time; open('up', 'w').close(); time.sleep(600)"
COUNTER = """
    n = 0
    while True:
        n += 1
        open("count", "w").write(str(n))
        time.sleep(0.01)
"""
NOWHERE = Path("/nonexistent/docker.sock")


def left_of(sandbox: Sandbox, spec: RunSpec) -> LeftOver:
    return LeftOver(spec.run, "docker", sandbox.handle, spec.directory, spec.uid)


def inspected(ground: Ground, sandbox: Sandbox) -> dict[str, Any]:
    assert isinstance(ground.backend, Docker)
    found: dict[str, Any] = ground.backend.engine.run(lambda client: client.api.inspect_container(sandbox.id))
    return found


def containers(ground: Ground) -> list[str]:
    """The runs of this install that have a container."""
    assert isinstance(ground.backend, Docker)
    label = f"{LABEL_INSTALL}={ground.backend._install}"
    found = ground.backend.engine.run(lambda client: client.api.containers(all=True, filters={"label": label}))
    return sorted(one["Labels"][LABEL_RUN] for one in found)


async def test_its_container_is_shut_and_tells_no_secret(docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWD_SECRET", "canary-of-the-daemon")
    spec = replace(docker.spec(memory_bytes=128 << 20, pids=50, cpus=0.5), environment={"TZ": "Asia/Tokyo"})
    sandbox = await docker.start(SLEEPER, spec)
    found = inspected(docker, sandbox)
    host, config = found["HostConfig"], found["Config"]
    who = f"{docker.uid or os.geteuid()}:{docker.uid or os.getegid()}"
    assert (host["NetworkMode"], config["User"], host["ReadonlyRootfs"], host["Privileged"]) == (
        "none",
        who,
        True,
        False,
    )
    assert (host["CapDrop"], host["CapAdd"], host["SecurityOpt"]) == (["ALL"], None, ["no-new-privileges"])
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"], host["NanoCpus"]) == (128 << 20, 128 << 20, 50, 5e8)
    assert (host["Init"], host["IpcMode"], host["PidMode"], host["UTSMode"], host["UsernsMode"]) == (
        True,
        "private",
        "",
        "",
        "",
    )
    assert not any(host[name] for name in ("Binds", "Devices", "VolumesFrom", "PortBindings", "GroupAdd", "AutoRemove"))
    assert host["RestartPolicy"]["Name"] == "no"
    assert [it["Destination"] for it in found["Mounts"] if it["RW"]] == [recipe.WORK]
    assert {it["Propagation"] for it in found["Mounts"]} == {"rprivate"}
    assert found["Image"].startswith("sha256:") and config["Image"] == found["Image"]
    environment = dict(it.split("=", 1) for it in config["Env"])
    assert set(environment) == {"TZ", "PATH", "HOME", "LANG", "CLAWD_GROUP", "CLAWD_RUN"}
    assert environment["TZ"] == "Asia/Tokyo"
    assert "canary" not in json.dumps(found)
    assert (sandbox.id, sandbox.limits, sandbox.backend) == (found["Id"], "cgroup", "docker")


async def test_nothing_is_got_from_inside(docker) -> None:
    """The ways out that are known, tried by a hostile agent. `reached` names each that worked."""
    spec, other = docker.spec(), docker.spec("run-2", "other")
    neighbour = await docker.start(SLEEPER, other)
    control = docker.root / "control.sock"
    (other.work / "secret").write_text("canary")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as their:
        listener.bind(str(control))
        listener.listen()
        theirs = other.socket_directory / "s"
        their.bind(str(theirs))
        their.listen()
        pid = min(inside(neighbour))
        paths = [docker.backend.engine.socket, "/var/run/docker.sock", "/run/docker.sock", control, theirs]
        paths += ["/run/containerd/containerd.sock"]
        _, printed = await docker.run(
            f"""
            import ctypes, json, os, socket, stat, subprocess
            reached = []
            def tries(name, action, *arguments):
                try:
                    action(*arguments)
                    reached.append(name)
                except OSError:
                    pass
            for path in {[str(it) for it in paths]!r}:
                with socket.socket(socket.AF_UNIX) as it:
                    tries(path, it.connect, path)
            for family in (40, 17, 38):
                tries(f"family {{family}}", socket.socket, family, socket.SOCK_DGRAM)
            tries("mknod", os.mknod, "disk", stat.S_IFBLK | 0o666, os.makedev(254, 0))
            tries("setuid root", os.setuid, 0)
            tries("chown", os.chown, "/group/work", 0, 0)
            tries("chroot", os.chroot, "/group/work")
            for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches",
                         "/sys/fs/cgroup/memory/notify_on_release", "/sys/fs/cgroup/release_agent", "/sys/power/state",
                         "/etc/passwd", "/usr/bin/new", "/group/CLAUDE.md", "/dev/mem", "/dev/kmsg"):
                tries(path, lambda: open(path, "r+b" if os.path.exists(path) else "wb").write(b"x"))
            tries("a process of the host", os.kill, {pid}, 0)
            tries("the other's files", open, "/proc/{pid}/root{recipe.WORK}/secret")
            tries("the other's work", open, {str(other.work / "secret")!r})
            libc = ctypes.CDLL(None, use_errno=True)
            for name, call in {{
                "unshare user": lambda: libc.unshare(0x10000000),
                "unshare mount": lambda: libc.unshare(0x20000),
                "setns": lambda: libc.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0),
                "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
                "remount": lambda: libc.mount(b"none", b"/", b"", 32, None),
                "ptrace": lambda: libc.ptrace(16, 1, 0, 0),
            }}.items():
                try:
                    if call() == 0:
                        reached.append(name)
                except OSError:
                    pass
            devices = [it for it in os.listdir("/dev") if stat.S_ISBLK(os.lstat("/dev/" + it).st_mode)]
            seen = [it for it in os.listdir("/proc") if it.isdigit()]
            shutil_copy = subprocess.run(["cp", "/usr/bin/id", "id"]).returncode
            os.chmod("id", 0o6755)
            who = subprocess.run(["./id", "-u"], capture_output=True).stdout.decode().strip()
            print(json.dumps([reached, devices, len(seen) < 6, who]))
            """,
            spec,
        )
    reached, devices, alone, who = json.loads(printed)
    assert (reached, devices, alone, who) == ([], [], True, str(docker.uid or os.geteuid()))
    assert inside(neighbour)


async def test_a_frozen_one_does_nothing_and_goes_on(docker) -> None:
    spec = docker.spec()
    sandbox = await docker.start(COUNTER, spec)
    count = spec.work / "count"
    await until(count.exists)
    await sandbox.pause()
    await sandbox.pause()
    assert inspected(docker, sandbox)["State"]["Paused"]
    stopped = count.stat().st_mtime_ns
    await anyio.sleep(0.2)
    assert count.stat().st_mtime_ns == stopped
    await sandbox.unpause()
    await sandbox.unpause()
    await until(lambda: count.stat().st_mtime_ns != stopped)
    await sandbox.pause()
    assert (await sandbox.kill()).reason == "was ended"
    assert not inside(sandbox)
    with pytest.raises(SandboxUnavailable):
        await sandbox.pause()
    await sandbox.unpause()


@pytest.mark.parametrize("frozen", [False, True])
async def test_the_next_daemon_takes_it_over(docker, frozen: bool) -> None:
    spec = docker.spec()
    before = await docker.start(COUNTER, spec)
    await until((spec.work / "count").exists)
    # A command of a daemon that is gone.
    who = "{}:{}".format(*hardening.user(spec))
    made = docker.backend.engine.run(lambda client: client.api.exec_create(before.id, ["sleep", "1004"], user=who))
    docker.backend.engine.run(lambda client: client.api.exec_start(made["Id"], detach=True))
    await until(lambda: any("1004" in Path(f"/proc/{pid}/cmdline").read_text() for pid in inside(before)))
    if frozen:
        await before.pause()
    after = docker.another()
    found = await after.adopt(left_of(before, spec), spec)
    assert found is not None
    assert (found.id, found.handle, found.limits) == (before.id, before.handle, before.limits)
    assert not any("1004" in Path(f"/proc/{pid}/cmdline").read_text() for pid in inside(found))
    first = (spec.work / "count").stat().st_mtime_ns
    await until(lambda: (spec.work / "count").stat().st_mtime_ns != first)
    assert all(found.owns(pid) for pid in inside(before))
    assert (await beside(found, ["echo", "here"])).stdout == b"here\n"
    assert await after.sweep([]) == []  # it is its own
    assert inside(before)
    await found.kill()
    await before.wait()
    assert containers(docker) == []


async def test_one_that_does_not_fit_is_not_taken_over(docker, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = docker.spec()
    sandbox = await docker.start(SLEEPER, spec)
    left, after = left_of(sandbox, spec), docker.another()
    with monkeypatch.context() as patch:
        patch.setattr(docker_room, "PROTOCOL", 99)
        assert await after.adopt(left, spec) is None
    assert await Docker("another", after._find).adopt(left, spec) is None
    assert await after.adopt(left, replace(spec, limits=replace(spec.limits, pids=99))) is None  # the config was edited
    assert await after.adopt(left, replace(spec, image="another")) is None
    assert await after.adopt(replace(left, handle=""), spec) is None
    assert await after.adopt(replace(left, handle=left.handle.replace("docker:", "docker:0")), spec) is None
    with pytest.raises(SandboxUnavailable, match="no Docker Engine"):
        await Docker(after._install, lambda: Engine(NOWHERE), after._agent).adopt(left, spec)
    spec.work.rename(spec.work.with_name("old"))
    assert await after.adopt(left, spec) is None
    assert await after.sweep([left]) == ["run-1"]
    assert not inside(sandbox)
    assert (
        await Docker(after._install, lambda: Engine(NOWHERE)).adopt(left, spec) is None
    )  # no Engine is needed to know


async def test_an_exchanged_directory_is_noticed_and_shown_to_nobody(docker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Engine looks up a path when the container starts, not when it is made."""
    from docker.api.container import ContainerApiMixin

    spec, secret = docker.spec(), docker.root / "secret"
    secret.mkdir()
    start = ContainerApiMixin.start

    def exchanged(self: Any, *arguments: Any, **options: Any) -> Any:
        spec.work.rename(spec.work.with_name("old"))
        spec.work.symlink_to(secret)
        return start(self, *arguments, **options)

    monkeypatch.setattr(ContainerApiMixin, "start", exchanged)
    with pytest.raises(SandboxUnavailable, match=r"at /group/work was exchanged"):
        await docker.start("open('/group/work/stolen', 'w')", spec)
    assert list(secret.iterdir()) == []
    assert containers(docker) == []


async def test_a_person_s_link_is_followed_before_anything_is_mounted(docker) -> None:
    spec, real = docker.spec(), docker.root / "a, b:c"
    real.mkdir()
    (real / "skill").touch()
    spec.skills.parent.mkdir(parents=True)
    spec.skills.symlink_to(real)
    _, printed = await docker.run("print(os.listdir('/skills'))", spec)
    assert printed == "['skill']\n"


async def test_what_is_missing_is_not_made_by_the_engine(docker) -> None:
    docker.backend._agent = docker.root / "gone"
    with pytest.raises(SandboxUnavailable, match="could not be made"):
        await docker.backend.start(docker.spec())
    assert not (docker.root / "gone").exists()
    assert containers(docker) == []


async def test_an_agent_that_ends_at_once_is_told_by_its_last_words(docker) -> None:
    agent = docker.agent("", "run-1")
    (agent / "runner.py").write_text("raise SystemExit('no runner today')")
    docker.backend._agent = agent
    try:
        told = (await (await docker.backend.start(docker.spec())).wait()).reason
    except SandboxUnavailable as error:
        told = error.message
    assert told.endswith("failed with code 1: no runner today")
    assert containers(docker) == []


@pytest.mark.parametrize(
    "how",
    [
        lambda client, id: client.api.remove_container(id, force=True),
        lambda client, id: client.api.stop(id, timeout=1),
        lambda client, id: client.api.kill(id),
    ],
)
async def test_ended_by_hand(docker, how: Any) -> None:
    sandbox = await docker.start(SLEEPER)
    await docker.backend.engine.call(lambda client: how(client, sandbox.id))
    with anyio.fail_after(60):
        assert (await sandbox.wait()).reason == "was ended from outside"
    assert containers(docker) == []


async def test_only_this_install_s_containers_are_swept_and_only_what_nobody_claims(docker) -> None:
    claimed, stray = docker.spec(), docker.spec("run-2", "other")
    sandbox, orphan = await docker.start(SLEEPER, claimed), await docker.start(SLEEPER, stray)
    assert await Docker("another", docker.backend._find).sweep([]) == []
    assert inside(sandbox) and inside(orphan)
    assert await docker.another().sweep([], ["run-1"]) == []
    assert inside(sandbox) and not inside(orphan)
    assert containers(docker) == ["run-1"]
    # after its home was moved: the label is of the old path, the run is in the ledger all the same
    assert await Docker("another", docker.backend._find).sweep([left_of(sandbox, claimed)]) == ["run-1"]
    assert containers(docker) == []


async def test_one_that_cannot_be_thawed_is_not_watched_until_it_is_taken_over(
    docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stiff(sandbox: DockerSandbox) -> None:
        await anyio.wait_all_tasks_blocked()
        raise SandboxUnavailable("it stays frozen")

    def watching() -> int:
        return sum(task.get_name() == "sandbox run-1" for task in asyncio.all_tasks())

    spec, after = docker.spec(), docker.another()
    before = await docker.start(SLEEPER, spec)
    monkeypatch.setattr(DockerSandbox, "unpause", stiff)
    with pytest.raises(SandboxUnavailable, match="stays frozen"):
        await after.adopt(left_of(before, spec), spec)
    await until(lambda: watching() == 1)
    assert after._mine == set() and inside(before)
    monkeypatch.undo()
    assert await after.adopt(left_of(before, spec), spec) is not None


async def test_a_run_that_begins_while_others_are_swept_is_no_stray(docker, monkeypatch: pytest.MonkeyPatch) -> None:
    call, begun = docker.backend.engine.call, list[Sandbox]()

    async def late(work: Any, *seconds: float) -> Any:
        monkeypatch.undo()
        begun.append(await docker.start(SLEEPER))
        return await call(work, *seconds)

    monkeypatch.setattr(docker.backend.engine, "call", late)
    assert await docker.backend.sweep([]) == []
    assert inside(begun[0])


async def test_without_an_engine_it_is_known_what_is_dead_and_said_what_is_not_known(docker) -> None:
    spec, gone = docker.spec(), docker.spec("run-2", "other")
    sandbox, ended = await docker.start(SLEEPER, spec), await docker.start(SLEEPER, gone)
    await ended.kill()
    away = Docker(docker.backend._install, lambda: Engine(NOWHERE))
    unknown = LeftOver("run-3", "docker", "", docker.root / "run-3", None)
    before = replace(left_of(sandbox, spec), run="run-4", handle="docker:00000000:1:1:x")
    left = [left_of(ended, gone), unknown, before]
    assert await away.sweep(left) == ["run-2", "run-4"]
    assert await docker.another().sweep([unknown], ["run-1"]) == ["run-3"]
    assert await away.sweep([left_of(sandbox, spec)]) == ["run-1"]  # a signal needs no Engine
    assert not inside(sandbox)


async def test_what_does_not_die_is_said(docker, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = await docker.start(SLEEPER)
    await sandbox.pause()
    with monkeypatch.context() as patch:
        patch.setattr(container, "KILL_SECONDS", 0.05)
        patch.setattr(sandbox, "_engine", Engine(NOWHERE))
        patch.setattr(type(sandbox._first), "kill", lambda self: None)
        with pytest.raises(SandboxUnavailable, match="the sandbox of main does not end"):
            await sandbox.kill()
    assert (await sandbox.kill()).reason == "was ended"


async def test_an_image_that_does_not_fit_is_told_with_what_helps(docker, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SandboxUnavailable, match=r"no-such-image is not built \(clawd image build\)"):
        await docker.backend.check("no-such-image")
    assert await docker.backend.check(docker.image) == "docker"
    monkeypatch.setattr(docker_room, "PROTOCOL", 99)
    with pytest.raises(SandboxUnavailable, match=r"no runner that this clawd can speak with \(clawd image build\)"):
        await docker.backend.start(docker.spec())
    assert containers(docker) == []


async def test_an_image_of_another_runner_serves_and_is_told_once(docker, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(docker_room, "shipped_runner", lambda: "0" * 64)
    backend = Docker("0" * 12, docker.backend._find, tell=told.append)
    for _ in range(2):
        assert await backend.check(docker.image) == "docker"
    assert told == [f"the image {docker.image} holds the runner of another version of clawd (clawd image build)"]


async def test_a_command_goes_on_beside_the_runner_s_own_forwarder(docker) -> None:
    spec = docker.spec()
    runner = "import socket; it = socket.create_server(('127.0.0.1', 8080)); open('up', 'w').close(); time.sleep(600)"
    agent = docker.agent(runner, spec.run)
    shutil.copytree(shipped("containers/agent"), agent, dirs_exist_ok=True, ignore=lambda *_: ["runner.py"])
    docker.backend._agent = agent
    sandbox = await docker.backend.start(spec)
    docker.started.append(sandbox)
    (spec.socket_directory / "go").touch()
    await until((spec.work / "up").exists)
    assert (await beside(sandbox, ["echo", "here"])).stdout == b"here\n"
    missing = await beside(sandbox, ["nothing-such"])
    assert (missing.code, missing.stderr) == (127, b"nothing-such: there is no such command in the sandbox\n")


async def test_no_descriptor_is_left(docker) -> None:
    async def life(run: str) -> None:
        sandbox = await docker.start(SLEEPER, docker.spec(run))
        await beside(sandbox, ["true"])
        await sandbox.kill()

    await life("run-1")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(2, 5):
        await life(f"run-{number}")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


async def test_programs_start_from_tmp_only_where_that_is_wanted(docker) -> None:
    script = """
        import shutil, subprocess
        shutil.copy("/bin/true", "/tmp/true")
        try:
            print(subprocess.run(["/tmp/true"]).returncode)
        except PermissionError:
            print("refused")
    """
    assert (await docker.run(script))[1] == "refused\n"
    sandbox = await docker.start(script, docker.spec("run-2", tmp_exec=True))
    await sandbox.wait()
    assert said(sandbox) == "0\n"
