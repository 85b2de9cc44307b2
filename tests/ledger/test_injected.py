"""What comes into sessions from outside: put in order, known again, whole before it is written, and gone after that."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.clock import moment_of
from clawd.errors import UsageError
from clawd.ledger import forget, groups, injected, turns
from clawd.ledger.db import Ledger
from clawd.ledger.forget import Terms
from clawd.ledger.injected import NO_RESULT, Accepted, arranged, closed, unanswered
from tests.ledger.conftest import NOW, Desk

SESSION = "mmkr:agent-1"


def pieces(text: str) -> list[dict[str, Any]]:
    """`u` and `a` are a person's and an assistant's words, `c1,2` an assistant with calls, `r1` a result."""
    made: list[dict[str, Any]] = []
    for word in text.split():
        block: dict[str, Any] = {"key": "k", "at": NOW, "content": word}
        if word[0] == "r":
            block |= {"role": "tool", "tool_call_id": word[1:]}
        elif word[0] == "c":
            calls = [{"id": id, "name": "look", "arguments": "{}"} for id in word[1:].split(",")]
            block |= {"role": "assistant", "tool_calls": calls}
        else:
            block |= {"role": "user" if word[0] == "u" else "assistant"}
        made.append(block)
    return made


def words(blocks: Any) -> str:
    """The other way; a result that nobody gave is `-1`."""
    return " ".join(
        f"-{block['tool_call_id']}" if block["content"] == NO_RESULT else block["content"] for block in blocks
    )


@pytest.mark.parametrize(
    ("waiting", "piece", "results", "own", "waits"),
    [
        ("", "u a", "", "u a", ""),
        ("", "u c1 r1 a", "", "u c1 r1 a", ""),
        ("", "c1", "", "c1", "1"),
        ("", "c1,2 r2", "", "c1,2 r2", "1"),
        ("", "c1 c2 r1 r2", "", "c1 r1 c2 r2", ""),  # a result is moved to its call
        ("", "c1 u r1", "", "c1 r1 u", ""),
        ("", "c1 c1 r1 r1", "", "c1 r1 c1 r1", ""),  # the same id twice, as some programs give it
        ("", "c1 u", "", "c1 -1 u", ""),  # what it goes on after had no result
        ("", "c1,2 r2 u c3", "", "c1,2 -1 r2 u c3", "3"),
        ("1", "r1", "r1", "", ""),
        ("1 2", "r2", "r2", "", ""),
        ("1 2", "r2 r1 a", "r2 r1", "a", ""),
        ("1", "u", "", "u", ""),
        ("1", "r1 c1", "r1", "c1", "1"),
        ("1", "c1 r1", "", "c1 r1", ""),  # the nearer call is meant
    ],
)
def test_a_piece_is_put_in_order(waiting: str, piece: str, results: str, own: str, waits: str) -> None:
    done = arranged(waiting.split(), pieces(piece), SESSION)
    assert (words(done.results), words(done.own), " ".join(done.waits)) == (results, own, waits)
    assert unanswered(done.own) == done.waits and not unanswered(closed(done.own))


@pytest.mark.parametrize(
    ("waiting", "piece"), [("", "r1"), ("", "r1 c1"), ("1", "u r1"), ("1", "r1 r1"), ("", "c1 r1 r1"), ("1", "r2")]
)
def test_a_result_without_its_call_is_none(waiting: str, piece: str) -> None:
    with pytest.raises(UsageError, match="no call"):
        arranged(waiting.split(), pieces(piece), SESSION)


class Outside:
    """Puts pieces into a session, and writes down what is whole."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.file: list[dict[str, Any]] = []
        ledger.tx(lambda tx: groups.add(tx, "main", NOW))

    def put(self, piece: str, key: str | None = None, session: str = SESSION) -> Accepted:
        return self.ledger.tx(lambda tx: injected.accept(tx, session, "main", pieces(piece), key, NOW))

    def write(self) -> str:
        """What is in the file then."""
        while (due := self.ledger.tx(lambda tx: injected.unwritten(tx, SESSION))) is not None:
            self.file += due.blocks
            self.ledger.tx(lambda tx, due=due: injected.recorded(tx, due.pieces))  # type: ignore[misc]
        return words(self.file)

    def rows(self) -> list[tuple[str, str, str]]:
        """(key, state, words) of each row."""
        rows = self.ledger.tx(lambda tx: tx.all("SELECT * FROM injected ORDER BY id"))
        return [(row["key"], row["state"], words(injected.json.loads(row["blocks"]))) for row in rows]

    def taint(self, session: str = SESSION) -> float:
        row = self.ledger.tx(lambda tx: tx.one("SELECT taint FROM session WHERE id = ?", session))
        assert row is not None
        return float(row["taint"])


