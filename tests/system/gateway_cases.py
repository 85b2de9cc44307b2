"""The cases of the gateway on the wire, as data: what a process in a sandbox sends, what it must be answered, and how
many requests an upstream may see of it. Each allowed one has a twin that is refused. Numbers in names are those of the
threat list that they come from."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

Step = dict[str, Any]
UP = "*"  # the rule of an answer that is the upstream's own
AUTH = "Authorization: Bearer {token}"
PROXY = "Proxy-Authorization: Basic {basic}"


@dataclass(frozen=True)
class Case:
    """`ends` are (status, rule) of each answer in order; with `tls_fails` there is none after the handshake. Upstreams
    see `arrives` requests of it; `lines` are the (verdict, rule, status) that the audit has, if not those of `ends`."""

    id: str
    steps: tuple[Step, ...]
    ends: tuple[tuple[int, str], ...]
    arrives: int = 0
    lines: tuple[tuple[str, str, int], ...] | None = None
    via: str = "tcp"
    slow: bool = False
    tls_fails: bool = False

    @property
    def audited(self) -> tuple[tuple[str, str, int], ...]:
        if self.lines is not None:
            return self.lines
        return tuple(("allow" if rule == UP else "deny", "granted" if rule == UP else rule, s) for s, rule in self.ends)


def head(case: str, first: str, *headers: str, host: str = "127.0.0.1:8080", close: bool = True) -> str:
    """A request's head. A header that is empty is left out."""
    lines = [first, *([f"Host: {host}"] if host else []), f"X-Case: {case}", *filter(None, headers)]
    return "\r\n".join([*lines, *(["Connection: close"] if close else []), "", ""])


def method_of(text: str) -> str:
    return text.partition(" ")[0]


def one(case: str, text: str, status: int, rule: str = UP, **more: Any) -> Case:
    """A single request and its answer."""
    steps = ({"send": text}, {"read": method_of(text)})
    return Case(case, steps, ((status, rule),), arrives=int(rule == UP), **more)


def left(case: str, text: str, status: int, rule: str = UP) -> Case:
    """One whose client leaves, for the other side would keep the connection."""
    made = one(case, text, status, rule)
    return replace(made, steps=(*made.steps, {"drop": 0}))


def route(case: str, path: str, status: int, rule: str = UP, *headers: str, **more: Any) -> Case:
    """GET (or another method before a space) to /svc/…, with the run's token."""
    method, _, target = path.rpartition(" ")
    body = more.pop("body", "")
    length = f"Content-Length: {len(body)}" if body else ""
    auth = () if more.pop("bare", False) else (AUTH,)
    text = head(case, f"{method or 'GET'} /svc/{target} HTTP/1.1", *auth, length, *headers) + body
    return one(case, text, status, rule, **more)


def proxied(case: str, first: str, status: int, rule: str = UP, *headers: str, host: str, **more: Any) -> Case:
    """An absolute-form or CONNECT request, with the run's token."""
    return one(case, head(case, f"{first} HTTP/1.1", PROXY, *headers, host=host), status, rule, **more)


def connect(case: str, authority: str, status: int, rule: str, **more: Any) -> Case:
    return proxied(case, f"CONNECT {authority}", status, rule, host="x", **more)


def tunnel(case: str, authority: str, *inner: tuple[str, int, str], sni: str | None = "", **more: Any) -> Case:
    """CONNECT, TLS, and requests inside: (text, status, rule) each."""
    name = authority.partition(":")[0]
    alpn, unchecked = more.pop("alpn", None), more.pop("unchecked", False)
    options = {"sni": name if sni == "" else sni, "alpn": alpn, "unchecked": unchecked}
    steps: list[Step] = [
        {"send": head(case, f"CONNECT {authority} HTTP/1.1", PROXY, host=authority, close=False)},
        {"read": "CONNECT"},
        {"tls": options},
    ]
    for text, _, _ in inner:
        steps += [{"send": text}, {"read": method_of(text)}]
    ends = ((200, UP), *((status, rule) for _, status, rule in inner))
    arrives = sum(rule == UP for _, _, rule in inner)
    return Case(case, tuple(steps), ends, arrives, **more)


