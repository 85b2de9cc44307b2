"""Model calls on their way: what one may take is reserved before its upstream is asked, what its answer says that it
used is read as it streams by, and settles it.

Whatever is no model call is not touched. What is settled waits in the ledger before the end of the answer is passed on,
so that it counts before anything that the sandbox does next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDictProxy

from clawd import faults
from clawd.clock import Clock
from clawd.config.presets import DIALECTS
from clawd.errors import StorageError
from clawd.gateway import calls, headers
from clawd.gateway.answers import Answer
from clawd.gateway.audit import Entry
from clawd.gateway.caller import Caller
from clawd.gateway.calls import Dialect
from clawd.gateway.policy import Destination
from clawd.gateway.refusal import Refusal
from clawd.usage.books import OVERHEAD, Books, Reservation
from clawd.usage.budgets import AllowanceSpent, BudgetSpent, Call, PriceUnknown
from clawd.usage.prices import dollars

MOST_BODY = 32 << 20  # bytes of a request: it is held to be looked at
LARGE, AT_ONCE = 1 << 20, 2  # of requests of more bytes than that, so many are held at a time
_AT_ONCE_BYTES = 64 << 10  # that are looked at in the loop; more in a thread
_PIECE = 256 << 10
_SESSION = "X-Clawd-Session"

log = logging.getLogger(__name__)


class Metering:
    """Over one set of books."""

    def __init__(self, books: Books, clock: Clock) -> None:
        self.books, self.clock = books, clock
        self.large = asyncio.Semaphore(AT_ONCE)
        self._settling: set[asyncio.Task[None]] = set()

    def check_socket(self, to: Destination) -> None:
        """Raises Refusal for a WebSocket that a model is called over."""
        own = _is_known(to)
        if calls.dialect(to.path, own=own) or (own and calls.is_uncounted(to.path)):
            raise _uncounted("the usage of a WebSocket is not counted", "call the model with a POST instead")

    def call(self, request: web.BaseRequest, caller: Caller, to: Destination, entry: Entry) -> ModelCall | None:
        """The model call that an allowed POST is; None when it is none. Raises Refusal for one that cannot be counted,
        and ConfigError."""
        own = _is_known(to)
        speaks = calls.dialect(to.path, own=own)
        if speaks is not None:
            return ModelCall(self, request, caller, to, entry, speaks)
        if own and not calls.is_free(to.path) and self.books.rules(caller.group, to.service.name).any:
            raise _limited(f"what {to.service.name} is asked for there")
        return None

    def soon(self, settling: Coroutine[Any, Any, None]) -> None:
        """Settle beside everything else; it comes to the ledger before what is asked of that later."""
        task = asyncio.get_running_loop().create_task(settling)
        self._settling.add(task)
        task.add_done_callback(self._settled)

    async def give_back(self, reserving: asyncio.Future[Reservation]) -> None:
        """What is reserved just now will not be used."""
        with suppress(BudgetSpent, AllowanceSpent, PriceUnknown):
            await self.books.release(await reserving)

    def _settled(self, task: asyncio.Task[None]) -> None:
        self._settling.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, StorageError):  # at the end of the daemon: the next start assumes what is open
            log.warning("a model call was not settled: %s", error)
        elif error is not None:
            log.error("a model call was not settled", exc_info=error)

    async def close(self) -> None:
        while self._settling:
            await asyncio.wait(self._settling)


class ModelCall:
    """One model call: `admit`, `answered`, `feed`, and `end` whatever comes."""

    def __init__(
        self,
        metering: Metering,
        request: web.BaseRequest,
        caller: Caller,
        to: Destination,
        entry: Entry,
        speaks: Dialect,
    ) -> None:
        self._metering, self._request, self._caller = metering, request, caller
        self._to, self._entry, self._speaks = to, entry, speaks
        self._text = self._fixed = self._status = 0
        self._since = 0.0
        self._reserved: Reservation | None = None
        self._answer: Answer | None = None
        self._holds = False  # one of the places for large requests
        self.unsent = False  # it surely did not reach its upstream

    async def admit(self, body: AsyncIterator[bytes] | None) -> bytes | bytearray | _Pieces:
        """Read the request and reserve what it may take; gives what is to be sent. Raises Refusal."""
        encoding = set(headers.values(self._request.headers, "Content-Encoding")) - {"", "identity"}
        if encoding:
            raise _uncounted("a model call that is packed cannot be counted", "send it without Content-Encoding")
        data = await self._read(body)
        if len(data) <= _AT_ONCE_BYTES:
            bound = calls.bound(data, self._speaks)
        else:
            bound = await asyncio.to_thread(calls.bound, data, self._speaks)
        books = self._metering.books
        if bound.beside and books.rules(self._caller.group, self._to.service.name).any:
            raise _limited(f"what {self._to.service.name} does for {bound.beside!a}")
        most = bound.output if bound.output is not None else books.most_output(bound.model) or calls.MOST_OUTPUT
        self._text, self._fixed = bound.text, bound.fixed
        session = self._request.headers.get(_SESSION)
        turn = (self._caller.turn_of(session) if session else None) or self._entry.turn
        call = Call(
            self._caller.group, self._to.service.name, bound.model, bound.text + bound.fixed + OVERHEAD,
            min(most * bound.answers, calls.MOST_TOKENS), turn, bound.hour, bound.listed,
        )  # fmt: skip
        reserving = asyncio.ensure_future(books.reserve(call))
        try:
            self._reserved = await asyncio.shield(reserving)
        except asyncio.CancelledError:  # whoever asked is gone, and its row is made all the same
            self._metering.soon(self._metering.give_back(reserving))
            raise
        except BudgetSpent as spent:
            self._caller.spent(turn, spent)
            raise Refusal("budget", spent.message, hint=spent.hint) from spent
        except AllowanceSpent as spent:  # nothing opens it: the turn is not held, it fails
            raise Refusal("budget", spent.message, hint=spent.hint) from spent
        except PriceUnknown as unknown:
            raise Refusal("price", unknown.message, hint=unknown.hint) from unknown
        self._since = self._metering.clock.monotonic()
        faults.passing("reserved")
        self._caller.paid(turn)
        return _Pieces(data, self._let_go) if self._holds else data

    async def _read(self, body: AsyncIterator[bytes] | None) -> bytearray:
        length = self._request.content_length or 0
        if length > MOST_BODY:
            raise _too_large()
        data = bytearray()
        if length > LARGE:
            await self._take_place()
        if body is None:
            return data
        async for part in body:
            if len(data) + len(part) > LARGE and not self._holds:
                await self._take_place()
            if len(data) + len(part) > MOST_BODY:
                raise _too_large()
            data += part
        return data

    async def _take_place(self) -> None:
        await self._metering.large.acquire()
        self._holds = True

    def _let_go(self) -> None:
        if self._holds:
            self._holds = False
            self._metering.large.release()

    def answered(self, response: aiohttp.ClientResponse) -> None:
        """Its head is here."""
        self._status = response.status
        if self._is_billed:
            self._answer = Answer(self._speaks, _in_events(response.headers))

    @property
    def _is_billed(self) -> bool:
        return 200 <= self._status < 300

    def feed(self, data: bytes) -> None:
        """Bytes of the answer, before they are passed on."""
        if self._answer is not None and data:
            self._answer.feed(data)
            if self._answer.ended:
                self._settle(self._answer)

    def arrived(self) -> None:
        """All of the answer is here."""
        if self._answer is not None:
            self._answer.arrived = True

    def end(self) -> None:
        """It is over, however that came."""
        self._let_go()
        if (answer := self._answer) is not None:
            answer.end()
            self._settle(answer)
        elif (reserved := self._reserved) is not None:
            self._reserved, books = None, self._metering.books
            lost = not self._status and not self.unsent
            self._metering.soon(books.assume(reserved) if lost else books.release(reserved))

    def _settle(self, answer: Answer) -> None:
        reserved, self._reserved = self._reserved, None
        if reserved is None:
            return
        call = reserved.call
        seconds = int(self._metering.clock.monotonic() - self._since)
        tokens, estimated = answer.used(call.input, call.output, self._text, self._fixed, seconds)
        self._entry.tokens, self._entry.usd = tokens.input + tokens.output, dollars(reserved.nanos(tokens))
        self._metering.soon(self._metering.books.settle(reserved, tokens, estimated=estimated))


class _Pieces:
    """A large request on its way out. What was sent is let go: a model may think for long."""

    def __init__(self, data: bytearray, then: Any) -> None:
        self._data: bytearray | None = data
        self._then = then

    def __len__(self) -> int:
        return len(self._data or b"")

    def __aiter__(self) -> AsyncIterator[bytes]:
        if self._data is None:
            raise aiohttp.ClientError("the body of a request was sent already")
        data, self._data = self._data, None
        return self._parts(data)

    async def _parts(self, data: bytearray) -> AsyncIterator[bytes]:
        for at in range(0, len(data), _PIECE):
            yield bytes(data[at : at + _PIECE])
        data.clear()
        self._then()


def _is_known(to: Destination) -> bool:
    """Whether a service is known for its models."""
    return to.service.model or to.service.name in DIALECTS


def _in_events(fields: CIMultiDictProxy[str]) -> bool:
    kind = fields.get("Content-Type", "").partition(";")[0].strip().lower()
    return kind in ("text/event-stream", "application/x-ndjson", "application/jsonl", "application/stream+json")


def _too_large() -> Refusal:
    return Refusal("too_large", f"a model call may have {MOST_BODY >> 20} MB", 413, close=True)


def _limited(what: str) -> Refusal:
    hint = "go without it, or take the limits of [budget] and [services] away"
    return _uncounted(f"{what} cannot be counted, and there is a limit on it", hint)


def _uncounted(message: str, hint: str) -> Refusal:
    return Refusal("uncounted", message, hint=hint)
