"""What was seen and what changed since: whatever happens in between, each change is told once, as what it came to."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clawd.ledger import groups, seen
from clawd.ledger.db import Ledger
from clawd.ledger.seen import Stat
from clawd.wakes.tree import Found, Piece, compare, event_of
from tests.ledger.conftest import NOW

RULE = ("main", "r")
PATHS = st.sampled_from([b"work/a", b"work/a.b", b"work/a/b", b"work/\xff", b"work/z"])
ALL = (b"work/", b"work0")


class Rows(RuleBasedStateMachine):
    """A tree of contents, what of it was told, and what only the group itself changed; against the ledger's rows."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile
        from pathlib import Path

        self.directory = tempfile.TemporaryDirectory()
        self.ledger = Ledger.open(Path(self.directory.name) / "ledger.db")
        self.ledger.tx(lambda tx: (groups.add(tx, "main", NOW), seen.begin(tx, RULE)))
        self.tree: dict[bytes, tuple[Stat, bytes]] = {}
        self.known: dict[bytes, bytes] = {}
        self.foreign: set[bytes] = set()
        self.ticks = 0

    def teardown(self) -> None:
        self.ledger.close()
        self.directory.cleanup()

    @rule(path=PATHS, content=st.sampled_from([b"1", b"22"]), own=st.booleans())
    def write(self, path: bytes, content: bytes, own: bool) -> None:
        self.ticks += 1
        self.tree[path] = Stat(len(content), self.ticks, 1), content
        self._look(path, own)

    @rule(path=PATHS, own=st.booleans())
    def delete(self, path: bytes, own: bool) -> None:
        if self.tree.pop(path, None) is None:
            own = True  # whoever finds nothing to delete has done nothing
        self._look(path, own)

    def _look(self, path: bytes, own: bool) -> None:
        """As a hit does, at this one path; then as a renewal does, at everything."""
        if self.tree.get(path, (None, None))[1] == self.known.get(path):
            self.foreign.discard(path)  # what they did is undone: nothing of it is left to be told
        elif not own:
            self.foreign.add(path)
        self._compare(path, path + b"\0", own)
        self._compare(*ALL, False)

    def _compare(self, low: bytes, high: bytes, own: bool) -> None:
        found = {path: Found(stat, 0, 0.0) for path, (stat, _) in sorted(self.tree.items()) if low <= path < high}

        def note(tx: seen.Transaction) -> None:
            for each in compare(Piece(low, high, found), seen.between(tx, RULE, low, high, 100), lambda *_: own):
                if each.like_seen:
                    seen.same(tx, RULE, each.path)
                else:
                    seen.differs(tx, RULE, each.path, each.now, 0.0, each.own)

        self.ledger.tx(note)

    @rule()
    def tell(self) -> None:
        def told(tx: seen.Transaction) -> dict[bytes, str]:
            for row in seen.unread(tx, RULE, b"", 100):
                stat, content = self.tree.get(row.path, (None, None))
                assert row.now == stat
                event = event_of(row, content)
                if event is None or row.own:
                    seen.keep(tx, RULE, row.path, stat, content)
                else:
                    seen.read(tx, RULE, row.path, event, content)
            changes = seen.waiting(tx, RULE, 100)
            assert sum(changes.counts.values()) == len(changes.first)
            assert seen.is_waiting(tx, RULE, *ALL) is bool(changes.first)
            seen.told(tx, RULE)
            return {path: event for path, event, _ in changes.first}

        events = self.ledger.tx(told)
        now = {path: content for path, (_, content) in self.tree.items()}
        differ = {path for path in now.keys() | self.known.keys() if now.get(path) != self.known.get(path)}
        assert set(events) <= differ, "what is as it was told is no news"
        assert events.keys() >= differ & self.foreign, "nothing of others' is lost"
        for path, event in events.items():
            expected = "added" if path not in self.known else "deleted" if path not in now else "modified"
            assert event == expected
        self.known, self.foreign = now, set()
        assert self.ledger.tx(lambda tx: tx.one("SELECT COUNT(*) AS n FROM changed"))["n"] == 0  # type: ignore[index]

    @invariant()
    def rows_are_in_order(self) -> None:
        rows = self.ledger.tx(lambda tx: seen.between(tx, RULE, *ALL, 100))
        assert [row.path for row in rows] == sorted(row.path for row in rows)
        assert all(row.seen != row.now for row in rows if row.changed)


Rows.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestRows = Rows.TestCase


def test_a_rule_that_is_removed_and_made_again_never_has_an_old_number(ledger: Ledger) -> None:
    def one(tx: seen.Transaction) -> int:
        seen.begin(tx, RULE)
        seen.differs(tx, RULE, b"work/a", Stat(1, 1, 1), 0.0, False)
        seen.keep(tx, RULE, b"work/b", Stat(1, 1, 1), None)
        number = seen.told(tx, RULE)
        tx.insert("wake", kind="file", key=f"k{number}", authority="owner", trust=1.0, origin="owner", state="pending")
        return number

    first = ledger.tx(one)
    assert ledger.tx(one) == first + 1
    while not ledger.tx(lambda tx: seen.forget(tx, RULE)):
        pass
    assert ledger.tx(seen.rules) == []
    assert ledger.tx(lambda tx: seen.between(tx, RULE, *ALL, 9)) == []
    assert ledger.tx(one) > first + 1
