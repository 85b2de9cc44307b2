"""Who waits longer than a second is told what for."""

from __future__ import annotations

import threading

import pytest

from clawd.cli import patience


def test_what_takes_long_is_said_now_and_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patience, "FIRST_S", 0.01)
    monkeypatch.setattr(patience, "AGAIN_S", 0.01)
    asked = threading.Semaphore(0)

    def doing() -> str:
        asked.release()
        return "counting"

    with patience.patiently(doing):
        for _ in range(3):
            assert asked.acquire(timeout=10)
    err = capsys.readouterr().err
    assert err.startswith("counting (0 s so far)\ncounting (0 s so far)\n")


def test_what_is_quick_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with patience.patiently(lambda: "counting"):
        pass
    assert capsys.readouterr().err == ""
