"""The service: what systemd or launchd is told so that the daemon of a home runs for as long as the machine does.

Texts are made here, and nothing is written or started. A unit names its home in a comment, so that one home is never
taken for another. Nothing that a home's path may hold can end a line or a word of it.
"""

from __future__ import annotations

import json
import plistlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.parsers.expat import ExpatError

from pydantic import BaseModel

from clawd.config.group import GroupConfig
from clawd.config.schema import Config
from clawd.config.secrets import Secret
from clawd.errors import ConfigError

Scope = Literal["system", "user"]
PASSED = (
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "CLAWD_MOUNTS",
    "PYTHONPATH",
)  # of the environment: what the daemon cannot do without
_DAEMON_BYTES, _DAEMON_TASKS = 1 << 30, 256
_HOME = re.compile(r'^# The daemon of (".*")$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where services of one scope lie: their files, and the credentials that they are handed."""

    scope: Scope
    units: Path
    credentials: Path

    @classmethod
    def of(cls, scope: Scope, environment: Mapping[str, str]) -> Place:
        if scope == "system":
            return cls(scope, Path("/etc/systemd/system"), Path("/etc/clawd/credentials"))
        config = Path(environment.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
        return cls(scope, config / "systemd" / "user", config / "clawd" / "credentials")


@dataclass(frozen=True, slots=True)
class Facts:
    """What a service of a home must know. `user` runs a system's service where that is not root."""

    home: Path
    program: Sequence[str]
    environment: Mapping[str, str]
    credentials: Sequence[str]
    backend: str
    memory_bytes: int
    tasks: int
    user: str | None = None


def facts(
    home: Path, config: Config, groups: Sequence[GroupConfig], environment: Mapping[str, str], user: str | None = None
) -> Facts:
    """What the config says about it. Sandboxes of bubblewrap live within the service, so its limits hold them too."""
    tables = [config.sandbox, *(group.sandbox for group in groups)]
    sandboxes = config.sandbox.max_live if config.sandbox.backend != "docker" else 0
    return Facts(
        home=home,
        program=(sys.executable, "-P", "-m", "clawd", "--home", str(home), "run"),
        environment={name: environment[name] for name in PASSED if environment.get(name)},
        credentials=sorted({each.name for each in secrets_of([config, *groups]) if each.kind == "cred"}),
        backend=config.sandbox.backend,
        memory_bytes=_DAEMON_BYTES + sandboxes * max(table.memory for table in tables),
        tasks=_DAEMON_TASKS + sandboxes * max(table.pids for table in tables),
        user=user,
    )


def secrets_of(value: object) -> Iterator[Secret]:
    """Every reference to a secret in a config."""
    if isinstance(value, Secret):
        yield value
    elif isinstance(value, BaseModel):
        yield from secrets_of(dict(value))
    elif isinstance(value, Mapping):
        yield from secrets_of(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from secrets_of(each)


def quoted(word: str) -> str:
    """A word (without NUL, as paths are) as systemd reads it back in ExecStart= and Environment=: where it must be, in
    quotes, with C's escapes and `%` doubled."""
    if re.fullmatch(r"[A-Za-z0-9_@+=:,./-]+", word):
        return word
    out = []
    for each in word:
        if each in '\\"':
            out.append("\\" + each)
        elif each == "%":
            out.append("%%")
        elif each < " " or each == "\x7f" or "\udc80" <= each <= "\udcff":  # the last: bytes that are not UTF-8
            out.append(f"\\x{ord(each) & 0xFF:02x}")
        else:
            out.append(each)
    return f'"{"".join(out)}"'


def _credential(name: str, directory: Path) -> str:
    """LoadCredential= knows no quotes: what cannot stand there is refused."""
    path = str(directory / name)
    if (
        not re.fullmatch(r"[\x21-\x7e]{1,255}", name)
        or re.search(r"[/:\\]", name)
        or re.search("[\x00-\x1f\udc80-\udcff]", path)
    ):
        raise ConfigError(f"${{cred:{name}}} cannot be the name of a credential", hint="use letters, digits and -")
    return f"LoadCredential={name}:{path}".replace("%", "%%")


def unit(it: Facts, place: Place) -> str:
    """The text of a systemd unit, of the system's manager or a user's own."""
    system = place.scope == "system"
    # systemd refuses a program whose name has quotes or control characters, but no such argument of one
    start = it.program if re.fullmatch(r"[^\x00-\x1f\x7f\\\"']+", it.program[0]) else ("/usr/bin/env", *it.program)
    docker = it.backend != "bubblewrap" and system
    lines = [
        f"# The daemon of {json.dumps(str(it.home))}",
        "# Written by `clawd service install`; changes of your own belong into `systemctl edit`.",
        "[Unit]",
        "Description=clawd, an always-on personal agent",
        *(["Wants=network-online.target", "After=network-online.target"] if system else []),
        *(["After=docker.service"] if docker else []),
        *(["Wants=docker.service"] if docker and it.backend == "docker" else []),
        "# While somebody's `clawd chat` holds the home, or its config is refused, it is tried again for 20 minutes.",
        "StartLimitIntervalSec=1h",
        "StartLimitBurst=120",
        "",
        "[Service]",
        "Type=notify",
        "NotifyAccess=main",
        "# `:` keeps `$` as it is.",
        "ExecStart=:" + " ".join(map(quoted, start)),
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Restart=always",
        "RestartSec=10",
        "WatchdogSec=60",
        "TimeoutStartSec=300",
        "TimeoutStopSec=45",
        "KillMode=mixed",
        *([f"User={it.user}"] if system and it.user else []),
        *(f"Environment={quoted(f'{name}={value}')}" for name, value in it.environment.items()),
        f"# ${{cred:NAME}} in the config is the file NAME in {json.dumps(str(place.credentials))}: yours alone, 0600.",
        *(_credential(name, place.credentials) for name in it.credentials),
        "# The home is the only state, and lies where its person wants it: no StateDirectory. Runs keep their sockets",
        "# under /run or $XDG_RUNTIME_DIR across a restart: no RuntimeDirectory, which would be emptied.",
        "UMask=0077",
        "# bubblewrap's sandboxes live in here, each in a cgroup of its own.",
        "Delegate=yes",
        f"MemoryMax={it.memory_bytes}",
        f"TasksMax={it.tasks}",
        "LimitNOFILE=65536",
        "# What would hide /proc or /dev, or forbid namespaces, would forbid the sandboxes.",
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if system else 'default.target'}",
        "",
    ]
    return "\n".join(lines)


def agent(it: Facts, label: str) -> str:
    """The text of a launchd property list, for macOS. launchd hands out no credentials: `${file:PATH}` serves there."""
    log = str(it.home / "state" / "logs" / "service.log")
    return plistlib.dumps(
        {
            "Label": label,
            "ProgramArguments": list(it.program),
            "EnvironmentVariables": dict(it.environment),
            "RunAtLoad": True,
            "KeepAlive": True,
            "ThrottleInterval": 10,
            "ExitTimeOut": 45,
            "Umask": 0o077,
            "SoftResourceLimits": {"NumberOfFiles": 65536},
            "StandardOutPath": log,
            "StandardErrorPath": log,
        }
    ).decode()


def home_of(text: str) -> Path | None:
    """Whose daemon a unit or property list starts, None when it is none of ours."""
    if text.startswith("<?xml"):
        try:
            words = plistlib.loads(text.encode())["ProgramArguments"]
            return Path(words[words.index("--home") + 1])
        except (ExpatError, ValueError, LookupError, TypeError):
            return None
    found = _HOME.search(text)
    try:
        return Path(json.loads(found[1])) if found else None
    except ValueError:
        return None
