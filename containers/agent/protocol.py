"""The run's protocol: paths, fields, limits, and the client that speaks it. This is its one definition.

HTTP/1.1 with JSON bodies over the run's Unix socket. Every body carries `schema`. The group and the run are
never in a body: the daemon knows them from the socket. Every call but `hello` may be repeated: what was done
stays done once. A small client of our own, because `http.client` alone would cost a cold start 20 ms of
imports."""

from __future__ import annotations

import json
import re
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SCHEMA = 1
VERSION = "1"
SOCKET = "/run/clawd/s"
FORWARDED_PORT = 8080

HELLO = "/host/v1/hello"
TURN = "/host/v1/turn"
CONTROL = "/host/v1/control"
MORE = "/host/v1/turn/{turn}/more"
STEP = "/host/v1/turn/{turn}/step"
EVENTS = "/host/v1/turn/{turn}/events"
FINAL = "/host/v1/turn/{turn}/final"
TOOL = "/host/v1/tools/{name}"
MCP = "/mcp"
RULE = "X-Clawd-Rule"  # a header of what the daemon itself refuses; it lets no other answer have it
SESSION = "X-Clawd-Session"  # a header: whose turn it is, for a process that does not know the turn's number
# What the daemon and its gateway refuse a request with that may be let through soon, if it is sent again.
PASSING = ("no_turn", "starting", "too_many_connections", "unavailable", "rate", "too_slow")
PASSING += ("upstream", "upstream_timeout")

# What each request's body holds, and its queries; `attempt` and `worker` are the fence of a turn.
BODIES = {
    HELLO: ("schema", "version", "engine", "pid"),
    STEP: ("schema", "attempt", "worker", "n", "message", "shown", "notes"),
    EVENTS: ("schema", "attempt", "worker", "events"),
    FINAL: (
        *("schema", "attempt", "worker", "text", "files", "usage"),
        *("stop_reason", "error", "shown", "model", "notes"),
    ),
    TOOL: ("schema", "turn", "attempt", "worker", "arguments", "nth"),
}
QUERIES = {TURN: ("wait", "worker"), CONTROL: ("wait",), MORE: ("attempt", "worker")}
ANSWERS = {
    HELLO: ("schema", "token", "limits", "clock"),
    TURN: ("schema", "turn", "attempt", "steps", "wakes", "context", "limits"),
    CONTROL: ("schema", "control"),
    MORE: ("schema", "control"),
    TOOL: ("schema", "result"),
}
EVENT = ("type", "text", "name", "phase")
EVENT_TYPES = ("delta", "tool")
STOP, SHUTDOWN, STEER = "stop", "shutdown", "steer"
GIVEN_UP = "given_up"  # a final's stop_reason, with an error: another attempt would end in the same way
OVERFLOW = "overflow"  # the same: for the conversation is longer than the model can read

# A run's token, whichever. No text that is kept has one: in a conversation it would go to a model, and a token in a
# body is for the gateway a placeholder that somebody carries off.
TOKEN = re.compile(r"claw-[A-Za-z0-9_-]{43}")
HIDDEN = "[token]"

EVENTS_BYTES = 64 << 10
STEP_BYTES = 1 << 20
TOOL_BYTES = 1 << 20
FINAL_BYTES = 2 << 20  # 256 KiB of text may be six times as long once escaped
TEXT_BYTES = 256 << 10
OUTPUT_BYTES = 30_000
JSON_DEPTH = 32
CALLS_PER_SECOND = 20
CONNECTIONS = 64

LONG_POLL = 300.0
HEARTBEAT = 5.0  # a turn that says nothing is confirmed by it, well within the host's ten seconds
PATIENCE = 60.0  # how long a runner outlives its daemon


class LeaseLost(Exception):
    """This attempt no longer holds its turn: drop it."""


class NoDaemon(Exception):
    """Nobody has answered at the socket for `PATIENCE` seconds."""


