"""OpenClaw's state directory, of files and of databases, and a workspace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.bridges.homes import SECRET, database, files

CONFIG = f"""// the config, as a person keeps it
{{
  agents: {{
    defaults: {{ workspace: "~/.openclaw/workspace", model: 'anthropic/claude', }},
    list: [
      {{ id: "main", default: true }},
      {{ id: "work", workspace: "~/.openclaw/workspace-work" }},
      {{ id: "far", workspace: "~/elsewhere" }},
    ],
  }},
  bindings: [
    {{ agentId: "work", match: {{ channel: "slack", teamId: "T1", peer: {{ kind: "group", id: "C7" }} }} }},
  ],
  channels: {{
    telegram: {{ botToken: "{SECRET}", dmPolicy: "pairing", allowFrom: ["tg:77", 88], /* me */ }},
    slack: {{ accounts: {{ team: {{
      appToken: {{ source: "env", provider: "default", id: "SLACK_APP" }}, maxTokens: "9",
    }} }} }},
  }},
  env: {{ OPENROUTER_API_KEY: "{SECRET}", vars: {{ GROQ: "{SECRET}" }} }},
  gateway: {{ auth: {{ mode: "token", token: "{SECRET}" }} }},
  skills: {{ entries: {{ github: {{ apiKey: "{SECRET}", env: {{ GH_TOKEN: "{SECRET}" }} }} }} }},
}}
"""
GITHUB = """---
name: github
description: "Works with GitHub: issues and pull requests."
homepage: https://cli.github.com
metadata:
  {
    "openclaw":
      {
        "emoji": "🐙",
        "requires": { "bins": ["gh"], "env": ["GH_TOKEN"] },
        "install": [{ "id": "brew", "kind": "brew", "formula": "gh", "bins": ["gh"], "label": "Install" }],
      },
  }
---

