from __future__ import annotations

from pathlib import Path

import pytest

from clawd.bridges import openclaw
from clawd.errors import UsageError
from clawd.schedules.file import parse_schedule
from clawd.sessions.format import parse
from clawd.skills import skill
from tests.bridges.homes import NOW, SECRET, files, item, places, text, told, why
from tests.bridges.homes.openclaws import openclaw as state
from tests.bridges.homes.openclaws import openclaw_of_databases, workspace


def test_a_state_directory_comes_agent_by_agent(tmp_path: Path) -> None:
    brought = openclaw.read(state(tmp_path), None, now=NOW)

    assert places(brought) == [
        ("instructions", "main", "CLAUDE.md"),
        ("day", "main", "memory/2026-06-29.md"),
        ("note", "main", "memory/notes/2026-06-29-bread.md"),
        ("note", "main", "memory/notes/memory.md"),
        ("schedule", "main", "schedules/morning-brief.toml"),
        ("schedule", "main", "schedules/reminder.toml"),
        ("schedule", "main", "schedules/six.toml"),
        ("session", "main", "sessions/openclaw_agent_main_main.md"),
        ("session", "main", "sessions/openclaw_s-0.md"),
        ("skill", "main", "skills/broken"),
        ("skill", "main", "skills/github"),
        ("skill", "main", "skills/lights"),
        ("skill", "main", "skills/weather"),
        ("profile", "main", "user_profile.md"),
        ("instructions", "work", "CLAUDE.md"),
        ("schedule", "work", "schedules/poke.toml"),
        ("session", "work", "sessions/openclaw_agent_work_slack_group_C7.md"),
    ]
    assert text(brought, "CLAUDE.md").startswith(
        "# AGENTS.md\n\n<!-- from openclaw: workspace/AGENTS.md -->\n\n# AGENTS.md\n\nRead SOUL.md first.\n\n"
        "# SOUL.md\n\n<!-- from openclaw: workspace/SOUL.md -->\n\nBe kind.\n"
    )
    assert text(brought, "CLAUDE.md", "work") == "Work hard.\n"
    assert text(brought, "user_profile.md") == "Ann, of Berlin.\n"
    assert text(brought, "memory/notes/memory.md") == "Ann likes tea.\n\n## Work\n\nAt a bakery.\n"
    assert text(brought, "memory/2026-06-29.md") == "Baked bread.\n"


def test_its_jobs_become_schedules(tmp_path: Path) -> None:
    brought = openclaw.read(state(tmp_path), None, now=NOW)

    brief = parse_schedule(text(brought, "schedules/morning-brief.toml"), "brief")
    assert (brief.cron, brief.tz, brief.session, brief.enabled) == ("0 7 * * *", "America/Los_Angeles", "own", True)
    assert item(brought, "schedules/morning-brief.toml").changed == (
        "its answers went to slack channel:C1: they go to the group's first chat",
    )
    poke = parse_schedule(text(brought, "schedules/poke.toml", "work"), "poke")
    assert (poke.every, poke.prompt, poke.session, poke.enabled) == ("1m", "Look at the queue", "group", False)
    assert item(brought, "schedules/poke.toml", "work").changed == ("it ran every 20 s: it runs once a minute",)
    assert parse_schedule(text(brought, "schedules/reminder.toml"), "it").at == "2026-08-01T16:00:00+00:00"
    assert "an address on the web" in item(brought, "schedules/reminder.toml").changed[0]
    assert parse_schedule(text(brought, "schedules/six.toml"), "it").cron == "30 6 * * 1"
    left = {each: why(brought, f"cron/jobs.json#{each}") for each in ("j4", "j6", "j7", "j8", "j9", "j10")}
    assert left == {
        "j4": "it was due once, and that is past",
        "j6": "its cron line counts seconds",
        "j7": "it runs a command, and asks no agent",
        "j8": "it is not due by a clock",
        "j9": "Mars is no time zone",
        "j10": "it does not say what is to be done",
    }


