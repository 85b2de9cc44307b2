"""`clawd chat`: one message and its reply, or a conversation.

The person's side (input, Ctrl-C) lives in the main thread, the link to the daemon in a thread of its own, so
that reading a line blocks nothing and an interrupt reaches nobody but the person's side.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
from argparse import Namespace
from collections.abc import Coroutine
from typing import Any, TypeVar

from clawd.cli.clean import clean
from clawd.cli.companion import Companion, companion
from clawd.cli.keyboard import Keyboard
from clawd.cli.link import Link
from clawd.cli.page import console, say, write_json
from clawd.cli.screen import PROMPT, Screen
from clawd.config.home import Home
from clawd.errors import ClawdError, UsageError
from clawd.ids import check_session_id, check_speaker

_LEAVE = ("/quit", "/exit")
_TIMEOUT = 300.0  # seconds that -m waits when nothing else was said
_FIELDS = (
    *("turn", "session", "group", "reply", "files", "engine"),
    *("model", "backend", "attempt", "ms", "usage", "error"),
)
_UNANSWERED = frozenset(("held", "failed", "stopped", "stale", "withdrawn"))
_DENIED = frozenset(("refused", "denied", "ignored", "dropped", "held", "failed", "stale", "withdrawn"))

T = TypeVar("T")


def chat(options: Namespace, home: Home) -> int:
    """The face of both. Without a running daemon one is started for the time of the conversation."""
    check_speaker(options.speaker)
    if options.session is not None:
        check_session_id(options.session)
    opening = {"group": options.group, "session": options.session, "as": options.speaker, "replay": True}
    choice = {key: value for key in ("engine", "model", "effort") if (value := getattr(options, key)) is not None}
    if choice:
        opening["choice"] = choice
    text = _unicode(sys.stdin.read() if options.message == "-" else options.message or "").strip("\n")
    if options.message is None:
        if options.json:
            raise UsageError("--json goes with one message", hint="clawd chat -m TEXT --json")
        screen = Screen()
        with companion(home, lambda sentence: screen.line(sentence, style="2")) as beside:
            return Talk(home, beside, opening, screen, options.timeout).hold()
    if not text.strip():
        raise UsageError("the message is empty")
    with companion(home, say) as beside:
        try:
            return asyncio.run(_once(home, beside, opening, text, options))
        except KeyboardInterrupt:
            say("clawd: you left; what was sent is kept and will be answered (clawd messages list)")
            raise


def _unicode(text: str) -> str:
    """The text with every byte that was no UTF-8 replaced."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


async def _once(home: Home, beside: Companion, opening: dict[str, Any], text: str, options: Namespace) -> int:
    """Send one message, print what was delivered for its turn; gives the exit code."""
    delivered: dict[int, dict[str, Any]] = {}
    waits: list[str] = []  # why it is not answered yet

    def hear(kind: str, data: dict[str, Any]) -> None:
        if kind == "message":
            delivered[data["delivery"]] = data
        elif kind == "receipt" and data["told"]:
            waits[:] = [data["told"]]

    link = Link(home, beside, {**opening, "replay": False}, hear)
    running = asyncio.create_task(link.run())
    saying = asyncio.create_task(link.say(text))
    timeout = options.timeout or _TIMEOUT
    try:
        with _progress() as progress:
            done, _ = await asyncio.wait({running, saying}, timeout=min(1.0, timeout), return_when="FIRST_COMPLETED")
            if not done:
                progress()
                rest = max(0.0, timeout - 1.0)
                done, _ = await asyncio.wait({running, saying}, timeout=rest, return_when="FIRST_COMPLETED")
        if running in done:
            running.result()  # raises
        result: dict[str, Any] = dict.fromkeys(_FIELDS) | {"group": opening["group"], "files": []}
        if saying not in done:
            result |= link.known()
            late = f"no reply within {timeout:g} s; the message is kept and will be answered when a daemon runs"
            return _give(result | {"error": waits[0] if waits else late}, [], options.json, "clawd messages list")
        receipt, outcome = saying.result()
        told = link.opened.result() | ({"reply": receipt["told"]} if outcome is None else outcome)
        result |= {key: told[key] for key in _FIELDS if told.get(key) is not None}
        hint = None
        if outcome is None and receipt["state"] in _DENIED:
            result["error"] = receipt["told"] or f"the message was {receipt['state']}"
        elif outcome is not None and outcome["state"] == "held":
            hint = f"the message is kept: clawd messages show {receipt['message']}"
        elif outcome is not None and outcome["state"] in _UNANSWERED:
            result["error"] = result["error"] or f"the turn ended as {outcome['state']}"
        own = [each for each in delivered.values() if each["turn"] is not None and each["turn"] == result["turn"]]
        code = _give(result, own, options.json, hint)
        # What the daemon says beside the turn, on this conversation's files for example.
        beside_it = [each for each in delivered.values() if each["turn"] is None and each["kind"] == "notice"]
        for each in beside_it if outcome is not None else ():
            if each["text"] != result["reply"]:  # that of a command was printed
                say(each["text"])
        link.acknowledge(each["delivery"] for each in own + (beside_it if outcome is not None else []))
        await link.settle()
        return code
    finally:
        for task in (saying, running):
            task.cancel()
        await asyncio.gather(saying, running, return_exceptions=True)