@pytest.fixture
def outside(ledger: Ledger) -> Outside:
    return Outside(ledger)


def test_calls_wait_for_their_results(outside: Outside) -> None:
    assert outside.put("u c1,2", "a").waits == ["1", "2"] and outside.write() == ""
    assert outside.put("r2", "b").waits == ["1"] and outside.write() == ""
    assert outside.put("u c1,2", "a") == Accepted(SESSION, "a", ["1"], known=True)
    assert outside.put("r2", "b") == Accepted(SESSION, "b", ["1"], known=True)
    assert outside.rows() == [("a", "open", "u c1,2 r2"), ("b", "open", "")]
    with pytest.raises(UsageError):
        outside.put("r2")
    assert outside.put("r1", "c").waits == []
    assert outside.write() == "u c1,2 r2 r1"
    assert outside.rows() == [(key, "recorded", "") for key in "abc"]
    assert outside.put("r1", "c") == Accepted(SESSION, "c", [], known=True) and outside.write() == "u c1,2 r2 r1"
    assert [each["n"] for each in outside.file] == ["1/4", "2/4", "3/4", "4/4"]


def test_whatever_else_comes_closes_them(outside: Outside) -> None:
    outside.put("c1,2")
    outside.put("r1 a c3")
    assert outside.write() == "c1,2 r1 -2"
    outside.put("u")
    assert outside.write() == "c1,2 r1 -2 a c3 -3 u"


def test_results_that_nobody_brings_are_given_up(outside: Outside) -> None:
    outside.put("c1")
    assert outside.ledger.tx(lambda tx: injected.close(tx, NOW)) == []
    assert outside.ledger.tx(lambda tx: injected.close(tx, "2027")) == [SESSION]
    assert outside.ledger.tx(injected.sessions) == [SESSION] and outside.write() == "c1 -1"


def test_a_key_is_a_session_s_own_and_holds_over_its_segments(outside: Outside) -> None:
    assert not outside.put("u", "a").known and outside.put("a", "a").known
    assert not outside.put("u", "a", "mmkr:other").known
    outside.ledger.tx(lambda tx: groups.next_segment(tx, SESSION, NOW))
    assert outside.put("u", "a") == Accepted(SESSION, "a", [], known=True)
    assert outside.put("u").session == f"{SESSION}.2" and outside.put("u").key != outside.put("u").key


def test_an_id_belongs_to_one_group_and_jobs_to_none(outside: Outside) -> None:
    outside.ledger.tx(lambda tx: groups.add(tx, "other", NOW))
    outside.put("u")
    for session, group in ((SESSION, "other"), ("job:1", "main")):
        with pytest.raises(UsageError):
            outside.ledger.tx(lambda tx, s=session, g=group: injected.accept(tx, s, g, pieces("u"), None, NOW))  # type: ignore[misc]
    assert len(outside.rows()) == 1


