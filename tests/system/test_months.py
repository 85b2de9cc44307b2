"""A session that lives for months, in a minute: two million tokens, compacted and handed over again and again, by a
daemon that is killed at every point of what follows a turn. At its end nothing of it is lost, and nothing was twice."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import pytest

from clawd.commands import expanding
from clawd.errors import ClawdError
from clawd.lifecycle import manifest
from clawd.model import Block
from clawd.sessions.reading import load
from tests.canary import CANARY
from tests.standin import Standin
from tests.system.conftest import Home, call, until

pytestmark = pytest.mark.timeout(300)

BASE = "terminal:main"
MONTH = "[profiles.month]\nsoft = 12000\nhard = 20000\n"
GROUP = 'schema = 1\nprofile = "month"\n'
GO, COMPACT, HAND = 10_000, 14_000, 21_000  # tokens that the window holds after a turn
FIRST = 50_000  # what its first call took
THINKS = (GO, COMPACT) * 4 + (HAND,)
LOOKS = (*(GO,) * 4, COMPACT, GO, COMPACT, GO, HAND)  # there the output of tools is the most of it
WINDOWS = (*THINKS, *LOOKS, *THINKS, *LOOKS[:7])
GOES_ON = (9, 27)  # turns (of WINDOWS, from 1) whose handover has the agent go on by itself
BULK = "The agent thought about part {n} of the move, and wrote what it thought down at some length. "

# The daemon's lives: each ends when it first passes its point, be that while it tidies up after the one before.
FAULTS = (
    *("appended", "compaction-begun", "recorded", "compaction-ready", "settled", "compaction-appended"),
    *("decisions_written", "compaction-written", "metrics_written", "handed", "projected", "manifest_written"),
    *("answered", "seeded"),
)


SAME = ("status", "stopped_reason", "successor", "parent", "step_index", "compact_count", "last_recall", "taint")
RENAMED = {
    "id": "session", "window_tokens": "window", "cumulative_tokens": "cumulative", "last_decision_seq": "seq",
    "last_metrics_seq": "measured",
}  # fmt: skip


@dataclass
class Plan:
    """What is played: a group of steps a turn, what each turn says, and all that is pinned on the way."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    says: list[str | None] = field(default_factory=list)
    """What is typed, None where the agent goes on by itself."""
    constraints: list[str] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)
    by_itself: list[int] = field(default_factory=list)
    """Turns whose handover has the agent go on by itself."""
    blocks: list[tuple[str, str]] = field(default_factory=list)
    """(role, content) as it is to stand in the files, compactions and manifests apart; None for any content."""

    @classmethod
    def made(cls) -> Plan:
        plan = cls()
        for n, window in enumerate(WINDOWS, 1):
            plan._turn(n, window, f"message {n}")
            if n in GOES_ON:
                plan._turn(n, GO, None)
        return plan

    def _turn(self, n: int, window: int, says: str | None) -> None:
        at = len(self.says)
        looks, lines = (n - 1) % 18 >= 9, 3000 if (n - 1) % 18 in (9, 10) else 600
        notes: dict[str, Any] = {"verified": [f"check {at} passed with {at * 7} rows"]}
        constraint, blocker = f"Never restart db-{at}.internal before {at + 10}:00", f"Port {8000 + at} is taken"
        if says is not None and at % 3 == 0:  # the owner's own words
            typed = f"Never use more than {at + 3} workers in run {at}."
            says = f"{says}: go on with it. {typed}"
            self.constraints.append(typed)
        if at % 3 == 1:
            notes["constraints"] = [constraint]
            self.constraints.append(constraint)
        if at % 4 == 2:
            notes["blockers"] = [blocker]
            self.blockers.append(blocker)
        if n in GOES_ON and says is not None:
            self.by_itself.append(at + 1)
            notes["next_safe_action"] = f"Look at part {at}"
        text = BULK.format(n=at) * (20 if looks else 120)
        command = f"seq {at} {at + lines}" + ("; exit 3" if at % 10 == 5 else "")
        output = "\n".join(map(str, range(at, at + lines + 1)))
        if at % 10 == 5:
            self.blockers.append(f"{at + lines} [exit code 3]")
        answer = f"done with {n}" if says is None else f"re {says}"
        self.steps += [
            {
                "text": text,
                "tool_calls": [{"name": "bash", "arguments": {"command": command}}],
                "notes": notes,
                "usage": {"input": FIRST - 50, "output": 50},
            },
            {"text": answer, "usage": {"input": window - 100, "output": 100}},
        ]
        self.says.append(says)
        self.windows.append(window)
        self.blocks += [("user", says or ""), ("assistant", text), ("tool", output), ("assistant", answer)]


