"""What the doctor looks at in the webhooks: secrets that are not there, an address that others reach, and how the
daemon listens."""

from __future__ import annotations

import ipaddress
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawd.commands import writing
from clawd.config.group import Webhook
from clawd.config.home import Home
from clawd.config.load import load_config
from clawd.errors import ClawdError
from clawd.health.findings import Finding, finding, settings_of_groups


def webhooks(home: Home) -> Iterator[Finding]:
    """Every hook of every group, and where they are listened for."""
    config, hooks = load_config(home, dict(os.environ)), 0
    for group, settings in settings_of_groups(home, config):
        for hook in settings.group.webhook:
            hooks += 1
            yield from _secret(home, group, hook)
    if not hooks:
        return
    listen, edit = config.webhooks.listen, f"edit {shlex.quote(str(home.config_file))}"
    if not _is_loopback(listen.rpartition(":")[0].strip("[]")):
        message = f"webhooks are listened for at {listen}, where others can read along: put a proxy with TLS before it,"
        yield finding("webhooks", "warn", f'{message} and set [webhooks] listen = "127.0.0.1:8787"', edit)
    status = _of_daemon(home)
    if status is not None and status["error"]:
        yield finding("webhooks", "error", f"nothing listens at {status['listen']}: {status['error']}", edit)
    elif status is not None:
        yield finding("webhooks", "ok", f"webhooks are listened for at {status['listen']}")


def _secret(home: Home, group: str, hook: Webhook) -> Iterator[Finding]:
    """`cred` is the daemon's alone to see."""
    secret, whose = hook.secret, f"the webhook {hook.name} of group {group}"
    if secret.kind == "env" and not secret.present():
        message = f"{whose} takes nothing: {secret} is not set here, nor for a daemon started here"
        yield finding("webhooks", "error", message, f"export {secret.name}=…")
    elif secret.kind == "file":
        path = Path(secret.name).expanduser()
        file = shlex.quote(str(path))
        try:
            secret.reveal()
            if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
                message = f"others of this machine may read {path}, the secret of {whose}"
                yield finding("webhooks", "warn", message, f"chmod 600 {file}")
        except ClawdError as error:
            put = f"ls -l {file}" if path.exists() else f"install -D -m 600 /dev/stdin {file}"
            yield finding("webhooks", "error", f"{whose} takes nothing: {error.message}", put)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _of_daemon(home: Home) -> dict[str, Any] | None:
    try:
        status: dict[str, Any] | None = writing.ask(home, "status")["webhooks"]
        return status
    except (ClawdError, OSError):  # another finding says how the daemon is
        return None
