"""A model server on loopback that speaks both APIs, for tests and benchmarks. It answers what it was told, checks each
request as strictly as the real one would (400, and `problems`), and keeps every request.

    with Standin() as model:                                   # model.url: http://127.0.0.1:PORT
        model.say("one moment", calls=[("bash", {"command": "date"}), ("read", {"path": "a"})])
        model.say("It is noon.")                               # replies in order; with none left: "ok"
        model.fail(429, headers={"retry-after": "1"}); model.fail(529); model.fail(500)
        model.add(Reply("half of it", cut=3))                  # the connection breaks after three events
        model.add(Reply("slow", delay=0.1, piece=1))           # a byte a write
        model.add(Reply("never", hold=True))                   # goes silent before its end, until the client leaves
        model.add(Reply("x", error="overloaded_error"))        # an error event in mid-stream
        model.add(Reply(usage={"output_tokens": math.nan}))    # as it stands; `usage=None`: none at all
        model.decide = lambda request: Reply(request.said)     # asked when the queue is empty; None: "ok"
        model.requests[0].body; .headers; .dialect; .said; .results; model.problems

Paths that end in /messages speak Messages, in /chat/completions chat. `others[path]` is a function of the request for
any other path; a GET of …/models lists `models`. `key`: whoever does not show it is 401. `refuse`: parameters that this
model does not know, {name: message}. `alternate=False` takes several user messages in a row, as the real API does."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.standin import chat, messages
from tests.standin.refusal import Refused

__all__ = ["Recorded", "Reply", "Standin"]


@dataclass
class Reply:
    """What the model answers. `calls` are (name, arguments), a str is sent as it stands; `stop` the provider's own
    word; `usage` is laid over the usual figures, `None` leaves them out; `raw` is the whole body instead."""

    text: str = ""
    calls: list[tuple[str, dict[str, Any] | str]] = field(default_factory=list)
    stop: str | None = None
    usage: dict[str, Any] | None = field(default_factory=dict)
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    piece: int = 0  # bytes a write; 0: an event a write
    words: int = 7  # characters a text delta
    delay: float = 0.0  # seconds before each write
    cut: int | None = None  # events until the connection breaks
    error: str | None = None  # the type of an error event, in the middle
    hold: bool = False
    gate: threading.Event | None = None  # nothing is answered before it is set


@dataclass
class Recorded:
    """One request. `body` is its JSON, `said` its last user text, `results` the texts of its newest tool results."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    body: Any = None
    dialect: str | None = None

    @property
    def said(self) -> str:
        return str(DIALECTS[self.dialect or "chat"].said(self.body))

    @property
    def results(self) -> list[str]:
        return list(DIALECTS[self.dialect or "chat"].results(self.body))


DIALECTS: dict[str, Any] = {"messages": messages, "chat": chat}


