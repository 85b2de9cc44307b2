"""The manifest of a handover: what a session hands on to its successor, and all of it. Pure, but for `read`.

Version 1.1, published as `handoff_manifest.schema.json` beside this module and described in docs/handoff-manifest.md.
Its lists are plain texts. `sources` says where they are from: an entry names a class and a place in it; what no entry
names is the agent's own, worth as much as the manifest. `trust` of the whole is the lowest of all that went into it.

It is validated before anything of it is kept: `made` and `text_of` raise, and a manifest that they gave is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawd.errors import Refused, UnsafePath, findings
from clawd.files import read_beneath
from clawd.lifecycle.pinned import CLASSES, Item
from clawd.log import redactor
from clawd.trust import TRUST, Origin

VERSION = "1.1"
MOST_BYTES = 64 << 10
SCHEMA_FILE = Path(__file__).with_name("handoff_manifest.schema.json")
_LISTS = ("verified", "constraints", "blockers", "decisions")
_GO_FIRST = ("verified", "decisions")  # where it is too large; a constraint or a blocker is never left out
_GO_NEXT = ("memory_refs", "artifacts", "open_questions")  # they are known elsewhere, too
_HIDDEN = "[secret]"
# Keys by the form that their makers give them, for those that clawd was never told of.
_KEYS = re.compile(
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)"
    r"|(?<![A-Za-z0-9_-])(?:"
    r"sk-[A-Za-z0-9_-]{16,}|(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[\w-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"
    r"|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}|\d{6,12}:AA[\w-]{30,}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,})",
    re.DOTALL | re.ASCII,
)


class ManifestRefused(Refused):
    """It is no manifest that may be written, or can be read."""


class _Part(BaseModel):
    """Strict, so that the model takes what the schema takes: no text stands for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


Text = Annotated[str, Field(pattern=r"\S", description="not empty")]
Count = Annotated[int, Field(ge=0)]
Trust = Annotated[float, Field(ge=0, le=1)]


class Snapshot(_Part):
    """Tokens when it was handed over. `window` is what the next prompt would have held."""

    window: Count
    cumulative: Count
    soft: Count
    hard: Count
    estimated: bool


class Compacted(_Part):
    """How often the session was compacted, and the share of what it held on to that the last summary had."""

    count: Count
    last_recall: Trust | None = None


class Artifact(_Part):
    """A file that the session gave out; `path` is its name there."""

    path: Text
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    bytes: Count


class Source(_Part):
    """Where an item is from: the `n`-th of its class, counted from 0."""

    of: Literal["goal", "verified", "constraints", "blockers", "decisions", "next_safe_action"]
    n: Count = 0
    origin: Literal["owner", "admin", "member", "agent", "tool", "document", "external", "hand", "system"]
    trust: Trust


class HandoffManifest(_Part):
    """What a session hands on to its successor."""

    schema_version: Literal["1.1"]
    manifest_id: Text
    created_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$")]
    session_id: Text
    parent_manifest_id: Text | None = None
    group_id: Text
    agent_id: Text | None = None
    memory_namespace: Text | None = None
    profile: Text
    trigger: Text
    goal: Text
    verified: list[str] = []
    constraints: list[str] = []
    blockers: list[str] = []
    decisions: list[str] = []
    open_questions: list[str] = []
    next_safe_action: Text
    token_snapshot: Snapshot
    cost_snapshot_usd: Annotated[float, Field(ge=0)] | None = None
    compaction: Compacted
    artifacts: list[Artifact] = []
    memory_refs: list[str] = []
    do_not: list[str] = []
    confirmed_by: Text | None = None
    trust: Trust
    sources: list[Source] = []

    def items(self) -> list[Item]:
        """What it holds on to, in the order of the classes; each with where it is from, never above the whole's trust
        but for the owner's own words."""
        known = {(source.of, source.n): source for source in self.sources}
        found = []
        for cls in CLASSES:
            said = getattr(self, cls)
            for n, text in enumerate([said] if isinstance(said, str) else said):
                source = known.get((cls, n))
                origin = Origin(source.origin) if source else Origin.AGENT
                trust = min(source.trust if source else self.trust, TRUST[origin])
                found.append(Item(cls, text, origin, trust, at=self.created_at, inherited=True))
        return found


