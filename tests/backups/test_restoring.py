"""Putting back: every file, no other file, trust that only falls, nothing done twice, and either tree after a crash."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clawd import faults
from clawd.backups import reading, restoring
from clawd.backups.restoring import Restored
from clawd.cli.main import run
from clawd.config.begin import ensure_group
from clawd.config.home import Home
from clawd.errors import HomeBusy, NotFound, Refused, UsageError
from clawd.faults import InjectedFault
from clawd.ledger import contexts, ends, groups
from clawd.ledger.db import schema_version
from clawd.locks import HomeLock
from clawd.memory.provenance import TrustLedger
from tests.backups.conftest import Ground, hashes
from tests.ledger.conftest import NOW, Desk

ROOT = Path(__file__).parents[2]
# What is not a file of the home's own: links are not restored, the ledger is settled, the trust ledger is added to.
APART = ("state/", "groups/main/work/notes", "groups/side/work/notes")


def put_back(ground: Ground, archive: Path, **options: object) -> Restored:
    return restoring.restore(ground.home, archive, ground.clock, **options)  # type: ignore[arg-type]


def spoil(ground: Ground) -> None:
    """Everything is changed since."""
    home = ground.home
    home.config_file.write_text('schema = 1\n[claw]\nname = "changed"\n')
    for name in ("main", "side"):
        group = home.group(name)
        (group.work / "a" / "page.txt").write_text("changed")
        (group.work / "new.txt").write_text("new")
        (group.work / "a" / "run.sh").unlink()
        (group.sessions / f"terminal_{name}.md").write_text("changed")
        (group.memory / "MEMORY.md").write_text("changed")
    ensure_group(home, "newer")
    with ground.ledger() as ledger:
        ledger.tx(lambda tx: groups.add(tx, "newer", NOW))


def trees(ground: Ground) -> dict[str, tuple[str, int]]:
    return hashes(ground.home.root, *APART)


def test_a_home_comes_back_by_the_hash_of_every_file(ground: Ground) -> None:
    before = trees(ground)
    made = ground.back_up()
    spoil(ground)
    spoiled = trees(ground)
    assert spoiled != before
    done = put_back(ground, made.archive)
    assert trees(ground) == before
    assert done.replaced is not None and done.files == len(made.index.files) and done.group is None
    kept = hashes(done.replaced, "state", *APART)
    assert kept == {path: each for path, each in spoiled.items() if path in kept} and "groups/newer/CLAUDE.md" in kept
    assert (done.replaced / "state" / "ledger.db").exists()
    assert not list(ground.home.backups.glob(".*")) and not restoring.is_unfinished(ground.home)
    work = ground.home.group("main").work / "a" / "page.txt"
    assert work.stat().st_mtime_ns == made.index.files["groups/main/work/a/page.txt"].mtime_ns


def test_a_home_comes_back_on_another_machine(ground: Ground, tmp_path: Path) -> None:
    ground.do("UPDATE grp SET taint = 0.2, authority = 'member' WHERE name = 'side'")
    before, made = trees(ground), ground.back_up()
    other = Ground.__new__(Ground)
    other.home, other.clock, other.number = Home(tmp_path / "other"), ground.clock, 0
    other.home.root.mkdir()
    assert put_back(other, made.archive).replaced is not None  # its empty folders
    assert trees(other) == before
    assert (other.group("side").authority.role, other.group("side").authority.taint) == ("member", 0.2)
    lines = (ground.home.state / "trust.jsonl").read_bytes()
    stamps = [list(TrustLedger(each.home.state / "trust.jsonl").read()) for each in (ground, other)]
    assert stamps[0] == stamps[1] and lines
    assert other.rows("SELECT * FROM cursor") == []


def test_a_group_comes_back_beside_others_whose_files_stay(ground: Ground) -> None:
    before, made = trees(ground), ground.back_up(group="side")
    spoil(ground)
    spoiled, ledger = trees(ground), ground.rows("SELECT * FROM session WHERE grp <> 'side'")
    done = put_back(ground, made.archive)
    after = trees(ground)
    for path in {*before, *spoiled, *after}:
        assert after.get(path) == (before if path.startswith("groups/side/") else spoiled).get(path), path
    assert done.group == "side" and done.replaced is not None and (done.replaced / "groups" / "side" / "work").is_dir()
    assert ground.rows("SELECT * FROM session WHERE grp <> 'side'") == ledger


def test_one_group_comes_out_of_a_homes_backup(ground: Ground) -> None:
    before, made = trees(ground), ground.back_up()
    spoil(ground)
    spoiled = trees(ground)
    put_back(ground, made.archive, group="side")
    after = trees(ground)
    for path in {*before, *spoiled, *after}:
        assert after.get(path) == (before if path.startswith("groups/side/") else spoiled).get(path), path
    with pytest.raises(NotFound, match="has no group"):
        put_back(ground, made.archive, group="nobody")
    with pytest.raises(UsageError, match="under its own name"):
        put_back(ground, ground.back_up(group="side").archive, group="main")


def test_a_group_moves_into_another_home_with_its_trust(ground: Ground, tmp_path: Path) -> None:
    def prepare(ledger: object) -> None:
        ledger.tx(lambda tx: groups.fall(tx, "side", "member", 0.2))  # type: ignore[attr-defined]
        ledger.tx(lambda tx: groups.distrust(tx, "terminal:side", 0.4))  # type: ignore[attr-defined]
        ledger.tx(lambda tx: contexts.of(tx, "terminal:side", NOW))  # type: ignore[attr-defined]
        ledger.tx(lambda tx: contexts.update(tx, "terminal:side", NOW, goal="the goal", window=77, confirm=5,  # type: ignore[attr-defined]
                                             gate="confirm", status="awaiting_confirm"))  # fmt: skip
        ledger.tx(lambda tx: contexts.pin(tx, "terminal:side", "constraints", "never push", turn=1, at=NOW,  # type: ignore[attr-defined]
                                          origin="owner", trust=1.0))  # fmt: skip
        ledger.tx(lambda tx: tx.insert("compaction", session="terminal:side", state="asked", cause="soft_compact",  # type: ignore[attr-defined]
                                       before=9, job=3, made=NOW))  # fmt: skip
        ledger.tx(lambda tx: tx.insert("authored", kind="schedule", grp="side", sha256="f" * 64, name="s", turn=2,  # type: ignore[attr-defined]
                                       authority="member", taint=0.2, made=NOW))  # fmt: skip

    with ground.ledger() as opened:
        prepare(opened)
    ground.stamp("side", "ep_q", "poison", op="quarantine", status="quarantined", trust=0.2)
    made = ground.back_up(group="side")
    other = ground.copied(tmp_path / "other")
    shutil.rmtree(other.home.group("side").root)
    for name in ("ledger.db", "ledger.db-wal", "trust.jsonl"):
        (other.home.state / name).unlink(missing_ok=True)
    with other.ledger() as opened:
        opened.tx(lambda tx: groups.add(tx, "main", NOW))
    put_back(other, made.archive)
    assert (other.group("side").authority.role, other.group("side").authority.taint) == ("member", 0.2)
    [session] = other.rows("SELECT * FROM session WHERE grp = 'side'")
    assert (session["id"], session["stem"], session["taint"]) == ("terminal:side", "terminal_side", 0.4)
    [context] = other.rows("SELECT * FROM context")
    assert (context["goal"], context["window"], context["gate"], context["confirm"], context["status"]) == (
        "the goal", 77, None, None, "running"
    )  # fmt: skip
    assert [row["text"] for row in other.rows("SELECT * FROM pinned")] == ["never push"]
    assert [row["state"] for row in other.rows("SELECT * FROM compaction")] == ["failed"]
    assert [row["taint"] for row in other.rows("SELECT * FROM authored")] == [0.2]
    last = list(TrustLedger(other.home.state / "trust.jsonl").read())[-1]
    assert (last.id, last.status) == ("ep_q", "quarantined")
    # A turn of this ledger is never taken for one whose blocks are in the file.
    most = max(int(str(row["seq"])) for row in ground.rows("SELECT seq FROM sqlite_sequence WHERE name = 'turn'"))
    with other.ledger() as opened:
        desk = Desk(opened)
        desk.count = 999
        assert desk.accept("hi", group="side").turn > most  # type: ignore[operator]


def test_trust_is_the_lower_of_both(ground: Ground) -> None:
    ground.do("UPDATE grp SET taint = 0.5 WHERE name = 'side'")
    stamp = ground.stamp("side", "ep_x", "text", trust=0.7)
    made, home = ground.back_up(group="side"), ground.back_up()
    ground.do("UPDATE grp SET taint = 0.2, authority = 'member' WHERE name = 'side'")
    ground.do("UPDATE grp SET taint = 0.4 WHERE name = 'main'")
    ground.do("UPDATE session SET taint = 0.3 WHERE id = 'terminal:side'")
    ground.stamp("side", "ep_x", "text", op="quarantine", status="quarantined", trust=0.2)
    for archive in (made.archive, home.archive):
        put_back(ground, archive)
        assert (ground.group("side").authority.role, ground.group("side").authority.taint) == ("member", 0.2)
        assert ground.group("main").authority.taint == 0.4
        assert ground.rows("SELECT taint FROM session WHERE id = 'terminal:side'") == [{"taint": 0.3}]
        last = [each for each in TrustLedger(ground.home.state / "trust.jsonl").read() if each.id == "ep_x"][-1]
        assert last.status == "quarantined" and last.sha256 == stamp.sha256
    ground.do("UPDATE grp SET taint = 1.0, authority = 'owner' WHERE name = 'side'")  # `groups trust`, since
    put_back(ground, made.archive)
    assert ground.group("side").authority.taint == 0.5


def test_what_came_into_a_file_while_it_was_copied_is_no_more_trusted_than_it_was(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger was copied before: what it says at the end counts as well."""
    from clawd.backups import contents

    walk = contents.of_home

    def meanwhile(home: Home) -> contents.Found:
        ground.do("UPDATE grp SET taint = 0.2 WHERE name = 'side'")
        ground.do("UPDATE session SET taint = 0.2 WHERE id = 'terminal:side'")
        ground.do("INSERT INTO authored VALUES ('schedule', 'side', 'f', 's', 1, 'member', 0.2, ?)", NOW)
        with ground.ledger() as ledger:
            ground.talk(ledger, "side", say="late", recorded=False)
        ground.stamp("side", "ep_late", "late", trust=0.2)
        return walk(home)

    monkeypatch.setattr(contents, "of_home", meanwhile)
    made = ground.back_up()
    monkeypatch.undo()
    most = ground.rows("SELECT seq FROM sqlite_sequence WHERE name = 'turn'")[0]["seq"]
    ground.home.ledger_file.unlink()
    (ground.home.state / "trust.jsonl").unlink()
    put_back(ground, made.archive)
    assert ground.group("side").authority.taint == 0.2
    assert ground.rows("SELECT taint FROM session WHERE id = 'terminal:side'") == [{"taint": 0.2}]
    assert ground.rows("SELECT authority FROM authored") == [{"authority": "member"}]
    assert [each.trust for each in TrustLedger(ground.home.state / "trust.jsonl").read() if each.id == "ep_late"] == [
        0.2
    ]
    assert ground.rows("SELECT seq FROM sqlite_sequence WHERE name = 'turn'")[0]["seq"] == most


