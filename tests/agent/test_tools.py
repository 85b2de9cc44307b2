"""What a tool says: cut output, visible bytes, sentences, and a note that is kept once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from agent import protocol, tools
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.standin import StandInTurn


def stand_in(group: Path) -> Any:
    return StandInTurn(group)


def cut(data: bytes, limit: int) -> str:
    output = tools.Output(limit)
    for at in range(0, len(data), 7):
        output.add(data[at : at + 7])
    text: str = output.text()
    return text


@given(st.text(max_size=60), st.integers(8, 80))
def test_text_is_whole_or_cut_between_characters(text: str, limit: int) -> None:
    data = text.encode()
    shown = cut(data, limit)
    if len(data) <= limit // 2 * 2:
        assert shown == text.replace("\0", "\\x00")
        return
    head, middle, tail = shown.partition("\n[… ")
    count, _, tail = tail.partition(" bytes left out …]\n")
    assert middle and text.replace("\0", "\\x00").startswith(head)
    assert text.replace("\0", "\\x00").endswith(tail)
    kept = len((head + tail).replace("\\x00", "\0").encode())
    assert "\\x00" in text or int(count) + kept == len(data)


@given(st.binary(max_size=100), st.integers(8, 80))
def test_any_bytes_become_text(data: bytes, limit: int) -> None:
    assert "\0" not in cut(data, limit)
    cut(data, limit).encode()


TOKEN = b"claw-" + b"aB3_-" * 8 + b"xyz"
PIECE = st.sampled_from([b"c", b"claw-", b"claw-claw-", TOKEN[:30], TOKEN, b"sk-ant-api03-" + TOKEN, b"\n", b"x" * 40])


@given(st.lists(PIECE, max_size=12), st.lists(st.integers(1, 60), min_size=1), st.sampled_from([20, 100, 1000]))
def test_no_token_is_shown_however_it_comes(pieces: list[bytes], sizes: list[int], limit: int) -> None:
    data = b" ".join(pieces)
    output, at, turn = tools.Output(limit), 0, 0
    while at < len(data):
        output.add(data[at : at + sizes[turn % len(sizes)]])
        at, turn = at + sizes[turn % len(sizes)], turn + 1
    shown, whole = output.text(), protocol.hidden(data.decode())
    assert TOKEN.decode()[-20:] not in shown
    if len(whole) <= limit // 2 * 2:
        assert shown == whole
        assert shown.count("[token]") == data.count(TOKEN)


def test_bytes_are_made_visible() -> None:
    assert tools.visible(b"a\0b\xffc\n") == "a\\x00b\\xffc\n"


@pytest.mark.parametrize(
    ("code", "output", "sentence"),
    [
        (0, "", None),
        (3, "", "exit code 3"),
        (-9, "", "The command was killed (probably used more memory than this group may)."),
        (137, "", "The command was killed (probably used more memory than this group may)."),
        (-15, "", "The command was ended by signal 15."),
        (143, "", "exit code 143"),
        (-25, "", "A file became larger than this group may write."),
        (
            2,
            "sh: 1: Cannot fork",
            "No more processes could be started: this group may run only so many at once. (exit code 2)",
        ),
        (1, "cp: No space left on device", "There is no space left for this group's files. (exit code 1)"),
        (1, "Disk quota exceeded", "There is no space left for this group's files. (exit code 1)"),
        (1, "write: File too large", "A file became larger than this group may write. (exit code 1)"),
        (0, "I know that 'File too large' is an error", None),
        (
            0,
            "sh: 0: Cannot fork",
            "No more processes could be started: this group may run only so many at once.",
        ),
        (None, "No space left on device", "There is no space left for this group's files."),
        (None, "Permission denied", None),
    ],
)
def test_how_a_command_ended(code: int, output: str, sentence: str | None) -> None:
    assert tools.explain(code, output) == sentence


def test_a_note_is_a_line_and_after_a_crash_it_is_there_once(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    turn, file = stand_in(tmp_path), tmp_path / "work" / "notes.md"
    assert tools.note(turn, "- a", False) == "kept in notes.md"
    assert tools.note(turn, "- a", True) == "kept in notes.md"
    assert file.read_text() == "- a\n"
    file.write_text("- a\nby hand")
    tools.note(turn, "- b", True)
    assert file.read_text() == "- a\nby hand\n- b\n"


def test_a_note_does_not_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.md").symlink_to(tmp_path / "else")
    assert tools.note(stand_in(tmp_path), "- a", False).startswith("[notes.md cannot be written")
    assert not (tmp_path / "else").exists()


@pytest.mark.parametrize("seconds", [-1, "5", None, True, float("nan"), float("inf")])
def test_sleep_takes_a_number(tmp_path: Path, seconds: object) -> None:
    turn = StandInTurn(tmp_path)
    assert tools.sleep(cast(Any, turn), seconds).startswith("[seconds") and turn.paused == 0
