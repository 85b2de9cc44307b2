"""Forgetting: text leaves the ledger some days after its turn was recorded, and the row itself when nothing can come
again that it would be needed to know. What is open, and what nobody has seen yet, stays.

Each function looks at one slice of a table, so that the writing thread is never held up for long; it gives the key to
go on behind, None at the end. A group, a session with its count of turns, and every key of its like stay for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from clawd.clock import moment_of
from clawd.ids import is_job
from clawd.ledger.db import Row, Transaction
from clawd.ledger.moves import DECIDED

SLICE = 200  # rows of one transaction
SPARE_PAGES = 256  # free pages that the file keeps, at least

# States in which a message is at its end.
_ENDED = frozenset({"recorded", "stopped", "withdrawn", "stale", "failed"})
_WAITING = frozenset({"open", "approved", "executing"})  # states in which an approval is not at its end
_STANDING = frozenset({"group", "bind"})
_EMPTY = "UPDATE delivery SET text = '', blob = NULL, name = NULL, buttons = NULL"


@dataclass(frozen=True, slots=True)
class Terms:
    """What was over before `text` loses its text, what was over before `keys` goes; what was paid before `money`."""

    text: datetime
    keys: datetime
    money: datetime

    def are_over(self, moment: str | None, forgotten: bool) -> bool:
        """Whether what ended at `moment` loses its text now, or its row if that is gone already."""
        ended = moment_of(moment) if moment else None
        return ended is not None and ended < (self.keys if forgotten else self.text)


Slice = Callable[[Transaction, Terms, int], int | None]


def turns(tx: Transaction, terms: Terms, after: int) -> int | None:
    """Recorded turns, with their messages, wakes, steps, effects and deliveries."""
    rows = tx.all(
        "SELECT id, recorded_at, forgotten FROM turn WHERE id > ? ORDER BY id LIMIT ?",
        after,
        SLICE,
    )
    for row in rows:
        if terms.are_over(row["recorded_at"], bool(row["forgotten"])) and _is_over(tx, terms, row["id"]):
            if not row["forgotten"]:
                for message in tx.all("SELECT seq FROM inbound WHERE turn = ?", row["id"]):
                    forget_message(tx, message["seq"])
                forget_turn(tx, row["id"])
                tx.execute("UPDATE turn SET forgotten = 1 WHERE id = ?", row["id"])
            elif tx.one("SELECT 1 FROM turn WHERE retry_of = ?", row["id"]) is None:
                _drop_turn(tx, row["id"])
    return _last(rows, "id")


def messages(tx: Transaction, terms: Terms, after: int) -> int | None:
    """Messages that have no turn: commands, and what was withdrawn or came too late."""
    rows = tx.all(
        "SELECT seq, turn, state, received, parts FROM inbound WHERE seq > ? ORDER BY seq LIMIT ?", after, SLICE
    )
    for row in rows:
        forgotten = row["parts"] == "[]"
        if (
            row["turn"] is None
            and row["state"] in _ENDED
            and terms.are_over(row["received"], forgotten)
            and _is_said(tx, terms, "inbound", row["seq"])
        ):
            if forgotten:
                _drop_message(tx, row["seq"])
            else:
                forget_message(tx, row["seq"])
    return _last(rows, "seq")


def notices(tx: Transaction, terms: Terms, after: int) -> int | None:
    """What was said beside any turn and message."""
    rows = tx.all("SELECT * FROM delivery WHERE id > ? ORDER BY id LIMIT ?", after, SLICE)
    for row in rows:
        forgotten = not row["text"] and row["blob"] is None
        alone = row["turn"] is None and row["inbound"] is None
        if alone and terms.are_over(row["made"], forgotten) and not _is_awaited(row, terms):
            if forgotten:
                tx.execute("UPDATE approval SET delivery = NULL WHERE delivery = ?", row["id"])
                tx.execute("UPDATE delivery SET edits = NULL WHERE edits = ?", row["id"])
                tx.execute("DELETE FROM delivery WHERE id = ?", row["id"])
            else:
                tx.execute(f"{_EMPTY} WHERE id = ?", row["id"])
    return _last(rows, "id")


def runs(tx: Transaction, terms: Terms, after: int) -> int | None:
    """Runs that are over, and whose turns were given back."""
    rows = tx.all("SELECT rowid AS n, id, state, since FROM run WHERE rowid > ? ORDER BY rowid LIMIT ?", after, SLICE)
    for row in rows:
        if row["state"] == "gone" and terms.are_over(row["since"], forgotten=True):
            tx.execute(
                "DELETE FROM run WHERE id = ?"
                " AND NOT EXISTS (SELECT 1 FROM turn WHERE turn.run = run.id AND turn.state = 'claimed')",
                row["id"],
            )
    return _last(rows, "n")


def money(tx: Transaction, terms: Terms, after: int) -> int | None:
    """What model calls took: there is no content in it."""
    return _paid(tx, "reservation", terms, after)


def raises(tx: Transaction, terms: Terms, after: int) -> int | None:
    """What limits were raised by."""
    return _paid(tx, "budget_raise", terms, after)


def _paid(tx: Transaction, table: str, terms: Terms, after: int) -> int | None:
    rows = tx.all(f"SELECT id, made FROM {table} WHERE id > ? ORDER BY id LIMIT ?", after, SLICE)
    for row in rows:
        made = moment_of(row["made"])
        if made is not None and made < terms.money:
            tx.execute(f"DELETE FROM {table} WHERE id = ?", row["id"])
    return _last(rows, "id")


def approvals(tx: Transaction, terms: Terms, after: int) -> int | None:
    """What the owner was asked. A yes to a chat is a standing one: it loses its words alone."""
    rows = tx.all("SELECT id, kind, state, made, words FROM approval WHERE id > ? ORDER BY id LIMIT ?", after, SLICE)
    for row in rows:
        if row["state"] in _WAITING or not terms.are_over(row["made"], not row["words"]):
            continue
        if row["words"]:
            tx.execute("UPDATE approval SET words = '', result = NULL, delivery = NULL WHERE id = ?", row["id"])
            if row["kind"] not in _STANDING:
                tx.execute("UPDATE approval SET effect = '{}' WHERE id = ?", row["id"])
        elif row["kind"] not in _STANDING or row["state"] != "done":
            tx.execute("DELETE FROM approval WHERE id = ?", row["id"])
    return _last(rows, "id")


def firings(tx: Transaction, terms: Terms, after: int) -> int | None:
    """What became of each time that a schedule was due, and schedules that are gone."""
    rows = tx.all("SELECT id, due, state FROM firing WHERE id > ? ORDER BY id LIMIT ?", after, SLICE)
    for row in rows:
        if row["state"] not in ("due", "fired") and terms.are_over(row["due"], forgotten=True):
            tx.execute("DELETE FROM firing WHERE id = ?", row["id"])
    if len(rows) < SLICE:
        of = "SELECT 1 FROM firing f WHERE (f.grp, f.schedule, f.generation) = (s.grp, s.id, s.generation)"
        gone = tx.all(
            "SELECT * FROM schedule s WHERE gone IS NOT NULL AND grp <> ''"
            f" AND NOT EXISTS ({of}) ORDER BY gone LIMIT {SLICE}"
        )
        for row in gone:
            if terms.are_over(row["gone"], forgotten=True):
                key = (row["grp"], row["id"], row["generation"])
                tx.execute("DELETE FROM schedule WHERE (grp, id, generation) = (?, ?, ?)", *key)
    return _last(rows, "id")


def hooks(tx: Transaction, terms: Terms, after: int) -> int | None:
    """What came to webhooks: nobody sends it again by then."""
    rows = tx.all("SELECT id, at FROM hook WHERE id > ? ORDER BY id LIMIT ?", after, SLICE)
    for row in rows:
        if terms.are_over(row["at"], forgotten=True):
            tx.execute("DELETE FROM hook WHERE id = ?", row["id"])
    return _last(rows, "id")


def injected(tx: Transaction, terms: Terms, after: int) -> int | None:
    """Keys of what came into sessions from outside, once that is in their files: its text left when it came there."""
    rows = tx.all("SELECT id, state, made FROM injected WHERE id > ? ORDER BY id LIMIT ?", after, SLICE)
    for row in reversed(rows):  # what brought results alone goes before what it brought them for
        if row["state"] == "recorded" and terms.are_over(row["made"], forgotten=True):
            tx.execute(
                "DELETE FROM injected WHERE id = ? AND NOT EXISTS (SELECT 1 FROM injected i WHERE i.joined = ?)",
                row["id"],
                row["id"],
            )
    return _last(rows, "id")


def compactions(tx: Transaction, terms: Terms, after: int) -> int | None:
    """Compactions that are in their session's file, or came to nothing: their text is there, or nowhere. The last one
    of a session says where its file begins to be read."""
    rows = tx.all(
        "SELECT id, session, state, ended, text, ledger FROM compaction WHERE id > ? ORDER BY id LIMIT ?", after, SLICE
    )
    for row in rows:
        forgotten = row["text"] is None and row["ledger"] is None
        if row["state"] not in ("written", "failed") or not terms.are_over(row["ended"], forgotten):
            continue
        if not forgotten:
            tx.execute("UPDATE compaction SET text = NULL, ledger = NULL WHERE id = ?", row["id"])
        later = "SELECT 1 FROM compaction WHERE session = ? AND id > ? AND state = 'written'"
        if forgotten and (row["state"] == "failed" or tx.one(later, row["session"], row["id"])):
            tx.execute("DELETE FROM compaction WHERE id = ?", row["id"])
    return _last(rows, "id")


def pins(tx: Transaction, terms: Terms, after: int) -> int | None:
    """What sessions held on to that were handed over: their successors have it, and their manifests."""
    rows = tx.all(
        "SELECT p.id, c.sealed_at FROM pinned p JOIN context c ON c.session = p.session WHERE p.id > ?"
        " ORDER BY p.id LIMIT ?",
        after,
        SLICE,
    )
    for row in rows:
        if terms.are_over(row["sealed_at"], forgotten=True):
            tx.execute("DELETE FROM pinned WHERE id = ?", row["id"])
    return _last(rows, "id")


_KEPT: tuple[Slice, ...] = (turns, messages, approvals, notices, runs, money, raises, firings, hooks, injected)
EVERY: tuple[Slice, ...] = (*_KEPT, compactions, pins)


def shrink(tx: Transaction) -> bool:
    """Give a slice of the file's free pages back to the disk, but for a tenth of it that is soon used again. Whether
    there are more."""
    pages, free = (tx.all(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count"))
    too_many = free - max(SPARE_PAGES, pages // 10)
    if too_many > 0:
        tx.all(f"PRAGMA incremental_vacuum({min(too_many, SLICE)})")
    # A file that somebody made anew may give nothing back.
    return bool(too_many > SLICE and tx.all("PRAGMA freelist_count")[0][0] < free)


def blobs(tx: Transaction) -> set[str]:
    """Every blob that a delivery refers to."""
    return {row["blob"] for row in tx.all("SELECT DISTINCT blob FROM delivery WHERE blob IS NOT NULL")}


def forget_message(tx: Transaction, seq: int) -> None:
    """Take the text of a message away, and of what answered it without a turn."""
    tx.execute("UPDATE inbound SET parts = '[]', attachments = NULL WHERE seq = ?", seq)
    tx.execute(f"{_EMPTY} WHERE inbound = ?", seq)


def forget_turn(tx: Transaction, turn: int) -> None:
    """Take the text of a turn away, but for its messages: steps, effects, deliveries, approvals and its final."""
    tx.execute("DELETE FROM step WHERE turn = ?", turn)
    tx.execute("DELETE FROM noted WHERE turn = ?", turn)
    tx.execute("UPDATE job SET prompt = '', answer = NULL WHERE turn = ?", turn)
    tx.execute("UPDATE effect SET result = '{}' WHERE turn = ?", turn)
    asked = "(SELECT delivery FROM approval WHERE turn = ?)"
    tx.execute(f"{_EMPTY} WHERE turn = ? OR id IN {asked} OR edits IN {asked}", turn, turn, turn)
    tx.execute("UPDATE approval SET words = '', effect = '{}', result = NULL WHERE turn = ?", turn)
    tx.execute("UPDATE question SET text = '', choices = '[]', note = '' WHERE turn = ?", turn)
    tx.execute("UPDATE wake SET text = NULL WHERE id IN (SELECT wake FROM turn_wake WHERE turn = ?)", turn)
    tx.execute("UPDATE turn SET final = NULL, error = NULL WHERE id = ? AND recorded_at IS NOT NULL", turn)


def _last(rows: list[Row], key: str) -> int | None:
    return int(rows[-1][key]) if len(rows) == SLICE else None


def _is_over(tx: Transaction, terms: Terms, turn: int) -> bool:
    """Whether every message of a turn is at its end, and nothing that it said or asked waits."""
    states = [row["state"] for row in tx.all("SELECT state FROM inbound WHERE turn = ?", turn)]
    asks = tx.one(
        "SELECT 1 FROM question WHERE turn = ? AND state = 'open' UNION ALL"
        f" SELECT 1 FROM approval WHERE turn = ? AND state IN {tuple(sorted(_WAITING))}",
        turn,
        turn,
    )
    return asks is None and _ENDED.issuperset(states) and _is_said(tx, terms, "turn", turn)


def _is_said(tx: Transaction, terms: Terms, owner: str, key: int) -> bool:
    """Whether nothing that was to be said for this turn or message waits any more."""
    return not any(_is_awaited(row, terms) for row in tx.all(f"SELECT * FROM delivery WHERE {owner} = ?", key))


def _is_awaited(row: Row, terms: Terms) -> bool:
    """Whether a delivery is still to be sent, to be noted in its conversation, or to be seen: the terminal's mailbox is
    the ledger. Who never looks loses it with the keys."""
    if row["state"] not in DECIDED or (row["state"] == "failed" and row["turn"] is not None and not row["noted"]):
        return True
    unseen = row["channel"] == "terminal" and row["state"] in ("sent", "resent") and not row["seen"]
    return unseen and not terms.are_over(row["made"], forgotten=True)


def _drop_turn(tx: Transaction, turn: int) -> None:
    for row in tx.all("SELECT seq FROM inbound WHERE turn = ?", turn):
        _drop_message(tx, row["seq"])
    wakes = tx.all("SELECT wake FROM turn_wake WHERE turn = ?", turn)
    for table in ("approval", "firing"):
        tx.execute(f"UPDATE {table} SET turn = NULL WHERE turn = ?", turn)
    for table in ("turn_wake", "delivery", "effect", "step", "question", "job", "recalled", "noted"):
        tx.execute(f"DELETE FROM {table} WHERE turn = ?", turn)
    for row in wakes:
        _drop_wake(tx, row["wake"])
    session = tx.one("DELETE FROM turn WHERE id = ? RETURNING session", turn)
    if session is not None and is_job(session["session"]):
        tx.execute("DELETE FROM session WHERE id = ?", session["session"])


def _drop_message(tx: Transaction, seq: int) -> None:
    tx.execute("DELETE FROM delivery WHERE inbound = ?", seq)
    for row in tx.all("SELECT id FROM wake WHERE inbound = ?", seq):
        tx.execute("DELETE FROM turn_wake WHERE wake = ?", row["id"])
        _drop_wake(tx, row["id"])
    tx.execute("DELETE FROM inbound WHERE seq = ?", seq)


def _drop_wake(tx: Transaction, wake: int) -> None:
    """Unless another turn has it too."""
    if tx.one("SELECT 1 FROM turn_wake WHERE wake = ?", wake) is None:
        for table in ("question", "firing", "hook"):
            tx.execute(f"UPDATE {table} SET wake = NULL WHERE wake = ?", wake)
        tx.execute("DELETE FROM wake WHERE id = ?", wake)