def test_nothing_that_was_open_is_done_again(ground: Ground) -> None:
    with ground.ledger() as ledger:
        written = ground.talk(ledger, "main", say="its blocks are written", recorded=False)
        desk = Desk(ledger)
        desk.count = 500
        waiting = desk.accept("waits")
        held = desk.accept("is held", held="rate")
        desk.accept("another", group="side")
        ledger.tx(lambda tx: tx.execute("UPDATE delivery SET state = 'pending' WHERE turn = ?", written))
        ledger.tx(lambda tx: tx.execute("INSERT INTO cursor VALUES ('telegram', '7', ?)", NOW))
    made = ground.back_up()
    with ground.ledger() as ledger:
        ledger.tx(lambda tx: ends.recorded(tx, written, NOW))
        ledger.tx(lambda tx: tx.execute("UPDATE cursor SET value = '9'"))
        ground.talk(ledger, "side", say="came since", id="came-since")
    done = put_back(ground, made.archive)
    states = {row["seq"]: row["state"] for row in ground.rows("SELECT seq, state FROM inbound")}
    assert states[waiting.seq] == states[held.seq] == "failed" and "received" not in states.values()
    turns = {row["id"]: row for row in ground.rows("SELECT * FROM turn")}
    assert turns[written]["recorded_at"] is not None and turns[written]["state"] == "answered"
    assert {row["state"] for row in turns.values()} == {"answered", "failed"}
    assert ground.rows("SELECT state FROM delivery WHERE state NOT IN ('sent', 'cancelled')") == []
    assert ground.rows("SELECT value FROM cursor") == [{"value": "9"}]  # not where the backup had it
    assert {"state": "recorded", "parts": "[]"} in ground.rows(
        "SELECT state, parts FROM inbound WHERE platform_id = 'came-since'"
    )
    said = " ".join(done.notes)
    assert "3 messages had no answer yet" in said and "clawd messages retry" in said and "not sent again" in said
    assert "1 messages came in since" in said
    with ground.ledger() as ledger:  # the platform says it once more
        desk = Desk(ledger)
        again = desk.accept("came since", group="side", id="came-since")
        assert again.duplicate if hasattr(again, "duplicate") else again.turn is None
        ledger.tx(lambda tx: ends.retry(tx, waiting.seq, NOW))  # a person's own word
    assert ground.rows("SELECT state FROM inbound WHERE seq = ?", waiting.seq) == [{"state": "received"}]