def inside(case: str, first: str, host: str, *headers: str, close: bool = True) -> str:
    return head(case, f"{first} HTTP/1.1", *headers, host=host, close=close)


def cases() -> Iterator[Case]:
    yield from allowed()
    yield from identities()
    yield from targets()
    yield from smuggling()
    yield from hosts()
    yield from paths()
    yield from addresses()
    yield from upgrades()
    yield from services()
    yield from tunnels()


API = "api.anthropic.com"
MESSAGES = "anthropic/v1/messages"


def allowed() -> Iterator[Case]:
    yield route("plain route", MESSAGES, 200)
    yield route("route over the socket itself", MESSAGES, 200, via="unix")
    yield route("post with a body", f"POST {MESSAGES}", 200, body='{"model": "x"}')
    yield route("head", f"HEAD {MESSAGES}", 200)
    yield route("query", f"{MESSAGES}?beta=true&x=%20y", 200)
    yield route("allowed with its base", "tool/v1/run", 200)
    yield route("key in the query", "query/x?a=b&key=mine&c=d", 200)
    yield route("a local service over http", "local/x", 200)
    yield proxied("absolute http without a key", "GET http://plain.example.org/x", 200, host="plain.example.org")
    yield tunnel("tunnel", f"{API}:443", (inside("tunnel", "GET /v1/messages", API), 200, UP))
    two = (
        (inside("two in a tunnel", "GET /v1/messages", API, close=False), 200, UP),
        (inside("two in a tunnel", "GET /v1/models", API), 200, UP),
    )
    yield tunnel("two in a tunnel", f"{API}:443", *two)
    chunks = "4\r\nabcd\r\n0\r\n\r\n"
    yield one(
        "chunked body",
        head("chunked body", f"POST /svc/{MESSAGES} HTTP/1.1", AUTH, "Transfer-Encoding: chunked") + chunks,
        200,
    )


