"""Changing one value of a person's TOML file, with its comments and order kept; nothing invalid is ever
written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clawd.config.load import parse_group, toml_value
from clawd.errors import ConfigError, UsageError
from clawd.files import write_atomic

_ALONE = threading.Lock()  # two edits at once would lose one of them
_NONE: Mapping[str, Sequence[Any]] = {}


def set_value(path: Path, key: str, value: str) -> None:
    """Set `key` (dotted: `model.engine`) in a `group.toml`, which is made when there is none.

    `value` is read as TOML where it is TOML (`true`, `3`, `["a"]`), else taken as text. Raises UsageError for
    a key that cannot be; ConfigError when the file would not be valid with it, or is not now: then it stays
    as it is.
    """
    try:
        change(path, {key: toml_value(value)})
    except ConfigError as error:
        if not (error.errors and error.errors[0]["what"].endswith("valid string")):
            raise
        change(path, {key: value})  # `name = 7` was meant as text


def change(path: Path, values: Mapping[str, Any], more: Mapping[str, Sequence[Any]] = _NONE) -> None:
    """Set all of these keys in one write, or take them out where the value is None; `more` is added to lists. Raises
    the same, and OSError."""
    with _ALONE:
        _change(path, values, more)


def remove(path: Path, key: str, is_it: Callable[[Any], bool]) -> None:
    """Take the items of a list out of which this is said. Raises the same."""
    with _ALONE:
        import tomlkit

        document = tomlkit.parse(path.read_text("utf-8"))
        for place in reversed(range(len(document.get(key, ())))):
            if is_it(document[key][place].unwrap()):
                del document[key][place]
        if key in document and not document[key]:
            del document[key]
        changed = tomlkit.dumps(document)
        _write(path, f"{changed.rstrip(chr(10))}\n" if changed.endswith("\n\n") else changed)


def _change(path: Path, values: Mapping[str, Any], more: Mapping[str, Sequence[Any]]) -> None:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import AoT

    text = path.read_text("utf-8") if path.exists() else "schema = 1\n"
    parse_group(text)
    document = tomlkit.parse(text)
    for key, value in values.items():
        try:
            _set(document, key, value)
        except TOMLKitError as error:
            raise UsageError(f"{key!r} cannot be set: {error}") from error
    tables = ""  # they stand last: the comment before a table would be taken for the end of the one before it
    for key, items in more.items():
        if isinstance(items[0], Mapping) and isinstance(document.get(key, AoT([])), AoT):
            tables += "".join(f"\n{tomlkit.dumps({key: [each]})}" for each in items)
            continue
        if key not in document:
            _set(document, key, [])
        document[key].extend(map(_inline, items))
    changed = tomlkit.dumps(document)
    _write(path, f"{changed}{'' if changed.endswith(chr(10)) or not tables else chr(10)}{tables}")


def _write(path: Path, changed: str) -> None:
    parse_group(changed)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    write_atomic(path, changed.encode(), mode)


def _inline(item: Any) -> Any:
    import tomlkit

    if not isinstance(item, Mapping):
        return item
    table = tomlkit.inline_table()
    table.update(item)
    return table


def _set(document: Any, key: str, value: Any) -> None:
    import tomlkit
    from tomlkit.items import AbstractTable

    *parents, last = (part.strip() for part in key.split("."))
    if not (last and all(parents)):
        raise UsageError(f"{key!r} is no key", hint="write it like model.engine")
    table = document
    for part in parents:
        if part not in table:
            if value is None:
                return
            table[part] = tomlkit.table()
        table = table[part]
        if not isinstance(table, AbstractTable):
            raise UsageError(f"{part} in {key!r} is no table")
    if value is not None:
        table[last] = value
    elif last in table:
        del table[last]
