"""Reading config: TOML, then `CLAWD_<TABLE>__<KEY>` from the environment, then the schema; what is wrong, and
where.

A file of a newer schema is refused, one of an older schema names the command that moves it on; nothing is
guessed.
"""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from clawd.config.begin import ensure_group as ensure_group
from clawd.config.begin import init_home as init_home
from clawd.config.engines import CLAUDE_CODE, served
from clawd.config.group import Effective, GroupConfig
from clawd.config.home import Home
from clawd.config.places import line_of
from clawd.config.schema import SCHEMA, Config, check_zone
from clawd.errors import ConfigError, NotFound
from clawd.files import plain

_LIMIT = 1 << 20  # bytes of a config file
# What pydantic says of a value of the wrong kind, in the words of TOML.
_KINDS = {
    "list_type": 'this takes a list: ["one", "two"]',
    "model_type": 'this takes a table: {key = "value"}',
    "dict_type": 'this takes a table: {key = "value"}',
}

Finding = dict[str, str]
Model = TypeVar("Model", bound=BaseModel)


def load_config(home: Home, environment: Mapping[str, str]) -> Config:
    """`config.toml` with the environment's overrides. Raises ConfigError, NotFound when there is no such
    file."""
    path = home.config_file
    text = _read(path)
    if text is None:
        raise NotFound(
            f"there is no {path}", hint=f"clawd init {shlex.quote(str(home.root))} writes one that works as it is"
        )
    data = _parse(path.name, text)
    sources = _override(data, environment)
    return _validated(Config, data, path.name, text, sources)


def load_group(home: Home, folder: str) -> GroupConfig:
    """A group's `group.toml`; one that does not exist says nothing. Raises ConfigError."""
    path = home.group(folder).config_file
    return parse_group(_read(path) or "", f"groups/{folder}/{path.name}")


def parse_group(text: str, name: str = "group.toml") -> GroupConfig:
    """The text of a `group.toml`. Raises ConfigError, which calls the file `name`."""
    return parse(GroupConfig, text, name)


def parse(model: type[Model], text: str, name: str) -> Model:
    """The text of a file that `model` describes. Raises ConfigError, which calls it `name`."""
    return _validated(model, _parse(name, text), name, text, {})


def check_file(path: Path) -> dict[str, Any]:
    """`clawd config check`: {ok, errors[{where, what, hint}]}, of a `group.toml` or else a `config.toml`."""
    try:
        text = _read(path)
        if text is None:
            raise NotFound(f"there is no {path}", hint="clawd init writes a config that works as it is")
        model = GroupConfig if path.name == "group.toml" else Config
        _validated(model, _parse(path.name, text), path.name, text, {})
    except ConfigError as error:
        return {"ok": False, "errors": error.errors}
    except NotFound as error:
        return {
            "ok": False,
            "errors": [{"where": path.name, "what": error.message, "hint": error.hint or ""}],
        }
    return {"ok": True, "errors": []}


def check_home(home: Home) -> dict[str, Any]:
    """The same, of a home's `config.toml` and every `group.toml` in it."""
    errors = list(check_file(home.config_file)["errors"])
    for file in sorted(home.groups.glob("*/group.toml")):
        folder = file.parent.relative_to(home.root)
        errors += [{**each, "where": f"{folder}/{each['where']}"} for each in check_file(file)["errors"]]
    return {"ok": not errors, "errors": errors}


def merged(config: Config, group: GroupConfig) -> Effective:
    """Lay what `group.toml` says over `config.toml`, key by key."""

    def over(name: str) -> Any:
        own = getattr(group, name)
        return getattr(config, name).model_copy(update={key: getattr(own, key) for key in own.model_fields_set})

    model, sandbox = served(config, over("model")), over("sandbox")
    named = group.sandbox.model_fields_set | config.sandbox.model_fields_set
    if model.engine == "claude-code" and "image" not in named:
        sandbox = sandbox.model_copy(update={"image": CLAUDE_CODE})
    return Effective(
        name=config.claw.name,
        timezone=group.timezone or config.claw.timezone or machine_zone(),
        trigger=group.trigger or config.claw.trigger,
        sandbox=sandbox,
        model=model,
        limits=over("limits"),
        memory=over("memory"),
        budget=over("budget"),
        context=over("context"),
        group=group,
    )


@lru_cache(maxsize=1)
def machine_zone() -> str:
    """The machine's own time zone by name, "UTC" where it has none that we know."""
    link = Path("/etc/localtime")
    linked = str(link.resolve()).rpartition("/zoneinfo/")[2] if link.is_symlink() else ""
    for name in filter(None, (os.environ.get("TZ", "").removeprefix(":"), linked)):
        try:
            return check_zone(name)
        except ValueError:
            continue
    return "UTC"


# -- from text to model --


