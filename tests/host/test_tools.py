"""Host tools: what they put into the outbox, and what they refuse."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from clawd.errors import ClawdError, UnsafePath
from clawd.files import Blobs
from clawd.host.tools import ToolContext, built_in, send_file, send_message
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
    return ToolContext(Lease("r", 1, 1, 0), tmp_path / "work", Blobs(tmp_path / "blobs"), enqueue, 100)


async def do(context: ToolContext, tool: Any, **arguments: Any) -> dict[str, Any]:
    act = await tool.prepare(context, tool.Arguments(**arguments))
    result: dict[str, Any] = act(None, 7)
    return result


def test_the_table_has_every_tool_by_its_name() -> None:
    table = built_in()
    assert sorted(table) == ["send_file", "send_message"]
    assert all(tool.DESCRIPTION.endswith(".") for tool in table.values())


async def test_a_message_is_enqueued(context: ToolContext, sent: list[dict[str, Any]]) -> None:
    assert await do(context, send_message, text="hello") == {"queued": "message"}
    assert sent == [{"effect": 7, "kind": "text", "text": "hello"}]


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