def _give(result: dict[str, Any], delivered: list[dict[str, Any]], as_json: bool, hint: str | None) -> int:
    """Print the one reply, and notices beside it; 1 with the sentence on standard error when there is none."""
    replies = [each["text"] for each in delivered if each["kind"] in ("text", "stream") and each["text"]]
    notices = [each["text"] for each in delivered if each["kind"] == "notice"]
    error = result["error"]
    if as_json:
        write_json(result | {"reply": result["reply"] or "\n".join(replies) or None})
    else:
        files = [f"[file] {each['name']}  {each['path']}" for each in delivered if each["kind"] == "file"]
        lines = replies or ([result["reply"]] if result["reply"] and not error else [])
        sys.stdout.write(clean("".join(f"{line.rstrip()}\n" for line in [*lines, *files])))
        sys.stdout.flush()
        for notice in notices:
            say(notice)
    if not error:
        return 0
    if as_json or not any(error.rstrip(".") in notice for notice in notices):
        say(f"clawd: {error}" + (f" ({hint})" if hint else ""))
    elif hint:
        say(f"clawd: {hint}")
    return 1


@contextlib.contextmanager
def _progress() -> Any:
    """Gives a function that shows a spinner on standard error until the block ends."""
    with contextlib.ExitStack() as stack:

        def show() -> None:
            if sys.stderr.isatty():
                stack.enter_context(console(stderr=True).status("thinking …"))

        yield show


