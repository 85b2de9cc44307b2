"""What a memory is, and its file: YAML frontmatter, then the text as a person may write it.

The text is the truth; the frontmatter says to a person what is known of it, and the trust ledger decides.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from clawd.trust import Origin

Kind = Literal["profile", "episode", "entity", "procedure", "reflection", "fact", "day"]
Status = Literal["active", "proposed", "quarantined", "superseded"]
FOLDERS: dict[str, str] = {
    "episode": "episodes",
    "entity": "entities",
    "procedure": "procedures",
    "reflection": "reflections",
}
QUARANTINE = "quarantine"  # what nobody is to find, and proposals that have no other place: of profile, of facts
PREFIXES = {"episode": "ep", "entity": "en", "procedure": "pr", "reflection": "re", "profile": "up", "fact": "fp"}
ID = re.compile(r"(?:ep|en|pr|re|up|fp)_[0-9a-z]{10}")  # of a file; besides there are fact:KEY, day:DATE, file:PATH
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Said:
    """A citation: whole sentences that the owner typed in this message, at the owner's trust."""

    quote: str
    inbound: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """One memory with what is known of it. `trust` is that of `text`; the quote of `said` has its own, the owner's.
    `taint` is what reading it lowers a turn to. `private`: it comes from a private session. `key` is a fact's. `file`
    is relative to the group's `memory/`. Times are aware."""

    id: str
    kind: Kind
    text: str
    created: datetime
    updated: datetime
    event_time: datetime
    source: str
    origin: Origin
    trust: float
    status: Status = "active"
    taint: float = 1.0
    derived_from: tuple[str, ...] = ()
    supersedes: str | None = None
    tags: tuple[str, ...] = ()
    said: Said | None = None
    private: bool = False
    key: str = ""
    file: str = ""


# ── the file ──

_FENCE = "---"


def written(record: MemoryRecord) -> bytes:
    """The file of a record: its values are JSON, which is YAML."""
    said = {"inbound": record.said.inbound, "quote": record.said.quote} if record.said else None
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "id": record.id,
        "kind": record.kind,
        "created": record.created.isoformat(timespec="seconds"),
        "updated": record.updated.isoformat(timespec="seconds"),
        "event_time": record.event_time.isoformat(timespec="seconds"),
        "source": record.source,
        "origin": record.origin.value,
        "trust": record.trust,
        "status": record.status,
        "derived_from": list(record.derived_from),
        "supersedes": record.supersedes,
        "tags": list(record.tags),
        **({"key": record.key} if record.key else {}),
        **({"said": said} if said else {}),
    }
    head = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
    return f"{_FENCE}\n{head}\n{_FENCE}\n{record.text.strip()}\n".encode("utf-8", "replace")


def parsed(data: bytes) -> tuple[dict[str, Any], str]:
    """The frontmatter and the text of a file; of one without, or with one that is no YAML mapping, {} and all of it."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").removeprefix("\ufeff")
    head, fence, body = text.removeprefix(f"{_FENCE}\n").partition(f"\n{_FENCE}\n")
    if not text.startswith(f"{_FENCE}\n") or not fence:
        return {}, text.strip()
    import yaml

    try:
        fields = yaml.safe_load(head)
    except yaml.YAMLError:
        fields = None
    return (fields, body.strip()) if isinstance(fields, dict) else ({}, text.strip())