def test_sessions_that_began_since_give_way_to_those_that_were_restored(ground: Ground) -> None:
    made = ground.back_up(group="side")
    with ground.ledger() as ledger:
        newer = ledger.tx(lambda tx: groups.next_segment(tx, "terminal:side", NOW))
        (ground.home.group("side").sessions / f"{newer.stem}.md").write_text(f"# Session: {newer.id}\n\n")
        ledger.tx(lambda tx: groups.open_session(tx, "telegram:7", "side", NOW))
        ledger.tx(lambda tx: contexts.of(tx, newer.id, NOW))
    done = put_back(ground, made.archive)
    assert "2 sessions began after the backup" in " ".join(done.notes)
    with ground.ledger() as ledger:
        now = ledger.tx(lambda tx: groups.session(tx, "terminal:side"))
        assert now is not None and now.id == "terminal:side"
        assert ledger.tx(lambda tx: groups.next_segment(tx, "terminal:side", NOW)).id == "terminal:side.3"
        assert ledger.tx(lambda tx: contexts.find(tx, newer.id)) is None
    put_back(ground, made.archive)  # and again


def test_an_id_of_another_group_is_refused(ground: Ground) -> None:
    made = ground.back_up(group="side")
    ground.do("DELETE FROM turn_wake")
    for table in ("step", "effect", "delivery", "wake", "inbound", "turn"):
        ground.do(f"DELETE FROM {table}")
    ground.do("UPDATE session SET grp = 'main' WHERE id = 'terminal:side'")
    before = hashes(ground.home.root)
    with pytest.raises(Refused, match=r"'terminal:side' of the backup belongs to group 'main' now"):
        put_back(ground, made.archive)
    after = hashes(ground.home.root)
    assert {path: each for path, each in after.items() if not path.startswith("state/")} == {
        path: each for path, each in before.items() if not path.startswith("state/")
    }
    assert not restoring.is_unfinished(ground.home) and not list(ground.home.backups.glob(".*"))


