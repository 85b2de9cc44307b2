"""What an agent can and cannot do, tried from inside: as a user of its own, or as the daemon's."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import stat
from pathlib import Path

import pytest
from conftest import inside, said

from clawd.config.home import GroupHome
from clawd.sandbox import seccomp
from clawd.sandbox.view import render

pytestmark = pytest.mark.anyio

TOP = "bin dev etc group home lib lib32 lib64 libx32 opt proc run sbin skills tmp usr"
ETC = "alternatives group hosts ld.so.cache localtime nsswitch.conf passwd pki ssl"


async def test_only_work_can_be_written_and_belongs_to_the_agent(ground) -> None:
    spec = ground.spec()
    home = GroupHome(spec.work.parent)
    home.root.mkdir(parents=True)
    home.claude_md.write_text("be kind")
    spec.view.mkdir(parents=True)
    render(spec.view, home)
    script = """
        import json, os, pathlib
        refused = []
        for path in ("/group/CLAUDE.md", "/group/new", "/group/inbox/new", "/group/skills/new", "/skills/new",
                     "/new", "/etc/new", "/etc/passwd", "/usr/new", "/dev/new", "/run/clawd/new",
                     "/opt/clawd/new",
                     "/opt/clawd/agent/runner.py", "/proc/sys/kernel/core_pattern"):
            try:
                open(path, "a").close()
            except OSError as error:
                refused.append(path)
        pathlib.Path("note").write_text("milk")
        pathlib.Path("/tmp/t").write_text("t")
        pathlib.Path("/home/agent/h").write_text("h")
        print(json.dumps([os.getcwd(), open("/group/CLAUDE.md").read(), refused]))
    """
    _, printed = await ground.run(script, spec)
    where, shown, refused = json.loads(printed)
    assert (where, shown, len(refused)) == ("/group/work", "be kind", 14)
    note = spec.work / "note"
    assert note.read_text() == "milk"
    assert note.stat().st_uid == (ground.uid or os.geteuid())
    assert stat.S_IMODE(spec.work.stat().st_mode) == 0o700
    assert home.claude_md.read_text() == "be kind"


async def test_nothing_of_the_host_can_be_seen(ground, monkeypatch) -> None:
    canary = f"canary-{os.getpid()}"
    monkeypatch.setenv("CLAWD_SECRET", canary)
    spec = ground.spec()
    others = [spec.work.parent.parent / "other" / "work" / canary, ground.root / "state" / canary]
    others += [spec.work.parent / "memory" / canary, spec.work.parent / "group.toml"]
    for file in others:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(canary)
        file.chmod(0o644)
    script = f"""
        import glob, json, os
        seen = [path for path in {[str(file) for file in others]!r} if os.path.exists(path)]
        seen += [at for at, _, files in os.walk("/") if "{canary}" in files]
        told = []
        for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
            try:
                told.append(open(path).read())
            except OSError:
                pass
        print(json.dumps([seen, "{canary}" in "".join(told), sorted(os.listdir("/")),
                          sorted(os.listdir("/group")), sorted(os.listdir("/etc")), dict(os.environ)]))
    """
    _, printed = await ground.run(script, spec)
    seen, leaked, top, group, etc, environment = json.loads(printed)
    assert (seen, leaked) == ([], False)
    assert group == ["inbox", "skills", "work"]
    if ground.image == "":  # a container has what its image has
        assert set(top) <= set(TOP.split())
        assert set(etc) <= set(ETC.split())
    names = {"PATH", "HOME", "LANG", "TZ", "CLAWD_GROUP", "CLAWD_RUN", "PWD", "LC_CTYPE", "HOSTNAME"}
    assert {"CLAWD_GROUP", "CLAWD_RUN", "HOME"} <= set(environment) <= names


async def test_no_capability_no_new_privilege_and_a_filter(ground) -> None:
    _, printed = await ground.run("print(open('/proc/self/status').read())")
    status = dict(line.split(":\t", 1) for line in printed.splitlines() if ":\t" in line)
    expected = {"CapEff": "0" * 16, "CapPrm": "0" * 16, "CapBnd": "0" * 16, "CapAmb": "0" * 16}
    expected |= {"NoNewPrivs": "1", "Seccomp": "2"}
    assert {name: status[name] for name in expected} == expected
    assert set(status["Uid"].split()) == {str(ground.uid or os.geteuid())}


async def test_resource_limits_of_every_process(ground) -> None:
    script = """
        import json, resource as r
        print(json.dumps([r.getrlimit(it) for it in (r.RLIMIT_CORE, r.RLIMIT_NOFILE, r.RLIMIT_FSIZE)]))
        try:
            open("big", "wb").truncate(9 << 20)
        except OSError as error:
            print(error.strerror)
    """
    _, printed = await ground.run(script, ground.spec(file_bytes=8 << 20))
    limits, refused = printed.splitlines()
    assert json.loads(limits) == [[0, 0], [4096, 4096], [8 << 20, 8 << 20]]
    assert refused == "File too large"


async def test_denied_calls_fail_and_common_ones_do_not(ground) -> None:
    machine = platform.machine()
    script = f"""
        import ctypes, errno, json, os, socket, subprocess, threading
        libc = ctypes.CDLL(None, use_errno=True)
        def call(number, *arguments):
            ctypes.set_errno(0)
            libc.syscall(ctypes.c_long(number), *(ctypes.c_long(it) for it in arguments))
            return errno.errorcode.get(ctypes.get_errno(), "done")
        denied = {seccomp.denied(machine)!r}
        got = {{name: call(number, -1, -1, -1, -1, -1) for name, number in denied.items()}}
        got["clone3"] = call(435, 0, 0)
        for flag in (0x20000, 0x10000000, 0x40000000):
            got[f"clone {{flag:x}}"] = call({seccomp.MACHINES[machine].clone}, flag | 17, 0, 0, 0, 0)
        got["TIOCSTI"] = call({seccomp.MACHINES[machine].ioctl}, 0, 0x5412, 0)
        for family in (40, 38, 17):  # AF_VSOCK, AF_ALG, AF_PACKET
            got[f"socket {{family}}"] = call({seccomp.MACHINES[machine].socket}, family, 1, 0)
        for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
            socket.socket(family, socket.SOCK_DGRAM).close()
        thread = threading.Thread(target=print)
        thread.start()
        thread.join()
        for command in ("unshare -U true", "unshare -Ur true", "mount -t tmpfs x /tmp"):
            got[command] = subprocess.run(command.split(), stderr=subprocess.DEVNULL).returncode
        print(json.dumps(got))
    """
    _, printed = await ground.run(script)
    got = json.loads(printed.splitlines()[-1])
    denied = seccomp.denied(machine)
    assert {name: got[name] for name in denied} == dict.fromkeys(denied, "EPERM")
    assert got["clone3"] == "ENOSYS"
    assert {got[name] for name in ("clone 20000", "clone 10000000", "clone 40000000", "TIOCSTI")} == {"EPERM"}
    assert {got[f"socket {family}"] for family in (40, 38, 17)} == {"EAFNOSUPPORT"}
    assert got["unshare -U true"] and got["unshare -Ur true"] and got["mount -t tmpfs x /tmp"]


async def test_no_network_but_its_own_loopback(ground) -> None:
    with socket.socket() as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(("127.0.0.1", 0))
        server.listen()
        name = f"\0clawd-test-{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        script = f"""
            import socket, json
            def tried(family, address):
                with socket.socket(family) as it:
                    it.settimeout(5)
                    return it.connect_ex(address)
            own = socket.socket()
            own.bind(("127.0.0.1", 0))
            own.listen()
            print(json.dumps([
                [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]],
                tried(socket.AF_INET, own.getsockname()),
                tried(socket.AF_INET, ("127.0.0.1", {server.getsockname()[1]})),
                tried(socket.AF_INET, ("192.0.2.1", 80)),
                tried(socket.AF_UNIX, {name!r}),
            ]))
        """
        _, printed = await ground.run(script)
    devices, own, host, far, unix = json.loads(printed)
    assert (devices, own) == (["lo"], 0)
    assert host and far and unix


async def test_the_run_s_socket_is_reached_and_its_renewal_seen(ground) -> None:
    spec = ground.spec()
    spec.socket_directory.mkdir(parents=True)
    spec.socket_directory.chmod(0o755)
    sandbox = await ground.start(
        """
        import os, socket, time
        def ask():
            while True:
                try:
                    with socket.socket(socket.AF_UNIX) as it:
                        it.connect("/run/clawd/s")
                        return it.recv(100)
                except OSError:
                    time.sleep(0.01)
        first = ask()
        while (second := ask()) == first:
            pass
        print(first, second)
        """,
        spec,
    )
    for word in (b"old", b"new"):
        with socket.socket(socket.AF_UNIX) as server:
            fresh = spec.socket_directory / f"s.{word.decode()}"
            server.bind(str(fresh))
            fresh.chmod(0o666)
            server.listen()
            fresh.rename(spec.socket_directory / "s")
            server.settimeout(20)
            server.accept()[0].sendall(word)
    await sandbox.wait()
    assert said(sandbox) == "b'old' b'new'\n"


async def test_setuid_files_in_work_are_harmless(ground) -> None:
    spec = ground.spec()
    spec.work.mkdir(parents=True)
    if ground.uid is not None:
        os.chown(spec.work, ground.uid, ground.uid)
    tool = spec.work / "id"
    shutil.copy("/usr/bin/id", tool)
    tool.chmod(0o4755)
    script = """
        import json, subprocess
        mounts = [line.split() for line in open("/proc/mounts")]
        options = {it[1]: it[3].split(",") for it in mounts}
        loose = [at for at, flags in options.items() if "nosuid" not in flags]
        print(json.dumps([subprocess.check_output(["/group/work/id", "-u"]).decode().strip(), loose]))
    """
    _, printed = await ground.run(script, spec)
    who, loose = json.loads(printed)
    assert who == str(ground.uid or os.geteuid())
    assert loose == [] or ground.image  # the Engine mounts nothing nosuid: no new privileges, and no root, hold there


async def test_temporary_space_has_its_size(ground) -> None:
    script = """
        for path in ("/tmp/x", "/home/agent/x"):
            try:
                with open(path, "wb") as file:
                    while True:
                        file.write(bytes(1 << 20))
            except OSError as error:
                print(path, error.strerror)
    """
    _, printed = await ground.run(script, ground.spec(tmp_bytes=2 << 20))
    assert printed == "/tmp/x No space left on device\n/home/agent/x No space left on device\n"


async def test_missing_directories_break_no_start(ground) -> None:
    spec = ground.spec()
    spec.skills.parent.mkdir(parents=True)
    spec.skills.write_text("a file where a directory should be")
    done, printed = await ground.run(
        "import os; print([os.listdir(it) for it in ('/skills', '/group/skills', '/group/inbox')])", spec
    )
    assert (done.code, printed) == (0, "[[], [], []]\n")


async def test_no_name_of_the_host_shows_in_a_process_list(ground) -> None:
    sandbox = await ground.start("import time; time.sleep(600)")
    for pid in inside(sandbox):
        assert str(ground.root).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
