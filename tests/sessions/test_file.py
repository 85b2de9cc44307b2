"""Appending: one durable write a turn, exactly once after any tear, and nothing of anybody else's is lost."""

import errno
import fcntl
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import Refused, StorageError, UnsafePath
from clawd.model import Block
from clawd.sessions import file as module
from clawd.sessions import format as fmt
from clawd.sessions.file import SessionFile
from clawd.sessions.reading import check, load
from tests.sessions.strategies import steady, texts

NOON = datetime(2026, 3, 7, 10, 0, 1, tzinfo=UTC)
CALL = {"id": "c1", "type": "function", "function": {"name": "sh", "arguments": "{}"}}
OLD = [Block("user", "before", at=NOON), Block("assistant", "yes", at=NOON)]
TURN = [
    Block("user", "a\n---foo\n<", at=NOON),
    Block("assistant", "", at=NOON, tool_calls=(CALL,)),
    Block("tool", "out\n", at=NOON, tool_call_id="c1"),
    Block("assistant", "### done 🦀", at=NOON),
]
FOREIGN = b"\n" + fmt.write_block(Block("user", "from elsewhere", at=NOON))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions" / "main.md"


def contents(path: Path) -> list[str]:
    return [block.content for block in load(path).blocks]


def texts_of(blocks: list[Block]) -> list[str]:
    return [block.content for block in blocks]


def test_a_file_is_what_the_grammar_says(path: Path) -> None:
    session = SessionFile(path, "telegram:-1")
    session.append(OLD, 1)
    session.append(TURN, 2)
    numbered = [
        Block(block.role, block.content, block.at, block.tool_calls, block.tool_call_id, {"turn": turn, "n": n})
        for turn, blocks in ((1, OLD), (2, TURN))
        for block, n in zip(blocks, [f"{n + 1}/{len(blocks)}" for n in range(len(blocks))], strict=True)
    ]
    assert path.read_bytes() == fmt.write_file("telegram:-1", numbered)
    assert load(path).blocks == numbered
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["main.md"]
    assert check(path)["ok"]


@pytest.mark.parametrize("session", ["main", "odd\x00<!-- msg:{} -->id"])
@pytest.mark.parametrize("before", [[], OLD])
def test_torn_at_every_byte_and_done_again(tmp_path: Path, session: str, before: list[Block]) -> None:
    def fresh(name: str) -> SessionFile:
        file = SessionFile(tmp_path / name, session)
        file.append(before, 1)
        return file

    whole = fresh("whole.md")
    start = whole.path.stat().st_size
    whole.append(TURN, 2)
    data = whole.path.read_bytes()
    torn = fresh("torn.md")
    for cut in range(start, len(data) + 1):
        torn.path.write_bytes(data[:cut])
        torn.append(TURN, 2, redo=True)
        once = torn.path.read_bytes()
        assert contents(torn.path) == texts_of(before + TURN), cut
        torn.append(TURN, 2, redo=True)
        assert torn.path.read_bytes() == once, cut
        assert load(torn.path).id == session
        # Cut in the blank line before a block there may be one more; cut in the last newline, one less.
        assert re.sub(rb"\n+<", b"\n<", once).rstrip() == re.sub(rb"\n+<", b"\n<", data).rstrip(), cut


def test_what_marks_itself_is_done_again_the_same_way(tmp_path: Path) -> None:
    """Without a turn: pieces from outside, of which more may be written the second time than the first."""

    def piece(key: str) -> list[Block]:
        metas = [{"from": "external", "key": key, "n": f"{n}/{len(TURN)}"} for n in range(1, len(TURN) + 1)]
        return [replace(block, meta=meta) for block, meta in zip(TURN, metas, strict=True)]

    whole, torn = (SessionFile(tmp_path / name, "s") for name in ("whole.md", "torn.md"))
    whole.append(OLD, 1)
    start = whole.path.stat().st_size
    whole.append(piece("a") + piece("b"), None)
    data = whole.path.read_bytes()
    for cut in range(start, len(data) + 1, 3):
        torn.path.write_bytes(data[:cut])
        for _ in range(2):
            torn.append(piece("a") + piece("b") + piece("c"), None, redo=True)
        assert contents(torn.path) == texts_of(OLD + 3 * TURN), cut
    assert [block.meta["key"] for block in load(torn.path).blocks[2::4]] == ["a", "b", "c"]


