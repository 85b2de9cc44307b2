"""A request that the real API would not take."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any


class Refused(Exception):
    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


def need(condition: Any, message: str) -> None:
    if not condition:
        raise Refused(message)


def known(value: Any, names: Iterable[str] | str, where: str) -> None:
    names = names.split() if isinstance(names, str) else names
    need(isinstance(value, dict), f"{where}: must be an object")
    for name in value:
        need(name in names, f"{where}.{name}: Extra inputs are not permitted")


def named(name: Any, most: int, where: str) -> None:
    good = isinstance(name, str) and re.fullmatch(rf"[a-zA-Z0-9_-]{{1,{most}}}", name)
    need(good, f"{where}: should match pattern ^[a-zA-Z0-9_-]{{1,{most}}}$")


def spoken(text: Any, where: str) -> None:
    need(isinstance(text, str) and text.strip(), f"{where}: text must be non-empty and hold more than whitespace")
