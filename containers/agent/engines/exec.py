"""Engine "exec": any headless command line, as its `[engines]` entry describes it (`context.exec`).

The entry says how the prompt goes in and where in its output the answer, its session, usage, errors and tool calls are:
patterns of words. `path=value` must hold of an event, `name:path` takes something out of it, a bare path is the value;
a path is keys with dots, `a|b` the first of them that is there. Of several events the last answer counts; usage is
summed. A program that holds our conversation already is resumed; any other is told it in the prompt. Its end is never
taken for an answer: a failure, a block by its own permission rules and silence are sentences."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import suppress

from agent import protocol
from agent.calls import as_json, count, text_of
from agent.engines import foreign
from agent.processes import kill_group
from agent.turn import Answer, cut_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.turn import Turn

STATE = ".engines"
ARGUMENT_BYTES = 128 << 10  # the kernel's limit for one argument
OUTPUT_BYTES = 32 << 20  # of JSON: it has to be read as a whole
TOKEN_BYTES = 4  # a token of text, when the program does not say what it used
_INPUT = ("input", "input_tokens", "inputTokens", "prompt_tokens")
_OUTPUT = ("output", "output_tokens", "outputTokens", "completion_tokens")
_CACHED = ("cached", "cached_input_tokens", "cache_read_input_tokens", "cacheRead", "cache.read")
_BLOCKS = ("permission denied by", "permission requested", "requires approval", "auto-rejecting", "not allowed by")


def respond(turn: Turn) -> Answer:
    entry = turn.context.get("exec") or {}
    foreign.close(turn)
    poster = foreign.Poster(turn)
    memory = foreign.memory_of(os.path.join(turn.place.work, STATE), f"{entry['name']} {turn.context['session']}")
    history = turn.context.get("history") or []
    setting = json.dumps([entry["name"], turn.context.get("system"), turn.context.get("models")])
    known = foreign.recall(memory, foreign.same(turn, history, setting))
    session = known if entry.get("resume") and not turn.steps else None
    run = Run(turn, entry, poster, session)
    answer = run.answer()
    if session and answer.error and not run.said and not turn.steps:  # it may have lost its session
        run = Run(turn, entry, poster, None)
        answer = run.answer()
    if not answer.error and run.session:
        after = foreign.same(turn, foreign.after(turn, answer.text), setting)
        with suppress(OSError):  # then it is told the conversation anew
            foreign.remember(memory, run.session, after)
    return answer


class Run:
    """One run of the command."""

    def __init__(self, turn: Turn, entry: dict[str, Any], poster: foreign.Poster, session: str | None) -> None:
        self._turn, self._entry, self._poster = turn, entry, poster
        self._name, self._model = str(entry["name"]), foreign.Model(turn)
        self._prompt = prompt_of(turn, bool(session))
        self.session, self._resumed = session, bool(session)
        self.said = ""
        self._errors: list[str] = []
        self._usage = [0, 0, 0]
        self._size = 0

    def answer(self) -> Answer:
        """Raises Stopped, LeaseLost and GivenUp."""
        argv = [self._filled(word) for word in self._entry["resume" if self._resumed else "command"]]
        if any(len(word.encode()) >= ARGUMENT_BYTES for word in argv):
            return self._failed("cannot be given so long a conversation as an argument: shorten the session with /new")
        try:
            for path, text in (self._entry.get("files") or {}).items():
                self._write(path, self._filled(text))
        except OSError as error:
            return self._failed(f"could not be given its files in work/: {error.strerror}")
        environment = {name: self._filled(text) for name, text in (self._entry.get("environment") or {}).items()}
        try:
            process = self._turn.start(argv, more=environment, talks=True)
        except OSError as error:
            return self._failed(
                f"could not be started: {argv[0]}: {error.strerror}. Install it in the image or on this machine, or"
                f" mount it and name its path in [engines.{self._name}] command"
            )
        lines = foreign.Lines(process)
        threading.Thread(target=feed, args=(process, self._text_in()), daemon=True).start()
        try:
            self._read(lines)
        finally:
            kill_group(process.pid)
            code = self._turn.processes.finished(process)
            lines.close()
        self._turn.check()
        return self._ending(code, lines.errors())

    def _text_in(self) -> str:
        return self._prompt if self._entry.get("prompt") == "stdin" else ""

    def _filled(self, text: str) -> str:
        model = self._model
        for name, value in {
            "{model}": model.name,
            "{effort}": model.effort or "medium",
            "{max_output}": str(model.max_output),
            "{base_url}": model.base_url,
            "{service_url}": model.service_url,
            "{gateway}": self._turn.place.gateway,
            "{token}": self._turn.place.token,
            "{work}": self._turn.place.work,
            "{conversation}": str(self._turn.context["session"]),
            "{session}": self.session or "",
            "{prompt}": self._prompt,  # the last one: what it says is not filled in
        }.items():
            text = text.replace(name, value)
        return text

    def _write(self, path: str, text: str) -> None:
        full = os.path.join(self._turn.place.work, path)
        os.makedirs(os.path.dirname(full), mode=0o700, exist_ok=True)
        foreign.write(full, text)

    # ---- what it says

    def _read(self, lines: foreign.Lines) -> None:
        kind, kept = self._entry.get("output") or "plain", bytearray()
        for line in foreign.lines_of(self._turn, lines, self._poster):
            self._size += len(line)
            if kind == "stream-json":
                self._event(as_json(line) or {})
            elif len(kept) < OUTPUT_BYTES:
                kept += line
        if kind == "json":
            self._event(as_json(bytes(kept[kept.find(b"{") :])) or {})
        elif kind == "plain":
            self.said = kept.decode("utf-8", "backslashreplace").strip()

    def _event(self, event: dict[str, Any]) -> None:
        for key in ("answer", "session", "error", "usage", "calls", "results"):
            found = matched(self._entry.get(key) or "", event)
            if found is None:
                continue
            value = found.get("value")
            if key == "answer" and (text := text_of(value)):
                self.said = text
            elif key == "session" and isinstance(value, str):
                self.session = value
            elif key == "error" and value:
                self._errors.append(text_of(value))
            elif key == "usage" and isinstance(value, dict):
                self._usage = list(map(int.__add__, self._usage, counts_of(value)))
            elif key == "calls":
                arguments = found.get("arguments")
                given = arguments if isinstance(arguments, dict) else {"input": arguments}
                self._poster.calls("", [(str(found.get("id")), str(found.get("name")), given)])
            elif key == "results":
                self._poster.result(str(found.get("id")), text_of(found.get("output")))

    def _ending(self, code: int, errors: str) -> Answer:
        text = protocol.hidden(self.said.strip())
        said = protocol.hidden("; ".join(filter(None, [*self._errors, errors])))
        if code < 0:
            return self._failed(f"was ended by {signal.Signals(-code).name}", said, stop_reason="end")
        if (code or not text) and (block := self._block(f"{said}\n{text}")):
            what = f"was stopped by its own permission rules ({block}), which [engines.{self._name}] can change"
            return self._failed(what, said)
        if code:
            return self._failed(f"ended with exit code {code}", said or text)
        if not text:
            return self._failed("ended without an answer", said, stop_reason="end")
        return Answer(text, **self._more(answered=True))

    def _block(self, said: str) -> str | None:
        words = [*_BLOCKS, *(self._entry.get("blocked") or ())]
        return next((word for word in words if word.lower() in said.lower()), None)

    def _failed(self, what: str, said: str = "", stop_reason: str = protocol.GIVEN_UP) -> Answer:
        error = f"{self._name} {what}" + (f": {cut_text(said)[-800:]}" if said else ".")
        return Answer(error=error, stop_reason=stop_reason, **self._more())

    def _more(self, answered: bool = False) -> dict[str, Any]:
        """Model and usage. Of an answer whose program does not say what it used, an estimate that is marked as one; who
        did not answer may have asked no model at all."""
        used, told = self._usage, any(self._usage)
        if answered and not told:
            used = [len(self._prompt.encode()) // TOKEN_BYTES, len(self.said.encode()) // TOKEN_BYTES, 0]
        usage = {"input": used[0], "output": used[1], "cached": used[2], "estimated": not told}
        return {"model": self._model.name or self._name, "usage": usage if told or answered else None}


def prompt_of(turn: Turn, resumed: bool) -> str:
    """What the program is told: this turn's wakes, and before them all that it does not have yet."""
    if resumed:
        return foreign.asked(turn)
    parts = [part["text"] for part in turn.context.get("system") or ()]
    if turn.steps:
        parts += [foreign.narrated(foreign.whole(turn)), foreign.GO_ON]
    else:
        parts += [foreign.narrated(turn.context.get("history") or []), foreign.asked(turn)]
    return "\n\n".join(filter(None, [*parts, foreign.done(turn)]))


def feed(process: Any, text: str) -> None:
    with suppress(OSError), process.stdin as pipe:  # it may not read to the end
        pipe.write(text.encode("utf-8", "backslashreplace"))


# ---- patterns


def matched(pattern: str, event: dict[str, Any]) -> dict[str, Any] | None:
    """What a pattern takes out of an event; None when it does not match, or there is no pattern."""
    if not pattern:
        return None
    found = {}
    for word in pattern.split():
        path, equals, wanted = word.partition("=")
        if equals:
            if str(at(event, path)) != wanted:
                return None
            continue
        name, colon, path = word.partition(":")
        found[name if colon else "value"] = at(event, path if colon else name)
    return found


def at(value: Any, path: str) -> Any:
    """What lies at a path, None when nothing does."""
    for one in path.split("|"):
        found = value
        for key in one.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if found is not None:
            return found
    return None


def counts_of(usage: dict[str, Any]) -> list[int]:
    """Input, output and cached tokens, whatever they are called."""

    def first(names: tuple[str, ...]) -> int:
        return next(filter(None, (count(at(usage, name)) for name in names)), 0)

    return [first(_INPUT), first(_OUTPUT), first(_CACHED)]
