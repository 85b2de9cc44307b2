"""Where a request asks to go: parsed once, from the bytes of its first line, before any rule is looked at.

Nothing is repaired. What could be read in two ways is refused, and what is accepted is sent on byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shape = Literal["route", "plain", "tunnel"]
Scheme = Literal["http", "https"]


class Malformed(Exception):
    """A target that no honest client writes: 400. `rule` names what is wrong with it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule, self.message = rule, message


@dataclass(frozen=True, slots=True)
class Target:
    """`route`: `/svc/<service>/…`, whose host the service decides. `plain`: absolute-form `http://`. `tunnel`: CONNECT,
    alone (`path` is empty) or a request inside. `host` is lower case, without a trailing dot; an IPv6 address without
    brackets. `path` (from its `/` on) and `query` (without `?`) are raw ASCII, as they will be sent."""

    shape: Shape
    service: str = ""
    scheme: Scheme = "https"
    host: str = ""
    port: int = 0
    path: str = ""
    query: str = ""