class Talk:
    """A conversation. `hold` is the main thread's; everything with `_` and `async` runs in the link's."""

    def __init__(
        self, home: Home, beside: Companion, opening: dict[str, Any], screen: Screen, timeout: float | None
    ) -> None:
        self._home = home
        self._beside = beside
        self._opening = opening
        self._screen = screen
        self._timeout = timeout
        self._loop = asyncio.new_event_loop()
        self._link: Link | None = None
        self._noticed: set[int | None] = set()  # turns that have had their say about what went wrong
        self._leaving = False

    def hold(self) -> int:
        """Until the person leaves; gives the exit code: 1 when a piped message was not answered."""
        thread = threading.Thread(target=self._loop.run_forever, name="link", daemon=True)
        thread.start()
        code = 0
        try:
            running = self._submit(self._start())
            running.result()
            turn = self._turn if self._screen.live else self._piped
            while not self._leaving and (line := self._next()) is not None:
                if line.strip() in _LEAVE:
                    break
                if line.strip() and not turn(_unicode(line)):
                    code = 1
        finally:
            self._screen.working(None)
            with contextlib.suppress(concurrent.futures.TimeoutError):
                self._submit(self._finish()).result(3)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
        return 0 if self._screen.live else code

    def _next(self) -> str | None:
        """The next line; an interrupt at the prompt throws away what was typed, a second one leaves."""
        for _ in range(2):
            try:
                return self._screen.ask()
            except KeyboardInterrupt:
                if not self._screen.live:
                    raise
                self._screen.line("(again, or Ctrl-D, to leave)", style="2")
        return None

    def _piped(self, text: str) -> bool:
        """Say one thing and wait for its end."""
        return self._submit(self._say(text)).result()

    def _turn(self, text: str) -> bool:
        """The same at a terminal. What is typed meanwhile is said at once. An interrupt stops the turn, a second
        one leaves."""
        said, stopping = list[concurrent.futures.Future[bool]](), False

        def say_now(words: str) -> None:
            said.append(self._submit(self._say(_unicode(words))))
            keyboard.watch(said[-1])

        with Keyboard() as keyboard:
            self._screen.working("thinking …")
            try:
                say_now(text)
                while not self._leaving and not all(each.done() for each in said):
                    try:
                        lines = keyboard.lines()
                    except KeyboardInterrupt:
                        if stopping:
                            raise
                        stopping = True
                        self._screen.line("stopping … (Ctrl-C again leaves)", style="2")
                        say_now("/stop")
                        continue
                    self._leaving = lines is None or any(line.strip() in _LEAVE for line in lines)
                    for line in () if lines is None or self._leaving else filter(str.strip, lines):
                        self._screen.line(f"{PROMPT}{line}", style="2")
                        say_now(line)
            finally:
                self._screen.working(None)
        answered = [each.result() for each in said if each.done()]
        return all(answered)

    def _submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _start(self) -> None:
        """Open the conversation. Raises ClawdError when it cannot be opened."""
        self._link = Link(self._home, self._beside, self._opening, self._hear)
        self._running = asyncio.ensure_future(self._link.run())
        await self._unless_over(self._link.opened)

    async def _say(self, text: str) -> bool:
        """Whether what was said was answered. A refusal is shown; only the end of the link itself is
        raised."""
        assert self._link is not None
        saying = asyncio.ensure_future(self._link.say(text))
        try:
            receipt, outcome = await asyncio.wait_for(self._unless_over(saying), self._timeout)
        except TimeoutError:
            self._screen.line(f"no reply within {self._timeout:g} s; the message is kept", style="33")
            return False
        except ClawdError as error:
            if self._running.done():
                raise
            self._screen.line(str(error), style="31")
            return False
        finally:
            saying.cancel()
        if outcome is None:
            return receipt["state"] not in _DENIED
        held_for_rate = outcome["state"] == "held" and outcome.get("turn") is None  # its receipt said so
        quiet = held_for_rate or outcome["state"] == "stopped" or outcome.get("turn") in self._noticed
        if outcome.get("error") and not quiet:
            self._screen.line(outcome["error"], style="31")
        return outcome["state"] not in _UNANSWERED

    async def _unless_over(self, awaited: asyncio.Future[T]) -> T:
        """What is awaited, or the exception with which the link gave up before."""
        both: set[asyncio.Future[Any]] = {self._running, awaited}
        await asyncio.wait(both, return_when="FIRST_COMPLETED")
        if not awaited.done():
            self._running.result()
        return awaited.result()

    def _hear(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "message":
            self._screen.message(data)
            if data["kind"] == "notice":
                self._noticed.add(data["turn"])
            if self._link is not None:
                self._link.acknowledge([data["delivery"]])
        elif kind == "opened":
            if self._screen.live:
                with_whom = f"talking to {self._opening['group']}"
                self._screen.line(f"{with_whom} · /help · Ctrl-C stops a reply · Ctrl-D leaves", style="2")
        elif kind == "receipt":
            if data["told"]:
                self._screen.line(data["told"])
        elif kind == "delta":
            self._screen.delta(data)
        elif kind == "tool":
            self._screen.tool(data)
        elif kind == "turn":
            self._screen.turn(data)

    async def _finish(self) -> None:
        if self._link is not None:
            await self._link.settle()
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
