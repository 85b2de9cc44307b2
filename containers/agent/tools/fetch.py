"""`fetch`: one request through the gateway, and what came back as text. A program of its own: an answer without end, or
a page that is hard to read, costs the runner nothing, and ending it ends the request. Which certificates it trusts it
finds in its environment, as any client does.

usage: fetch.py GATEWAY ARGUMENTS    where ARGUMENTS are JSON, the tool's own"""

from __future__ import annotations

import base64
import codecs
import http.client
import json
import os
import re
import socket
import sys
from contextlib import suppress
from urllib.parse import quote, urljoin, urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_IDLE = 60.0  # seconds without a byte; the tool's own timeout bounds the whole
_REDIRECTS = 5
_LOCAL = ("127.0.0.1", "localhost", "::1")
_BYTES = 4 << 20
_PIECE = 1 << 16
_TEXTS = re.compile(r"text/|application/(.*\+)?(json|xml|javascript|x-ndjson|yaml|toml|x-www-form-urlencoded)|$")


class Failed(Exception):
    """There is no answer: a sentence."""


def say(text: str) -> None:
    data = text.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(1, data) :]


class Road:
    """The gateway: its `address`, and the run's `token` as this process was given it."""

    def __init__(self, gateway: str) -> None:
        parts = urlsplit(gateway)
        self.address = (parts.hostname or "", parts.port or 80)
        self.token = os.environ.get("CLAWD_TOKEN", "")
        self.basic = "Basic " + base64.b64encode(f"claw:{self.token}".encode()).decode()


