"""Which model answers a turn: what `[model]` says, with a turn's own choice laid over it, and where each model is
reached through the gateway. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, get_args

from clawd.config.engines import EngineTable, engines
from clawd.config.group import Effective
from clawd.config.load import nearest
from clawd.config.presets import DIALECTS, MODEL_SERVICE, services, versioned
from clawd.config.schema import Config, ModelTable
from clawd.errors import ConfigError, UsageError
from clawd.model import EngineName

ENGINES: tuple[str, ...] = get_args(EngineName)
EFFORTS = ("low", "medium", "high")
CHOICES = ("engine", "model", "effort")  # what one turn may choose
THINKING = ("messages", "chat", "claude-code", "exec")  # engines that are handed what a model is told
_DIALECT = {"messages": "messages", "claude-code": "messages", "chat": "chat"}
_ENDS = {"messages": "/messages", "chat": "/chat/completions"}


def checked(choice: Any) -> dict[str, str]:
    """The same choice of engine, model and effort, if each can be; none where it is None. Raises UsageError that names
    those that exist."""
    if not isinstance(choice, Mapping):
        choice = {"choice": choice} if choice is not None else {}
    for key, value in choice.items():
        if key not in CHOICES or not isinstance(value, str) or not value.strip():
            raise UsageError(f"{key} = {value!r} cannot be chosen", hint=f"known: {', '.join(CHOICES)}")
    if (engine := choice.get("engine", ENGINES[0])) not in ENGINES:
        raise UsageError(
            f"there is no engine {engine!r}; there are {', '.join(ENGINES)}",
            hint=nearest(engine, ENGINES) or "a command line of [engines] is engine exec, agent NAME",
        )
    if (effort := choice.get("effort", EFFORTS[0])) not in EFFORTS:
        raise UsageError(f"there is no effort {effort!r}; there are {', '.join(EFFORTS)}")
    return dict(choice)


def laid(table: ModelTable, choice: Mapping[str, str], known: Collection[str]) -> ModelTable:
    """`[model]` with a choice laid over it. A model may be `service/model`, with a `known` service. What was meant for
    another service is left out."""
    update: dict[str, Any] = {key: choice[key] for key in ("engine", "effort") if key in choice}
    before = own_service(table)
    service, model = split(choice.get("model", ""), known)
    engine = update.get("engine", table.engine)
    if service is None and engine != table.engine and not _suits(before, engine):
        update |= {"service": None, "model": None, "fallbacks": []}
    if model:
        update["model"] = model
    if service is not None and service != before:
        qualified = [each if split(each, known)[0] or not before else f"{before}/{each}" for each in table.fallbacks]
        update |= {"service": service, "fallbacks": qualified}
    return table.model_copy(update=update)


def own_service(table: ModelTable) -> str | None:
    """The service that the group's own model is reached through."""
    return table.service or MODEL_SERVICE.get(table.engine)


def _suits(service: str | None, engine: str) -> bool:
    """Whether what is said for this service holds for this engine too."""
    dialect = _DIALECT.get(engine)
    return service is not None and (dialect is None or DIALECTS.get(service, dialect) == dialect)


def split(name: str, known: Collection[str]) -> tuple[str | None, str]:
    """(service, model) of `service/model`, when its first segment is a known service; else (None, all of it)."""
    first, slash, rest = name.partition("/")
    return (first, rest) if slash and rest and first in known else (None, name)


def candidates(table: ModelTable, known: Collection[str]) -> list[tuple[str | None, str | None]]:
    """(service, model) of the group's model and of its fallbacks, in the order in which they are tried."""
    own = own_service(table)
    named = [split(each, known) for each in table.fallbacks]
    return [(own, table.model), *((service or own, model) for service, model in named)]


def model_services(table: ModelTable, known: Collection[str]) -> frozenset[str]:
    """Every service that a model of the group is reached through: what they answer is the model's own."""
    return frozenset(name for name, _ in candidates(table, known) if name is not None)


def models(config: Config, group: str, settings: Effective) -> tuple[list[dict[str, Any]], list[str]]:
    """The group's model, then its fallbacks: [{dialect, service, path, model, max_output, effort|null}], and a sentence
    for each fallback that cannot be used. A foreign engine may choose its model itself (null), and `exec` its service.

    Raises ConfigError, which says what to write, when the first one cannot be reached.
    """
    table, known, entry = settings.model, services(config), command_of(config, settings.model)
    name, engine = own_service(table), table.engine
    if engine not in THINKING or (name is None and engine == "exec"):
        return [], []
    speaks = entry.dialect if entry and engine == "exec" else _DIALECT[engine]
    first = _reached(config, group, settings, name or "", table.model, speaks)
    if first["model"] is None and (engine in _ENDS or (entry is not None and entry.names("{model}"))):
        what = f'model = "NAME" below [model] in groups/{group}/group.toml or config.toml'
        whose = f'the engine "{engine}"' + (f" with {table.agent}" if engine == "exec" else "")
        raise ConfigError(f"{whose} needs a model: write {what}, or say /model NAME")
    found, told = [first], []
    for each in table.fallbacks:
        service, model = split(each, known)
        try:
            found.append(_reached(config, group, settings, service or name or "", model, speaks))
        except ConfigError as error:
            told.append(f"The fallback {each} is not used: {error}")
    return found, told


def command_of(config: Config, table: ModelTable) -> EngineTable | None:
    """The `[engines]` entry that a foreign engine is started by, None for ours. Raises ConfigError that names those
    that exist."""
    if table.engine not in ("exec", "claude-code"):
        return None
    name, known = table.agent if table.engine == "exec" else table.engine, engines(config)
    if name not in known:
        named = f"there is no [engines.{name}]" if name else 'the engine "exec" needs agent = "NAME" below [model]'
        raise ConfigError(f"{named}; there are {', '.join(known)}")
    return known[name]


def _reached(
    config: Config, group: str, settings: Effective, name: str, model: str | None, speaks: str
) -> dict[str, Any]:
    """A model at the service `name`; `speaks` is the dialect where the service's own is not known."""
    known = services(config)
    service = known.get(name)
    if service is None:
        hint = nearest(name, known) or f'[services.{name}] base_url = "…" in config.toml makes it one'
        raise ConfigError(f"there is no service {name!r} ({hint})")
    if service.base_url is None:
        raise ConfigError(f"the service {name} has no base_url, which a model is reached by")
    if settings.model.engine == "claude-code" and versioned(service.base_url):
        raise ConfigError(f"Claude Code adds /v1/messages by itself: write base_url of {name} without the version")
    if name not in [grant.service for grant in settings.group.grants]:
        line = f'grants = ["{name}"]' if not settings.group.grants else f'"{name}" in grants'
        where = f"groups/{group}/group.toml"
        raise ConfigError(f"the service {name} is not granted to group {group}: add {line} at the top of {where}")
    dialect = speaks if settings.model.engine == "claude-code" else DIALECTS.get(name, speaks)
    return {
        "dialect": dialect,
        "service": name,
        "path": f"/svc/{name}{'' if versioned(service.base_url) else '/v1'}{_ENDS[dialect]}",
        "model": model,
        "max_output": settings.model.max_output,
        "effort": settings.model.effort,
    }
