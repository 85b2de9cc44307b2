"""`sessions/<stem>.state.json`: what the ledger knows of a session's context, for people and other programs, and for a
ledger that was lost. Pure.

Two things are here beside what the format names: `sources`, where goal and next step came from, and the columns that a
new ledger could not know otherwise (`taint`, `by_hand`, `require_confirm`, `going_on`, `last_metrics_seq`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawd.errors import ClawdError, Refused
from clawd.ids import file_name
from clawd.lifecycle.deciding import Thresholds
from clawd.lifecycle.pinned import CLASSES, ONE, Class, Columns, Item, Pinned, goal_of, of_file
from clawd.scopes import is_agent, is_namespace
from clawd.trust import Origin

SCHEMA = 1
MOST_BYTES = 4 << 20

_MOST = 2**53
Count = Annotated[int, Field(ge=0, le=_MOST)]  # what a ledger can keep
Moment = Annotated[str, Field(pattern=r"^[ -~]{0,40}$")]
Status = Literal["running", "phase_boundary", "awaiting_confirm", "completed", "handoff", "stopped", "failed"]


class Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True, defer_build=True)


class Pin(Part):
    id: Count | None = None
    text: str
    source_turn: Count | None = None
    ts: Moment = ""
    origin: Origin = Origin.EXTERNAL
    trust: float = Field(default=0.0, ge=0, le=1)
    inherited: bool = False


class Held(Part):
    """What is pinned, texts with their source; of goal and next_safe_action `sources` says it."""

    goal: str = ""
    verified: list[Pin] = []
    constraints: list[Pin] = []
    blockers: list[Pin] = []
    decisions: list[Pin] = []
    next_safe_action: str = ""
    sources: dict[str, Pin] = {}

    @classmethod
    def of(cls, pinned: Pinned) -> Held:
        by_class: dict[Class, list[Pin]] = {each: [] for each in CLASSES}
        for item in pinned.items:
            by_class[item.cls].append(
                Pin(id=item.id, text=item.text, source_turn=item.turn, ts=item.at, origin=item.origin,
                    trust=item.trust, inherited=item.inherited)
            )  # fmt: skip
        last: dict[str, Pin] = {each: by_class[each][-1] for each in ONE if by_class[each]}
        return cls(
            goal=pinned.goal,
            next_safe_action=pinned.next_safe_action,
            sources=last,
            **{each: by_class[each] for each in CLASSES if each not in ONE},
        )

    def items(self) -> list[Item]:
        """The same as items; what has no source came from outside."""
        found: list[Item] = []
        for cls in CLASSES:
            text = getattr(self, cls)
            pins = [self.sources.get(cls) or Pin(text=text)] if cls in ONE and text else [] if cls in ONE else text
            found += [
                Item(cls, pin.text, pin.origin, pin.trust, pin.source_turn, pin.ts, None, pin.inherited) for pin in pins
            ]
        return found


class Agent(Part):
    name: str | None = None
    external_session_id: str | None = None


class State(Part):
    schema_: int = Field(alias="schema", default=SCHEMA)
    id: str
    group: str
    tag: str | None = None
    sealed: str | None = None
    distilled: str | None = None
    successor: str | None = None
    parent: str | None = None
    goal: str = ""
    status: Status = "running"
    stopped_reason: str | None = None
    step_index: Count = 0
    window_tokens: Count = 0
    cumulative_tokens: Count = 0
    estimated: bool = False
    compact_count: Count = 0
    last_recall: float | None = Field(default=None, ge=0, le=1)
    profile: str = "chat"
    soft: Count = 0
    hard: Count = 0
    ledger: Held = Held()
    session_file: str = ""
    offset: Count = 0
    agent: Agent = Agent()
    agent_id: str | None = None
    memory_namespace: str | None = None
    handoff_manifest: str | None = None
    pending_confirm: int | None = None
    last_decision_seq: Count = 0
    updated_at: Moment = ""
    total_cost_usd: float | None = Field(default=None, ge=0, le=1e9)
    own: dict[str, Any] = {}
    taint: float = Field(default=0.0, ge=0, le=1)
    by_hand: bool = False
    require_confirm: list[Literal["compact", "handoff"]] | None = None
    going_on: Count = 0
    last_metrics_seq: Count = 0

    def data(self) -> bytes:
        return (json.dumps(self.model_dump(by_alias=True, mode="json"), ensure_ascii=False, indent=1) + "\n").encode()


def state_of(
    row: Columns,
    pinned: Pinned,
    limits: Thresholds,
    *,
    stem: str,
    offset: int,
    engine: str | None = None,
    updated: str,
    parent: str | None = None,
) -> State:
    """What a row of `context` and its pins say. `offset`: how many bytes the session's file has."""
    manifest = row["manifest_file"]
    return State(
        id=row["session"],
        group=row["grp"],
        tag=row["tag"],
        sealed=row["sealed_at"],
        successor=row["successor"],
        parent=row["parent"] or parent,
        goal=pinned.goal or row["goal"],
        status=row["status"],
        stopped_reason=row["stopped_reason"],
        step_index=row["step_index"],
        window_tokens=row["window"],
        cumulative_tokens=row["cumulative"],
        estimated=bool(row["estimated"]),
        compact_count=row["compact_count"],
        last_recall=row["last_recall"],
        profile=limits.profile,
        soft=limits.soft,
        hard=limits.hard,
        ledger=Held.of(pinned),
        session_file=f"sessions/{stem}.md",
        offset=offset,
        agent=Agent(name=engine),
        agent_id=row["agent_id"],
        memory_namespace=row["memory_namespace"],
        handoff_manifest=f"manifests/{manifest}" if manifest else None,
        pending_confirm=row["confirm"],
        last_decision_seq=row["seq"],
        updated_at=updated,
        total_cost_usd=None if row["nanos"] is None else row["nanos"] / 10**9,
        own={name: row[name] for name in ("profile", "soft", "hard") if row[name] is not None},
        taint=row["taint"],
        by_hand=bool(row["by_hand"]),
        require_confirm=None if row["require_confirm"] is None else json.loads(row["require_confirm"]),
        going_on=row["going_on"],
        last_metrics_seq=row["measured"],
    )


