"""The runner: the one process of a sandbox that speaks the turn protocol.

`python3 -I -B /opt/clawd/agent/runner.py`. It says hello, starts the forwarder, and has `parallel` worker
threads, each of which waits for a turn and plays it. It ends itself when the daemon stays away, and when a
turn's processes cannot be got rid of; the sandbox ends with it. An engine that fails is an answer with an
error, never a dead worker."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from agent import forwarder, kernel, protocol  # noqa: E402
from agent.engines import ENGINES, engine  # noqa: E402
from agent.processes import Processes  # noqa: E402
from agent.turn import Answer, GivenUp, Place, Stopped, Turn  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Runner:
    """The threads of a run, and which turns are live. `run` never returns."""

    def __init__(self, socket: str, place: Place, processes: Processes) -> None:
        self._socket = socket
        self._place = place
        self._processes = processes
        self._live: dict[int, Turn] = {}
        self._changed = threading.Condition()
        self._idle = True
        self._returned = False

    def run(self, parallel: int) -> None:
        workers = [(self._work, (number,)) for number in range(parallel)]
        for target, arguments in [(self._beat, ()), (self._watch_forwarder, ()), *workers]:
            threading.Thread(target=self._or_end, args=(target, *arguments), daemon=True).start()
        self._or_end(self._control)

    def _or_end(self, target: Any, *arguments: Any) -> None:
        """No thread ends alone."""
        try:
            target(*arguments)
        except (protocol.NoDaemon, protocol.Refused) as error:
            end(f"clawd runner: {error}")
        except BaseException as error:
            end(f"clawd runner: {describe(error)}")

    def _client(self, **more: Any) -> protocol.Client:
        return protocol.Client(self._socket, self._place.token, **more)

    # ---- the threads

    def _work(self, number: int) -> None:
        client = self._client()
        target = f"{protocol.TURN}?wait={protocol.LONG_POLL:g}&worker={number}"
        while True:
            offer = client.call("GET", target)
            if offer is not None:
                self._play(Turn(client, offer, number, self._processes, self._place))

    def _control(self) -> None:
        """Hear what live turns must be told. A client of its own also notices first that the daemon came
        back."""
        client = self._client(on_return=self._daemon_returned)
        while True:
            began = time.monotonic()
            answer = client.call("GET", f"{protocol.CONTROL}?wait={protocol.LONG_POLL:g}") or {}
            for news in answer.get("control", ()):
                self._deliver(news.get("turn"), news.get("action"))
            time.sleep(max(0.0, min(0.1, began + 0.1 - time.monotonic())))  # a `stop` is repeated until it is done

    def _beat(self) -> None:
        """Renew the leases of live turns, and at once when the daemon came back. With no live turn it
        sleeps."""
        client = self._client()
        while True:
            with self._changed:
                self._idle = True
                self._changed.wait_for(lambda: self._live)
                self._idle = False
                self._changed.wait_for(lambda: self._returned, protocol.HEARTBEAT)
                self._returned = False
                turns = list(self._live.values())
            for turn in turns:
                try:
                    turn.beat(client)
                except protocol.LeaseLost:
                    turn.interrupt("lost")

    def _watch_forwarder(self) -> None:
        """A run without its forwarder ends, once no turn is live: what took its port would hear the others."""
        self._processes.await_forwarder()
        with self._changed:
            self._changed.wait_for(lambda: not self._live)
        end("clawd runner: the forwarder is gone")

    def _daemon_returned(self) -> None:
        with self._changed:
            self._returned = bool(self._live)
            self._changed.notify_all()

    def _deliver(self, turn: int | None, action: str) -> None:
        with self._changed:
            turns = [live for live in self._live.values() if turn in (None, live.id)]
        for live in turns:
            live.interrupt(action)
        if action == protocol.SHUTDOWN and turn is None:
            end("clawd runner: the daemon ended this run", 0)

    # ---- one turn

    def _play(self, turn: Turn) -> None:
        with self._changed:
            self._live[turn.id] = turn
            if self._idle:
                self._changed.notify_all()
        try:
            answer = self._answer(turn)
            gone = not turn.used_processes or self._processes.sweep(turn.id, self._others(turn))
            if turn.ended in (None, protocol.STOP) and answer is not None:
                with suppress(protocol.LeaseLost):  # somebody else goes on with it
                    try:
                        turn.final(answer)
                    except protocol.Refused as refusal:
                        turn.final(Answer(error=f"The answer was refused: {refusal.message}"))
            if not gone:
                end(f"clawd runner: processes of turn {turn.id} cannot be ended")
            if turn.used_processes and not self._processes.forwarder_lives():
                end("clawd runner: the forwarder is gone")
        finally:
            with self._changed:
                if self._live.get(turn.id) is turn:  # it may have been handed to another worker meanwhile
                    del self._live[turn.id]
                if not self._live:
                    self._changed.notify_all()

    def _others(self, turn: Turn) -> Callable[[], set[int]]:
        """The turns that are live beside one, whenever that is asked."""

        def others() -> set[int]:
            with self._changed:
                return self._live.keys() - {turn.id}

        return others

    def _answer(self, turn: Turn) -> Answer | None:
        """What the engine answers; None when the turn is no longer ours."""
        name = turn.context.get("engine") or os.environ.get("CLAWD_ENGINE") or "offline"
        try:
            respond = engine(name)
            if respond is None:
                why = f"There is no engine {name!r}; there are {', '.join(ENGINES)}."
                return Answer(error=why, stop_reason=protocol.GIVEN_UP)
            return respond(turn)
        except Stopped:
            return Answer(stop_reason="stopped")
        except GivenUp as reason:
            return Answer(error=str(reason), stop_reason=protocol.GIVEN_UP)
        except protocol.LeaseLost:
            return None
        except protocol.NoDaemon:
            raise
        except protocol.Refused as refusal:
            return Answer(error=f"A step of this turn was refused: {refusal.message}")
        except Exception as error:
            report(f"clawd runner: turn {turn.id}: {describe(error)}")
            return Answer(error=f"The engine {name!r} failed ({type(error).__name__}); this is a defect of clawd.")


def describe(error: BaseException) -> str:
    """What failed and where, without the text that it was about."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f" at {os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}" if at else ""
    return f"{type(error).__name__}{where}"


def report(message: str) -> None:
    os.write(2, f"{message}\n".encode())


def end(message: str, code: int = 1) -> None:
    """End the process, whichever thread this is."""
    report(message)
    os._exit(code)


def main(arguments: list[str]) -> None:
    settings = {"--socket": protocol.SOCKET, "--group": "/group", "--port": str(protocol.FORWARDED_PORT)}
    for at in range(0, len(arguments), 2):  # for tests: in a sandbox there are none
        settings[arguments[at]] = arguments[at + 1]
    path = settings["--socket"]
    kernel.hide()
    kernel.adopt_orphans()
    forwarding = forwarder.fork(forwarder.listen(int(settings["--port"])), path)
    client = protocol.Client(path)
    greeting = {"schema": protocol.SCHEMA, "version": protocol.VERSION, "pid": os.getpid()}
    greeting["engine"] = os.environ.get("CLAWD_ENGINE") or "offline"
    try:
        welcome = client.call("POST", protocol.HELLO, greeting) or {}
    except (protocol.NoDaemon, protocol.Refused) as error:
        end(f"clawd runner: {error}")
    client.close()
    place = Place(settings["--group"], welcome["token"], welcome["clock"], int(settings["--port"]), path)
    Runner(path, place, Processes(forwarding)).run(welcome["limits"]["parallel"])


if __name__ == "__main__":
    main(sys.argv[1:])
