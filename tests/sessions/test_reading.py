"""Reading: the whole, the end, the count, the check, and what a model may be sent."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import UnsafePath
from clawd.model import Block
from clawd.sessions.file import SessionFile
from clawd.sessions.reading import NO_RESULT, broken_calls, check, count, load, sound, tail
from tests.sessions.strategies import steady


def asks(*ids: str, content: str = "") -> Block:
    return Block("assistant", content, tool_calls=tuple({"id": id, "function": {"name": "sh"}} for id in ids))


def answers(id: str, content: str = "ok") -> Block:
    return Block("tool", content, tool_call_id=id)


USER, BYE = Block("user", "hi"), Block("assistant", "bye")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "main.md"
    for turn in range(50):
        SessionFile(path, "main").append([Block("user", f"q{turn}"), Block("assistant", f"a{turn}")], turn)
    return path


def test_load_and_count(path: Path) -> None:
    read = load(path)
    assert (read.id, len(read.blocks), read.repaired, read.errors) == ("main", 100, 0, [])
    assert count(path) == 100


def test_a_session_without_a_file_is_empty(tmp_path: Path) -> None:
    assert load(tmp_path / "none" / "x.md").blocks == []
    assert tail(tmp_path / "x.md", 5) == []
    assert count(tmp_path / "x.md") == 0
    assert check(tmp_path / "x.md")["errors"] == ["there is no such file"]


def test_the_tail_is_the_end_of_the_whole(path: Path) -> None:
    blocks = load(path).blocks
    assert tail(path, 7) == blocks[-7:]
    assert tail(path, 1000) == blocks
    assert tail(path, 0) == []
    size = path.stat().st_size
    for max_bytes in (1, 200, 1000, size - 1, size, size + 1):
        end = tail(path, 1000, max_bytes)
        assert end == blocks[len(blocks) - len(end) :]
        assert sum(len(block.content) for block in end) <= max_bytes
    starts = [at for at in range(size) if path.read_bytes().startswith(b"<!-- msg:", at)]
    assert len(tail(path, 1000, size - starts[40])) == 60
    assert len(tail(path, 1000, size - starts[40] - 1)) == 59


def test_links_are_refused(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.md"
    link.symlink_to(path)
    with pytest.raises(UnsafePath):
        load(link)
    assert not check(link)["ok"]


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda data: data[:-20], "torn tail"),
        (lambda data: data.replace(b"q7\n", b"q\xff\n"), "invalid UTF-8 at byte"),
        (lambda data: data.replace(b'{"role"', b'["role"', 1), "line 4: META is not JSON"),
        (lambda data: data.replace(b"# Session", b"# Title", 1), "header"),
        (lambda data: data.replace(b'"role": "assistant"', b'"role": "tool"', 1), "message 2: a tool result"),
    ],
)
def test_check_says_what_is_wrong(path: Path, damage: Any, error: str) -> None:
    path.write_bytes(damage(path.read_bytes()))
    result = check(path)
    assert set(result) == {"ok", "file", "messages", "repaired", "errors"}
    assert not result["ok"] and result["messages"] == 100
    assert len(result["errors"]) == 1 and error in result["errors"][0]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([USER, BYE], [USER, BYE]),
        ([asks("1"), answers("1"), BYE], [asks("1"), answers("1"), BYE]),
        ([asks("1")], [asks("1"), answers("1", NO_RESULT)]),
        ([asks("1", "2"), answers("2")], [asks("1", "2"), answers("1", NO_RESULT), answers("2")]),
        ([asks("1"), USER, answers("1")], [asks("1"), answers("1"), USER]),
        ([asks("1"), asks("2"), answers("1"), answers("2")],
         [asks("1"), answers("1", NO_RESULT), asks("2"), answers("2")]),
        ([answers("1"), USER], [USER]),
        ([asks("1"), answers("1"), answers("1", "again")], [asks("1"), answers("1")]),
        ([Block("assistant", "", tool_calls=({"no": "id"},)), BYE], [BYE]),
        ([Block("assistant", "text", tool_calls=({"no": "id"},))], [Block("assistant", "text")]),
    ],
)  # fmt: skip
def test_calls_and_results_are_paired(blocks: list[Block], expected: list[Block]) -> None:
    assert sound(blocks) == expected


some_blocks = st.one_of(
    st.sampled_from([USER, BYE]),
    st.sampled_from(["1", "2", "3"]).map(answers),
    st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, max_size=3, unique=True).map(lambda ids: asks(*ids)),
)


@steady
@given(st.lists(some_blocks, max_size=12))
def test_whatever_the_history_what_is_sent_is_sound(blocks: list[Block]) -> None:
    sent = sound(blocks)
    assert broken_calls(sent) == []
    assert sound(sent) == sent
    expected: list[str] = []
    for block in sent:
        if block.role == "tool":
            assert block.tool_call_id == expected.pop(0)
        else:
            assert not expected
            expected = [call["id"] for call in block.tool_calls]
    assert not expected
    assert [block for block in sent if block in (USER, BYE)] == [block for block in blocks if block in (USER, BYE)]
