"""What the foreign engines share: where the gateway is, posting what another program did as steps of ours, telling it a
conversation in words, and knowing whether the session that it keeps is still the one that we have.

What lies in `work/` is the agent's to write: from there nothing is taken but "it is the same". `history`, `steps` and
what is posted are messages in the OpenAI shape of session files."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
import time
from contextlib import suppress

from agent import protocol
from agent.calls import as_json, as_step
from agent.engines.conversation import messages_of
from agent.tools.output import Output
from agent.turn import GivenUp, cut_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from typing import Any

    from agent.turn import Turn

    Message = dict[str, Any]

OURS = "mcp__clawd__"  # before the name of a tool of ours, as Claude Code has it
LINE_BYTES = 32 << 20  # a longer line is no event of anybody
_REMEMBERED_BYTES = 4096
_AT_ONCE = 0.1  # seconds between two deliveries of what was said
UNANSWERED = "[interrupted: the sandbox ended while this ran. Whether it was done is not known.]"
GO_ON = (
    "[clawd: the sandbox ended while you were at work on this. What you had done is above; what is there was done,"
    " do not do it again. Go on from there.]"
)

DONE = "[clawd: of your tools here these calls were done for this already, and are not to be done again:]"


class Model:
    """`context.models[0]`: which model, and where. `base_url` is what `/messages` or `/chat/completions` is added to,
    `service_url` the service's own address; without a model all are empty."""

    def __init__(self, turn: Turn) -> None:
        models = turn.context.get("models") or [{}]
        first = models[0]
        self.name: str = first.get("model") or ""
        self.service: str = first.get("service") or ""
        self.effort: str = first.get("effort") or ""
        self.max_output = int(first.get("max_output") or 8192)
        self.fallbacks = [each["model"] for each in models[1:] if each.get("service") == self.service]
        self.service_url = f"{turn.place.gateway}/svc/{self.service}"
        path = re.sub(r"/(messages|chat/completions)$", "", first.get("path") or f"/svc/{self.service}/v1")
        self.base_url = turn.place.gateway + path