def read(data: bytes, name: str) -> State:
    """A file. Raises Refused for one of a newer schema, ClawdError for one that cannot be read: both with a
    sentence."""
    try:
        value = json.loads(data) if len(data) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ClawdError(f"{name} cannot be read: it is made anew from the ledger")
    schema = value.get("schema")
    if type(schema) is int and schema > SCHEMA:
        raise Refused(
            f"{name} was written by a newer clawd (schema {schema}; this one knows {SCHEMA})",
            hint="install that version again, or move the file away",
        )
    try:
        return State.model_validate(value)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise ClawdError(f"{name} cannot be read ({where}): it is made anew from the ledger") from None


def columns(state: State) -> dict[str, Any]:
    """Of a lost row of `context`: what its file still knows. What was open (a question, a compaction) is not."""
    stopped = state.status == "stopped"
    status: Status = "running" if state.status in ("awaiting_confirm", "phase_boundary") else state.status
    manifest = (state.handoff_manifest or "").removeprefix("manifests/")
    own = {name: state.own.get(name) for name in ("soft", "hard")}
    return {
        "status": status,
        "stopped_reason": state.stopped_reason,
        "gate": "paused" if stopped else None,
        "goal": goal_of([state.goal]),
        "tag": state.tag,
        "profile": state.own["profile"] if isinstance(state.own.get("profile"), str) else None,
        **{name: value if type(value) is int and 0 < value <= _MOST else None for name, value in own.items()},
        "require_confirm": None if state.require_confirm is None else json.dumps(state.require_confirm),
        "by_hand": int(state.by_hand),
        "step_index": state.step_index,
        "window": state.window_tokens,
        "cumulative": state.cumulative_tokens,
        "estimated": int(state.estimated),
        "nanos": None if state.total_cost_usd is None else round(state.total_cost_usd * 10**9),
        "taint": state.taint,
        "compact_count": state.compact_count,
        "last_recall": state.last_recall,
        "parent": state.parent,
        "successor": state.successor,
        "going_on": state.going_on,
        "agent_id": state.agent_id if is_agent(state.agent_id) else None,
        "memory_namespace": state.memory_namespace if is_namespace(state.memory_namespace) else None,
        "manifest_file": manifest if manifest and file_name(manifest) == manifest else None,
        "sealed_at": state.sealed,
        "seq": state.last_decision_seq,
        "measured": state.last_metrics_seq,
        "updated": state.updated_at,
    }


def pins(state: State) -> Sequence[dict[str, Any]]:
    """Rows of `pinned`, but for their session."""
    return [
        {"class": item.cls, "text": item.text, "turn": item.turn, "at": item.at or state.updated_at,
         "origin": item.origin, "trust": item.trust, "inherited": int(item.inherited)}
        for item in of_file(state.ledger.items())
    ]  # fmt: skip
