"""Where a request asks to go: parsed once, from the bytes of its first line, before any rule is looked at.

Nothing is repaired. What could be read in two ways is refused, and what is accepted is sent on byte for byte.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from clawd.config import grammar
from clawd.config.grammar import PORTS
from clawd.config.grammar import Scheme as Scheme

Shape = Literal["route", "plain", "tunnel"]
_ROUTE = re.compile(r"/svc/([^/?]*)(.*)", re.DOTALL)


class Malformed(Exception):
    """A target that no honest client writes: 400. `rule` names what is wrong with it."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule, self.message = rule, message


@dataclass(frozen=True, slots=True)
class Target:
    """`route`: `/svc/<service>/…`, whose host the service decides. `plain`: absolute-form. `tunnel`: CONNECT, alone
    (`path` is empty) or a request inside. `host` is lower case, without a trailing dot; an IPv6 address without
    brackets; a number as it was written. `path` (from its `/` on, empty for `/svc/<service>` alone) and `query`
    (without `?`) are raw ASCII, as they will be sent."""

    shape: Shape
    service: str = ""
    scheme: Scheme = "https"
    host: str = ""
    port: int = 0
    path: str = ""
    query: str = ""


def parse(method: str, raw: str | bytes) -> Target:
    """The target of a request on a run's socket. Raises Malformed."""
    text = _ascii(raw)
    try:
        if method == "CONNECT":
            host, port = grammar.authority(text)
            if port is None:
                raise ValueError("CONNECT needs host:port")
            return Target("tunnel", "", "https", host, port)
        if route := _ROUTE.fullmatch(text):
            path, query = _origin(route[2])
            return Target("route", grammar.service_name(route[1]), path=path, query=query)
        for scheme, port in PORTS.items():
            if text.startswith(f"{scheme}://"):
                authority, slash, rest = text.removeprefix(f"{scheme}://").partition("/")
                host, given = grammar.authority(authority)
                path, query = _origin(slash + rest or "/")
                return Target("plain", "", scheme, host, given or port, path, query)
    except ValueError as error:
        raise Malformed("malformed", str(error)) from None
    raise Malformed("malformed", "a request goes to /svc/<service>/…, to http://…, or through CONNECT host:port")


def inside(tunnel: Target, raw: str | bytes) -> Target:
    """The target of a request in a tunnel: its path alone; where it goes was said by CONNECT. Raises Malformed."""
    try:
        path, query = _origin(_ascii(raw))
    except ValueError as error:
        raise Malformed("malformed", str(error)) from None
    if not path:
        raise Malformed("malformed", "a request in a tunnel has a path alone")
    return replace(tunnel, path=path, query=query)


def _ascii(raw: str | bytes) -> str:
    text = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    if not text.isascii():
        raise Malformed("malformed", "the target is not ASCII")
    return text


def _origin(text: str) -> tuple[str, str]:
    """(path, query); a text without a path has none. A `?` with nothing behind it would not arrive."""
    path, mark, query = text.partition("?")
    if mark and not query:
        raise ValueError("the query is empty")
    return grammar.path(path) if path else "", grammar.query(query)
