"""mmkr's agents: a recorder of live ticks, traces made into sessions, capabilities made into skills."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = [
    "PythonClawCollector",
    "capability_to_skill_metadata",
    "convert_trace_to_pythonclaw",
    "pythonclaw_session_stats",
]

_WHERE = {
    "PythonClawCollector": "collector",
    "capability_to_skill_metadata": "skills",
    "convert_trace_to_pythonclaw": "convert",
    "pythonclaw_session_stats": "stats",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
