"""The daemon that a command needs: the one that runs, else one of our own for the time of the command.

Ours is told to end by a pipe that closes however we end, so that none is ever left behind. One that another command
has for itself ends with that command: it does not come back, and we have one of our own then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import clawd
from clawd.config.home import Home
from clawd.control import wire
from clawd.control.client import ControlClient
from clawd.errors import ClawdError, HomeBusy

PROGRAM: tuple[str, ...] = (sys.executable, "-m", "clawd")
_RESTARTS = 3
_START = 30.0  # seconds until it answers
_ASK = 5.0  # seconds in which it says whose it is
_END = 30.0  # seconds until it ended: it parks or finishes its turns within 20


class Companion:
    """Whoever serves `home`. `note` is called with a sentence when there is something to wait for. `environment` is
    that of a daemon of ours, None: the one that we have."""

    def __init__(self, home: Home, note: Callable[[str], None], environment: Mapping[str, str] | None = None) -> None:
        self._home, self._environment = home, environment
        self._note = note
        self._foreign = False
        self._asked = False  # whose the daemon is that answers
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None
        self._output: IO[bytes] | None = None
        self._starts = 0

    async def ensure(self) -> None:
        """Return when a daemon answers. Raises ClawdError when ours will not start; waits for ever for a
        foreign one."""
        deadline, pause, noted = time.monotonic() + _START, 0.01, False
        while not self._answers():
            self._asked = False
            if self._foreign:
                if not noted:
                    self._note("the daemon went away; waiting until it is back")
                    noted = True
                pause = min(1.0, max(0.1, pause))
            elif time.monotonic() > deadline:
                raise ClawdError(f"the daemon did not answer within {_START:g} s", hint="clawd doctor")
            elif self._process is None:
                self._start()
            elif self._process.poll() is not None:
                self._ended(self._process.returncode)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 1.0 if self._foreign else 0.1)
        if noted:
            self._note("the daemon is back")
        if not self._asked:
            self._foreign = self._process is None and not await self._passes()
            self._asked = True

    async def _passes(self) -> bool:
        """Whether the daemon that answers is another command's, and ends with it."""
        with contextlib.suppress(ClawdError, TimeoutError):
            async with asyncio.timeout(_ASK), ControlClient(self._home.state) as client:
                return await client.call("passing") is True
        return False

    def _answers(self) -> bool:
        try:
            wire.connect(self._home.state).close()
        except OSError:
            return False
        return True

    def _start(self) -> None:
        environment = dict(os.environ if self._environment is None else self._environment)
        if self._starts:
            environment.pop("CLAWD_FAULT", None)  # a planned fault has happened; the next daemon is to live
        self._starts += 1
        reading, self._pipe = os.pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                [*PROGRAM, "run", "--json", "--home", str(self._home.root), "--until-closed", str(reading)],
                pass_fds=[reading],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd=Path(clawd.__file__).parent.parent,  # not where we stand: `-m` would import from there
                start_new_session=True,  # the terminal's Ctrl-C is ours
            )
        finally:
            os.close(reading)

    def _ended(self, code: int) -> None:
        """Ours is gone: forget it so that another is started, or raise what it said."""
        sentence = self._last_words()
        self._forget()
        if code == HomeBusy.code:  # another took the home just before us: it will answer, or go
            return
        if code > 0 or self._starts > _RESTARTS:
            message = sentence.get("error") or f"the daemon ended with {code}"
            hint = sentence.get("hint") or "clawd doctor"
            wire.raise_error({"code": max(code, 1), "message": message, "hint": hint})

    def _last_words(self) -> dict[str, Any]:
        assert self._output is not None
        self._output.seek(0)
        with contextlib.suppress(ValueError):
            said = json.loads(self._output.read())
            if isinstance(said, dict):
                return said
        return {}

    def _forget(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
        if self._output is not None:
            self._output.close()
        self._process = self._pipe = self._output = None

    def end(self) -> None:
        """End our own daemon, gracefully, and wait for it; leave a foreign one alone. An interrupt stops the
        waiting."""
        process = self._process
        if process is None:
            return
        self._forget()
        with contextlib.suppress(KeyboardInterrupt):
            try:
                try:
                    process.wait(1)
                except subprocess.TimeoutExpired:
                    self._note("finishing what was begun; what takes longer goes on the next time …")
                    process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def companion(
    home: Home, note: Callable[[str], None], environment: Mapping[str, str] | None = None
) -> Iterator[Companion]:
    """A companion that is ended with the block."""
    beside = Companion(home, note, environment)
    try:
        yield beside
    finally:
        beside.end()
