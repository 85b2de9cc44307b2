from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bridges import nanoclaw
from clawd.errors import UsageError
from clawd.schedules.file import parse_schedule
from clawd.sessions.format import parse
from tests.bridges.homes import NOW, SECRET, files, item, places, text, told, why
from tests.bridges.homes.nanoclaws import nanoclaw as first_home
from tests.bridges.homes.nanoclaws import nanoclaw2 as second_home


def _said(home_text: str) -> list[tuple[str, str]]:
    return [(block.role, block.content) for block in parse(home_text.encode()).blocks]


def test_the_first_generation_comes_group_by_group(tmp_path: Path) -> None:
    brought = nanoclaw.read(first_home(tmp_path / "nanoclaw"), None, now=NOW)

    assert places(brought) == [
        ("instructions", "family", "CLAUDE.md"),
        ("note", "family", "memory/notes/recipes.md"),
        ("schedule", "family", "schedules/only-when-it-rains.toml"),
        ("schedule", "family", "schedules/remind-us-of-the-trip.toml"),
        ("schedule", "family", "schedules/say-what-is-for-dinner.toml"),
        ("session", "family", "sessions/nanoclaw_120_g_us.md"),
        ("skill", "family", "skills/pasta-maker"),
        ("instructions", "main", "CLAUDE.md"),
        ("schedule", "main", "schedules/look-at-the-mail.toml"),
        ("session", "main", "sessions/nanoclaw_49_s.md"),
        ("skill", "main", "skills/agent-browser"),
        ("skill", "main", "skills/daily-routine"),
    ]
    assert text(brought, "CLAUDE.md", "family") == (
        "# CLAUDE.md\n\n<!-- from nanoclaw: groups/global/CLAUDE.md -->\n\n# Andy\n\nBe brief.\n\n"
        "# CLAUDE.md\n\n<!-- from nanoclaw: groups/family/CLAUDE.md -->\n\n# Family\n\nDinner is at seven.\n"
    )
    assert item(brought, "CLAUDE.md", "family").changed == (
        "what all of its groups read stands in the instructions of each",
        "2 files are sections of one",
    )
    assert text(brought, "memory/notes/recipes.md", "family") == "Lasagne: two hours.\n"


def test_its_tasks_become_schedules(tmp_path: Path) -> None:
    brought = nanoclaw.read(first_home(tmp_path), None, now=NOW)

    dinner = parse_schedule(text(brought, "schedules/say-what-is-for-dinner.toml", "family"), "dinner")
    assert (dinner.cron, dinner.prompt, dinner.session, dinner.enabled) == (
        "0 17 * * 1-5",
        "Say what is for dinner",
        "group",
        True,
    )
    mail = parse_schedule(text(brought, "schedules/look-at-the-mail.toml"), "mail")
    assert (mail.every, mail.session, mail.enabled) == ("1h", "own", False)
    trip = parse_schedule(text(brought, "schedules/remind-us-of-the-trip.toml", "family"), "trip")
    assert trip.at == "2026-12-24T09:00:00"
    assert item(brought, "schedules/remind-us-of-the-trip.toml", "family").changed == (
        "it names no time zone: the group's holds",
    )
    rain = item(brought, "schedules/only-when-it-rains.toml", "family")
    assert not parse_schedule(rain.files[""].decode(), "rain").enabled
    assert "a script decided" in rain.changed[-1]
    assert why(brought, "store/messages.db#task-4") == "it was due once, and that is past"
    assert why(brought, "store/messages.db#task-5") == "it is completed"
    assert why(brought, "store/messages.db#task-7") == "there is no group ../../etc"


def test_its_messages_become_sessions(tmp_path: Path) -> None:
    brought = nanoclaw.read(first_home(tmp_path), None, now=NOW)

    family = parse(item(brought, "sessions/nanoclaw_120_g_us.md", "family").files[""])
    assert family.session == "nanoclaw:120@g.us"
    assert [(block.role, block.content) for block in family.blocks] == [
        ("user", "@Andy dinner?"),
        ("assistant", "Lasagne"),
    ]
    assert family.blocks[0].meta == {"source": "nanoclaw", "from": "member", "name": "Ann"}
    assert family.blocks[1].meta == {"source": "nanoclaw"}
    main = parse(item(brought, "sessions/nanoclaw_49_s.md").files[""])
    assert [(block.role, block.content) for block in main.blocks] == [
        ("user", "what is up?"),
        ("assistant", "Andy: the sky"),
    ]
    assert main.blocks[0].meta == {"source": "nanoclaw"}
    assert why(brought, "store/messages.db#other@g.us") == "this chat belongs to no group"


def test_what_is_left_is_told_with_why(tmp_path: Path) -> None:
    brought = nanoclaw.read(first_home(tmp_path), None, now=NOW)

    assert why(brought, "groups/whatsapp_main/logs/").startswith("logs are not brought")
    assert why(brought, "groups/whatsapp_main/budget.xlsx").startswith("it is of the agent's work")
    assert why(brought, ".claude/skills/") == "they change NanoClaw's own program"
    assert why(brought, "data/sessions/family/.claude/projects/").startswith("these are transcripts of Claude Code")
    assert item(brought, "skills/pasta-maker", "family").changed == ("its name is pasta-maker instead of Pasta Maker",)
    assert item(brought, "skills/agent-browser").changed == ("all of its groups had it",)


