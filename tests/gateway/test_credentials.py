"""Credentials: one that cannot be read keeps nobody else waiting."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from clawd.config.secrets import Secret
from clawd.gateway.credentials import Credentials

pytestmark = pytest.mark.anyio


class Hanging(Secret):
    """A file on a server that does not answer."""

    over = threading.Event()
    reads = 0

    def reveal(self, environment: Mapping[str, str] | None = None) -> str:
        self.reads += 1
        self.over.wait(60)
        return "late"


async def test_a_file_that_hangs_keeps_one_thread_and_no_other_credential(tmp_path: Path) -> None:
    credentials, hanging = Credentials(), Hanging("${file:/net/key}")
    (tmp_path / "key").write_text("here")
    try:
        for _ in range(10):
            with anyio.move_on_after(0.02):
                await credentials.reveal(hanging)
        assert hanging.reads <= 1
        assert await credentials.reveal(Secret(f"${{file:{tmp_path}/key}}")) == "here"
    finally:
        hanging.over.set()
