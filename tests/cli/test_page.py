from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from clawd.cli import page

ROWS = [{"group": "a\x1b[2J", "n": None, "bindings": ["x", "y"]}, {"group": "[red]b" + "c" * 300, "n": 1.5}]


def test_a_table_is_clean_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    page.give(ROWS, False, ("group", "n", "bindings"))
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()] == [
        ["group", "n", "bindings"],
        ["a␛[2J", "–", "x,", "y"],
        ["[red]b" + "c" * 300, "1.5", "–"],
    ]


def test_a_terminal_gets_a_narrow_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    now = datetime.now().astimezone().replace(microsecond=0)
    rows = [
        {"id": 1, "empty": None, "received": now.isoformat(), "reason": None},
        {"id": 23, "empty": [], "received": "2020-01-02T03:04:05+00:00", "reason": f"{'long ' * 11}words"},
    ]
    page.give(rows, False, ("id", "empty", "received", "reason"), beneath=("reason",))
    then = datetime.fromisoformat(rows[1]["received"]).astimezone()  # type: ignore[arg-type]
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert [line.rstrip() for line in out.splitlines()] == [
        "id  received",
        f"1   {now:%H:%M:%S}",
        f"23  {then:%Y-%m-%d %H:%M}",
        f"    {'long ' * 11}".rstrip(),
        "    words",
    ]


def test_times_are_the_machines_own(capsys: pytest.CaptureFixture[str]) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    page.give([{"received": moment.isoformat()}, {"received": None}], False, ("received",))
    out = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert out == ["received", f"{moment.astimezone():%Y-%m-%d %H:%M:%S}", "–"]


def test_json_is_ascii_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    page.give([*ROWS, {"x": "\u202e"}], True)
    out = capsys.readouterr().out
    assert json.loads(out) == [*ROWS, {"x": "\u202e"}] and out.isascii() and "\x1b" not in out


def test_nothing_says_so_beside_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    page.give([], False, ("a",), "no messages")
    assert capsys.readouterr() == ("", "no messages\n")


def test_an_object_is_lines(capsys: pytest.CaptureFixture[str]) -> None:
    page.give({"id": 7, "reply": "one\ntwo", "deliveries": [{"n": 1, "state": "sent"}], "ok": True}, False)
    assert capsys.readouterr().out.splitlines() == [
        "id          7",
        "reply       one",
        "            two",
        "deliveries",
        "  n=1 state=sent",
        "ok          yes",
    ]


async def _later() -> int:
    return 3


def test_what_is_awaitable_is_awaited() -> None:
    assert (page.settled(2), page.settled(_later())) == (2, 3)
