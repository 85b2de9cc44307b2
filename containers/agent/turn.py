"""One turn in the runner: what was handed out, what is posted back, and how it is stopped.

A `round` is one assistant message with its tool calls. Rounds that an earlier attempt posted are played back
from the given steps: no tool whose result is there runs again. Everything here may raise LeaseLost and
Stopped; an engine lets both pass through."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import suppress

from agent import protocol
from agent.calls import Call, as_step, batch_of, side_by_side
from agent.wire import Connections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.processes import Processes

_DELTA = 6000  # characters in one event; a call takes 64 KiB
SAME_CALLS = 3  # in a row with the same arguments: the last one is not run
LIMITS = {
    "steps": 50,
    "wall_s": 900,
    "tool_s": 120,
    "output_bytes": protocol.OUTPUT_BYTES,
    "final_bytes": protocol.TEXT_BYTES,
    "retries": 5,
}
CUT = "\n[… cut: longer than an answer may be …]"


class Stopped(Exception):
    """The turn must end now: `stop`, `shutdown` or a lost lease."""


class GivenUp(Exception):
    """The turn ends with this reason, which another attempt would come to as well."""

    def __init__(self, reason: str, stop_reason: str = protocol.GIVEN_UP) -> None:
        super().__init__(reason)
        self.stop_reason = stop_reason


class Place:
    """Where a runner works: its directories, the token that its children carry, where they find the gateway, and the
    run's socket."""

    def __init__(
        self,
        group: str,
        token: str,
        clock: str,
        port: int = protocol.FORWARDED_PORT,
        socket: str = protocol.SOCKET,
    ) -> None:
        self.group = group
        self.work = os.path.join(group, "work")
        self.token = token
        self.clock = clock
        self.gateway = f"http://127.0.0.1:{port}"
        self.socket = socket
        self.connections = Connections(socket)


class Answer:
    """How an engine ends a turn. Every text is for a person; `error` is a sentence."""

    def __init__(self, text: str = "", error: str | None = None, stop_reason: str = "end", **more: Any) -> None:
        self.text = text
        self.error = error
        self.stop_reason = stop_reason
        self.more = more  # files, usage, model, notes


