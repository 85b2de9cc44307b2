"""Whatever is damaged, a ledger comes out of it that is sound, says nothing twice and lets what waited go on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clawd.channel import ChannelLimits
from clawd.clock import moment_of
from clawd.ledger import deliveries, ends, groups, injected, jobs, questions, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.salvage import FoundGroup, FoundSession, Salvaged, salvage
from clawd.model import Authority, Final, Lease
from clawd.trust import Role
from tests.ledger.conftest import NOW, Desk

PAGE = 4096
DONE = 60
FINISHED = FoundSession("terminal:main", "main", "terminal_main", frozenset(range(1, DONE + 1)))
FOLDERS = [FoundGroup("main", 1), FoundGroup("side", 2)]
ANSWERED, SAID, PLAYED, WAITS, HELD, COMMAND = range(DONE + 1, DONE + 7)


def play(desk: Desk, text: str, *, said: bool = True, recorded: bool = True) -> None:
    """A whole turn of `main`: by default until its end."""
    desk.accept(text + " " * 300)
    claim = desk.ledger.tx(lambda tx: turns.claim(tx, "run", "main", 0, NOW, "offline"))
    assert claim is not None
    lease = Lease("run", claim.turn["id"], claim.attempt, 0)

    def work(tx: Transaction) -> None:
        turns.add_step(tx, lease, 0, {"role": "assistant", "content": "step"}, [])
        final = Final(f"re {text}")
        ended = ends.answer(tx, lease, final, [], NOW, limits=ChannelLimits())
        assert ended is not None
        for delivery in ended.deliveries if said else ():
            deliveries.decide(tx, delivery, "send")
            deliveries.decide(tx, delivery, "arrive", platform_id="e")
        if recorded:
            ends.recorded(tx, lease.turn, NOW)

    desk.ledger.tx(work)


@pytest.fixture
def damaged(desk: Desk, tmp_path: Path) -> Path:
    """A ledger with a message in every state, whole and closed."""
    desk.run("run")
    for number in range(DONE):
        play(desk, f"m{number}")
    play(desk, "answered", said=False, recorded=False)
    desk.ledger.tx(lambda tx: ends.recorded(tx, ANSWERED, NOW))
    play(desk, "said", said=False, recorded=False)
    desk.accept("played", session="terminal:main:b")
    claim = desk.ledger.tx(lambda tx: turns.claim(tx, "run", "main", 1, NOW, "offline"))
    assert claim is not None and claim.turn["id"] == PLAYED
    desk.ledger.tx(
        lambda tx: turns.add_step(tx, Lease("run", PLAYED, 1, 1), 0, {"role": "assistant", "content": "a step"}, [])
    )
    desk.accept("waits", group="side")
    desk.accept("held", group="third")
    desk.ledger.tx(lambda tx: ends.hold(tx, "third", "no sandbox", NOW, limits=ChannelLimits()))
    desk.accept("/status", kind="command")
    desk.ledger.tx(lambda tx: jobs.put(tx, "k", "side", "key", "prompt", Authority(Role.OWNER), NOW))
    desk.ledger.close()
    return tmp_path / "ledger.db"


def recovered(
    damaged: Path, folders: list[FoundGroup] = FOLDERS, sessions: Sequence[FoundSession] = (FINISHED,)
) -> tuple[Salvaged, Ledger]:
    before = damaged.read_bytes()
    new = damaged.with_name("new.db")
    found = salvage(damaged, new, folders, sessions, NOW)
    assert damaged.read_bytes() == before
    assert [path.name for path in damaged.parent.glob("*scratch*")] == []
    ledger = Ledger.open(new)
    assert [tuple(row) for row in ledger.tx(lambda tx: tx.all("PRAGMA integrity_check"))] == [("ok",)]
    assert ledger.tx(lambda tx: tx.all("PRAGMA foreign_key_check")) == []
    return found, ledger


def rows(ledger: Ledger, sql: str) -> list[dict[str, Any]]:
    return [dict(row) for row in ledger.tx(lambda tx: tx.all(sql))]


def states(ledger: Ledger) -> dict[int, str]:
    return {row["seq"]: row["state"] for row in rows(ledger, "SELECT seq, state FROM inbound")}


def assert_all_goes_on(ledger: Ledger) -> None:
    """What was readable: ended messages stay ended, open ones are played, nothing in doubt is sent as new."""
    found = states(ledger)
    assert {found[seq] for seq in range(1, DONE + 1)} == {"recorded"}
    assert [found[seq] for seq in (ANSWERED, SAID)] == ["answered", "answered"]
    assert {found[seq] for seq in (PLAYED, WAITS, HELD, COMMAND)} == {"received"}
    waiting = rows(ledger, "SELECT id FROM turn WHERE state = 'queued'")
    assert [row["id"] for row in waiting] == [PLAYED, WAITS, HELD]
    assert rows(ledger, f"SELECT n FROM step WHERE turn = {PLAYED}") == [{"n": 0}]
    undecided = rows(ledger, "SELECT turn, state FROM delivery WHERE state <> 'sent' AND turn <= 62")
    assert undecided == [{"turn": ANSWERED, "state": "unknown"}, {"turn": SAID, "state": "unknown"}]


@pytest.mark.parametrize("length", [16, 100])
def test_behind_a_garbage_header_everything_is_found(damaged: Path, length: int) -> None:
    with damaged.open("r+b") as file:
        file.write(b"\xa5" * length)
    found, ledger = recovered(damaged)
    assert found.damaged == []
    assert_all_goes_on(ledger)
    ledger.close()


def test_a_sound_ledger_comes_over_whole(damaged: Path) -> None:
    found, ledger = recovered(damaged)
    assert (found.damaged, found.waiting, found.lost, found.groups) == ([], 3, 0, [])
    assert_all_goes_on(ledger)
    ledger.close()


def test_questions_come_over_with_the_turns_that_they_became(desk: Desk, tmp_path: Path) -> None:
    desk.run("run")
    desk.accept("first", session="terminal:main:b")
    desk.ledger.tx(lambda tx: turns.claim(tx, "run", "main", 0, NOW))
    over, open = (moment_of(NOW) + timedelta(hours=hours) for hours in (-1, 1))  # type: ignore[operator]
    for end in (over, open):
        desk.ledger.tx(lambda tx, end=end: questions.ask(tx, 1, "q", [], "", end))  # type: ignore[misc]
        desk.ledger.tx(lambda tx: questions.expire(tx, moment_of(NOW)))  # type: ignore[arg-type]
    desk.ledger.tx(lambda tx: tx.execute("UPDATE wake SET state = 'taken'"))
    desk.ledger.close()
    found, ledger = recovered(tmp_path / "ledger.db", sessions=())
    assert found.lost == 0
    assert rows(ledger, "SELECT state, wake FROM question") == [
        {"state": "expired", "wake": 2},
        {"state": "open", "wake": None},
    ]
    assert rows(ledger, "SELECT id, state FROM turn") == [{"id": 1, "state": "queued"}, {"id": 2, "state": "queued"}]
    assert rows(ledger, "SELECT state FROM wake") == [{"state": "pending"}] * 2
    ledger.close()


def test_what_is_only_in_the_journal_is_found_too(damaged: Path, tmp_path: Path) -> None:
    ledger = Ledger.open(damaged)
    Desk(ledger).accept("late", group="side", id="late")
    copy = tmp_path / "copy" / "ledger.db"
    copy.parent.mkdir()
    for name in ("ledger.db", "ledger.db-wal"):
        shutil.copyfile(tmp_path / name, copy.with_name(name))
    ledger.close()
    with copy.open("r+b") as file:
        file.write(b"\xa5" * 100)
    _, ledger = recovered(copy)
    assert rows(ledger, "SELECT state FROM inbound WHERE platform_id = 'late'") == [{"state": "received"}]
    ledger.close()


@pytest.mark.parametrize("fill", [b"\0", b"\xa5"])
def test_any_page_may_be_lost(damaged: Path, fill: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawd.ledger.salvage.MOST_MISSES", 500)
    content = damaged.read_bytes()
    assert len(content) > 20 * PAGE
    for page in range(1, len(content) // PAGE):
        damaged.write_bytes(content[: page * PAGE] + fill * PAGE + content[(page + 1) * PAGE :])
        found, ledger = recovered(damaged)
        assert not rows(ledger, "SELECT 1 FROM delivery WHERE state IN ('pending', 'sending', 'draft')")
        finished = rows(ledger, f"SELECT COUNT(*) AS n FROM turn WHERE id <= {DONE} AND recorded_at IS NOT NULL")
        assert finished == [{"n": DONE}], page
        saved = states(ledger)
        assert all(state == "recorded" for seq, state in saved.items() if seq <= DONE), page
        stranded = rows(
            ledger,
            "SELECT seq FROM inbound i WHERE state IN ('received', 'claimed', 'held') AND kind = 'message' AND"
            " NOT EXISTS (SELECT 1 FROM turn t JOIN turn_wake tw ON tw.turn = t.id JOIN wake w ON w.id = tw.wake"
            " WHERE t.id = i.turn AND t.state = 'queued' AND w.inbound = i.seq AND w.state = 'pending')",
        )
        assert stranded == [], page
        if "inbound" not in found.damaged:
            assert {PLAYED, WAITS, HELD} <= {seq for seq, state in saved.items() if state == "received"}, page
        new = ledger.tx(lambda tx: groups.add(tx, "new", NOW))
        assert new.number not in (1, 2)
        ledger.close()
        damaged.with_name("new.db").unlink()


@pytest.mark.parametrize("pages", [0, 1, 5, 15])
def test_of_a_truncated_file_what_is_left_is_found(damaged: Path, pages: int) -> None:
    with damaged.open("r+b") as file:
        file.truncate(pages * PAGE)
    _, ledger = recovered(damaged)
    finished = rows(ledger, f"SELECT COUNT(*) AS n FROM turn WHERE id <= {DONE} AND recorded_at IS NOT NULL")
    assert finished == [{"n": DONE}]
    desk = Desk(ledger)
    assert (desk.accept("new").turn or 0) > COMMAND, "a number that the session file knows is given once"
    ledger.close()


def test_a_group_that_only_its_folder_shows_keeps_its_uid_and_is_not_trusted(damaged: Path) -> None:
    damaged.write_bytes(b"")
    found, ledger = recovered(damaged, [FoundGroup("a", None), FoundGroup("main", 1), FoundGroup("side", 7)])
    assert found.groups == ["main", "side", "a"]
    known = rows(ledger, "SELECT name, number, authority FROM grp ORDER BY number")
    assert [(row["name"], row["number"]) for row in known] == [("main", 1), ("side", 7), ("a", 8)]
    assert {row["authority"] for row in known} == {"none"}
    ledger.close()


def test_what_was_put_into_sessions_is_still_written_and_trusted_no_more(damaged: Path) -> None:
    ledger = Ledger.open(damaged)
    for session, piece in (("mmkr:a", "written"), ("mmkr:b", "waits")):
        blocks = [{"role": "user", "content": piece, "at": NOW}]
        ledger.tx(lambda tx, s=session, b=blocks: injected.accept(tx, s, "side", b, "k", NOW))  # type: ignore[misc]
    ledger.tx(lambda tx: injected.recorded(tx, [1]))
    ledger.tx(lambda tx: tx.execute("PRAGMA defer_foreign_keys = ON"))
    ledger.close()
    with closing(sqlite3.connect(damaged)) as connection:  # the rows of both sessions are lost
        connection.execute("DELETE FROM session WHERE grp = 'side'")
        connection.commit()
    named = [FINISHED, FoundSession("mmkr:a", "side", "mmkr_a", frozenset(), 0.2), replace(FINISHED, id="x", stem="x")]
    salvage(damaged, damaged.with_name("new.db"), FOLDERS, named, NOW)
    ledger = Ledger.open(damaged.with_name("new.db"))
    assert ledger.tx(injected.sessions) == ["mmkr:b"]
    taints = {row["id"]: row["taint"] for row in rows(ledger, "SELECT id, taint FROM session")}
    assert (taints["mmkr:a"], taints["mmkr:b"], taints["x"]) == (0.2, 0.2, 1.0)
    due = ledger.tx(lambda tx: injected.unwritten(tx, "mmkr:b"))
    assert due is not None and due.blocks[0]["content"] == "waits"
    ledger.close()


def test_jobs_are_left_to_their_rooms_which_ask_again(damaged: Path) -> None:
    named = FoundSession("job:1", "main", "job_1", frozenset())  # a file that somebody named so
    found = salvage(damaged, damaged.with_name("new.db"), FOLDERS, [FINISHED, named], NOW)
    ledger = Ledger.open(damaged.with_name("new.db"))
    assert found.lost == 0 and not ledger.tx(lambda tx: tx.all("SELECT 1 FROM session WHERE id LIKE 'job:%'"))
    id = ledger.tx(lambda tx: jobs.put(tx, "k", "side", "key", "prompt", Authority(Role.OWNER), NOW))
    assert ledger.tx(lambda tx: jobs.of(tx, tx.all("SELECT turn FROM job")[0][0]))["id"] == id
    ledger.close()
