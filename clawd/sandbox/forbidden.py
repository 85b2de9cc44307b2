"""What no mount may ever show: this program and what belongs to it, sockets that are as good as root, what the system
is made of, and what is known to be a secret by its name.

Places count in both directions: what lies in one, and what one lies in.
"""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clawd.config.home import Home
from clawd.config.mounts import user_home
from clawd.errors import ClawdError
from clawd.resources import shipped
from clawd.sandbox.engine import DEFAULT, find_engine
from clawd.sandbox.walk import Found, MountPoint, walk

# Whole names on a path, case-folded; what is below an allowed root and not on the path is not looked for.
SECRET = re.compile(
    r"\.ssh|\.gnupg|\.aws|\.azure|gcloud|\.kube|\.docker|[._]netrc|\.npmrc|\.yarnrc\.yml|\.pypirc|\.git-credentials"
    r"|\.env.*|id_.*|.*\.(pem|key|p12|pfx|jks|kdbx?|gpg|asc)|\.claude|\.claude\.json|\.codex|\.gemini"
    r"|\.?credentials(\.json|\.toml|\.yml)?|\.config/(gh|op|hub|rclone|doctl|containers|openai|anthropic)|\.pgpass"
    r"|\.my\.cnf|\.vault-token|\.password-store|\.mozilla|\.thunderbird|keyrings|\.terraform\.d|\.boto|\.s3cfg"
    r"|\.(bash|zsh|python|psql|node_repl)_history|\.(bash|zsh)(rc|env|_profile|_login)|\.profile|authorized_keys",
    re.DOTALL,
)
PSEUDO = frozenset(
    [
        "proc",
        "sysfs",
        "devtmpfs",
        "devpts",
        "cgroup",
        "cgroup2",
        "securityfs",
        "debugfs",
        "tracefs",
        "configfs",
        "bpf",
        "pstore",
        "efivarfs",
        "mqueue",
        "hugetlbfs",
        "fusectl",
        "binfmt_misc",
        "autofs",
        "nsfs",
        "rpc_pipefs",
        "selinuxfs",
        "smackfs",
        "ramfs",
        "sysv",
    ]
)
_SYSTEM = (
    *("/proc", "/sys", "/dev", "/boot", "/efi", "/etc", "/run", "/var/run", "/root", "/bin", "/sbin", "/lib", "/lib64"),
    *("/usr/bin", "/usr/sbin", "/usr/lib", "/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/libexec"),
    *("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet", "/var/lib/rancher"),
    *("/var/lib/systemd", "/var/spool/cron", "/lost+found"),
)
_SOCKETS = (
    *("/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock"),
    *("/run/k3s/containerd/containerd.sock", "/run/buildkit/buildkitd.sock"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A path, and what it is to a person."""

    path: Path
    what: str


def places(
    home: Home, environment: Mapping[str, str], runtime: Path, allowlist: Path | None, docker_host: str | None
) -> list[Place]:
    """Every place that no mount may touch, by each name that it has. They need not exist."""
    user = user_home(environment)
    found = [Place(home.root, "this home"), Place(home.state, "this home's state"), Place(runtime, "the runs' sockets")]
    configs = [user / ".config", *filter(Path.is_absolute, map(Path, [environment.get("XDG_CONFIG_HOME", "")]))]
    found += [Place(config / "clawd", "clawd's own config") for config in configs]
    if allowlist is not None:
        found.append(Place(allowlist, "the mount allowlist"))
    found += [Place(path, "the program clawd itself") for path in _program()]
    found += [Place(path, "programs that the host runs") for path in _programs(user, environment)]
    found += [Place(path, "a socket that is as good as root") for path in engines(user, environment, docker_host)]
    found += [Place(Path(path), "the system's own") for path in _SYSTEM]
    found += [Place(user / ".local/share" / name, "containers' own files") for name in ("docker", "containers")]
    return [each for place in found for each in _named(place)]


def engines(user: Path, environment: Mapping[str, str], docker_host: str | None = None) -> list[Path]:
    """Where sockets of container engines are, or would be."""
    found = [DEFAULT, *map(Path, _SOCKETS), user / ".docker/run/docker.sock"]
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        found += [Path(runtime) / name for name in ("docker.sock", "podman/podman.sock", "containerd/containerd.sock")]
    for name in ("DOCKER_HOST", "CONTAINER_HOST", "CONTAINERD_ADDRESS"):
        value = environment.get(name, "").removeprefix("unix://")
        found += [Path(value)] if value.startswith("/") else []
    with suppress(ClawdError):  # one on another machine has no socket here
        found.append(find_engine(docker_host, environment).socket)
    return found


def secret(path: Path) -> str | None:
    """The part of a path that is known to hold a secret."""
    parts = [unicodedata.normalize("NFKC", part).casefold() for part in path.parts]
    pairs = zip(["", *parts], parts, strict=False)
    for part, (before, now) in zip(path.parts, pairs, strict=True):
        if SECRET.fullmatch(now) or SECRET.fullmatch(f"{before}/{now}"):
            return part
    return None


def sockets_within(directory: Path) -> Iterator[Path]:
    """Sockets that a process of this host has beneath a directory."""
    with suppress(OSError):
        text = Path("/proc/net/unix").read_bytes().decode("utf-8", "surrogateescape")
        for line in text.splitlines()[1:]:
            path = Path(line.split(maxsplit=7)[7]) if line.count(" /") else None
            if path and path.is_absolute() and path.is_relative_to(directory) and path.is_socket():
                yield path


def _program() -> Iterator[Path]:
    """The installation: its package, its environment, what Python imports from."""
    yield shipped("containers").parent
    yield Path(__file__).resolve().parents[1]
    yield Path(__file__).resolve().parents[2]  # site-packages, or the clone
    paths = sysconfig.get_paths()
    yield from (Path(paths[name]) for name in ("purelib", "platlib", "stdlib", "platstdlib", "scripts"))
    yield from (Path(prefix) for prefix in {sys.prefix, sys.base_prefix} if prefix not in ("/usr", "/usr/local"))
    with suppress(Exception):  # a user without a home has none
        yield Path(site.getusersitepackages())


def _programs(user: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    yield from (user / name for name in (".local/bin", ".local/lib", "bin", ".config/systemd", ".config/autostart"))
    yield from (Path(name) for name in environment.get("PATH", "").split(":") if name.startswith("/") and name != "/")


def _named(place: Place) -> Iterator[Place]:
    """A place by its name as it stands and by its real one."""
    path = Path(os.path.normpath(place.path.absolute()))
    yield Place(path, place.what)
    with suppress(OSError, RuntimeError):
        if (real := path.resolve()) != path:
            yield Place(real, place.what)


def found(places: Iterable[Place], table: Mapping[int, MountPoint]) -> Iterator[tuple[Place, Found | None]]:
    """Each place with what is there now, or with the deepest directory above it that there is."""
    for place in dict.fromkeys(places):
        there = None
        for path in (place.path, *place.path.parents):
            with suppress(OSError):
                there = walk(path, table)
                break
        yield place, there


def touching(found: Found, forbidden: Iterable[tuple[Place, Found | None]]) -> Place | None:
    """The first place that a source touches: by every path that leads to it, and by device and inode, for names may
    differ on a disk that ignores case, and one place may be mounted at several."""
    for place, there in forbidden:
        if any(name.is_relative_to(place.path) or place.path.is_relative_to(name) for name in found.names):
            return place
        if there and (there.within(found) or (there.real == place.path and found.within(there))):
            return place
    return None
