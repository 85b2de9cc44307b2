"""Changing one value of a person's TOML file, with its comments and order kept; nothing invalid is ever
written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clawd.config.load import parse_group, toml_value
from clawd.errors import ConfigError, UsageError
from clawd.files import write_atomic


def set_value(path: Path, key: str, value: str) -> None:
    """Set `key` (dotted: `model.engine`) in a `group.toml`, which is made when there is none.

    `value` is read as TOML where it is TOML (`true`, `3`, `["a"]`), else taken as text. Raises UsageError for
    a key that cannot be; ConfigError when the file would not be valid with it, or is not now: then it stays
    as it is.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import AbstractTable

    parts = [part.strip() for part in key.split(".")]
    if not all(parts):
        raise UsageError(f"{key!r} is no key", hint="write it like model.engine")
    text = path.read_text("utf-8") if path.exists() else "schema = 1\n"
    parse_group(text)
    document = tomlkit.parse(text)
    table: Any = document
    try:
        for part in parts[:-1]:
            if part not in table:
                table[part] = tomlkit.table()
            table = table[part]
            if not isinstance(table, AbstractTable):
                raise UsageError(f"{part} in {key!r} is no table")
        table[parts[-1]] = toml_value(value)
    except TOMLKitError as error:
        raise UsageError(f"{key!r} cannot be set: {error}") from error
    changed = tomlkit.dumps(document)
    try:
        parse_group(changed)
    except ConfigError as error:
        if error.errors[0]["what"].endswith("valid string"):  # `name = 7` was meant as text
            table[parts[-1]] = value
            changed = tomlkit.dumps(document)
            parse_group(changed)
        else:
            raise
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    write_atomic(path, changed.encode(), mode)
