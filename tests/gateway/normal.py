"""What a lenient server would make of a path, and a lenient client of a host: written apart from ours."""

from __future__ import annotations

import re
import socket
import unicodedata
from ipaddress import IPv6Address, ip_address
from urllib.parse import unquote


def path(text: str) -> str:
    """Percent-decoded until nothing changes, backslashes as slashes, parameters cut, slashes and dots collapsed."""
    before = None
    while before != text:
        before, text = text, unicodedata.normalize("NFKC", unquote(text, errors="replace")).replace("\\", "/")
    kept: list[str] = []
    for segment in text.partition("#")[0].split("/"):
        name = segment.partition(";")[0].strip()
        if name == "..":
            kept[-1:] = []
        elif name not in ("", "."):
            kept.append(name)
    return "/" + "/".join(kept)


def host(text: str) -> str:
    """As a browser and a resolver would have it."""
    name = unicodedata.normalize("NFKC", text).lower().replace("。", ".").removesuffix(".")
    if name.startswith("["):
        return IPv6Address(name[1:-1]).compressed
    try:
        name = name.encode("idna").decode() if not name.isascii() else name
    except UnicodeError:
        return ""
    return name


def address(text: str) -> str | None:
    """The address that the C library reads in it, None when it would have to ask somebody."""
    try:
        found = socket.getaddrinfo(text, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return str(ip_address(found[0][4][0].partition("%")[0]))
    except (OSError, UnicodeError, ValueError):
        return None


def below(rule: str, asked: str) -> bool:
    """Whether a normal path is what a rule without a star names, or below it."""
    return re.match(re.escape(rule.rstrip("/")) + r"(/|$)", asked) is not None