def test_a_newer_schema_is_refused_and_an_older_one_is_brought_up(ground: Ground) -> None:
    made, group = ground.back_up(), ground.back_up(group="side")
    assert made.index.head.ledger == schema_version()
    ground.do("PRAGMA user_version = 9999")
    newer = _raw_back_up(ground)
    with pytest.raises(Refused, match="9999"):
        put_back(ground, newer)
    _set_version(ground, schema_version())
    put_back(ground, group.archive)
    # A ledger of the version before the last one.
    from clawd.ledger import db

    old = ground.home.root.parent / "old.db"
    files = sorted(db._MIGRATIONS.glob("*.sql"))[:-1]
    import sqlite3

    with sqlite3.connect(old) as connection:
        for file in files:
            connection.executescript(file.read_text("utf-8"))
        connection.execute(f"PRAGMA user_version = {int(files[-1].stem)}")
        connection.execute("INSERT INTO grp VALUES ('main', 'main', 1, 'member', 0.2, ?, 0)", (NOW,))
    connection.close()
    ground.home.ledger_file.unlink()
    old.rename(ground.home.ledger_file)
    older = _raw_back_up(ground)
    put_back(ground, older)
    assert ground.rows("PRAGMA user_version") == [{"user_version": schema_version()}]
    assert ground.group("main").authority.taint == 0.2


