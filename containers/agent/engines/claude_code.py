"""Engine "claude-code": the Claude Code CLI, headless, kept alive between the turns of a session.

It has its own loop and tools; ours reach it as the MCP server `clawd`. The sandbox is the wall, so a tool that stays
inside is allowed; what would go around the gateway, or ask a person by itself, is denied in words that name what to
use instead. A tool that asks waits until its call is posted as a step. What it keeps in `work/` is used only where it
is the same conversation as ours; else its session is written anew from ours. A follow-up is a turn of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from contextlib import suppress

from agent.calls import as_json
from agent.engines import foreign
from agent.engines.claude_stream import Stream
from agent.processes import kill_group
from agent.turn import Answer, GivenUp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.turn import Turn

COMMAND = ("claude",)
STATE = ".claude-state"
MOST_IDLE = 2  # processes of a run that wait for a turn: each has some 240 MB
TOOLS = "Bash,Edit,Glob,Grep,NotebookEdit,Read,Task,TodoWrite,Write,WebFetch,WebSearch,AskUserQuestion"
MISSING = (
    'There is no Claude Code in this sandbox: the command "{0}" is not there. With Docker, build its image: clawd image'
    " build --target claude-code. With bubblewrap, install it on this machine for every user, or mount it into the"
    ' group and name it in config.toml: [engines.claude-code] command = ["/mnt/NAME/claude"].'
)
# What is tried once more in another way: the gateway's word for a token that was about to leave with a request (what we
# have of the conversation is without it), and the CLI's for a session file that it does not take.
_AGAIN = ("placeholder_misuse", "No conversation found")
SETTING = (
    "system",
    "models",
    "environment",
    "exec",
    "authority",
)  # of a turn's context: all that a process is bound to


class Engine:
    """One process of the CLI, for one session. `key` is all that it was started with; `same` the digest of the
    conversation that it holds."""

    def __init__(self, turn: Turn, key: str, id: str, argv: list[str], environment: dict[str, str]) -> None:
        self.key, self.id, self.same = key, id, ""
        self.authority = turn.context.get("authority")
        self._processes = turn.processes
        self._process = turn.start(argv, turn.place.group, environment, talks=True)
        turn.processes.keep(self._process.pid)
        self.lines = foreign.Lines(self._process)

    def serve(self, turn: Turn) -> bool:
        """Work for this turn from now on. False when it is dead."""
        turn.used_processes = True
        os.kill(self._process.pid, signal.SIGCONT)
        self._processes.lend(self._process.pid, turn.id)
        while line := self.lines.next(0):  # what it said between turns is nobody's
            self.deny(as_json(line) or {})
        return line is not None

    def pause(self) -> None:
        """Between turns it does nothing at all: awake it looks around a hundred times a second."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def send(self, message: dict[str, Any]) -> None:
        """Raises OSError when it is dead."""
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def deny(self, event: dict[str, Any]) -> None:
        if event.get("type") == "control_request":
            self.answer(event, "There is no turn.")

    def answer(self, event: dict[str, Any], denied: str | None) -> None:
        """Whether a tool may run."""
        asked = event.get("request") or {}
        reply = {"subtype": "error", "request_id": event.get("request_id"), "error": "not supported here"}
        if asked.get("subtype") == "can_use_tool":
            said = {"behavior": "allow", "updatedInput": asked.get("input") or {}}
            said = {"behavior": "deny", "message": denied} if denied else said
            reply = {"subtype": "success", "request_id": event.get("request_id"), "response": said}
        self.send({"type": "control_response", "response": reply})

    def close(self) -> int:
        """End it and what is in its group. Gives its exit code."""
        kill_group(self._process.pid)
        code = self._processes.finished(self._process)
        self.lines.close()
        with suppress(OSError):  # the rest of a line that nobody reads
            self._process.stdin.close()
        return code


