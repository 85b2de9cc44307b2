"""How much a group may send and take in, and how long it may last. What is counted is reserved before anything waits,
so that a burst is never over its limit."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from dataclasses import dataclass
from types import TracebackType

from clawd.clock import Clock
from clawd.config.schema import ServiceLimits
from clawd.gateway.refusal import Refusal

IDLE_S = 600.0  # a model may think for minutes before its first byte
TOTAL_S = 3600.0
_FORGET_S = 600.0  # what no single turn can be named for is forgotten after so long without a request
_MOST_TURNS = 256  # whose sums are kept, the latest ones

_Turn = tuple[str, str, str, int | None]


@dataclass(slots=True)
class _Sum:
    used: float
    requests: int = 0
    bytes: int = 0


class Counts:
    """What was used, by group and service, and by turn."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minutes: dict[tuple[str, str | None], deque[float]] = {}
        self._turns: OrderedDict[_Turn, _Sum] = OrderedDict()

    def take(self, group: str, service: str, run: str, turn: int | None, limits: ServiceLimits) -> Meter:
        """Count a request, and give what its bytes are counted with. Raises Refusal, and counts nothing."""
        now = self._clock.monotonic()
        total = self._sum((group, service, run, turn), now)
        if limits.requests_per_turn is not None and total.requests >= limits.requests_per_turn:
            most = limits.requests_per_turn
            raise Refusal(
                "turn_requests",
                f"this turn has sent its {most} requests to {service}",
                hint=f"raise [services.{service}.limits] requests_per_turn, or go on in the next turn",
            )
        if limits.bytes_per_turn is not None and total.bytes >= limits.bytes_per_turn:
            raise _turn_bytes(service, limits.bytes_per_turn)
        if limits.requests_per_minute is not None:
            self._rate((group, service), limits.requests_per_minute, f"to {service}", f"[services.{service}.limits]")
        total.requests += 1
        return Meter(service, limits, total)

    def call(self, group: str, per_minute: int) -> None:
        """Count a model call of the group. Raises Refusal, and counts nothing."""
        self._rate((group, None), per_minute, "to models", "[budget]")

    def _rate(self, key: tuple[str, str | None], most: int, where: str, table: str) -> None:
        now, times = self._clock.monotonic(), self._minutes.setdefault(key, deque())
        while times and now - times[0] >= 60:
            times.popleft()
        if len(times) >= most:
            wait = max(1, math.ceil(times[-most] + 60 - now))
            raise Refusal(
                "rate",
                f"{key[0]} has sent its {most} requests of a minute {where}",
                429,
                hint=f"wait {wait} s, or raise {table} requests_per_minute",
                retry_after=wait,
            )
        times.append(now)

    def _sum(self, key: _Turn, now: float) -> _Sum:
        total = self._turns.pop(key, None)
        if total is None or (key[3] is None and now - total.used > _FORGET_S):
            total = _Sum(now)
        total.used = now
        self._turns[key] = total
        while len(self._turns) > _MOST_TURNS:
            self._turns.popitem(last=False)
        return total


class Meter:
    """The bytes of one request: `sent` by the sandbox, `taken` in by it."""

    __slots__ = ("_limits", "_service", "_total", "sent", "taken")

    def __init__(self, service: str, limits: ServiceLimits, total: _Sum) -> None:
        self._service, self._limits, self._total = service, limits, total
        self.sent = self.taken = 0

    def declares(self, size: int) -> None:
        """Raises Refusal when a body of this size would be too large."""
        if self._limits.request_bytes is not None and size > self._limits.request_bytes:
            raise Refusal(
                "too_large",
                f"a request to {self._service} may have {self._limits.request_bytes} bytes",
                413,
                hint=f"raise [services.{self._service}.limits] request_bytes",
            )

    def send(self, size: int) -> None:
        self.declares(self.sent + size)
        self.sent += size

    def take(self, size: int) -> None:
        """Raises Refusal before these bytes are passed on."""
        most = self._limits.response_bytes
        if most is not None and self.taken + size > most:
            raise Refusal(
                "response_bytes",
                f"an answer of {self._service} may have {most} bytes",
                502,
                hint=f"raise [services.{self._service}.limits] response_bytes",
            )
        most = self._limits.bytes_per_turn
        if most is not None and self._total.bytes + size > most:
            raise _turn_bytes(self._service, most)
        self._total.bytes += size
        self.taken += size


def _turn_bytes(service: str, most: int) -> Refusal:
    return Refusal(
        "turn_bytes",
        f"this turn has taken in its {most} bytes of {service}",
        hint=f"raise [services.{service}.limits] bytes_per_turn, or go on in the next turn",
    )


class Deadline:
    """Ends what is done within it with TimeoutError, when nothing has moved for `idle` seconds, or after `total`.

    `moved` costs an assignment: the timer finds out itself that it came too early."""

    def __init__(self, idle: float, total: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._idle = idle
        self._last = self._loop.time()
        self._end = self._last + total
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancelling = 0
        self.expired = False

    def moved(self) -> None:
        self._last = self._loop.time()

    def __enter__(self) -> Deadline:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancelling = self._task.cancelling()
        self._look()
        return self

    def _look(self) -> None:
        due = min(self._last + self._idle, self._end)
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
        elif self._task is not None:
            self.expired = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None
        if (
            self.expired
            and task is not None
            and task.uncancel() <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            raise TimeoutError from error