Use {baseDir}/scripts/run.sh.
"""
JOBS: list[dict[str, Any]] = [
    {
        "id": "j1",
        "name": "Morning brief",
        "enabled": True,
        "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "America/Los_Angeles"},
        "sessionTarget": "isolated",
        "payload": {"kind": "agentTurn", "message": "Summarize overnight updates."},
        "delivery": {"mode": "announce", "channel": "slack", "to": "channel:C1"},
    },
    {
        "id": "j2",
        "agentId": "work",
        "name": "Poke",
        "enabled": False,
        "schedule": {"kind": "every", "everyMs": 20000},
        "sessionTarget": "main",
        "payload": {"kind": "systemEvent", "text": "Look at the queue"},
    },
    {
        "jobId": "j3",
        "name": "Reminder",
        "schedule": {"kind": "at", "at": "2026-08-01T16:00:00"},
        "payload": {"kind": "systemEvent", "text": "Reminder: the draft"},
        "delivery": {"mode": "webhook", "to": f"https://example.invalid/{SECRET}"},
    },
    {"id": "j4", "schedule": {"kind": "at", "atMs": 1700000000000}, "payload": {"kind": "systemEvent", "text": "past"}},
    {
        "id": "j5",
        "schedule": {"kind": "cron", "expr": "0 30 6 * * 1"},
        "payload": {"kind": "agentTurn", "message": "six"},
    },
    {
        "id": "j6",
        "schedule": {"kind": "cron", "expr": "*/5 30 6 * * 1"},
        "payload": {"kind": "agentTurn", "message": "sec"},
    },
    {
        "id": "j7",
        "schedule": {"kind": "every", "everyMs": 60000},
        "payload": {"kind": "command", "argv": ["sh", SECRET]},
    },
    {"id": "j8", "schedule": {"kind": "on-exit", "command": "x"}, "payload": {"kind": "agentTurn", "message": "exit"}},
    {
        "id": "j9",
        "schedule": {"kind": "cron", "expr": "0 7 * * *", "tz": "Mars"},
        "payload": {"kind": "agentTurn", "message": "m"},
    },
    {"id": "j10", "schedule": {"kind": "every", "everyMs": 600000}, "payload": {"kind": "agentTurn", "message": " "}},
]


def _message(role: str, content: Any, at: int, **more: Any) -> str:
    stamp = f"2026-06-30T10:00:{at:02}.000Z"
    return json.dumps(
        {"type": "message", "id": "x", "timestamp": stamp, "message": {"role": role, "content": content, **more}}
    )


TALK = [
    json.dumps({"type": "session", "version": 3, "id": "s-1", "timestamp": "2026-06-30T10:00:00.000Z", "cwd": "/x"}),
    json.dumps({"type": "model_change", "provider": "p", "modelId": "m"}),
    _message("user", "list the files", 1),
    _message(
        "assistant",
        [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "I look."},
            {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "ls"}},
            {"type": "toolCall", "id": "c2", "name": "exec", "arguments": {"command": "pwd"}},
        ],
        2,
    ),
    _message("toolResult", [{"type": "text", "text": "a.txt"}], 3, toolCallId="c1", toolName="exec"),
    "{not json",
    _message("assistant", [{"type": "text", "text": "One file."}, {"type": "image", "data": SECRET}], 4),
    _message("toolResult", "lost", 5, toolCallId="c9"),
]


def workspace(root: Path, prefix: str = "") -> Path:
    """A workspace, as it lies beneath `prefix`."""
    tree: dict[str, str | bytes] = {
        "AGENTS.md": "# AGENTS.md\n\nRead SOUL.md first.\n",
        "SOUL.md": "Be kind.\n",
        "IDENTITY.md": "Name: Molty\n",
        "TOOLS.md": "The printer is `lp0`.\n",
        "USER.md": "Ann, of Berlin.\n",
        "HEARTBEAT.md": "# Checks\n\n- the mail\n",
        "MEMORY.md": "Ann likes tea.\n\n## Work\n\nAt a bakery.\n",
        "BOOTSTRAP.md": "Who are you?\n",
        "memory/2026-06-29.md": "Baked bread.\n",
        "memory/2026-06-29-bread.md": "The recipe.\n",
        "memory/index.sqlite": b"SQLite format 3\0",
        "skills/github/SKILL.md": GITHUB,
        "skills/github/scripts/run.sh": "#!/bin/sh\necho hi\n",
        "skills/github/.env": f"GH_TOKEN={SECRET}\n",
        "skills/github/config.json": json.dumps({"apiKey": SECRET}),
        "skills/home/lights/SKILL.md": "---\ndescription: >-\n  Turns lights\n  on.\n---\nOn.\n",
        "skills/broken/SKILL.md": "# Broken\n\nDoes a thing.\n",
        "canvas/index.html": "<p>",
    }
    return files(root, {f"{prefix}{path}": content for path, content in tree.items()})


def openclaw(root: Path) -> Path:
    """The state directory of files."""
    home = workspace(root, "workspace/")
    return files(
        home,
        {
            "openclaw.json": CONFIG,
            ".env": f"BRAVE_API_KEY={SECRET}\n",
            "workspace-work/AGENTS.md": "Work hard.\n",
            "workspace-work/HEARTBEAT.md": "# Nothing yet\n\n<!-- add items -->\n",
            "skills/weather/SKILL.md": "---\nname: weather\ndescription: Tells the weather.\n---\n\nLook up.\n",
            "credentials/whatsapp/default/creds.json": json.dumps({"noiseKey": SECRET}),
            "credentials/telegram-allowFrom.json": json.dumps({"version": 1, "allowFrom": ["99"]}),
            "agents/main/agent/auth-profiles.json": json.dumps(
                {
                    "version": 1,
                    "profiles": {"anthropic:default": {"type": "api_key", "provider": "anthropic", "key": SECRET}},
                }
            ),
            "agents/main/sessions/sessions.json": json.dumps({"agent:main:main": {"sessionId": "s-1", "updatedAt": 1}}),
            "agents/main/sessions/s-1.jsonl": "\n".join(TALK),
            "agents/main/sessions/s-0.jsonl": _message("user", "older", 1),
            "agents/main/sessions/s-2.jsonl.deleted.1": "x",
            "agents/work/sessions/sessions.json": json.dumps({"agent:work:slack:group:C7": {"sessionId": "w-1"}}),
            "agents/work/sessions/w-1.jsonl": _message("user", [{"type": "text", "text": "hi all"}], 1),
            "cron/jobs.json": json.dumps({"version": 1, "jobs": JOBS}),
            "logs/gateway.log": SECRET,
        },
    )


def openclaw_of_databases(root: Path) -> Path:
    """The state directory of newer versions."""
    home = files(root, {"openclaw.json": "{}", "workspace/SOUL.md": "Be kind.\n"})
    columns = (
        *("store_key", "job_id", "agent_id", "name", "enabled", "session_target", "schedule_kind", "schedule_expr"),
        *("schedule_tz", "every_ms", "at", "trigger_script", "payload_kind", "payload_message", "delivery_mode"),
        *("delivery_channel", "delivery_to", "job_json"),
    )
    database(
        home / "state/openclaw.sqlite",
        f"CREATE TABLE cron_jobs ({', '.join(columns)}, PRIMARY KEY (store_key, job_id));",
        {
            "cron_jobs": [
                (
                    *("k", "j1", None, "Brief", 1, "isolated", "cron", "0 7 * * *", "UTC", None, None, None),
                    *("agentTurn", "Sum up.", "none", None, None, "{}"),
                )
            ]
        },
    )
    database(
        home / "agents/main/agent/openclaw-agent.sqlite",
        """CREATE TABLE session_nodes (session_key TEXT NOT NULL PRIMARY KEY, current_session_id TEXT NOT NULL,
             entry_json TEXT NOT NULL) STRICT;
           CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT NOT NULL,
             created_at INTEGER NOT NULL, PRIMARY KEY (session_id, seq)) STRICT;""",
        {
            "session_nodes": [("agent:main:main", "s-1", "{}")],
            "transcript_events": [("s-1", n, line, n) for n, line in enumerate(TALK)],
        },
    )
    return home