def _raw_back_up(ground: Ground) -> Path:
    """A backup with the ledger as it lies there, whatever its schema."""
    from clawd.backups import making

    (ground.home.state / "ledger.db-wal").unlink(missing_ok=True)
    snapshot = making._snapshot
    known = making._known

    def plain(home: Home, scratch: Path, group: str | None) -> object:
        (scratch / "ledger.db").write_bytes(home.ledger_file.read_bytes())
        return scratch / "ledger.db", {}

    making._snapshot, making._known = plain, lambda home, group: b"{}"  # type: ignore[assignment]
    try:
        return ground.back_up().archive
    finally:
        making._snapshot, making._known = snapshot, known


def _set_version(ground: Ground, version: int) -> None:
    import sqlite3

    connection = sqlite3.connect(ground.home.ledger_file)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()


def test_a_ledger_that_acts_by_itself_is_refused(ground: Ground) -> None:
    ground.do("CREATE TRIGGER t AFTER UPDATE ON grp BEGIN UPDATE grp SET taint = 1.0; END")
    archive = _raw_back_up(ground)
    with pytest.raises(Refused, match="not one of clawd's"):
        put_back(ground, archive)


def test_a_present_ledger_that_is_damaged_keeps_nobody_from_a_restore(ground: Ground) -> None:
    ground.do("INSERT INTO cursor VALUES ('telegram', '7', ?)", NOW)
    made = ground.back_up()
    (ground.home.state / "ledger.db-wal").unlink(missing_ok=True)
    ground.home.ledger_file.write_bytes(b"no ledger" * 1000)
    done = put_back(ground, made.archive)
    assert "cannot be read" in " ".join(done.notes) and ground.rows("SELECT * FROM cursor") == []
    assert ground.group("side").name == "side"
    assert done.replaced is not None and (done.replaced / "state" / "ledger.db").read_bytes().startswith(b"no ledger")


def test_nothing_is_put_back_while_somebody_holds_the_home(ground: Ground) -> None:
    made = ground.back_up()
    lock = HomeLock(ground.home.lock_file)
    lock.acquire()
    before = trees(ground)
    with pytest.raises(HomeBusy):
        put_back(ground, made.archive)
    assert trees(ground) == before
    lock.release()


def test_people_who_may_speak_again_are_said(ground: Ground) -> None:
    made = ground.back_up()
    ground.home.people_file.write_text("schema = 1\n")
    assert "clawd people list" in " ".join(put_back(ground, made.archive).notes)
    assert "clawd people list" not in " ".join(put_back(ground, made.archive).notes)


POINTS = ["restore-staged", "restore-decided", "restore-trust", "restore-ledger", "restore-between", "restore-moved",
          "restore-moved:3", "restore-swapped"]  # fmt: skip


@pytest.mark.parametrize("group", [None, "side"])
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_leaves_the_old_or_the_new(ground: Ground, point: str, group: str | None) -> None:
    """And the next command makes it whole. What follows a kill is a process of its own for one of them, below."""
    before = trees(ground)
    made = ground.back_up(group=group)
    ground.stamp("side", "ep_side", "memory of side", op="quarantine", status="quarantined", trust=0.1)
    spoil(ground)
    spoiled = trees(ground)
    faults.load(f"raise@{point}")
    if (point, group) == ("restore-moved:3", "side"):  # a group is moved at once
        put_back(ground, made.archive)
    else:
        with pytest.raises(InjectedFault):
            put_back(ground, made.archive)
    faults.load(None)
    ground.home.create()  # as any program does that begins
    restoring.finish_alone(ground.home)
    after = trees(ground)
    wanted = {
        path: (before if group is None or path.startswith("groups/side/") else spoiled).get(path)
        for path in {*before, *spoiled}
    }
    new = {path: each for path, each in wanted.items() if each is not None}
    assert after == (spoiled if point == "restore-staged" else new)
    assert not restoring.is_unfinished(ground.home)
    stamps = [each for each in TrustLedger(ground.home.state / "trust.jsonl").read() if each.id == "ep_side"]
    assert stamps[-1].status == "quarantined" and len(stamps) <= 3
    with ground.ledger() as ledger:
        assert ledger.tx(lambda tx: tx.one("PRAGMA integrity_check"))[0] == "ok"  # type: ignore[index]
        assert ledger.tx(lambda tx: tx.all("PRAGMA foreign_key_check")) == []
    put_back(ground, made.archive)  # nothing is left in its way
    assert not list(ground.home.backups.glob(".*"))


