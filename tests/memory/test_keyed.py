"""MEMORY.md: PythonClaw's format to the byte, a person's text around it, and many who write at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd import faults
from clawd.clock import TurnedClock
from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.errors import Refused, StorageError, UnsafePath, UsageError
from clawd.memory import keyed
from clawd.memory.keyed import FACTS, INDEX, KeyedMemory, alone, key_of, with_fact, without
from clawd.memory.record import settled
from tests.memory import pythonclaw

NOW = datetime(2026, 11, 29, 12, 52, 5, tzinfo=UTC)
LOCAL = pythonclaw.local(NOW)


def apart(work: Callable[[], None]) -> int:
    """Its exit status, run in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(30)
    assert process.exitcode is not None
    return process.exitcode


def facts(root: Path) -> dict[str, keyed.Fact]:
    return keyed.parsed((root / FACTS).read_bytes())[1]


def test_the_bytes_of_a_file(tmp_path: Path) -> None:
    memory = KeyedMemory(tmp_path / "memory")
    memory.delete("nothing")
    memory.set("home_town", "Graz", NOW)
    memory.set("car", "red\n## not a key\n> Updated: never", NOW)
    memory.set("empty", "", NOW)
    memory.set("home_town", "Linz", NOW)
    assert (tmp_path / "memory" / FACTS).read_text() == (
        f"# Long-Term Memory\n\n## home_town\n> Updated: {LOCAL}\n\nLinz\n\n## car\n> Updated: {LOCAL}\n\n"
        f"red\n\\## not a key\n\\> Updated: never\n\n## empty\n> Updated: {LOCAL}\n\n\n"
    )
    assert facts(memory.root)["car"] == keyed.Fact("car", "red\n## not a key\n> Updated: never", NOW)
    for key in ("car", "car", "empty", "home_town"):
        memory.delete(key)
    assert (tmp_path / "memory" / FACTS).read_bytes() == b"# Long-Term Memory\n"


LINES = st.sampled_from(
    ["## a", "> Updated: x", "> Updated: 2026-01-01 10:00:00", "\\## b", "# c", "---", "", " ", "\u2028## x", "plain"]
)
VALUES = st.lists(LINES | st.text(max_size=6), max_size=4).map("\n".join)


def possible(key: str) -> bool:
    try:
        return key_of(key) == key
    except UsageError:
        return False


KEYS = st.sampled_from(["a", "b", "# h", "## g", "k: v"]) | st.text(max_size=5).filter(possible)


@given(st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=8))
def test_every_change_is_as_pythonclaw_makes_it(changes: list[tuple[str, str | None]]) -> None:
    facts: dict[str, tuple[str, str]] = {}
    data, now = pythonclaw.write({}), NOW
    for key, value in changes:
        now += timedelta(seconds=1)
        if value is None:
            facts.pop(key, None)
            data = without(data, key)
        else:
            facts[key] = pythonclaw.local(now), settled(value)
            data = with_fact(data, key, value, now)
    assert data == pythonclaw.write(facts)
    ours = {key: (pythonclaw.local(fact.updated), fact.value) for key, fact in keyed.parsed(data)[1].items()
            if fact.updated}  # fmt: skip
    assert ours == pythonclaw.read(data)
    assert list(ours) == list(facts)


@given(st.lists(LINES | st.sampled_from(["## k", "## k ", "##", "## ", "\r## k\r", "\x0c"]), max_size=9), KEYS, VALUES)
def test_what_a_person_wrote_stays_to_the_byte(lines: list[str], key: str, value: str) -> None:
    old = ("\ufeff# Mine\n" + "\n".join(lines)).encode() + b"\xff"
    before = keyed.parsed(old)
    new = with_fact(old, key, value, NOW)
    preamble, facts = keyed.parsed(new)
    assert (preamble, facts.pop(key).value) == (
        before[0],
        pythonclaw.read(keyed.entry(key, value, NOW).encode())[key][1],
    )
    assert facts == {each: fact for each, fact in before[1].items() if each != key}
    if key not in before[1]:
        assert new.startswith(old) and without(old, key) == old
        assert without(new, key).rstrip(b"\n") == old.rstrip(b"\n")
    assert key not in keyed.parsed(without(new, key))[1]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("", {}),
        ("only words\n# and a heading\n", {}),
        ("## a\none\n## b\n\n\ntwo\n\nlines\n", {"a": "one", "b": "two\n\nlines"}),
        ("## a\none\n## b\ntwo\n## a\nthree", {"a": "three", "b": "two"}),
        ("\ufeff## a\r\n> Updated: x\r\n\r\none\r\ntwo\r\n", {"a": "one\ntwo"}),
        ("##   a b  \n> Updated:\n> Updated: y\n  one\n### c\n---\n", {"a b": "one\n### c\n---"}),
        ("## \nlost\n##nospace\n ## indented\n", {}),
        ("## a\n```\n## in a fence\n```\n", {"a": "```", "in a fence": "```"}),
    ],
)
def test_files_as_people_and_older_versions_write_them(text: str, facts: dict[str, str]) -> None:
    assert {key: fact.value for key, fact in keyed.parsed(text.encode())[1].items()} == facts


