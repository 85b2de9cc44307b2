from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawd.config.home import Home
from clawd.control import wire

ROOT = Path(__file__).parents[2]
Cli = Callable[..., subprocess.CompletedProcess[str]]


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CLAWD_")}
    return kept | {"PYTHONPATH": str(ROOT)} | more


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


@pytest.fixture
def cli(home: Home) -> Cli:
    """The real command line, whose own daemon is the stand-in."""

    def call(*words: str, text: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(ROOT / "tests/cli/standin.py"), "--home", str(home.root), *words],
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=environment(**more),
        )

    return call


@pytest.fixture
def daemon(home: Home) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts foreign stand-in daemons, ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**more: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, str(ROOT / "tests/cli/standin.py"), "run", "--home", str(home.root)]
        started.append(subprocess.Popen(argv, env=environment(**more)))
        deadline = time.monotonic() + 20
        while True:
            try:
                wire.connect(home.state).close()
                return started[-1]
            except OSError:
                assert time.monotonic() < deadline and started[-1].poll() is None
                time.sleep(0.02)

    yield start
    for process in started:
        process.kill()
        process.wait()
