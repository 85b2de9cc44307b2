"""What was forgotten leaves the session files and the ledger, to the last byte; nothing else of them changes."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clawd.channel import ChannelLimits
from clawd.clock import SystemClock
from clawd.config.begin import ensure_group
from clawd.config.home import Home
from clawd.ledger import contexts, ends, injected, questions, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.memory.forgotten import HIDDEN, Forgotten
from clawd.model import Block, Final, Lease
from clawd.sessions import reading
from clawd.sessions.file import SessionFile
from clawd.sessions.format import write_file
from clawd.turns.injecting import Injector
from clawd.turns.redaction import Redaction, without
from tests.ledger.conftest import NOW, Desk

SECRET = 'The "garden gate" opens with\nthe number 4711 and a knock'
AT = datetime(2026, 12, 1, 9, tzinfo=UTC)


def blocks(said: str) -> list[Block]:
    call = {"id": "c1", "name": "memory_write", "arguments": {"kind": "episode", "content": said}}
    result = json.dumps({"hits": [{"id": "ep_0123456789", "text": said}]})
    return [
        Block("user", f"remember: {said}. Thanks", AT, meta={"turn": 1, "n": "1/4"}),
        Block("assistant", "  I do ", AT, (call,), meta={"turn": 1, "n": "2/4"}),
        Block("tool", result, AT, tool_call_id="c1", meta={"turn": 1, "n": "3/4"}),
        Block("assistant", f"### Kept\n---\n{said}", AT, meta={"turn": 1, "n": "4/4"}),
        Block("user", "another matter", AT, meta={"turn": 2, "n": "1/1"}),
    ]


def test_a_session_file_is_that_of_a_talk_without_it() -> None:
    assert without(write_file("terminal:main", blocks(SECRET)), Forgotten([SECRET])) == write_file(
        "terminal:main", blocks(HIDDEN)
    )


def test_no_structure_is_torn() -> None:
    """Whatever the words are: a header, META, names of tools and headings are none of what was said."""
    data = write_file("terminal:main", blocks(SECRET))
    words = ["terminal:main", "assistant", "Assistant", "tool_call_id", "memory_write", "arguments", "2026-12-01T09"]
    assert without(data, Forgotten(words)) == data


def test_what_a_person_and_other_programs_wrote_stays_byte_for_byte() -> None:
    raw = b"# Session: s\nmine\n\n<!-- msg:{\"role\": \"user\", \"ts\": \"2026-01-01T10:00:00\"} -->\n### x\n\nhello\n---\nworld\n\n---\n"  # fmt: skip # noqa: E501
    assert without(raw, Forgotten(["something else"])) == raw
    read = reading.parse(without(raw + b"\n\n" + raw.partition(b"\n\n")[2], Forgotten(["hello\n---"]))).blocks
    assert [block.content for block in read] == ["hello\n---\nworld"] * 2 or "hello" not in str(read)


def test_what_lies_outside_of_blocks_goes_too() -> None:
    data = b"# Session: s\n\n" + SECRET.encode() + b"\n\xff"
    assert without(data, Forgotten([SECRET])) == f"# Session: s\n\n{HIDDEN}\n".encode() + b"\xff"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home")
    made.create()
    for group in ("main", "other"):
        ensure_group(made, group)
    yield made


def turn(desk: Desk, group: str, *, answered: bool) -> Lease:
    """A turn that says it everywhere where something can be said."""
    desk.accept(f"remember: {SECRET}", group=group)

    def work(tx: Transaction) -> Lease:
        claim = turns.claim(tx, f"run-{group}", group, 0, NOW)
        assert claim is not None
        lease = Lease(f"run-{group}", claim.turn["id"], 1, 0)
        for n, block in enumerate(blocks(SECRET)[1:4]):
            message = {"role": block.role, "content": block.content, "tool_calls": list(block.tool_calls)}
            turns.add_step(tx, lease, n, message, [])
        tx.insert("effect", turn=lease.turn, tool="memory_search", arguments="", nth=0, state="done",
                  result=json.dumps({"content": json.dumps({"text": SECRET})}), attempt=1)  # fmt: skip
        if answered:
            questions.ask(tx, lease.turn, f"{SECRET}?", [SECRET], SECRET, AT)
            tx.execute("UPDATE question SET state = 'answered'")
            ends.answer(tx, lease, Final(f"I keep: {SECRET}"), [], NOW, limits=ChannelLimits())
            tx.insert("job", grp=group, kind="k", key=group, prompt=SECRET, turn=lease.turn, answer=f"about {SECRET}")
        return lease

    return desk.ledger.tx(work)


def rows_with_it(ledger: Ledger) -> set[str]:
    def read(tx: Transaction) -> set[str]:
        names = [row["name"] for row in tx.all("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {f"{name}: {tuple(row)}" for name in names for row in tx.all(f"SELECT * FROM {name}")}

    return {row for row in ledger.tx(read) if "4711" in row}


@pytest.mark.anyio
async def test_no_byte_is_left_of_it_and_other_groups_keep_theirs(home: Home) -> None:
    ledger = Ledger.open(home.ledger_file)
    desk, redaction = Desk(ledger), Redaction(home, ledger, SystemClock())
    for group in ("other", "main"):
        others = rows_with_it(ledger)
        desk.run(f"run-{group}", group)
        turn(desk, group, answered=True)
        file = SessionFile(home.group(group).sessions / f"terminal_{group}.md", f"terminal:{group}")
        file.append(blocks(SECRET), 1)
    link = home.group("main").sessions / "link.md"
    link.symlink_to(home.group("other").sessions / "terminal_other.md")
    desk.accept(f"still to be answered: {SECRET}")

    done = await redaction.redact("main", [SECRET, "short"])
    assert (done.sessions, done.short, done.whole) == (1, 1, True) and done.rows >= 8
    assert (await redaction.redact("main", [SECRET])).rows == 0
    assert "4711" not in (home.group("main").sessions / "terminal_main.md").read_text()
    assert reading.check(home.group("main").sessions / "terminal_main.md")["ok"]
    assert "4711" in (home.group("other").sessions / "terminal_other.md").read_text()
    [left] = rows_with_it(ledger) - others
    assert "still to be answered" in left and others <= rows_with_it(ledger)
    assert ledger.tx(lambda tx: tx.one("SELECT forgot FROM remembering WHERE grp = 'main'"))

    await redaction.redact("other", [SECRET])
    ledger.tx(lambda tx: tx.execute("UPDATE inbound SET parts = '[]' WHERE state = 'received'"))
    ledger.close()
    assert b"4711" not in b"".join(path.read_bytes() for path in home.state.glob("ledger.db*"))


@pytest.mark.anyio
async def test_what_is_to_be_written_from_outside_goes_too(home: Home) -> None:
    ledger = Ledger.open(home.ledger_file)
    desk = Desk(ledger)
    desk.run("run-main")
    call = {"id": "assistant-4711", "name": "look", "arguments": json.dumps({"at": SECRET})}
    piece = [
        {"role": "user", "content": f"tick: {SECRET}", "at": NOW},
        {"role": "assistant", "content": "", "at": NOW, "tool_calls": [call]},
    ]
    ledger.tx(lambda tx: injected.accept(tx, "mmkr:a", "main", piece, "garden gate", NOW))
    redaction, injector = Redaction(home, ledger, SystemClock()), Injector(home, ledger, SystemClock())
    await redaction.redact("main", [SECRET, "garden gate", "assistant-4711"])
    [left] = ledger.tx(lambda tx: tx.all("SELECT key, blocks FROM injected"))
    assert "knock" not in left["blocks"] and left["key"] == "garden gate"
    assert [block["key"] for block in json.loads(left["blocks"])] == ["garden gate"] * 2
    result = [{"role": "tool", "content": "seen", "at": NOW, "tool_call_id": "assistant-4711"}]
    await injector.inject("mmkr:a", "main", result, None)
    read = reading.load(home.group("main").sessions / "mmkr_a.md")
    assert not read.errors and [block.content for block in read.blocks] == [f"tick: {HIDDEN}", "", "seen"]
    assert "knock" not in str(read)
    ledger.close()


@pytest.mark.anyio
async def test_what_a_running_turn_says_of_it_goes_at_its_end(home: Home) -> None:
    ledger = Ledger.open(home.ledger_file)
    desk, redaction = Desk(ledger), Redaction(home, ledger, SystemClock())
    desk.run("run-main")
    lease = turn(desk, "main", answered=False)
    await redaction.redact("main", [SECRET])
    texts = ledger.tx(lambda tx: [row["message"] for row in tx.all("SELECT message FROM step ORDER BY n")])
    assert ["4711" in text for text in texts] == [False, False, True]  # the newest may be posted once more
    last = {"role": blocks(SECRET)[3].role, "content": blocks(SECRET)[3].content, "tool_calls": []}
    ledger.tx(lambda tx: turns.add_step(tx, lease, 2, last, []))
    ledger.tx(lambda tx: ends.answer(tx, lease, Final(f"gone: {SECRET}"), [], NOW, limits=ChannelLimits()))
    ledger.tx(lambda tx: ends.recorded(tx, lease.turn, NOW))
    await redaction.recorded("main", lease.turn)
    row = ledger.tx(lambda tx: tx.one("SELECT final FROM turn"))
    assert row is not None and json.loads(row["final"])["text"] == f"gone: {HIDDEN}"
    await redaction.recorded("main", lease.turn)
    ledger.close()
    assert b"4711" not in home.ledger_file.read_bytes()


@pytest.mark.anyio
async def test_what_was_brought_in_has_it_neither(home: Home, tmp_path: Path) -> None:
    ledger, place = Ledger.open(home.ledger_file), home.group("main").arrivals / "pythonclaw"
    texts = {
        "sessions/a.md": write_file("mmkr:a", blocks(SECRET)),
        "memory/notes/a.md": f"{SECRET}\nand more".encode(),
        "skills/x/SKILL.md": f"---\nname: x\n---\n{SECRET}\n".encode(),
        "memory/other.md": b"another matter\xff\n",
        "import.json": b"{}",
    }
    for path, data in texts.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    (tmp_path / "outside.md").write_text(SECRET)
    (place / "memory/link.md").symlink_to(tmp_path / "outside.md")
    (home.group("other").arrivals).symlink_to(tmp_path)
    (place / "skills/x/SKILL.md").chmod(0o600)
    redaction = Redaction(home, ledger, SystemClock())
    assert (await redaction.redact("main", [SECRET])).sessions == 3
    assert (await redaction.redact("other", [SECRET])).sessions == 0
    assert (place / "sessions/a.md").read_bytes() == write_file("mmkr:a", blocks(HIDDEN))
    assert (place / "memory/notes/a.md").read_text() == f"{HIDDEN}\nand more"
    assert HIDDEN in (place / "skills/x/SKILL.md").read_text()
    assert (place / "skills/x/SKILL.md").stat().st_mode & 0o777 == 0o600
    assert (place / "memory/other.md").read_bytes() == texts["memory/other.md"]
    assert (tmp_path / "outside.md").read_text() == SECRET
    ledger.close()


@pytest.mark.anyio
async def test_what_a_session_holds_on_to_and_its_files_lose_it_too(home: Home) -> None:
    ledger = Ledger.open(home.ledger_file)
    desk, redaction = Desk(ledger), Redaction(home, ledger, SystemClock())
    desk.accept("hi")
    id, group = "terminal:main", home.group("main")
    manifest = {"schema_version": "1.1", "goal": SECRET, "trigger": "manual", "verified": [f"ok: {SECRET}"]}

    def hold(tx: Transaction) -> None:
        contexts.of(tx, id, NOW)
        contexts.update(tx, id, NOW, goal=SECRET, manifest=json.dumps(manifest), seed=json.dumps(manifest))
        contexts.pin(tx, id, "constraints", f"Never: {SECRET}", turn=1, at=NOW, origin="owner", trust=1.0)
        contexts.note(tx, id, "decisions", {"ts": NOW, "session_id": id, "reason": SECRET})
        contexts.add_noted(tx, 1, {"goal": SECRET})
        tx.insert("compaction", session=id, state="ready", cause="manual", text=SECRET, before=1, made=NOW,
                  ledger=json.dumps([{"class": "goal", "text": SECRET}]))  # fmt: skip

    ledger.tx(hold)
    line = json.dumps({"seq": 1, "reason": SECRET})
    files = {
        "sessions/terminal_main.state.json": json.dumps({"goal": SECRET, "id": id}),
        "sessions/terminal_main.decisions.jsonl": f"mine\n{line}\n",
        "sessions/terminal_main.metrics.jsonl": f"{line}\n",
        "manifests/x_terminal_main.json": json.dumps(manifest),
        "exports/terminal_main/context.html": f"<p>{html.escape(SECRET)}</p>",
        "exports/terminal_main/decisions.csv": f'"{SECRET}"',
    }
    for name, text in files.items():
        (group.root / name).parent.mkdir(parents=True, exist_ok=True)
        (group.root / name).write_text(text)
    elsewhere = home.root / "elsewhere.json"
    elsewhere.write_text(SECRET)
    (group.root / "manifests/link.json").symlink_to(elsewhere)
    done = await redaction.redact("main", [SECRET])
    assert done.rows == 5 and elsewhere.read_text() == SECRET
    assert rows_with_it(ledger) == set()
    assert not (group.root / "exports/terminal_main/context.html").exists()
    left = [path.read_text() for name in files if (path := group.root / name).exists()]
    assert len(left) == 5 and not any("4711" in text for text in left)
    journal = (group.root / "sessions/terminal_main.decisions.jsonl").read_text()
    assert journal.startswith("mine\n{") and json.loads(journal.splitlines()[1]) == {"seq": 1, "reason": HIDDEN}
    kept = ledger.tx(lambda tx: contexts.find(tx, id))
    assert kept is not None and json.loads(kept["manifest"])["trigger"] == "manual"
    ledger.close()
