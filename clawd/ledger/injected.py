"""What other programs put into a session: accepted in one transaction, known again by its key, and waiting here until
it is in the session's file.

A piece is written once it is whole: calls whose results are not in it wait, `open`, for later pieces to bring them, so
that a call and its results stand side by side in the file. Whatever else comes into the session first closes them. So
at most the last piece of a session is open, and pieces are written in the order of their ids.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clawd.errors import UsageError
from clawd.ids import new_id
from clawd.ledger import groups
from clawd.ledger.db import Row, Transaction
from clawd.trust import TRUST, Origin

NO_RESULT = "[no result was given]"
# As the partial index says it: from an equality alone SQLite does not see that the index is enough, and would look at
# every piece that the session ever had.
_WAITING = "state <> 'recorded' AND joined IS NULL"
MOST_BYTES = 4 << 20  # of blocks that are written at a time, but for one piece that has more

Said = dict[str, Any]  # {role, content, at, tool_calls?[{id, name, arguments}], tool_call_id?, key}


@dataclass(frozen=True, slots=True)
class Arranged:
    """A piece put in order. `results` answer calls of the open piece; `own` is the rest of it, each result behind its
    call; `waits` are the calls of `own` whose results are still to come."""

    results: list[Said] = field(default_factory=list)
    own: list[Said] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)


def arranged(waiting: Sequence[str], blocks: Sequence[Said], session: str) -> Arranged:
    """Put a piece in order, when calls of these ids wait in its session. Pure. Raises UsageError for a result of which
    there is no call."""
    results: dict[str, Said] = {}
    groups: list[tuple[Said, dict[str, Said | None]]] = []  # what is no result, with the results of its calls
    for block in blocks:
        if block["role"] != "tool":
            groups.append((block, {call["id"]: None for call in block.get("tool_calls", ())}))
            continue
        id = block["tool_call_id"]
        mine = next((found for _, found in groups if id in found and found[id] is None), None)
        if mine is not None:
            mine[id] = block
        elif id in waiting and id not in results and not groups:
            results[id] = block
        else:
            raise UsageError(
                f"no call {id!r} waits for a result in session {session!r}",
                hint="inject the assistant's message with that call first; a result belongs behind it",
            )
    own: list[Said] = []
    for n, (block, found) in enumerate(groups, 1):
        own.append(block)
        for id, result in found.items():
            if result is not None:
                own.append(result)
            elif n < len(groups):
                own.append(_no_result(id, block))
    last = groups[-1][1] if groups else {}
    return Arranged(list(results.values()), own, [id for id, result in last.items() if result is None])


def unanswered(blocks: Sequence[Said]) -> list[str]:
    """The calls of a piece that have no result; only its last calls can be such."""
    last = next((at for at in reversed(range(len(blocks))) if blocks[at]["role"] != "tool"), None)
    if last is None:
        return []
    there = {block["tool_call_id"] for block in blocks[last + 1 :]}
    return [call["id"] for call in blocks[last].get("tool_calls", ()) if call["id"] not in there]


def closed(blocks: Sequence[Said]) -> list[Said]:
    """The same piece, with a result for each call that has none."""
    return [*blocks, *(_no_result(id, blocks[-1]) for id in unanswered(blocks))]


def _no_result(id: str, beside: Said) -> Said:
    return {"key": beside["key"], "role": "tool", "content": NO_RESULT, "at": beside["at"], "tool_call_id": id}


@dataclass(frozen=True, slots=True)
class Accepted:
    """`waits`: calls whose results are still to come. `known`: the session had this key already."""

    session: str
    key: str
    waits: list[str]
    known: bool = False


def accept(tx: Transaction, base: str, group: str, blocks: Sequence[Said], key: str | None, now: str) -> Accepted:
    """Keep a piece, whole or not at all. Its session is made if it is new, and is trusted no more than what comes from
    outside. Raises UsageError for a result without its call, and for a session of another group."""
    session = groups.open_session(tx, base, group, now)
    if key is not None and (row := _known(tx, session.base, key)) is not None:
        holder = row if row["joined"] is None else _row(tx, row["joined"])
        waits = unanswered(json.loads(holder["blocks"])) if holder["state"] == "open" else []
        return Accepted(row["session"], key, waits, known=True)
    key = key or new_id()
    blocks = [{**block, "key": key} for block in blocks]
    last = _open(tx, session.id)
    before: list[Said] = json.loads(last["blocks"]) if last is not None else []
    piece = arranged(unanswered(before), blocks, base)
    made = {"grp": group, "session": session.id, "key": key, "made": now}
    groups.distrust(tx, session.id, TRUST[Origin.EXTERNAL])
    if last is not None:
        before += piece.results
        state = "whole" if not unanswered(before) else "open"
        _keep(tx, last, closed(before) if piece.own else before, "whole" if piece.own else state)
        if not piece.own:
            tx.insert("injected", **made, state=state, joined=last["id"], blocks="[]")
            return Accepted(session.id, key, unanswered(before))
    state = "open" if piece.waits else "whole"
    tx.insert("injected", **made, state=state, blocks=_json(piece.own))
    return Accepted(session.id, key, piece.waits)


def close(tx: Transaction, before: str) -> list[str]:
    """Pieces that have been open since `before`: no results come any more. Gives their sessions."""
    rows = tx.all(f"SELECT * FROM injected WHERE state = 'open' AND {_WAITING} AND made < ?", before)
    for row in rows:
        _keep(tx, row, closed(json.loads(row["blocks"])), "whole")
    return [row["session"] for row in rows]


def sessions(tx: Transaction) -> list[str]:
    """Sessions for which something is whole and not in their file yet."""
    rows = tx.all(f"SELECT DISTINCT session FROM injected WHERE state = 'whole' AND {_WAITING} ORDER BY session")
    return [row["session"] for row in rows]


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Pieces that are to be written next, with their blocks in order. `stem` and `folder`: where. `more`: others wait
    behind them."""

    pieces: list[int]
    blocks: list[Said]
    folder: str
    stem: str
    more: bool = False


