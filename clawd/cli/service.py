"""`clawd service print|install|uninstall`: hands the daemon of a home to systemd, or to launchd on macOS."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from argparse import Namespace
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clawd import service
from clawd.cli.page import give, say, write_json
from clawd.config.home import Home, group_folders
from clawd.config.load import load_config, load_group
from clawd.errors import ClawdError, ConfigError, NotFound, Refused, UsageError
from clawd.files import write_atomic
from clawd.ids import is_group_name
from clawd.service import Facts, Place, Scope

BOOTED = Path("/run/systemd/system")  # it is there where systemd is the machine's manager
_PATIENCE = 400  # seconds for a service to be ready: TimeoutStartSec= is 300


@dataclass(frozen=True, slots=True)
class Service:
    """What is printed or written, and the commands that make it run or end."""

    kind: str
    path: Path
    text: str
    start: tuple[tuple[str, ...], ...]
    renew: tuple[str, ...]
    stop: tuple[str, ...]
    reload: tuple[str, ...] | None
    missing: tuple[Path, ...] = ()


def show(options: Namespace, home: Home) -> int:
    """The text that `install` would write."""
    made = _made(options, home)
    if options.json:
        write_json({"kind": made.kind, "path": str(made.path), "text": made.text})
    else:
        sys.stdout.write(made.text)
    return 0


def install(options: Namespace, home: Home) -> int:
    """Write it, start it now and at every boot. A second time changes nothing."""
    made = _made(options, home)
    _check_manager(options)
    if made.missing:
        path, directory = (shlex.quote(str(it)) for it in (made.missing[0], made.missing[0].parent))
        raise ConfigError(
            f"{made.missing[0]} is not there, and the config refers to it",
            hint=f"put the secret into it: (umask 077; mkdir -p {directory}; cat > {path})",
        )
    before = _text(made.path)
    owner = service.home_of(before) if before is not None else None
    if before is not None and owner != home.root and not options.force:
        raise Refused(
            f"{made.path} belongs to {'another home, ' + str(owner) if owner else 'something else'}",
            hint="give this one a name of its own with --name, or replace it with --force",
        )
    if before != made.text:
        try:
            made.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(made.path, made.text.encode(), 0o644)
        except OSError as error:
            raise _not_ours(made.path, error, options, "install", home) from error
    _do(made.reload)
    for command in made.start:
        _do(command)
    if before not in (None, made.text):
        _do(made.renew)
    did = "unchanged" if before == made.text else "written" if before is None else "replaced"
    if options.json:
        give({"kind": made.kind, "path": str(made.path), "did": did}, True)
    else:
        say(f"{made.path} is {did}; the daemon of {home.root} runs, and will after every boot")
        if made.kind == "systemd-user":
            say("so that it also runs while you are logged out: loginctl enable-linger")
    return 0


def uninstall(options: Namespace, home: Home) -> int:
    """End it and take it away. The home stays as it is."""
    path = _installed(options, home)
    if path is None:
        raise NotFound(f"{home.root} has no service that `clawd service install` made here", hint=_other(options, home))
    _check_manager(options)
    made = _made(options, home, path.name)
    _do(made.stop)
    try:
        path.unlink()
    except OSError as error:
        raise _not_ours(path, error, options, "uninstall", home) from error
    _do(made.reload)
    if options.json:
        give({"kind": made.kind, "path": str(path), "did": "removed"}, True)
    else:
        say(f"{path} is removed; the daemon is ended, the home stays as it is")
    return 0


def _scope(options: Namespace) -> Scope:
    return options.scope or ("system" if os.geteuid() == 0 else "user")


def _place(options: Namespace) -> Place:
    if sys.platform == "darwin":
        agents = Path("~/Library/LaunchAgents").expanduser()
        return Place("user", agents, agents)
    return Place.of(_scope(options), os.environ)


def _facts(home: Home) -> Facts:
    config = load_config(home, {})
    groups = [load_group(home, folder) for folder in group_folders(home)]
    for each in service.secrets_of([config, *groups]):
        if each.kind == "env":
            say(f"{each} is not there for a service: use ${{cred:{each.name}}} or ${{file:PATH}} instead")
    user = None
    if (uid := home.root.stat().st_uid) and os.geteuid() == 0:
        import pwd

        with suppress(KeyError):  # systemd takes the number, too
            user = pwd.getpwuid(uid).pw_name
        user = user or str(uid)
    return service.facts(home.root, config, groups, os.environ, user)


def _made(options: Namespace, home: Home, file: str | None = None) -> Service:
    if options.name and not is_group_name(options.name):
        raise UsageError(f"{options.name!r} is no name for a service", hint="letters, digits, - and _")
    place, facts = _place(options), _facts(home)
    if sys.platform == "darwin":
        label = f"org.clawd.{options.name or 'main'}"
        path = place.units / (file or f"{label}.plist")
        domain = f"gui/{os.getuid()}"
        begin = ("launchctl", "bootstrap", domain, str(path))
        end = ("launchctl", "bootout", f"{domain}/{path.stem}")
        return Service("launchd", path, service.agent(facts, path.stem), (begin,), end, end, None)
    known = _installed(options, home)
    name = file or (f"clawd-{options.name}.service" if options.name else known.name if known else "clawd.service")
    control = ("systemctl", "--user") if place.scope == "user" else ("systemctl",)
    return Service(
        f"systemd-{place.scope}",
        place.units / name,
        service.unit(facts, place),
        ((*control, "enable", "--now", name),),
        (*control, "restart", name),
        (*control, "disable", "--now", name),
        (*control, "daemon-reload"),
        tuple(path for each in facts.credentials if not (path := place.credentials / each).exists()),
    )


def _installed(options: Namespace, home: Home) -> Path | None:
    """The file of this home's service, of the name that was given or of any."""
    place = _place(options)
    wanted = f"*{options.name}.*" if options.name else "*"
    files = sorted(place.units.glob(wanted)) if place.units.is_dir() else []
    ours = (it for it in files if it.name.startswith(("clawd.", "clawd-", "org.clawd.")) and it.is_file())
    return next((it for it in ours if service.home_of(_text(it) or "") == home.root), None)


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return None


def _check_manager(options: Namespace) -> None:
    if sys.platform != "darwin" and not BOOTED.is_dir():
        raise ClawdError("systemd does not manage this machine", hint="clawd service print shows what it would be told")


def _do(command: tuple[str, ...] | None) -> None:
    if command is None:
        return
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClawdError(f"{shlex.join(command)} did not end well: {error}") from error
    if done.returncode:
        told = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[0]
        raise ClawdError(f"{shlex.join(command)}: {told}", hint=f"journalctl {'--user ' * ('--user' in command)}-xe")


def _other(options: Namespace, home: Home) -> str | None:
    if sys.platform == "darwin" or options.scope:
        return None
    return f"clawd --home {shlex.quote(str(home.root))} service uninstall --user, or --system"


def _not_ours(path: Path, error: OSError, options: Namespace, verb: str, home: Home) -> ClawdError:
    again = f"clawd --home {shlex.quote(str(home.root))} service {verb} --{_scope(options)}"
    return ClawdError(f"{path} cannot be written: {error.strerror}", hint=f"as root: {again}")
