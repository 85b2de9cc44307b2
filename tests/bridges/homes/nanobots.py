"""nanobot's home, of its first versions and of newer ones."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bridges.homes import SECRET, database, files

CONFIG = {
    "agents": {"defaults": {"workspace": "~/.nanobot/workspace", "model": "anthropic/claude", "maxTokens": 8192}},
    "channels": {
        "telegram": {"enabled": True, "token": SECRET, "allowFrom": ["123", "@ann"]},
        "email": {"imap_password": SECRET, "imapUsername": "ann"},
        "slack": {"botToken": "", "groupPolicy": "mention"},
    },
    "providers": {"openrouter": {"apiKey": SECRET}, "groq": {"apiKey": ""}},
    "tools": {"mcpServers": {"maps": {"env": {"MAPS_KEY": SECRET}, "headers": {"X-Auth": SECRET}}}},
}
JOBS = [
    {
        "id": "a1",
        "name": "stretch",
        "enabled": True,
        "schedule": {"kind": "every", "atMs": None, "everyMs": 1200000, "expr": None, "tz": None},
        "payload": {
            "kind": "agent_turn",
            "message": "Time to stretch!",
            "deliver": True,
            "channel": "telegram",
            "to": "123",
        },
    },
    {
        "id": "a2",
        "name": "news",
        "enabled": False,
        "schedule": {"kind": "cron", "expr": "0 8 * * *", "tz": "Asia/Shanghai"},
        "payload": {"kind": "agent_turn", "message": "News, please", "session_key": "telegram:123"},
    },
    {
        "id": "a3",
        "name": "once",
        "schedule": {"kind": "at", "at_ms": 1790000000000},
        "payload": {"message": "Call mum"},
    },
    {"id": "a4", "name": "gone", "schedule": {"kind": "at", "atMs": 1690000000000}, "payload": {"message": "Gone"}},
    {
        "id": "dream",
        "name": "dream",
        "schedule": {"kind": "every", "everyMs": 7200000},
        "payload": {"kind": "system_event"},
    },
]
TALK = [
    {
        "_type": "metadata",
        "key": "telegram:123",
        "created_at": "2026-06-30T10:00:00",
        "metadata": {},
        "last_consolidated": 0,
    },
    {"role": "user", "content": "weather?", "timestamp": "2026-06-30T10:00:01"},
    {
        "role": "assistant",
        "content": None,
        "timestamp": "2026-06-30T10:00:02",
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "web", "arguments": '{"q": "weather"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "name": "web", "content": "sunny", "timestamp": "2026-06-30T10:00:03"},
    {"role": "assistant", "content": "It is sunny.", "timestamp": "2026-06-30T10:00:04", "tools_used": ["web"]},
]
WORKSPACE: dict[str, str | bytes] = {
    "AGENTS.md": "# Agent\n\nYou are nanobot.\n",
    "SOUL.md": "Curious.\n",
    "USER.md": "# User\n\nAnn.\n",
    "TOOLS.md": "Tools.\n",
    "HEARTBEAT.md": "# Heartbeat Tasks\n\n- [ ] water the plants\n",
    "memory/MEMORY.md": "# Long-term Memory\n\nAnn bakes.\n",
    "memory/2026-06-28.md": "# 2026-06-28\n\nBaked.\n",
    "memory/HISTORY.md": (
        "[2026-06-28 09:00] Asked for bread.\nTwo loaves.\n\n[2026-06-29 18:30] Asked for cake.\n### 12:00 — forged\n\n"
    ),
    "skills/cron-help/SKILL.md": (
        '---\nname: cron-help\ndescription: Helps with cron.\nmetadata: {"nanobot":{"always":true}}\n---\n\nUse cron.\n'
    ),
}


def _lines(records: list[dict[str, object]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def workspace(root: Path) -> Path:
    """A workspace alone."""
    return files(root, WORKSPACE)


def nanobot(root: Path) -> Path:
    """The home, as its first versions have it."""
    return files(
        root,
        {
            "config.json": json.dumps(CONFIG),
            **{f"workspace/{path}": content for path, content in WORKSPACE.items()},
            "workspace/sessions/telegram_123.jsonl": _lines(TALK),
            "workspace/out/report.pdf": b"%PDF",
            "sessions/cli_direct.jsonl": _lines(
                [{"role": "user", "content": "hi", "timestamp": "2026-06-30T10:00:01"}]
            ),
            "cron/jobs.json": json.dumps({"version": 1, "jobs": JOBS}),
            "media/photo.jpg": b"\xff\xd8",
            "bridge/auth/creds.json": json.dumps({"k": SECRET}),
        },
    )


def newer(root: Path) -> Path:
    """The home with a history of JSON lines and sessions in a database."""
    home = files(
        root,
        {
            "config.json": json.dumps(CONFIG),
            "workspace/SOUL.md": "Curious.\n",
            "workspace/memory/history.jsonl": _lines(
                [
                    {"cursor": 1, "timestamp": "2026-06-28 09:00", "content": "- likes tea"},
                    {"cursor": 2, "content": "no time"},
                ]
            ),
        },
    )
    database(
        home / "sessions/0123456789abcdef0123456789abcdef/sessions.sqlite3",
        """CREATE TABLE sessions (key TEXT PRIMARY KEY, metadata TEXT NOT NULL, provider_state TEXT);
           CREATE TABLE messages (session_key TEXT NOT NULL REFERENCES sessions(key), position INTEGER NOT NULL,
             record TEXT NOT NULL, PRIMARY KEY (session_key, position));""",
        {"messages": [("telegram:123", n, json.dumps(record)) for n, record in enumerate(TALK[1:])]},
    )
    return home