def _read(path: Path) -> str | None:
    """The file's text, None when there is none."""
    try:
        with open(path, "rb", opener=plain) as file:
            data = file.read(_LIMIT + 1)
        if len(data) > _LIMIT:
            _refuse(path.name, f"the file is larger than {_LIMIT >> 20} MB", "a config says only what differs")
        return data.decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        _refuse(path.name, f"byte {error.start} is not UTF-8", "save the file as UTF-8")
    except OSError as error:
        _refuse(path.name, f"the file cannot be read: {error.strerror}", "look at its rights")


def _parse(name: str, text: str) -> dict[str, Any]:
    """TOML with its `schema` checked and taken out."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        message = str(error)
        line = message.rpartition("(at line ")[2].partition(",")[0]
        where = f"{name}:{line}" if line.isdigit() else name
        _refuse(where, f"not TOML: {message}", "text stands in quotes, lists in [ ]")
    schema = data.pop("schema", SCHEMA)
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 0:
        _refuse(f"{name}:{line_of(text, ('schema',)) or 1}", "schema is a number", f"schema = {SCHEMA}")
    if schema > SCHEMA:
        what = f"it has schema {schema}, and this clawd knows {SCHEMA}: it was written for a newer version"
        _refuse(name, what, "install that version, or go back to the file that you had")
    if schema < SCHEMA:
        _refuse(name, f"it has schema {schema}, and this clawd needs {SCHEMA}", "clawd migrate")
    return data


def _override(data: dict[str, Any], environment: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Lay `CLAWD_<TABLE>__<KEY>` over the file's values; gives which variable each came from."""
    sources: dict[tuple[str, ...], str] = {}
    for variable, value in sorted(environment.items()):
        if not variable.startswith("CLAWD_") or "__" not in variable:
            continue
        path = tuple(part.lower() for part in variable.removeprefix("CLAWD_").split("__"))
        table: Any = data
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                _refuse(f"environment {variable}", f"{part} is no table", "CLAWD_<TABLE>__<KEY>")
        table[path[-1]] = toml_value(value)
        sources[path] = variable
    return sources


def nearest(word: str, known: Iterable[str]) -> str | None:
    """What was surely meant, asked back."""
    import difflib

    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]}?" if near else None


def toml_value(text: str) -> Any:
    """A value as TOML would read it, else the text itself."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return text
    plain = len(parsed) == 1 and isinstance(parsed["value"], bool | int | float | str | list | dict)
    return parsed["value"] if plain else text


def _validated(model: type[Model], data: Any, name: str, text: str, sources: Any) -> Model:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        findings = [_finding(model, problem, name, text, sources) for problem in error.errors(include_url=False)]
        raise _error(findings) from None  # the cause would repeat the values


def _finding(model: type[BaseModel], problem: Any, name: str, text: str, sources: Any) -> Finding:
    location = tuple(str(part) for part in problem["loc"])
    variable = sources.get(location)
    *tables, key = location or ("",)
    line = line_of(text, location)
    where = f"{name}:{line}" if line else name
    where = f"environment {variable}" if variable else " ".join(filter(None, (where, _brackets(tables), key)))
    if problem["type"] == "extra_forbidden":
        known = _keys(model, tables)
        hint = nearest(key, known) or f"known here: {', '.join(known)}"
        if tables and key in _keys(model, []):
            hint = f"{key} stands at the top of the file, above the first [table]"
        return {"where": where, "what": f"{key} is no known key", "hint": hint}
    if problem["type"] == "missing":
        return {"where": where, "what": f"{key} is missing", "hint": f"add {key} = …"}
    what = _KINDS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
    return {"where": where, "what": what[0].lower() + what[1:], "hint": ""}


def _brackets(tables: list[str]) -> str:
    return f"[{'.'.join(part for part in tables if not part.isdigit())}]" if tables else ""


def _keys(model: Any, tables: list[str]) -> list[str]:
    """The keys that a table may have."""
    for part in tables:
        if _is_table(model):
            fields = model.model_fields.items()
            model = next((field.annotation for name, field in fields if part in (name, field.alias)), None)
        else:  # a name below `dict[str, X]`, an index below `list[X]` or `tuple[X, ...]`
            model = _table_in(model)
        model = model if get_origin(model) in (dict, list, tuple) else _table_in(model)
    return sorted(field.alias or name for name, field in model.model_fields.items()) if _is_table(model) else []


def _table_in(annotation: Any) -> Any:
    """The table inside of `dict[str, X]`, `list[X]`, `X | None`."""
    if _is_table(annotation):
        return annotation
    return next((found for found in map(_table_in, get_args(annotation)) if found is not None), None)


def _is_table(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _error(findings: list[Finding]) -> ConfigError:
    first, more = findings[0], len(findings) - 1
    message = f"{first['where']}: {first['what']}" + (f", and {more} more" if more else "")
    return ConfigError(message, hint=first["hint"] or None, errors=findings)


def _refuse(where: str, what: str, hint: str) -> NoReturn:
    raise _error([{"where": where, "what": what, "hint": hint}])
