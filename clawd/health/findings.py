"""What the doctor says: one finding a line, each with the command that mends it."""

from __future__ import annotations

from typing import Any

Finding = dict[str, Any]
"""{check, level: ok|warn|error, message, command|null}"""


def finding(check: str, level: str, message: str, command: str | None = None) -> Finding:
    return {"check": check, "level": level, "message": message, "command": command}