def test_an_entry_of_a_key_that_stands_twice_is_one_afterwards() -> None:
    old = b"mine\r\n\r\n## a\r\none\r\n## b\r\ntwo\r\n\r\n## a\r\nthree\r\n"
    new = f"mine\r\n\r\n## a\n> Updated: {LOCAL}\n\nfour\n## b\r\ntwo\r\n"
    assert with_fact(old, "a", "four", NOW) == new.encode()
    assert without(old, "a") == b"mine\r\n## b\r\ntwo\r\n"


def test_what_stands_before_the_facts_goes_alone(tmp_path: Path) -> None:
    memory = KeyedMemory(tmp_path)
    for old in ("# Mine\nwords\n\n## a\none\n", "## a\none\n"):
        (tmp_path / FACTS).write_text(old)
        memory.clear_preamble()
        assert (tmp_path / FACTS).read_text() == "# Long-Term Memory\n\n## a\none\n"
    (tmp_path / FACTS).write_text("words")
    memory.clear_preamble()
    assert (tmp_path / FACTS).read_text() == "# Long-Term Memory\n"


def test_a_new_home_begins_as_pythonclaw_writes_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    init_home(home, name="bot", user="Ada", clock=TurnedClock(NOW))
    first = with_fact(b"", "bot_name", "bot", NOW)
    assert (home.group("main").memory / FACTS).read_bytes() == with_fact(first, "user_name", "Ada", NOW)


@pytest.mark.parametrize("key", ["", " ", "a\nb", "a\r## b", "a\x00", "a\u2028b", "a\ud800", "x" * 201])
def test_what_cannot_be_a_key(key: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        KeyedMemory(tmp_path).set(key, "value", NOW)
    assert not list(tmp_path.iterdir())


def test_spaces_around_a_key_are_none_of_it(tmp_path: Path) -> None:
    memory = KeyedMemory(tmp_path)
    memory.set(" home town ", "\ud800 Graz\r\nor\rLinz \n", NOW)
    assert facts(tmp_path) == {"home town": keyed.Fact("home town", "\ufffd Graz\nor\nLinz", NOW)}
    memory.delete("home town ")
    assert facts(tmp_path) == {}


def test_no_key_is_lost_between_ten_who_write(tmp_path: Path) -> None:
    KeyedMemory(tmp_path).set("mine", "stays", NOW)

    def work(me: int) -> None:
        memory = KeyedMemory(tmp_path)
        for n in range(5):
            memory.set(f"{me}-{n}", f"value {me} {n}", NOW)
            memory.set("shared", f"of {me}", NOW)
        memory.delete(f"{me}-4")

    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(me,)) for me in range(10)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 10
    found = {key: fact.value for key, fact in facts(tmp_path).items()}
    assert found.pop("shared") in {f"of {me}" for me in range(10)}
    assert found == {"mine": "stays", **{f"{me}-{n}": f"value {me} {n}" for me in range(10) for n in range(4)}}
    assert [each.name for each in tmp_path.iterdir()] == [FACTS]


def test_a_process_that_dies_leaves_the_file_whole_and_no_lock(tmp_path: Path) -> None:
    memory = KeyedMemory(tmp_path)
    memory.set("a", "one", NOW)

    def work() -> None:
        faults.load("kill@replacing-MEMORY.md")
        memory.set("a", "two", NOW)

    assert apart(work) == -signal.SIGKILL
    assert facts(tmp_path)["a"].value == "one"
    memory.set("a", "three", NOW)
    assert facts(tmp_path)["a"].value == "three"


def test_somebody_who_keeps_the_lock_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "_PATIENCE_S", 0.02)
    with alone(tmp_path), pytest.raises(StorageError, match="another process keeps"), alone(tmp_path):
        pass


def test_what_is_no_plain_file_is_neither_read_nor_written(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.md"
    elsewhere.write_text("## secret\nx")
    root = tmp_path / "memory"
    root.mkdir()
    memory = KeyedMemory(root)
    (root / FACTS).symlink_to(elsewhere)
    os.mkfifo(root / INDEX)
    for name in (FACTS, INDEX):
        with pytest.raises(UnsafePath):
            keyed.change(root, name, lambda data: b"x")
    with pytest.raises(UnsafePath):
        memory.set("a", "b", NOW)
    assert elsewhere.read_text() == "## secret\nx"
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(UnsafePath):
        KeyedMemory(tmp_path / "link").set("a", "b", NOW)


def test_a_file_that_is_not_read_to_its_end_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / FACTS
    file.write_text("## a\none\n\n## b\n")
    os.truncate(file, keyed.LIMIT + 1)
    with pytest.raises(Refused, match="larger than 10 MB"):
        KeyedMemory(tmp_path).set("a", "two", NOW)
    assert facts(tmp_path)["a"].value == "one" and file.stat().st_size == keyed.LIMIT + 1


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    memory = KeyedMemory(tmp_path)
    memory.set("a", "one", NOW)
    assert (tmp_path / FACTS).stat().st_mode & 0o777 == 0o600
    (tmp_path / FACTS).chmod(0o640)
    memory.set("a", "two", NOW)
    assert (tmp_path / FACTS).stat().st_mode & 0o777 == 0o640
