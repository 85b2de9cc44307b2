"""A turn of the real runner code in this process: its daemon is a list, its gateway a pipe to a stand-in model.

with Rehearsal(tmp_path, model) as stage:
    answer = stage.respond("hello", dialect="messages")
    stage.steps; stage.said; stage.control.append(...)      # what `more` gives next
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

from agent import protocol
from agent.engines import loop
from agent.processes import Processes
from agent.turn import Answer, Place, Turn

from tests.standin import Standin

PATHS = {"messages": "/svc/anthropic/v1/messages", "chat": "/svc/local/v1/chat/completions"}
TOOLS = [
    {"name": name, "description": f"The tool {name}.", "parameters": {"type": "object"}, "where": where}
    for name, where in (("bash", "sandbox"), ("read", "sandbox"), ("write", "sandbox"), ("send_message", "host"))
]


def model_of(dialect: str, name: str = "standin-1", **more: Any) -> dict[str, Any]:
    service = {"messages": "anthropic", "chat": "local"}[dialect]
    common = {"dialect": dialect, "service": service, "path": PATHS[dialect], "model": name}
    return {**common, "max_output": 1000, "effort": None, **more}


def wake(text: str, number: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": number, "kind": "message", "parts": [], "text": text, "joined": 0, **more}


class Rehearsal:
    """Stands in for the daemon as the runner's `Client` sees it: calls are kept, steps in order."""

    def __init__(self, root: Path, model: Standin) -> None:
        self.work = root / "work"
        self.work.mkdir(exist_ok=True)
        self._directory = tempfile.TemporaryDirectory(prefix="clawd-")
        self.socket = f"{self._directory.name}/s"
        self.place = Place(str(root), "the-token", "2026-11-29T14:00:00.000+02:00", socket=self.socket)
        self._port = model.port
        self._listener: socket.socket | None = None
        self.connections: list[socket.socket] = []  # all that were made
        self.forget()

    def forget(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.shown: list[list[int]] = []
        self.calls: list[str] = []
        self.said = ""
        self.tools: list[dict[str, Any]] = []
        self.control: list[list[dict[str, Any]]] = []  # one a call of `more`

    def __enter__(self) -> Rehearsal:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()
        self._directory.cleanup()

    # ---- a turn

    def turn(self, *wakes: Any, dialect: str = "messages", limits: Any = None, steps: Any = (), **context: Any) -> Turn:
        self.steps = list(steps)
        offer = {
            "turn": 7,
            "attempt": 1 + bool(steps),
            "steps": list(steps),
            "wakes": [wake(each) if isinstance(each, str) else each for each in wakes],
            "context": {
                "session": "main:1",
                "system": [{"name": "identity", "text": "You are a test."}],
                "history": [],
                "tools": TOOLS,
                "models": [model_of(dialect)],
                **context,
            },
            "limits": limits or {},
        }
        return Turn(self, offer, 0, Processes(0), self.place)  # type: ignore[arg-type]

    def respond(self, *wakes: Any, **more: Any) -> Answer:
        return loop.respond(self.turn(*wakes, **more))

    # ---- the daemon

    def call(self, method: str, target: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        verb = target.partition("?")[0].rsplit("/", 1)[-1]
        self.calls.append(verb)
        if verb == "more":
            return {"control": self.control.pop(0)} if self.control else None
        assert body is not None and protocol.clean(body) == body
        if target.startswith("/host/v1/tools/"):
            self.tools.append({"name": verb, **body})
            return {"result": {"ok": True}}
        if verb == "step":
            assert body["n"] == len(self.steps)
            self.steps.append(body["message"])
            self.shown.append(body["shown"])
        elif verb == "events":
            self.said += "".join(event["text"] for event in body["events"] if event["type"] == "delta")
            if self._listener is None:
                self.open()  # whoever waits for the daemon finds it back
        return {}

    # ---- the gateway

    def open(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.socket)
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
            Path(self.socket).unlink()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                inner, _ = listener.accept()
            except OSError:
                return
            self.connections.append(inner)
            outer = socket.create_connection(("127.0.0.1", self._port))
            for one, other in ((inner, outer), (outer, inner)):
                threading.Thread(target=_pump, args=(one, other), daemon=True).start()


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    for each in (one, other):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
