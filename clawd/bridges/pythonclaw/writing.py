"""Writing a group's sessions, memories, skills and schedules into a PythonClaw home."""

from __future__ import annotations

from clawd.bridges.pythonclaw.forms import index_bytes, log_bytes, memory_bytes, session_bytes

__all__ = ["index_bytes", "log_bytes", "memory_bytes", "session_bytes"]