def unwritten(tx: Transaction, session: str) -> Unwritten | None:
    """What is to be written into the session's file next; None when that has everything that is whole. Its session is
    trusted no more than that, also where the owner lifted it since the piece was accepted."""
    if tx.one("SELECT 1 FROM context WHERE session = ? AND seed IS NOT NULL", session) is not None:
        return None  # it begins with what was handed on to it
    place = tx.one("SELECT s.stem, g.folder FROM session s JOIN grp g ON g.name = s.grp WHERE s.id = ?", session)
    found = Unwritten([], [], place["folder"], place["stem"]) if place is not None else None
    size = 0
    for row in tx.execute(
        f"SELECT id, blocks FROM injected WHERE session = ? AND state = 'whole' AND {_WAITING} ORDER BY id", session
    ):
        assert found is not None
        size += len(row["blocks"])
        if found.pieces and size > MOST_BYTES:
            found = replace(found, more=True)
            break
        blocks = json.loads(row["blocks"])
        found.blocks.extend({**block, "n": f"{n}/{len(blocks)}"} for n, block in enumerate(blocks, 1))
        found.pieces.append(row["id"])
    if found is None or not found.pieces:
        return None
    groups.distrust(tx, session, TRUST[Origin.EXTERNAL])
    return found


def recorded(tx: Transaction, pieces: Sequence[int]) -> None:
    """They are in the file: their text leaves the ledger."""
    for id in pieces:
        for row in tx.all("SELECT id FROM injected WHERE id = ? OR joined = ? ORDER BY id", id, id):
            tx.move("injected", row["id"], "record", blocks="[]")


def drop(tx: Transaction, pieces: Sequence[int]) -> None:
    """They will never be in the file: their text is taken away, and their keys stay."""
    for id in pieces:
        row = _row(tx, id)
        if row["state"] == "open":
            _keep(tx, row, [], "whole")
    recorded(tx, pieces)


def _known(tx: Transaction, base: str, key: str) -> Row | None:
    """By its key, in whichever segment of the conversation."""
    return tx.one(
        "SELECT i.* FROM session s JOIN injected i ON i.session = s.id WHERE s.base = ? AND i.key = ?", base, key
    )


def _row(tx: Transaction, id: int) -> Row:
    row = tx.one("SELECT * FROM injected WHERE id = ?", id)
    assert row is not None, f"injected {id} does not exist"
    return row


def _open(tx: Transaction, session: str) -> Row | None:
    return tx.one(f"SELECT * FROM injected WHERE session = ? AND state = 'open' AND {_WAITING}", session)


def _keep(tx: Transaction, row: Row, blocks: Sequence[Said], state: str) -> None:
    """An open piece as it is now, and those that brought its results with it."""
    tx.execute("UPDATE injected SET blocks = ? WHERE id = ?", _json(blocks), row["id"])
    if state == "whole":
        for each in tx.all("SELECT id FROM injected WHERE id = ? OR joined = ?", row["id"], row["id"]):
            tx.move("injected", each["id"], "complete")


def _json(blocks: Sequence[Said]) -> str:
    # One by one: a large piece must not keep the interpreter from everything else.
    return f"[{', '.join(json.dumps(block, ensure_ascii=False) for block in blocks)}]"
