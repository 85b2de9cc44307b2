"""Host tools: what they put into the outbox, and what they refuse."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from clawd.channel import ChannelLimits
from clawd.clock import TurnedClock
from clawd.errors import ClawdError, UnsafePath, UsageError
from clawd.files import Blobs
from clawd.host.tools import (
    UNDECLARED,
    ToolContext,
    ask,
    built_in,
    declarations,
    note,
    react,
    schema,
    send_file,
    send_message,
    tool_help,
)
from clawd.ledger.deliveries import LONG
from clawd.resources import shipped
from clawd.turns.desk import Lease

pytestmark = pytest.mark.anyio


@pytest.fixture
def sent() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def context(tmp_path: Path, sent: list[dict[str, Any]]) -> ToolContext:
    def enqueue(tx: object, effect: int, /, **row: Any) -> None:
        sent.append({"effect": effect, **row})

    (tmp_path / "work" / "sub").mkdir(parents=True)
    blobs, clock = Blobs(tmp_path / "blobs"), TurnedClock(datetime(2026, 12, 1, tzinfo=UTC))
    return ToolContext(Lease("r", 1, 1, 0), tmp_path / "work", blobs, enqueue, None, "main", clock, lambda: None, 100)


async def do(context: ToolContext, tool: Any, **arguments: Any) -> dict[str, Any]:
    act = await tool.prepare(context, tool.Arguments(**arguments))
    result: dict[str, Any] = act(None, 7)
    return result


def test_no_tool_has_the_name_of_one_of_the_sandbox() -> None:
    """A runner looks there first: the daemon's would never be called."""
    declared = json.loads(shipped("containers/agent/tools/declared.json").read_text("utf-8"))
    assert built_in().keys().isdisjoint(each["name"] for each in declared)


def test_every_tool_is_declared_tersely_and_explained_in_full() -> None:
    table = built_in()
    own = ["send_message", "send_file", "ask", "react", "schedule", "watch", "skill_read", "skill_propose"]
    memory = [f"memory_{each}" for each in ("write", "search", "read", "update", "delete", "propose")]
    assert list(table) == [*own, *memory, "note", "tool_help", "memory"]
    declared = declarations(ChannelLimits(reactions=True))
    assert len(json.dumps(declared, separators=(",", ":"), ensure_ascii=False)) < 3100
    shown = [name for name in table if name not in UNDECLARED]
    assert [each["name"] for each in declared] == shown
    assert [each["name"] for each in declarations(ChannelLimits())] == [name for name in shown if name != "react"]
    for each in declared:
        whole = schema(table[each["name"]])
        assert each["where"] == "host" and each["parameters"].get("required", []) == (
            whole.get("required", []) if table[each["name"]].DECLARED else []
        )
        assert each["parameters"].get("properties", {}).keys() <= whole["properties"].keys()
        assert "title" not in json.dumps(whole) and whole["additionalProperties"] is False


async def test_help_gives_what_the_prompt_leaves_out(context: ToolContext) -> None:
    for name, tool in built_in().items():
        answer = await tool_help.prepare(context, tool_help.Arguments(name=name))
        assert tool.HELP in answer["help"]
        assert all(f'"{argument}"' in answer["help"] for argument in tool.Arguments.model_fields)
    with pytest.raises(UsageError, match="there are ask, memory, memory_delete"):
        await tool_help.prepare(context, tool_help.Arguments(name="bash"))


async def test_a_message_is_enqueued(context: ToolContext, sent: list[dict[str, Any]]) -> None:
    assert await do(context, send_message, text="hello") == {"queued": "message"}
    assert sent == [{"effect": 7, "kind": "text", "text": "hello", "to": "", "whole": None}]


async def test_a_long_message_has_its_whole_as_a_file(context: ToolContext, sent: list[dict[str, Any]]) -> None:
    text = "Zürich\n" * LONG
    await do(context, send_message, text=text)
    [row] = sent
    assert row["text"] == text and context.blobs.path(row["whole"]).read_text() == text


@pytest.mark.parametrize("text", ["", " \n", "x" * (256 * 1024 + 1)])
async def test_a_message_needs_some_text_and_has_an_end(context: ToolContext, text: str) -> None:
    with pytest.raises(ClawdError):
        await do(context, send_message, text=text)


@pytest.mark.parametrize("path", ["sub/a.txt", "./sub/a.txt", "/group/work/sub/a.txt"])
async def test_a_file_is_copied_at_the_call(context: ToolContext, sent: list[dict[str, Any]], path: str) -> None:
    file = context.work / "sub" / "a.txt"
    file.write_text("before")
    assert await do(context, send_file, path=path, caption="c") == {
        "queued": "file",
        "name": "a.txt",
        "bytes": 6,
    }
    file.write_text("after")
    assert (sent[0]["kind"], sent[0]["text"], sent[0]["name"]) == ("file", "c", "a.txt")
    assert context.blobs.path(sent[0]["blob"]).read_text() == "before"


