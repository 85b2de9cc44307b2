"""A call of a model: its connection over the run's socket, the server-sent events of its answer, what they add up to,
and what can go wrong. The gateway is at the other end; a cut stream is a failure, never an end."""

from __future__ import annotations

import re

from agent import protocol
from agent.calls import as_json
from agent.wire import post

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from agent.turn import Turn

IDLE_S = 600.0  # without a byte; the gateway's own
_MOST = 64 << 20  # bytes of one answer
_LINE = re.compile(rb"\r\n|\n|\r(?!\n|\Z)")
_KINDS = (("overloaded", 529), ("rate_limit", 429), ("invalid", 400), ("authentication", 401), ("permission", 403))


class Away(Exception):
    """Nobody takes connections at the run's socket."""


class Failure(Exception):
    """A call without a whole answer. `status` is 0 for a broken connection or stream; `kind` is a code; `message` is
    the provider's and not for a chat, unless `rule` says that the gateway refused; `after` are seconds to wait."""

    def __init__(self, status: int, kind: str = "", message: str = "", rule: str = "", after: float | None = None):
        kind = kind if re.fullmatch(r"[a-z_]{1,40}", kind) else ""
        super().__init__(" ".join(filter(None, (str(status or "connection"), kind))))
        self.status, self.kind, self.message, self.rule, self.after = status, kind, message, rule, after


def failure_of(status: int, said: Any, headers: Any = None) -> Failure:
    """What an error body (or a stream's error event: status 0) says. That it is the gateway's, a header says."""
    said = said if isinstance(said, dict) else {}
    after, rule = ((headers or {}).get(name) for name in ("retry-after", protocol.RULE.lower()))
    seconds = float(after) if after and re.fullmatch(r"\d{1,9}(\.\d*)?", after) else None
    if rule:
        message = str(said.get("message")) + (f" ({said['hint']})" if said.get("hint") else "")
        return Failure(status, rule, message, rule, seconds)
    error = said.get("error")
    error = error if isinstance(error, dict) else {"message": error}
    code = error.get("code")
    kind = str(code if isinstance(code, str) else error.get("type") or "")
    if not status:
        known = next((status for word, status in _KINDS if word in kind), 500)
        status = code if isinstance(code, int) and 400 <= code < 600 else known
    return Failure(status, kind, f"{kind} {error.get('message') or ''}"[:2000], after=seconds)


def events(turn: Turn, path: str, headers: dict[str, str], body: bytes) -> Iterator[Any]:
    """POST; gives each event of the stream, or the answer that is none. Raises Away, Failure, GivenUp and Stopped."""
    try:
        opened = turn.place.connections.take()
    except OSError as error:
        raise Away from error
    common = {"content-type": "application/json", "accept": "text/event-stream"}
    ours = {"authorization": f"Bearer {turn.place.token}", "x-clawd-session": str(turn.context["session"])}
    answer = None
    turn.opened(opened)
    try:
        opened.settimeout(max(0.1, min(IDLE_S, turn.left())))
        answer = post(opened, path, {**common, **ours, **headers}, body)
        if answer.status != 200:
            raise failure_of(answer.status, as_json(answer.start(1 << 16)), answer.headers)
        parser, whole = Events(), bytearray()
        for data in answer.pieces():
            whole += data
            if len(whole) > _MOST:
                return
            for text in parser.feed(data):
                event = {"done": True} if text.strip() == b"[DONE]" else as_json(text)
                if event is None:
                    raise Failure(0, "malformed")
                yield event
            turn.within_limits()
        if (event := as_json(whole)) is not None:
            yield event
    except (OSError, ValueError) as error:
        turn.within_limits()
        raise Failure(0, "cut") from error
    finally:
        turn.closed(opened)
        if answer is not None and answer.whole:
            turn.place.connections.keep(opened)
        else:
            opened.close()


class Events:
    """Server-sent events, however their bytes are split; only their data."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events that are whole now."""
        looked = len(self._rest) - 1  # at all but a carriage return that may be half of a line's end
        self._rest += data
        if not _LINE.search(self._rest, max(0, looked)):  # a line of megabytes is not looked at with each piece of it
            return []
        *lines, self._rest = _LINE.split(self._rest)
        found = []
        for line in lines:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value[1:] if value[:1] == b" " else value)
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        return found


class Reply:
    """What the events of one answer add up to. `stop`: end, max_tokens, refusal, pause or context. `calls` are [what
    tells it from others, name, arguments as they came]; `reported` is the provider's usage."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[list[str]] = []
        self.stop = "end"
        self.whole = False
        self.reported: dict[str, Any] = {}

    def text(self) -> str:
        return "".join(self.texts)

    def report(self, usage: Any) -> None:
        """Usage as the provider has it, in whichever event; a later figure stands."""
        if isinstance(usage, dict):
            self.reported.update((name, value) for name, value in usage.items() if value is not None)

    def asked(self) -> list[tuple[str, str]]:
        """The tools that it calls. No arguments are an object, unless the answer was cut off before they came."""
        none = "" if self.stop == "max_tokens" else "{}"
        return [(name, arguments.strip() or none) for _, name, arguments in self.calls]
