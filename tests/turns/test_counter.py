from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock

import pytest

from clawd.errors import LeaseLost
from clawd.model import Final, Lease
from clawd.turns.counter import Counter
from clawd.turns.dispatch import Dispatcher
from clawd.turns.leases import LiveTurn
from clawd.turns.runs import Run

pytestmark = pytest.mark.anyio

LEASE = Lease("r", 7, 1, 0)


async def test_a_sandbox_that_is_being_killed_has_no_say_any_more() -> None:
    """Its processes die one by one: a runner that outlives its command would call that the command's own end."""
    run = Run("r", "main", cast(Any, None), "token", live={7: LiveTurn(7, "s", 1, 0, 0.0, 0.0)})
    counter = Counter(
        dispatcher=Mock(run_of=lambda id: run),
        ledger=cast(Any, None),  # nothing of what it says gets this far
        clock=Mock(),
        signals=Mock(),
        composer=Mock(),
        blobs=Mock(),
        text_limit=lambda channel: 4000,
        parallel=lambda: 1,
    )
    refused = []

    class Sandbox:
        async def kill(self) -> None:
            for word in (
                counter.step(LEASE, 1, {"role": "tool", "content": "[The command was killed.]"}, []),
                counter.final(LEASE, Final(text="[The command was killed.]")),
            ):
                with pytest.raises(LeaseLost):
                    await word
                refused.append(word)

    run.sandbox = cast(Any, Sandbox())
    await Dispatcher._kill(cast(Any, None), run)
    assert len(refused) == 2