def test_torn_at_every_byte_with_a_strangers_append_behind(tmp_path: Path) -> None:
    whole = SessionFile(tmp_path / "whole.md", "main")
    whole.append(OLD, 1)
    start = whole.path.stat().st_size
    whole.append(TURN, 2)
    data = whole.path.read_bytes()
    torn = SessionFile(tmp_path / "torn.md", "main")
    for cut in range(start, len(data) + 1):
        torn.path.write_bytes(data[:cut] + FOREIGN)
        torn.append(TURN, 2, redo=True)
        torn.append(TURN, 2, redo=True)
        left = contents(torn.path)
        left.remove("from elsewhere")
        assert left == texts_of(OLD + TURN), cut


@steady
@given(st.lists(texts, min_size=1, max_size=3), st.data())
def test_any_text_torn_anywhere(tmp_path_factory: pytest.TempPathFactory, said: list[str], data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("s") / "main.md"
    blocks = [Block("user", text, at=NOON) for text in said]
    session = SessionFile(path, "main")
    session.append(OLD, 1)
    start = path.stat().st_size
    session.append(blocks, 2)
    os.truncate(path, data.draw(st.integers(start, path.stat().st_size)))
    session.append(blocks, 2, redo=True)
    assert contents(path) == texts_of(OLD) + said


def test_a_redo_finds_its_turn_behind_much_that_came_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WINDOW", 64)
    session = SessionFile(path, "main")
    session.append(TURN, 2)
    for _ in range(20):
        with path.open("ab") as file:
            file.write(FOREIGN)
    before = path.read_bytes()
    session.append(TURN, 2, redo=True)
    assert path.read_bytes() == before


def test_what_a_person_took_out_or_changed_stays_so(path: Path) -> None:
    session = SessionFile(path, "main")
    session.append(TURN, 2)
    data = path.read_bytes().replace(b"### done", b"### well done")
    first, second = data.index(b"<!-- msg"), data.index(b"<!-- msg", data.index(b"<!-- msg") + 1)
    path.write_bytes(data[:first] + data[second:])
    session.append(TURN, 2, redo=True)
    assert contents(path) == ["", "out\n", "### well done 🦀"]


def test_what_is_added_to_a_turn_later_is_told_apart(path: Path) -> None:
    session = SessionFile(path, "main")
    session.append([Block("user", "hi")], 2)
    note = Block("system", "It could not be delivered.", meta={"note": "delivery 5"})
    for _ in range(2):
        session.append([note], 2, redo=True)
    assert contents(path) == ["hi", "It could not be delivered."]


def test_a_turn_of_an_earlier_ledger_is_not_taken_for_this_one(path: Path) -> None:
    session = SessionFile(path, "main")
    session.append([Block("user", "long ago", at=NOON)], 2)
    session.append([Block("user", "now", at=NOON.replace(year=2027))], 2, redo=True)
    assert contents(path) == ["long ago", "now"]


@pytest.mark.parametrize(
    ("foreign", "expected"),
    [
        (FOREIGN, ["before", "yes", "from elsewhere", "next"]),
        (b"\n<!-- msg:{} -->\nhalf", ["before", "yes", "half", "next"]),
        (b"\n<!-- msg:{} -->\nhalf\n", ["before", "yes", "half", "next"]),
        (b"a line by hand\n", ["before", "yes\n\na line by hand", "next"]),
        (b"\n\n  \n", ["before", "yes", "next"]),
    ],
)
def test_a_strangers_append_is_kept(path: Path, foreign: bytes, expected: list[str]) -> None:
    session = SessionFile(path, "main")
    session.append(OLD, 1)
    with path.open("ab") as file:
        file.write(foreign)
    before = path.read_bytes()
    session.append([Block("user", "next")], 2)
    assert path.read_bytes().startswith(before)
    assert contents(path) == expected


def test_what_is_not_text_is_kept_aside(path: Path) -> None:
    session = SessionFile(path, "main")
    session.append(OLD, 1)
    with path.open("ab") as file:
        file.write(b"\n<!-- msg:{} -->\nhal\xc3")
    session.append([Block("user", "next")], 2)
    assert contents(path) == ["before", "yes", "next"]
    assert check(path)["ok"]
    assert b"hal\xc3" in path.with_name("main.md.quarantine").read_bytes()


def test_bad_bytes_inside_a_closed_block_stay_where_they_are(path: Path) -> None:
    session = SessionFile(path, "main")
    session.append(OLD, 1)
    path.write_bytes(path.read_bytes().replace(b"before", b"bef\xff"))
    session.append([Block("user", "next")], 2)
    assert contents(path) == ["bef\ufffd", "yes", "next"]


def test_an_editors_atomic_save_is_no_trouble(path: Path, tmp_path: Path) -> None:
    session = SessionFile(path, "main")
    session.append(OLD, 1)
    edited = tmp_path / "edited"
    edited.write_bytes(path.read_bytes().replace(b"before", b"edited"))
    edited.replace(path)
    session.append([Block("user", "next")], 2)
    path.unlink()
    session.append([Block("user", "anew")], 3)
    assert contents(path) == ["anew"]


@pytest.mark.parametrize("start", [b"", b"# Sess", b"# Session: main\n"])
def test_a_torn_header_is_made_whole(path: Path, start: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(start)
    SessionFile(path, "main").append(OLD, 1)
    assert load(path).id == "main"
    assert check(path)["ok"]


def test_another_ids_file_is_never_written_to(path: Path) -> None:
    SessionFile(path, "mmkr:agent-1").append(OLD, 1)
    before = path.read_bytes()
    with pytest.raises(Refused, match="belongs to the session 'mmkr:agent-1'"):
        SessionFile(path, "mmkr/agent-1").append(OLD, 1)
    with pytest.raises(Refused):
        SessionFile(path, "mmkr:agent-1\x00").append(OLD, 1)
    assert path.read_bytes() == before


def test_disguised_ids_are_told_apart(path: Path) -> None:
    SessionFile(path, "a\x00b").append(OLD, 1)
    SessionFile(path, "a\x00b").append(OLD, 2)
    with pytest.raises(Refused):
        SessionFile(path, "a\x01b").append(OLD, 1)
    assert len(contents(path)) == 4


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("/etc/passwd"), lambda p: os.mkfifo(p), lambda p: p.mkdir()])
def test_links_and_special_files_are_refused(path: Path, make: Callable[[Path], None]) -> None:
    path.parent.mkdir()
    make(path)
    with pytest.raises(UnsafePath):
        SessionFile(path, "main").append(OLD, 1)