@pytest.mark.parametrize(
    "path", ["", ".", "sub", "missing", "../x", "/etc/passwd", "/group/CLAUDE.md", "link", "fifo", "big"]
)
async def test_what_is_no_file_of_work_is_refused(context: ToolContext, sent: list[dict[str, Any]], path: str) -> None:
    (context.work / "link").symlink_to("/etc/passwd")
    os.mkfifo(context.work / "fifo")
    (context.work / "big").write_bytes(b"x" * 101)
    with pytest.raises(UnsafePath):
        await do(context, send_file, path=path)
    assert sent == []


def test_a_name_cannot_move_a_cursor() -> None:
    assert send_file.shown_name("a/\x1b[2Jb\n\u202ec.txt") == "_[2Jb__c.txt"


# ---- ask

CHOICES = ["red", "blue"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"question": " \n"},
        {"question": "q", "choices": ["alone"]},
        {"question": "q", "choices": ["a", " "]},
        {"question": "q", "choices": ["Red", "red "]},
    ],
)
async def test_a_question_that_cannot_be_put_is_refused(context: ToolContext, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        await ask.prepare(context, ask.Arguments(**wrong))


@pytest.mark.parametrize(
    "wrong",
    [
        {"question": "x" * 4001},
        {"question": "q", "choices": ["x"] * 21},
        {"question": "q", "choices": ["x" * 201, "y"]},
        {"question": "q", "note": "x" * 8001},
        *({"question": "q", "expires_hours": hours} for hours in (0, -1, 720.1, float("nan"), "24")),
    ],
)
def test_a_question_has_bounds(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ask.Arguments(**wrong)


@pytest.mark.parametrize(
    "choice",
    [
        *(
            "Approve",
            "DENY",
            "approve it",
            "Yes, I approve!",
            "Approved.",
            "disapprove",
            "denied",
            "a denial",
            "yes/deny",
        ),
        *(
            "a p p r o v e",
            "d.e.n.y",
            "ap-prove",
            "den\u200by",
            "de\u0301ny",
            "ＡＰＰＲＯＶＥ",
            "𝐃𝐞𝐧𝐲",
            "Ａpprоve",
            "dеnу",
        ),
        *(
            "4pprove",
            "d3ny",
            "aprove",
            "Approove",
            "ᴀᴘᴘʀᴏᴠᴇ",
            "ηο, dεηу",
            "1. approve",
            "preapproval",
            "undeniable denial",
        ),
    ],
)
async def test_approve_and_deny_cannot_be_offered_in_any_spelling(context: ToolContext, choice: str) -> None:
    assert ask.offers_verdict("q", ["x", choice])
    assert ask.offers_verdict(f"q\n1. x\n2. {choice}", []) and ask.offers_verdict(f"q\n- {choice}", [])
    with pytest.raises(UsageError, match="approvals come from clawd"):
        await ask.prepare(context, ask.Arguments(question="q", choices=["x", choice]))


@pytest.mark.parametrize(
    ("question", "offers"),
    [
        ("Shall I approve or deny the leave?", True),
        ("Reply [approve/deny]", True),
        ("Did the bank approve the loan?", False),
        ("Is the garden yes-or-no: denim, Denise, Denmark, improve, proven, hardened?", False),
    ],
)
def test_a_question_may_speak_of_either_but_not_offer_both(question: str, offers: bool) -> None:
    assert ask.offers_verdict(question, CHOICES) is offers


@pytest.mark.parametrize("emoji", ["", "a b", "x\ny", "\x1b[2J", "e" * 65])
async def test_what_is_no_emoji_is_refused(context: ToolContext, emoji: str) -> None:
    with pytest.raises((UsageError, ValidationError)):
        await react.prepare(context, react.Arguments(emoji=emoji))


async def test_a_note_is_kept_clean_and_says_what_was_pinned(context: ToolContext) -> None:
    kept: list[tuple[str, tuple[Any, ...]]] = []

    class Transaction:
        def insert(self, table: str, **row: Any) -> int:
            kept.append((table, tuple(row.values())))
            return 1

        def one(self, sql: str, turn: int) -> dict[str, int]:
            return {"size": 0}

    act = await note.prepare(context, note.Arguments(goal=" a\n\u202eb ", verified=["v" * 900, " "]))
    assert callable(act)
    assert act(Transaction(), 7) == {"pinned": ["goal", "verified"]}  # type: ignore[arg-type]
    ((table, (turn, notes)),) = kept
    assert (table, turn) == ("noted", 1) and json.loads(notes) == {"goal": "a b", "verified": ["v" * 499 + "…"]}
    with pytest.raises(UsageError, match="at least one"):
        await note.prepare(context, note.Arguments(goal="\u200b", blockers=[""]))
    with pytest.raises(ValidationError):
        note.Arguments(blockers=["x"] * 101)