class Turn:
    """A claimed turn. Used by its worker's thread; only `interrupt` and `beat` are called from others. `steps` are
    all its messages so far, `wakes` all that it was given; `joined` of a wake is the step before which it came."""

    def __init__(
        self, client: protocol.Client, offer: dict[str, Any], worker: int, processes: Processes, place: Place
    ) -> None:
        self.id: int = offer["turn"]
        self.wakes: list[dict[str, Any]] = offer["wakes"]
        self.context: dict[str, Any] = offer["context"]
        self.limits: dict[str, Any] = {**LIMITS, **offer.get("limits", {})}
        self.steps: list[dict[str, Any]] = list(offer["steps"])
        self.place = place
        self.processes = processes
        self.used_processes = False
        self.ended: str | None = None  # why it was interrupted
        self._client = client
        self._fence = {"schema": protocol.SCHEMA, "attempt": offer["attempt"], "worker": worker}
        self._given = len(self.steps)
        self._shown = len(self.wakes)
        self._offset = offset_of(self.context.get("time") or place.clock)
        self._at = 0  # the next step's number
        self._calls = 0
        self._rounds = 0
        # A little less than the daemon's own time: the sentence of the agent comes first.
        self._deadline = time.monotonic() + 0.98 * self.limits["wall_s"]
        self._last = ("", 0)  # the newest call, and how often it was made in a row
        self._same: dict[str, int] = {}  # how often a host tool was called with equal arguments
        self._events: list[dict[str, str]] = []
        self._confirmed = False
        self._interrupted = threading.Event()
        self._open: set[Any] = set()  # connections of calls that may take long

    # ---- being ended

    def interrupt(self, why: str) -> None:
        """End what runs now. The first reason stands."""
        self.ended = self.ended or why
        self._interrupted.set()
        self.processes.kill(self.id)
        for connection in list(self._open):
            shut(connection)

    def opened(self, connection: Any) -> None:
        """A socket that a call waits at: an interrupt shuts it down. `closed` says that the call is over."""
        self._open.add(connection)
        if self._interrupted.is_set():
            shut(connection)

    def closed(self, connection: Any) -> None:
        self._open.discard(connection)

    def check(self) -> None:
        if self._interrupted.is_set():
            raise Stopped(self.ended)

    def left(self) -> float:
        """Seconds until the turn has worked for as long as it may."""
        return self._deadline - time.monotonic()

    def within_limits(self) -> None:
        """Before each call of a model. Raises GivenUp and Stopped."""
        self.check()
        if self._rounds >= self.limits["steps"]:
            raise GivenUp(f"The agent took {self._rounds} steps and did not come to an end.")
        if self.left() <= 0:
            raise GivenUp(f"The agent worked for {self.limits['wall_s'] / 60:g} minutes and did not come to an end.")

    def pause(self, seconds: float) -> None:
        """Wait, unless the turn is stopped."""
        self.flush()
        self._interrupted.wait(seconds)
        self.check()

    def start(self, argv: list[str], directory: str = "", more: dict[str, str] | None = None, **how: Any) -> Any:
        """A command of this turn, in `work/` unless another directory is named. Raises OSError."""
        self.check()
        self.used_processes = True
        token, road = self.place.token, self.context.get("environment") or {}
        road = {name: value.replace("{token}", token) for name, value in road.items()}
        environment = {**os.environ, **road, "CLAWD_TOKEN": token, **(more or {})}
        process = self.processes.start(self.id, argv, directory or self.place.work, environment, **how)
        if self._interrupted.is_set():  # it was started while the stop arrived
            self.processes.kill(self.id)
        return process

    # ---- telling the daemon

    def say(self, text: str) -> None:
        """Show text while the turn goes on. It travels with the next call that may take time, or not at all
        when the turn ends first: then the final text says it."""
        for at in range(0, len(text), _DELTA):
            self._events.append({"type": "delta", "text": text[at : at + _DELTA]})

    def flush(self) -> None:
        """Confirm that the turn arrived, and send what was said since. Before anything that may take time."""
        while self._events or not self._confirmed:
            size, count = 0, 0
            while count < len(self._events) and (count == 0 or size < _DELTA):
                size += 100 + len(self._events[count].get("text", ""))
                count += 1
            self._post_events(self._client, self._events[:count])
            self._confirmed = True
            del self._events[:count]

    def renew(self) -> None:
        """Renew the lease, and wait out a daemon that is away. Raises LeaseLost and NoDaemon."""
        self.beat(self._client)
        self._confirmed = True

    def beat(self, client: protocol.Client) -> None:
        """Renew the lease, from the heart's own thread."""
        self._post_events(client, [])

    def more(self) -> bool:
        """At a tool boundary and before the final: take in wakes that came meanwhile, and hear of a stop. Whether
        there are new wakes; they count as shown from `showing` on. Raises Stopped."""
        if self.replaying():
            return False
        query = f"attempt={self._fence['attempt']}&worker={self._fence['worker']}"
        answer = self._client.call("GET", f"{protocol.MORE.format(turn=self.id)}?{query}") or {}
        known = {wake["id"] for wake in self.wakes}
        for news in answer.get("control", ()):
            if news.get("action") != protocol.STEER:
                self.interrupt(news.get("action"))
            for wake in news.get("wakes") or ():
                if wake["id"] not in known:
                    known.add(wake["id"])
                    self.wakes.append({**wake, "joined": self._at})
        self.check()
        return len(self.wakes) > self._shown

    def showing(self) -> None:
        """The engine has seen every wake that is here."""
        self._shown = len(self.wakes)

    def _post_events(self, client: protocol.Client, events: list[dict[str, str]]) -> None:
        client.call("POST", protocol.EVENTS.format(turn=self.id), {**self._fence, "events": events})

    def final(self, answer: Answer) -> None:
        body = {
            **self._fence,
            "text": cut_text(answer.text, self.limits["final_bytes"]),
            "files": [],
            "usage": None,
            "stop_reason": answer.stop_reason,
            "error": answer.error,
            "shown": self._seen(),
            "model": None,
            "notes": None,
            **answer.more,
        }
        self._client.call("POST", protocol.FINAL.format(turn=self.id), body)

    # ---- rounds

    def round(
        self, text: str, calls: list[tuple[str, Any]], streamed: bool = False, notes: dict[str, Any] | None = None
    ) -> list[str]:
        """Say `text` (unless it was `streamed`) and call tools: durable before they run, each result after. A call is
        (name, arguments), an object or the text that should be one. Gives the results' texts. While an earlier attempt
        came further, its round is taken instead, and what it left open is done. `notes` are for the daemon alone."""
        if self._rounds == self.limits["steps"]:
            self.within_limits()
        self._rounds += 1
        message = self._replayed()
        resumed = message is not None
        if message is None:
            message = {"role": "assistant", "content": cut_text(text), "at": self.now()}
            if calls:
                message["tool_calls"] = as_step(calls, self.id, self._calls)
            if not streamed:
                self.say(text)
            self.flush()
            self._step(message, notes)
        return self._results([Call(call, self) for call in message.get("tool_calls") or ()], resumed)

    def _results(self, calls: list[Call], resumed: bool) -> list[str]:
        """The result of each call, in order: as an earlier attempt has it, else run now."""
        self._calls += len(calls)
        results = []
        while len(results) < len(calls):
            given = self._replayed()
            if given is not None:
                results.append(str(given["content"]))
                continue
            self.check()
            batch = batch_of(calls[len(results) :])
            self._events += [{"type": "tool", "name": call.name, "phase": "start"} for call in batch]
            self.flush()
            contents = side_by_side([call.bound(self, resumed) for call in batch])
            self._events += [{"type": "tool", "name": call.name, "phase": "end"} for call in batch]
            self.check()
            resumed = False
            for call, content in zip(batch, contents):
                content = protocol.hidden(content)
                self._step({"role": "tool", "tool_call_id": call.id, "content": content, "at": self.now()})
                results.append(content)
        return results

    # ---- for engines that run their own tools

    def post(self, message: dict[str, Any]) -> None:
        """A step that the engine made by itself, after those that were given."""
        self._at = max(self._at, self._given)
        self._step(message)

    def tool_event(self, name: str, phase: str) -> None:
        self._events.append({"type": "tool", "name": name[:200], "phase": phase})

    def host_tool(self, name: str, arguments: dict[str, Any], nth: int) -> str:
        """Call a tool of the daemon; a refusal is a sentence too."""
        if not name.replace("_", "").isalnum() or not name.isascii():
            return f"[there is no tool {name!r}]"
        body = {**self._fence, "turn": self.id, "arguments": arguments, "nth": nth}
        while True:
            try:
                answer = self._client.call("POST", protocol.TOOL.format(name=name), body)
            except protocol.Refused as refusal:
                if refusal.status == 429:
                    self.pause(1 / protocol.CALLS_PER_SECOND)
                    continue
                return f"[{name} was refused: {refusal.message}]"
            return json.dumps((answer or {}).get("result"), ensure_ascii=False)

    def replaying(self) -> bool:
        """Whether an earlier attempt came further than this one has."""
        return self._at < self._given

    def now(self) -> str:
        """RFC 3339, in the offset of the group's own time."""
        return rfc3339(time.time(), self._offset)

    def count(self, name: str, arguments: str) -> int:
        """How many equal calls came before this one. Raises GivenUp at the third in a row."""
        key = f"{name} {arguments}"
        self._last = (key, self._last[1] + 1 if key == self._last[0] else 1)
        if self._last[1] >= SAME_CALLS and self._at > self._given:  # else it ended a turn that is tried again
            raise GivenUp(f"The agent called {name} {SAME_CALLS} times in a row with the same arguments.")
        self._same[key] = self._same.get(key, -1) + 1
        return self._same[key]

    def _replayed(self) -> dict[str, Any] | None:
        """The next of the given steps, if an earlier attempt came so far."""
        if not self.replaying():
            return None
        self._at += 1
        return self.steps[self._at - 1]

    def _step(self, message: dict[str, Any], notes: dict[str, Any] | None = None) -> None:
        body = {**self._fence, "n": self._at, "message": message, "shown": self._seen(), "notes": notes}
        self._client.call("POST", protocol.STEP.format(turn=self.id), body)
        self.steps.append(message)
        self._at += 1
        for wake in self.wakes[self._shown :]:  # it has not been shown, so it comes after this
            wake["joined"] = self._at

    def _seen(self) -> list[int]:
        return [wake["id"] for wake in self.wakes[: self._shown]]


def shut(connection: Any) -> None:
    """End a connection that another thread reads."""
    with suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)


def cut_text(text: str, limit: int = protocol.TEXT_BYTES) -> str:
    """At most what an answer may hold (`limit` bytes), in whole characters."""
    text = protocol.clean(text)
    data = text.encode()
    if len(data) <= limit:
        return text
    return data[: max(0, limit - len(CUT.encode()))].decode("utf-8", "ignore") + CUT


def offset_of(clock: str) -> int:
    """Seconds east of UTC of an RFC 3339 time; 0 when it ends in Z or cannot be read."""
    zone = clock[-6:]
    if len(clock) < 6 or zone[0] not in "+-" or zone[3] != ":" or not (zone[1:3] + zone[4:]).isdigit():
        return 0
    seconds = int(zone[1:3]) * 3600 + int(zone[4:]) * 60
    return -seconds if zone[0] == "-" else seconds


def rfc3339(at: float, offset: int) -> str:
    """A moment (seconds since the epoch) as RFC 3339 to the millisecond."""
    sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
    local = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at + offset))
    return f"{local}.{int(at * 1000) % 1000:03d}{sign}{minutes // 60:02d}:{minutes % 60:02d}"
