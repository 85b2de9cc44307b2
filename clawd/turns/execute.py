"""Commands beside a group's runner: the owner's (`clawd sandbox exec`), and the checks of schedules.

Each has a token of its own, which is good while it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import anyio

from clawd.clock import Clock, rfc3339
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.model import Authority
from clawd.trust import Role, lowest
from clawd.turns.dispatch import Dispatcher
from clawd.turns.road import new_token, token_hash
from clawd.turns.run import Command, Run

_REMEMBERED = 20  # commands of a group


class Executor:
    """`environment` is what a group's commands find the gateway by, with `{token}` for their token."""

    def __init__(
        self, dispatcher: Dispatcher, ledger: Ledger, clock: Clock, environment: Callable[[str], dict[str, str]]
    ) -> None:
        self._dispatcher, self._ledger, self._clock, self._environment = dispatcher, ledger, clock, environment
        self._commands: dict[str, list[tuple[str, str | None]]] = {}

    def commands(self, group: str) -> Sequence[tuple[str, str | None]]:
        """When the group's last commands began and ended; None: one runs. In any thread."""
        return tuple(self._commands.get(group, ()))

    async def output(
        self, group: str, argv: Sequence[str], *, role: Role, seconds: float, most_bytes: int
    ) -> tuple[int, bytes]:
        """Run a command for so long at most, without an input; gives its exit code, and the end of what it printed. It
        acts for `role`, as far as the work tree has not fallen. Raises SandboxUnavailable, TimeoutError."""
        await self._run(group)  # that may take longer
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        reads, writes = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reads, False)
        tail = bytearray()

        def read() -> bool:
            """Whether there may be more at once."""
            try:
                data = os.read(reads, 64 << 10)
            except BlockingIOError:
                return False
            tail.extend(data)
            del tail[:-most_bytes]
            return bool(data)

        async def follow() -> None:
            while True:
                await anyio.wait_readable(reads)
                if not read():
                    return

        try:
            with anyio.fail_after(seconds):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(follow)
                    code = await self.execute(group, list(argv), {}, (nothing, writes, nothing), role)
                    tasks.cancel_scope.cancel()  # what it leaves behind may hold the pipe open
            left = -(-most_bytes // (64 << 10)) + 1
            while left and read():
                left -= 1
        finally:
            for descriptor in (nothing, reads, writes):
                os.close(descriptor)
        return code, bytes(tail)

    async def execute(
        self,
        group: str,
        argv: list[str],
        environment: Mapping[str, str],
        streams: Sequence[int],
        role: Role = Role.OWNER,
    ) -> int:
        """Run a command on the caller's streams; gives its exit code. It acts for `role`, as far as the work tree has
        not fallen. Raises SandboxUnavailable."""
        run, token = await self._run(group), new_token()
        assert run.sandbox is not None
        run.exec_count += 1
        known, began = self._commands.setdefault(group, []), rfc3339(self._clock.now())
        known.append((began, None))
        try:
            await self._dispatcher.runs.trust(run)
            if wrong := (*run.left_out, *run.untrusted):
                told = "".join(f"clawd: {sentence}\n" for sentence in wrong).encode()
                with suppress(OSError):
                    await anyio.to_thread.run_sync(os.write, streams[2], told)
            await self._dispatcher.runs.thaw(run)
            tree = await self._ledger.do(lambda tx: groups.get(tx, group).authority)
            acts = Authority(lowest([tree.role, role]), tree.taint)
            await self._dispatcher.runs.skills.renew(run, acts)
            run.commands[token_hash(token)] = Command(acts.role)
            road = {name: value.replace("{token}", token) for name, value in self._environment(group).items()}
            return await run.sandbox.execute(argv, {**environment, **road, "CLAWD_TOKEN": token}, streams)
        finally:
            run.commands.pop(token_hash(token), None)
            run.exec_count -= 1
            known[known.index((began, None))] = began, rfc3339(self._clock.now())
            known[:] = [each for n, each in enumerate(known) if each[1] is None or n >= len(known) - _REMEMBERED]
            run.last_worked = self._clock.monotonic()
            run.look_again()
            self._dispatcher.reconsider()

    async def _run(self, group: str) -> Run:
        """The group's run, made as its config is now: an edit holds from the next command on, as from the next turn."""
        run = await self._dispatcher.ensure(group)
        runs = self._dispatcher.runs
        if not (run.busy or run.exec_count) and (runs.outlived(run) or not await runs.fits(run)):
            await self._dispatcher.end_run(group)
            run = await self._dispatcher.ensure(group)
        return run
