"""A schedule's check: a command in the sandbox, the last line of which says whether its run is to be."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import anyio

from clawd.clock import Clock
from clawd.errors import SandboxUnavailable
from clawd.schedules.file import ScheduleFile, window
from clawd.trust import Role

log = logging.getLogger(__name__)

SECONDS = 60.0
MOST_BYTES = 64 << 10  # of what it prints, the end
AGAIN_S = 60.0  # before it is tried again where there was no sandbox
MOST_TOLD = 4 << 10  # bytes of what it found that the agent is told


@dataclass(frozen=True, slots=True)
class Checked:
    """`text` is what else it found; `failed` why nobody knows."""

    wake: bool = False
    text: str = ""
    failed: str | None = None


def checked(code: int, output: bytes) -> Checked:
    if code != 0:
        return Checked(failed=f"its check ended with code {code}")
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    try:
        said = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or not isinstance(said.get("wake"), bool):
        return Checked(failed='the last line that its check printed is not JSON like {"wake": true}')
    more = {name: value for name, value in said.items() if name != "wake"}
    text = json.dumps(more, ensure_ascii=False) if more else ""
    cut = text.encode("utf-8", "replace")[:MOST_TOLD].decode("utf-8", "ignore")
    return Checked(said["wake"], cut if len(cut) == len(text) else f"{cut} …")


class Output(Protocol):
    """Runs a command in a group's sandbox. Raises SandboxUnavailable, TimeoutError."""

    async def __call__(
        self, group: str, argv: Sequence[str], *, role: Role, seconds: float, most_bytes: int
    ) -> tuple[int, bytes]:
        """Its exit code, and the end of what it printed."""
        ...


async def run(output: Output, clock: Clock, group: str, file: ScheduleFile, role: Role, at: datetime) -> Checked:
    """The check of a run that was due `at`. Where there is no sandbox it waits, as long as a run is made up for."""
    while True:
        try:
            command = ("/bin/sh", "-c", file.check or "true")
            return checked(*await output(group, command, role=role, seconds=SECONDS, most_bytes=MOST_BYTES))
        except TimeoutError:
            return Checked(failed=f"its check took longer than {SECONDS:g} s")
        except SandboxUnavailable as error:
            if clock.now() - at > window(file):
                return Checked(failed=f"its check could not be run: {error.message}")
            log.warning("a check of %s waits: %s", group, error)
        except Exception as error:
            log.exception("a check of %s failed", group)
            return Checked(failed=f"its check could not be run ({type(error).__name__}); this is a defect of clawd")
        await anyio.sleep(AGAIN_S)
