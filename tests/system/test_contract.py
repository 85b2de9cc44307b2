"""The public interface, from outside: commands, JSON, exit codes, environment. This file knows the contract and nothing
of the code; what stands in `CONTRACT` is the contract's own text."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import EACH, Home, call, chosen, homes, until

pytestmark = pytest.mark.timeout(300)

MESSAGE = (
    "id, channel, chat, platform_id, group, session, sender, role, state, turn|null, attempt, received, reason|null"
)
DELIVERY = "id, turn|null, channel, chat, n, kind, state, platform_id|null, attempts, error|null"
GROUP = "group, folder, sessions, bindings[], engine, backend, authority, taint"
APPROVAL = "id, kind, state, person, channel, chat, made, expires, decided|null, result|null, what, group|null"
SKILL = "name, scope, group|null, description, fitness|null, shadows, proposed, warnings[], errors[], path"
SCHEDULE = "id, group, expr, tz, next|null, last|null, enabled, proposed, error|null"
MEMORY = (
    "id, kind, status, trust, origin, source, event_time, created, updated, taint, private, key|null, tags[],"
    " derived_from[], supersedes|null, namespace|null, said{quote, inbound|null}|null, file|null,"
    " text"
)
FIRING = "id, due, fired|null, outcome, reason|null, turn|null"
CONTRACT = {
    "status": "{version, pid, home, uptime_s, ready, groups, turns{queued, running, held}, sandboxes,"
    " channels[{channel, state}], webhooks{listen, state, error|null}|null}",
    "doctor": "[{check, level, message, command|null}]",
    "doctor --recover": "[{check, level, message, command|null}]",
    "chat": "{turn, session, group, reply, files[], engine, model|null, backend, attempt, ms,"
    " usage{input, output, cached, usd|null}|null, error|null}",
    "config check": "{ok, errors[{where, what, hint}]}",
    "groups list": f"[{{{GROUP}}}]",
    "messages list": f"[{{{MESSAGE}}}]",
    "messages show": f"{{{MESSAGE}, parts[{{origin, text}}], wakes[], steps[], deliveries[{{{DELIVERY}}}], forgotten,"
    " reply|null}",
    "deliveries list": f"[{{{DELIVERY}}}]",
    "session list": "[{session, group, file, messages, bytes, updated}]",
    "session show": "[{role, ts, content, tool_calls?, tool_call_id?, turn?}]",
    "session check": "{ok, file, messages, repaired, errors[]}",
    "context status": "{session, group, status, stopped_reason|null, profile, soft, hard, window_tokens,"
    " cumulative_tokens, estimated, step_index, compact_count, last_recall|null, parent|null, successor|null,"
    " handoff_manifest|null, pending_confirm|null, usd|null, agent_id|null, memory_namespace|null,"
    " ledger{goal, verified[], constraints[], blockers[], decisions[], next_safe_action}, last_decision|null}",
    "context compact": "{session, action, trigger, state, method, before, after, recall|null, successor|null}",
    "context handoff": "{session, successor|null, handoff_manifest|null, state}",
    "context signal": "{session, status}",
    "context export": "{session, format, files[]}",
    "context show": "{parts[{name, bytes, tokens, text}], bytes, tokens}",
    "context decide": "{action, trigger, tokens, soft, hard, estimated, profile}",
    "context calibrate": "{profile, sessions, sufficient, soft|null, hard|null, file|null}",
    "mounts check": "{allow, mode|null, real, rule, reason}",
    "sandbox list": "[{group, run, backend, state, id, limits, since}]",
    "gateway services": "[{service, granted_to[{group, for, credential}], credential, hosts[], base_url|null}]",
    "gateway audit": "[{ts, group, run, turn|null, service, method, host, path, verdict, rule, status, bytes_in,"
    " bytes_out, ms, credential|null, tokens|null, usd|null}]",
    "budget show": "[{group, service|null, period, unit, limit, spent, reserved, opens|null}]",
    "usage": "[{key, turns, input, output, cached, usd|null, known_usd}]",
    "gateway check": "{allow, rule, reason, hint, service|null}",
    "channels list": "[{channel, state, last_inbound|null, last_outbound|null, error|null}]",
    "channels test": "{ok, checks[{what, ok, hint}]}",
    "pair": "{code, expires, person, role}",
    "people list": "[{name, role, accounts[]}]",
    "people grant": "{name, role, accounts[]}",
    "people revoke": "{person, stopped}",
    "approvals list": f"[{{{APPROVAL}}}]",
    "approvals show": f"{{{APPROVAL}, words, effect}}",
    "approvals approve": f"{{{APPROVAL}}}",
    "schedule list": f"[{{{SCHEDULE}}}]",
    "schedule show": f"{{{SCHEDULE}, times[], acts_for, trust, text, file|null, history[{{{FIRING}}}]}}",
    "schedule history": f"[{{{FIRING}}}]",
    "schedule next": "{times[], said|null, error|null}",
    "schedule add": "{id, group, file, expr, tz, understood, next[], prompt|null}",
    "schedule run": f"{{{FIRING}}}",
    "schedule pause": "{id, group, enabled}",
    "schedule resume": "{id, group, enabled}",
    "schedule remove": "{id, group, kept}",
    "skills list": f"[{{{SKILL}}}]",
    "skills show": f"{{{SKILL}, triggers[], allowed_tools|null, compatibility, license, metadata, sha256|null,"
    " files[{path, bytes}], body}",
    "skills check": "{ok, name, errors[], warnings[]}",
    "skills pending": "[{id, name, group, what, made, expires, path|null}]",
    "skills new": "{name, scope, group|null, path}",
    "skills add": "{name, scope, group|null, path, files, bytes, scripts[], kept|null, shadows, warnings[]}",
    "skills remove": "{name, scope, group|null, kept}",
    "memory search": "{lanes[], hits[{id, kind, score, text, source, origin, trust, status, event_time, file|null}]}",
    "memory list": f"[{{{MEMORY}}}]",
    "memory why": "{id, source, origin, trust, status, lineage[], shown_in[{turn, at, session}],"
    " history[{ts, op, trust, status, turn|null}], notes[]}",
    "memory pending": f"[{{{MEMORY}, why}}]",
    "memory write": f"{{group, {MEMORY}, why?, conflicts?|null}}",
    "memory delete": "{group, id, also[], sessions, rows, left[]}",
    "memory consolidate": "{group, changed, actions[]}",
    "backup create": "{archive, kind, group|null, label|null, files, bytes, skipped[{path, why}]}",
    "backup verify": "{ok, archive, kind|null, group|null, files, bytes, errors[]}",
    "backup restore": "{restored, kind, group|null, files, replaced|null, notes[]}",
    "backup list": "[{name, kind|null, group|null, label|null, created|null, files, bytes, size, groups[],"
    " error|null}]",
}
MESSAGE_STATES = [
    "received",
    "held",
    "claimed",
    "answered",
    "delivered",
    "recorded",
    "failed",
    "stopped",
    "stale",
    "withdrawn",
]
DELIVERY_STATES = ["draft", "pending", "sending", "sent", "unknown", "resent", "failed", "cancelled"]
CHANNEL_STATES = ["starting", "live", "degraded", "dead"]
LIMITS = ["cgroup", "scope", "rlimit"]
LEVELS = ["ok", "warn", "error"]
ROLES = ["owner", "admin", "member", "none"]
ORIGINS = ["owner", "admin", "member", "agent", "tool", "document", "external", "hand", "system"]
BACKENDS = ["auto", "docker", "bubblewrap"]
ENGINES = ["offline", "scripted", "messages", "chat", "claude-code", "exec"]

NOT_YET = """skills history N | skills revert N 1 | session seal S | erase --person P | migrate --dry-run | dashboard
update | evals"""


# ── the contract's notation ──


def shape(notation: str) -> Any:
    """The notation as data: a dict of name → (shape, optional, nullable), a one-element list, or None for a value."""
    value, rest = _shape(notation.strip())
    assert not rest, rest
    return value


def _shape(text: str) -> tuple[Any, str]:
    if text.startswith("["):
        inner, rest = _shape(text[1:]) if not text.startswith("[]") else (None, text[1:])
        assert rest.startswith("]"), rest
        return [inner], rest[1:]
    if not text.startswith("{"):
        return None, text
    fields: dict[str, tuple[Any, bool, bool]] = {}
    rest = text[1:]
    while True:
        name = re.match(r"\s*(\w+)(\??)", rest)
        assert name, rest
        value, rest = _shape(rest[name.end() :])
        nullable = rest.startswith("|null")
        fields[name[1]] = (value, bool(name[2]), nullable)
        rest = rest.removeprefix("|null").lstrip()
        if rest.startswith("}"):
            return fields, rest[1:]
        assert rest.startswith(","), rest
        rest = rest[1:]


def check(value: Any, wanted: Any, where: str = "") -> None:
    """The value has exactly this shape, and every field that is not nullable is there."""
    if isinstance(wanted, list):
        assert isinstance(value, list), where
        for number, each in enumerate(value):
            check(each, wanted[0], f"{where}[{number}]")
    elif isinstance(wanted, dict):
        assert isinstance(value, dict), where
        needed = {name for name, (_, optional, _) in wanted.items() if not optional}
        assert needed <= set(value) <= set(wanted), f"{where}: {set(value) ^ set(wanted)}"
        for name, inner in value.items():
            below, _, nullable = wanted[name]
            assert nullable or inner is not None, f"{where}.{name} is null"
            if inner is not None:
                check(inner, below, f"{where}.{name}")


def test_the_notation_is_read() -> None:
    assert shape("[{a, b|null, c?, d[], e{f}|null}]") == [
        {
            "a": (None, False, False),
            "b": (None, False, True),
            "c": (None, True, False),
            "d": ([None], False, False),
            "e": ({"f": (None, False, False)}, False, True),
        }
    ]


@pytest.mark.parametrize(
    "wrong", [{"a": 1}, {"a": None, "b": 1}, {"a": 1, "b": 1, "c": 1}, [], {"a": 1, "b": 1, "d": {}}]
)
def test_what_has_another_shape_is_noticed(wrong: Any) -> None:
    with pytest.raises(AssertionError):
        check(wrong, shape("{a, b|null, d?[]}") if not isinstance(wrong, list) else shape("{a}"))


def moment(text: str) -> datetime:
    """RFC 3339 with an offset."""
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text), text
    return datetime.fromisoformat(text)


# ── one home that has lived ──

ASK = "import http.client as h; c = h.HTTPConnection('127.0.0.1', 8080); c.request('GET', '/svc/nothing/v1'); " + (
    "print(c.getresponse().status)"
)
STEPS = [
    {**call("bash", command="echo milk > list.txt"), "usage": {"input": 10, "output": 2}},
    {**call("send_file", path="list.txt"), "usage": {"input": 5, "output": 1, "cached": 3}},
    {"text": "here is {message}"},
    {"error": "the model broke"},
    {"text": "later", "delay_s": 4},
]
LOOKS = {
    "status": "status",
    "groups list": "groups list",
    "messages list": "messages list",
    "messages show": "messages show 1",
    "messages show with tools": "messages show 2",
    "messages show failed": "messages show 3",
    "messages show held": "messages show 4",
    "deliveries list": "deliveries list",
    "session list": "session list",
    "session show": "session show terminal:play",
    "session check": "session check terminal:play",
    "sandbox list": "sandbox list",
    "gateway services": "gateway services",
    "gateway audit": "gateway audit --group main --since 1h",
    "gateway check": "gateway check --group main POST /svc/nothing/v1 --as member",
    "config check": "config check",
    "context status": "context status --session terminal:play",
    "context show": "context show --wake hello",
    "context decide": "context decide --tokens 260000 --profile coding",
    "context calibrate": "context calibrate --profile coding",
    "mounts check": "mounts check /nowhere",
    "budget show": "budget show",
    "usage": "usage",
    "usage by session": "usage --by session",
    "doctor": "doctor",
    "channels list": "channels list",
    "channels test": "channels test telegram",
    "people list": "people list",
    "approvals list": "approvals list",
    "schedule list": "schedule list",
    "schedule show": "schedule show milk",
    "schedule history": "schedule history",
    "schedule next": "schedule next @daily",
    "skills list": "skills list",
    "skills show": "skills show made --group play",
    "skills check": "skills check /nowhere",
    "skills pending": "skills pending",
    "memory search": "memory search milk",
    "memory list": "memory list",
    "memory why": "memory why fact:milk",
    "memory pending": "memory pending",
}
Done = subprocess.CompletedProcess[str]


class Life:
    """A home that met a reply, a file, a failure, a held message and a reply that came too late: what its commands
    printed with a daemon and, afterwards, without one."""

    def __init__(self, home: Home) -> None:
        self.home = home
        (home.root / "script.json").write_text(json.dumps({"steps": STEPS}))
        home.start()
        self.chats: dict[str, Done] = {}
        self.granted = home.json("people", "grant", "Ada", "member")
        home.json("groups", "add", "play")
        home.json("groups", "set", "play", "model.engine", "scripted")
        home.json("groups", "set", "play", "budget.usd_per_day", "1.5")
        home.json("groups", "add", "stuck")
        self.skills = {
            "skills new": home.json("skills", "new", "made"),
            "skills add": home.json("skills", "add", str(home.root / "skills/made"), "--group", "play"),
            "skills remove": home.json("skills", "remove", "made"),
        }
        fact = ("memory", "write", "it is sour", "--kind", "fact", "--key")
        self.memories = {
            "memory write": home.json(*fact, "milk"),
            "memory write, and wait": home.json("memory", "write", "I drink milk.", "--kind", "profile"),
            "memory delete": home.json("memory", "delete", home.json(*fact, "gone")["id"]),
            "memory consolidate": home.json("memory", "consolidate", "--dry-run"),
        }
        work = home.root / "groups/stuck/work"
        work.rmdir()
        work.symlink_to("/etc")
        self._chat("reply", "say hi there")
        self._chat("file", "your list", "--group", "play")
        self._chat("failed", "now fail", "--group", "play")
        self._chat("held", "say never", "--group", "stuck")
        self._chat("late", "be slow", "--group", "play", "--timeout", "1.5")
        until(lambda: self._state(5) == "recorded")
        add = ("schedule", "add", "0 9 29 2 *", "say milk", "--session", "own", "--id")
        self.schedules = {
            "schedule add": home.json(*add, "milk"),
            "schedule run": home.json("schedule", "run", "milk"),
            "schedule pause": home.json("schedule", "pause", "milk"),
            "schedule resume": home.json("schedule", "resume", "main/milk"),
        }
        home.json(*add, "gone")
        self.schedules["schedule remove"] = home.json("schedule", "remove", "gone")
        until(lambda: home.json("schedule", "history", "milk"), pause=0.5)
        assert self.home.cli("sandbox", "exec", "--", "python3", "-c", ASK).stdout == "403\n"
        self.looks = {"running": self._look()}
        assert home.stop() == 0
        self.looks["alone"] = self._look()

    def _chat(self, name: str, text: str, *options: str) -> None:
        self.chats[name] = self.home.cli("chat", "--json", "-m", text, *options)

    def _state(self, id: int) -> str:
        return str(self.home.json("messages", "show", str(id))["state"])

    def _look(self) -> dict[str, Done]:
        return {name: self.home.cli(*words.split(), "--json") for name, words in LOOKS.items()}


@pytest.fixture(scope="module", params=EACH)
def life(request: pytest.FixtureRequest) -> Iterator[Life]:
    with homes(chosen(request)) as make:
        yield Life(make())


# a group's work/ is a link; neither is allowed; no token; no folder
CODES = {"doctor": 1, "mounts check": 1, "gateway check": 1, "channels test": 1, "skills check": 1}
EMPTY = {
    ("sandbox list", "alone"),
    ("channels list", "alone"),
    *((name, way) for name in ("approvals list", "skills pending") for way in ("running", "alone")),
}


def printed(done: Done, code: int = 0) -> Any:
    """The one object or array on standard output."""
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("way", ["running", "alone"])
@pytest.mark.parametrize("name", LOOKS)
def test_every_command_that_looks_prints_its_fields(life: Life, name: str, way: str) -> None:
    value = printed(life.looks[way][name], code=CODES.get(name, 0))
    notation = next(text for words, text in CONTRACT.items() if name.startswith(words))
    if (name, way) == ("status", "alone"):
        assert value.pop("pid") is None
        notation = notation.replace("pid, ", "")
    check(value, shape(notation))
    assert value or (name, way) in EMPTY


@pytest.mark.parametrize("way", ["running", "alone"])
def test_every_state_and_every_time_is_one_of_the_contract(life: Life, way: str) -> None:
    looks = {name: printed(done, CODES.get(name, 0)) for name, done in life.looks[way].items()}
    for row in looks["messages list"]:
        assert row["state"] in MESSAGE_STATES and row["role"] in ROLES
        assert (type(row["id"]), type(row["attempt"])) == (int, int) and moment(row["received"])
        assert isinstance(row["turn"], int)
    for row in looks["deliveries list"]:
        assert row["state"] in DELIVERY_STATES and row["kind"] in ("stream", "text", "file", "notice")
        assert (type(row["id"]), type(row["n"]), type(row["attempts"])) == (int, int, int)
    for row in looks["groups list"]:
        assert row["engine"] in ENGINES and row["backend"] in BACKENDS and row["authority"] in ROLES
        assert 0 <= row["taint"] <= 1 and isinstance(row["sessions"], int) and Path(row["folder"]).is_dir()
    for row in looks["session list"]:
        assert type(row["messages"]) is int and type(row["bytes"]) is int and moment(row["updated"])
    for block in looks["session show"]:
        assert block["role"] in ("user", "assistant", "tool", "system") and moment(block["ts"])
    for row in looks["sandbox list"]:
        assert row["limits"] in LIMITS and row["backend"] == life.home.backend and moment(row["since"])
    for row in looks["gateway audit"]:
        assert moment(row["ts"]) and (row["verdict"], row["rule"], row["status"]) == ("deny", "no_token", 403)
        assert {type(row[name]) for name in ("bytes_in", "bytes_out", "status")} == {int}
    assert {row["level"] for row in looks["doctor"]} <= set(LEVELS)
    assert looks["config check"] == {"ok": True, "errors": []}


def test_status_is_the_daemons_own_word(life: Life) -> None:
    running, alone = (printed(life.looks[way]["status"]) for way in ("running", "alone"))
    assert isinstance(running["pid"], int) and running["ready"] is True and running["uptime_s"] > 0
    assert running["channels"] == [{"channel": "terminal", "state": "live"}]
    assert running["channels"][0]["state"] in CHANNEL_STATES
    assert (alone["ready"], alone["sandboxes"], alone["channels"]) == (False, 0, [])
    for each in (running, alone):
        assert each["turns"] == {"queued": 0, "running": 0, "held": 1}
        assert (each["home"], each["groups"]) == (str(life.home.root), 3)


def test_people_and_channels_are_in_the_contracts_words(life: Life) -> None:
    check(life.granted, shape(CONTRACT["people grant"]))
    assert printed(life.looks["alone"]["people list"]) == [life.granted]
    for row in printed(life.looks["running"]["channels list"]):
        assert row["state"] in CHANNEL_STATES and row["last_inbound"] is not None and moment(row["last_inbound"])


def test_schedules_are_in_the_contracts_words(life: Life) -> None:
    for name, value in life.schedules.items():
        check(value, shape(CONTRACT[name]))
    for way in ("running", "alone"):
        [row] = printed(life.looks[way]["schedule list"])
        assert (row["id"], row["group"], row["expr"], row["enabled"], row["proposed"]) == (
            "main/milk", "main", "0 9 29 2 *", True, False
        )  # fmt: skip
        assert moment(row["next"]) and moment(row["last"])
        [run] = printed(life.looks[way]["schedule history"])
        assert (run["id"], run["outcome"]) == ("main/milk", "ran") and moment(run["due"]) <= moment(run["fired"])
        assert len(printed(life.looks[way]["schedule next"])["times"]) > 1


def test_skills_are_in_the_contracts_words(life: Life) -> None:
    for name, value in life.skills.items():
        check(value, shape(CONTRACT[name]))
    rows = printed(life.looks["running"]["skills list"])
    assert [(row["scope"], row["shadows"], row["proposed"]) for row in rows if row["name"] == "made"] == [
        ("group", False, False)
    ]
    assert printed(life.looks["alone"]["skills check"], code=1)["ok"] is False


def test_memories_are_in_the_contracts_words(life: Life) -> None:
    for name, value in life.memories.items():
        check(value, shape(CONTRACT[name.partition(",")[0]]))
    for way in ("running", "alone"):
        found = printed(life.looks[way]["memory search"])
        [hit] = [each for each in found["hits"] if each["id"] == "fact:milk"]
        assert (hit["text"], hit["origin"], hit["trust"], hit["status"]) == ("it is sour", "owner", 1, "active")
        assert found["lanes"] == ["lexical"] and moment(hit["event_time"]) and Path(hit["file"]).is_file()
        [waits] = printed(life.looks[way]["memory pending"])
        assert (waits["kind"], waits["status"], waits["text"]) == ("profile", "proposed", "I drink milk.")
        assert [each["op"] for each in printed(life.looks[way]["memory why"])["history"]] == ["write"]


def test_messages_tell_how_each_ended(life: Life) -> None:
    rows = printed(life.looks["alone"]["messages list"])
    assert [(row["id"], row["group"], row["state"]) for row in rows] == [
        (1, "main", "recorded"),
        (2, "play", "recorded"),
        (3, "play", "failed"),
        (4, "stuck", "held"),
        (5, "play", "recorded"),
    ]
    assert {(row["channel"], row["sender"], row["role"]) for row in rows} == {("terminal", "owner", "owner")}
    assert [row["reason"] is None for row in rows] == [True, True, False, False, True]


def test_a_message_shows_its_parts_steps_deliveries_and_reply(life: Life) -> None:
    shown = printed(life.looks["alone"]["messages show with tools"])
    assert shown["parts"] == [{"origin": "owner", "text": "your list"}]
    assert {part["origin"] for part in shown["parts"]} <= set(ORIGINS)
    assert len(shown["wakes"]) == 1 and len(shown["steps"]) == 4
    assert [(row["kind"], row["state"]) for row in shown["deliveries"]] == [("file", "sent"), ("text", "sent")]
    assert shown["reply"] == "here is your list"


def test_a_session_shows_every_message_with_its_tools(life: Life) -> None:
    blocks = printed(life.looks["alone"]["session show"])
    said = [(block["role"], block["content"]) for block in blocks]
    assert said[0] == ("user", "your list") and ("assistant", "here is your list") in said
    assert said[-2:] == [("user", "be slow"), ("assistant", "later")]
    calling = [block for block in blocks if block.get("tool_calls")]
    answers = [block["tool_call_id"] for block in blocks if block["role"] == "tool"]
    assert [each["id"] for block in calling for each in block["tool_calls"]] == answers and len(answers) == 2
    assert {block["turn"] for block in blocks} == {2, 3, 5}


def test_a_session_is_checked(life: Life) -> None:
    checked = printed(life.looks["alone"]["session check"])
    shown = printed(life.looks["alone"]["session show"])
    assert (checked["ok"], checked["errors"], checked["messages"]) == (True, [], len(shown))
    listed = {row["session"]: row for row in printed(life.looks["alone"]["session list"])}
    row = listed["terminal:play"]
    assert row["file"] == checked["file"] and row["bytes"] == Path(row["file"]).stat().st_size


def test_a_living_sandbox_is_listed_under_its_group(life: Life) -> None:
    rows = printed(life.looks["running"]["sandbox list"])
    assert {row["group"] for row in rows} == {"main", "play"}
    assert len({row["run"] for row in rows}) == 2 and all(row["id"] for row in rows)


# ── chat ──


def test_a_reply_has_every_field(life: Life) -> None:
    value = printed(life.chats["reply"])
    check(value, shape(CONTRACT["chat"]))
    assert (value["reply"], value["session"], value["group"]) == ("hi there", "terminal:main", "main")
    assert (value["engine"], value["backend"], value["attempt"], value["error"]) == (
        "offline",
        life.home.backend,
        1,
        None,
    )
    assert isinstance(value["turn"], int) and value["ms"] >= 0 and value["files"] == []
    assert life.chats["reply"].stderr == ""


def test_files_and_usage_are_told(life: Life) -> None:
    value = printed(life.chats["file"])
    check(value, shape(CONTRACT["chat"]))
    assert value["usage"] == {"input": 15, "output": 3, "cached": 3, "usd": None}
    assert len(value["files"]) == 1 and "list.txt" in json.dumps(value["files"][0])
    assert Path(value["files"][0]["path"]).read_text() == "milk\n"


@pytest.mark.parametrize("name", ["failed", "held", "late"])
def test_what_was_not_answered_exits_1_with_an_error(life: Life, name: str) -> None:
    value = printed(life.chats[name], code=1)
    assert set(value) == set(shape(CONTRACT["chat"]))
    assert value["error"] and value["error"] in life.chats[name].stderr
    assert isinstance(value["turn"], int) and value["session"] == f"terminal:{value['group']}"


def test_a_failed_turn_says_what_broke_and_what_can_be_done(life: Life) -> None:
    value = printed(life.chats["failed"], code=1)
    assert value["error"] == "the model broke" and "clawd messages retry 3" in value["reply"]
    assert (value["engine"], value["backend"], value["attempt"]) == ("scripted", life.home.backend, 3)


def test_a_message_whose_reply_came_too_late_is_answered_all_the_same(life: Life) -> None:
    assert "1.5 s" in printed(life.chats["late"], code=1)["error"]
    rows = printed(life.looks["alone"]["messages list"])
    assert (rows[4]["state"], rows[4]["group"]) == ("recorded", "play")


def test_a_held_message_is_answered_once_it_can_be(life: Life) -> None:
    work = life.home.root / "groups/stuck/work"
    work.unlink()
    assert life.home.json("chat", "--group", "stuck", "-m", "say again")["reply"] == "again"
    assert life.home.json("messages", "show", "4")["reply"].endswith("never")


def test_a_failed_message_is_tried_again(life: Life) -> None:
    life.home.json("groups", "set", "play", "model.engine", "offline")
    life.home.json("messages", "retry", "3")
    assert life.home.json("messages", "show", "3")["state"] == "received"
    assert life.home.json("chat", "--group", "play", "-m", "say on")["reply"] == "on"
    shown = life.home.json("messages", "show", "3")
    assert shown["state"] == "recorded" and shown["reason"] is None


def test_a_session_of_its_own_is_named(life: Life) -> None:
    value = life.home.json("chat", "-m", "say aside", "--session", "mmkr:agent-1")
    assert (value["session"], value["group"]) == ("mmkr:agent-1", "main")
    assert [row["content"] for row in life.home.json("session", "show", "mmkr:agent-1")] == ["say aside", "aside"]
    assert life.home.json("session", "check", "mmkr:agent-1")["ok"] is True


@pytest.mark.parametrize("who", ["owner", "admin:ada", "member:bob"])
def test_a_message_is_said_as_whoever_is_named(life: Life, who: str) -> None:
    value = life.home.json("chat", "-m", "say me", "--as", who)
    row = life.home.json("messages", "list", "--limit", "1")[0]
    assert value["reply"] == "me" and row["sender"] in (who, who.partition(":")[2])
    assert row["role"] == who.partition(":")[0]


def test_a_stranger_gets_a_sentence_and_no_turn(life: Life) -> None:
    def known() -> list[int]:
        return [row["id"] for row in life.home.json("messages", "list")]

    before = known()
    value = printed(life.home.cli("chat", "-m", "say me", "--as", "stranger:eve", "--json"), code=1)
    assert (value["turn"], value["reply"] or value["error"]) != (None, None) and value["error"]
    assert known() == before


def test_messages_are_filtered(life: Life) -> None:
    home = life.home
    assert {row["group"] for row in home.json("messages", "list", "--group", "play")} == {"play"}
    assert {row["state"] for row in home.json("messages", "list", "--state", "recorded")} == {"recorded"}
    everything = home.json("messages", "list", "--limit", "500")
    assert home.json("messages", "list", "--limit", "2") == everything[-2:]
    assert {row["group"] for row in home.json("session", "list", "--group", "play")} == {"play"}
    assert home.json("messages", "list", "--state", "withdrawn", "--group", "play") == []


# ── groups ──


@pytest.fixture(scope="module")
def plain() -> Iterator[Home]:
    """A home that nobody has talked to, without a daemon."""
    with homes() as make:
        yield make()


def test_groups_are_added_set_shown_cleaned_and_trusted(plain: Home) -> None:
    plain.json("groups", "add", "family")
    plain.json("groups", "set", "family", "model.engine", "scripted")
    assert 'engine = "scripted"' in (plain.root / "groups/family/group.toml").read_text()
    shown = plain.json("groups", "show", "family")
    assert {"group", "folder", "engine"} <= set(shown) and shown["engine"] == "scripted"
    note = plain.root / "groups/family/work/note"
    note.write_text("x")
    plain.json("groups", "clean", "family")
    kept = list((plain.root / "groups/family").rglob("note"))
    assert list((plain.root / "groups/family/work").iterdir()) == [] and len(kept) == 1
    plain.json("groups", "trust", "family")
    row = next(row for row in plain.json("groups", "list") if row["group"] == "family")
    assert (row["authority"], row["taint"], row["sessions"]) == ("owner", 1.0, 0)


def test_a_person_lifts_what_a_member_left_on_a_group(life: Life) -> None:
    life.home.json("chat", "-m", "say hello", "--as", "member:bob")

    def main() -> Any:
        return next(row for row in life.home.json("groups", "list") if row["group"] == "main")

    assert main()["authority"] == "member" and main()["taint"] < 1
    life.home.json("groups", "trust", "main")
    assert (main()["authority"], main()["taint"]) == ("owner", 1.0)


def test_init_makes_a_home_that_answers(plain: Home, tmp_path: Path) -> None:
    home = tmp_path / "made"
    done = plain.cli("init", str(home), "--json")
    assert printed(done) and (home / "config.toml").is_file()
    config = (home / "config.toml").read_text()
    (home / "config.toml").write_text(config + "# mine\n")
    assert plain.cli("init", str(home)).returncode == 0
    assert (home / "config.toml").read_text().endswith("# mine\n")
    for name in ("CLAUDE.md", "user_profile.md", "memory/MEMORY.md"):
        assert (home / "groups/main" / name).is_file()
    memory = (home / "groups/main/memory/MEMORY.md").read_text()
    assert "bot_name" in memory and "user_name" in memory
    assert oct((home / "state").stat().st_mode)[-3:] == oct((home / "groups").stat().st_mode)[-3:] == "700"


# ── every face of a command ──


@pytest.mark.parametrize(
    "words",
    [
        "--home {} --json groups list",
        "--home={} groups list --json",
        "groups list --json --home {}",
        "groups --json list --home {}",
        "--json groups --home {} list",
    ],
)
def test_home_and_json_stand_anywhere(plain: Home, words: str) -> None:
    done = bare(plain, *words.format(plain.root).split())
    assert done.stderr == "" and isinstance(printed(done), list)


def bare(home: Home, *words: str, cwd: Path | None = None, **env: str) -> Done:
    """The command without a `--home` of ours."""
    command = [word for word in home.command() if word not in ("--home", str(home.root))]
    return subprocess.run(
        [*command, *words],
        cwd=cwd,
        env=home.environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("words", re.split(r"\s*[|\n]\s*", NOT_YET))
def test_what_is_not_built_yet_says_so_and_exits_1(plain: Home, words: str) -> None:
    done = plain.cli(*words.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert "not built yet" in done.stderr


def test_what_is_not_built_yet_says_so_in_json(plain: Home) -> None:
    assert "not built yet" in printed(plain.cli("evals", "--json"), code=1)["error"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("", 2, "say what to do"),
        ("nonsense", 2, "no command"),
        ("chta", 2, "chat"),
        ("groups", 2, "list"),
        ("groups lits", 2, "list"),
        ("--nonsense status", 2, "--nonsense"),
        ("status --nonsense", 2, "--nonsense"),
        ("status extra", 2, "extra"),
        ("groups add", 2, "GROUP"),
        ("groups add ../up", 2, "group"),
        ("groups add state", 2, "reserved"),
        ("groups set main model.engine", 2, "VALUE"),
        ("messages show", 2, "ID"),
        ("messages show one", 2, "one"),
        ("messages show 0", 2, "0"),
        ("messages list --state nonsense", 2, "recorded"),
        ("messages list --limit few", 2, "--limit"),
        ("messages list --limit -3", 2, "--limit"),
        ("chat -m hi --as king", 2, "member:NAME"),
        ("chat -m hi --timeout never", 2, "--timeout"),
        ("chat -m hi --timeout 0", 2, "--timeout"),
        ("groups show nobody", 5, "nobody"),
        ("groups set nobody a b", 5, "nobody"),
        ("groups clean nobody", 5, "nobody"),
        ("groups trust nobody", 5, "nobody"),
        ("messages list --group nobody", 5, "nobody"),
        ("messages show 99", 5, "99"),
        ("messages retry 99", 5, "99"),
        ("session list --group nobody", 5, "nobody"),
        ("session show nobody:x", 5, "nobody:x"),
        ("session check nobody:x", 5, "nobody:x"),
        ("sandbox stop main", 5, "main"),
        ("chat -m hi --group nobody", 5, "nobody"),
        ("approvals show 99", 5, "approvals list"),
        ("approvals approve 99", 5, "approvals list"),
        ("approvals deny some", 2, "some"),
        ("channels test telegraf", 5, "telegram"),
        ("people grant Bob king", 2, "admin"),
        ("people revoke nobody", 5, "people list"),
        ("schedule add purple", 2, "surely understood"),
        ("schedule list --group nobody", 5, "nobody"),
        ("schedule show nobody", 5, "schedule list"),
        ("schedule run nobody", 5, "schedule list"),
        ("schedule history nobody", 5, "schedule list"),
        ("schedule add daily x --budget -1", 2, "--budget"),
        ("memory read ep_0000000000", 5, "there is no"),
        ("memory trust nothing.md", 5, "nothing.md"),
        ("memory write x --kind wish", 2, "episode"),
        ("memory update day:2026-12-01 x --group nobody", 5, "nobody"),
        ("pair", 1, "clawd run"),
        ("pair --role king", 2, "member"),
        ("groups set main model.engin offline", 4, "engine"),
        ("sandbox exec", 125, "what to run"),
        ("sandbox exec --nonsense -- true", 125, "--nonsense"),
        ("sandbox exec --group nobody -- true", 125, "nobody"),
    ],
)
def test_wrong_use_is_a_sentence_and_a_code(plain: Home, words: str, code: int, says: str) -> None:
    done = plain.cli("--json", *words.split())
    assert says in json.dumps(printed(done, code))
    told = re.sub(r"^finishing what was begun.*\n", "", done.stderr)  # said of what takes longer than a second
    assert says in told and told.startswith("clawd: ") and "Traceback" not in told


@pytest.mark.parametrize("words", ["", "status --nonsense", "messages show 99", "sandbox exec"])
def test_without_json_a_failure_leaves_standard_output_empty(plain: Home, words: str) -> None:
    done = plain.cli(*words.split())
    assert done.returncode != 0 and done.stdout == "" and done.stderr.startswith("clawd: ")


def test_an_empty_message_is_wrong_use(plain: Home) -> None:
    assert plain.cli("chat", "-m", " ").returncode == 2
    assert plain.cli("chat", "-m", "-", text="\n").returncode == 2


def test_only_a_failed_message_can_be_tried_again(life: Life) -> None:
    done = life.home.cli("messages", "retry", "1")
    assert done.returncode == 1 and "recorded" in done.stderr


def test_the_version_is_told(plain: Home) -> None:
    done = bare(plain, "--version")
    assert (done.returncode, done.stderr) == (0, "") and re.fullmatch(r"clawd \d+\.\d+\S*\n", done.stdout)


def test_everything_explains_itself(plain: Home) -> None:
    for words in (["--help"], ["groups", "--help"], ["groups", "list", "--help"], ["chat", "-h"]):
        done = bare(plain, *words)
        assert done.returncode == 0 and done.stdout.startswith("usage: clawd")


# ── the daemon, and commands beside it ──


@pytest.fixture(scope="module", params=EACH)
def served(request: pytest.FixtureRequest) -> Iterator[Home]:
    """A home with a running daemon, with each backend."""
    with homes(chosen(request)) as make:
        home = make()
        home.start()
        yield home


WRITTEN = """# Session: by:hand


