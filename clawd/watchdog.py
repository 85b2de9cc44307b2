"""What the service manager is told: that the daemon is ready, reloads, ends, and still does its work.

A ping goes out only after the event loop came back in time and the ledger committed a write. A ledger that answers
"the disk is full" is alive: being killed would free no space. Any other refusal, or no answer, withholds the ping, and
the manager starts the daemon anew when that lasts. Where no manager asks, nothing runs.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping

import anyio

from clawd.errors import ClawdError, DiskFull
from clawd.ledger.db import Ledger, Transaction

log = logging.getLogger(__name__)

LONGEST_S = 30.0  # between two pings
_SEND_S = 5.0
_AGAIN = 10  # a ping that was withheld is tried again after this part of the time between two


async def tell(*fields: str) -> None:
    """Send `NAME=value` fields by the protocol of sd_notify, when there is somebody to hear them."""
    if os.environ.get("NOTIFY_SOCKET"):
        await anyio.to_thread.run_sync(_send, "\n".join(fields).encode())


def _send(message: bytes) -> None:
    address = os.environ["NOTIFY_SOCKET"]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(_SEND_S)
            sender.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            sender.send(message)
    except OSError as error:
        log.warning("the service manager does not hear us: %s", error)


def reloading() -> tuple[str, ...]:
    """The fields of a reload that begins; it ends with READY=1."""
    return "RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}"


def interval(environment: Mapping[str, str], pid: int) -> float | None:
    """Seconds between two pings: half of what the manager waits, at most 30; None when it waits for none of ours."""
    if not environment.get("NOTIFY_SOCKET") or environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    try:
        waits = int(environment.get("WATCHDOG_USEC", "0")) / 1e6
    except ValueError:
        return None
    return min(waits / 2, LONGEST_S) if waits > 0 else None


async def watch(ledger: Ledger, told: Callable[[str], None]) -> None:
    """Ping the service manager for as long as all is well; `told` hears once of each trouble. Returns when nobody
    waits for pings."""
    every = interval(os.environ, os.getpid())
    trouble: str | None = None
    due = time.monotonic()
    while every is not None:
        await anyio.sleep(max(0.0, due - time.monotonic()))
        wrong = await _wrong(ledger, every)
        late = time.monotonic() - due
        if late > every / 2:
            wrong = wrong or f"the event loop and the ledger took {late:.1f} s for a small write"
        # Before it is told: a loop that stands still just then is late, too.
        due = time.monotonic() + (every if wrong is None else every / _AGAIN)
        if wrong is None:
            await tell("WATCHDOG=1", *(["STATUS=at work"] if trouble else []))
        elif wrong != trouble:
            log.error("the service manager gets no sign of life: %s", wrong)
            told(f"The daemon does not work as it must, and will be started anew if that lasts: {wrong}")
            await tell(f"STATUS={wrong}")
        trouble = wrong


async def _wrong(ledger: Ledger, seconds: float) -> str | None:
    """What keeps the ledger from committing a write, None when it did."""
    try:
        with anyio.fail_after(seconds):
            await ledger.do(_beat)
    except DiskFull:
        return None
    except TimeoutError:
        return f"the ledger did not answer within {seconds:g} s"
    except ClawdError as error:
        return error.message
    return None


def _beat(tx: Transaction) -> None:
    """The least that is a write: the schema's own number, as it is."""
    row = tx.one("PRAGMA user_version")
    assert row is not None
    tx.execute(f"PRAGMA user_version = {row[0]}")
