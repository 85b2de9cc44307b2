"""Trust after a restore: of what the backup and the present say the lower holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clawd.backups.merging import merged
from clawd.memory.provenance import Stamp
from clawd.trust import Origin

WRITTEN = Stamp("2026-12-01T09:00:00+00:00", "main", "ep_1", "write", "a" * 64, Origin.AGENT, 0.7, 1.0, "active")
LATER = replace(WRITTEN, ts="2026-12-02T09:00:00+00:00")


@pytest.mark.parametrize(
    ("present", "backup", "last"),
    [
        ([WRITTEN], [WRITTEN], None),  # nothing happened since
        ([], [WRITTEN], WRITTEN),  # another home
        ([WRITTEN, replace(LATER, op="quarantine", status="quarantined", trust=0.2)], [WRITTEN], "present"),
        ([WRITTEN, replace(LATER, op="reject", status="quarantined")], [WRITTEN], "present"),
        ([WRITTEN, replace(LATER, op="update", sha256="b" * 64, trust=0.2, taint=0.1)], [WRITTEN],
         (0.2, 0.1, "active")),
        ([WRITTEN, replace(LATER, op="trust", trust=1.0)], [WRITTEN], (0.7, 1.0, "active")),
        ([WRITTEN, replace(LATER, op="delete")], [WRITTEN], (0.7, 1.0, "active")),  # what a backup is for
        ([WRITTEN, replace(LATER, op="delete", trust=0.3)], [WRITTEN], (0.3, 1.0, "active")),
        ([WRITTEN, replace(LATER, op="supersede", status="superseded")], [WRITTEN], (0.7, 1.0, "active")),
        (
            [replace(WRITTEN, status="proposed"), replace(LATER, op="approve")],
            [replace(WRITTEN, status="proposed")],
            (0.7, 1.0, "proposed"),
        ),
        (
            [replace(WRITTEN, op="quarantine", status="quarantined"), replace(LATER, op="approve")],
            [replace(WRITTEN, op="quarantine", status="quarantined")],
            (0.7, 1.0, "quarantined"),
        ),
        # Two homes that went their own ways.
        ([replace(LATER, op="quarantine", status="quarantined")], [WRITTEN, replace(LATER, op="trust", trust=1.0)],
         "present"),
    ],
)  # fmt: skip
def test_the_last_line_of_a_memory_says_the_lower(present: list[Stamp], backup: list[Stamp], last: object) -> None:
    added = list(merged(present, backup))
    after = [*present, *added]
    if last is None:
        assert added == []
    elif last == "present":
        assert after[-1].status == "quarantined" and after[-1].trust == present[-1].trust
    elif isinstance(last, Stamp):
        assert after[-1] == last
    else:
        end = after[-1]
        assert (end.trust, end.taint, end.status, end.sha256) == (*last, backup[-1].sha256)  # type: ignore[misc]
    assert set(after) >= {*present, *backup}, "nothing that anybody knew is lost"
    assert list(merged(after, backup)) == [], "done again it says nothing new"


def test_a_memory_that_was_made_since_keeps_its_lines() -> None:
    made = replace(LATER, id="ep_2", op="quarantine", status="quarantined", lines=("c" * 64,))
    assert list(merged([WRITTEN, made], [WRITTEN])) == []


def test_other_groups_are_told_from_each_other() -> None:
    other = replace(LATER, group="side", op="quarantine", status="quarantined")
    assert list(merged([WRITTEN, other], [WRITTEN])) == []


@pytest.mark.parametrize(
    ("now", "kept", "holds"),
    [
        ("", "shared/garden", ""),
        ("shared/garden", "", ""),
        ("shared/a", "shared/a", "shared/a"),
        ("", "team/a", "team/a"),
    ],
)
def test_no_other_group_is_shown_more(now: str, kept: str, holds: str) -> None:
    present = [replace(LATER, op="update", sha256="b" * 64, namespace=now)]
    assert list(merged(present, [replace(WRITTEN, namespace=kept)]))[-1].namespace == holds
