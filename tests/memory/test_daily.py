"""Daily logs: appended to as PythonClaw does, read however they were written, and what is forgotten leaves them."""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.errors import UnsafePath, UsageError
from clawd.memory import daily
from clawd.memory.record import settled

DAY = date(2026, 11, 30)
NOW = datetime(2026, 11, 29, 23, 30, 5, tzinfo=UTC)  # of which it is the next day in Vienna


@pytest.fixture(autouse=True)
def vienna(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Vienna")
        time.tzset()
        yield
    time.tzset()


MIXED = """\
# Daily Memory — 2026-11-30

Written by hand.

### 00:30:05 — home_town

Graz

- [2026-11-30T08:00:00+00:00] Tests are green. #tick_outcome #mmkr (source=mmkr:tick, importance=0.80)
- [ ] buy milk
### 09:15 - by hand
## with a heading
- [x] done
### 25:00:00 — no time
### Evening

words
"""


def test_the_bytes_of_a_log(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    assert daily.append(root, " home_town ", "Graz\r\n", NOW) == "2026-11-30.md"
    daily.append(root, "car", "### 10:00:00 — x\n- [2026-01-01T10:00] y\n### z", NOW + timedelta(seconds=60))
    assert (root / "2026-11-30.md").read_text() == (
        "# Daily Memory — 2026-11-30\n\n### 00:30:05 — home_town\n\nGraz\n\n"
        "### 00:31:05 — car\n\n\\### 10:00:00 — x\n\\- [2026-01-01T10:00] y\n### z\n\n"
    )
    _, town, car = daily.parsed((root / "2026-11-30.md").read_bytes(), DAY)
    assert (town.key, town.text, town.at) == ("home_town", "Graz", NOW)
    assert (car.key, car.text) == ("car", "### 10:00:00 — x\n- [2026-01-01T10:00] y\n### z")
    with pytest.raises(UsageError):
        daily.append(root, "a\nb", "x", NOW)


def test_a_log_that_a_person_wrote_to_is_appended_to(tmp_path: Path) -> None:
    (tmp_path / "2026-11-30.md").write_bytes(b"mine\r\nno line end")
    daily.append(tmp_path, "a", "b", NOW)
    assert (tmp_path / "2026-11-30.md").read_text() == "mine\nno line end\n### 00:30:05 — a\n\nb\n\n"
    (tmp_path / "2026-12-01.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePath):
        daily.append(tmp_path, "a", "b", NOW + timedelta(days=1))


def test_a_full_disk_leaves_no_half_entry(tmp_path: Path) -> None:
    daily.append(tmp_path, "a", "b", NOW)
    before = (tmp_path / "2026-11-30.md").read_bytes()

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 9, len(before) + 9))
        try:
            daily.append(tmp_path, "c", "d" * 50, NOW)
        except OSError:
            os._exit(7)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(30)
    assert process.exitcode == 7 and (tmp_path / "2026-11-30.md").read_bytes() == before


def test_pieces_of_a_log_that_many_wrote_to() -> None:
    found = daily.parsed(MIXED.encode(), DAY)
    assert [(each.key, each.at.strftime("%H:%M") if each.at else None, each.text) for each in found] == [
        ("", None, "# Daily Memory — 2026-11-30\n\nWritten by hand."),
        ("home_town", "00:30", "Graz"),
        ("", "09:00", "Tests are green. #tick_outcome #mmkr (source=mmkr:tick, importance=0.80)\n- [ ] buy milk"),
        ("by hand", "09:15", "## with a heading\n- [x] done"),
        ("", None, "### 25:00:00 — no time\n### Evening\n\nwords"),
    ]


LINES = st.sampled_from([*MIXED.split("\n"), "### 10:00:00 — k", "\r", "\\### 10:00:00 — k", "\u2028"]) | st.text(
    max_size=9
)
LOGS = st.lists(LINES, max_size=9).map(lambda lines: "\n".join(lines).encode("utf-8", "replace")) | st.binary()


@given(LOGS)
def test_the_pieces_are_all_of_a_log(data: bytes) -> None:
    found = daily.parsed(data, DAY)
    assert b"".join(data[each.start : each.end] for each in found) == data
    assert all(each.start < each.end for each in found)
    assert daily.without(data, key="\x00", texts=["\x00\x00\x00"]) == data


@settings(max_examples=20)
@given(
    LOGS,
    st.lists(st.tuples(st.sampled_from(["a", "b", "c — d"]), LINES | st.just("x\n### 10:00:00 — a\n\ny")), min_size=1),
)
def test_what_is_appended_is_read_and_is_forgotten(before: bytes, entries: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "2026-11-30.md").write_bytes(before)
        for key, value in entries:
            daily.append(root, key, value, NOW)
        data = (root / "2026-11-30.md").read_bytes()
        assert data.startswith(before)
        found = daily.parsed(data, DAY)[-len(entries) :]
        assert [(each.key, each.text) for each in found] == [
            (key, settled(value).replace("\\### 10:", "### 10:")) for key, value in entries
        ]
        gone = entries[0][0]
        daily.forget(root, key=gone)
        left = daily.parsed((root / "2026-11-30.md").read_bytes(), DAY)
        assert gone not in [each.key for each in left]
        others = [each for each in daily.parsed(data, DAY) if not (each.at and each.key == gone)]
        assert [(each.key, each.text) for each in left if each.key] == [
            (each.key, each.text) for each in others if each.key
        ]


@pytest.mark.parametrize(
    ("key", "texts", "gone"),
    [
        ("home_town", (), "### 00:30:05 — home_town\n\nGraz\n\n"),
        ("", ("Graz",), "### 00:30:05 — home_town\n\nGraz\n\n"),
        ("", (" Written by hand.\r\n",), "Written by hand.\n"),
        ("", ("buy milk",), None),
        ("", ("Evening",), None),
        ("", ("[x] done",), "- [x] done\n"),
        ("", ("Written by",), None),
        ("", ("",), None),
        ("nobody", ("nothing",), None),
    ],
)
def test_what_is_forgotten_and_nothing_else(key: str, texts: tuple[str, ...], gone: str | None) -> None:
    assert daily.without(MIXED.encode(), key=key, texts=texts) == MIXED.replace(gone or "\x00", "").encode()


def test_a_bullet_is_forgotten_by_its_words() -> None:
    bullet = b"- [2026-11-30T08:00:00+00:00] Tests are green. #tick #mmkr (source=mmkr:tick, importance=0.80)\n"
    assert daily.without(b"a\n" + bullet + b"- [2026-11-30T09:00:00Z] more\n", texts=["Tests are green."]) == (
        b"a\n- [2026-11-30T09:00:00Z] more\n"
    )


def test_all_logs_forget_and_nothing_else_is_touched(tmp_path: Path) -> None:
    for days in range(3):
        daily.append(tmp_path, "car" if days else "town", "red\nor blue", NOW + timedelta(days=days))
    (tmp_path / "notes.md").write_text("red\nor blue\n")
    (tmp_path / "2026-13-01.md").write_text("red\nor blue\n")
    stamp = (tmp_path / "2026-11-30.md").stat().st_ino
    assert daily.forget(tmp_path, key="car") == ["2026-12-01.md", "2026-12-02.md"]
    assert (tmp_path / "2026-12-01.md").read_text() == "# Daily Memory — 2026-12-01\n\n"
    assert (tmp_path / "2026-11-30.md").stat().st_ino == stamp
    assert daily.forget(tmp_path, texts=["red\nor blue"]) == ["2026-11-30.md"]
    assert (tmp_path / "notes.md").read_text() == (tmp_path / "2026-13-01.md").read_text() == "red\nor blue\n"
