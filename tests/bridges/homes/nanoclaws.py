"""NanoClaw's project folder: both generations."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bridges.homes import SECRET, database, files

FIRST = """
CREATE TABLE chats (jid TEXT PRIMARY KEY, name TEXT, last_message_time TEXT, channel TEXT, is_group INTEGER DEFAULT 0);
CREATE TABLE messages (id TEXT, chat_jid TEXT, sender TEXT, sender_name TEXT, content TEXT, timestamp TEXT,
  is_from_me INTEGER, is_bot_message INTEGER DEFAULT 0, PRIMARY KEY (id, chat_jid));
CREATE TABLE scheduled_tasks (id TEXT PRIMARY KEY, group_folder TEXT NOT NULL, chat_jid TEXT NOT NULL,
  prompt TEXT NOT NULL, schedule_type TEXT NOT NULL, schedule_value TEXT NOT NULL, next_run TEXT, last_run TEXT,
  last_result TEXT, status TEXT DEFAULT 'active', created_at TEXT NOT NULL, context_mode TEXT DEFAULT 'isolated',
  script TEXT);
CREATE TABLE sessions (group_folder TEXT PRIMARY KEY, session_id TEXT NOT NULL);
CREATE TABLE registered_groups (jid TEXT PRIMARY KEY, name TEXT NOT NULL, folder TEXT NOT NULL UNIQUE,
  trigger_pattern TEXT NOT NULL, added_at TEXT NOT NULL, container_config TEXT, requires_trigger INTEGER DEFAULT 1,
  is_main INTEGER DEFAULT 0);
"""
SECOND = """
CREATE TABLE agent_groups (id TEXT PRIMARY KEY, name TEXT NOT NULL, folder TEXT NOT NULL UNIQUE, agent_provider TEXT,
  created_at TEXT NOT NULL);
CREATE TABLE messaging_groups (id TEXT PRIMARY KEY, channel_type TEXT NOT NULL, platform_id TEXT NOT NULL,
  instance TEXT NOT NULL, name TEXT, is_group INTEGER DEFAULT 0, unknown_sender_policy TEXT NOT NULL DEFAULT 'strict',
  created_at TEXT NOT NULL);
CREATE TABLE messaging_group_agents (id TEXT PRIMARY KEY, messaging_group_id TEXT, agent_group_id TEXT);
CREATE TABLE sessions (id TEXT PRIMARY KEY, agent_group_id TEXT, messaging_group_id TEXT, thread_id TEXT);
CREATE TABLE user_roles (user_id TEXT, role TEXT, agent_group_id TEXT);
CREATE TABLE container_configs (agent_group_id TEXT PRIMARY KEY, cli_scope TEXT, additional_mounts TEXT, env TEXT);
"""
INBOUND = """
CREATE TABLE messages_in (id TEXT PRIMARY KEY, seq INTEGER UNIQUE, kind TEXT NOT NULL, timestamp TEXT NOT NULL,
  status TEXT DEFAULT 'pending', process_after TEXT, recurrence TEXT, series_id TEXT, content TEXT NOT NULL);
"""
OUTBOUND = """
CREATE TABLE messages_out (id TEXT PRIMARY KEY, seq INTEGER UNIQUE, timestamp TEXT NOT NULL, kind TEXT NOT NULL,
  content TEXT NOT NULL);
