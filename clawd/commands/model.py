"""`/model`: which model answers a group. A change is an edit of its `group.toml`, with the person's comments kept, and
is written only when the model that it names can be reached."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from clawd.config.edit import change
from clawd.config.engines import served
from clawd.config.group import Effective
from clawd.config.load import merged, parse_group
from clawd.config.models import CHOICES, THINKING, checked, laid, models, own_service
from clawd.config.presets import DIALECTS, services
from clawd.config.schema import Config, ModelTable
from clawd.errors import ClawdError, ConfigError, UsageError

_KEYS = (*CHOICES, "service", "agent")
_OURS = frozenset(DIALECTS.values())  # engines that are our own loop
_USE = "/model NAME, /model SERVICE/NAME, /model engine=E model=M effort=L, /model reset"


def say(file: Path, config: Config, settings: Effective, group: str, words: str) -> str:
    """What `/model words` answers, once it is done. Raises ClawdError; then nothing was written."""
    if not words:
        return f"{shown(settings.model)}\n{_USE}"
    values: dict[str, Any]
    if words == "reset":
        values = {key: None for key in _KEYS if key in settings.group.model.model_fields_set}
        if not values:
            return f"groups/{group}/group.toml says nothing of its own; config.toml's holds:\n{shown(settings.model)}"
        own = settings.group.model.model_dump(exclude_unset=True, exclude=set(values))
        fresh = settings.group.model_copy(update={"model": ModelTable(**own)})
        left = merged(config, fresh)
        table = left.model
        try:
            told = _reachable(config, group, left)
        except ConfigError as error:
            told = [f"It cannot answer yet: {error.message}"]
    else:
        table = _wanted(config, settings.model, words)
        told = _reachable(config, group, replace(settings, model=table))
        values = _differences(config, settings.model, table)
    try:
        change(file, {f"model.{key}": value for key, value in values.items()})
        parse_group(file.read_text("utf-8"))
    except OSError as error:
        raise ClawdError(f"{file} could not be written, and is as it was: {error.strerror}") from error
    return "\n".join(["From the next turn on:", shown(table), *told])


def shown(table: ModelTable) -> str:
    """The engine, and what it uses, a line each."""
    lines: dict[str, str] = {"engine": table.engine}
    if table.engine in THINKING:
        lines |= {
            "service": own_service(table) or "its own",
            "model": table.model or ("not said" if table.engine in ("messages", "chat") else "its own choice"),
            "effort": table.effort or "not said",
            "fallbacks": ", ".join(table.fallbacks) or "none",
        }
    if table.engine == "exec":
        lines["agent"] = table.agent or "not said"
    return "\n".join(f"{key}: {value}" for key, value in lines.items())


def _wanted(config: Config, table: ModelTable, words: str) -> ModelTable:
    """The table that the words ask for. Raises UsageError."""
    pairs = [word.partition("=") for word in words.split()]
    if len(pairs) == 1 and not pairs[0][1]:
        asked = {"model": words}
    elif all(equals and value for _, equals, value in pairs) and {key for key, _, _ in pairs} <= set(_KEYS):
        asked = {key: value for key, _, value in pairs}
    else:
        raise UsageError(f"/model {words} is not understood", hint=_USE)
    known = services(config)
    direct: dict[str, Any] = {key: asked[key] for key in ("service", "agent") if key in asked}
    new = laid(table, checked({key: value for key, value in asked.items() if key in CHOICES}), known)
    new = new.model_copy(update=direct)
    if "engine" not in asked and new.service != table.service and new.engine in _OURS:
        new = new.model_copy(update={"engine": DIALECTS.get(new.service or "", new.engine)})
    return new


def _reachable(config: Config, group: str, settings: Effective) -> list[str]:
    """Sentences on fallbacks that are left out. Raises ConfigError when no model could answer."""
    return models(config, group, replace(settings, model=served(config, settings.model)))[1]


def _differences(config: Config, old: ModelTable, new: ModelTable) -> dict[str, Any]:
    """What is to be written: a file can name another value, but not that there is none."""
    values = {}
    for key in (*_KEYS, "fallbacks"):
        value = getattr(new, key)
        if value == getattr(old, key):
            continue
        if value is None and key == "service":
            value = own_service(new)
        if value is None and getattr(config.model, key) is not None:
            raise UsageError(f"config.toml names a {key} for another engine: say {key}=… too", hint=_USE)
        values[key] = value
    return values
