"""The gateway as this daemon has it: made with the first request that needs it, over the config as it stands at each.

Who never grants anything pays nothing for it: aiohttp's client and cryptography are imported beside the loop, by the
first request or the first run of a group that has a grant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from clawd.clock import Clock
from clawd.config.group import Effective
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.config.schema import Config
from clawd.errors import ConfigError
from clawd.gateway import policy
from clawd.gateway.environment import environment
from clawd.gateway.policy import Grants
from clawd.usage.books import Books

if TYPE_CHECKING:
    from clawd.gateway.audit import Audit
    from clawd.gateway.certificates import Certificates
    from clawd.gateway.gateway import Gateway


class Gate:
    """`renew` reads `config.toml` again when it was touched, and tells of what is wrong with it; `chosen` are services
    that live turns of a group reach a model of their own choice through; model calls are entered in `books`."""

    def __init__(
        self,
        home: Home,
        config: LiveConfig,
        clock: Clock,
        renew: Callable[[], None],
        chosen: Callable[[str], frozenset[str]] = lambda group: frozenset(),
        books: Books | None = None,
    ) -> None:
        self._books = books
        self._chosen = chosen
        self._home, self._config, self._clock, self._renew = home, config, clock, renew
        self._grants: dict[str, tuple[Config, Effective, frozenset[str], Grants]] = {}
        self._making = asyncio.Lock()
        self._gateway: Gateway | None = None
        self._early: asyncio.Task[Gateway] | None = None
        self._audit: Audit | None = None
        self._certificates: Certificates | None = None

    def grants(self, group: str) -> Grants:
        """What a group may use now. Raises ConfigError while its file cannot be understood: what an edit was to take
        away must not stay because of a slip of the pen. (A bad `config.toml` leaves the last good one in force.)"""
        self._renew()
        settings = self._config.for_group(group)
        if (problem := self._config.problem_of(group)) is not None:
            raise ConfigError(f"groups/{group}/group.toml cannot be used, and grants nothing until it can: {problem}")
        config, known, chosen = self._config.current, self._grants.get(group), self._chosen(group)
        if known is None or known[0] is not config or known[1] is not settings or known[2] != chosen:
            known = self._grants[group] = (config, settings, chosen, policy.grants(config, settings, group, chosen))
        return known[3]

    def environment(self, group: str) -> dict[str, str]:
        """What the commands of a group find the gateway by, with `{token}` for their run's token."""
        return environment(self._granted(group))

    def _granted(self, group: str) -> Grants:
        try:
            return self.grants(group)
        except ConfigError:
            return Grants({}, frozenset())

    async def bundle(self, group: str) -> bytes | None:
        """The certificates that the clients of a group's sandbox trust, PEM; None while nothing is granted to it.
        Raises StorageError when our own cannot be kept."""
        if not self._granted(group).granted:
            return None
        certificates = await self._authority()
        bundle = await anyio.to_thread.run_sync(certificates.bundle)
        if self._gateway is None and self._early is None:  # the first request comes soon, and its import takes a while
            self._early = asyncio.create_task(self.gateway())
            self._early.add_done_callback(lambda task: task.cancelled() or task.exception())  # the request will tell
        return bundle

    async def _authority(self) -> Certificates:
        if self._certificates is None:
            module = await anyio.to_thread.run_sync(_import_certificates)
            self._certificates = self._certificates or module(self._home.state / "gateway")
        return self._certificates

    async def gateway(self) -> Gateway:
        """The one gateway."""
        if self._gateway is not None:
            return self._gateway
        async with self._making:
            if self._gateway is None:
                certificates = await self._authority()
                gateway, audit = await anyio.to_thread.run_sync(_import_gateway)
                self._audit = audit(self._home.state / "audit", self._config.current.retention.log_days)
                self._gateway = gateway(self.grants, self._audit, certificates, self._clock, books=self._books)
        return self._gateway

    async def close(self) -> None:
        """End every connection to an upstream, and the audit with what is still folded in it."""
        if self._gateway is not None and self._audit is not None:
            await self._gateway.close()
            self._audit.close()


def _import_certificates() -> type[Certificates]:
    from clawd.gateway.certificates import Certificates

    return Certificates


def _import_gateway() -> tuple[type[Gateway], type[Audit]]:
    from clawd.gateway.audit import Audit
    from clawd.gateway.gateway import Gateway

    return Gateway, Audit