<!-- msg:{"role": "user", "ts": "2026-11-29T15:16:38", "turn": 1} -->
### 2026-11-29 15:16:38 — User

hello

---

"""


@pytest.mark.parametrize("way", ["running", "alone"])
def test_a_context_is_steered_by_hand(plain: Home, way: str) -> None:
    if way == "running":
        plain.start()
    group = plain.root / "groups/main"
    (group / "sessions").mkdir(parents=True, exist_ok=True)
    (group / f"sessions/by_hand_{way}.md").write_text(WRITTEN.replace("by:hand", f"by:hand:{way}"))
    named = ("--session", f"by:hand:{way}")
    done = {
        name: plain.json(*name.split(), *named, *more)
        for name, more in (
            ("context compact", ()),
            ("context signal", ("--phase-done",)),
            ("context status", ()),
            ("context handoff", ()),
            ("context export", ("--format", "json")),
        )
    }
    for name, value in done.items():
        check(value, shape(CONTRACT[name]))
    assert (done["context compact"]["action"], done["context compact"]["trigger"]) == ("compact", "manual")
    assert done["context status"]["status"] == done["context signal"]["status"] == "phase_boundary"
    assert done["context handoff"]["successor"] == f"by:hand:{way}.2"
    until(lambda: plain.json("context", "status", *named)["handoff_manifest"])
    again = plain.cli("context", "compact", *named)
    assert again.returncode == 1 and f"by:hand:{way}.2" in again.stderr
    assert [Path(each).is_file() for each in done["context export"]["files"]] == [True]
    missing = plain.cli("context", "handoff", "--session", "nobody:1", "--json")
    assert missing.returncode == 5 and "nobody:1" not in {each["session"] for each in plain.json("session", "list")}
    if way == "running":
        assert plain.stop() == 0


def test_a_second_daemon_exits_3_and_names_the_first(served: Home) -> None:
    done = served.cli("run")
    assert done.returncode == 3 and served.daemon is not None and str(served.daemon.pid) in done.stderr
    assert printed(served.cli("run", "--json"), code=3)["error"]


def test_groups_are_changed_through_the_daemon(served: Home) -> None:
    served.json("groups", "add", "work")
    served.json("groups", "set", "work", "timezone", "Europe/Berlin")
    assert 'timezone = "Europe/Berlin"' in (served.root / "groups/work/group.toml").read_text()
    served.json("groups", "trust", "work")
    served.json("groups", "clean", "work")
    assert served.cli("groups", "clean", "nobody").returncode == 5
    assert [row["group"] for row in served.json("groups", "list") if row["group"] == "work"] == ["work"]


def test_a_command_runs_in_the_sandbox_on_our_streams_with_its_own_code(served: Home) -> None:
    shell = "cat; echo err >&2; pwd; echo $CLAWD_GROUP; exit 7"
    done = served.cli("sandbox", "exec", "--", "sh", "-c", shell, text="in\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "in\n/group/work\nmain\n", "err\n")


def test_a_member_who_says_too_much_is_told_once_that_it_waits(plain: Home) -> None:
    plain.json("groups", "add", "talk")
    said = plain.cli("chat", "--group", "talk", "--as", "member:bob", text="say hi\n" * 23)
    assert said.stdout.count("hi\n") == 20 and said.stdout.count("more than 20 messages a minute") == 1, said.stdout
    assert "rate" not in said.stdout.lower()


def test_a_groups_time_zone_holds_in_its_sandbox(served: Home) -> None:
    served.json("groups", "add", "tokyo")
    served.json("groups", "set", "tokyo", "timezone", "Asia/Tokyo")
    assert served.cli("sandbox", "exec", "--group", "tokyo", "--", "printenv", "TZ").stdout == "Asia/Tokyo\n"
    served.json("sandbox", "stop", "tokyo")


@pytest.mark.parametrize(("command", "code"), [("no-such-command", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_run_in_the_sandbox_ends_as_in_a_shell(served: Home, command: str, code: int) -> None:
    done = served.cli("sandbox", "exec", "--", command)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(f"{command}: ") and done.stderr.count("\n") == 1


def test_a_sandbox_is_listed_and_stopped(served: Home) -> None:
    assert served.cli("sandbox", "exec", "--group", "main", "--", "true").returncode == 0
    rows = served.json("sandbox", "list")
    check(rows, shape(CONTRACT["sandbox list"]))
    assert [row["group"] for row in rows] == ["main"]
    served.json("sandbox", "stop", "main")
    assert served.json("sandbox", "list") == []
    assert served.cli("sandbox", "stop", "main").returncode == 5


def test_a_running_daemon_keeps_its_config_when_an_edit_is_bad(served: Home) -> None:
    with edited(served, "engine =", "engin ="):
        checked = printed(served.cli("config", "check", "--json"), code=1)
        assert served.json("chat", "-m", "say still")["reply"] == "still"
    assert not checked["ok"] and "engine" in checked["errors"][0]["hint"]


# ── config and environment ──


REFUSED = [
    (("engine =", "engin ="), "engine"),
    (("[model]", "[modle]"), "model"),
    (("[model]", "[model"), "config.toml"),
    (("schema = 1", "schema = 99"), "99"),
    (('"offline"', '"oracle"'), "offline"),
]


@contextmanager
def edited(home: Home, old: str, new: str) -> Iterator[None]:
    """The home's config with an edit, for the time of the block."""
    config = home.root / "config.toml"
    good = config.read_text()
    assert old in good
    config.write_text(good.replace(old, new, 1))
    try:
        yield
    finally:
        config.write_text(good)