class Idle:
    """The processes that wait for a turn, by session, the longest idle first."""

    def __init__(self) -> None:
        self._engines: dict[str, Engine] = {}
        self._lock = threading.Lock()

    def take(self, turn: Turn, key: str, same: str) -> Engine | None:
        """The one that holds this conversation and was started for just this; any other of the session, and those of
        another authority, end."""
        session = turn.context["session"]
        with self._lock:
            authority = turn.context.get("authority")
            ours = {name for name, one in self._engines.items() if name == session or one.authority != authority}
            taken = {name: self._engines.pop(name) for name in ours}
        engine = taken.get(session)
        if engine is not None and (engine.key, engine.same) == (key, same) and engine.serve(turn):
            del taken[session]
        else:
            engine = None
        for one in taken.values():
            one.close()
        return engine

    def park(self, session: str, engine: Engine) -> None:
        engine.pause()
        with self._lock:
            self._engines[session] = engine
            spare = list(self._engines)[: max(0, len(self._engines) - MOST_IDLE)]
            ended = [self._engines.pop(name) for name in spare]
        for one in ended:
            one.close()


_idle = Idle()


def respond(turn: Turn) -> Answer:
    foreign.close(turn)
    poster = foreign.Poster(turn)
    for way in ("kept", "rebuilt", "told"):
        answer = attempt(turn, poster, way)
        if not any(sign in (answer.error or "") for sign in _AGAIN):
            break
    return answer


def attempt(turn: Turn, poster: foreign.Poster, way: str) -> Answer:
    """One run of the CLI over the turn, from what was done already: with the session that it kept, with one that is
    written anew, or told the conversation in its prompt. Raises Stopped, LeaseLost and GivenUp."""
    context, done = turn.context, bool(turn.steps)
    memory = foreign.memory_of(os.path.join(turn.place.work, STATE, "clawd"), context["session"])
    key = foreign.digest([], json.dumps([context.get(name) for name in SETTING]), turn.place.token, instructions(turn))
    history = context.get("history") or []
    before = foreign.same(turn, history)
    known = foreign.recall(memory, before)
    fresh = way == "kept" and not done
    engine = _idle.take(turn, key if fresh else "", before)
    prompt = "\n\n".join(filter(None, (foreign.GO_ON if done else foreign.asked(turn), foreign.done(turn))))
    if engine is None:
        messages = foreign.whole(turn) if done else history
        id = known if fresh and known and os.path.isfile(session_file(turn, known)) else None
        with suppress(OSError):  # work/ is full, or not as it should be
            id = id or (rebuilt(turn, messages) if way != "told" else None)
        if id is None:
            prompt = "\n\n".join(filter(None, (foreign.narrated(messages), prompt)))
        try:
            engine = start(turn, key, id or new_id())
        except (FileNotFoundError, PermissionError):
            raise GivenUp(MISSING.format(command(turn)[0])) from None
    try:
        answer = converse(turn, engine, poster, prompt)
    except BaseException:
        engine.close()
        raise
    if answer.error or context.get("job"):
        engine.close()
        return answer
    engine.same = foreign.same(turn, foreign.after(turn, answer.text))
    with suppress(OSError):  # then its session is written anew when it is needed
        foreign.remember(memory, engine.id, engine.same)
    _idle.park(context["session"], engine)
    return answer


def command(turn: Turn) -> list[str]:
    return list((turn.context.get("exec") or {}).get("command") or COMMAND)


def start(turn: Turn, key: str, id: str) -> Engine:
    """Raises OSError."""
    model = foreign.Model(turn)
    settings = {
        "disableAllHooks": True,
        "autoMemoryEnabled": False,
        "claudeMdExcludes": [f"{turn.place.work}/**"],  # what an agent wrote is no instruction
        "attribution": {"commit": "", "pr": ""},
    }
    headers = {"Authorization": "Bearer ${CLAWD_TOKEN}", "X-Clawd-Session": turn.context["session"]}
    ours = {"clawd": {"type": "http", "url": f"{turn.place.gateway}/mcp", "headers": headers}}
    options = {
        "--input-format": "stream-json",
        "--output-format": "stream-json",
        "--permission-prompt-tool": "stdio",
        "--setting-sources": "project",
        "--settings": json.dumps(settings),
        "--mcp-config": json.dumps({"mcpServers": ours}),
        "--append-system-prompt": system(turn),
        "--system-prompt-snapshot": "off",
        "--add-dir": turn.place.work,
        "--model": model.name,
        "--effort": model.effort,
        "--fallback-model": ",".join(model.fallbacks),
        "--resume": id if os.path.exists(session_file(turn, id)) else "",
    }
    if turn.context.get("job"):  # no tools, and nothing but what it is asked
        options |= {"--system-prompt": system(turn), "--append-system-prompt": "", "--mcp-config": "", "--add-dir": ""}
    argv = [*command(turn), "-p", "--verbose", "--include-partial-messages", "--replay-user-messages"]
    argv += ["--strict-mcp-config", "--tools", "" if turn.context.get("job") else TOOLS]
    for name, value in options.items():
        argv += [name, value] if value else []
    if not options["--resume"]:
        argv += ["--session-id", id]
    tool_ms = str(int(turn.limits["tool_s"] * 1000))
    environment = {
        "CLAUDE_CONFIG_DIR": os.path.join(turn.place.work, STATE),
        "ANTHROPIC_BASE_URL": model.service_url,
        "ANTHROPIC_API_KEY": turn.place.token,
        "ANTHROPIC_CUSTOM_HEADERS": f"X-Clawd-Session: {turn.context['session']}",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(model.max_output),
        "CLAUDE_CODE_MAX_RETRIES": "2",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",  # they would wake it when no turn is there
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
        "BASH_DEFAULT_TIMEOUT_MS": tool_ms,
        "BASH_MAX_TIMEOUT_MS": tool_ms,
        "MCP_TOOL_TIMEOUT": tool_ms,
    }
    return Engine(turn, key, id, argv, environment)


