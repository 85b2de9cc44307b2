"""What a turn's record says: each answer once, and which model it is from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawd.health.recovery import recover
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.sessions.reading import load
from clawd.turns.record import blocks_of
from tests.turns.conftest import NOW, opened

WAKES = [
    {
        "kind": "message",
        "parts": [{"kind": "typed", "origin": "owner", "text": text}],
        "at": None,
        "role": "owner",
        "sender": None,
        "joined": joined,
        "recorded": None,
    }
    for text, joined in (("a?", 0), ("b?", 1))
]


def recorded(text: str, notes: Any = None, *steps: dict[str, Any]) -> list[Any]:
    final = json.dumps({"text": text, "files": [], "notes": notes})
    turn: Any = {"retry_of": None, "base_steps": 0, "ended_at": None, "state": "answered", "final": final, "model": "m"}
    return blocks_of(turn, WAKES, list(steps))


@pytest.mark.parametrize(
    ("said", "final", "last"),
    [
        ("a", "a\n\nb", ["b"]),  # an answer that something joined after begins the final
        ("a", "a", []),
        ("a", "and b", ["and b"]),  # no answer, only the same beginning
        ("", "b", ["b"]),
    ],
)
def test_an_answer_is_recorded_once(said: str, final: str, last: list[str]) -> None:
    blocks = recorded(final, None, {"role": "assistant", "content": said})
    assert [block.content for block in blocks] == ["a?", said, "b?", *last]


def test_a_fallback_is_named() -> None:
    notes = {"fallback": [{"from": "x", "to": "m", "why": "529 overloaded_error"}, "hostile"]}
    assert recorded("b", notes)[-1].meta == {"model": "m", "fallback": "x 529 overloaded_error"}
    assert recorded("b", {"fallback": "hostile"})[-1].meta == {"model": "m"}


@pytest.mark.anyio
async def test_a_later_segment_says_of_which_conversation_and_is_known_by_it(tmp_path: Path) -> None:
    """When the ledger is lost, so that the plain id leads to the newest file; and an id that only looks like one of a
    segment leads to its own."""
    async with opened(tmp_path) as ground:
        for session, new in (("mmkr:v1", False), ("mmkr:v1", True), ("mmkr:v2", False), ("mmkr:v2.2", False)):
            if new:
                await ground.ledger.do(lambda tx: groups.next_segment(tx, "mmkr:v1", NOW))
            seq = await ground.accept(session=session)
            await ground.recorded(seq)
        home = ground.home
    bases = {path.name: load(path).blocks[-1].meta.get("base") for path in home.group("main").sessions.glob("*.md")}
    assert bases == {"mmkr_v1.md": None, "mmkr_v1_2.md": "mmkr:v1", "mmkr_v2.md": None, "mmkr_v2_2.md": None}
    home.ledger_file.write_bytes(b"")
    recover(home)
    ledger = Ledger.open(home.ledger_file)
    reached = {id: ledger.tx(lambda tx, id=id: groups.session(tx, id)) for id in ("mmkr:v1", "mmkr:v2", "mmkr:v2.2")}
    ledger.close()
    assert [row and row.id for row in reached.values()] == ["mmkr:v1.2", "mmkr:v2", "mmkr:v2.2"]
