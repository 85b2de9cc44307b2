"""read, write, edit and note on real files, pipes, links and devices."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from agent import tools
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import TOKEN, Bench

SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)


@pytest.fixture
def strange(bench: Bench) -> Path:
    """A directory of what is no file."""
    os.mkfifo(bench.work / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(bench.work / "socket"))
    (bench.work / "device").symlink_to("/dev/zero")
    (bench.work / "loop").symlink_to("loop")
    (bench.work / "memory").symlink_to("/proc/self/mem")
    (bench.work / "directory").mkdir()
    return bench.work


def test_a_file_is_read_as_it_is_and_from_any_line(bench: Bench) -> None:
    bench.file("a/b.txt", "one\r\ntwo\nthree")
    assert bench("read", path="a/b.txt") == "one\r\ntwo\nthree"
    assert bench("read", path=str(bench.work / "a/b.txt"), offset=3) == "three"
    assert bench("read", path="a/b.txt", offset=2, limit=1.0) == "two\n[there is more: offset: 3]"
    assert bench("read", path="a/b.txt", offset=2, limit=2) == "two\nthree"
    assert bench("read", path="a/b.txt", offset=4) == "[the file has no line 4]"
    bench.file("empty", "")
    assert bench("read", path="empty") == "[the file is empty]"
    bench.file("line", "x\n")
    assert bench("read", path="line", offset=2) == "[the file has no line 2]"


def test_a_long_file_is_read_in_turns_that_lose_nothing(bench: Bench) -> None:
    whole = "".join(f"{n} {'é' * (n % 40)}\n" for n in range(1000))
    bench.file("long", whole)
    said, offset = "", 1
    while offset:
        part = bench("read", path="long", offset=offset)
        assert len(part.encode()) < 4100
        text, _, more = part.partition("[there is more: offset: ")
        said, offset = said + text, int(more[:-1] or 0)
    assert said == whole


def test_a_huge_line_costs_neither_time_nor_memory(bench: Bench) -> None:
    with bench.file("huge", "first\n").open("ab") as file:
        file.truncate(6)
        file.write(b"y" * (10 << 20) + b"\nlast\n")
    assert bench("read", path="huge") == "first\n[there is more: offset: 2]"
    assert bench("read", path="huge", offset=2) == "y" * 4000 + (
        "\n[line 2 is longer than can be shown; offset: 3 shows the next]"
    )
    assert bench("read", path="huge", offset=3) == "last\n"


@SHARED
@given(st.lists(st.sampled_from([TOKEN, "x" * 50, "é", "\n", "claw-"]), max_size=120))
def test_no_token_is_read_wherever_a_line_is_cut(bench: Bench, pieces: list[str]) -> None:
    bench.file("secret", " ".join(pieces))
    for offset in (1, 2, 3):
        assert TOKEN[-20:] not in bench("read", path="secret", offset=offset)


def test_bytes_that_are_no_text_are_visible(bench: Bench) -> None:
    bench.file("latin", b"caf\xe9\n")
    assert bench("read", path="latin") == "caf\\xe9\n"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x89PNG\r\n\x1a\n", "an image (PNG)"),
        (b"\xff\xd8\xff\xe0", "an image (JPEG)"),
        (b"RIFF1234WEBP", "an image (WebP)"),
        (b"a\0b", "a binary file"),
    ],
)
def test_what_is_no_text_is_named(bench: Bench, data: bytes, what: str) -> None:
    bench.file("x", data)
    assert bench("read", path="x") == f"[x is {what} of {len(data)} bytes: it cannot be shown as text.]"


def test_a_directory_is_listed_one_name_a_line(bench: Bench, strange: Path) -> None:
    bench.file("new\nline", "")
    Path(os.fsdecode(os.fsencode(strange) + b"/\xff")).touch()
    listed = "device\ndirectory/\nfifo\nloop\nmemory\nnew\\nline\nsocket\n\\xff"
    assert bench("read", path=".") == listed
    assert bench("read", path="directory") == "[the directory is empty]"
    for n in range(2100):
        (strange / "directory" / f"{n:04}").touch()
    bench.limits["output_bytes"] = 20_000
    assert bench("read", path="directory").endswith("1999\n[… 100 more …]")


@pytest.mark.parametrize("name", ["fifo", "socket", "device", "memory", "loop", "missing", "x" * 300, "fifo/x"])
def test_what_is_no_file_is_a_sentence(bench: Bench, strange: Path, name: str) -> None:
    before = sorted(path.name for path in strange.iterdir())
    assert bench("read", path=name).startswith(f"[{name[:200]!r} cannot be read: ")
    assert bench("edit", path=name, old="a", new="b").startswith(f"[{name[:200]!r} cannot be written: ")
    if name != "missing":
        assert bench("write", path=name, content="x").startswith(f"[{name[:200]!r} cannot be written: ")
    assert sorted(path.name for path in strange.iterdir()) == before


@pytest.mark.parametrize("way", ["/proc/self/mem", "/proc/thread-self/mem", "/proc/self/environ", "/proc/self/maps"])
def test_the_runner_says_nothing_of_its_own_process(bench: Bench, way: str) -> None:
    assert "no ordinary file" in bench("read", path=way)
    assert bench("write", path=way, content="x").startswith("[")


def test_a_file_is_written_whole_with_its_directories_mode_and_links(bench: Bench) -> None:
    umask = os.umask(0o022)
    try:
        assert bench("write", path="a/b/c.txt", content="é\0\r\n") == "wrote a/b/c.txt: 5 bytes"
    finally:
        os.umask(umask)
    file = bench.work / "a/b/c.txt"
    assert file.read_bytes() == "é\0\r\n".encode() and file.stat().st_mode & 0o777 == 0o644
    file.chmod(0o750)
    (bench.work / "link").symlink_to("a/b/c.txt")
    (bench.work / "hard").hardlink_to(file)
    assert bench("write", path="link", content="new\n") == "replaced link: 4 bytes"
    assert (bench.work / "link").is_symlink() and file.read_text() == "new\n"
    assert file.stat().st_mode & 0o777 == 0o750
    assert (bench.work / "hard").read_bytes() == "é\0\r\n".encode()  # nobody saw half of a file
    assert [path.name for path in (bench.work / "a/b").iterdir()] == ["c.txt"]
    assert bench("write", path="new\nline", content="") == "wrote new\nline: 0 bytes"


@pytest.mark.parametrize("path", ["", ".", "..", "/", "a", "a.txt/b"])
def test_a_place_that_cannot_be_written_is_a_sentence(bench: Bench, path: str) -> None:
    bench.file("a/x", "")
    bench.file("a.txt", "")
    said = bench("write", path=path, content="x")
    assert said.startswith(f"[{path!r} cannot be written: ") and said.endswith("]")


def test_an_edit_is_exact_and_happens_once(bench: Bench) -> None:
    file = bench.file("a.py", b"\xff def f():\n    return 1\n\ndef g():\n    return 1\n")
    file.chmod(0o700)
    said = bench("edit", path="a.py", old="    return 1", new="    return 2")
    assert said == "[a.py holds that text at lines 2, 5. Give more of what is around it, or all: true.]"
    assert bench("edit", path="a.py", old="g():\n    return 1", new="g():\n    return 2") == "edited a.py: line 4"
    assert bench("edit", path="a.py", old="def", new="async def", all=True) == "edited a.py: 2 places"
    assert file.read_bytes() == b"\xff async def f():\n    return 1\n\nasync def g():\n    return 2\n"
    assert file.stat().st_mode & 0o777 == 0o700
    said = bench("edit", path="a.py", old="return 2", new="", all=False)
    assert said == "edited a.py: line 5"
    said = bench("edit", path="a.py", old="async def g():\n  return 2", new="x")
    assert said.startswith("[a.py does not hold that text (line 4 is like its first, with other white space). Read")
    said = bench("edit", path="a.py", old="nowhere", new="x")
    assert said == "[a.py does not hold that text. Read the file and copy old from it exactly.]"
    assert "old is empty" in bench("edit", path="a.py", old="", new="x")
    assert "are the same" in bench("edit", path="a.py", old="x", new="x")


def test_texts_that_overlap_are_not_one(bench: Bench) -> None:
    bench.file("a", "aaa")
    assert "at lines 1, 1" in bench("edit", path="a", old="aa", new="b")
    bench.file("many", "a" * (1 << 20))
    assert "at lines 1, 1, 1, 1, 1." in bench("edit", path="many", old="a", new="b")
    assert "larger than 16 MB" in bench("edit", path="many", old="a", new="b" * 17, all=True)
    bench.file("big", b"x" * ((16 << 20) + 1))
    assert "larger than 16 MB" in bench("edit", path="big", old="y", new="b")


LINE = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=6)


@SHARED
@given(st.lists(LINE, min_size=2, max_size=5), st.integers(0, 9), st.integers(1, 9), st.lists(LINE, max_size=3))
def test_line_endings_are_kept(bench: Bench, lines: list[str], at: int, length: int, new: list[str]) -> None:
    """An edit of a file with CRLF is that of the same file with LF, whatever the model says it with."""
    text = "\n".join(lines) + "\n"
    old, replacement = text[at : at + length], "\n".join(new)
    bench.file("lf", text)
    bench.file("crlf", text.replace("\n", "\r\n"))
    bench.file("said", text.replace("\n", "\r\n"))
    told = bench("edit", path="lf", old=old, new=replacement)
    assert bench("edit", path="crlf", old=old, new=replacement) == told.replace("lf", "crlf", 1)
    bench("edit", path="said", old=old.replace("\n", "\r\n"), new=replacement.replace("\n", "\r\n"))
    edited = (bench.work / "lf").read_bytes()
    if told.startswith("edited"):
        assert edited.decode() == text.replace(old, replacement)
    assert (bench.work / "crlf").read_bytes() == edited.replace(b"\n", b"\r\n")
    assert (bench.work / "said").read_bytes() == edited.replace(b"\n", b"\r\n")


def test_a_note_is_a_line_and_after_a_crash_it_is_there_once(bench: Bench) -> None:
    file = bench.work / "notes.md"
    assert bench("jot", line="- a") == "kept in notes.md"
    assert bench("jot", line="- a", again=True) == "kept in notes.md"
    assert file.read_text() == "- a\n"
    file.write_text("- a\nby hand")
    bench("jot", line="- b", again=True)
    assert file.read_text() == "- a\nby hand\n- b\n"


def test_a_note_goes_into_a_file_alone(bench: Bench, tmp_path: Path) -> None:
    (bench.work / "notes.md").symlink_to(tmp_path / "else")
    assert bench("jot", line="- a").startswith("[notes.md cannot be written")
    assert not (tmp_path / "else").exists()
    (bench.work / "notes.md").unlink()
    os.mkfifo(bench.work / "notes.md")
    assert bench("jot", line="- a").startswith("[notes.md cannot be written: it is no ordinary file")


def test_a_full_disk_leaves_the_file_as_it_was(bench: Bench) -> None:
    import resource
    import signal

    file = bench.file("a", "before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
        said = bench("write", path="a", content="x" * (2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert said == "['a' cannot be written: A file became larger than this group may write.]"
    assert file.read_text() == "before" and list(bench.work.iterdir()) == [file]


def test_a_write_may_be_done_again_and_an_edit_may_not(bench: Bench) -> None:
    file = bench.file("a", "a")
    assert bench("edit", again=True, path="a", old="a", new="aa") == tools.INTERRUPTED
    assert file.read_text() == "a"
    assert bench("write", again=True, path="a", content="b") == "replaced a: 1 bytes"
    assert bench("read", again=True, path="a") == "b"
