"""What other programs on this machine write into a home: messages of sessions, and memories. The same behind the
control socket and under the home's lock. All of it is `external`: the group's `external` says which sessions take it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from clawd.errors import NotBuilt

Params = dict[str, Any]


class ExternalOperations:
    def table(self) -> dict[str, Callable[[Params], Awaitable[Params]]]:
        return {name: partial(operation, self) for name, operation in _OPERATIONS.items()}

    async def inject(self, params: Params) -> Params:
        """{session, group?, blocks[{role, content, at?, tool_calls?, tool_call_id?}], key?} → {session, group, key,
        state: recorded|waits|known, waits[]}."""
        raise NotBuilt("injecting is not built yet")


_OPERATIONS = {"session.inject": ExternalOperations.inject}
OPERATIONS = tuple(_OPERATIONS)