def ask(road: Road, url: str, method: str, headers: dict[str, str], body: bytes | None) -> http.client.HTTPResponse:
    """Send one request: to the gateway itself, to a server in this sandbox, or through the gateway."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failed(f"{url[:200]!r} is no address: give http://, https:// or /svc/SERVICE/…")
    host, secure = parts.hostname, parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    name = parts.netloc.rpartition("@")[2]
    target = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._") + (
        "?" + quote(parts.query, safe="/?%:@!$&'()*+,;=~-._[]") if parts.query else ""
    )
    more = {"User-Agent": "clawd", "Accept": "*/*", "Accept-Encoding": "identity"}
    ours = {"Host": name, "Connection": "close"}
    local = host in _LOCAL
    connection = http.client.HTTPConnection(*((host, port) if local else road.address), timeout=_IDLE)
    if (host, port) == road.address:
        ours["Authorization"] = f"Bearer {road.token}"
    elif not local and not secure:
        ours["Proxy-Authorization"] = road.basic
        target = f"http://{name}{target}"
    connection.connect()
    if secure:
        import ssl

        if not local:
            tunnel(connection.sock, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", road)
        connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
    if body is not None or method in ("POST", "PUT", "PATCH"):
        ours["Content-Length"] = str(len(body or b""))
    sent = {each.lower(): (each, value) for given in (more, headers, ours) for each, value in given.items()}
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    for each, value in sent.values():
        connection.putheader(each, value)
    connection.endheaders(body)
    return connection.getresponse()


def tunnel(connection: socket.socket, authority: str, road: Road) -> None:
    """Have the gateway open a tunnel. `http.client` would not say why it does not."""
    head = f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: {road.basic}\r\n\r\n"
    connection.sendall(head.encode("ascii"))
    answer = http.client.HTTPResponse(connection, method="CONNECT")
    answer.begin()
    if answer.status != 200:
        answer.length = _PIECE if answer.length is None else answer.length
        raise Failed(refusal(answer, answer.read(_PIECE)) or f"the gateway answered {answer.status}")


def refusal(answer: http.client.HTTPResponse, body: bytes) -> str | None:
    """What the gateway says of a request that it did not let through; None when this is some other answer."""
    if not (rule := answer.getheader("X-Clawd-Rule")):
        return None
    try:
        said = json.loads(body)
        message, hint = said["message"], said["hint"]
    except (ValueError, KeyError, TypeError):
        return None
    return f"the gateway refused it ({answer.status} {rule}): {message}{f' ({hint})' if hint else ''}"


def fetch(
    road: Road, url: str, method: str = "GET", headers: dict[str, Any] | None = None, body: str | None = None
) -> None:
    method = method.upper()
    data = None if body is None else body.encode()
    if not re.fullmatch("[A-Z]+", method) or method == "CONNECT":
        raise Failed(f"{method[:20]!r} is no method: GET, HEAD, POST, PUT, PATCH or DELETE")
    if not all(isinstance(value, str) for value in (headers or {}).values()):
        raise Failed('headers are texts: {"Accept": "text/html"}')
    service = url.startswith("/svc/")
    if service:
        url = "http://{}:{}{}".format(*road.address, url)
    for _ in range(_REDIRECTS + 1):
        answer = ask(road, url, method, dict(headers or {}), data)
        to = answer.headers.get("Location")
        # What a service says of its own addresses means nothing behind the gateway.
        if service or not to or answer.status not in (301, 302, 303, 307, 308):
            return show(answer, url, method)
        url, old = urljoin(url, to), urlsplit(url)
        new = urlsplit(url)
        if new.hostname in _LOCAL and old.hostname not in _LOCAL:  # nobody outside says what is asked of a service
            raise Failed(f"{old.netloc} leads to {url[:500]}, in this sandbox: that is not followed")
        if new.netloc != old.netloc:
            headers = {k: v for k, v in (headers or {}).items() if k.lower() not in ("authorization", "cookie", "host")}
        if answer.status == 303 or (answer.status < 303 and method == "POST"):
            method, data = ("HEAD" if method == "HEAD" else "GET"), None
        answer.close()
    raise Failed(f"more than {_REDIRECTS} redirects, the last one to {url[:500]}")


def show(answer: http.client.HTTPResponse, url: str, method: str) -> None:
    """Say an answer: its status, kind and address, then its text, as far as it goes."""
    kind, charset = answer.headers.get_content_type(), answer.headers.get_content_charset()
    if "Content-Type" not in answer.headers:
        kind = ""
    page = kind in ("text/html", "application/xhtml+xml")
    # A stream is said as it comes; a page is looked at for its charset, a refusal is read whole.
    first = answer.read(_PIECE) if page or answer.status >= 400 else answer.read1(_PIECE)
    if answer.status >= 400 and (refused := refusal(answer, first)):
        after = answer.headers.get("Retry-After")
        raise Failed(refused + (f" Try again in {after} s." if after else ""))
    length = answer.headers.get("Content-Length")
    say(f"{answer.status} {answer.reason} · {kind or 'no type'} · {length or '?'} bytes · {url}\n")
    if to := answer.headers.get("Location"):
        say(f"Location: {to}\n")
    if method == "HEAD":
        return
    if answer.headers.get("Content-Encoding", "identity") != "identity" or not _TEXTS.match(kind) or b"\0" in first:
        say("[It is no text. bash can keep it: curl -sSLo FILE URL]")
        return
    say("\n")
    if page:
        if charset is None and (meta := re.search(rb"<meta[^>]{0,200}charset=[\"']?([\w-]+)", first[:4096])):
            charset = meta.group(1).decode()
        sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
        from agent.tools.page import Page

        text = Page(say, url)
        whole = read(answer, first, charset, text.feed)
        text.close()
    else:
        whole = read(answer, first, charset, say)
    if not whole:
        say("\n[It is longer: this is how far it was read.]")


def read(answer: http.client.HTTPResponse, first: bytes, charset: str | None, feed: Callable[[str], object]) -> bool:
    """Feed an answer's text as it comes. False: it broke off, or `_BYTES` were read and there is more."""
    try:
        "a".encode(charset or "utf-8")  # not every codec is one of texts
    except LookupError:
        charset = None
    decode = codecs.getincrementaldecoder(charset or "utf-8")("backslashreplace").decode
    total, piece = 0, first
    with suppress(OSError, http.client.HTTPException):
        while piece and total < _BYTES:
            total += len(piece)
            feed(decode(piece))
            piece = answer.read1(_PIECE)
    feed(decode(b"", True))
    return not piece and not answer.length


def main(gateway: str, arguments: str) -> None:
    try:
        fetch(Road(gateway), **json.loads(arguments))
    except Failed as failure:
        say(f"[{failure}]")
    except (OSError, http.client.HTTPException, ValueError) as error:
        # ValueError: a header, a port or a host that cannot be sent
        say(f"[It cannot be fetched: {error or type(error).__name__}]")


if __name__ == "__main__":
    main(*sys.argv[1:])
