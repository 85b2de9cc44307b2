"""The gateway: takes a request of a run from its socket to an answer, by the one policy, and writes down what happened.

Importing this module imports aiohttp and cryptography: a daemon does so with its first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from clawd.clock import Clock
from clawd.gateway.audit import Audit
from clawd.gateway.caller import Caller
from clawd.gateway.certificates import Certificates
from clawd.gateway.policy import Grants

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Inner = Callable[[Handler], asyncio.BaseProtocol]
Lookup = Callable[[str], Awaitable[list[str]]]


class Gateway:
    """One for the daemon. `grants` gives what a group may use now (raises ConfigError), `lookup` the addresses of a
    name."""

    def __init__(
        self,
        grants: Callable[[str], Grants],
        audit: Audit,
        certificates: Certificates,
        clock: Clock,
        lookup: Lookup | None = None,
    ) -> None:
        self._grants, self._audit, self._certificates, self._clock, self._lookup = (
            grants,
            audit,
            certificates,
            clock,
            lookup,
        )

    async def serve(self, request: web.BaseRequest, caller: Caller, inner: Inner) -> web.StreamResponse:
        """A request of a run's socket that is none of the host's own. `inner` makes the HTTP protocol of a connection
        that a tunnel becomes, whose requests go to the given handler."""
        raise NotImplementedError

    async def close(self) -> None:
        """End every connection to an upstream."""
        raise NotImplementedError