@pytest.mark.parametrize("words", ["run", "chat -m hi"])
@pytest.mark.parametrize(("edit", "says"), REFUSED)
def test_a_refused_config_exits_4_and_says_why(plain: Home, words: str, edit: tuple[str, str], says: str) -> None:
    with edited(plain, *edit):
        done = plain.cli(*words.split())
    assert (done.returncode, done.stdout) == (4, "")
    assert says in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("edit", "says"), REFUSED)
def test_a_refused_config_is_checked_and_told_where(plain: Home, edit: tuple[str, str], says: str) -> None:
    with edited(plain, *edit):
        checked = printed(plain.cli("config", "check", "--json"), code=1)
    check(checked, shape(CONTRACT["config check"]))
    assert not checked["ok"] and says in json.dumps(checked)


def test_another_file_is_checked(plain: Home, tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text('schema = 1\n[claw]\n[sandbox]\nmax_live = "many"\n')
    checked = printed(plain.cli("config", "check", str(file), "--json"), code=1)
    assert "max_live" in checked["errors"][0]["where"]
    file.write_text('schema = 1\n[claw]\nname = "x"\n')
    assert printed(plain.cli("config", "check", str(file), "--json")) == {"ok": True, "errors": []}
    assert printed(plain.cli("config", "check", str(tmp_path / "none.toml"), "--json"), code=1)["ok"] is False


def test_every_table_is_taken_and_the_doctor_names_those_whose_room_is_not_built(plain: Home) -> None:
    later = '[budget]\nusd_per_day = 1.0\n[memory]\nbackend = "file"\n[webhooks]\nlisten = "127.0.0.1:1"\n'
    later += '[services.x]\nhosts = ["example.org"]\n[profiles.p]\nsoft = 1\nhard = 2\n[distil]\nsessions = 5\n'
    with edited(plain, "[claw]", f"{later}[claw]"):
        checked, found = plain.json("config", "check"), printed(plain.cli("doctor", "--json"))
    assert checked["ok"]
    warned = " ".join(row["message"] for row in found if row["level"] == "warn")
    assert "distil" in warned
    assert all(name not in warned for name in ("webhooks", "memory", "profiles"))


def test_the_doctor_names_an_engine_that_is_not_there_where_one_is_wanted(plain: Home) -> None:
    with edited(plain, '"bubblewrap"', '"docker"'):
        found = printed(plain.cli("doctor", "--json"), code=1)
        assert plain.cli("chat", "-m", "hello").returncode != 0
    errors = [row for row in found if row["level"] == "error"]
    assert [row["check"] for row in errors] == ["engine"] and "docker" in errors[0]["command"]


def test_the_environment_overrides_a_key(plain: Home) -> None:
    groups = plain.json("groups", "list", CLAWD_MODEL__ENGINE="scripted")
    assert {row["engine"] for row in groups if row["group"] == "main"} == {"scripted"}
    done = plain.cli("chat", "-m", "hi", CLAWD_MODEL__ENGIN="x")
    assert done.returncode == 4 and "CLAWD_MODEL__ENGIN" in done.stderr and "engine" in done.stderr


def test_the_environment_names_the_home_and_the_option_wins(plain: Home, tmp_path: Path) -> None:
    assert printed(bare(plain, "status", "--json", CLAWD_HOME=str(plain.root)))["home"] == str(plain.root)
    words = ("--home", str(plain.root), "status", "--json")
    assert printed(bare(plain, *words, CLAWD_HOME=str(tmp_path / "none")))["home"] == str(plain.root)
    assert bare(plain, "status", CLAWD_HOME=str(tmp_path / "none")).returncode == 5


CLAW = 'schema = 1\n[claw]\nname = "x"\n'


@pytest.mark.parametrize(
    ("config", "file_mode", "directory_mode", "counts"),
    [
        (CLAW, 0o600, 0o700, True),
        (CLAW, 0o644, 0o755, True),
        ("[claw]\n", 0o600, 0o700, False),
        ("schema = 1\n[tool]\n", 0o600, 0o700, False),
        (CLAW, 0o620, 0o700, False),
        (CLAW, 0o602, 0o700, False),
        (CLAW, 0o600, 0o770, False),
        (CLAW, 0o600, 0o707, False),
        ("[", 0o600, 0o700, False),
    ],
)
def test_a_current_directory_counts_as_a_home_only_under_the_rules(
    plain: Home, tmp_path: Path, config: str, file_mode: int, directory_mode: int, counts: bool
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "user"
    here.mkdir()
    elsewhere.mkdir()
    (here / "config.toml").write_text(config)
    (here / "config.toml").chmod(file_mode)
    here.chmod(directory_mode)
    done = bare(plain, "status", "--json", cwd=here, HOME=str(elsewhere))
    if counts:
        assert printed(done)["home"] == str(here)
    else:
        assert printed(done, code=5)["error"].endswith(str(elsewhere / "clawd"))


def test_without_a_home_a_sentence_says_how_to_make_one(plain: Home, tmp_path: Path) -> None:
    for words in ("status", "chat -m hi", "groups list", "messages list", "doctor"):
        done = bare(plain, *words.split(), cwd=tmp_path, HOME=str(tmp_path))
        assert done.returncode == 5 and f"clawd init {tmp_path / 'clawd'}" in done.stderr
