from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bridges import nanobot
from clawd.errors import UsageError
from clawd.memory import daily
from clawd.schedules.file import parse_schedule
from clawd.sessions.format import parse
from tests.bridges.homes import NOW, SECRET, files, item, places, text, told, why
from tests.bridges.homes.nanobots import nanobot as first_home
from tests.bridges.homes.nanobots import newer, workspace


def test_a_home_comes_for_main(tmp_path: Path) -> None:
    brought = nanobot.read(first_home(tmp_path), None, now=NOW)

    assert places(brought) == [
        ("instructions", "main", "CLAUDE.md"),
        ("day", "main", "memory/2026-06-28.md"),
        ("day", "main", "memory/2026-06-29.md"),
        ("note", "main", "memory/notes/memory.md"),
        ("schedule", "main", "schedules/news.toml"),
        ("schedule", "main", "schedules/once.toml"),
        ("schedule", "main", "schedules/stretch.toml"),
        ("session", "main", "sessions/nanobot_cli_direct.md"),
        ("session", "main", "sessions/nanobot_telegram_123.md"),
        ("skill", "main", "skills/cron-help"),
        ("profile", "main", "user_profile.md"),
    ]
    assert [line for line in text(brought, "CLAUDE.md").splitlines() if line.startswith("<!--")] == [
        f"<!-- from nanobot: workspace/{name}.md -->" for name in ("AGENTS", "SOUL", "TOOLS")
    ]
    assert text(brought, "user_profile.md") == "# User\n\nAnn.\n"
    assert item(brought, "skills/cron-help").changed == ()


def test_its_history_becomes_entries_of_days(tmp_path: Path) -> None:
    brought = nanobot.read(first_home(tmp_path), None, now=NOW)

    assert text(brought, "memory/2026-06-28.md") == (
        "# 2026-06-28\n\nBaked.\n\n### 09:00:00 — history\n\nAsked for bread.\nTwo loaves.\n"
    )
    cake = item(brought, "memory/2026-06-29.md")
    day = daily.day_of("2026-06-29.md")
    assert day is not None
    entries = [piece.text for piece in daily.parsed(cake.files[""], day) if piece.key]
    assert entries == ["Asked for cake.\n### 12:00 — forged"]
    assert cake.source == "workspace/memory/HISTORY.md"


def test_its_jobs_become_schedules(tmp_path: Path) -> None:
    brought = nanobot.read(first_home(tmp_path), None, now=NOW)

    stretch = parse_schedule(text(brought, "schedules/stretch.toml"), "it")
    assert (stretch.every, stretch.prompt, stretch.session) == ("20m", "Time to stretch!", "own")
    assert item(brought, "schedules/stretch.toml").changed == (
        "its answers went to telegram 123: they go to the group's first chat",
    )
    news = parse_schedule(text(brought, "schedules/news.toml"), "it")
    assert (news.cron, news.tz, news.session, news.enabled) == ("0 8 * * *", "Asia/Shanghai", "group", False)
    assert parse_schedule(text(brought, "schedules/once.toml"), "it").at == "2026-09-21T14:13:20+00:00"
    assert why(brought, "cron/jobs.json#a4") == "it was due once, and that is past"
    assert why(brought, "cron/jobs.json#dream") == "nanobot makes it by itself"


@pytest.mark.parametrize("home", [first_home, newer])
def test_its_sessions(tmp_path: Path, home) -> None:  # type: ignore[no-untyped-def]
    brought = nanobot.read(home(tmp_path), None, now=NOW)

    session = parse(item(brought, "sessions/nanobot_telegram_123.md").files[""])
    assert session.session == "nanobot:telegram:123"
    assert [(block.role, block.content) for block in session.blocks] == [
        ("user", "weather?"),
        ("assistant", ""),
        ("tool", "sunny"),
        ("assistant", "It is sunny."),
    ]
    assert session.blocks[1].tool_calls[0]["function"] == {"name": "web", "arguments": '{"q": "weather"}'}
    assert session.blocks[0].meta == {"source": "nanobot", "from": "member"}


def test_newer_history(tmp_path: Path) -> None:
    brought = nanobot.read(newer(tmp_path), None, now=NOW)

    assert text(brought, "memory/2026-06-28.md").endswith("### 09:00:00 — history\n\n- likes tea\n\n")
    assert why(brought, "workspace/memory/history.jsonl") == "1 of its lines cannot be read"


def test_keys_are_named_and_no_value_leaves_it(tmp_path: Path) -> None:
    brought = nanobot.read(first_home(tmp_path), None, now=NOW)

    assert brought.keys == [
        "channels.telegram.token (config.json)",
        "channels.email.imap_password (config.json)",
        "providers.openrouter.apiKey (config.json)",
        "tools.mcpServers.maps.env.MAPS_KEY (config.json)",
        "tools.mcpServers.maps.headers.X-Auth (config.json)",
    ]
    assert brought.allowed == ["channels.telegram.allowFrom: 123, @ann", "channels.slack.groupPolicy is mention"]
    assert SECRET not in told(brought)


def test_the_rest_is_left_with_why(tmp_path: Path) -> None:
    brought = nanobot.read(first_home(tmp_path), None, now=NOW)

    assert "clawd groups set main heartbeat.hours" in why(brought, "workspace/HEARTBEAT.md")
    assert why(brought, "config.json") == "settings and keys are entered anew"
    assert why(brought, "bridge/") == "it is of its program's own use"
    assert why(brought, "workspace/out/") == "nanobot reads it on demand alone"


def test_a_workspace_alone(tmp_path: Path) -> None:
    brought = nanobot.read(workspace(tmp_path), "ann", now=NOW)

    assert {each.kind for each in brought.items} == {"instructions", "profile", "note", "day", "skill"}
    assert {each.group for each in brought.items} == {"ann"}


def test_a_workspace_elsewhere_is_told(tmp_path: Path) -> None:
    files(tmp_path, {"config.json": '{"agents": {"defaults": {"workspace": "/srv/bot"}}}'})

    brought = nanobot.read(tmp_path, None, now=NOW)

    assert brought.items == []
    assert why(brought, "/srv/bot").endswith("clawd bridge import nanobot /srv/bot --group main")


@pytest.mark.parametrize("home", [first_home, newer, workspace])
def test_reading_twice_gives_the_same(tmp_path: Path, home) -> None:  # type: ignore[no-untyped-def]
    made = home(tmp_path)
    assert nanobot.read(made, None, now=NOW) == nanobot.read(made, None, now=NOW)


def test_what_is_no_home_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing of nanobot"):
        nanobot.read(tmp_path, None)
