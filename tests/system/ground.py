"""A home for tests of isolation and trouble: a `Home` that may belong to another user, with short ways to ask it."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engine import Engine
from tests.system.conftest import DEADLINE, Home

PATIENCE = 100.0


class Ground(Home):
    """`python` runs Python as the home's owner; the caller's own where it is None. `more` is in the environment of
    every process, `before` comes before every command."""

    def __init__(self, root: Path, python: list[str] | None = None, engine: Engine | None = None) -> None:
        self._python = python
        self.more: dict[str, str] = {}
        self.before: list[str] = []
        super().__init__(root, engine)
        if python:  # another user has a copy of the program, without its tests
            self.program = "clawd"
        owner = root.stat()
        for path in (self.root, *self.root.rglob("*"), self.runtime):
            os.chown(path, owner.st_uid, owner.st_gid)

    def command(self, *words: str, module: str = "clawd") -> list[str]:
        own, *rest = super().command(*words, module=module)
        return [*self.before, *(self._python or [own]), *rest]

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(PYTHONDONTWRITEBYTECODE="1", **{**self.more, **more})

    def write(self, path: str, text: str | bytes, mode: int = 0o600) -> Path:
        """A file of the home, by its owner."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        file.chmod(mode)
        owner = self.root.stat()
        for each in (file, *file.parents):
            if each.is_relative_to(self.root):
                os.chown(each, owner.st_uid, owner.st_gid)
        return file

    def done(
        self, *words: str, code: int | None = 0, text: str = "", timeout: float = DEADLINE, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """A command that must end with `code` (with any, if None)."""
        done = self.cli(*words, text=text, timeout=timeout, **env)
        told = f"{shlex.join(words)[:300]}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert code is None or done.returncode == code, told
        return done

    def answer(self, message: str, *words: str, code: int | None = 0, **env: str) -> dict[str, Any]:
        """One message, and all that `chat -m --json` says of its end."""
        more = ("-m", "-", "--json", "--timeout", str(PATIENCE), *words)
        done = self.done("chat", *more, text=message, code=code, timeout=PATIENCE + 30, **env)
        said = json.loads(done.stdout)
        assert isinstance(said, dict)
        return said

    def reply(self, message: str, *words: str) -> str:
        """The reply to a message that must be answered well."""
        said = self.answer(message, *words)
        assert said["error"] is None, said
        return str(said["reply"])

    def sh(self, command: str, group: str = "main") -> str:
        """What a command in a turn of the owner prints, with the sentence of how it ended."""
        return self.reply(f"sh:{command}", "--group", group)

    def inside(self, *argv: str, group: str = "main", code: int | None = 0) -> str:
        """What a command beside the group's runner prints."""
        return self.done("sandbox", "exec", "--group", group, "--", *argv, code=code).stdout

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of the ledger, read beside the daemon."""
        connection = sqlite3.connect(f"{self.layout.ledger_file.as_uri()}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(sql, values)]
        finally:
            connection.close()

    def logged(self) -> str:
        """All of the log, rotated files included."""
        return "".join(path.read_text() for path in sorted(self.layout.log_file.parent.glob("clawd.jsonl*")))


@contextmanager
def ground(python: list[str] | None = None, root: Path | None = None, engine: Engine | None = None) -> Iterator[Ground]:
    """A home that is ended and removed with the block."""
    with tempfile.TemporaryDirectory(prefix="cl", ignore_cleanup_errors=True) as name:
        made = Ground(root or Path(name), python, engine)
        try:
            yield made
        finally:
            made.end()
            blocked = made.blocked()
    assert not blocked, "\n".join(blocked)
