"""Schedules through the clockwork: what the files say, what is fired, what is told, and what a restart finds."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from clawd.errors import NotFound, SandboxUnavailable, UsageError
from clawd.ledger import authored, firings, groups, turns
from clawd.ledger.deliveries import address_of
from clawd.model import Authority
from clawd.trust import Role
from clawd.wakes import taking
from tests.wakes.clockworks import START, Works, life, works

pytestmark = pytest.mark.anyio

DAILY = 'cron = "0 9 * * *"\nprompt = "look at the mail"'
NINE = START + timedelta(hours=1)
DAY = timedelta(days=1)


async def settled(made: Works, wanted: int = 0) -> None:
    """Until no check is at work, and so many wakes were made."""
    with anyio.fail_after(10):
        while made.rows("SELECT 1 FROM firing WHERE state = 'due'") or made.wakes() < wanted:
            await anyio.sleep(0.002)


async def test_a_run_from_its_file_to_its_outcome(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        await made.written("a", DAILY)
        assert made.one() == {
            "id": "main/a", "group": "main", "expr": "0 9 * * *", "tz": "UTC",
            "next": "2026-11-30T09:00:00.000000+00:00", "last": None, "enabled": True, "proposed": False, "error": None,
        }  # fmt: skip
        assert made.clockwork.next == NINE and made.wakes() == 0
        await made.at(NINE)
        assert (made.woken, made.firings()) == (["main"], [("09:00", "fired")])
        assert made.one()["next"][:16] == "2026-12-01T09:00"
        turn = made.end()
        assert (turn["session"], turn["to"], turn["role"], turn["taint"]) == (
            "terminal:main", address_of("terminal:main"), "owner", 1.0,
        )  # fmt: skip
        [wake] = turn["wakes"]
        assert wake["kind"] == "schedule"
        assert [(each["kind"], each["origin"], each["text"]) for each in wake["parts"]] == [
            ("typed", "owner", "look at the mail")
        ]
        assert made.firings() == [("09:00", "ran")] and made.one()["last"][:16] == "2026-11-30T09:00"
        for _ in range(3):
            await made.clockwork.tick()
        assert made.wakes() == 1


async def test_a_late_run_tells_the_agent_when_it_was_due(tmp_path: Path) -> None:
    async with works(tmp_path, "Europe/Berlin") as made:
        await made.written("a", 'cron = "30 9 * * *"\nskill = "digest"')
        made.clock.advance(2 * 3600)
        async with life(made.home, made.ledger, made.clock) as again:
            [wake] = again.end()["wakes"]
            assert [(each["origin"], each["sender"], each["text"]) for each in wake["parts"]] == [
                ("owner", None, 'Use the skill "digest".'),
                ("system", "clawd", "due 09:30, ran 11:00, late"),
            ]
            assert again.firings() == [("08:30", "late")] and again.reasons() == ["due 09:30, ran 11:00, late"]


async def test_clocks_that_are_set_and_machines_that_sleep(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        await made.written("a", 'cron = "0 * * * *"\nprompt = "p"')
        await made.at(NINE)
        made.end()
        await made.later(hours=-2)  # set back: what was due then is not due again
        for _ in range(4):
            await made.later(minutes=30)
        assert made.firings() == [("09:00", "ran")]
        await made.later(hours=3, seconds=20)  # asleep
        assert made.firings()[1:] == [("10:00", "missed"), ("11:00", "missed"), ("12:00", "fired")]
        made.end()
        await made.later(days=400)  # a clock that is wrong
        made.end()
        count = len(made.rows("SELECT id FROM firing"))
        await made.later(days=-400)
        assert made.one()["next"][:16] == "2026-11-30T13:00"
        with anyio.fail_after(5):
            while not made.told():
                await anyio.sleep(0.01)
        assert made.told() == [
            "The clock was wrong by more than a day: what was known of the schedule main/a lay ahead of it. They go on"
            " from now"
        ]
        await made.at(START + timedelta(hours=5))
        assert len(made.rows("SELECT id FROM firing")) == count + 1


async def test_files_that_change(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        await made.written("a", DAILY)
        made.write("a", 'cron = "0 10 * * *"\nprompt = "p"')  # edited while it is due: what it said before is dropped
        made.clock.advance(3600)
        await made.clockwork.renew("main")
        assert made.firings() == [] and made.clockwork.next == START + timedelta(hours=2)
        await made.written("a", 'cron = "0 10 * * *"\nprompt = "another"')  # of the same times
        await made.later(hours=1, minutes=30)
        assert made.firings() == [("10:00", "fired")]
        assert made.end()["wakes"][0]["parts"][0]["text"] == "another"
        # removed and made again: nothing that was due before is due by it
        path = made.home.group("main").schedules / "a.toml"
        path.unlink()
        await made.clockwork.renew("main")
        assert made.clockwork.next is None and made.ledger.tx(firings.listed) == []
        await made.written("a", 'cron = "15 10 * * *"\nprompt = "p"')
        assert made.rows("SELECT generation, gone IS NULL AS there FROM schedule") == [
            {"generation": 1, "there": 0}, {"generation": 2, "there": 1},
        ]  # fmt: skip
        assert made.firings() == [("10:00", "late")]
        # renamed: it is the same one
        await made.at(START + timedelta(hours=2, minutes=31) + DAY)
        made.end()
        path.rename(path.with_name("b.toml"))
        await made.clockwork.renew("main")
        row = made.one("b")
        assert row["next"][:16] == "2026-12-02T10:15" and made.wakes() == 2
        assert made.rows("SELECT last_due FROM schedule WHERE id = 'b'")[0]["last_due"][:16] == "2026-12-01T10:15"


async def test_files_that_change_while_nobody_looks(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        for id in ("prompt", "time", "gone", "kept"):
            made.write(id, DAILY)
        await made.clockwork.renew("main")
        made.write("prompt", DAILY.replace("mail", "post"))
        made.write("time", DAILY.replace("0 9", "30 8"))
        (made.home.group("main").schedules / "gone.toml").unlink()
        made.write("new", DAILY.replace("mail", "cat"))
        made.clock.advance(2 * 3600)
        async with life(made.home, made.ledger, made.clock) as again:
            outcomes = {id: again.firings(id) for id in ("prompt", "time", "gone", "kept", "new")}
            late = [("09:00", "fired")]
            assert outcomes == {"prompt": late, "time": [], "gone": [], "kept": late, "new": []}


@pytest.mark.parametrize("again", [False, True], ids=["moved", "killed before it was moved"])
async def test_what_was_for_once_goes_to_done(tmp_path: Path, again: bool) -> None:
    async with works(tmp_path) as made:
        folder = made.home.group("main").schedules
        (folder / "done").mkdir()
        (folder / "done" / "a.toml").write_text("of last year")
        await made.written("a", "at = 2026-11-30T08:30:00\nprompt = 'stretch'")
        await made.later(hours=1)
        assert made.firings() == [("08:30", "fired")]
        assert not (folder / "a.toml").exists() and made.clockwork.next is None
        assert (folder / "done" / "a.toml").read_text() == "of last year"
        if again:
            (folder / "done" / "a-2.toml").rename(folder / "a.toml")
            made.ledger.tx(lambda tx: tx.execute("UPDATE schedule SET gone = NULL"))
            async with life(made.home, made.ledger, made.clock):
                pass
        assert (folder / "done" / "a-2.toml").read_text().endswith("'stretch'\n")
        assert made.firings() == [("08:30", "fired")] and made.wakes() == 1
        assert made.end()["wakes"][0]["parts"][0]["text"] == "stretch"


async def test_what_came_too_late_to_be_run_is_told(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        await made.written("a", "at = 2026-11-20T08:30:00\nprompt = 'stretch'")
        assert made.firings() == [("08:30", "missed")] and made.wakes() == 0
        assert made.told() == [
            "The schedule main/a was due 2026-11-20 08:30: nothing could run then, and it is too long ago"
            " (catch_up_within)"
        ]
        assert [each.name for each in made.home.group("main").schedules.rglob("*.toml")] == ["a.toml"]


async def test_a_bad_file_keeps_what_worked_and_disturbs_no_other(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        made.bind('bindings = ["telegram:7"]')
        for id in ("a", "b"):
            await made.written(id, DAILY)
        await made.written("a", 'cron = "0 9 * * fri-mon"\nprompt = "p"')
        assert "fri,sat,sun,mon" in made.one()["error"] and made.one()["next"] is not None
        await made.written("a", 'cron = "0 9 * * *"\npromt = "p"')
        error = made.one()["error"]
        assert error.startswith("groups/main/schedules/a.toml:3 promt: promt is no known key")
        await made.written("new", "cron =")
        await made.clockwork.renew("main")
        said = made.told("telegram:7")
        holds = "what it said before still holds"
        assert len(said) == 3 and said[1] == f"The schedule main/a is not taken up; {holds}: {error}"
        assert said[2].startswith("The schedule main/new is not taken up: groups/main/schedules/new.toml:2: not TOML")
        assert (made.one("new")["enabled"], made.one("new")["next"]) == (False, None)
        await made.at(NINE)
        assert made.firings("a") == made.firings("b") == [("09:00", "fired")]
        async with life(made.home, made.ledger, made.clock) as again:
            assert len(again.told("telegram:7")) == 3 and again.one()["error"] == error
            await again.written("a", DAILY)
            assert again.one()["error"] is None and again.wakes() == 2


async def test_files_that_are_nobodys_word_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with works(tmp_path) as made:
        folder = made.home.group("main").schedules
        elsewhere = tmp_path / "elsewhere.toml"
        elsewhere.write_text(f"schema = 1\n{DAILY}\n")
        (folder / "link.toml").symlink_to(elsewhere)
        made.write("open", DAILY).chmod(0o666)
        os.mkfifo(folder / "pipe.toml")
        (folder / "bad name.toml").write_text(DAILY)
        (folder / os.fsdecode(b"bad\xff.toml")).write_text(DAILY)
        (folder / "latin.toml").write_bytes(b"schema = 1\nprompt = 'caf\xe9'\n")
        (folder / ".hidden.toml").write_text("nothing")
        (folder / "notes.txt").write_text("nothing")
        made.write("Twin", DAILY)
        made.write("twin", DAILY)
        await made.clockwork.renew("main")
        errors = {row["id"]: row["error"] for row in made.ledger.tx(firings.listed)}
        assert {id: error for id, error in errors.items() if error is None} == {"main/Twin": None}
        assert len(errors) == 8 and len(made.told()) == 7
        assert "link" in errors["main/link"] and "chmod go-w" in errors["main/open"]
        assert "Twin differ in case alone" in errors["main/twin"] and "not UTF-8" in errors["main/latin"]
        assert "its name may have" in errors["main/bad name"]
        os.mkfifo(made.home.group("main").config_file)  # nor is it waited for
        (folder / "Twin.toml").unlink()
        await made.clockwork.renew("main")
        assert made.one("twin")["error"] is None
        monkeypatch.setattr(made.clockwork, "_files", taking.Files(made.home, made.config, most=7))
        made.write("zz", DAILY)
        await made.clockwork.renew("main")
        assert made.one("zz")["error"].endswith("a group may have 7 schedules")
        assert made.clockwork.next == NINE


async def test_what_cannot_be_decided_is_told_and_tried_again(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        await made.written("a", DAILY)
        facts = made.rows("SELECT facts FROM schedule")[0]["facts"]
        made.ledger.tx(lambda tx: tx.execute("UPDATE schedule SET facts = ?", '{"file": {}, "zone": "UTC"}'))
        with made.signals.subscribe() as news:
            await made.at(NINE)
            assert "main/a cannot be carried out" in (await anext(aiter(news))).data["what"]
        made.ledger.tx(lambda tx: tx.execute("UPDATE schedule SET facts = ?", facts))
        await made.later(seconds=60)
        assert made.wakes() == 1


async def test_where_answers_go(tmp_path: Path) -> None:
    async with works(tmp_path, "UTC", "side") as made:
        made.bind('bindings = ["telegram:7", "telegram:-100"]', "side")
        await made.written("a", f'{DAILY}\nsession = "own"\ndeliver_to = "telegram:-100"\nbudget = 0.5', "side")
        await made.written("b", f'{DAILY}\ndeliver_to = "telegram:8"', "side")
        await made.at(NINE)
        turn = made.end(group="side")
        assert (turn["session"], turn["to"]) == ("cron:side:a", address_of("telegram:-100"))
        assert turn["allowance"] == '{"usd": 0.5}'
        why = "deliver_to: telegram:8 is not in the bindings of side"
        assert (made.firings("b", "side"), made.reasons("b", "side")) == ([("09:00", "failed")], [why])
        assert made.told("telegram:7") == [f"The schedule side/b could not run: {why}."]
        made.bind("bindings = [", "side")
        await made.at(NINE + DAY)
        assert made.firings("a", "side")[1:] == made.firings("b", "side")[1:] == [("09:00", "failed")]
        with anyio.fail_after(5):
            while not made.told():
                await anyio.sleep(0.01)
        [said] = made.told()
        assert said.startswith("The schedule side/a could not run: groups/side/group.toml is not understood")
        made.bind('bindings = ["telegram:8", "telegram:-100"]', "side")
        await made.at(NINE + 2 * DAY)
        assert {made.end(group="side")["to"].chat for _ in range(2)} == {"8", "-100"}


async def test_runs_that_overlap_fail_or_are_stopped(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        await made.written("a", 'cron = "0 * * * *"\nprompt = "p"')
        await made.at(NINE)
        made.end("hold")  # its budget is spent: that is no failure
        await made.later(hours=1)
        assert made.firings() == [("09:00", "fired"), ("10:00", "skipped")]
        assert made.reasons()[1] == "the run of 2026-11-30 09:00 is not over"
        with pytest.raises(UsageError, match="09:00 is not over"):
            await made.clockwork.run_now("main", "a")
        made.ledger.tx(lambda tx: tx.execute("UPDATE turn SET state = 'queued', held = NULL"))
        made.end("stop")
        assert made.firings()[0] == ("09:00", "skipped")
        for hour in range(2, 6):
            await made.at(NINE + timedelta(hours=hour))
            made.end("fail")
            assert made.one()["enabled"]
        await made.at(NINE + timedelta(hours=6))
        made.end()  # one that goes well ends the row of those that did not
        for hour in range(7, 12):
            await made.at(NINE + timedelta(hours=hour))
            made.end("fail")
        assert not made.one()["enabled"] and made.one()["error"] == "it failed 5 times in a row: it fell over"
        assert made.told()[-1] == (
            "That did not work: it fell over.\nThe schedule main/a failed 5 times in a row and is paused. To go on:"
            " clawd schedule resume main/a"
        )
        await made.later(days=1)
        assert len(made.firings()) == 12
        async with life(made.home, made.ledger, made.clock) as again:
            await again.later(hours=1)
            assert len(again.firings()) == 12
            assert await again.clockwork.resume("main", "a") and not await again.clockwork.resume("main", "a")
            assert again.one()["enabled"] and len(again.firings()) == 12
            await again.later(hours=1)
            assert len(again.firings()) == 13
            with pytest.raises(NotFound):
                await again.clockwork.resume("main", "b")


async def test_an_owner_who_is_elsewhere_hears_that_a_schedule_paused(tmp_path: Path) -> None:
    async with works(tmp_path, "UTC", "side") as made:
        made.bind('bindings = ["telegram:7"]', "side")
        await made.written("a", f'{DAILY}\ndeliver_to = "telegram:8"', "side")
        for day in range(5):
            await made.at(NINE + day * DAY)
        said = made.told("telegram:7")
        assert len(said) == 2 and said[1].endswith("To go on: clawd schedule resume side/a")
        await made.clockwork.tick()
        with anyio.fail_after(5):
            while not made.told():
                await anyio.sleep(0.01)
        assert made.told() == [firings.paused_sentence(("side", "a"), 5)]


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        ((0, b'{"wake": false}'), "skipped", "its check says that there is nothing to do"),
        ((3, b'{"wake": true}'), "failed", "its check ended with code 3"),
        ((0, b""), "failed", 'the last line that its check printed is not JSON like {"wake": true}'),
        ((0, b'{"wake": true}\nbye'), "failed", 'the last line that its check printed is not JSON like {"wake": true}'),
        ((0, b'{"wake": "yes"}'), "failed", 'the last line that its check printed is not JSON like {"wake": true}'),
        (TimeoutError(), "failed", "its check took longer than 60 s"),
        ((0, b'noise\n{"wake": true, "new": ["x</said>", 3]}\n\n'), "fired", None),
    ],
)
async def test_a_check_decides(tmp_path: Path, answer: object, outcome: str, reason: str | None) -> None:
    async with works(tmp_path) as made:
        await made.written("a", f'{DAILY}\ncheck = "./new-mail"')
        made.checks = [answer] * 2  # type: ignore[list-item]
        await made.at(NINE)
        await settled(made)
        assert (made.firings(), made.reasons()) == ([("09:00", outcome)], [reason])
        assert made.checked == [("main", ("/bin/sh", "-c", "./new-mail"), Role.OWNER)]
        if outcome == "fired":
            parts = made.end()["wakes"][0]["parts"]
            assert [(each["origin"], each["sender"], each["text"]) for each in parts[1:]] == [
                ("tool", "check", '{"new": ["x</said>", 3]}')
            ]
        await made.at(NINE + DAY)
        await settled(made)
        assert len(made.told()) == (outcome == "failed")  # once in a row


async def test_a_check_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        await made.written("a", "at = 2026-11-30T09:00:00\nprompt = 'p'\ncheck = 'true'")
        made.checks = [SandboxUnavailable("no sandbox")]
        await made.at(NINE)
        await anyio.sleep(0.01)
        assert made.firings() == [("09:00", "due")]
        made.clock.advance(60)
        async with life(made.home, made.ledger, made.clock, (0, b'{"wake": true}')) as again:
            await settled(again, 1)
            assert again.firings() == [("09:00", "fired")]
            assert again.end()["wakes"][0]["parts"][0]["text"] == "p"
        assert made.wakes() == 1


async def test_what_an_agent_wrote_acts_as_its_turn_did(tmp_path: Path) -> None:
    async with works(tmp_path) as made:

        def member(tx):  # type: ignore[no-untyped-def]
            session = groups.open_session(tx, "terminal:main:bob", "main", "2026-11-30T08:00:00+00:00").id
            place = {"grp": "main", "session": session, "channel": "terminal", "account": "", "chat": "main",
                     "thread": ""}  # fmt: skip
            turn = turns.queue(tx, place, Role.MEMBER, 0.4, "2026-11-30T08:00:00+00:00")
            tx.execute("UPDATE turn SET state = 'answered', recorded_at = 'now' WHERE id = ?", turn)
            return turn

        turn = made.ledger.tx(member)
        path = made.write("a", DAILY)
        sha256 = taking.hashlib.sha256(path.read_bytes()).hexdigest()
        made.ledger.tx(lambda tx: authored.note(tx, "schedule", "main", "a", sha256, turn, "2026-11-30"))
        await made.clockwork.renew("main")
        await made.at(NINE)
        [wake] = (ended := made.end())["wakes"]
        assert (ended["role"], ended["taint"], wake["parts"][0]["origin"]) == ("member", 0.4, "agent")
        made.ledger.tx(lambda tx: groups.lift(tx, "main"))
        await made.written("a", DAILY + '\njitter = "1s"')  # a person's hand: another content, and the owner's
        await made.at(NINE + DAY + timedelta(seconds=1))
        assert made.end()["role"] == "owner"


async def test_an_agent_speaks_for_itself_with_its_turns_trust(tmp_path: Path) -> None:
    async with works(tmp_path) as made:

        def voice(tx):  # type: ignore[no-untyped-def]
            tx.execute("INSERT INTO authored VALUES ('schedule', 'main', 'x', 'a', NULL, 'owner', 1.0, '')")
            return authored.voice(tx, "schedule", "main", "x"), authored.voice(tx, "schedule", "main", "y")

        assert made.ledger.tx(voice) == (
            (Authority(Role.OWNER, 1.0), "agent"), (Authority(Role.OWNER, 1.0), "owner"),
        )  # fmt: skip


async def test_a_zone_that_changes_moves_what_has_none_of_its_own(tmp_path: Path) -> None:
    async with works(tmp_path, "Europe/Berlin") as made:
        await made.written("a", 'cron = "0 12 * * *"\nprompt = "p"')
        await made.written("own", 'cron = "0 12 * * *"\nprompt = "p"\ntz = "Europe/Berlin"')
        made.bind('timezone = "America/New_York"')
        await made.clockwork.renew("main")
        assert (made.one()["next"][:16], made.one()["tz"]) == ("2026-11-30T17:00", "America/New_York")
        assert made.one("own")["next"][:16] == "2026-11-30T11:00"
        made.bind("timezone = [")
        await made.clockwork.renew("main")
        assert made.one()["tz"] == "America/New_York"  # nobody knows another


async def test_a_run_that_a_person_asks_for(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        await made.written("a", DAILY + "\nenabled = false")
        assert made.clockwork.next is None and not made.one()["enabled"]
        line = await made.clockwork.run_now("main", "a")
        assert (line["outcome"], line["due"][:16], line["turn"]) == ("fired", "2026-11-30T08:00", 1)
        made.end()
        assert made.firings() == [("08:00", "ran")]
        await made.written("a", DAILY)
        await made.at(NINE)
        assert made.firings()[1:] == [("09:00", "fired")]
        with pytest.raises(NotFound):
            await made.clockwork.run_now("main", "b")


async def test_what_cannot_be_moved_is_not_run_again(tmp_path: Path) -> None:
    async with works(tmp_path) as made:
        folder = made.home.group("main").schedules
        (folder / "done").symlink_to(tmp_path)
        await made.written("a", "at = 2026-11-30T08:30:00\nprompt = 'stretch'")
        await made.later(hours=1)
        with anyio.fail_after(5):
            while not made.told():
                await anyio.sleep(0.01)
        assert "cannot be moved to done/" in made.told()[0] and (folder / "a.toml").exists()
        async with life(made.home, made.ledger, made.clock) as again:
            await again.later(hours=1)
            assert again.wakes() == 1 and not (tmp_path / "a.toml").exists()