def identities() -> Iterator[Case]:
    """26, 28: who asks, and with what."""
    yield route("28 no token", MESSAGES, 403, "no_token", bare=True)
    yield route("28 nobody's token", MESSAGES, 403, "no_token", f"X-Api-Key: claw-{'A' * 43}", bare=True)
    yield route("28 a key that is none", MESSAGES, 403, "no_token", "X-Api-Key: sk-ant-api03-mine", bare=True)
    yield route("28 a token cut short", MESSAGES, 403, "no_token", "X-Api-Key: {short}", bare=True)
    for where in ("Authorization: Bearer {}", "X-Api-Key: {}", "X-Api-Key: sk-ant-api03-{}", "Api_Key: {}"):
        mine, foreign = where.format("{token}"), where.format("{foreign}")
        yield route(f"26 {where}", MESSAGES, 200, UP, mine, bare=True)
        yield route(f"28 another run's, {where}", MESSAGES, 403, "cross_group_token", foreign, bare=True)
    yield route("28 mine and another run's", MESSAGES, 403, "cross_group_token", "X-Api-Key: {foreign}")
    yield route("28 one that ended", MESSAGES, 403, "no_token", "X-Api-Key: {dead}", bare=True)
    yield route("26 basic", MESSAGES, 200, UP, "Authorization: Basic {basic}", bare=True)
    many = ("X_Api_Key: mine", "x-api-key: mine2", "Cookie: a=b", "Proxy-Authorization: Basic {basic}", "Api-Key: k")
    yield route("26 keys of its own", MESSAGES, 200, UP, *many)
    yield route("ungranted", "openrouter/v1/models", 403, "not_granted")
    yield route("unknown", "nothing/v1", 403, "unknown_service")
    yield connect("28 tunnel, not granted", "openrouter.ai:443", 403, "not_granted")
    yield one(
        "28 tunnel without a token",
        head("28 tunnel without a token", f"CONNECT {API}:443 HTTP/1.1", host=API),
        403,
        "no_token",
    )
    yield one(
        "28 tunnel, another run's",
        head(
            "28 tunnel, another run's", f"CONNECT {API}:443 HTTP/1.1", "Proxy-Authorization: Bearer {foreign}", host=API
        ),
        403,
        "cross_group_token",
    )
    foreign = (inside("28 foreign inside", "GET /v1/messages", API, "X-Api-Key: {foreign}"), 403, "cross_group_token")
    yield tunnel("28 foreign inside", f"{API}:443", foreign)
    # a placeholder where it does not belong
    misuse = (403, "placeholder_misuse")
    yield route("vendor's own", "openai/v1/models", 200, UP, "Authorization: Bearer sk-proj-{token}", bare=True)
    yield route(
        "another vendor's", "openai/v1/models", *misuse, "Authorization: Bearer sk-ant-api03-{token}", bare=True
    )
    yield route("in the query", f"{MESSAGES}?key={{token}}", *misuse)
    yield route("in the query, shaped", f"{MESSAGES}?key=sk-ant-api03-{{token}}", *misuse)
    yield route("in the path", f"{MESSAGES}/{{token}}", *misuse)
    yield route("in another header", MESSAGES, *misuse, "X-Note: sk-ant-api03-{token}")
    sized = len('{"key": "sk-ant-api03-claw-"}') + 43
    text = head("in the body", f"POST /svc/{MESSAGES} HTTP/1.1", AUTH, f"Content-Length: {sized}")
    yield one("in the body", text + '{"key": "sk-ant-api03-{token}"}', *misuse)
    yield proxied(
        "in an absolute request",
        "GET http://plain.example.org/x",
        *misuse,
        "Authorization: Bearer {token}",
        host="plain.example.org",
    )


def targets() -> Iterator[Case]:
    """5, 6, 11, 14, 16: the request line."""
    bad = (400, "malformed")
    yield proxied(
        "5 http to nobody's host", "GET http://evil.example.net/", 403, "not_granted", host="evil.example.net"
    )
    yield proxied("5 the same, with a granted Host", "GET http://evil.example.net/", 421, "host_mismatch", host=API)
    yield proxied("5 and the reverse", "GET http://plain.example.org/", 421, "host_mismatch", host="evil.example.net")
    yield proxied("5 a key over http", f"GET http://{API}/v1/messages", 403, "scheme", host=API)
    yield proxied("5 https in cleartext", f"GET https://{API}/v1/messages", 403, "scheme", host=API)
    for n, path in enumerate(("//evil.example.net/x", "/%2f/evil.example.net", "/\\evil.example.net", "/v1//messages")):
        yield route(f"6 path {n}", f"anthropic{path}", *bad)
    first = (
        *("GET @evil.example.net/", "GET evil.example.net/", "GET svc/anthropic/v1/messages", "GET *"),
        *(f"GET http://{API}@evil.example.net/", "GET http://user:pass@plain.example.org/x", "GET http:///x"),
        *("GET http://plain.example.org/x#y", "GET http://plain.example.org\\@evil.example.net/", "GET ftp://x/y"),
        *("GET http://plain.example.org:80:80/", "GET http://plain.example.org:/x", "GET http:/plain.example.org/x"),
        *("GET /svc/anthropic/v1/messages#x", "GET /svc/anth%72opic/v1/messages", "GET /svc//v1/messages"),
        "GET //svc/anthropic/v1/messages",
        "GET /svc/../svc/anthropic/v1/messages",
    )
    for n, line in enumerate(("GET /SVC/anthropic/v1/messages", "GET /svc")):
        yield one(f"14 no service {n}", head("14", f"{line} HTTP/1.1", AUTH), 404, "not_found", lines=())
    for n, line in enumerate(first):
        yield one(f"14 {n} {line}", head(f"14 {n}", f"{line} HTTP/1.1", AUTH, PROXY), *bad)
    yield route("11 TRACE", f"TRACE {MESSAGES}", 405, "method")
    yield route("11 TRACK", f"TRACK {MESSAGES}", *bad)  # a method that no parser knows
    text = inside("11 TRACE inside", "TRACE /v1/messages", API)
    yield tunnel("11 TRACE inside", f"{API}:443", (text, 405, "method"))
    yield route("11 a method that is not let through", f"DELETE {MESSAGES}", 403, "method")
    yield route("11 a method that is let through", "DELETE tool/v1/run", 200)
    yield one("11 OPTIONS *", head("11 OPTIONS *", "OPTIONS * HTTP/1.1", AUTH), *bad)
    for n, path in enumerate(("%0d%0aX: y", "%00", "a\tb", "a\x7f", "\xe4", "a%0a", "%zz", "%")):
        yield route(f"16 path {n}", f"{MESSAGES}/{path}", *bad)
    for n, value in enumerate(("a\rb", "a\0b", "a\x0bb")):
        yield route(f"16 value {n}", MESSAGES, *bad, f"X-Value: {value}")
    yield connect("16 a host with a line in it", f"{API}%0d%0a:443", *bad)


