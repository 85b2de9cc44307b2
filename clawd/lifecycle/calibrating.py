"""Limits for a profile from how its sessions went. Pure, but for the reading of the files beside them.

P is the 90th percentile (nearest rank) of the sessions' largest windows. D is the median window at which compactions
were decided that were verified afterwards (for soft), and at which sessions were handed over (for hard):

    soft = 0.5 · 0.7 · P + 0.5 · D      hard = 0.5 · P + 0.5 · D

Where no session was compacted, or none handed over, there is no D, and P alone stands: soft = 0.7 · P, hard = P.
Both are rounded to 1000, half up; then hard is at most what the model's window has room for and soft at most 0.8 of
hard (0.75 where a window is known, as in `profiles`), each rounded down. Nothing of it is in force by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

from clawd.errors import ClawdError
from clawd.files import read_beneath
from clawd.lifecycle.journal import lines_of, object_of
from clawd.lifecycle.profiles import room

log = logging.getLogger(__name__)

ENOUGH = 5
"""Sessions below which nothing is recommended."""
_STEP = 1000
_BYTES = 64 << 20  # of one file
_METRICS, _DECISIONS, _STATE = ".metrics.jsonl", ".decisions.jsonl", ".state.json"


@dataclass(frozen=True, slots=True)
class Past:
    """How one session went, in tokens of its window: the largest, those at which it was compacted for good, and that at
    which it was handed over."""

    peak: int
    compacts: Sequence[int] = ()
    handoff: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """`soft` and `hard` are None where that is not enough to go by."""

    sessions: int
    peak: int = 0
    compacts: int = 0
    handoffs: int = 0
    soft: int | None = None
    hard: int | None = None

    @property
    def sufficient(self) -> bool:
        return self.soft is not None


def calibrate(past: Sequence[Past], window: int | None, max_output: int) -> Found:
    """What the sessions recommend, for a model with this window, None where that is not known."""
    compacts = [tokens for each in past for tokens in each.compacts]
    handoffs = [each.handoff for each in past if each.handoff is not None]
    peaks = sorted(each.peak for each in past)
    peak = peaks[-(-9 * len(peaks) // 10) - 1] if peaks else 0
    found = Found(len(past), peak, len(compacts), len(handoffs))
    if len(past) < ENOUGH:
        return found
    hard = _rounded(_blend(Fraction(peak), handoffs))
    soft = _rounded(_blend(Fraction(7 * peak, 10), compacts))
    if window is not None:
        hard = min(hard, room(window, max_output) // _STEP * _STEP)
    most = Fraction(hard * (8 if window is None else Fraction(15, 2)), 10)
    soft = min(soft, int(most) // _STEP * _STEP)
    if soft < _STEP:  # sessions too small to say anything of
        return found
    return Found(found.sessions, peak, found.compacts, found.handoffs, soft, hard)


def _blend(of_peaks: Fraction, decided: Sequence[int]) -> Fraction:
    return (of_peaks + Fraction(median(map(Fraction, decided)))) / 2 if decided else of_peaks


def _rounded(tokens: Fraction) -> int:
    return int((tokens + Fraction(_STEP, 2)) // _STEP * _STEP)


def past_of(metrics: Iterable[dict[str, Any]], decisions: Iterable[dict[str, Any]]) -> Past | None:
    """What the lines of a session's two files say, None where no turn of it was measured.

    A compaction was verified where metrics have it (`event` compact): it belongs to the newest decision before it to
    compact that has none yet. A session is handed over once; a decision that was not confirmed did nothing."""
    lines = list(metrics)
    windows = [tokens for line in lines if (tokens := _count(line, "window_tokens")) is not None]
    if not any(line.get("event") == "turn" for line in lines) or not windows:
        return None
    wanted: list[tuple[int, int]] = []
    handoff = None
    for line in decisions:
        step, tokens = _count(line, "step_index"), _count(line, "total_tokens")
        if step is None or tokens is None:
            continue
        if line.get("action") == "compact":
            wanted.append((step, tokens))
        elif line.get("action") == "handoff":
            confirm = line.get("confirm")
            denied = isinstance(confirm, dict) and confirm.get("required") and confirm.get("granted") is not True
            handoff = None if denied else tokens
    compacts = []
    done = [_count(line, "step_index") for line in lines if line.get("event") == "compact"]
    for step in sorted(each for each in done if each is not None):
        before = [each for each in wanted if each[0] <= step]
        if before:
            wanted.remove(before[-1])
            compacts.append(before[-1][1])
    return Past(max(windows), tuple(compacts), handoff)


def _count(line: dict[str, Any], name: str) -> int | None:
    value = line.get(name)
    return value if type(value) is int and 0 <= value < 1 << 53 else None


def sessions(folder: Path, profile: str, usual: str) -> Iterator[Past]:
    """The sessions of a group's folder that ran with a profile: their state says which, or that they had the group's
    `usual` one; one without a state counts for any. What cannot be read is left out, and so is a line that is none:
    the last one may be torn."""
    try:
        names = sorted(path.name for path in (folder / "sessions").iterdir())
    except OSError:
        return
    for name in names:
        stem = name.removesuffix(_METRICS)
        if stem == name:
            continue
        state = object_of(_read(folder, stem + _STATE))
        if state is not None and (state.get("profile") or usual) != profile:
            continue
        past = past_of(*(lines_of(_read(folder, each)).rows for each in (name, stem + _DECISIONS)))
        if past is not None:
            yield past


def _read(folder: Path, name: str) -> bytes:
    try:
        return read_beneath(folder, f"sessions/{name}", _BYTES)
    except FileNotFoundError:
        pass
    except (OSError, ClawdError) as error:
        log.warning("%s is not gone by: %s", folder / "sessions" / name, error)
    return b""