"""
BROWSER = (
    "---\nname: agent-browser\ndescription: Opens pages. Use it for the web.\n"
    "allowed-tools: Bash(agent-browser:*)\n---\n\nOpen a page.\n"
)
PASTA = "---\nname: Pasta Maker\ndescription: Cooks.\n---\nCook.\n"


def nanoclaw(root: Path) -> Path:
    """The first generation: a main chat and a family's."""
    home = files(
        root,
        {
            "package.json": "{}",
            ".env": f'ANTHROPIC_API_KEY={SECRET}\nexport ASSISTANT_NAME="Andy"\nEMPTY=\n# OLD_KEY=x\n',
            "data/env/env": f"CLAUDE_CODE_OAUTH_TOKEN={SECRET}\n",
            "store/auth/creds.json": json.dumps({"noiseKey": SECRET}),
            "groups/global/CLAUDE.md": "# Andy\n\nBe brief.\n",
            "groups/whatsapp_main/CLAUDE.md": "# Main\n\nYou may manage everything.\n",
            "groups/whatsapp_main/logs/container-1.log": SECRET,
            "groups/whatsapp_main/budget.xlsx": b"PK\0",
            "groups/family/CLAUDE.md": "# Family\n\nDinner is at seven.\n",
            "groups/family/recipes.md": "Lasagne: two hours.\n",
            "groups/family/.env": f"SPOTIFY_SECRET={SECRET}\n",
            "groups/family/conversations/2026-06-01-chat.md": "# Chat\n",
            "container/skills/agent-browser/SKILL.md": BROWSER,
            "container/skills/daily-routine.md": "# Routine\n\nWater the plants first.\n",
            ".claude/skills/add-telegram/SKILL.md": "---\nname: add-telegram\ndescription: x\n---\nx\n",
            "data/sessions/family/.claude/skills/agent-browser/SKILL.md": BROWSER,
            "data/sessions/family/.claude/skills/Pasta Maker/SKILL.md": PASTA,
            "data/sessions/family/.claude/projects/-workspace/1.jsonl": "{}",
            ".config/nanoclaw/sender-allowlist.json": json.dumps(
                {
                    "default": {"allow": "*", "mode": "trigger"},
                    "chats": {"120@g.us": {"allow": ["4917"], "mode": "drop"}},
                }
            ),
        },
    )
    tasks = [
        (
            "task-1",
            "family",
            "120@g.us",
            "Say what is for dinner",
            "cron",
            "0 17 * * 1-5",
            "",
            "",
            "",
            "active",
            "",
            "group",
            None,
        ),
        (
            "task-2",
            "whatsapp_main",
            "49@s",
            "Look at the mail",
            "interval",
            "3600000",
            "",
            "",
            "",
            "paused",
            "",
            "isolated",
            None,
        ),
        (
            "task-3",
            "family",
            "120@g.us",
            "Remind us of the trip",
            "once",
            "2026-12-24T09:00:00",
            "",
            "",
            "",
            "active",
            "",
            "group",
            None,
        ),
        (
            "task-4",
            "family",
            "120@g.us",
            "Long gone",
            "once",
            "2024-12-25T09:00:00Z",
            "",
            "",
            "",
            "active",
            "",
            "group",
            None,
        ),
        ("task-5", "family", "120@g.us", "Done", "cron", "0 1 * * *", "", "", "", "completed", "", "group", None),
        (
            "task-6",
            "family",
            "120@g.us",
            "Only when it rains",
            "cron",
            "*/30 * * * *",
            "",
            "",
            "",
            "active",
            "",
            "group",
            "exit 0",
        ),
        ("task-7", "../../etc", "120@g.us", "Nobody's", "cron", "0 1 * * *", "", "", "", "active", "", "group", None),
    ]
    database(
        home / "store/messages.db",
        FIRST,
        {
            "registered_groups": [
                ("49@s", "Me", "whatsapp_main", "@Andy", "2026-01-01", None, 0, 1),
                (
                    "120@g.us",
                    "Family",
                    "family",
                    "@Andy",
                    "2026-01-02",
                    '{"additionalMounts":[{"hostPath":"~/photos"}]}',
                    1,
                    0,
                ),
            ],
            "messages": [
                ("a", "49@s", "49@s", "Me", "what is up?", "2026-06-30T08:00:00.000Z", 1, 0),
                ("b", "49@s", "49@s", "Me", "Andy: the sky", "2026-06-30T08:00:05.000Z", 1, 0),
                ("c", "120@g.us", "4917@s", "Ann", "@Andy dinner?", "2026-06-30T17:00:00.000Z", 0, 0),
                ("d", "120@g.us", "49@s", "Andy", "Lasagne", "2026-06-30T17:00:09.000Z", 1, 1),
                ("e", "120@g.us", "4918@s", "Bob", "", "2026-06-30T17:01:00.000Z", 0, 0),
                ("f", "other@g.us", "1@s", "X", "hello", "2026-06-30T17:01:00.000Z", 0, 0),
            ],
            "scheduled_tasks": tasks,
        },
    )
    return home


