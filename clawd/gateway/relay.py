"""Carries one allowed request to its upstream and the answer back, streaming both ways with back pressure.

Nothing of the sandbox's decides where it goes: that is the exchange's URL alone. A token of a run never leaves in a
body, a credential never comes back. What breaks off in the middle is broken off on the other side, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from clawd.gateway import headers
from clawd.gateway.audit import Entry
from clawd.gateway.caller import Caller
from clawd.gateway.limits import Deadline, Meter
from clawd.gateway.metering import ModelCall
from clawd.gateway.policy import Destination
from clawd.gateway.refusal import Aborted, Refusal
from clawd.gateway.scrub import Forms, Stream
from clawd.gateway.tokens import Tokens
from clawd.trust import at_least

# What surely did not reach an upstream.
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
_WHOLE = 64 << 10  # bytes of a request's body that are read before the upstream is asked

T = TypeVar("T")


@dataclass(slots=True)
class Exchange:
    """One allowed request. `forms` are those of the credential that it carries, `started` the answer, once its head
    went to the sandbox, `call` the model call that it is."""

    request: web.BaseRequest
    caller: Caller
    destination: Destination
    entry: Entry
    meter: Meter
    deadline: Deadline
    session: aiohttp.ClientSession
    url: URL
    headers: CIMultiDict[str]
    forms: Forms | None
    call: ModelCall | None = None
    started: web.StreamResponse | None = None

    def sent(self, size: int) -> None:
        """So many bytes came from the sandbox. Raises Refusal when they may not go on."""
        self._open()
        self.meter.send(size)
        self.entry.bytes_in += size

    def took(self, size: int) -> None:
        """So many bytes came from the upstream. Raises Refusal when they may not go on."""
        self._open()
        self.meter.take(size)

    def _open(self) -> None:
        """The road that let it in must last: what outlives its turn would serve the next one, whoever that acts for."""
        self.deadline.moved()
        road, needed = self.caller.road(), self.destination.service.needed
        if road is None:
            raise Refusal("no_turn", "the turn of this request is over")
        if not at_least(road.role, needed):
            raise Refusal("role", f"{self.destination.service.name} needs role {needed}; a turn of {road.role} began")
        if road.jobs and not self.destination.service.model:
            raise Refusal("job", "only a job is live now, and it may call its model alone")

    async def taints(self) -> None:
        """Before anything of an answer is passed on."""
        if not self.destination.service.model:
            await self.caller.taint(0.2)


class Body:
    """A request's body on its way. `problem` is why it was not whole, `waiting` whether the sandbox is waited for."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._content = exchange, exchange.request.content
        self._tokens = Tokens(exchange.caller)
        self._continues = headers.expects_continue(exchange.request)
        self._begun = False
        self.problem: Exception | None = None
        self.waiting = self.complete = False

    async def whole(self) -> bytes:
        came = self._content.is_eof() and self._content.exception() is None
        if came and not self._continues:  # with its head: most do
            data = self._content.read_nowait()
            self._exchange.sent(len(data))
            self._tokens.check(data)
            self._begun = self.complete = True
            return data
        return b"".join([part async for part in self])

    def __aiter__(self) -> AsyncIterator[bytes]:
        if self._begun:  # aiohttp repeats a request of which a kept connection knew nothing; a body comes once
            raise aiohttp.ClientError("the body of a request was sent already")
        self._begun = True
        return self._parts()

    async def _parts(self) -> AsyncIterator[bytes]:
        transport = self._exchange.request.transport
        if self._continues and transport is not None and not transport.is_closing():
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            while True:
                self.waiting = True
                data = await self._content.readany()
                self.waiting = False
                if not data:
                    break
                self._exchange.sent(len(data))
                if part := self._tokens.feed(data):
                    yield part
            if part := self._tokens.end():
                yield part
            self.complete = True
        except Refusal as refusal:
            self.problem = refusal
            raise
        except Exception as error:
            transport = self._exchange.request.transport
            gone = isinstance(error, ConnectionError) or transport is None or transport.is_closing()
            if isinstance(error, TimeoutError):
                self.problem = Refusal("too_slow", str(error), 408, close=True)
            else:
                self.problem = Aborted() if gone else Refusal("malformed", "the body is no HTTP", 400, close=True)
            raise self.problem from error


