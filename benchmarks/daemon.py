"""A daemon of its own for a benchmark: a home in a temporary directory, the scripted engine, the real socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from clawd.config.begin import ensure_group, init_home
from clawd.config.home import Home
from clawd.control import wire
from clawd.control.client import ControlClient

CLAWD = [sys.executable, "-m", "clawd"]


@contextmanager
def home(groups: list[str], delay_s: float = 0.0, *, backend: str = "bubblewrap", max_live: int = 4) -> Iterator[Home]:
    """A home whose agents answer "ok" after `delay_s`."""
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as directory:
        made = Home(Path(directory) / "home")
        init_home(made)
        for group in groups:
            ensure_group(made, group)
        (made.root / "script.json").write_text(json.dumps({"steps": [{"text": "ok", "delay_s": delay_s}]}))
        made.config_file.write_text(
            'schema = 1\n[claw]\nname = "bench"\n[model]\nengine = "scripted"\nscript = "script.json"\n'
            f'[sandbox]\nbackend = "{backend}"\nmax_live = {max_live}\nkeep = false\n'
        )
        yield made


@contextmanager
def daemon(of: Home) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon of a home, once it answers."""
    process = subprocess.Popen(
        [*CLAWD, "run", "--home", str(of.root)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        await_answer(of, process)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def await_answer(of: Home, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            wire.connect(of.state).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the daemon did not come up") from None
            time.sleep(0.002)


class Talker:
    """One conversation: says something and measures until the reply is delivered, in milliseconds.

    The clock starts before the message is sent, so the figure holds the accept as well: an upper bound of
    accepted → delivered.
    """

    def __init__(self, client: ControlClient) -> None:
        self._client = client

    @classmethod
    async def open(cls, client: ControlClient, group: str, session: str | None = None) -> Talker:
        params: dict[str, Any] = {"group": group, **({"session": session} if session else {})}
        await client.call("chat.open", **params)
        return cls(client)

    async def say(self) -> float:
        began = time.perf_counter()
        await self._client.call("chat.send", text="hello", platform_id=os.urandom(8).hex())
        async for kind, data in self._client.events():
            if kind == "message" and data["text"] == "ok":  # and no notice
                took = (time.perf_counter() - began) * 1000
                await self._client.call("chat.seen", deliveries=[data["delivery"]])
                return took
        raise RuntimeError("the daemon went away")
