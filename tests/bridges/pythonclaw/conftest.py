"""A PythonClaw home, made by hand after what is known of its files, and a clawd home beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clawd.commands.operations import offline
from clawd.config.home import Home
from clawd.config.load import init_home
from clawd.ledger.db import Ledger

# Written without a backslash anywhere, as 0.6.6 did: a rule and a heading in the first answer.
RAW = """\
# Session: telegram:-100123


<!-- msg:{"role": "user", "ts": "2026-03-07T10:00:00"} -->
### 2026-03-07 10:00:00 — User

What is in here?

---

<!-- msg:{"role": "assistant", "ts": "2026-03-07T10:00:01"} -->
### 2026-03-07 10:00:01 — Assistant

I look.
---
### not a heading of the file
below

<details><summary>Tool Calls</summary>

```json
[
  {
    "id": "call_1",
    "type": "function",
    "function": {
      "name": "list_files",
      "arguments": "{}"
    }
  }
]
```

</details>

---

<!-- msg:{"role": "tool", "ts": "2026-03-07T10:00:02", "tool_call_id": "call_1"} -->
### 2026-03-07 10:00:02 — Tool

a.txt

---
"""
ESC = """\
# Session: cli


<!-- msg:{"role": "user", "ts": "2026-03-08T10:00:00"} -->
### 2026-03-08 10:00:00 — User

a
\\---
\\### b
<!-- msg\\: c

---
"""
# Without a header, torn, and with META that is no object.
DAMAGED = """\
<!-- msg:{"role": "user", "ts": "2026-03-09T10:00:00"} -->
### 2026-03-09 10:00:00 — User

first

---

<!-- msg:[1] -->
### 2026-03-09 10:00:01 — Assistant

second

---

<!-- msg:{"role": "user", "ts": "2026-03-09T10:00:02"} -->
### 2026-03-09 10:00:02 — User

third
"""
MEMORY = """\
# Long-Term Memory

Written above.

## city
> Updated: 2026-03-07 10:00:00

Porto

## notes
> Updated: 2026-03-07 10:00:01

a
\\## b

## city
> Updated: 2026-03-08 09:00:00

Wien

## phantom
what a value of 0.6 had behind its heading
"""
CHAT_MEMORY = """\
# Long-Term Memory

## city
> Updated: 2026-03-09 10:00:00

Linz
"""
CHAT_DAY = "# Daily Memory — 2026-03-09\n\n### 10:00:00 — city\n\nLinz\n\n"
DAY = """\
# Daily Memory — 2026-03-07

### 10:00:00 — city

Porto

- [2026-03-07T11:00:00Z] saw a heron #general
"""
SKILL = """\
---
name: "Pdf Reader"
description: >
  Reads PDF files.
  Use it when somebody sends one.
metadata:
  emoji: "📄"
dependencies: [PyPDF2, Pillow]
fitness_score: 3.5
triggers: read pdf, scan
---
# PDF

Run `python {skill_path}/read.py`.
"""
JOBS = """\
jobs:
  - id: daily summary
    cron: "0 9 * * 1-5"
    prompt: "Summarise my day."
    deliver_to: telegram
    chat_id: 123456789
    enabled: true
  - id: paused
    cron: "*/15 * * * *"
    prompt: look
    enabled: false
  - id: bad
    cron: "0 9 * *"
    prompt: never
  - nonsense
"""
DYNAMIC = {"late": {"cron": "30 23 last * *", "prompt": "The month ends: say so.", "deliver_to": None, "chat_id": None}}
SECRET = "sk-live-0123456789abcdef"
CONFIG = """{
  // settings
  "llm": {"provider": "claude", "claude": {"apiKey": "%s", "model": "m"}, "openai": {"apiKey": ""}},
  "tavily": {"apiKey": "%s"},
  "channels": {
    "telegram": {"token": "%s", "allowedUsers": [7, 8]},
    "discord": {"token": "", "allowedUsers": []},
  },
  "isolation": {"perGroup": true},
}
""" % ((SECRET,) * 3)
FILES: Mapping[str, str] = {
    "pythonclaw.json": CONFIG,
    "context/sessions/telegram_-100123.md": RAW,
    "context/sessions/cli.md": ESC,
    "context/sessions/mmkr_a_1.md": DAMAGED,
    "context/sessions/empty.md": "# Session: empty\n\n",
    "context/memory/MEMORY.md": MEMORY,
    "context/memory/INDEX.md": "Boats are in boats.md\n",
    "context/memory/2026-03-07.md": DAY,
    "context/memory/old.txt": "x",
    "context/groups/telegram_-100123/memory/MEMORY.md": CHAT_MEMORY,
    "context/groups/telegram_-100123/memory/2026-03-09.md": CHAT_DAY,
    "context/skills/data/pdf_reader/SKILL.md": SKILL,
    "context/skills/data/pdf_reader/read.py": "print(1)\n",
    "context/skills/data/pdf_reader/check_setup.sh": "#!/bin/sh\ntouch /tmp/ran\n",
    "context/skills/mmkr/only_yaml/skill.yaml": "name: x\n",
    "context/cron/jobs.yaml": JOBS,
    "context/cron/dynamic_jobs.json": json.dumps(DYNAMIC),
    "context/soul/SOUL.md": "Be kind. Read @notes.md first.\n",
    "context/persona/me.md": "You are a librarian.\n",
    "context/tools/TOOLS.md": "The printer is upstairs.\n",
    "context/knowledge/boats.txt": "Boats float.\n",
    "context/knowledge/x.pdf": "%PDF",
    "context/files/report.bin": "x",
    "context/compaction/history.jsonl": "{}\n",
    "context/logs/history_detail.jsonl": "{}\n",
    "context/odd/x": "x",
    "daemon.log": "x",
}


def lay(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data.encode() if isinstance(data, str) else data)
    return root


@pytest.fixture
def claw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return lay(tmp_path / "claw", FILES)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    made = Home(tmp_path / "home")
    init_home(made)
    Ledger.open(made.ledger_file).close()
    (made.group("main").memory / "MEMORY.md").unlink()
    return made


def accept(home: Home) -> dict[str, Any]:
    done: dict[str, Any] = asyncio.run(offline(home)["bridge.accept"]({"source": "pythonclaw"}))  # type: ignore[arg-type]
    return done


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