def schema() -> dict[str, Any]:
    """The JSON Schema of the model, as it is published."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "HandoffManifest 1.1",
        **{name: value for name, value in HandoffManifest.model_json_schema().items() if name != "title"},
    }


def made(fields: Mapping[str, Any], items: Sequence[Item] = ()) -> HandoffManifest:
    """A manifest that may be written: of `fields`, and of what is pinned, the newest goal and next safe action alone.
    Secrets are taken out. What is too large loses what was verified, then decisions, then ids of memories, files and
    questions, each time the oldest first. Raises ManifestRefused."""
    kept, fields = list(items), dict(fields)
    while True:
        manifest = _validated(_scrubbed({"schema_version": VERSION, **_listed(kept), **fields}), "the manifest")
        if (over := len(_packed(manifest)) - MOST_BYTES) <= 0:
            return manifest
        for cls in _GO_FIRST:
            mine = [item for item in kept if item.cls == cls]
            if mine:
                break
        else:
            if (name := next((each for each in _GO_NEXT if fields.get(each)), None)) is not None:
                fields[name] = fields[name][1:]
                continue
            raise ManifestRefused(
                f"the manifest would have {over + MOST_BYTES:,} bytes; it may have {MOST_BYTES:,}",
                hint="its session holds on to too many constraints and blockers; /new begins without them",
            )
        gone: list[Item] = []
        while mine and sum(len(item.text) for item in gone) < max(over, 1):
            gone.append(mine.pop(0))
        kept = [item for item in kept if not any(item is each for each in gone)]


def text_of(manifest: HandoffManifest) -> str:
    """Its JSON, as it is written. Raises ManifestRefused for one that is too large."""
    data = _packed(manifest)
    if len(data) > MOST_BYTES:
        raise ManifestRefused(f"the manifest has {len(data):,} bytes; it may have {MOST_BYTES:,}")
    return data.decode()


def parse(data: bytes | str) -> HandoffManifest:
    """A manifest of any 1.x. Of a newer minor, what it has beyond 1.1 is left out; 1.0 has no agent_id and
    memory_namespace, says nothing of trust, and may give its tokens as one number: it is trusted as what comes from
    outside. Raises ManifestRefused."""
    if len(data) > MOST_BYTES:
        raise ManifestRefused(f"this is no manifest: it has more than {MOST_BYTES:,} bytes")
    try:
        said = json.loads(data, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ManifestRefused(f"this is no manifest, or a torn one: {str(error)[:200]}") from error
    if not isinstance(said, dict):
        raise ManifestRefused("this is no manifest: it is no JSON object")
    version = said.get("schema_version")
    match = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", version) if isinstance(version, str) else None
    if match is None:
        raise ManifestRefused("this is no manifest: it does not say its schema_version, like 1.1")
    if match[1] != "1":
        raise ManifestRefused(
            f"this manifest is of version {version}; this clawd reads 1.0 and 1.x", hint="take a newer clawd"
        )
    minor = int(match[2])
    if minor == 0:
        said = _of_first(said)
    elif minor > 1:
        said = _known(HandoffManifest, said)
    return _validated({**said, "schema_version": VERSION}, "the manifest")


def read(path: Path) -> HandoffManifest:
    """The manifest in a file. Raises ManifestRefused, also for a link; FileNotFoundError."""
    try:
        return parse(read_beneath(path.parent, path.name, MOST_BYTES + 1))
    except UnsafePath as error:
        raise ManifestRefused(f"this is no manifest: {error.message}") from error


def scrubbed(text: str) -> str:
    """A text without secrets: those that clawd knows, and what has the form of a key."""
    return _KEYS.sub(_HIDDEN, redactor.clean(text))


def shown(manifest: HandoffManifest) -> str:
    """What the successor's model is shown instead of the conversation that was: a line a thing, JSON, so that no text
    of it can pass for another."""
    head = (
        f"This session goes on from {manifest.session_id}, which ended ({manifest.trigger}). What follows is all that"
        " came along: a line each, with where it is from and how far that is trusted. Nothing in it is new; what was"
        " asked there was asked."
    )
    lines: list[dict[str, Any]] = [
        {"is": item.cls, "text": item.text, "from": str(item.origin), "trust": round(item.trust, 3)}
        for item in manifest.items()
    ]
    agent = {"from": "agent", "trust": round(min(manifest.trust, TRUST[Origin.AGENT]), 3)}
    lines += [{"is": "open_question", "text": text, **agent} for text in manifest.open_questions]
    lines += [{"is": "do_not", "text": text, "from": "system"} for text in manifest.do_not]
    lines += [{"is": "file", "name": each.path, "bytes": each.bytes} for each in manifest.artifacts]
    if manifest.memory_refs:
        lines.append({"is": "memories", "ids": list(manifest.memory_refs)})
    return "\n".join([head, *(json.dumps(line, ensure_ascii=False) for line in lines)])


def _listed(items: Iterable[Item]) -> dict[str, Any]:
    """The classes' texts and their sources."""
    said: dict[str, Any] = {name: [] for name in _LISTS}
    sources: dict[tuple[str, int], dict[str, Any]] = {}
    for item in items:
        source = {"of": item.cls, "origin": str(item.origin), "trust": float(item.trust)}
        if item.cls in ("goal", "next_safe_action"):
            said[item.cls], n = item.text, 0
        else:
            n = len(said[item.cls])
            said[item.cls].append(item.text)
        sources[item.cls, n] = {**source, "n": n}
    return {**said, "sources": list(sources.values())}


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return scrubbed(value.encode("utf-8", "replace").decode())
    if isinstance(value, dict):
        return {name: each if name == "sha256" else _scrubbed(each) for name, each in value.items()}
    return [_scrubbed(each) for each in value] if isinstance(value, list) else value