def instructions(turn: Turn) -> str:
    """CLAUDE.md as it is shown just now: a process keeps the one that it began with."""
    try:
        with open(os.path.join(turn.place.group, "CLAUDE.md"), encoding="utf-8", errors="backslashreplace") as file:
            return file.read()
    except OSError:
        return ""


def system(turn: Turn) -> str:
    """Our parts of the system prompt. CLAUDE.md is left out: the CLI reads it by itself."""
    parts = [part["text"] for part in turn.context.get("system") or () if part["name"] != "CLAUDE.md"]
    parts.append(f"The working directory {turn.place.group} is read-only; write in {turn.place.work}.")
    return "\n\n".join(parts)


# ---- its session file


def session_file(turn: Turn, id: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]", "-", turn.place.group)
    return os.path.join(turn.place.work, STATE, "projects", name, f"{id}.jsonl")


def rebuilt(turn: Turn, messages: list[dict[str, Any]]) -> str:
    """Write a conversation as a session of the CLI's. Gives the new session's id. Raises OSError."""
    id = new_id()
    if rows := session_rows(messages, id, turn.place.group):
        path = session_file(turn, id)
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        foreign.write(path, "".join(json.dumps(row) + "\n" for row in rows))
    return id


def new_id() -> str:
    import uuid

    return str(uuid.uuid4())


def session_rows(messages: list[dict[str, Any]], id: str, directory: str) -> list[dict[str, Any]]:
    """The lines of its session file, each hung beneath the one before."""
    rows: list[dict[str, Any]] = []
    for message in messages:
        text, role = str(message.get("content") or ""), message["role"]
        content: Any = text
        if role == "tool":
            content = [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text}]
        elif role == "assistant":
            content = [{"type": "text", "text": text}] if text.strip() else []
            for call in message.get("tool_calls") or ():
                given = as_json(call["function"]["arguments"].encode()) or {}
                content.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": given})
        if not content:
            continue
        kind = "assistant" if role == "assistant" else "user"
        said: dict[str, Any] = {"role": kind, "content": content}
        if kind == "assistant":
            usage = {"input_tokens": 0, "output_tokens": 0}
            said |= {"id": f"msg_{len(rows)}", "type": "message", "model": "", "stop_reason": None, "usage": usage}
        rows.append(
            {
                "parentUuid": rows[-1]["uuid"] if rows else None,
                "isSidechain": False,
                "userType": "external",
                "cwd": directory,
                "sessionId": id,
                "version": "2.0.0",
                "type": kind,
                "message": said,
                "uuid": new_id(),
                "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
            }
        )
    return rows


# ---- one turn


def converse(turn: Turn, engine: Engine, poster: foreign.Poster, prompt: str) -> Answer:
    """Ask, and follow what it does until it has answered."""
    stream = Stream(engine, poster)
    try:
        engine.send({"type": "user", "message": {"role": "user", "content": prompt}})
        for line in foreign.lines_of(turn, engine.lines, poster):
            if (answer := stream.take(as_json(line) or {})) is not None:
                return answer
    except BrokenPipeError:
        pass
    turn.check()
    code = engine.close()
    why = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    said = engine.lines.errors()[-500:]
    return Answer(error=f"Claude Code ended in the middle ({why})" + (f": {said}" if said else "."), model=stream.model)
