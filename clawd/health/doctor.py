"""The checks, each on its own, and those of the home, its config and its ledger."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator

from clawd import __version__
from clawd.config.engines import engines
from clawd.config.group import not_built
from clawd.config.home import Home
from clawd.config.load import check_home, load_config, load_group
from clawd.config.models import models
from clawd.config.schema import Config
from clawd.errors import ClawdError, ConfigError, SandboxUnavailable
from clawd.health import (
    arrivals,
    budgets,
    channels,
    contexts,
    gateway,
    groups,
    machine,
    memory,
    mounts,
    people,
    remains,
    skills,
    wakes,
    webhooks,
)
from clawd.health.findings import Finding, finding, read_ledger, settings_of_groups
from clawd.ledger import groups as group_rows
from clawd.ledger import queries, runs
from clawd.ledger.db import Ledger, Transaction
from clawd.resources import shipped
from clawd.sandbox import examine, probe
from clawd.sandbox.choose import install_id
from clawd.sandbox.engine import find_engine
from clawd.sandbox.image import image_for
from clawd.sandbox.probe import Check


def doctor(home: Home) -> list[Finding]:
    """Every check, each on its own: one that fails is a finding, not the end."""
    findings = []
    for check in CHECKS:
        try:
            findings += list(check(home))
        except Exception as error:
            name = check.__name__.strip("_").replace("_", " ")
            findings.append(finding(name, "error", *_said(error)))
    return findings


def _said(error: Exception) -> tuple[str, str | None]:
    """The sentence and the command of a check that failed itself."""
    if isinstance(error, ClawdError):
        return error.message, error.hint
    return (str(error) if isinstance(error, OSError) else f"this could not be looked at ({type(error).__name__})"), None


def _home(home: Home) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield finding("clawd", "ok", f"clawd {__version__} on Python {version}")
    if not home.root.is_dir():
        yield finding("home", "error", f"there is no home at {home.root}", f"clawd init {shlex.quote(str(home.root))}")
        return
    yield finding("home", "ok", str(home.root))
    for directory in (home.state, home.groups):
        if not directory.exists():
            continue
        status, where = directory.stat(), shlex.quote(str(directory))
        if status.st_uid != os.geteuid():
            yield finding("rights", "error", f"{directory} belongs to another user", f"chown -R $USER {where}")
        elif stat.S_IMODE(status.st_mode) & 0o077:
            yield finding("rights", "error", f"others can look into {directory}", f"chmod 700 {where}")


def _config(home: Home) -> Iterator[Finding]:
    if errors := check_home(home)["errors"] if home.config_file.exists() else []:
        for error in errors:
            hint = f" ({error['hint']})" if error["hint"] else ""
            yield finding("config", "error", f"{error['where']}: {error['what']}{hint}", "clawd config check")
        return
    config = load_config(home, dict(os.environ))
    yield finding("config", "ok", "config.toml and every group.toml are understood")
    for name in not_built(config):
        yield finding("config", "warn", f"{name} is accepted, but what it configures is not built yet")
    for group in sorted(home.groups.glob("*/group.toml")):
        for name in not_built(load_group(home, group.parent.name)):
            yield finding("config", "warn", f"{name} in {group} is accepted, but not built yet")


def _sandbox(home: Home) -> Iterator[Finding]:
    """What makes sandboxes. Where the Engine does, bubblewrap may be missing."""
    try:
        config = load_config(home, dict(os.environ))
    except ClawdError:  # another finding says so
        config = Config()
    wanted, usable = config.sandbox.backend, False
    if wanted != "bubblewrap":
        for line in _engine(home, config):
            usable |= line.check == "image" and line.level == "ok"
            yield finding(line.check, line.level, line.message, line.command)
    if wanted != "docker":
        for line in probe.doctor(install_id(home.root), shipped("containers/agent")):
            level = "warn" if usable and line.level == "error" else line.level
            yield finding(line.check, level, line.message, line.command)
        if not usable:
            yield from _programs(home, config)


def _programs(home: Home, config: Config) -> Iterator[Finding]:
    """Under bubblewrap a sandbox has the programs of this machine: those of foreign engines must be among them."""
    for folder, settings in settings_of_groups(home, config):
        table = settings.model
        agent = table.agent if table.engine == "exec" else table.engine
        entry = engines(config).get(agent or "")
        program = entry.command[0] if entry else "/mnt/"
        if not program.startswith("/mnt/") and shutil.which(program, path=probe.SYSTEM_PATH) is None:
            yield finding(
                "engines",
                "error",
                f"group {folder} works with {agent}, and this machine has no {program}: install it for every user"
                f' (in /usr/local/bin), or mount it and write [engines.{agent}] command = ["/mnt/NAME/{program}"]',
            )


def _models(home: Home) -> Iterator[Finding]:
    """What each group's model is reached by: its name, its service, its grant. Nobody is asked."""
    config, sound = load_config(home, dict(os.environ)), True
    for folder, settings in settings_of_groups(home, config):
        command = f"edit {shlex.quote(str(home.group(folder).config_file))}"
        try:
            told = models(config, folder, settings)[1]
        except ConfigError as error:
            sound = False
            yield finding("models", "error", f"group {folder} cannot answer: {error.message}", command)
            continue
        sound &= not told
        for sentence in told:
            yield finding("models", "warn", f"group {folder}: {sentence}", command)
    if sound:
        yield finding("models", "ok", "every group's engine has the model and the service that it needs")


