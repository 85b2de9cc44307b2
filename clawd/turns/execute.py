"""Commands of the owner beside a group's runner (`clawd sandbox exec`).

Each has a token of its own, which is good while it runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import anyio

from clawd.clock import Clock
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.turns.dispatch import Dispatcher
from clawd.turns.road import new_token, token_hash
from clawd.turns.run import Command, Run


class Executor:
    """`environment` is what a group's commands find the gateway by, with `{token}` for their token."""

    def __init__(
        self, dispatcher: Dispatcher, ledger: Ledger, clock: Clock, environment: Callable[[str], dict[str, str]]
    ) -> None:
        self._dispatcher, self._ledger, self._clock, self._environment = dispatcher, ledger, clock, environment

    async def execute(self, group: str, argv: list[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
        """Run a command on the caller's streams; gives its exit code. It acts for the owner, as far as the work tree
        has not fallen. Raises SandboxUnavailable."""
        run, token = await self._run(group), new_token()
        assert run.sandbox is not None
        run.exec_count += 1
        try:
            await self._dispatcher.runs.trust(run)
            if wrong := (*run.left_out, *run.untrusted):
                told = "".join(f"clawd: {sentence}\n" for sentence in wrong).encode()
                with suppress(OSError):
                    await anyio.to_thread.run_sync(os.write, streams[2], told)
            await self._dispatcher.runs.thaw(run)
            tree = await self._ledger.do(lambda tx: groups.get(tx, group).authority)
            await self._dispatcher.runs.skills.renew(run, tree)
            run.commands[token_hash(token)] = Command(tree.role)
            road = {name: value.replace("{token}", token) for name, value in self._environment(group).items()}
            return await run.sandbox.execute(argv, {**environment, **road, "CLAWD_TOKEN": token}, streams)
        finally:
            run.commands.pop(token_hash(token), None)
            run.exec_count -= 1
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
