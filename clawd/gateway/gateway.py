"""The gateway: takes a request of a run from its socket to an answer, by the one policy, and writes down what happened.

The order: is the target one, is there a road, whose token is shown and where, the policy, the limits, the credential,
the address; then the upstream. Nothing is resolved or dialled before the verdict. Each request has one line in the
audit, however it ends.

Importing this module imports aiohttp and cryptography: a daemon does so with its first request.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from yarl import URL

from clawd import faults
from clawd.clock import Clock
from clawd.config import grammar
from clawd.errors import ClawdError, ConfigError
from clawd.gateway import address, headers, relay, target, websocket
from clawd.gateway.audit import Audit, Entry
from clawd.gateway.caller import Caller
from clawd.gateway.certificates import Certificates
from clawd.gateway.credentials import Credentials
from clawd.gateway.limits import IDLE_S, TOTAL_S, Counts, Deadline
from clawd.gateway.metering import Metering, ModelCall
from clawd.gateway.policy import Destination, Grants, decide
from clawd.gateway.refusal import ALARMING, QUIET, Aborted, Refusal
from clawd.gateway.relay import Exchange
from clawd.gateway.scrub import Forms, forms_of
from clawd.gateway.target import Malformed, Target
from clawd.gateway.tokens import PROXY, shown
from clawd.gateway.tunnel import tunnel
from clawd.gateway.upstream import Upstreams
from clawd.usage.books import Books

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Inner = Callable[[Handler], asyncio.BaseProtocol]
Lookup = Callable[[str], Awaitable[list[str]]]

_MOST_FORMS = 64  # credentials whose forms are kept ready
_UPSTREAMS_FAULT = 502
_TUNNEL_RULES = {400: "malformed", 408: "too_slow", 421: "host_mismatch"}

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Asked:
    """A request that is being judged; `tunnel` is what its CONNECT said, when it is inside of one."""

    request: web.BaseRequest
    caller: Caller
    entry: Entry
    tunnel: Target | None
    since: float
    written: bool = False
    own: bool = False
    exchange: Exchange | None = None
    begun: int | None = None  # once it was let through, what the audit knows it by


class Gateway:
    """One for the daemon. `grants` gives what a group may use now (raises ConfigError), `lookup` the addresses of a
    name; model calls are entered in `books`."""

    def __init__(
        self,
        grants: Callable[[str], Grants],
        audit: Audit,
        certificates: Certificates,
        clock: Clock,
        lookup: Lookup | None = None,
        books: Books | None = None,
    ) -> None:
        self._grants, self._audit, self._certificates, self._clock = grants, audit, certificates, clock
        self._lookup, self._lookups = lookup, dict[str, Lookup]()
        self._counts = Counts(clock)
        self._metering = Metering(books, clock) if books is not None else None
        self._credentials = Credentials()
        self._upstreams = Upstreams(self._addresses)
        self._forms: dict[bytes, Forms] = {}  # by a hash of the credential: nothing here shows it
        for name in ("access", "client", "internal", "websocket"):  # they would write down what passes through
            logging.getLogger(f"aiohttp.{name}").disabled = True

    async def serve(
        self, request: web.BaseRequest, caller: Caller, inner: Inner, own: bool = False
    ) -> web.StreamResponse:
        """A request of a run's socket that is none of the host's own. `inner` makes the HTTP protocol of a connection
        that a tunnel becomes, whose requests go to the given handler. `own`: a model call of the runner itself, whose
        turn ends with what is said here."""
        asked = self._asked(request, caller)
        asked.own = own
        if request.method == "CONNECT":
            return await self._audited(asked, lambda asked: self._tunnel(asked, inner))
        return await self._audited(asked, self._request)

    def unread(self, caller: Caller, status: int, rule: str) -> None:
        """Something was refused before it was a request: it has a line, too."""
        road = caller.road()
        turn = road.turn if road is not None else None
        self._audit.write(Entry(caller.group, caller.run, turn, rule=rule, status=status))

    async def close(self) -> None:
        """End every connection to an upstream."""
        await self._upstreams.close()
        if self._metering is not None:
            await self._metering.close()

    # ---- one request, and its line in the audit

    async def _audited(
        self, asked: _Asked, doing: Callable[[_Asked], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            try:
                return await doing(asked)
            except ClawdError as error:
                raise _unavailable(error) from error
        except Refusal as refusal:
            return self._refused(asked, refusal)
        except Aborted:
            asked.entry.rule = "aborted"
            return _broken_off(asked)
        except asyncio.CancelledError:
            asked.entry.rule = "aborted"
            raise
        except Exception:
            log.exception("run %s: a request was not served, by a defect of clawd", asked.caller.run)
            return self._refused(asked, Refusal("defect", "clawd has a defect here; its log says more", 500))
        finally:
            self._write(asked)

    def _write(self, asked: _Asked) -> None:
        """Once."""
        if not asked.written:
            asked.written = True
            asked.entry.ms = round((self._clock.monotonic() - asked.since) * 1000, 2)
            self._audit.write(asked.entry, asked.begun)

    def _asked(self, request: web.BaseRequest, caller: Caller, tunnel: Target | None = None) -> _Asked:
        return _Asked(
            request, caller, Entry(caller.group, caller.run, method=request.method), tunnel, self._clock.monotonic()
        )

    async def _request(self, asked: _Asked) -> web.StreamResponse:
        return await self._relayed(asked, self._judge(asked))

    async def _tunnel(self, asked: _Asked, inner: Inner) -> web.StreamResponse:
        """CONNECT. Its line is written once it stands; each request inside is judged anew, and has its own."""
        to, entry = self._judge(asked), asked.entry
        where = Target("tunnel", scheme="https", host=to.host, port=to.port)

        async def inside(request: web.BaseRequest) -> web.StreamResponse:
            return await self._audited(self._asked(request, asked.caller, where), self._request)

        def stands(handler: Handler) -> asyncio.BaseProtocol:
            self._write(asked)
            return inner(handler)

        context = await asyncio.to_thread(self._certificates.context, to.host)
        entry.status = 200
        try:
            response = await tunnel(asked.request, to.host, context, stands, inside)
        except Malformed as error:
            raise Refusal(error.rule, error.message, 400, close=True) from error
        entry.status = response.status
        if response.status != 200:
            entry.verdict, entry.rule = "deny", _TUNNEL_RULES.get(response.status, "malformed")
        return response

    def _refused(self, asked: _Asked, refusal: Refusal) -> web.StreamResponse:
        entry, caller = asked.entry, asked.caller
        entry.rule = refusal.rule
        exchange = asked.exchange  # of what was allowed, and then an upstream failed, or it became too much
        if exchange is None or (refusal.status < 500 and exchange.started is None):
            entry.verdict = "deny"
        if (entry.verdict == "deny" and refusal.rule not in QUIET) or refusal.rule in ALARMING:
            where = entry.service or entry.host or "the gateway"
            said = f"{refusal.message} ({refusal.hint})" if refusal.hint else refusal.message
            sentence = f"{entry.method} to {where} was refused ({refusal.rule}): {said}."
            if refusal.rule in ALARMING:
                caller.alarm(f"run {caller.run} of {caller.group}: {sentence}")
            if not asked.own:
                caller.told(sentence)
        if exchange is not None and exchange.started is not None:
            return _broken_off(asked)
        entry.status = refusal.status
        return refusal.response()

    # ---- the verdict

    def _judge(self, asked: _Asked) -> Destination:
        """Where the request goes, when it may. Raises Refusal."""
        request, caller, entry = asked.request, asked.caller, asked.entry
        raw, road = request.raw_path, caller.road()
        entry.path, entry.turn = raw.partition("?")[0], road.turn if road is not None else None
        entry.host = asked.tunnel.host if asked.tunnel else ""
        try:
            to = target.parse(request.method, raw) if asked.tunnel is None else target.inside(asked.tunnel, raw)
        except Malformed as error:
            raise Refusal(error.rule, error.message, 400, close=True) from error
        entry.host, entry.path, entry.service = to.host, to.path, to.service or None
        if request.method in ("TRACE", "TRACK"):
            raise Refusal("method", f"{request.method} would echo what is sent", 405)
        if headers.too_large(request.raw_headers):
            raise Refusal("too_large", "the head of the request is too large", 431, close=True)
        headers.expects_continue(request)
        headers.framed(request)
        if road is None:
            raise Refusal("no_turn", "there is no road while no turn is live")
        services = shown(request, caller, None if asked.tunnel or to.shape == "route" else PROXY)
        if services is None and asked.tunnel is None:
            hint = "as a bearer token, or in the proxy's URL"
            raise Refusal("no_token", "the gateway needs the run's token (CLAWD_TOKEN)", hint=hint)
        if to.shape != "route" and request.method != "CONNECT":
            _same_host(request, to)
        verdict = decide(request.method, to, self._grants(caller.group), road.role)
        entry.service = verdict.service or entry.service
        if services and to.shape != "plain" and request.method != "CONNECT" and services != {entry.service}:
            raise Refusal("placeholder_misuse", f"a placeholder of {' and '.join(sorted(services))} was sent elsewhere")
        destination = verdict.destination
        if not verdict.allow or destination is None:
            raise Refusal(verdict.rule, verdict.reason, verdict.status, hint=verdict.hint)
        if road.jobs and not destination.service.model:
            raise Refusal("job", "a job may call its model alone")
        entry.host, entry.rule = destination.host, verdict.rule
        if request.method == "CONNECT":
            entry.verdict = "allow"
            return destination
        entry.path = destination.path
        service = destination.service
        if websocket.asked(request) and not service.websocket:
            hint = f"websocket = true in [services.{service.name}] in config.toml"
            raise Refusal("websocket", f"{service.name} takes no WebSockets", hint=hint)
        return destination

    def _call(self, asked: _Asked, to: Destination) -> ModelCall | None:
        """The model call that an allowed request is, within the group's calls of a minute."""
        metering, request, caller = self._metering, asked.request, asked.caller
        if metering is None:
            return None
        if request.method != "POST":
            if to.service.websocket and websocket.asked(request):
                metering.check_socket(to)
            return None
        call = metering.call(request, caller, to, asked.entry)
        if call is not None and (most := metering.books.requests_per_minute(caller.group)) is not None:
            self._counts.call(caller.group, most)
        return call

    # ---- what was allowed

    async def _relayed(self, asked: _Asked, to: Destination) -> web.StreamResponse:
        request, caller, service = asked.request, asked.caller, to.service
        call = self._call(asked, to)
        meter = self._counts.take(caller.group, service.name, caller.run, asked.entry.turn, service.limits)
        meter.declares(request.content_length or 0)
        fields, query, forms = headers.outgoing(request.headers, service.inject), to.query, None
        if service.credential is not None:
            asked.entry.credential = str(service.credential)
            secret = await self._credentials.reveal(service.credential)
            forms = self._forms_of(secret, service.inject.basic if service.inject else None)
            if header := headers.credential(service.inject, secret):
                fields[header[0]] = header[1]
            elif service.inject is not None and service.inject.query:
                query = headers.with_parameter(query, service.inject.query, secret)
        url = URL.build(scheme=to.scheme, host=to.host, port=to.port, path=to.path, query_string=query, encoded=True)
        limits = service.limits
        deadline = Deadline(limits.idle_s or IDLE_S, limits.total_s or TOTAL_S)
        asked.entry.verdict = "allow"
        asked.begun = self._audit.begin(asked.entry)
        faults.passing("let_through")
        client = await self._upstreams.client(caller.group, to)
        exchange = asked.exchange = Exchange(
            request, caller, to, asked.entry, meter, deadline, client.session, url, fields, forms, call
        )
        try:
            with deadline:
                relaying = websocket.relay if service.websocket and websocket.asked(request) else relay.relay
                return await relaying(exchange)
        except TimeoutError as error:
            raise relay.failure(exchange, error) from error
        finally:
            client.leave()
            if call is not None:
                call.end()

    def _forms_of(self, secret: str, user: str | None) -> Forms:
        key = hashlib.sha256(f"{user}\0{secret}".encode("utf-8", "surrogatepass")).digest()
        forms = self._forms.get(key)
        if forms is None:
            while len(self._forms) >= _MOST_FORMS:
                del self._forms[next(iter(self._forms))]
            forms = self._forms[key] = Forms(forms_of(secret, user))
        return forms

    async def _addresses(self, group: str, to: Destination) -> list[str]:
        lookup = self._lookup or self._lookups.setdefault(group, address.SystemLookup())
        try:
            return await address.check(to.host, to.port, to, lookup)
        except address.Refused as error:
            raise Refusal(error.rule, error.message, hint=error.hint) from error


def _unavailable(error: ClawdError) -> Refusal:
    rule = "config" if isinstance(error, ConfigError) else "unavailable"
    return Refusal(rule, error.message, 503, hint=error.hint)


def _same_host(request: web.BaseRequest, to: Target) -> None:
    """Raises Refusal when Host names another than the target does."""
    try:
        host, port = grammar.authority(request.headers.get("Host", ""))
    except ValueError as error:
        raise Refusal("malformed", f"Host: {error}", 400, close=True) from error
    if (host, port or grammar.PORTS[to.scheme]) != (to.host, to.port):
        raise Refusal("host_mismatch", f"Host names {host}, and the request goes to {to.host}", 421)


def _broken_off(asked: _Asked) -> web.StreamResponse:
    """An answer that cannot be ended well is not ended at all."""
    if asked.request.transport is not None:
        asked.request.transport.abort()
    if asked.exchange is not None and asked.exchange.started is not None:
        return asked.exchange.started
    return web.Response(status=_UPSTREAMS_FAULT)