def _validated(said: Mapping[str, Any], what: str) -> HandoffManifest:
    try:
        return HandoffManifest.model_validate(said)
    except ValidationError as error:
        raise ManifestRefused(f"{what} is not one of version {VERSION}: {findings(error, what)}") from error


def _packed(manifest: HandoffManifest) -> bytes:
    return (json.dumps(manifest.model_dump(), ensure_ascii=False, indent=1) + "\n").encode()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a key is in it twice")
    return found


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _of_first(said: dict[str, Any]) -> dict[str, Any]:
    """A manifest 1.0 as one of 1.1."""
    tokens = said.get("token_snapshot")
    if type(tokens) is int:
        tokens = {"window": tokens, "cumulative": tokens, "soft": 0, "hard": 0, "estimated": True}
    usual: dict[str, Any] = {"compaction": {"count": 0, "last_recall": None}}
    fixed: dict[str, Any] = {
        "token_snapshot": tokens,
        "agent_id": None,
        "memory_namespace": None,
        "trust": TRUST[Origin.EXTERNAL],
        "sources": [],
    }
    return usual | said | fixed


@cache
def _parts_of(model: type[BaseModel]) -> dict[str, type[BaseModel] | None]:
    parts: dict[str, type[BaseModel] | None] = dict.fromkeys(model.model_fields)
    if model is HandoffManifest:
        parts |= {"token_snapshot": Snapshot, "compaction": Compacted, "artifacts": Artifact, "sources": Source}
    return parts


def _known(model: type[BaseModel], said: Any) -> Any:
    """What the model knows of a value of a newer minor."""
    if isinstance(said, list):
        return [_known(model, each) for each in said]
    if not isinstance(said, dict):
        return said
    parts = _parts_of(model)
    return {
        name: value if (part := parts[name]) is None else _known(part, value)
        for name, value in said.items()
        if name in parts
    }
