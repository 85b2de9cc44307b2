"""Commands beside a runner whose output is read: a schedule's check."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.ledger import groups
from clawd.trust import Role
from tests.turns.conftest import Ground, opened

pytestmark = pytest.mark.anyio


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def output(
    ground: Ground, script: str, role: Role = Role.OWNER, seconds: float = 10.0
) -> tuple[int, bytes, list[Role]]:
    """What a shell script in the place of the sandbox gives, and for whom it acted meanwhile."""
    run = await ground.dispatcher.ensure("main")
    acted: list[Role] = []

    async def execute(argv: list[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
        acted.extend(command.role for command in run.commands.values())
        process = await anyio.open_process(argv, stdin=streams[0], stdout=streams[1], stderr=streams[2])
        try:
            return await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    box: Any = ground.box(run)
    box.execute = execute
    got = await ground.executor.output("main", ["/bin/sh", "-c", script], role=role, seconds=seconds, most_bytes=1000)
    return *got, acted


async def test_its_end_its_code_and_for_whom_it_acts(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        await ground.recorded(await ground.accept())
        assert await output(ground, "echo seen; echo unseen >&2; cat") == (0, b"seen\n", [Role.OWNER])
        assert await output(ground, "exit 3", Role.MEMBER) == (3, b"", [Role.MEMBER])
        code, tail, _ = await output(ground, "yes 0123456789 | head -c 1000000; echo last")
        assert (code, len(tail), tail[-5:]) == (0, 1000, b"last\n")
        before = len(list(Path("/proc/self/fd").iterdir()))
        code, tail, _ = await output(ground, "sleep 30 & echo $!")  # what it leaves behind has the pipe open
        os.kill(int(tail), 9)
        with pytest.raises(TimeoutError):
            await output(ground, "exec sleep 30", seconds=0.2)
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        await ground.ledger.do(lambda tx: groups.fall(tx, "main", Role.MEMBER, 0.4))
        assert (await output(ground, "true"))[2] == [Role.MEMBER]
