"""`clawd context decide|calibrate`, and whether what the config says of contexts can hold. A daemon is not needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from clawd.clock import SystemClock, rfc3339
from clawd.config.group import Effective
from clawd.config.home import Home, group_folders
from clawd.config.load import load_config, load_group, merged
from clawd.config.schema import Config
from clawd.errors import ConfigError, NotFound, StorageError
from clawd.files import write_atomic
from clawd.lifecycle import policies, profiles
from clawd.lifecycle.deciding import Facts, Thresholds
from clawd.lifecycle.deciding import decide as decided
from clawd.usage.prices import window_of


def decide(home: Home, tokens: int, profile: str | None, phase_done: bool, group: str) -> dict[str, Any]:
    """{action, trigger, tokens, soft, hard, estimated, profile, notes[]} for a session of which nothing else is known;
    notes are sentences for the person. Without a home what ships holds. Raises ConfigError, NotFound."""
    config, settings = _said(home, group)
    limits = in_force(home, config, settings, profile)
    found, notes = policies.in_force(settings.context.policies)
    facts = Facts(tokens, limits, phase_done=phase_done, usd_limit=settings.context.usd)
    decision = decided(facts, found)
    return {
        "action": decision.action,
        "trigger": decision.trigger,
        "tokens": tokens,
        "soft": limits.soft,
        "hard": limits.hard,
        "estimated": False,
        "profile": limits.profile,
        "notes": notes,
    }


def calibrate(home: Home, profile: str | None, group: str | None, *, write: bool) -> dict[str, Any]:
    """{profile, sessions, sufficient, soft|null, hard|null, file|null, said}: what past sessions recommend, and a
    sentence. With `write` that is kept in `state/calibrations/`; in force it is when the config names it. Raises
    ConfigError, NotFound, StorageError."""
    from clawd.lifecycle import calibrating

    config, settings = _said(home, group or "main")
    name = profile or settings.group.profile or profiles.DEFAULT
    if name not in profiles.known(config):
        profiles.thresholds(config, settings, name)  # says which there are
    past = [
        each
        for folder in ([group] if group is not None else group_folders(home))
        for each in calibrating.sessions(home.group(folder).root, name, _usual(home, folder))
    ]
    table = settings.model
    found = calibrating.calibrate(past, table.window or window_of(table.model), table.max_output)
    file = None
    if found.soft is None or found.hard is None:
        said = f"{found.sessions} sessions with {name} were measured, and {calibrating.ENOUGH} are needed"
        if found.sessions >= calibrating.ENOUGH:
            said = f"the sessions with {name} are too small to go by: none was larger than {found.peak} tokens"
        said += ": its limits stay as they are"
    else:
        relative = f"state/calibrations/{name}.json"
        said = f"[profiles.{name}] soft = {found.soft}, hard = {found.hard} in config.toml brings them into force"
        if write:
            kept = profiles.Calibration(
                schema=profiles.SCHEMA,
                profile=name,
                soft=found.soft,
                hard=found.hard,
                sessions=found.sessions,
                peak=found.peak,
                compacts=found.compacts,
                handoffs=found.handoffs,
                made=rfc3339(SystemClock().now()),
            )
            file = _keep(home, relative, kept)
            said = f'[profiles.{name}] calibration = "{relative}" in config.toml brings them into force'
    return {
        "profile": name,
        "sessions": found.sessions,
        "sufficient": found.sufficient,
        "soft": found.soft,
        "hard": found.hard,
        "file": file,
        "said": said,
    }


def problems(home: Home) -> Iterator[tuple[str, str, str | None]]:
    """(group, sentence, hint|null) of what the config says of each group's contexts and cannot hold. A group whose file
    cannot be understood is left out. Raises ConfigError for config.toml."""
    config = load_config(home, dict(os.environ))
    for group in group_folders(home):
        try:
            settings = merged(config, load_group(home, group))
        except ConfigError:
            continue
        try:
            in_force(home, config, settings)
        except ConfigError as error:
            yield group, error.message, error.hint
        for sentence in policies.in_force(settings.context.policies)[1]:
            yield group, sentence, None
        if "cost" in settings.context.policies and settings.context.usd is None:
            yield group, "the policy cost does nothing without usd = N (dollars of one session) below [context]", None


def _said(home: Home, group: str) -> tuple[Config, Effective]:
    """The config and what holds for a group; what ships where there is no home."""
    if not home.config_file.exists():
        config = Config()
        return config, merged(config, load_group(home, "main"))
    if group != "main" and group not in group_folders(home):
        raise NotFound(f"there is no group {group!r}", hint=f"clawd groups add {group}")
    config = load_config(home, dict(os.environ))
    return config, merged(config, load_group(home, group))


def in_force(
    home: Home,
    config: Config,
    settings: Effective,
    profile: str | None = None,
    soft: int | None = None,
    hard: int | None = None,
) -> Thresholds:
    """What holds for a session with these of its own. Raises ConfigError."""
    window = window_of(settings.model.model)
    return profiles.thresholds(config, settings, profile, soft, hard, window=window, root=home.root)


def _usual(home: Home, group: str) -> str:
    try:
        return load_group(home, group).profile or profiles.DEFAULT
    except ConfigError:
        return profiles.DEFAULT


def _keep(home: Home, relative: str, found: profiles.Calibration) -> str:
    path = home.root / relative
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomic(path, found.data())
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror})") from error
    return relative