def smuggling() -> Iterator[Case]:
    """7: what could be read as one request or as two. The second would be seen as an arrival of `7`."""
    second = "GET /svc/anthropic/v1/models HTTP/1.1\r\nHost: x\r\nX-Case: 7\r\nAuthorization: Bearer {token}\r\n\r\n"
    spellings = (
        *("Transfer-Encoding: xchunked", "Transfer-Encoding : chunked", "Transfer-Encoding: chunked, identity"),
        *("Transfer-Encoding: identity, chunked", "Transfer-Encoding:\x0bchunked", "Transfer-Encoding: \x00chunked"),
        *("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "X: y\r\n Transfer-Encoding: chunked"),
        *("Transfer-Encoding\r\n: chunked", "Transfer-Encoding: CHUNKED, chunked", "Transfer-Encoding: gzip, chunked"),
    )
    kinds = {
        "CL.TE": ("Content-Length: {length}\r\nTransfer-Encoding: chunked", f"0\r\n\r\n{second}"),
        "TE.CL": ("Transfer-Encoding: chunked\r\nContent-Length: 4", f"1\r\nZ\r\n0\r\n\r\n{second}"),
        "CL.CL": ("Content-Length: 0\r\nContent-Length: {length}", second),
        "CL equal": ("Content-Length: 3\r\nContent-Length: 3", "abc"),
        "CL +": ("Content-Length: +3", "abc"),
        "CL list": ("Content-Length: 3, 3", "abc"),
        "CL -": ("Content-Length: -1", second),
        "no host": ("", ""),
        "two hosts": ("Host: y", ""),
        "folded": ("X: y\r\n z", ""),
        "a chunk that is none": ("Transfer-Encoding: chunked", f"zz\r\n{second}"),
        **{f"TE {n}": (line, f"0\r\n\r\n{second}") for n, line in enumerate(spellings)},
    }
    for name, (lines, body) in kinds.items():
        case, headers = f"7 {name}", lines.replace("{length}", str(len(body)))
        host = "" if name == "no host" else "x"
        text = head(case, f"POST /svc/{MESSAGES} HTTP/1.1", AUTH, headers, host=host, close=False) + body
        yield Case(case, ({"send": text}, {"read": "POST"}), ((400, "malformed"),))
    for name, text in {"bare LF": "\n", "h2 preface": "PRI"}.items():
        lines = head(f"7 {name}", f"GET /svc/{MESSAGES} HTTP/1.1", AUTH).replace("\r\n", "\n")
        preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        steps = ({"send": lines if text == "\n" else preface}, {"read": "GET"})
        yield Case(f"7 {name}", steps, ((400, "malformed"),))
    long = head("7 a long head", f"GET /svc/{MESSAGES} HTTP/1.1", AUTH, f"X-Long: {'x' * 30_000}")
    yield Case("7 a long head", ({"send": long}, {"read": "GET"}), ((400, "malformed"),))


def hosts() -> Iterator[Case]:
    """15, 17, 18: names and ports of CONNECT."""
    bad = (400, "malformed")
    for port in (22, 25, 80, 8443):
        yield connect(f"15 port {port}", f"{API}:{port}", 403, "port")
    for authority in (
        f"{API}:0",
        f"{API}:65536",
        API,
        f"{API}:443:443",
        f"{API}:",
        ":443",
        f"{API}:+443",
        f"{API}: 443",
    ):
        yield connect(f"15 {authority}", authority, *bad)
    for name in ("API.Anthropic.com", f"{API}.", "Api.anthropic.COM."):
        text = inside(f"17 {name}", "GET /v1/messages", API)
        yield tunnel(f"17 {name}", f"{name}:443", (text, 200, UP), sni=API)
    odd = ("xn--pi-2db.anthropic.com", "\xc3\xa4pi.anthropic.com", "\xe2\x93\x90pi.anthropic.com", f"{'a' * 300}.com")
    odder = (f"{API}..", f".{API}", "api..anthropic.com", "-api.anthropic.com", "api_.anthropic.com", f"evil%00.{API}")
    for n, name in enumerate((*odd, *odder, f"user@{API}", "[api.anthropic.com]", f"{API}%2f")):
        yield connect(f"17 {n}", f"{name}:443", *bad)
    yield connect("17 a NUL in it", f"evil\0.{API}:443", *bad)
    for name in (f"evil-{API}.example.net", "xapi.anthropic.com", "anthropic.com", "evil.example.net"):
        yield connect(f"18 {name}", f"{name}:443", 403, "not_granted")
    for name in ("one.example.com", "two.one.example.com"):
        yield tunnel(f"18 {name}", f"{name}:443", (inside(f"18 {name}", "GET /", name), 200, UP))
    for name in ("example.com", "badexample.com", "one.example.com.example.net"):
        yield connect(f"18 {name}", f"{name}:443", 403, "not_granted")
    yield connect("18 the star itself", "*.example.com:443", *bad)


def paths() -> Iterator[Case]:
    """19: `tool` takes /v1/* and /only."""
    for path in ("v1/x", "v1/x/y", "v1/x%20y", "only", "only/x", "v1/a;b=c"):
        yield route(f"19 {path}", f"tool/{path}", 200)
    for path in ("v1", "v10/x", "onl", "onlyx", "", "x", "V1/x"):
        yield route(f"19 {path or 'nothing'}", f"tool/{path}", 403, "path")
    for path in (
        *("v1/../admin", "v1/%2e%2e/admin", "v1/..%2fadmin", "v1/%252e%252e/", "v1\\..\\", "v1;/..", "v1/.", "v1/./x"),
        *(
            "v1/..;/admin",
            "v1/...",
            "v1/%2E./x",
            "v1/x%5cy",
            "v1/x%2Fy",
            "v1/x%00",
            "v1//x",
            "v1/.%2e/x",
            "v1/%c0%ae%c0%ae/x",
        ),
    ):
        yield route(f"19 {path}", f"tool/{path}", 400, "malformed")
    text = inside("19 inside, beside the base", "GET /v1/x", "tool.example.org")
    yield tunnel("19 inside, beside the base", "tool.example.org:443", (text, 403, "path"))
    text = inside("19 inside", "GET /base/v1/x", "tool.example.org")
    yield tunnel("19 inside", "tool.example.org:443", (text, 200, UP))
    for path in ("oauth/token", "oauth/access_token"):
        yield route(f"39 {path}", f"POST tool/{path}", 403, "token_endpoint", body="x")


def addresses() -> Iterator[Case]:
    """12, 13: nobody's address is dialled but the checked one."""
    not_there = (403, "address_not_allowed")
    literal = (
        *("169.254.169.254", "100.100.100.200", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "127.0.0.2", "[::1]"),
        *("[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "127.1"),
        *("0", "0.0.0.0", "[::]", "10.0.0.1", "{own}"),
    )
    for address in literal:
        yield connect(f"13 {address}", f"{address}:443", *not_there)
    yield connect("13 127.0.0.1", "127.0.0.1:443", 403, "scheme")  # which is `local`, over http
    yield connect("13 localhost", "localhost:443", 403, "not_granted")
    for name, status, rule in (("mixed", 200, UP), ("rebind", 200, UP), ("private", *not_there)):
        host, case = f"{name}.example.org", f"12 {name}"
        yield tunnel(case, f"{host}:443", (inside(case, "GET /", host), status, rule))


def upgrades() -> Iterator[Case]:
    """21, 22."""
    websocket = (
        *("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    )
    text = head("22 not allowed", f"GET /svc/{MESSAGES} HTTP/1.1", AUTH, *websocket, close=False)
    yield left("22 not allowed", text, 403, "websocket")
    text = head("22 refused by the upstream", "GET /svc/ws/no HTTP/1.1", AUTH, *websocket, close=False)
    yield left("22 refused by the upstream", text, 404)
    text = head("22 allowed", "GET /svc/ws/talk HTTP/1.1", AUTH, *websocket, close=False)
    hello = "\x81\x85\x00\x00\x00\x00hello"  # masked with zeros
    steps = ({"send": text}, {"read": "GET"}, {"send": hello}, {"frame": 7}, {"drop": 0})
    yield Case("22 allowed", steps, ((101, UP),), 1, (("allow", "aborted", 101),))
    text = head("22 without a token", "GET /svc/ws/talk HTTP/1.1", *websocket, close=False)
    yield left("22 without a token", text, 403, "no_token")
    h2c = ("Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA", "Connection: Upgrade, HTTP2-Settings")
    text = head("21 h2c", f"GET /svc/{MESSAGES} HTTP/1.1", AUTH, *h2c, close=False)
    yield Case("21 h2c", ({"send": text}, {"read": "GET"}, {"shut": 0}), ((200, UP),), 1)
    text = inside("21 h2 in a tunnel", "GET /v1/messages", API)
    yield tunnel("21 h2 in a tunnel", f"{API}:443", (text, 200, UP), alpn=["h2", "http/1.1"])


def services() -> Iterator[Case]:
    """1, 2, 10, 24, 30, 35, 37: what services say, limits, and trouble upstream."""
    yield route("1 a redirect elsewhere", "tool/v1/away", 302)
    yield connect("1 and following it", "evil.example.net:443", 403, "not_granted")
    yield route("2 a redirect to a path beside", "tool/v1/beside", 302)
    yield route("2 and following it", "tool/admin", 403, "path")
    yield route("10 echo", "tool/v1/echo", 200)
    yield route("10 echo in pieces", "tool/v1/pieces", 200)
    yield route("10 echo in a trailer", "tool/v1/trailer", 200)
    yield replace(
        route("10 compressed", "tool/v1/gzip", 502, "upstream_encoding"),
        arrives=1,
        lines=(("allow", "upstream_encoding", 502),),
    )
    yield route("29 cookies", "tool/v1/cookies", 200)
    yield route("24 a body of the largest size", "POST limits/x", 200, body="x" * 1000)
    yield route("24 a larger body", "POST limits/x", 413, "too_large", body="x" * 1001)
    for n in range(1, 4):
        yield route(f"30 rate {n}", "rates/x", 200)
    yield route("30 rate 4", "rates/x", 429, "rate")
    for n in range(1, 4):
        yield route(f"30 turn {n}", "turns/x", 200)
    yield route("30 turn 4", "turns/x", 403, "turn_requests")
    yield route("37 a key that is not there", "keyless/x", 503, "no_credential")
    yield route("37 a key of two lines", "lines/x", 503, "no_credential")
    for name in ("wrong", "expired", "unknown", "old"):
        host, case = f"{name}.example.org", f"35 {name}"
        text = inside(case, "GET /", host)
        lines = (("allow", "granted", 200), ("allow", "upstream_certificate", 502))
        yield tunnel(case, f"{host}:443", (text, 502, "upstream_certificate"), lines=lines)
    yield route("25 an upstream that dies", "tool/v1/dies", 200, lines=(("allow", "upstream", 200),))


def tunnels() -> Iterator[Case]:
    """3, 4, 8: the name of a tunnel."""
    evil = inside("3 another Host", "GET /v1/messages", "evil.example.net")
    yield tunnel("3 another Host", f"{API}:443", (evil, 421, "host_mismatch"))
    granted = inside("3 another granted Host", "GET /v1/models", "api.openai.com")
    yield tunnel("3 another granted Host", f"{API}:443", (granted, 421, "host_mismatch"))
    port = inside("3 another port", "GET /v1/messages", f"{API}:8443")
    yield tunnel("3 another port", f"{API}:443", (port, 421, "host_mismatch"))
    same = inside("3 its own port", "GET /v1/messages", f"{API}:443")
    yield tunnel("3 its own port", f"{API}:443", (same, 200, UP))
    absolute = inside("3 absolute inside", f"GET https://{API}/v1/messages", API)
    yield tunnel("3 absolute inside", f"{API}:443", (absolute, 400, "malformed"))
    for name, sni in (("another", "evil.example.net"), ("granted", "api.openai.com"), ("none", None)):
        case = tunnel(f"4 SNI: {name}", f"{API}:443", sni=sni, unchecked=True, tls_fails=True)
        yield replace(case, lines=(("deny", "host_mismatch", 421),))
    text = inside("4 SNI: in capitals", "GET /v1/messages", API)
    yield tunnel("4 SNI: in capitals", f"{API}:443", (text, 200, UP), sni="API.anthropic.com", unchecked=True)
    both = inside("8 pipelined", "GET /v1/messages", API, close=False)
    then = inside("8 pipelined", "GET /v1/messages", "evil.example.net")
    piped = tunnel("8 pipelined", f"{API}:443", (both + then, 200, UP))
    steps = (*piped.steps, {"read": "GET"})
    yield replace(piped, steps=steps, ends=(*piped.ends, (421, "host_mismatch")))
    within = head("a tunnel in a tunnel", f"CONNECT {API}:443 HTTP/1.1", PROXY, host=API)
    yield tunnel("a tunnel in a tunnel", f"{API}:443", (within, 400, "malformed"))


def late() -> Iterator[Case]:
    """23: those that let the gateway wait, played beside all others."""
    text = f"GET /svc/{MESSAGES} HTTP/1.1\r\nHost: x\r\nX-Slow: "
    yield Case("23 a head that does not end", ({"send": text}, {"read": "GET"}), ((408, "too_slow"),), slow=True)


def beside() -> Iterator[Case]:
    """Those that a command beside the runner plays, which has a token of its own."""
    yield route("exec: route", MESSAGES, 200)
    yield route("exec: over the socket itself", MESSAGES, 200, via="unix")
    yield tunnel("exec: tunnel", f"{API}:443", (inside("exec: tunnel", "GET /v1/messages", API), 200, UP))
    yield route("exec: no token", MESSAGES, 403, "no_token", bare=True)
    yield route("exec: one that ended", MESSAGES, 403, "no_token", "X-Api-Key: {dead}", bare=True)
    yield route("exec: another run's", MESSAGES, 403, "cross_group_token", "X-Api-Key: {foreign}")
    yield route("exec: ungranted", "openrouter/v1/models", 403, "not_granted")


def own_address() -> str:
    """An address of this host that is not its loopback's, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "10.1.2.3"
        return str(probe.getsockname()[0])
