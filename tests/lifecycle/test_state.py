"""state.json: all that the format names, read back without losing what is pinned, and hostile ones refused."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from clawd.errors import ClawdError, Refused
from clawd.lifecycle import state
from clawd.lifecycle.deciding import Thresholds
from clawd.lifecycle.pinned import Item, Pinned
from clawd.lifecycle.state import columns, pins, state_of
from clawd.trust import Origin

FIELDS = {
    *("schema", "id", "group", "tag", "sealed", "distilled", "successor", "parent", "goal", "status", "stopped_reason"),
    *("step_index", "window_tokens", "cumulative_tokens", "compact_count", "last_recall", "profile", "soft", "hard"),
    *("ledger", "session_file", "offset", "agent", "agent_id", "memory_namespace", "handoff_manifest"),
    *("pending_confirm", "last_decision_seq", "updated_at"),
}
HELD = Pinned(
    [
        Item("goal", "build", Origin.OWNER, 1.0, 1, "t", 1),
        Item("constraints", "Never <b>", Origin.OWNER, 1.0, 1, "t", 2),
        Item("blockers", "bash: no", Origin.TOOL, 0.2, 2, "t", 3, True),
        Item("next_safe_action", "test", Origin.AGENT, 0.7, 2, "t", 4),
    ]
)


def row(**more: Any) -> dict[str, Any]:
    usual = {"session": "s", "grp": "g", "status": "running", "goal": "", "updated": "u", "taint": 0.4}
    numbers = ("by_hand", "step_index", "window", "cumulative", "estimated", "compact_count", "seq", "measured")
    return defaultdict(lambda: None, dict.fromkeys((*numbers, "going_on"), 0) | usual | more)


def made(**more: Any) -> state.State:
    limits = Thresholds("chat", 10, 20)
    return state_of(row(**more), HELD, limits, stem="s_1", offset=7, engine="scripted", updated="u")


def test_it_has_every_field_and_comes_back() -> None:
    found = made(step_index=4, soft=5, require_confirm='["compact"]', nanos=10**9, manifest_file="m.json", measured=9)
    value = json.loads(found.data())
    assert set(value) >= FIELDS
    assert value["ledger"]["goal"] == "build" and value["ledger"]["constraints"][0]["source_turn"] == 1
    back = state.read(found.data(), "x")
    assert back == found
    kept = columns(back)
    assert (kept["step_index"], kept["soft"], kept["hard"], kept["nanos"]) == (4, 5, None, 10**9)
    assert (kept["require_confirm"], kept["manifest_file"], kept["measured"]) == ('["compact"]', "m.json", 9)
    assert [(each["class"], each["text"], each["trust"]) for each in pins(back)] == [
        *(("goal", "build", 0.6), ("constraints", "Never <b>", 0.6), ("blockers", "bash: no", 0.2)),
        ("next_safe_action", "test", 0.6),
    ]


@pytest.mark.parametrize(
    ("before", "status", "gate"),
    [("awaiting_confirm", "running", None), ("phase_boundary", "running", None), ("stopped", "stopped", "paused"),
     ("handoff", "handoff", None)],
)  # fmt: skip
def test_what_was_open_is_not_taken_back(before: str, status: str, gate: str | None) -> None:
    kept = columns(made(status=before, confirm=7))
    assert (kept["status"], kept["gate"]) == (status, gate) and "confirm" not in kept


@pytest.mark.parametrize(
    ("name", "value"),
    [("last_decision_seq", 2**64), ("total_cost_usd", float("inf")), ("window_tokens", 2**63), ("going_on", -1),
     ("require_confirm", ["pay"]), ("last_recall", float("nan")), ("updated_at", "\u202e"),
     ("ledger", {"verified": [{"text": "a", "source_turn": 2**63}]})],
)  # fmt: skip
def test_what_no_ledger_could_keep_is_no_state(name: str, value: Any) -> None:
    data = json.dumps(json.loads(made().data()) | {name: value}).encode()
    with pytest.raises(ClawdError, match="made anew"):
        state.read(data, "x")


def test_what_a_file_pins_is_cleaned_and_no_more_than_a_session_may_hold() -> None:
    pin = {"origin": "owner", "trust": 1, "inherited": False}
    said = {"constraints": [{**pin, "text": f"Never {n}\n\x00\u202e[[clawd]] " + "x" * 200} for n in range(999)]}
    paths = {"handoff_manifest": "manifests/../../../etc/passwd", "memory_namespace": "../x", "agent_id": "a\nb"}
    value = json.loads(made().data()) | {"ledger": said, "own": {"soft": 2**64}, "goal": "a\nb", **paths}
    back = state.read(json.dumps(value).encode(), "x")
    found = pins(back)
    assert len(found) > 50 and sum(len(each["text"]) for each in found) < 48 << 10
    assert all(each["text"].isprintable() and each["trust"] == 0.6 for each in found)
    kept = columns(back)
    assert {kept[each] for each in ("manifest_file", "memory_namespace", "agent_id", "soft")} == {None}
    assert kept["goal"] == "a b"


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b"\xff", b'{"schema": 1}', b'{"schema": 1, "id": "s", "group": "g", "taint": 7}', b"[" * 9999],
)
def test_a_broken_one_is_told(data: bytes) -> None:
    with pytest.raises(ClawdError, match="made anew") as told:
        state.read(data, "x.state.json")
    assert not isinstance(told.value, Refused)


def test_a_newer_one_is_refused() -> None:
    with pytest.raises(Refused, match="newer clawd"):
        state.read(b'{"schema": 2, "id": "s"}', "x.state.json")


def test_a_pin_without_a_source_is_from_outside() -> None:
    value = json.loads(made().data())
    value["ledger"] = {"goal": "obey", "constraints": [{"text": "pay"}]}
    back = state.read(json.dumps(value).encode(), "x")
    assert [(each["origin"], each["trust"]) for each in pins(back)] == [("external", 0.0)] * 2
