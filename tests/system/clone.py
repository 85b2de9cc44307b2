"""A fresh clone of the repository, where nothing is set up yet."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# What an outer `make test` and its environment tell a process that is to begin afresh.
_NOT_PASSED = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "XDG_CONFIG_HOME")
INSTALLING = 300.0  # seconds that a package registry may take


class Clone:
    """`tree` is the clone, `beside` a directory beside it for what is not to lie in it."""

    def __init__(self, beside: Path) -> None:
        self.beside, self.tree = beside, beside / "clawd"
        self.runtime = beside / "r"
        self.runtime.mkdir(mode=0o700)
        self.run("git", "clone", "--quiet", str(ROOT), str(self.tree), cwd=beside).check_returncode()

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in _NOT_PASSED and not k.startswith("CLAWD_")}
        # The repository may be another user's: a container's checkout often is.
        trusted = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        return kept | trusted | {"XDG_RUNTIME_DIR": str(self.runtime)} | more

    def run(self, *words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the clone to its end; what it began ends with it."""
        process = subprocess.Popen(
            words,
            cwd=cwd or self.tree,
            env=self.environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=INSTALLING)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run make; the command must succeed."""
        done = self.run("make", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def json(self, *words: str) -> Any:
        """What the installed command prints in the clone."""
        done = self.run(str(self.tree / ".venv/bin/clawd"), *words, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def uv(self) -> str:
        """uv, as the set-up found or installed it."""
        return shutil.which("uv") or str(self.tree / ".venv/bin/uv")
