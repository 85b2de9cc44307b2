"""Where the data that ships with the program lies: in a clone beside the package, in a wheel under `clawd/_data`."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The path of shipped data, `containers/agent`, `skills`, `examples` or `config.example.toml`."""
    inside = _PACKAGE / "_data" / name
    return inside if inside.exists() else _PACKAGE.parent / name