class Lives:
    """A daemon that is started again whenever it died, with the next fault."""

    def __init__(self, home: Home, faults: Sequence[str]) -> None:
        self.home, self.faults, self.died = home, list(faults), list[str]()
        self.point: str | None = None

    def alive(self) -> None:
        while self.home.daemon is None or self.home.daemon.poll() is not None:
            if self.home.daemon is not None:
                assert self.home.daemon.returncode == -signal.SIGKILL, self.home.daemon.communicate()
                assert self.point is not None
                self.died.append(self.point)
            self.point = self.faults.pop(0) if self.faults else None
            with suppress(AssertionError):  # it died before it answered
                self.home.start(f"kill@{self.point}" if self.point else None)

    def say(self, text: str, key: str) -> None:
        """As a channel brings it: again, under the same key, until it is acknowledged."""
        while True:
            self.alive()
            with suppress(ClawdError, OSError, EOFError, TimeoutError):
                self.home.say(text, key=key)
                return

    def until(self, done: Any) -> None:
        def looked() -> bool:
            self.alive()
            return bool(done())

        until(looked)


def rows(home: Home, sql: str, *values: Any) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(f"{home.layout.ledger_file.as_uri()}?mode=ro", uri=True)) as ledger:
        ledger.row_factory = sqlite3.Row
        return [dict(row) for row in ledger.execute(sql, values)]


def undone(home: Home) -> list[Any]:
    """What is not done yet of what follows the turns."""
    return rows(
        home,
        "SELECT session FROM context WHERE dirty > 0 OR seed IS NOT NULL OR (manifest IS NOT NULL AND manifest_file IS"
        " NULL) UNION SELECT session FROM compaction WHERE state IN ('begun', 'asked', 'ready')"
        " UNION SELECT session FROM journal UNION SELECT session FROM turn WHERE recorded_at IS NULL"
        " UNION SELECT session FROM delivery WHERE state <> 'sent'",
    )


def stem_of(session: str) -> str:
    return session.replace(":", "_").replace(".", "_")


def blocks(home: Home, session: str) -> list[Block]:
    read = load(home.layout.group("main").sessions / f"{stem_of(session)}.md")
    assert not read.errors
    return list(read.blocks)


def ours(block: Block) -> bool:
    return bool({"compact", "handoff"} & block.meta.keys())


@pytest.fixture
def month(home: Home) -> Iterator[tuple[Home, Plan, Lives]]:
    plan = Plan.made()
    home.script(*plan.steps, sandbox="warm_minutes = 60", more=MONTH)
    home.cli("groups", "add", "main").check_returncode()
    home.layout.group("main").config_file.write_text(GROUP)
    yield home, plan, Lives(home, FAULTS)


def test_a_session_that_lives_for_months_loses_nothing_and_does_nothing_twice(month: tuple[Home, Plan, Lives]) -> None:
    home, plan, lives = month
    config = home.layout.group("main").config_file
    for n, says in enumerate(plan.says, 1):
        asks = plan.windows[n - 1] == HAND and n not in plan.by_itself
        config.write_text(GROUP + ('require_confirm = ["handoff"]' if asks else ""))
        if says is not None:
            lives.say(says, f"key {n}")
        if asks:
            lives.until(lambda: home.json("approvals", "list"))
            [asked] = home.json("approvals", "list")
            yes = ("approvals", "approve", str(asked["id"]))
            lives.until(lambda yes=yes: home.cli(*yes).returncode == 0 or not home.json("approvals", "list"))
        lives.until(lambda n=n: len(rows(home, "SELECT 1 FROM turn")) >= n and not undone(home))
    assert (lives.died, lives.faults) == (list(FAULTS), [])

    segments = [row["session"] for row in rows(home, "SELECT session FROM context ORDER BY session")]
    assert segments == [BASE, *(f"{BASE}.{n}" for n in range(2, 5))]
    said_once(home, plan)
    for session, after in zip(segments, [*segments[1:], None], strict=True):
        consistent(home, session, after)
    handed_on(home, segments)
    whole(home, plan, segments)
    in_the_last_window(home, plan)