async def relay(exchange: Exchange) -> web.StreamResponse:
    """The upstream's answer, sent or ready to be. Raises Refusal (before or after `started`) and Aborted."""
    request = exchange.request
    body = Body(exchange) if request.body_exists else None
    data: Any = body
    call, length = exchange.call, request.content_length
    try:
        if call is not None:
            data = await call.admit(aiter(body) if body is not None else None)
            exchange.headers["Content-Length"] = str(len(data))
        elif body is not None and length is not None:
            exchange.headers["Content-Length"] = str(length)
            if length <= _WHOLE:
                data = await body.whole()
        response = await exchange.session.request(
            request.method, exchange.url, headers=exchange.headers, data=data, allow_redirects=False, middlewares=()
        )
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if call is not None:
            call.unsent = isinstance(error, _UNSENT)
        raise (body.problem if body is not None else None) or failure(exchange, error) from error
    except Refusal:  # of an address: nothing was dialled
        if call is not None:
            call.unsent = True
        raise
    except asyncio.CancelledError:
        if exchange.deadline.expired and body is not None and body.waiting:
            raise Refusal("too_slow", "the request did not arrive in time", 408, close=True) from None
        raise
    done = False
    try:
        if call is not None:
            call.answered(response)
        answer = await _answer(exchange, response)
        done = body is None or body.complete
        if not done:
            answer.force_close()
        return answer
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise (body.problem if body is not None else None) or failure(exchange, error) from error
    finally:
        if done:
            response.release()
        else:
            response.close()


async def _answer(exchange: Exchange, response: aiohttp.ClientResponse) -> web.StreamResponse:
    request, entry = exchange.request, exchange.entry
    empty = request.method == "HEAD" or response.status in (204, 304)
    if response.status < 200 or headers.too_large(response.raw_headers):
        raise failure(exchange, None)
    if not empty:
        _unpacked(exchange, response)
    await exchange.taints()
    fields = headers.incoming(response.headers, exchange.forms)
    entry.status = response.status
    call = exchange.call
    length = response.headers.get("Content-Length")
    if empty:
        if length is not None:
            fields["Content-Length"] = length
        return web.StreamResponse(status=response.status, headers=fields)
    content = response.content
    stream = Stream(exchange.forms) if exchange.forms is not None else None
    first = content.read_nowait()
    exchange.took(len(first))
    if call is not None:
        call.feed(first)
    if content.at_eof():  # all of it is here: most answers
        if call is not None:
            call.arrived()
        if stream is not None:
            first = stream.feed(first) + stream.end()
        entry.bytes_out += len(first)
        return web.Response(body=first, status=response.status, headers=fields)
    if stream is None and length is not None:
        fields["Content-Length"] = length
    answer = exchange.started = web.StreamResponse(status=response.status, headers=fields)
    writer = await _to_sandbox(answer.prepare(request))
    part = stream.feed(first) if stream is not None else first
    if not part and writer is not None:
        writer.send_headers()  # which would wait for the first byte
    while True:
        if part:
            entry.bytes_out += len(part)
            await _to_sandbox(answer.write(part))
            exchange.deadline.moved()
        data = await content.readany()
        if not data:
            break
        exchange.took(len(data))
        if call is not None:
            call.feed(data)
        part = stream.feed(data) if stream is not None else data
    if call is not None:
        call.arrived()
    if stream is not None and (part := stream.end()):
        entry.bytes_out += len(part)
        await _to_sandbox(answer.write(part))
    await _to_sandbox(answer.write_eof())
    return answer


async def _to_sandbox(writing: Awaitable[T]) -> T:
    try:
        return await writing
    except ConnectionError as error:
        raise Aborted from error


def _unpacked(exchange: Exchange, response: aiohttp.ClientResponse) -> None:
    """Raises Refusal for an answer that is packed in spite of what was asked: no credential would be found in it."""
    packed = set(headers.values(response.headers, "Content-Encoding")) - {"", "identity"}
    if packed or set(headers.values(response.headers, "Transfer-Encoding")) - {"", "chunked"}:
        raise Refusal("upstream_encoding", f"{exchange.destination.service.name} sent a compressed answer", 502)


def failure(exchange: Exchange, error: BaseException | None) -> Refusal:
    """What is said of an upstream that failed; nothing of its own words."""
    service, host = exchange.destination.service.name, exchange.destination.host
    if isinstance(error, aiohttp.ClientSSLError):
        return Refusal(
            "upstream_certificate",
            f"{host} could not be verified as {service}",
            502,
            hint=f"[services.{service}] ca names a file of certificates to trust",
        )
    if isinstance(error, TimeoutError):
        return Refusal("upstream_timeout", f"{service} did not answer in time", 502)
    if isinstance(error, aiohttp.ClientConnectorError):
        return Refusal("upstream", f"{service} cannot be reached", 502, hint=f"is {host} the right host, and up?")
    return Refusal("upstream", f"{service} broke off, or sent what is no HTTP", 502)