def test_keys_are_named_chats_and_allowlists_told_and_no_value_of_a_key_leaves_it(tmp_path: Path) -> None:
    home = first_home(tmp_path / "nanoclaw")
    files(
        tmp_path,
        {".config/nanoclaw/mount-allowlist.json": '{"allowedRoots": [{"path": "~/photos", "allowReadWrite": true}]}'},
    )

    brought = nanoclaw.read(home, None, now=NOW)

    assert brought.keys == [
        "SPOTIFY_SECRET (groups/family/.env)",
        "ANTHROPIC_API_KEY (.env)",
        "ASSISTANT_NAME (.env)",
        "CLAUDE_CODE_OAUTH_TOKEN (data/env/env)",
        "the link to WhatsApp (store/auth)",
    ]
    assert brought.allowed == [
        "the group family had ~/photos mounted",
        "sender-allowlist.json: in any other chat: everybody; others: trigger",
        "sender-allowlist.json: in 120@g.us: 4917; others: drop",
        "mount-allowlist.json: mounts beneath ~/photos: read and write",
    ]
    assert brought.chats == [
        "what was whatsapp_main there is the group main",
        "120@g.us (Family) belonged to groups/family, the group family",
        "49@s (Me) belonged to groups/whatsapp_main, the group main",
    ]
    assert SECRET not in told(brought)


def test_the_second_generation(tmp_path: Path) -> None:
    brought = nanoclaw.read(second_home(tmp_path), None, now=NOW)

    assert places(brought) == [
        ("instructions", "main", "CLAUDE.md"),
        ("day", "main", "memory/2026-06-30.md"),
        ("note", "main", "memory/notes/index.md"),
        ("note", "main", "memory/notes/people-ann.md"),
        ("schedule", "main", "schedules/call-dana.toml"),
        ("schedule", "main", "schedules/tidy-the-memory.toml"),
        ("session", "main", "sessions/nanoclaw_telegram_77.md"),
    ]
    assert text(brought, "CLAUDE.md") == "You are Nora.\n"
    assert _said(text(brought, "sessions/nanoclaw_telegram_77.md")) == [
        ("user", "hi"),
        ("assistant", "hello Ann"),
        ("user", "and now?"),
        ("assistant", "**tea**"),
    ]
    tidy = parse_schedule(text(brought, "schedules/tidy-the-memory.toml"), "tidy")
    assert (tidy.cron, tidy.session, tidy.enabled) == ("0 8 * * 0", "own", True)
    call = parse_schedule(text(brought, "schedules/call-dana.toml"), "call")
    assert (call.at, call.enabled) == ("2026-08-01T06:00:00+00:00", False)
    assert brought.allowed == [
        "the group main had ~/notes mounted",
        "telegram:77 was owner",
        "in telegram:77 strangers met the policy request_approval",
    ]
    assert "mcpServers.x.env.X_TOKEN (groups/dm-ann/container.json)" in brought.keys
    assert "made anew" in why(brought, "groups/dm-ann/CLAUDE.md")
    assert SECRET not in told(brought)


def test_a_group_takes_all_of_it(tmp_path: Path) -> None:
    brought = nanoclaw.read(first_home(tmp_path), "work", now=NOW)

    assert {each.group for each in brought.items} == {"work"}
    assert len({each.to for each in brought.items}) == len(brought.items)
    assert text(brought, "CLAUDE.md", "work").count("<!-- from nanoclaw: ") == 4


@pytest.mark.parametrize("home", [first_home, second_home])
def test_reading_twice_gives_the_same(tmp_path: Path, home) -> None:  # type: ignore[no-untyped-def]
    made = home(tmp_path)
    before = sorted(path.name for path in made.rglob("*"))
    assert nanoclaw.read(made, None, now=NOW) == nanoclaw.read(made, None, now=NOW)
    assert sorted(path.name for path in made.rglob("*")) == before


def test_names_of_groups_are_made_valid(tmp_path: Path) -> None:
    files(tmp_path, {f"groups/{name}/CLAUDE.md": name for name in ("main", "café", "Caf", "all", "-", "a b")})

    brought = nanoclaw.read(tmp_path, None, now=NOW)

    assert {each.group: each.files[""].decode() for each in brought.items} == {
        "main": "main",
        "Caf": "Caf",
        "caf-2": "café",
        "nanoclaw-all": "all",
        "nanoclaw": "-",
        "a-b": "a b",
    }
    assert "what was café there is the group caf-2" in brought.chats


def test_what_is_no_home_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing of NanoClaw"):
        nanoclaw.read(tmp_path, None)
    with pytest.raises(UsageError, match="no folder"):
        nanoclaw.read(tmp_path / "nowhere", None)
    with pytest.raises(UsageError, match="group's name"):
        nanoclaw.read(first_home(tmp_path), "../x")