OPS = st.lists(
    st.tuples(
        st.sampled_from(["u", "a", "c1", "c1,2", "r1", "r2", "r2 r1", "c1 r1", "r1 u", "u c2", "write", "r1 c2 u"]),
        st.sampled_from([None, None, "x", "y", "z"]),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(OPS)
def test_whatever_comes_calls_and_results_lie_side_by_side(
    tmp_path_factory: pytest.TempPathFactory, ops: list[tuple[str, str | None]]
) -> None:
    ledger = Ledger.open(tmp_path_factory.mktemp("l") / "ledger.db")
    try:
        outside, accepted, keys = Outside(ledger), list[str](), set[str]()
        for piece, key in ops:
            if piece == "write":
                outside.write()
                continue
            try:
                done = outside.put(piece, key)
            except UsageError:
                continue
            assert done.known == (key in keys)
            keys |= {key} if key else set()
            accepted += [] if done.known else piece.split()
        outside.put("u")
        file = outside.write().split()
        assert sorted(word for word in file if word[0] != "-") == sorted([*accepted, "u"])
        others = [word for word in file if word[0] in "uac"]
        assert others == [word for word in [*accepted, "u"] if word[0] in "uac"]
        for at, word in enumerate(file):
            if word[0] == "c":
                wanted = word[1:].split(",")
                assert sorted(each[1:] for each in file[at + 1 : at + 1 + len(wanted)]) == sorted(wanted)
        assert {state for _, state, _ in outside.rows()} == {"recorded"}
        assert not outside.ledger.tx(lambda tx: tx.all("SELECT * FROM injected WHERE blocks <> '[]'"))
    finally:
        ledger.close()


def test_a_session_is_trusted_no_more_than_what_came_into_it(desk: Desk) -> None:
    outside = Outside(desk.ledger)
    desk.run("r")
    outside.put("u", session="terminal:main")
    desk.accept("hello")
    desk.accept("hello", session="terminal:aside")

    def claimed() -> float:
        claim = desk.ledger.tx(lambda tx: turns.claim(tx, "r", "main", 0, NOW))
        assert claim is not None
        return claim.taint

    desk.ledger.tx(lambda tx: groups.lift(tx, "main"))  # a fresh work/ does not make its words others'
    assert outside.taint("terminal:main") == 0.2 and claimed() == 0.2
    desk.ledger.tx(lambda tx: groups.lift(tx, "main", sessions=True))
    assert outside.taint("terminal:main") == 1.0


def test_who_is_handed_a_turn_again_sees_what_came_meanwhile(desk: Desk) -> None:
    desk.run("r")
    desk.accept("hello")
    claim = desk.ledger.tx(lambda tx: turns.claim(tx, "r", "main", 0, NOW))
    assert claim is not None and claim.taint == 1.0
    Outside(desk.ledger).put("u", session="terminal:main")
    lease = turns.Lease("r", claim.turn["id"], claim.attempt, 0)
    assert desk.ledger.tx(lambda tx: turns.hand_over(tx, lease, 1)).taint == 0.2
    assert desk.ledger.tx(lambda tx: turns.get(tx, claim.turn["id"]))["taint"] == 0.2


def test_keys_are_kept_for_a_month(outside: Outside) -> None:
    outside.put("c1", "a")
    outside.put("r1", "b")
    outside.put("u", "c")
    outside.write()
    outside.put("c2", "d")
    moment = moment_of(NOW)
    assert moment is not None

    def after(days: float) -> list[str]:
        terms = Terms(*(moment + timedelta(days=days - kept) for kept in (7, 30, 400)))
        for _ in range(2):
            outside.ledger.tx(lambda tx: forget.injected(tx, terms, 0))
        return [key for key, _, _ in outside.rows()]

    assert after(29) == ["a", "b", "c", "d"] and after(31) == ["d"]


def test_what_is_dropped_leaves_its_key(outside: Outside, tmp_path: Path) -> None:
    outside.put("c1", "a")
    outside.put("u", "b")
    ids = [1, 2]
    outside.ledger.tx(lambda tx: injected.drop(tx, ids))
    assert outside.rows() == [("a", "recorded", ""), ("b", "recorded", "")] and outside.write() == ""


def test_what_waits_is_found_without_looking_at_all_that_ever_came(outside: Outside) -> None:
    asked: list[str] = []

    def accepted(tx: Any) -> None:
        tx._connection.set_trace_callback(asked.append)
        injected.accept(tx, SESSION, "main", pieces("u"), "1", NOW)
        injected.unwritten(tx, SESSION)
        injected.sessions(tx)
        tx._connection.set_trace_callback(None)
        waiting = {each for each in asked if "FROM injected WHERE" in each and "joined IS NULL" in each}
        assert len(waiting) == 3
        for sql in waiting:
            plan = "".join(row["detail"] for row in tx.all(f"EXPLAIN QUERY PLAN {sql}"))
            assert "injected_waiting" in plan, (sql, plan)

    outside.put("u", "0")
    outside.ledger.tx(accepted)