@pytest.mark.parametrize("point", ["restore-staged", "restore-moved:2"])
def test_the_command_after_a_kill_finishes_it(ground: Ground, point: str, capsys: pytest.CaptureFixture[str]) -> None:
    before, made = trees(ground), ground.back_up()
    spoil(ground)
    spoiled = trees(ground)
    command = [
        sys.executable,
        "-m",
        "clawd",
        "--home",
        str(ground.home.root),
        "backup",
        "restore",
        made.archive,
        "--yes",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CLAWD_FAULT": f"kill@{point}"}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert run(["--home", str(ground.home.root), "groups", "list", "--json"]) == 0
    assert trees(ground) == (spoiled if point == "restore-staged" else before)
    names = {row["group"] for row in json.loads(capsys.readouterr().out)}
    assert ("newer" in names) == (point == "restore-staged") and {"main", "side"} <= names


def test_no_file_of_a_group_is_anothers(ground: Ground, tmp_path: Path) -> None:
    """Rows that name another group, in an archive that somebody changed."""
    made = ground.back_up(group="side")
    for change in (
        lambda rows: rows["grp"][0].update(name="main"),
        lambda rows: rows["session"][0].update(grp="main"),
        lambda rows: rows["session"][0].update(stem="../../main/sessions/terminal_main"),
        lambda rows: rows["session"][0].update(id="job:1"),
        lambda rows: rows["grp"][0].update(taint=2.0),
        lambda rows: rows["grp"][0].update(authority="king"),
    ):
        into = tmp_path / os.urandom(4).hex()
        into.mkdir()
        reading.extract(made.archive, into, lambda path: path.startswith("state/"), lambda done, total: None)
        from clawd.ledger import moved

        with (into / "state" / "ledger.jsonl").open("rb") as file:
            rows = moved.read(file, "side")
        change(rows)
        text = "".join(json.dumps({"table": table, "row": row}) + "\n" for table, each in rows.items() for row in each)
        (into / "state" / "ledger.jsonl").write_text(text)
        with (into / "state" / "ledger.jsonl").open("rb") as file, pytest.raises(Refused):
            moved.read(file, "side")


def test_the_stamp_of_a_group_is_of_that_group_alone(ground: Ground) -> None:
    """A line of another group in a group's archive is not taken in."""
    from clawd.backups import settling

    new = ground.home.root.parent / "new"
    (new / "state").mkdir(parents=True)
    stamp = ground.stamp("side", "ep_y", "text")
    lines = [replace(stamp, group="main", trust=1.0), replace(stamp, id="ep_z")]
    TrustLedger(new / "state" / "trust.jsonl").append(*lines)
    assert settling.trust_lines(ground.home, new, "side", new / "out") == 1
    assert '"ep_z"' in (new / "out").read_text()


def test_a_restore_whose_tree_was_taken_away_says_what_to_do(ground: Ground) -> None:
    archive = ground.back_up().archive
    faults.load("raise@restore-moved:2")
    with pytest.raises(InjectedFault):
        put_back(ground, archive)
    faults.load(None)
    shutil.rmtree(next(ground.home.backups.glob(".restoring-*")))
    with pytest.raises(Refused, match="taken away") as told:
        restoring.finish_alone(ground.home)
    assert "replaced-20261201T090000Z" in str(told.value.hint) and restoring.is_unfinished(ground.home)
