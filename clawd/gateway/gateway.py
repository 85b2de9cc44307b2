"""The gateway: takes a request of a run from its socket to an answer, by the one policy, and writes down what happened.

The order: is the target one, is there a road, whose token is shown and where, the policy, the limits, the credential,
the address; then the upstream. Nothing is resolved or dialled before the verdict. Each request has one line in the
audit, however it ends.

Importing this module imports aiohttp and cryptography: a daemon does so with its first request.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from aiohttp import web
from yarl import URL

from clawd.clock import Clock
from clawd.config import grammar
from clawd.errors import ClawdError, ConfigError
from clawd.gateway import headers, relay, target, websocket
from clawd.gateway.audit import Audit, Entry
from clawd.gateway.caller import Caller
from clawd.gateway.certificates import Certificates
from clawd.gateway.limits import IDLE_S, TOTAL_S, Counts, Deadline
from clawd.gateway.policy import Destination, Grants, Verdict, decide
from clawd.gateway.refusal import ALARMING, Aborted, Refusal
from clawd.gateway.relay import Exchange
from clawd.gateway.scrub import Forms, forms_of
from clawd.gateway.target import Malformed, Target
from clawd.gateway.upstream import Upstreams

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Inner = Callable[[Handler], asyncio.BaseProtocol]
Lookup = Callable[[str], Awaitable[list[str]]]

_PROXY = frozenset({"proxyauthorization"})
_MOST_FORMS = 64  # credentials whose forms are kept ready

log = logging.getLogger(__name__)


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
        self._grants, self._audit, self._certificates, self._clock = grants, audit, certificates, clock
        self._counts = Counts(clock)
        self._upstreams = Upstreams(partial(address.addresses, lookup=lookup))
        self._forms: dict[tuple[str, str | None], Forms] = {}
        for name in ("access", "client", "internal", "websocket"):  # they would write down what passes through
            logging.getLogger(f"aiohttp.{name}").disabled = True

    async def serve(self, request: web.BaseRequest, caller: Caller, inner: Inner) -> web.StreamResponse:
        """A request of a run's socket that is none of the host's own. `inner` makes the HTTP protocol of a connection
        that a tunnel becomes, whose requests go to the given handler."""
        return await self._audited(request, caller, inner, None)

    async def _inside(self, request: web.BaseRequest, caller: Caller, tunnel: Target) -> web.StreamResponse:
        """A request inside of a tunnel."""
        return await self._audited(request, caller, None, tunnel)

    async def close(self) -> None:
        """End every connection to an upstream."""
        await self._upstreams.close()

    async def _audited(
        self, request: web.BaseRequest, caller: Caller, inner: Inner | None, tunnel: Target | None
    ) -> web.StreamResponse:
        begun = self._clock.monotonic()
        judged = _Judged(request, caller, Entry(caller.group, caller.run, method=request.method), tunnel)
        entry = judged.entry
        try:
            try:
                destination = self._judge(judged)
                if request.method != "CONNECT":
                    return await self._relay(judged, destination)
            except ConfigError as error:
                raise Refusal("config", error.message, 503, hint=error.hint) from error
            except ClawdError as error:
                raise Refusal("unavailable", error.message, 503, hint=error.hint) from error
        except Refusal as refusal:
            return self._refused(judged, refusal)
        except Aborted:
            entry.rule = "aborted"
            return _broken_off(judged)
        except asyncio.CancelledError:
            entry.rule = "aborted"
            raise
        except Exception:
            entry.rule = "defect"
            log.exception("run %s: a request could not be served", caller.run)
            return _broken_off(judged) if judged.started else Refusal("defect", "clawd has a defect here", 500).response()
        finally:
            entry.ms = round((self._clock.monotonic() - begun) * 1000, 2)
            self._audit.write(entry)
        return await self._tunnel(judged, inner)
