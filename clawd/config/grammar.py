"""How a host, a port, a path and a rule for paths are written: one grammar, for what a person configures and for what a
request asks for. Pure; a ValueError says what is wrong.

Nothing is repaired but the case and one trailing dot of a host. What a server could read in another way than we do is
refused: then what was judged is what arrives.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Literal
from urllib.parse import unquote_to_bytes

Scheme = Literal["http", "https"]
PORTS: dict[Scheme, int] = {"http": 80, "https": 443}

_SERVICE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::(.*))?", re.DOTALL)
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_BASE = re.compile(r"(https?)://([^/]*)(/.*)?", re.DOTALL)
_PATH = re.compile(r"(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*)+")
_QUERY = re.compile(r"""([A-Za-z0-9._~!$&'()*+,;=:@/?\[\]{}|^`-]|%[0-9A-Fa-f]{2})*""")
# . / \ % and controls have no business behind a percent sign
_HIDDEN = re.compile(r"%(2e|2f|5c|25|[01].|7f)", re.IGNORECASE)
_FOLDED = re.compile(r"[\x00-\x1f\x7f-\x9f/\\]|%[0-9A-Fa-f]{2}")


def service_name(text: str) -> str:
    """The same name, if a service may have it: it stands in paths and in names of variables."""
    if not _SERVICE.fullmatch(text):
        raise ValueError(f"{text!a} cannot be a service's name: a-z, 0-9, - and _, beginning with a letter or digit")
    return text


def host(text: str) -> str:
    """A host in its one form: lower case, no trailing dot, no brackets. Numbers pass as they are: see `is_address`."""
    if text.startswith("["):
        try:
            return IPv6Address(text[1:-1] if "%" not in text and text.endswith("]") else "").compressed
        except ValueError:
            raise ValueError(f"{text!a} is no IPv6 address") from None
    name = text.lower().removesuffix(".") if text.isascii() else ""
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) and not label.startswith("xn--") for label in labels):
        raise ValueError(f"{text[:80]!a} is no host name: letters, digits and - between dots, no other scripts")
    return name


def is_address(host: str) -> bool:
    """Whether a resolver would take it for a number, in any of the ways to write one."""
    return ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def is_canonical(host: str) -> bool:
    """Whether an address is written in its one form: 127.0.0.1, never 127.1 or 0x7f000001."""
    try:
        return str(ip_address(host)) == host or IPv6Address(host).compressed == host
    except ValueError:
        return False


def authority(text: str) -> tuple[str, int | None]:
    """`host` or `host:port`."""
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!a} is not host:port")
    return host(match[1]), None if match[2] is None else port(match[2])


def port(text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65_535:
        raise ValueError(f"{text[:80]!a} is no port: 1 to 65535")
    return int(text)


def path(text: str) -> str:
    """The same path. Each of its segments has one reading alone, whoever decodes it, and how often."""
    if not _PATH.fullmatch(text) or _HIDDEN.search(text):
        raise ValueError("the path is not plain: no \\ # or control, and no . / \\ or % behind a percent sign")
    segments = text[1:].split("/")
    for segment in segments if segments[-1] else segments[:-1]:
        plain = decoded(segment)
        for form in (plain, unicodedata.normalize("NFKC", plain)):
            if not form.partition(";")[0].strip(". "):
                raise ValueError("the path has a segment that is empty or of dots alone")
            if _FOLDED.search(form):
                raise ValueError("the path hides a separator")
    return text


def decoded(segment: str) -> str:
    """What a segment says."""
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        raise ValueError("the path is not UTF-8") from None


def query(text: str) -> str:
    """The same query, without its `?`."""
    if not _QUERY.fullmatch(text):
        raise ValueError("the query has characters that must be percent-encoded")
    return text


# -- what a person writes --


@lru_cache(maxsize=256)
def base(url: str) -> tuple[Scheme, str, int, str]:
    """(scheme, host, port, path without a trailing slash) of a base_url."""
    if "?" in url or "#" in url:
        raise ValueError("base_url has no ? and no #")
    match = _BASE.fullmatch(url)
    if match is None or "@" in match[2]:
        raise ValueError('base_url is like "https://api.example.org" or "http://127.0.0.1:8000/path"')
    scheme: Scheme = "http" if match[1] == "http" else "https"
    name, given = authority(match[2])
    return scheme, _named(name), given or PORTS[scheme], path(match[3] or "/").removesuffix("/")


@lru_cache(maxsize=1024)
def host_rule(text: str) -> tuple[str, int | None]:
    """(host, port or None) of an entry of `hosts`: `name`, `*.name`, `*`, each with a port where it has one."""
    if "/" in text:
        raise ValueError(f'{text[:80]!a} is no host: write its name alone, like "files.example.org", or a base_url')
    if text == "*" or text.startswith("*:"):
        return "*", port(text[2:]) if text[1:] else None
    if not text.startswith("*."):
        name, given = authority(text)
        return _named(name), given
    name, given = authority(text[2:])
    if is_address(name) or "." not in name:
        raise ValueError(f"{text[:80]!a} is too wide: * stands for the subdomains of a domain, like *.example.org")
    return f"*.{name}", given


def _named(name: str) -> str:
    if is_address(name) and not is_canonical(name):
        raise ValueError(f"{name!a} is an address in disguise: write it like 127.0.0.1")
    return name


def path_rule(text: str) -> str:
    """The same rule: a path, in which `*` may stand for one whole segment, and at the end for one or more."""
    if text == "/":
        return text
    if not text.startswith("/"):
        raise ValueError(f'{text[:80]!a} is no rule for paths: write it from / on, like "/v1"')
    try:
        path(text)
    except ValueError as error:
        raise ValueError(f"{text[:80]!a} is no rule for paths: {error}") from None
    if text.endswith("/"):
        raise ValueError(f'write "{text[:-1]}" for it and all below it, or "{text}*" for what is below it alone')
    if any("*" in segment and segment != "*" for segment in text.split("/")):
        raise ValueError(f"{text[:80]!a}: * stands for a whole segment")
    return text


def matches(rule: str, path: str) -> bool:
    """Whether a path is what a rule names, or below it, by whole segments."""
    named, asked = rule.strip("/").split("/"), path.strip("/").split("/")
    if rule == "/":
        return True
    return len(asked) >= len(named) and all(
        a == n or (n == "*" and a != "") for n, a in zip(named, asked, strict=False)
    )
