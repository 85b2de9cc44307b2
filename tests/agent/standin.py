"""A turn for engines: rounds are answered by the test, nothing is sent anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.turn import Place


class StandInTurn:
    """Records the rounds that an engine asks for; `results` are handed out one a call."""

    def __init__(self, group: Path, *texts: str, origin: str = "owner", kind: str = "typed", **context: Any) -> None:
        parts = [[{"kind": kind, "origin": origin, "text": text}] for text in texts]
        self.wakes = [{"id": number, "parts": part} for number, part in enumerate(parts)]
        self.context = {"authority": "owner", "ordinal": 0, **context}
        self.place = Place(str(group), "token", "2026-11-29T14:00:00.000+02:00")
        self.coming: list[dict[str, Any]] = []  # wakes, one a call of `more`
        self.rounds: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = []
        self.results: list[str] = []
        self.paused = 0.0

    def round(self, text: str, calls: list[tuple[str, dict[str, Any]]], notes: Any = None) -> list[str]:
        self.rounds.append((text, calls))
        return [self.results.pop(0) if self.results else "ok" for _ in calls]

    def more(self) -> bool:
        self.wakes += [self.coming.pop(0)] if self.coming else []
        return False

    def showing(self) -> None:
        pass

    def replaying(self) -> bool:
        return False

    def pause(self, seconds: float) -> None:
        self.paused += seconds

    def now(self) -> str:
        return "2026-11-29T14:05:06.000+02:00"
