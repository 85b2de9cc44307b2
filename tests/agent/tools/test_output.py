"""What a tool says: cut output, visible bytes, sentences."""

from __future__ import annotations

import pytest
from agent import protocol
from agent.tools import output as tools
from hypothesis import given
from hypothesis import strategies as st


def cut(data: bytes, limit: int) -> str:
    output = tools.Output(limit)
    for at in range(0, len(data), 7):
        output.add(data[at : at + 7])
    text: str = output.text()
    return text


@given(st.text(max_size=60), st.integers(8, 80))
def test_text_is_whole_or_cut_between_characters(text: str, limit: int) -> None:
    whole = text.replace("\0", "\\x00")
    shown = cut(text.encode(), limit)
    assert shown == tools.cut(text, limit)
    if len(whole.encode()) <= limit // 2 * 2:
        assert shown == whole
        return
    head, middle, tail = shown.partition("\n[… ")
    count, _, tail = tail.partition(" bytes left out …]\n")
    assert middle and whole.startswith(head) and whole.endswith(tail)
    assert len((head + tail).encode()) <= limit
    assert int(count) + len((head + tail).encode()) == len(whole.encode())


@given(st.binary(max_size=100), st.integers(8, 80))
def test_any_bytes_become_text(data: bytes, limit: int) -> None:
    shown = cut(data, limit)
    assert "\0" not in shown and len(shown.encode()) <= limit + 50


READ_ONLY = "Nothing can be written there: only /group/work and /tmp are yours."
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
        (2, "sh: 1: cannot create /group/x: Read-only file system", f"{READ_ONLY} (exit code 2)"),
        (None, "Argument list too long", "That is too long for one call: write it to a file, and use the file."),
        (None, "No space left on device", "There is no space left for this group's files."),
        (None, "Permission denied", None),
    ],
)
def test_how_a_command_ended(code: int, output: str, sentence: str | None) -> None:
    assert tools.explain(code, output) == sentence