@pytest.mark.parametrize("home", [state, openclaw_of_databases])
def test_its_transcripts_become_sessions_with_calls_beside_results(tmp_path: Path, home) -> None:  # type: ignore[no-untyped-def]
    brought = openclaw.read(home(tmp_path), None, now=NOW)

    found = item(brought, "sessions/openclaw_agent_main_main.md")
    session = parse(found.files[""])
    assert (session.session, session.problems) == ("openclaw:agent:main:main", [])
    assert [(block.role, block.content, block.tool_call_id) for block in session.blocks] == [
        ("user", "list the files", None),
        ("assistant", "I look.", None),
        ("tool", "a.txt", "c1"),
        ("tool", "[no result was given]", "c2"),
        ("assistant", "One file.\n\n[image]", None),
    ]
    assert [call["function"] for call in session.blocks[1].tool_calls] == [
        {"name": "exec", "arguments": '{"command": "ls"}'},
        {"name": "exec", "arguments": '{"command": "pwd"}'},
    ]
    assert found.changed == ("a line of it cannot be read", "a result of no known call is left out")
    assert {block.meta["source"] for block in session.blocks} == {"openclaw"}
    assert "from" not in session.blocks[0].meta


def test_who_speaks_in_a_group_is_no_owner(tmp_path: Path) -> None:
    brought = openclaw.read(state(tmp_path), None, now=NOW)

    (block,) = parse(item(brought, "sessions/openclaw_agent_work_slack_group_C7.md", "work").files[""]).blocks
    assert block.meta == {"source": "openclaw", "from": "member"}


def test_jobs_of_a_database(tmp_path: Path) -> None:
    brought = openclaw.read(openclaw_of_databases(tmp_path), None, now=NOW)

    brief = parse_schedule(text(brought, "schedules/brief.toml"), "brief")
    assert (brief.cron, brief.tz, brief.prompt, brief.enabled) == ("0 7 * * *", "UTC", "Sum up.", True)


def test_its_skills_load_and_what_they_would_install_is_told(tmp_path: Path) -> None:
    brought = openclaw.read(state(tmp_path / "home"), None, now=NOW)

    loaded = {}
    for found in (each for each in brought.items if each.kind == "skill"):
        folder = tmp_path / found.to.rpartition("/")[2]
        files(folder, found.files)
        loaded[folder.name] = skill.load(folder, shared=False)
    assert {name: each.errors for name, each in loaded.items()} == dict.fromkeys(
        ("broken", "github", "lights", "weather"), ()
    )
    assert loaded["broken"].description == "Does a thing."
    assert loaded["lights"].description == "Turns lights on."
    github = item(brought, "skills/github")
    assert sorted(github.files) == ["SKILL.md", "scripts/run.sh"]
    assert github.changed == (
        "it needs programs that the sandbox may not have: gh",
        "it would have installed gh: nothing is installed",
    )
    assert item(brought, "skills/broken").changed[0].startswith("SKILL.md does not begin with a line ---")
    assert item(brought, "skills/weather").changed == ("all its agents had it",)
    assert why(brought, "workspace/skills/github/config.json") == "it holds keys: enter them anew"


def test_the_rest_is_left_with_why(tmp_path: Path) -> None:
    brought = openclaw.read(state(tmp_path), None, now=NOW)

    assert "clawd groups set main heartbeat.hours 9-18" in why(brought, "workspace/HEARTBEAT.md")
    assert why(brought, "workspace-work/HEARTBEAT.md") == "there is nothing on its checklist"
    assert why(brought, "workspace/BOOTSTRAP.md") == "it is the ritual of a first start"
    assert why(brought, "workspace/memory/index.sqlite") == "only Markdown is brought of its memory"
    assert why(brought, "workspace/canvas/") == "OpenClaw reads it on demand alone"
    assert why(brought, "~/elsewhere").endswith("clawd bridge import openclaw '~/elsewhere' --group far")
    assert why(brought, "agents/main/sessions/s-2.jsonl.deleted.1") == "it is put aside, or no conversation"
    assert why(brought, "logs/") == "it is of its program's own use"


