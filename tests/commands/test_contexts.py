"""What a person does about a session's context by hand, under the home's lock, and how it stands: without a daemon."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.clock import SystemClock
from clawd.commands import contexts as by_hand
from clawd.commands import standing, writing
from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.errors import ClawdError, ConfigError, NotFound, UnsafePath, UsageError
from clawd.ledger import contexts, groups
from clawd.ledger.db import Ledger, Transaction, peek
from clawd.lifecycle.deciding import Decision
from clawd.model import Block
from clawd.sessions.file import SessionFile
from clawd.trust import Role
from tests.ledger.conftest import NOW

SESSION = "mmkr:agent-1"
LONG = "drwxr-xr-x 2 agent agent 4096 notes of the day\n" * 60


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """With a session of six turns, of which a tool said much."""
    made = Home(tmp_path / "home")
    init_home(made)
    blocks = []
    for turn in range(1, 7):
        call = {"id": f"c{turn}", "name": "bash", "arguments": {"command": "ls"}}
        blocks.append(
            [
                Block("user", f"Please look again, {turn}."),
                Block("assistant", "", tool_calls=(call,)),
                Block("tool", LONG, tool_call_id=f"c{turn}"),
                Block("assistant", f"Looked {turn} times at 1,204 rows in /srv/copy."),
            ]
        )
    write(made, lambda tx: begun(tx))
    path = made.group("main").sessions / "mmkr_agent-1.md"
    for turn, each in enumerate(blocks, 1):
        SessionFile(path, SESSION).append(each, turn)
    return made


def begun(tx: Transaction, session: str = SESSION) -> None:
    groups.add(tx, "main", NOW)
    groups.add(tx, "other", NOW)
    groups.open_session(tx, session, "main", NOW)
    contexts.of(tx, session, NOW)
    contexts.update(tx, session, NOW, window=70_000, cumulative=200_000, step_index=6)
    for cls, text in (("goal", "Count the rows of /srv/copy"), ("constraints", "Never write to /srv/live")):
        contexts.pin(tx, session, cls, text, turn=1, at=NOW, origin="owner", trust=1.0)


def write(home: Home, work: Any) -> Any:
    ledger = Ledger.open(home.ledger_file, home.backups)
    try:
        return ledger.tx(work)
    finally:
        ledger.close()


def row(home: Home, session: str = SESSION) -> dict[str, Any]:
    found = peek(home.ledger_file, lambda tx: contexts.find(tx, session))
    assert found is not None
    return dict(found)


def sessions(home: Home) -> set[str]:
    return peek(home.ledger_file, groups.session_ids) or set()


def live(tx: Transaction, state: str = "claimed") -> None:
    tx.insert("turn", grp="main", session=SESSION, ordinal=1, state=state, queued_at=NOW, authority=Role.OWNER,
              taint=1.0, channel="terminal", account="", chat="main", thread="")  # fmt: skip


# ── how it stands ──


def test_a_session_stands_as_the_ledger_says(home: Home) -> None:
    found = standing.status(home, SESSION)
    assert list(found) == [
        *("session", "group", "status", "stopped_reason", "profile", "soft", "hard", "window_tokens"),
        *("cumulative_tokens", "estimated", "step_index", "compact_count", "last_recall", "parent", "successor"),
        *("handoff_manifest", "pending_confirm", "usd", "agent_id", "memory_namespace", "ledger", "last_decision"),
    ]
    assert (found["window_tokens"], found["soft"], found["hard"]) == (70_000, 60_000, 100_000)
    assert (found["usd"], found["last_decision"], found["estimated"]) == (None, None, False)
    assert found["ledger"] == {
        "goal": "Count the rows of /srv/copy",
        "verified": [],
        "constraints": ["Never write to /srv/live"],
        "blockers": [],
        "decisions": [],
        "next_safe_action": "",
    }


def test_a_session_that_a_person_put_there_stands_as_a_new_one(home: Home) -> None:
    SessionFile(home.group("main").sessions / "by_hand.md", "by:hand").append([Block("user", "hi")], 1)
    found = standing.status(home, "by:hand", "main")
    assert (found["session"], found["status"], found["window_tokens"]) == ("by:hand", "running", 0)
    assert "by:hand" not in sessions(home)


def test_its_own_limits_and_the_groups_words_hold(home: Home) -> None:
    write(home, lambda tx: contexts.update(tx, SESSION, NOW, profile="coding", soft=1_000, nanos=1_500_000_000))
    home.group("main").config_file.write_text('agent_id = "ada"\nmemory_namespace = "team/a"\n')
    found = standing.status(home, SESSION)
    assert (found["profile"], found["soft"], found["hard"]) == ("coding", 1_000, 350_000)
    assert (found["usd"], found["agent_id"], found["memory_namespace"]) == (1.5, "ada", "team/a")
    write(home, lambda tx: contexts.update(tx, SESSION, NOW, soft=400_000))
    with pytest.raises(ConfigError, match="soft must be below hard"):
        standing.status(home, SESSION)


def test_the_last_decision_is_the_last_line_that_is_whole(home: Home) -> None:
    file = home.group("main").sessions / "mmkr_agent-1.decisions.jsonl"
    file.write_text('{"seq": 1}\n{"seq": 2, "action": "continue"}\n{"seq": 3, "act')
    assert standing.status(home, SESSION)["last_decision"] == {"seq": 2, "action": "continue"}
    file.unlink()
    file.symlink_to(home.config_file)
    assert standing.status(home, SESSION)["last_decision"] is None


# ── by hand ──


def test_a_session_is_compacted_and_the_result_is_known(home: Home) -> None:
    found = writing.call(home, "context.compact", session=SESSION)
    assert (found["session"], found["action"], found["trigger"]) == (SESSION, "compact", "manual")
    done = standing.outcome(home, SESSION, found["compaction"])
    assert done is not None and (done["state"], done["error"]) == ("written", None)
    assert done["before"] == 70_000 and done["after"] < 70_000
    assert (row(home)["window"], row(home)["compact_count"]) == (done["after"], 1)
    decisions = (home.group("main").sessions / "mmkr_agent-1.decisions.jsonl").read_text()
    assert json.loads(decisions)["action"] == "compact"
    assert standing.status(home, SESSION)["last_decision"]["trigger"] == "manual"


def test_a_window_that_is_full_is_handed_over_whatever_was_asked_for(home: Home) -> None:
    write(home, lambda tx: contexts.update(tx, SESSION, NOW, window=100_000))
    found = writing.call(home, "context.compact", session=SESSION)
    assert (found["action"], found["trigger"], found["successor"]) == ("handoff", "hard_handoff", f"{SESSION}.2")


def test_a_session_is_handed_over_and_then_it_is_over(home: Home) -> None:
    found = writing.call(home, "context.handoff", session=SESSION)
    assert (found["action"], found["state"], found["successor"]) == ("handoff", "begun", f"{SESSION}.2")
    stands = standing.status(home, SESSION)
    assert (stands["status"], stands["successor"], stands["stopped_reason"]) == ("handoff", f"{SESSION}.2", "handoff")
    manifest = json.loads(Path(stands["handoff_manifest"]).read_text())
    state = json.loads((home.group("main").sessions / "mmkr_agent-1_2.state.json").read_text())  # before any turn of it
    assert (state["id"], state["parent"]) == (f"{SESSION}.2", SESSION)
    assert manifest["goal"] == "Count the rows of /srv/copy" and manifest["session_id"] == SESSION
    assert standing.status(home, f"{SESSION}.2")["parent"] == SESSION
    before = row(home)
    for operation, more in (("compact", {}), ("handoff", {}), ("signal", {"phase_done": True})):
        with pytest.raises(ClawdError, match=r"goes on as mmkr:agent-1\.2") as refused:
            writing.call(home, f"context.{operation}", session=SESSION, **more)
        assert refused.value.code == 1
    assert row(home) == before


def test_a_phase_that_is_done_is_used_up_by_the_handover(home: Home) -> None:
    found = writing.call(home, "context.signal", session=SESSION, phase_done=True)
    assert found == {"session": SESSION, "status": "phase_boundary"}
    state = home.group("main").sessions / "mmkr_agent-1.state.json"
    assert json.loads(state.read_text())["status"] == "phase_boundary"
    found = writing.call(home, "context.handoff", session=SESSION)
    assert (found["trigger"], row(home, f"{SESSION}.2")["status"]) == ("phase_boundary", "running")
    with pytest.raises(UsageError, match="--phase-done"):
        writing.call(home, "context.signal", session=f"{SESSION}.2")


@pytest.mark.parametrize("operation", ["context.compact", "context.handoff", "context.signal"])
@pytest.mark.parametrize(
    ("session", "group", "says"),
    [("nobody:1", None, "no session"), (SESSION, "other", "no session"), ("job:1", None, "no session")],
)
def test_what_is_missing_is_not_made(home: Home, operation: str, session: str, group: str | None, says: str) -> None:
    before = sessions(home), sorted(home.root.rglob("*.json*"))
    with pytest.raises(NotFound, match=says):
        writing.call(home, operation, session=session, group=group, phase_done=True)
    with pytest.raises(NotFound, match=says):
        standing.status(home, session, group)
    with pytest.raises(NotFound, match=says):
        standing.export(home, session, group, "json")
    assert (sessions(home), sorted(home.root.rglob("*.json*"))) == before


def test_a_file_that_was_just_put_there_is_a_session(home: Home) -> None:
    SessionFile(home.group("main").sessions / "by_hand.md", "by:hand").append([Block("user", "hi")], 1)
    found = writing.call(home, "context.signal", session="by:hand", phase_done=True)
    assert (found["status"], row(home, "by:hand")["grp"]) == ("phase_boundary", "main")


def test_where_a_yes_is_wanted_nothing_is_done_without_one(home: Home) -> None:
    home.group("main").config_file.write_text('require_confirm = ["handoff"]\n')
    before = row(home)
    found = writing.call(home, "context.handoff", session=SESSION)
    assert (found["state"], found["action"]) == ("unconfirmed", "handoff")
    assert row(home) == before and peek(home.ledger_file, lambda tx: tx.all("SELECT * FROM journal")) == []
    assert writing.call(home, "context.compact", session=SESSION)["state"] == "begun"
    found = writing.call(home, "context.handoff", session=SESSION, yes=True)
    assert found["state"] == "begun" and row(home)["confirmed_by"] == by_hand.BY_COMMAND
    lines = (home.group("main").sessions / "mmkr_agent-1.decisions.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["confirm"] == {"required": True, "granted": True, "by": by_hand.BY_COMMAND}


def test_a_sessions_own_wish_to_be_asked_goes_before_the_groups(home: Home) -> None:
    write(home, lambda tx: contexts.update(tx, SESSION, NOW, require_confirm='["compact"]'))
    assert writing.call(home, "context.compact", session=SESSION)["state"] == "unconfirmed"
    assert writing.call(home, "context.compact", session=SESSION, yes=True)["state"] == "begun"


def test_a_turn_that_is_at_work_is_let_finish(home: Home) -> None:
    write(home, live)
    found = writing.call(home, "context.handoff", session=SESSION, yes=True)
    assert (found["state"], found["successor"], found["compaction"]) == ("later", None, None)
    assert (row(home)["wanted"], row(home)["confirmed_by"]) == ("handoff", by_hand.BY_COMMAND)


@pytest.mark.parametrize(
    ("values", "says", "hint"),
    [
        ({"status": "awaiting_confirm", "confirm": 123456}, "waits for a yes", "clawd approvals approve 123456"),
        ({"status": "stopped", "gate": "paused"}, "is paused", "clawd session resume"),
        ({"status": "completed"}, "is over", "session list"),
    ],
)
def test_a_session_that_waits_or_is_over_takes_no_signal(
    home: Home, values: dict[str, Any], says: str, hint: str
) -> None:
    write(home, lambda tx: contexts.update(tx, SESSION, NOW, **values))
    with pytest.raises(ClawdError, match=says) as refused:
        writing.call(home, "context.signal", session=SESSION, phase_done=True)
    assert hint in (refused.value.hint or "") and row(home)["status"] == values["status"]


def test_a_session_that_is_paused_can_be_handed_over(home: Home) -> None:
    write(home, lambda tx: contexts.update(tx, SESSION, NOW, status="stopped", gate="paused", window=100_000))
    found = writing.call(home, "context.handoff", session=SESSION)
    assert (found["trigger"], found["successor"]) == ("hard_handoff", f"{SESSION}.2")


def test_a_session_is_named_exactly_where_it_is_over_and_else_as_its_conversation(home: Home) -> None:
    def anew(tx: Transaction) -> None:
        groups.next_segment(tx, SESSION, NOW)

    write(home, anew)
    assert writing.call(home, "context.signal", session=SESSION, phase_done=True)["session"] == f"{SESSION}.2"
    write(home, lambda tx: contexts.update(tx, SESSION, NOW, status="completed"))
    assert standing.status(home, SESSION)["status"] == "completed"
    assert standing.status(home, f"{SESSION}.2")["status"] == "phase_boundary"


# ── in the chat ──


class Ruled:
    """A life cycle of which only what is decided and begun is looked at."""

    def __init__(self, confirm: tuple[str, ...] = ()) -> None:
        self.confirm, self.done, self.heard = confirm, list[tuple[str, str | None]](), list[str]()

    def decide(self, tx: Transaction, session: str, wanted: str) -> Decision:
        return Decision("compact", "manual")

    def rules(self, row: Any) -> Any:
        from clawd.turns.ruling import DEFAULT

        return DEFAULT

    def carry_out(self, tx: Transaction, session: str, decision: Decision, confirmed_by: str | None = None) -> str:
        self.done.append((session, confirmed_by))
        return "asked" if self.confirm and confirmed_by is None else "begun"

    def soon(self, session: str) -> None:
        self.heard.append(session)


@pytest.mark.parametrize(
    ("role", "confirm", "by", "said"),
    [
        ("owner", ("compact",), "the owner, with /compact (message 7)", "is being compacted"),
        ("admin", (), None, "is being compacted"),
        ("admin", ("compact",), None, "once the owner says yes"),
    ],
)
def test_compact_in_the_chat(home: Home, role: str, confirm: tuple[str, ...], by: str | None, said: str) -> None:
    ruled = Ruled(confirm)
    ledger = Ledger.open(home.ledger_file, home.backups)
    try:
        operations: Any = by_hand.ContextOperations(ledger, SystemClock(), ruled, None)  # type: ignore[arg-type]
        inbound: Any = {"session": SESSION, "role": role, "seq": 7}
        reply, after = ledger.tx(lambda tx: operations.typed(tx, inbound))
        assert said in reply and ruled.done == [(SESSION, by)] and ruled.heard == []
        after()
        assert ruled.heard == [SESSION]
        with pytest.raises(ClawdError, match="Nothing was said here yet"):
            ledger.tx(lambda tx: operations.typed(tx, inbound | {"session": "terminal:new"}))
    finally:
        ledger.close()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, None),
        ({"gate": "paused", "status": "stopped"}, f"`clawd session resume {SESSION}`"),
        ({"gate": "confirm", "status": "awaiting_confirm", "confirm": 123456}, "approval 123456"),
        ({"status": "awaiting_confirm", "confirm": 123456}, "The owner is asked what becomes of it (approval 123456)."),
    ],
)
@pytest.mark.anyio
async def test_context_in_the_chat_says_what_it_waits_for(home: Home, values: dict[str, Any], says: str | None) -> None:
    write(home, lambda tx: contexts.update(tx, SESSION, NOW, **values))
    ledger = Ledger.open(home.ledger_file, home.backups)
    try:
        operations: Any = by_hand.ContextOperations(ledger, SystemClock(), Ruled(), None)  # type: ignore[arg-type]
        said = await operations.said({"session": SESSION})
    finally:
        ledger.close()
    first, *more = said.splitlines()
    assert first.startswith(f"session {SESSION}: 70,000 tokens in view, compacted at 60,000, handed over at 100,000")
    assert more == [] if says is None else says in more[0]


def test_context_in_the_chat_says_why_the_last_try_changed_nothing(home: Home) -> None:
    (home.group("main").sessions / "mmkr_agent-1.md").unlink()
    writing.call(home, "context.compact", session=SESSION)
    ledger = Ledger.open(home.ledger_file, home.backups)
    try:
        operations: Any = by_hand.ContextOperations(ledger, SystemClock(), Ruled(), None)  # type: ignore[arg-type]
        said = anyio.run(operations.said, {"session": SESSION})
    finally:
        ledger.close()
    assert said.endswith("\nThe last try left it as it is: nothing was said in it that could be left out.")


# ── export ──


def test_an_export_is_three_formats_in_the_sessions_own_folder(home: Home) -> None:
    writing.call(home, "context.compact", session=SESSION)
    place = home.group("main").exports / "mmkr_agent-1"
    for format, names in (("csv", ["metrics.csv", "decisions.csv"]), ("json", ["context.json"]),
                          ("html", ["context.html"])):  # fmt: skip
        found, notes = standing.export(home, SESSION, None, format)  # type: ignore[arg-type]
        assert found == {"session": SESSION, "format": format, "files": [str(place / name) for name in names]}
        assert notes == []
    told = json.loads((place / "context.json").read_text())
    assert told["state"]["ledger"]["goal"] == "Count the rows of /srv/copy"
    assert [each["action"] for each in told["decisions"]] == ["compact"]
    [line] = told["metrics"]
    assert (line["event"], line["method"], line["window_tokens"]) == ("compact", "mask", told["state"]["window_tokens"])
    assert (place / "decisions.csv").read_bytes().count(b"\r\n") == 2
    assert "Never write to /srv/live" in (place / "context.html").read_text()
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}


def test_what_is_left_out_of_an_export_is_said(home: Home) -> None:
    sessions = home.group("main").sessions
    (sessions / "mmkr_agent-1.metrics.jsonl").write_text('{"seq": 1}\nnonsense\n{"se')
    found, notes = standing.export(home, SESSION, None, "csv")
    assert notes == [
        "1 line of metrics.jsonl cannot be read",
        "its state.json is missing, or cannot be read",
    ]
    assert Path(found["files"][0]).read_bytes().count(b"\r\n") == 2


@pytest.mark.parametrize("link", ["exports", "exports/mmkr_agent-1", "exports/mmkr_agent-1/context.json"])
def test_an_export_follows_no_link(home: Home, tmp_path: Path, link: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = home.group("main").root / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(elsewhere / "context.json" if link.endswith(".json") else elsewhere)
    with pytest.raises(UnsafePath):
        standing.export(home, SESSION, None, "json")
    assert list(elsewhere.iterdir()) == []


def test_a_journal_that_is_a_link_is_not_read(home: Home) -> None:
    (home.group("main").sessions / "mmkr_agent-1.metrics.jsonl").symlink_to(home.config_file)
    with pytest.raises(UnsafePath):
        standing.export(home, SESSION, None, "csv")


def test_what_is_paused_goes_on_by_the_plain_id_of_its_conversation(home: Home) -> None:
    writing.call(home, "context.handoff", session=SESSION)
    paused = {"status": "stopped", "gate": "paused", "stopped_reason": "confirm_denied_at_hard"}
    write(home, lambda tx: contexts.update(tx, f"{SESSION}.2", NOW, **paused))
    with pytest.raises(ClawdError, match=r"goes on as mmkr:agent-1\.2"):  # a segment that is over is that one itself
        writing.call(home, "session.resume", session=SESSION)
    write(home, lambda tx: tx.execute("UPDATE context SET status = 'running' WHERE session = ?", SESSION))  # by /new
    found = writing.call(home, "session.resume", session=SESSION)
    assert found == {"session": f"{SESSION}.2", "group": "main", "status": "running"}
    assert row(home, f"{SESSION}.2")["gate"] is None


def test_compacting_what_is_small_by_hand_changes_nothing_however_often(home: Home) -> None:
    file = home.group("main").sessions / "mmkr_agent-1.md"
    file.unlink()
    for turn in (1, 2):
        SessionFile(file, SESSION).append([Block("user", "Hi."), Block("assistant", "Hello!")], turn)
    write(home, lambda tx: contexts.update(tx, SESSION, NOW, window=14))
    before = file.read_bytes()
    for _ in range(3):
        found = writing.call(home, "context.compact", session=SESSION)
        done = standing.outcome(home, SESSION, found["compaction"])
        assert done is not None and (done["state"], done["successor"]) == ("failed", None)
        assert done["error"] == "leaving out what is older would free nothing yet"
    assert (row(home)["status"], row(home)["window"], row(home)["compact_count"]) == ("running", 14, 0)
    assert file.read_bytes() == before
