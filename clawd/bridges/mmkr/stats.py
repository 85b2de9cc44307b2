"""What a session of an agent holds, in figures. The file is read block by block; reading never raises for what it
holds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from clawd.errors import NotFound
from clawd.files import open_beneath
from clawd.model import Block
from clawd.sessions.format import MARKER_LINE, parse


def pythonclaw_session_stats(session_file: str | Path) -> dict[str, Any]:
    """{session_file, total_messages, ticks_estimated, role_distribution, tools_invoked, unique_tools, file_size_kb}.

    A tick is estimated by its user's message. Raises NotFound, UnsafePath for a link or what is no plain file.
    """
    path = Path(session_file).expanduser().absolute()
    roles, tools = Counter[str](), Counter[str]()
    called: set[str] = set()
    try:
        descriptor = open_beneath(path.parent, path.name)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no session file {path}") from None
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        for block in blocks_of(file):
            roles[block.role] += 1
            tools.update(_tool(call) for call in block.tool_calls)
            if block.tool_calls:
                called = {str(call.get("id")) for call in block.tool_calls}
            elif block.role == "tool" and block.tool_call_id not in called and block.meta.get("name"):
                tools[str(block.meta["name"])] += 1  # mmkr's own files: the calls are text, but the results are named
    return {
        "session_file": str(session_file),
        "total_messages": roles.total(),
        "ticks_estimated": roles["user"],
        "role_distribution": dict(roles),
        "tools_invoked": tools.total(),
        "unique_tools": sorted(tools),
        "file_size_kb": round(size / 1024, 1),
    }


def blocks_of(file: BinaryIO) -> Iterator[Block]:
    """The blocks of a session's file, one in memory at a time."""
    lines = list[bytes]()
    for line in file:
        if MARKER_LINE.match(line):
            yield from parse(b"".join(lines), whole=False).blocks
            lines = []
        lines.append(line)
    yield from parse(b"".join(lines), whole=False).blocks


def _tool(call: dict[str, Any]) -> str:
    function = call.get("function")
    return str(function.get("name")) if isinstance(function, dict) else "unknown"
