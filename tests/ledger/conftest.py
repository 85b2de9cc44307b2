from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clawd.ledger import groups, inbound, runs
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.inbound import Accepted
from clawd.model import Authority, Incoming, Part
from clawd.trust import Role, origin_of

NOW = "2026-12-01T09:00:00.000+00:00"


class Desk:
    """Short names for what the tests do all the time."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.count = 0

    def accept(
        self, text: str = "hi", *, group: str = "main", session: str | None = None, role: Role = Role.OWNER,
        id: str | None = None, held: str | None = None, kind: str = "message", thread: str = "", **choice: str,
    ) -> Accepted:  # fmt: skip
        self.count += 1
        incoming = Incoming(
            "terminal",
            group,
            id or f"p{self.count}",
            str(role),
            (text,),
            datetime.now(UTC),
            kind=kind,  # type: ignore[arg-type]
            thread=thread,
            choice=choice,
        )

        def work(tx: Transaction) -> Accepted:
            groups.add(tx, group, NOW)
            opened = groups.open_session(tx, session or f"terminal:{group}", group, NOW)
            parts = [Part("typed", origin_of(role), text)]
            return inbound.accept(
                tx, incoming, group=group, session=opened.id, role=role, parts=parts, now=NOW, held=held
            )

        return self.ledger.tx(work)

    def run(self, run: str, group: str = "main") -> None:
        def work(tx: Transaction) -> None:
            groups.add(tx, group, NOW)
            authority = Authority(Role.OWNER)
            runs.begin(
                tx, run, group, backend="bubblewrap", directory="/nowhere", uid=None,
                authority=authority, now=NOW,
            )  # fmt: skip
            runs.ready(tx, run, token_hash="", pid=1, start=1, parallel=4)

        self.ledger.tx(work)

    def state(self, table: str, id: int) -> str:
        key = "seq" if table == "inbound" else "id"
        row = self.ledger.tx(lambda tx: tx.one(f"SELECT state FROM {table} WHERE {key} = ?", id))
        assert row is not None
        return str(row["state"])


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger.open(tmp_path / "ledger.db")
    yield ledger
    ledger.close()


@pytest.fixture
def desk(ledger: Ledger) -> Desk:
    return Desk(ledger)
