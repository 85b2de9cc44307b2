"""What is pure of a living container: its handle, and why it ended."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.sandbox.container import first_of, handle_of, reason_of
from clawd.sandbox.processes import process
from clawd.sandbox.protocol import SandboxLimits


@pytest.mark.parametrize(
    ("code", "ended", "memory", "log", "reason"),
    [
        (137, True, True, "x", "was ended"),
        (None, True, False, "", "was ended"),
        (137, False, True, "x", "ran out of memory (it may use 1024 MB)"),
        (137, False, False, "x", "was ended from outside"),
        (143, False, False, "", "was ended from outside"),
        (None, False, False, "", "was ended from outside"),
        (1, False, True, "a\nMemoryError\n", "failed with code 1: MemoryError"),
        (0, False, False, "bye", "ended"),
    ],
)
def test_why_it_ended(code: int | None, ended: bool, memory: bool, log: str, reason: str) -> None:
    assert reason_of(code, ended, memory, log, SandboxLimits()) == reason


def test_a_handle_names_a_process_of_this_boot_alone() -> None:
    me = process(os.getpid())
    assert me is not None
    handle = handle_of("f" * 64, me)
    assert first_of(handle) == me
    _, boot, *rest = handle.split(":")
    assert first_of(":".join(["docker", boot[::-1] + "0", *rest])) is None


@given(st.text() | st.lists(st.text(alphabet=":0123456789abc-"), min_size=5, max_size=5).map("docker:".join))
def test_what_is_no_handle_is_told(text: str) -> None:
    try:
        first_of(text)
    except ValueError:
        return
    assert text.startswith("docker:") and text.count(":") == 4
