"""A secret of the tests that must be found nowhere: what the gateway's system tests use as the key of every service.

`Hunt` looks for it, in every form that it could have been written in: in files, in processes, in what commands printed
and in what an Engine tells of containers. Only its own file, and what the upstream received, may hold it.
"""

from __future__ import annotations

import base64
import json
import secrets
import urllib.parse
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CANARY = f"sk-CANARY-{secrets.token_hex(16)}"


def forms(secret: str = CANARY) -> set[bytes]:
    """How it could stand somewhere: as it is, without its public beginning, turned round, in hex, in base64 at each
    alignment, in a URL and in JSON."""
    found = {secret, secret[-32:], secret[::-1], secret.encode().hex(), urllib.parse.quote(secret, safe="")}
    found.add("".join(f"%{byte:02X}" for byte in secret.encode()))
    found.add(json.dumps("".join(f"\\u{ord(letter):04x}" for letter in secret))[1:-1].replace("\\\\", "\\"))
    for before, begins in ((0, 0), (1, 2), (2, 3)):
        data = b"\0" * before + secret.encode()
        # the characters that depend on the secret alone, whatever stands before and after it
        known = base64.b64encode(data).decode()[begins : len(data) * 8 // 6]
        found |= {known, known.replace("+", "-").replace("/", "_")}
    return {form.encode() for form in found}


class Hunt:
    """What was looked through, and where the secret was. `own` are the files that may hold it."""

    def __init__(self, own: Iterable[Path], secret: str = CANARY) -> None:
        self._own, self._forms = {path.resolve() for path in own}, forms(secret)
        self.found: list[str] = []
        self.looked = 0

    def data(self, what: str, data: bytes) -> None:
        self.looked += 1
        if any(form in data for form in self._forms):
            self.found.append(what)

    def tree(self, root: Path) -> None:
        """Every regular file below, and every name."""
        for path in root.rglob("*"):
            if path.resolve() in self._own or path.is_symlink():
                continue
            self.data(f"the name {path}", str(path).encode())
            if path.is_file():
                with suppress(OSError):  # it went away
                    self.data(str(path), path.read_bytes())

    def cores(self, *directories: Path) -> None:
        for directory in directories:
            for path in directory.glob("core*"):
                if path.is_file():
                    self.data(str(path), path.read_bytes())

    def processes(self, pids: Iterable[int]) -> None:
        for pid in pids:
            for name in ("environ", "cmdline", "comm", "mountinfo"):
                with suppress(OSError):  # it ended
                    self.data(f"{name} of {pid}", Path(f"/proc/{pid}/{name}").read_bytes())