def said_once(home: Home, plan: Plan) -> None:
    """Each message has one turn and one reply, and nobody was asked or told twice."""
    turns = rows(home, "SELECT * FROM turn ORDER BY id")
    assert [row["window_tokens"] for row in turns] == plan.windows
    replies = [content for _, content in plan.blocks[3::4]]
    sent = rows(home, "SELECT text, turn FROM delivery WHERE kind = 'text' ORDER BY id")
    assert [(row["text"], row["turn"]) for row in sent] == list(zip(replies, [row["id"] for row in turns], strict=True))
    assert len(rows(home, "SELECT 1 FROM inbound")) == sum(says is not None for says in plan.says)
    notices = [row["text"] for row in rows(home, "SELECT text FROM delivery WHERE kind = 'notice' ORDER BY id")]
    assert [text.partition("(")[2].partition(")")[0] for text in notices if "fresh session (" in text] == [
        f"{BASE}.{n}" for n in range(2, 5)
    ]
    assert len(rows(home, "SELECT 1 FROM approval")) == 1


def consistent(home: Home, session: str, after: str | None) -> None:
    """The files of a session say what the ledger says, each line once; it has the one successor `after`."""
    folder, stem = home.layout.group("main").sessions, stem_of(session)
    [row] = rows(home, "SELECT * FROM context WHERE session = ?", session)
    turns = rows(home, "SELECT * FROM turn WHERE session = ?", session)
    state = json.loads((folder / f"{stem}.state.json").read_text())
    assert (row["successor"], row["status"]) == (after, "handoff" if after else "running")
    for name, column in {**dict.fromkeys(SAME), **RENAMED}.items():
        assert state[name] == row[column or name], name
    for kind, last in (("decisions", row["seq"]), ("metrics", row["measured"])):
        data = (folder / f"{stem}.{kind}.jsonl").read_text()
        lines = [json.loads(line) for line in data.splitlines()]
        assert [line["seq"] for line in lines] == list(range(1, last + 1)) and data.endswith("\n")
        assert {line["session_id"] for line in lines} == {session}
        done = [line for line in lines if not line.get("confirm") or line["confirm"]["granted"]]  # else: asked
        of = Counter(line["event" if kind == "metrics" else "action"] for line in done)
        assert (of["compact"], of["handoff"]) == (row["compact_count"], 1 if after else 0)
        if kind == "metrics":
            assert of["turn"] == row["step_index"] == len(turns)
            assert (
                lines[-1]["total_tokens"] == row["cumulative"] == sum(FIRST + each["window_tokens"] for each in turns)
            )
    states = rows(home, "SELECT state, method FROM compaction WHERE session = ?", session)
    assert [each["state"] for each in states] == ["written"] * row["compact_count"]


def handed_on(home: Home, segments: Sequence[str]) -> None:
    """One manifest a handover, in one line; enough of both, over two million tokens."""
    made = [manifest.read(path) for path in sorted(home.layout.group("main").manifests.iterdir())]
    assert [each.session_id for each in made] == segments[:-1]
    assert [each.parent_manifest_id for each in made] == [None, *(each.manifest_id for each in made[:-1])]
    found = rows(home, "SELECT * FROM context ORDER BY session")
    assert [row["parent"] for row in found] == [None, *segments[:-1]]
    assert sum(row["cumulative"] for row in found) >= 2_000_000
    methods = Counter(row["method"] for row in rows(home, "SELECT method FROM compaction"))
    assert methods["extract"] >= 5 and methods["mask"] >= 2 and methods.total() >= 10


def whole(home: Home, plan: Plan, segments: Sequence[str]) -> None:
    """Each block stands once and in order across the segments, and what compactions stand for can be seen."""
    told: list[Block] = []
    for session in segments:
        here = blocks(home, session)
        told += [block for block in here if not ours(block)]
        stood: list[Any] = []
        outputs: set[str] = set()
        for row in rows(home, "SELECT * FROM compaction WHERE session = ? ORDER BY id", session):
            shown = expanding.expand(home.layout, session, row["id"])
            if row["upto"] is not None:
                stood += [each["content"] for each in shown]
            outputs |= {each["content"] for each in shown if each["role"] == "tool"}
            masked = [block for block in here if block.role == "tool" and block.meta["turn"] <= (row["masked"] or 0)]
            assert outputs >= {block.content for block in masked}
        if stood:
            assert stood == [block.content for block in here][: len(stood)]
    assert len(told) == len(plan.blocks)
    for block, (role, text) in zip(told, plan.blocks, strict=True):
        same = text in block.content if role == "tool" or not text else text == block.content
        assert block.role == role and same


