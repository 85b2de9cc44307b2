"""Lines behind what a file has: none twice, none of ours torn, a stranger's kept."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.lifecycle import journal
from clawd.lifecycle.deciding import Decision, Thresholds
from clawd.lifecycle.journal import Confirm, Costs, Used, append, decision_line, lines_of, metric_line

AT = "2026-12-01T09:00:00+00:00"
LIMITS = Thresholds("chat", 10, 20)


def line(seq: int, text: str = "") -> str:
    return json.dumps({"seq": seq, "ts": AT, "session_id": "s", "reason": text}, ensure_ascii=False)


def after(data: bytes, lines: list[str]) -> bytes:
    made = append(data, len(data), lines)
    return data[: made.keep] + made.data


@settings(max_examples=60)
@given(st.lists(st.text(max_size=12), min_size=1, max_size=5), st.data())
def test_a_write_that_was_torn_anywhere_is_completed(texts: list[str], data: st.DataObject) -> None:
    old = b'{"mine": 1}\n'
    lines = [line(n, text) for n, text in enumerate(texts)]
    whole = after(old, lines)
    torn = whole[: data.draw(st.integers(len(old), len(whole)))]
    assert after(torn, lines) == after(whole[:-1], lines) == whole
    assert [each.get("seq") for each in lines_of(whole).rows] == [None, *range(len(texts))]


@pytest.mark.parametrize(
    ("old", "kept"),
    [
        (b"", b""),
        (b"half a stranger's", b"half a stranger's\n"),
        (b'{"theirs": 1}', b'{"theirs": 1}\n'),
        (b'{"seq": 9, "ts": "20', b""),
        (b'\xff\xfe\n{"seq": 0, "x', b"\xff\xfe\n"),
    ],
)
def test_strangers_lines_are_kept_and_half_lines_of_ours_cut(old: bytes, kept: bytes) -> None:
    assert after(old, [line(1)]) == kept + line(1).encode() + b"\n"


def test_what_is_there_is_not_written_again() -> None:
    data = after(b"", [line(1), line(2)])
    assert after(data, [line(1), line(2), line(3)]) == data + line(3).encode() + b"\n"
    assert after(data, []) == data
    forged = json.dumps({"seq": 4, "session_id": "s", "ts": "another"}).encode() + b"\n"
    assert after(forged, [line(4)]).endswith(line(4).encode() + b"\n")


def test_a_line_says_what_the_format_names() -> None:
    said = decision_line(
        Decision("handoff", "verify_fail", "why", "p"), LIMITS, at=AT, session="s", step=3, tokens=15, estimated=True,
        recall=0.5, confirm=Confirm(False, "ann"), nanos=1_500_000,
    )  # fmt: skip
    assert list(said) == [
        *("ts", "session_id", "step_index", "action", "trigger", "total_tokens", "soft", "hard", "estimated"),
        *("policy", "recall", "confirm", "reason", "total_cost_usd"),
    ]
    assert said["confirm"] == {"required": True, "granted": False, "by": "ann"} and said["total_cost_usd"] == 0.0015
    bare = decision_line(Decision("continue", "none"), LIMITS, at=AT, session="s", step=1, tokens=1, estimated=False)
    assert not {"policy", "recall", "confirm", "total_cost_usd"} & set(bare)


def test_an_unknown_price_is_null_and_a_known_one_exact() -> None:
    unknown = metric_line("turn", at=AT, session="s", step=1, window=2, total=3, used=Used(1000, 500))
    assert [unknown[name] for name in ("input_cost_usd", "output_cost_usd", "total_cost_usd")] == [None] * 3
    costs = Costs(3_000_000, 7_500_000, 10_500_000)
    known = metric_line("turn", at=AT, session="s", step=1, window=2, total=3, costs=costs)
    assert [known[name] for name in ("input_cost_usd", "output_cost_usd", "total_cost_usd")] == [0.003, 0.0075, 0.0105]
    assert list(journal.metric_line("turn", at=AT, session="s", step=1, window=2, total=3)) == [
        *("ts", "session_id", "step_index", "event", "prompt_tokens", "completion_tokens", "cached_tokens"),
        *("window_tokens", "total_tokens", "latency_ms", "input_cost_usd", "output_cost_usd", "total_cost_usd"),
        *("estimated", "agent_id", "memory_namespace"),
    ]