class Refused(Exception):
    """The daemon said no, in a sentence."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Client:
    """One kept-alive connection, for one thread. `on_return` is told when a lost one was made again."""

    def __init__(
        self,
        path: str,
        token: str = "",
        patience: float = PATIENCE,
        on_return: Callable[[], None] | None = None,
    ) -> None:
        self._path = path
        self._credential = f"Authorization: Bearer {token}\r\n" if token else ""
        self._patience = patience
        self._on_return = on_return
        self._lost = False
        self._socket: socket.socket | None = None

    def call(self, method: str, target: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """The answer, or None for 204. Waits out a daemon that is away, then sends again: calls are
        idempotent.

        Raises LeaseLost, Refused (every other answer that is no success) and NoDaemon. There is no read
        timeout."""
        data = b"" if body is None else packed(body)
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: clawd\r\n{self._credential}"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        request = head.encode("ascii") + data
        pause, since = 0.0, 0.0
        while True:
            try:
                status, answer = self._exchange(request)
                if status != 503:  # 503: the daemon is there but cannot keep anything just now
                    break
            except OSError:
                self.close()
                self._lost = True
            now = time.monotonic()
            since = since or now
            if now - since > self._patience:
                raise NoDaemon(f"no daemon at {self._path}")
            time.sleep(pause)  # the first repeat is at once: a stale connection is no absent daemon
            pause = min(1.0, pause * 2 or 0.05)
        if status == 204:
            return None
        if status == 200:
            return answer
        if status == 409 and answer.get("error") == "lease_lost":
            raise LeaseLost(target)
        raise Refused(status, str(answer.get("error")), str(answer.get("message")))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _exchange(self, request: bytes) -> tuple[int, dict[str, Any]]:
        if self._socket is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(self._path)
            except OSError:
                connection.close()
                raise
            self._socket = connection
            if self._lost and self._on_return is not None:
                self._on_return()
            self._lost = False
        self._socket.sendall(request)
        head, rest = self._read_head(self._socket)
        status, length, closing = parse_head(head)
        while len(rest) < length:
            rest += self._receive(self._socket)
        if len(rest) > length:
            raise ConnectionError("more bytes than the answer holds")
        if closing:
            self.close()
        if not length:
            return status, {}
        try:
            answer = json.loads(rest)
        except ValueError:
            raise ConnectionError("an answer that is not JSON") from None
        if not isinstance(answer, dict) or answer.get("schema") != SCHEMA:
            raise Refused(status, "proto", "the daemon speaks another version of the run's protocol")
        return status, answer

    def _read_head(self, connection: socket.socket) -> tuple[bytes, bytearray]:
        data = bytearray()
        while (end := data.find(b"\r\n\r\n")) < 0:
            if len(data) > 65536:
                raise ConnectionError("an answer with an endless head")
            data += self._receive(connection)
        return bytes(data[:end]), data[end + 4 :]

    @staticmethod
    def _receive(connection: socket.socket) -> bytes:
        data = connection.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the daemon closed the connection")
        return data


def hidden(text: str) -> str:
    """The text without any run's token."""
    return TOKEN.sub(HIDDEN, text)


def packed(value: Any) -> bytes:
    """A JSON value as it is sent: `clean`."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        if "\\u0000" not in text and not TOKEN.search(text):  # as nearly always: nothing has to be changed
            return text.encode()
    except UnicodeEncodeError:
        pass
    return json.dumps(clean(value), ensure_ascii=False, separators=(",", ":")).encode()


def clean(value: Any) -> Any:
    """The same JSON value with every text as every store can hold it: NUL and halves of characters made
    visible, and no token."""
    if isinstance(value, str):
        return hidden(value).replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value


def parse_head(head: bytes) -> tuple[int, int, bool]:
    """Status, length of the body, and whether the connection ends. Raises ConnectionError on anything
    unusual."""
    first, *lines = head.split(b"\r\n")
    version, _, rest = first.partition(b" ")
    code = rest[:3]
    if version != b"HTTP/1.1" or not code.isdigit() or rest[3:4] not in (b"", b" "):
        raise ConnectionError("not an HTTP/1.1 answer")
    length, closing = None, False
    for line in lines:
        name, colon, value = line.partition(b":")
        name, value = name.lower(), value.strip()
        if not colon or name != name.strip() or name == b"transfer-encoding":
            raise ConnectionError("a header that this client does not take")
        if name == b"content-length":
            if length is not None or not value.isdigit():
                raise ConnectionError("a bad content-length")
            length = int(value)
        elif name == b"connection":
            closing = value.lower() == b"close"
    if length is None and code != b"204":
        raise ConnectionError("an answer without a length")
    return int(code), length or 0, closing