def nanoclaw2(root: Path) -> Path:
    """The second generation: one agent group with one session, and a task."""
    home = files(
        root,
        {
            ".env": f"SLACK_BOT_TOKEN={SECRET}\n",
            "groups/dm-ann/CLAUDE.md": "<!-- Composed at spawn - do not edit. -->\n\nThe runtime.\n",
            "groups/dm-ann/instructions.prepend.md": "You are Nora.\n",
            "groups/dm-ann/memory/index.md": "# Core Memory\n\nAnn likes tea.\n",
            "groups/dm-ann/memory/people/ann.md": "---\ntype: person\n---\n\nAnn, a friend.\n",
            "groups/dm-ann/memory/2026-06-30.md": "Tea at four.\n",
            "groups/dm-ann/container.json": json.dumps({"mcpServers": {"x": {"env": {"X_TOKEN": SECRET}}}}),
        },
    )
    database(
        home / "data/v2.db",
        SECOND,
        {
            "agent_groups": [("ag-1", "Nora", "dm-ann", None, "2026-05-01")],
            "messaging_groups": [
                ("mg-1", "telegram", "telegram:77", "telegram", "Ann", 0, "request_approval", "2026-05-01")
            ],
            "messaging_group_agents": [("w-1", "mg-1", "ag-1")],
            "sessions": [("sess-1", "ag-1", "mg-1", None)],
            "user_roles": [("telegram:77", "owner", None)],
            "container_configs": [("ag-1", "global", '[{"hostPath": "~/notes"}]', json.dumps({"KEY": SECRET}))],
        },
    )
    at = "2026-06-30T10:00:0{}.000Z"
    database(
        home / "data/v2-sessions/ag-1/sess-1/inbound.db",
        INBOUND,
        {
            "messages_in": [
                (
                    "1",
                    2,
                    "chat",
                    at.format(0),
                    "completed",
                    None,
                    None,
                    None,
                    json.dumps({"text": "hi", "sender": "Ann"}),
                ),
                (
                    *("2", 4, "chat-sdk", at.format(4), "completed", None, None, None),
                    json.dumps({"text": "and now?", "author": {"fullName": "Ann", "isMe": False}}),
                ),
                (
                    *("t1", 6, "task", "2026-06-30 10:00:00", "pending", "2026-07-02 06:00:00", "0 8 * * 0", "series"),
                    json.dumps({"prompt": "Tidy the memory", "script": None}),
                ),
                (
                    "t0",
                    8,
                    "task",
                    "2026-06-23 10:00:00",
                    "completed",
                    None,
                    "0 8 * * 0",
                    "series",
                    json.dumps({"prompt": "old"}),
                ),
                (
                    *("t2", 10, "task", "2026-06-30 10:00:00", "paused", "2026-08-01T06:00:00Z", None, None),
                    json.dumps({"prompt": "Call Dana"}),
                ),
            ]
        },
    )
    database(
        home / "data/v2-sessions/ag-1/sess-1/outbound.db",
        OUTBOUND,
        {
            "messages_out": [
                ("3", 1, "2026-06-30 10:00:02", "chat", json.dumps({"text": "hello Ann"})),
                ("4", 3, "2026-06-30 10:00:03", "chat", json.dumps({"operation": "reaction", "emoji": "x"})),
                ("5", 5, "2026-06-30 10:00:06", "chat-sdk", json.dumps({"markdown": "**tea**"})),
            ]
        },
    )
    return home