def _engine(home: Home, config: Config) -> list[Check]:
    chosen, images = config.sandbox.backend == "docker", {image_for(config.sandbox, ""): ""}
    for folder, settings in settings_of_groups(home, config):
        images.setdefault(image_for(settings.sandbox, folder), folder)
    try:
        engine = find_engine(config.sandbox.docker_host, os.environ)
        if not chosen and not engine.present():
            return [Check("engine", "ok", "there is no Docker Engine; bubblewrap makes the sandboxes")]
        seen = examine.look(engine, images, install_id(home.root))
    except SandboxUnavailable as error:
        return [Check("engine", "error" if chosen else "warn", *_said(error))]
    alive = set(read_ledger(home, lambda tx: [row["id"] for row in runs.alive(tx)]) or ())
    return list(examine.judge(seen, engine.host, shipped("containers/agent"), images, alive, chosen=chosen))


def _ledger(home: Home) -> Iterator[Finding]:
    if not home.ledger_file.exists():
        yield finding("ledger", "ok", "none yet: it is made with the first message")
        return
    ledger = Ledger.read_only(home.ledger_file)
    try:
        yield from ledger.tx(_read_ledger)
        for row in ledger.tx(group_rows.every):
            if not home.group(row.folder).root.is_dir():
                message = f"groups/{row.folder} is gone; it is made again with the group's next message"
                yield finding("groups", "warn", message)
    finally:
        ledger.close()


def _read_ledger(tx: Transaction) -> list[Finding]:
    verdict = tx.one("PRAGMA integrity_check(1)")
    if verdict is None or verdict[0] != "ok":
        return [
            finding("ledger", "error", f"the ledger is damaged: {verdict and verdict[0]}", "clawd doctor --recover")
        ]
    counts = queries.turn_counts(tx)
    found = [finding("ledger", "ok", f"sound; {counts['queued']} turns wait, {counts['running']} run")]
    if counts["held"]:
        reasons = {row["held"] for row in tx.all("SELECT held FROM turn WHERE state = 'held'")}
        found.append(finding("turns", "warn", f"{counts['held']} turns are held: {'; '.join(sorted(reasons))}"))
    failed = tx.all("SELECT seq FROM inbound WHERE state = 'failed' ORDER BY seq DESC LIMIT 3")
    found += [
        finding("messages", "warn", f"message {row['seq']} failed", f"clawd messages retry {row['seq']}")
        for row in failed
    ]
    lost = tx.all("SELECT id, channel, chat, error FROM delivery WHERE state = 'failed' ORDER BY id DESC LIMIT 3")
    for row in lost:
        where = f"delivery {row['id']} to {row['channel']}:{row['chat']}"
        found.append(finding("deliveries", "warn", f"{where} failed: {row['error']}", "clawd deliveries list"))
    return found


CHECKS = (
    _home,
    _config,
    _sandbox,
    machine.disk,
    machine.clock,
    machine.locale,
    machine.file_limit,
    remains.daemon,
    _ledger,
    groups.files,
    groups.work,
    _models,
    contexts.limits,
    contexts.files,
    channels.channels,
    people.people,
    gateway.services,
    budgets.budgets,
    mounts.mounts,
    wakes.schedules,
    wakes.watches,
    webhooks.webhooks,
    skills.skills,
    memory.memory,
    arrivals.arrivals,
)