def in_the_last_window(home: Home, plan: Plan) -> None:
    """What a model would be sent now has all that was ever pinned, by the command that shows it and by the daemon."""
    parts = home.json("context", "show", "--wake", "now?")["parts"]
    shown = "".join(part["text"] for part in parts)
    missing = [text for text in plan.constraints + plan.blockers if text not in shown]
    assert not missing
    assert home.stop() == 0
    with Standin(key=CANARY) as model:
        more = f'base_url = "{model.url}"\nallow_private = true\ncredential = "${{env:STANDIN_KEY}}"'
        home.configure("messages", more=f"[services.anthropic]\n{more}\n{MONTH}")
        text = home.layout.config_file.read_text()
        home.layout.config_file.write_text(text.replace('script = "script.json"', 'model = "standin-1"'))
        home.layout.group("main").config_file.write_text(GROUP + 'grants = ["anthropic"]\n')
        home.start(STANDIN_KEY=CANARY)
        home.say("now?")
        until(lambda: model.requests)
        sent = json.dumps(model.requests[0].body, ensure_ascii=False)
    assert not [text for text in plan.constraints + plan.blockers if text not in sent]


def busy_steps() -> list[dict[str, Any]]:
    """Turns that take a moment, so that what is said joins them, and that end in every size of window."""
    steps: list[dict[str, Any]] = []
    for n in range(40):
        window = (GO, HAND, COMPACT, GO, HAND)[n % 5]
        notes = {"constraints": [f"Never touch db-{n}.internal"]} | ({"next_safe_action": "More"} if n % 3 else {})
        steps += [
            {**call("sleep", seconds=(0, 0.05, 0.15)[n % 3]), "text": "think " * 1000, "notes": notes},
            {"text": "re {message}", "usage": {"input": window - 10, "output": 10}},
        ]
    return steps


@pytest.mark.parametrize("followups", ["steer", "queue"])
def test_a_busy_conversation_is_answered_whatever_happens_to_its_context(home: Home, followups: str) -> None:
    home.script(*busy_steps(), sandbox="warm_minutes = 60", more=MONTH)
    home.cli("groups", "add", "main").check_returncode()
    home.layout.group("main").config_file.write_text(f'{GROUP}followups = "{followups}"\n')
    home.start()
    schedule = home.json("schedule", "add", "every 24h", "tick")["id"]
    said: list[str] = []

    def talk(me: int) -> None:
        for n in range(8):
            if (me, n) in BETWEEN:
                BETWEEN[me, n](home, schedule)
            text = f"m{me}-{n}x"
            home.say(text, key=text)
            said.append(text)

    talkers = [Thread(target=talk, args=(me,)) for me in range(3)]
    for each in talkers:
        each.start()
    for each in talkers:
        each.join()
    until(lambda: not undone(home) and all(each["state"] in ("recorded", "stopped") for each in home.messages()))

    segments = [row["id"] for row in rows(home, "SELECT id FROM session WHERE base = ? ORDER BY segment", BASE)]
    files = [each for each in segments if (home.layout.group("main").sessions / f"{stem_of(each)}.md").exists()]
    heard = [line for each in files for block in blocks(home, each) if block.role == "user"
             for line in block.content.splitlines()]  # fmt: skip
    assert sorted(line for line in heard if line in said) == sorted(said) and len(segments) > (
        1 if followups == "steer" else 2
    )
    sent = [row["text"] for row in rows(home, "SELECT text FROM delivery WHERE kind = 'text'")]
    told = Counter(line for text in sent for line in text.replace("re ", "").splitlines() if line in said)
    stopped = {part["text"] for row in rows(home, "SELECT i.parts FROM inbound i JOIN turn t ON t.id = i.turn WHERE"
                                            " t.state = 'stopped'") for part in json.loads(row["parts"])}  # fmt: skip
    assert set(told.values()) == {1} and set(said) - set(told) <= stopped and len(stopped) < 5
    for session in segments:
        [row] = rows(home, "SELECT * FROM context WHERE session = ?", session) or [None]
        assert row is None or (row["gate"] is None and row["refused"] is None)
        waits = "SELECT 1 FROM turn t JOIN turn_wake tw ON tw.turn = t.id JOIN wake w ON w.id = tw.wake"
        going = rows(home, f"{waits} WHERE w.kind = 'handoff' AND t.session = ? AND t.state = 'answered'", session)
        assert len(going) <= 1
    assert rows(home, "SELECT 1 FROM firing WHERE state = 'ran'")


BETWEEN: dict[tuple[int, int], Callable[[Home, str], Any]] = {
    (0, 3): lambda home, schedule: home.say("/stop"),
    (0, 5): lambda home, schedule: home.say("/new"),
    (1, 2): lambda home, schedule: home.say("/compact"),
    (1, 6): lambda home, schedule: home.ask("schedule.run", id=schedule),
    (2, 4): lambda home, schedule: home.say("/context"),
}
