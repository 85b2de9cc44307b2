"""MEMORY.md as PythonClaw 0.7 is known to write and to read it (its losses included): the oracle."""

import re
from datetime import datetime


def write(facts: dict[str, tuple[str, str]]) -> bytes:
    """`facts`: key → (updated, value), in the order in which they were first set."""
    text = "# Long-Term Memory\n"
    for key, (updated, value) in facts.items():
        lines = ["\\" + line if line.startswith(("## ", "> Updated:")) else line for line in value.split("\n")]
        text += "\n".join(["", f"## {key}", f"> Updated: {updated}", "", *lines, ""])
    return text.encode()


def read(data: bytes) -> dict[str, tuple[str, str]]:
    text = data.decode().replace("\r\n", "\n").replace("\r", "\n")
    found = {}
    for section in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        head, *lines = section.strip().split("\n")
        if not head.startswith("## ") or not (key := head[3:].strip()):
            continue
        updated = next((line[11:].strip() for line in lines if re.match("> Updated: .", line)), "")
        while lines and (not lines[0].strip() or lines[0].startswith("> Updated:")):
            lines.pop(0)
        found[key] = updated, "\n".join(re.sub(r"^\\(?=## |> Updated:)", "", line) for line in lines).strip()
    return found


def local(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")