class Standin:
    """Listens from its making to `close`. Everything may be changed at any time."""

    def __init__(
        self,
        *replies: Reply,
        key: str | None = None,
        refuse: dict[str, str] | None = None,
        alternate: bool = True,
        port: int = 0,
    ) -> None:
        self.key, self.refuse, self.alternate = key, dict(refuse or {}), alternate
        self.queue: deque[Reply] = deque(replies)
        self.decide: Callable[[Recorded], Reply | None] | None = None
        self.others: dict[str, Callable[[Recorded], Reply]] = {}
        self.models = ["standin-1"]
        self.requests: list[Recorded] = []
        self.problems: list[str] = []
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", port), type("Handler", (_Handler,), {"standin": self}))
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def say(self, text: str = "", **more: Any) -> None:
        self.add(Reply(text, **more))

    def fail(self, status: int, **more: Any) -> None:
        self.add(Reply(status=status, **more))

    def add(self, *replies: Reply) -> None:
        self.queue.extend(replies)

    def wait(self, count: int, seconds: float = 20) -> Recorded:
        """The `count`th request, once it is here."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= count, seconds), "the request never came"
        return self.requests[count - 1]

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def __enter__(self) -> Standin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- for its handlers

    def answer(self, request: Recorded) -> Reply:
        """Records the request and gives its reply, a refusal too."""
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        try:
            self._check(request)
        except Refused as refusal:
            self.problems.append(f"{request.path}: {refusal}")
            return Reply(str(refusal), status=refusal.status, error=refusal.kind)
        if request.path in self.others:
            return self.others[request.path](request)
        with suppress(IndexError):
            return self.queue.popleft()
        return (self.decide and self.decide(request)) or Reply("ok")

    def _check(self, request: Recorded) -> None:
        shown = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if self.key is not None and shown != self.key:
            raise Refused("invalid x-api-key", 401, "authentication_error")
        if request.path in self.others or (request.method == "GET" and request.path.endswith("/models")):
            return
        if request.dialect is None or request.method != "POST":
            raise Refused("not found", 404, "not_found_error")
        try:
            request.body = json.loads(request.raw.decode())
            json.dumps(request.body, ensure_ascii=False, allow_nan=False).encode()
        except ValueError:
            raise Refused("the body is not JSON") from None
        for name, message in self.refuse.items():
            if name in request.body:
                raise Refused(message)
        DIALECTS[request.dialect].check(request.body, request.headers, self.alternate)

    def wait_gone(self, connection: socket.socket) -> None:
        """Until the client leaves, or this server ends."""
        connection.settimeout(0.02)
        while not self._closing.is_set():
            with suppress(TimeoutError):
                if not connection.recv(65536):
                    return


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no error of a test's."""


class _Handler(BaseHTTPRequestHandler):
    standin: Standin
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        ends = (("/messages", "messages"), ("/chat/completions", "chat"))
        dialect = next((name for end, name in ends if path.endswith(end)), None)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Recorded(self.command, path, headers, raw, dialect=dialect)
        reply = self.standin.answer(request)
        if reply.gate is not None:
            reply.gate.wait(60)
        try:
            self._send(request, reply)
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    do_GET = do_POST

    def _send(self, request: Recorded, reply: Reply) -> None:
        if request.method == "GET" and request.path.endswith("/models"):
            listed = [{"id": name, "type": "model", "object": "model"} for name in self.standin.models]
            return self._whole(200, json.dumps({"object": "list", "data": listed}).encode(), {})
        if reply.raw is not None or request.dialect is None:
            return self._whole(reply.status, reply.raw or b"", reply.headers)
        dialect = DIALECTS[request.dialect]
        if reply.status != 200:
            kind = reply.error or {429: "rate_limit_error", 529: "overloaded_error"}.get(reply.status, "api_error")
            body = dialect.error(kind, reply.text or "scripted")
            return self._whole(reply.status, json.dumps(body).encode(), reply.headers)
        if not request.body.get("stream"):
            return self._whole(200, json.dumps(dialect.whole(request.body, reply)).encode(), reply.headers)
        self.send_response(200)
        for name, value in {
            "content-type": "text/event-stream; charset=utf-8",
            "transfer-encoding": "chunked",
            **reply.headers,
        }.items():
            self.send_header(name, value)
        self.end_headers()
        for data in pieces(list(dialect.events(request.body, reply)), reply):
            if reply.delay:
                time.sleep(reply.delay)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        if reply.hold:
            self.standin.wait_gone(self.connection)
        if reply.hold or reply.cut is not None:
            self.close_connection = True
            return None
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _whole(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def pieces(events: list[bytes], reply: Reply) -> Iterator[bytes]:
    """The writes of a stream. A held one lacks its end."""
    if reply.cut is not None:
        events = events[: reply.cut]
    elif reply.hold:
        events = events[:-2]
    if not reply.piece:
        yield from events
        return
    data = b"".join(events)
    for at in range(0, len(data), reply.piece):
        yield data[at : at + reply.piece]
