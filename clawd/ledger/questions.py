"""Questions of an agent: `open → answered(wake)`, `expired(wake)`, `withdrawn`. Nothing waits for one: its turn ends,
and the answer is an ordinary wake that brings back the question, the choice and the agent's own note.

What comes back acts for nobody above the turn that asked, and is trusted no further: an answer grants nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from clawd.clock import moment_of, rfc3339
from clawd.ledger import turns
from clawd.ledger.db import Row, Transaction
from clawd.model import Incoming, Part
from clawd.trust import Origin, Role, at_least

_NUMBER = re.compile(r"[#(]?0*(\d{1,3})[.):]?")
_JOINED = "SELECT q.*, t.authority, t.taint, t.channel, t.account, t.chat, t.thread FROM question q"
_JOINED += " JOIN turn t ON t.id = q.turn WHERE q.state = 'open'"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a message answers: the question, the part that reminds the agent of it, and what it may do at most."""

    question: int
    part: dict[str, Any]
    authority: Role
    taint: float


def ask(tx: Transaction, turn: int, text: str, choices: list[str], note: str, expires: datetime) -> tuple[int, int]:
    """Open a turn's question. A session has one: gives its id, and how many earlier ones were withdrawn."""
    row = turns.get(tx, turn)
    earlier = withdraw(tx, row["session"])
    id = tx.insert(
        "question",
        turn=turn,
        grp=row["grp"],
        session=row["session"],
        text=text,
        choices=json.dumps(choices, ensure_ascii=False),
        note=note,
        state="open",
        expires=rfc3339(expires),
    )
    return id, earlier


def withdraw(tx: Transaction, session: str) -> int:
    """Nobody need answer what is open in the session's conversation. Gives how many questions that were."""
    rows = tx.all(
        "SELECT q.id FROM question q JOIN session s ON s.id = q.session JOIN session asked ON asked.base = s.base"
        " WHERE asked.id = ? AND q.state = 'open'",
        session,
    )
    for row in rows:
        tx.move("question", row["id"], "withdraw")
    return len(rows)


def answered(tx: Transaction, message: Row) -> Answer | None:
    """The open question that a message answers: in its session and chat, from somebody of at least the asking turn's
    authority, with something that it offers."""
    row = tx.one(
        f"{_JOINED} AND q.session = ? AND t.channel = ? AND t.account = ? AND t.chat = ?",
        message["session"],
        message["channel"],
        message["account"],
        message["chat"],
    )
    if row is None or not at_least(Role(message["role"]), Role(row["authority"])):
        return None
    said = "\n".join(part["text"] for part in json.loads(message["parts"]) if part["kind"] == "typed").strip()
    choices = json.loads(row["choices"])
    at = chosen(choices, said)
    if not said or (choices and at is None):
        return None
    told = "What follows is the answer." if at is None else f"The answer is choice {at + 1}, {_quoted(choices[at])}."
    return Answer(row["id"], _reminder(row, told), Role(row["authority"]), row["taint"])


def is_choice(tx: Transaction, session: str, incoming: Incoming, role: Role) -> bool:
    """Whether what somebody says in a chat is one of the choices of the question that is open there."""
    row = tx.one(
        f"{_JOINED} AND q.session = ? AND t.channel = ? AND t.account = ? AND t.chat = ?",
        *(session, incoming.channel, incoming.account, incoming.chat),
    )
    if row is None or not at_least(role, Role(row["authority"])):
        return False
    return chosen(json.loads(row["choices"]), "\n".join(incoming.texts)) is not None


def chosen(choices: list[str], said: str) -> int | None:
    """Which of the choices somebody means, by its words or its number."""
    words = [" ".join(each.casefold().split()) for each in choices]
    meant = " ".join(said.casefold().split())
    if meant in words:
        return words.index(meant)
    number = _NUMBER.fullmatch(meant)
    return int(number[1]) - 1 if number and 1 <= int(number[1]) <= len(choices) else None


def expire(tx: Transaction, now: datetime) -> tuple[list[str], datetime | None]:
    """Each open question whose time is over becomes a turn that says so to its agent. Gives their groups, and when the
    next one is over."""
    ends = [(moment_of(row["expires"]) or now, row) for row in tx.all(f"{_JOINED} ORDER BY q.id")]
    over = [row for end, row in ends if end <= now]
    for row in over:
        part = _reminder(row, "Nobody answered it in time.")
        authority, taint = Role(row["authority"]), row["taint"]
        wake = tx.insert(
            "wake",
            kind="answer",
            key=f"question:{row['id']}",
            authority=authority,
            trust=taint,
            origin=Origin.SYSTEM,
            state="pending",
            text=json.dumps([part], ensure_ascii=False),
        )
        turn = turns.queue(tx, row, authority, taint, rfc3339(now))
        tx.execute("INSERT INTO turn_wake (turn, wake) VALUES (?, ?)", turn, wake)
        tx.move("question", row["id"], "expire", wake=wake)
    return sorted({row["grp"] for row in over}), min((end for end, _ in ends if end > now), default=None)


def _reminder(row: Row, told: str) -> dict[str, Any]:
    """What the agent is told of its question. Its own words are quoted: they are not the daemon's."""
    said = [f"You asked: {_quoted(row['text'])}."]
    if choices := json.loads(row["choices"]):
        said.append(f"The choices were {', '.join(map(_quoted, choices))}.")
    if row["note"]:
        said.append(f"Your note: {_quoted(row['note'])}.")
    return asdict(Part("quoted", Origin.SYSTEM, " ".join([*said, told]), "clawd"))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
