"""When a heartbeat beats, what on its list is due, and that nothing due is nothing at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clawd.config.group import Heartbeat
from clawd.errors import UnsafePath
from clawd.ledger import firings
from clawd.wakes.heartbeat import PROMPT, checklist, items, next_beat, rules
from tests.wakes.clockworks import START, life, works

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("hours", "every", "beats"),
    [
        ("9-11", "1h", ["09:00", "10:00", "11:00"]),
        ("9-10:30", "30m", ["09:00", "09:30", "10:00", "10:30"]),
        ("9-11", "45 min", ["09:00", "09:45", "10:30"]),
        ("22-1", "1h", ["00:00", "01:00", "22:00", "23:00"]),
        ("9:15-9:15", "12h", ["09:15", "21:15"]),
        ("9-17", "1000m", ["09:00"]),
    ],
)
def test_it_beats_by_the_clock(hours: str, every: str, beats: list[str]) -> None:
    of, moment, found = rules(Heartbeat(hours=hours, every=every), "Europe/Berlin"), START, []
    moment = datetime(2026, 12, 5, 22, 59, tzinfo=UTC)  # midnight there
    while (moment := next_beat(of, moment)) and moment < datetime(2026, 12, 6, 23, tzinfo=UTC):  # type: ignore[assignment]
        found.append(f"{moment + timedelta(hours=1):%H:%M}")
    assert found == beats


LIST = """\
# Things

<!-- (daily at 9) not this
- nor this -->
- [x] done
  with more of it
- [ ] look at the mail
  and at the post
* (every day at 9:30) water the plants
1. (optional) tidy up
- (weekdays at 7) too early
"""


def test_what_stands_on_a_list() -> None:
    assert items(LIST) == [
        "- [ ] look at the mail\n  and at the post",
        "* (every day at 9:30) water the plants",
        "1. (optional) tidy up",
        "- (weekdays at 7) too early",
    ]
    for nothing in (
        "",
        "\n\n",
        "# Only\n## headings\n",
        "- [x] a\n- [X] b\n",
        "<!-- a\n- b",
        "  \n# x\n<!-- - y -->\n",
    ):
        assert items(nothing) == []


async def test_nothing_due_is_no_wake_and_no_row(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        made.bind('[heartbeat]\nhours = "9-12"\nevery = "30m"')
        await made.clockwork.renew("main")
        file = made.home.group("main").root / "HEARTBEAT.md"
        for n, text in enumerate([None, "", "# Nothing\n- [x] done\n", "- (every day at 18:00) later\n"]):
            if text is not None:
                file.write_text(text)
            await made.at(START + timedelta(hours=1, minutes=30 * n))
            await made.clockwork.tick()
        assert made.wakes() == 0 and not made.rows("SELECT id FROM firing") and made.told() == []
        assert len(made.rows("SELECT id FROM schedule")) == 1 and made.ledger.tx(firings.listed) == []
        assert made.clockwork.next == START + timedelta(hours=3)


async def test_what_is_due_wakes_once_and_a_heartbeat_never_a_heartbeat(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        made.bind('[heartbeat]\nhours = "9-12"\nevery = "1h"')
        file = made.home.group("main").root / "HEARTBEAT.md"
        file.write_text("- (every day at 9:30) water the plants\n- (every day at 8:30) feed the cat\n")
        await made.clockwork.renew("main")
        await made.at(START + timedelta(hours=1))
        assert made.firings(firings.HEARTBEAT) == [("09:00", "fired")]
        await made.at(START + timedelta(hours=2))  # its turn is at work: what is due then waits
        assert made.firings(firings.HEARTBEAT)[1:] == [("10:00", "skipped")]
        ended = made.end()
        assert [(each["origin"], each["text"]) for each in ended["wakes"][0]["parts"]] == [
            ("owner", "- (every day at 8:30) feed the cat"),
            ("system", PROMPT),
        ]
        assert (ended["session"], ended["role"]) == ("terminal:main", "owner")
        await made.later(minutes=30)
        assert made.wakes() == 1  # what its own turn did starts nothing
        await made.at(START + timedelta(hours=3))
        assert made.end()["wakes"][0]["parts"][0]["text"] == "- (every day at 9:30) water the plants"
        made.clock.advance(22 * 3600)  # down over the night: one beat, with all that was due since
        async with life(made.home, made.ledger, made.clock) as again:
            assert again.end()["wakes"][0]["parts"][0]["text"].count("\n") == 0
            await again.later(hours=1)
            assert "water" in again.end()["wakes"][0]["parts"][0]["text"]
        assert made.wakes() == 4


async def test_a_list_that_is_nobodys_word_is_refused_and_told_once(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        folder = made.home.group("main").root
        (folder / "work").mkdir(exist_ok=True)
        (folder / "work" / "list.md").write_text("- do it")
        made.bind('[heartbeat]\nhours = "9-12"\nfile = "work/list.md"')
        await made.clockwork.renew("main")
        for hour in (1, 2):
            await made.at(START + timedelta(hours=hour))
        assert made.told() == [
            "The heartbeat of main is not looked at: work/list.md: it lies where others than the owner write"
        ]
        made.bind('[heartbeat]\nhours = "9-12"\nfile = "../other.md"')
        await made.clockwork.renew("main")
        await made.at(START + timedelta(hours=3))
        assert "not a path inside" in made.told()[1] and made.wakes() == 0
        made.bind("")
        await made.clockwork.renew("main")
        assert made.clockwork.next is None


@pytest.mark.parametrize(
    ("name", "taken"),
    [("list.md", True), ("memory.md", True), ("lists/a.md", True), ("import/nanobot/HEARTBEAT.md", False),
     ("Import/x.md", False), ("memory/x.md", False), ("work.20261201-090000/x.md", False), ("sessions/x.md", False)],
)  # fmt: skip
def test_only_the_owner_s_own_list_counts(tmp_path: Path, name: str, taken: bool) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("- look")
    if taken:
        assert checklist(tmp_path, name) == "- look"
    else:
        with pytest.raises(UnsafePath):
            checklist(tmp_path, name)