def test_a_partial_write_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = SessionFile(path, "main")
    session.append(OLD, 1)
    before = path.read_bytes()
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[: len(data) // 2]))
        with pytest.raises(StorageError, match="No space left"):
            session.append(TURN, 2)
    assert path.read_bytes() == before

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        with pytest.raises(StorageError):
            session.append(TURN, 2)
    assert path.read_bytes() == before
    session.append(TURN, 2, redo=True)
    assert contents(path) == texts_of(OLD + TURN)


def test_an_append_waits_for_another_programs_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = SessionFile(path, "main")
    session.append(OLD, 1)
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.02)
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="locked"):
            session.append(TURN, 2)
    session.append(TURN, 2)
    assert contents(path) == texts_of(OLD + TURN)


def test_two_processes_append_side_by_side(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from clawd.model import Block; from clawd.sessions.file import SessionFile\n"
        "name = sys.argv[1]\n"
        "session = SessionFile(Path(sys.argv[2]), 'main')\n"
        "for n in range(40): session.append([Block('user', f'{name}{n}')] * 2, n)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, name, str(path)]) for name in "ab"]
    assert [process.wait(60) for process in running] == [0, 0]
    said = contents(path)
    assert check(path)["ok"]
    for name in "ab":
        assert [text for text in said if text[0] == name] == [f"{name}{n}" for n in range(40) for _ in range(2)]


def test_the_ten_thousandth_append_costs_what_the_tenth_did(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[int] = []
    calls: list[str] = []
    real = {name: getattr(os, name) for name in ("write", "pread", "fdatasync", "open", "fstat")}

    def counted(name: str) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            calls.append(name)
            result = real[name](*arguments, **named)
            costs.append(len(result) if name == "pread" else int(result) if name == "write" else 0)
            return result

        return call

    session = SessionFile(path, "main")
    session.append(OLD, 1)
    filler = b"".join(b"\n" + fmt.write_block(Block("user", f"message {n:05}", at=NOON)) for n in range(9990))

    def cost() -> tuple[int, list[str]]:
        costs.clear()
        calls.clear()
        with monkeypatch.context() as patch:
            for name in real:
                patch.setattr(os, name, counted(name))
            session.append([Block("user", "the same", at=NOON)], 7)
        return sum(costs), list(calls)

    tenth = cost()
    with path.open("ab") as file:
        file.write(filler)
    assert cost() == tenth
    assert tenth[1].count("write") == tenth[1].count("fdatasync") == 1
    assert tenth[0] < 300