def test_keys_are_named_and_no_value_leaves_it(tmp_path: Path) -> None:
    brought = openclaw.read(state(tmp_path), None, now=NOW)

    assert set(brought.keys) == {
        "channels.telegram.botToken (openclaw.json)",
        "channels.slack.accounts.team.appToken (openclaw.json)",
        "env.OPENROUTER_API_KEY (openclaw.json)",
        "env.vars.GROQ (openclaw.json)",
        "gateway.auth.token (openclaw.json)",
        "skills.entries.github.apiKey (openclaw.json)",
        "skills.entries.github.env.GH_TOKEN (openclaw.json)",
        "GH_TOKEN (workspace/skills/github/.env)",
        "GH_TOKEN (skill github)",
        "apiKey (workspace/skills/github/config.json)",
        "BRAVE_API_KEY (.env)",
        "a credential (credentials/whatsapp/default/creds.json)",
        "anthropic:default (agents/main/agent/auth-profiles.json)",
    }
    assert brought.allowed == [
        "channels.telegram.dmPolicy is pairing",
        "channels.telegram.allowFrom: tg:77, 88",
        "telegram.allowFrom: 99",
    ]
    assert "slack group C7 belonged to work, the group work" in brought.chats
    assert SECRET not in told(brought)


def test_a_workspace_alone_is_for_main_or_the_group(tmp_path: Path) -> None:
    home = workspace(tmp_path)

    assert {each.group for each in openclaw.read(home, None, now=NOW).items} == {"main"}
    brought = openclaw.read(home, "ann", now=NOW)
    assert {each.group for each in brought.items} == {"ann"}
    assert "<!-- from openclaw: AGENTS.md -->" in text(brought, "CLAUDE.md", "ann")
    assert "groups/ann/HEARTBEAT.md" in why(brought, "HEARTBEAT.md")


@pytest.mark.parametrize("home", [state, openclaw_of_databases, workspace])
def test_reading_twice_gives_the_same(tmp_path: Path, home) -> None:  # type: ignore[no-untyped-def]
    made = home(tmp_path)
    assert openclaw.read(made, None, now=NOW) == openclaw.read(made, None, now=NOW)


@pytest.mark.parametrize("name", ["openclaw.json", "clawdbot.json", "moltbot.json"])
def test_older_names_of_its_config(tmp_path: Path, name: str) -> None:
    files(
        tmp_path,
        {name: "{agents: {list: [{id: 'molty', default: true}]}}", "agents/main/x": "", "workspace/SOUL.md": "s"},
    )

    brought = openclaw.read(tmp_path, None, now=NOW)

    assert places(brought) == [("instructions", "main", "CLAUDE.md")]
    assert brought.chats == ["what was molty there is the group main", "what was main there is the group main-2"]


def test_keys_of_what_its_config_includes(tmp_path: Path) -> None:
    config = "{channels: {$include: ['./channels.json5', '../out.json5', '~/.openclaw/more.json5']}, $include: {}}"
    there = {"channels.json5": f"{{telegram: {{botToken: '{SECRET}'}}}}", "more.json5": f"{{apiKey: '{SECRET}'}}"}
    home = files(tmp_path / "home", {"openclaw.json": config, "workspace/SOUL.md": "s", **there})
    files(tmp_path, {"out.json5": "{outKey: 'x'}"})

    brought = openclaw.read(home, None, now=NOW)

    assert brought.keys == ["telegram.botToken (channels.json5)", "apiKey (more.json5)"]
    assert SECRET not in told(brought)


def test_what_is_no_home_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing of OpenClaw"):
        openclaw.read(files(tmp_path, {"README.md": "x"}), None)
