"""A reader of session files as PythonClaw 0.7 is known to be (its tolerances and its losses included): the
oracle."""

import contextlib
import json
import re
from typing import Any


def read(data: bytes) -> list[dict[str, Any]]:
    text = data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")  # text mode's universal newlines
    pieces = re.split(r"<!-- msg:(.*?) -->", text)
    messages = []
    for meta_text, body in zip(pieces[1::2], pieces[2::2], strict=True):
        try:
            meta = json.loads(meta_text)
        except ValueError:
            continue
        message: dict[str, Any] = {"role": meta.get("role", "unknown"), "ts": meta.get("ts")}
        if "tool_call_id" in meta:
            message["tool_call_id"] = meta["tool_call_id"]
        content, calls = read_body(body)
        message["content"] = content
        if calls:
            message["tool_calls"] = calls
        messages.append(message)
    return messages


def read_body(body: str) -> tuple[str, Any]:
    kept: list[str] = []
    fence: list[str] | None = None
    inside, calls = False, None
    for line in body.split("\n"):
        if inside:
            if line.strip() == "</details>":
                inside = False
            elif line.strip() == "```json":
                fence = []
            elif line.strip() == "```" and fence is not None:
                with contextlib.suppress(ValueError):
                    calls = json.loads("\n".join(fence))
                fence = None
            elif fence is not None:
                fence.append(line)
        elif line == "<details><summary>Tool Calls</summary>":
            inside = True
        elif line.strip().startswith("### ") or line.strip() in ("---", "</details>"):
            continue
        else:
            kept.append(unescape(line))
    return "\n".join(kept).strip().replace("<!-- msg\\:", "<!-- msg:"), calls


def unescape(line: str) -> str:
    bare = line[1:].strip()
    if line.startswith("\\") and (
        bare.startswith(("### ", "<details><summary>Tool Calls", "<!-- msg:")) or bare in ("---", "</details>")
    ):
        return line[1:]
    return line
