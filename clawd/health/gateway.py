"""What the doctor looks at in the services: grants of nothing, keys that are not there, models that cannot be reached,
an open web beside what is private."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from clawd.config.begin import untouched
from clawd.config.home import Home, group_folders
from clawd.config.load import load_config, load_group, merged, nearest
from clawd.config.models import models
from clawd.config.schema import Config
from clawd.errors import ClawdError
from clawd.gateway import policy
from clawd.gateway.policy import Granted
from clawd.health.findings import Finding, finding

_READING = {"GET", "HEAD"}
_OTHERS = stat.S_IRGRP | stat.S_IROTH


def services(home: Home) -> Iterator[Finding]:
    """Every grant of every group."""
    config = load_config(home, dict(os.environ))
    sound = True
    for group in group_folders(home):
        for each in _group(home, config, group):
            sound &= each["level"] == "ok"
            yield each
    if sound:
        yield finding("services", "ok", "every service that is granted is there")


def _group(home: Home, config: Config, group: str) -> Iterator[Finding]:
    file = shlex.quote(str(home.group(group).config_file))
    try:
        own = load_group(home, group)
        settings = merged(config, own)
        grants = policy.grants(config, settings, group)
    except ClawdError as error:
        yield finding("services", "error", error.message, f"clawd config check {file}")
        return
    for name in sorted({grant.service for grant in own.grants} - grants.known):
        meant = nearest(name, grants.known)
        message = f"group {group} is granted {name}, and there is no such service" + (f": {meant}" if meant else "")
        yield finding("services", "error", message, f"edit {file}")
    try:
        for sentence in models(config, group, settings)[1]:
            yield finding("models", "warn", f"group {group}: {sentence}")
    except ClawdError as error:
        yield finding("models", "error", f"group {group} has nobody who could answer: {error.message}", f"edit {file}")
    for service in grants.granted.values():
        yield from _service(home, group, service)
    if open_web := [name for name, service in grants.granted.items() if ("*", None) in service.hosts]:
        beside = [name for name, it in grants.granted.items() if it.credential or not it.methods <= _READING]
        beside += [f"/mnt/{mount.name}" for mount in own.mounts]
        if not untouched(home.group(group).user_profile):
            beside.append("user_profile.md")
        if beside:
            message = f"group {group} may read any page ({open_web[0]}), which can steer it, beside {', '.join(beside)}"
            yield finding("services", "warn", message, f"edit {file}")


def _service(home: Home, group: str, service: Granted) -> Iterator[Finding]:
    credential, name = service.credential, service.name
    if credential is None and service.inject is not None:
        message = f"{name}, granted to group {group}, has no credential: its requests are answered with 503"
        yield finding("services", "warn", message, f"edit {shlex.quote(str(home.config_file))}")
    elif credential is not None and credential.kind == "env":
        if not credential.present():
            message = f"{name}, granted to group {group}: {credential} is not set here, nor for a daemon started here"
            yield finding("services", "warn", message, f"export {credential.name}=…")
    elif credential is not None and credential.kind == "file":  # cred is the daemon's alone to see
        path = Path(credential.name).expanduser()
        file = shlex.quote(str(path))
        try:
            credential.reveal()
            if path.stat().st_mode & _OTHERS:
                message = f"others of this machine may read {path}, the key of {name}"
                yield finding("services", "warn", message, f"chmod 600 {file}")
        except ClawdError as error:
            put = f"ls -l {file}" if path.exists() else f"install -D -m 600 /dev/stdin {file}"
            yield finding("services", "error", f"{name}, granted to group {group}: {error.message}", put)
    if service.ca is not None and not os.access(Path(service.ca).expanduser(), os.R_OK):
        yield finding("services", "error", f"{name}: its ca {service.ca} cannot be read", f"ls -l {service.ca}")
