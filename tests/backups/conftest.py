"""A home with two groups: sessions, memories, a schedule, an agent's work, and a ledger that knows of all of it."""

from __future__ import annotations

import copy
import hashlib
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clawd import faults
from clawd.backups import making
from clawd.backups.making import Made
from clawd.channel import ChannelLimits
from clawd.clock import TurnedClock
from clawd.config.begin import ensure_group, init_home
from clawd.config.home import Home
from clawd.ledger import ends, groups, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.memory.provenance import Stamp, TrustLedger
from clawd.memory.text import digest
from clawd.model import Block, Final, Lease
from clawd.sessions.file import SessionFile
from clawd.trust import Origin
from tests.ledger.conftest import NOW, Desk

MOMENT = datetime(2026, 12, 1, 9, tzinfo=UTC)


class Ground:
    """A home as a daemon left it."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.clock = TurnedClock(MOMENT)
        init_home(self.home)
        ensure_group(self.home, "side")
        self.number = 0
        with self.ledger() as ledger:
            desk = Desk(ledger)
            for name in ("main", "side"):
                desk.run(f"run-{name}", name)
                self.talk(ledger, name)
        for name in ("main", "side"):
            group = self.home.group(name)
            (group.work / "a").mkdir()
            (group.work / "a" / "page.txt").write_text(f"work of {name}")
            (group.work / "a" / "run.sh").write_text("true")
            (group.work / "a" / "run.sh").chmod(0o750)
            (group.work / "empty").mkdir()
            (group.work / "notes").symlink_to("/etc/passwd")
            self.stamp(name, f"ep_{name}", f"memory of {name}")
        (self.home.blobs / ("0" * 64)).write_bytes(b"blob")

    def copied(self, to: Path) -> Ground:
        """The same home somewhere else."""
        shutil.copytree(self.home.root, to, symlinks=True)
        other = copy.copy(self)
        other.home, other.clock = Home(to), TurnedClock(MOMENT)
        return other

    def ledger(self) -> _Opened:
        return _Opened(self.home)

    def talk(self, ledger: Ledger, group: str, *, say: str = "", recorded: bool = True, id: str | None = None) -> int:
        """A message, its answer and its blocks; gives the turn."""
        self.number += 1
        say = say or f"message {self.number}"
        desk = Desk(ledger)
        desk.count = self.number * 100
        desk.accept(say, group=group, id=id)

        def work(tx: Transaction) -> int:
            claim = turns.claim(tx, f"run-{group}", group, 0, NOW)
            assert claim is not None
            lease = Lease(f"run-{group}", claim.turn["id"], 1, 0)
            ends.answer(tx, lease, Final(f"answer to {say}"), [], NOW, limits=ChannelLimits())
            for row in tx.all("SELECT id FROM delivery WHERE state = 'pending'"):
                tx.move("delivery", row["id"], "send")
                tx.move("delivery", row["id"], "arrive")
            return int(lease.turn)

        turn = ledger.tx(work)
        self.write(group, turn, say)
        if recorded:
            ledger.tx(lambda tx: ends.recorded(tx, turn, NOW))
        return turn

    def write(self, group: str, turn: int, say: str) -> None:
        id = f"terminal:{group}"
        file = SessionFile(self.home.group(group).sessions / f"terminal_{group}.md", id)
        file.append([Block("user", say, MOMENT), Block("assistant", f"answer to {say}", MOMENT)], turn)

    def stamp(self, group: str, id: str, text: str, **values: object) -> Stamp:
        """A memory's line in the trust ledger."""
        known: dict[str, object] = {"op": "write", "trust": 0.7, "taint": 1.0, "status": "active"}
        stamp = Stamp(
            str(values.pop("ts", "2026-12-01T09:00:00+00:00")), group, id, sha256=digest(text), origin=Origin.AGENT,
            **known | values,  # type: ignore[arg-type]
        )  # fmt: skip
        TrustLedger(self.home.state / "trust.jsonl").append(stamp)
        return stamp

    def back_up(self, **options: object) -> Made:
        return making.create(self.home, self.clock, **options)  # type: ignore[arg-type]

    def rows(self, sql: str, *values: object) -> list[dict[str, object]]:
        with self.ledger() as ledger:
            return [dict(row) for row in ledger.tx(lambda tx: tx.all(sql, *values))]

    def do(self, sql: str, *values: object) -> None:
        with self.ledger() as ledger:
            ledger.tx(lambda tx: tx.execute(sql, *values))

    def group(self, name: str) -> groups.GroupRow:
        with self.ledger() as ledger:
            return ledger.tx(lambda tx: groups.get(tx, name))


class _Opened:
    def __init__(self, home: Home) -> None:
        self._home = home

    def __enter__(self) -> Ledger:
        self._ledger = Ledger.open(self._home.ledger_file)
        return self._ledger

    def __exit__(self, *_: object) -> None:
        self._ledger.close()


def hashes(root: Path, *without: str) -> dict[str, tuple[str, int]]:
    """Every regular file beneath a directory: (sha256, mode); links are named as such."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.startswith(without):
            continue
        if path.is_symlink():
            found[name] = (f"-> {path.readlink()}", 0)
        elif path.is_file():
            found[name] = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mode & 0o777)
        elif path.is_dir():
            found[f"{name}/"] = ("", path.stat().st_mode & 0o777)
    return found


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    return Ground(tmp_path_factory.mktemp("template") / "home")


@pytest.fixture
def ground(tmp_path: Path, template: Ground) -> Ground:
    return template.copied(tmp_path / "home")


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    faults.load(None)