class Poster:
    """Posts what a foreign engine does as steps of the turn, so that the record and a later attempt have it. Calls get
    ids of ours; results are posted in the order of their calls. Raises GivenUp for what goes round in circles."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._open: list[tuple[str, str, str]] = []  # calls without a posted result: their id, ours, the tool
        self._results: dict[str, str] = {}
        self._calls = sum(len(step.get("tool_calls") or ()) for step in turn.steps)
        self._rounds = sum(step["role"] == "assistant" for step in turn.steps)
        self._told = 0.0

    def calls(self, text: str, calls: list[tuple[str, str, dict[str, Any]]]) -> None:
        """One assistant message with its calls (the engine's id, name, arguments), before they run."""
        if self._rounds >= self._turn.limits["steps"]:
            raise GivenUp(f"The agent took {self._rounds} steps and did not come to an end.")
        self._rounds += 1
        for _, name, arguments in calls:
            self._turn.count(name, json.dumps(arguments, sort_keys=True))
        made = as_step([(name, arguments) for _, name, arguments in calls], self._turn.id, self._calls)
        self._calls += len(calls)
        self._post({"role": "assistant", "content": cut_text(text), "tool_calls": made})
        for (id, name, _), call in zip(calls, made):
            self._open.append((id, call["id"], name))
            self._turn.tool_event(name, "start")
        self.tell()

    def result(self, id: str, text: str) -> None:
        if all(id != one for one, _, _ in self._open):
            return
        output = Output(self._turn.limits["output_bytes"])
        output.add(text.encode("utf-8", "backslashreplace"))
        self._results[id] = output.text()
        while self._open and self._open[0][0] in self._results:
            theirs, ours, name = self._open.pop(0)
            self._turn.tool_event(name, "end")
            self._post({"role": "tool", "tool_call_id": ours, "content": self._results.pop(theirs)})

    def say(self, text: str) -> None:
        self._turn.say(text)

    def tell(self, at_once: bool = True) -> None:
        """Deliver what was said, at most ten times a second."""
        if at_once or time.monotonic() - self._told > _AT_ONCE:
            self._turn.flush()
            self._told = time.monotonic()

    def _post(self, message: Message) -> None:
        self._turn.post({**message, "at": self._turn.now()})


class Lines:
    """What a process writes, line by line, read by a thread of its own so that a turn can be stopped meanwhile."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        import queue

        self._lines: queue.Queue[bytes | None] = queue.Queue(4096)
        self._tail = bytearray()
        self._over = False
        threading.Thread(target=self._read, args=(process,), daemon=True).start()
        self._hearing = threading.Thread(target=self._errors, args=(process,), daemon=True)
        self._hearing.start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        with process.stdout as pipe:
            while line := pipe.readline(LINE_BYTES):
                self._put(line)
        self._put(None)

    def _put(self, line: bytes | None) -> None:
        import queue

        while not self._over:
            with suppress(queue.Full):
                return self._lines.put(line, timeout=0.5)
        return None

    def _errors(self, process: subprocess.Popen[bytes]) -> None:
        with process.stderr as pipe:
            while data := os.read(pipe.fileno(), 1 << 16):
                self._tail += data
                del self._tail[:-4000]

    def close(self) -> None:
        """Nobody reads on. Its threads end with what holds the pipes, which may be long after the process."""
        self._over = True

    def errors(self) -> str:
        """The end of what was written to standard error, without a token. What ended is given a moment to be read."""
        self._hearing.join(1.0)
        return protocol.clean(bytes(self._tail).decode("utf-8", "backslashreplace")).strip()

    def next(self, seconds: float) -> bytes | None:
        """The next line, b"" when none came in time, None at the end."""
        import queue

        try:
            line = self._lines.get(timeout=seconds) if seconds else self._lines.get_nowait()
        except queue.Empty:
            return b""
        if line is None:
            self._lines.put(None)  # whoever asks again is told again
        return line


def lines_of(turn: Turn, lines: Lines, poster: Poster) -> Iterator[bytes]:
    """Lines until the end, delivering meanwhile what was said. Raises Stopped, LeaseLost and GivenUp."""
    while True:
        turn.check()
        if turn.left() <= 0:
            turn.within_limits()
        line = lines.next(0)
        if line == b"":
            poster.tell()
            line = lines.next(0.2)
        if line is None:
            return
        if line:
            yield line
            poster.tell(at_once=False)


# ---- a conversation


def close(turn: Turn) -> None:
    """Give each call that an earlier attempt left open its result. Those of our own tools the daemon knows: it does
    each once, whatever the model would do about it now."""
    answered = {step.get("tool_call_id") for step in turn.steps}
    for call in [call for step in turn.steps for call in step.get("tool_calls") or ()]:
        name, arguments = call["function"]["name"], as_json(call["function"]["arguments"].encode())
        nth, text = turn.count(name, json.dumps(arguments, sort_keys=True)), UNANSWERED
        if call["id"] in answered:
            continue
        if name.startswith(OURS):
            text = turn.host_tool(name[len(OURS) :], arguments, nth)
        turn.post({"role": "tool", "tool_call_id": call["id"], "content": text, "at": turn.now()})


def asked(turn: Turn) -> str:
    """The wakes of this turn, as the model is shown them."""
    return "\n\n".join(str(wake.get("text", "")) for wake in turn.wakes if not wake.get("joined"))


def done(turn: Turn) -> str:
    """What earlier attempts did with tools of ours, of which a program that died may have told nothing; "" for none."""
    told = [json.dumps(effect, ensure_ascii=False) for effect in turn.context.get("effects") or ()]
    return "\n".join([DONE, *told]) if told else ""


def whole(turn: Turn) -> list[Message]:
    """The conversation with this turn in it: history, wakes where they joined, and the steps so far; every call has a
    result."""
    messages = messages_of(turn)
    answered = {message.get("tool_call_id") for message in messages}
    sound = []
    for message in messages:
        open_calls = [call["id"] for call in message.get("tool_calls") or () if call["id"] not in answered]
        sound += [message, *({"role": "tool", "tool_call_id": id, "content": UNANSWERED} for id in open_calls)]
    return sound


def after(turn: Turn, answer: str) -> list[Message]:
    """The conversation with this turn's answer as the next turn will be told it: without what memory gave this one."""
    given = str(turn.context.get("memories") or "")
    told = [
        {**message, "content": str(message.get("content") or "").removeprefix(given)}
        if message["role"] == "user"
        else message
        for message in whole(turn)
    ]
    return [*told, {"role": "assistant", "content": answer}]


def same(turn: Turn, messages: list[Message], *more: str) -> str:
    """The digest by which a program's session is known: another one once memory forgot something, which a session from
    before may hold."""
    return digest(messages, str(turn.context.get("forgot") or ""), *more)


def digest(messages: list[Message], *more: str) -> str:
    """What tells this conversation (in this setting) from any other; no ids and no joints between texts count."""
    import hashlib

    parts: list[list[Any]] = [["", list(more)]]
    for message in messages:
        text = str(message.get("content") or "").strip()
        calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls") or ()]
        if message["role"] == parts[-1][0] == "user":
            parts[-1][1] += "\n\n" + text
        elif text or calls or message["role"] == "tool":
            parts.append([message["role"], text, calls])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def narrated(messages: list[Message]) -> str:
    """A conversation as text, one JSON object a line, for a program that has no session of it; "" for none."""
    if not messages:
        return ""
    told = []
    for message in messages:
        entry = {key: message[key] for key in ("role", "content", "tool_calls", "tool_call_id") if message.get(key)}
        told.append(json.dumps(entry, ensure_ascii=False))
    return "The conversation so far, one JSON object a line:\n" + "\n".join(told) + "\n(end of the conversation so far)"


# ---- what is remembered between turns


def remember(path: str, id: str, same: str) -> None:
    """Keep which session of the program a conversation is. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write(path, json.dumps({"id": id, "digest": same}))


def recall(path: str, same: str) -> str | None:
    """The session of the program that holds this very conversation; it is forgotten until `remember`, so that a turn
    that ends badly leaves none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            known = as_json(file.read(_REMEMBERED_BYTES)) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
        os.unlink(path)
    except OSError:
        return None
    known = known or {}
    id = known.get("id")
    return id if known.get("digest") == same and isinstance(id, str) and re.fullmatch(r"[\w.:-]{1,200}", id) else None


def memory_of(directory: str, session: str) -> str:
    """The file that remembers a session of ours."""
    import hashlib

    return os.path.join(directory, hashlib.sha256(session.encode()).hexdigest()[:16] + ".json")


def write(path: str, text: str) -> None:
    """A file in place of whatever was there; nobody knows its name before. Raises OSError."""
    made = f"{path}.{os.urandom(8).hex()}"
    with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", errors="replace") as out:
        out.write(text)
    os.replace(made, path)
