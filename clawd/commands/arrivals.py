"""What was brought in from other claws, on the owner's word: looking, and saying yes. Saying yes is the same behind the
control socket and under the home's lock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from clawd.config.home import Home
from clawd.errors import NotBuilt

Params = dict[str, Any]


def listed(home: Home, group: str | None) -> list[Params]:
    """[{source, group, home, brought, kinds{kind: {waits, accepted, left}}, path}]. Raises NotFound."""
    raise NotBuilt("bringing in is not built yet")


class ArrivalOperations:
    def table(self) -> dict[str, Callable[[Params], Awaitable[Params]]]:
        return {name: partial(operation, self) for name, operation in _OPERATIONS.items()}

    async def accept(self, params: Params) -> Params:
        """{source, group?, only?[]} → {source, accepted[{kind, group, from, to}], left[{group, from, why}]}. Raises
        NotFound."""
        raise NotBuilt("bringing in is not built yet")


_OPERATIONS = {"bridge.accept": ArrivalOperations.accept}
OPERATIONS = tuple(_OPERATIONS)
