"""The service manager hears what it must, and nothing when something stands still."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from clawd import watchdog
from clawd.ledger.db import Ledger


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, None),
        ({"NOTIFY_SOCKET": "/s"}, None),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "60000000"}, 30.0),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "600000000"}, 30.0),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1000000"}, 0.5),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "8"}, None),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "0"}, None),
        ({"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_how_often_the_manager_wants_to_hear(environment: dict[str, str], seconds: float | None) -> None:
    assert watchdog.interval(environment, 7) == seconds


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    address = f"{tmp_path}/notify" if request.param == "path" else f"@clawd-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address.replace("@", "\0"))
        listening.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        monkeypatch.setenv("WATCHDOG_USEC", "8000000")
        yield listening


async def heard(manager: socket.socket) -> list[str]:
    with anyio.fail_after(60):
        await anyio.wait_readable(manager)
    return manager.recv(4096).decode().splitlines()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger.open(tmp_path / "ledger.db")
    yield made
    made.close()


@pytest.mark.anyio
async def test_fields_arrive_as_they_are(manager: socket.socket) -> None:
    await watchdog.tell("READY=1", "STATUS=at work")
    assert await heard(manager) == ["READY=1", "STATUS=at work"]
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    await watchdog.tell(*watchdog.reloading())
    first, second = await heard(manager)
    assert first == "RELOADING=1" and before <= int(second.removeprefix("MONOTONIC_USEC="))


@pytest.mark.anyio
async def test_a_manager_that_is_gone_harms_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    await watchdog.tell("READY=1")
    assert "does not hear us" in caplog.text
    monkeypatch.delenv("NOTIFY_SOCKET")
    caplog.clear()
    await watchdog.tell("READY=1")
    assert caplog.text == ""


@pytest.mark.anyio
async def test_each_ping_follows_a_write_that_was_committed(
    manager: socket.socket, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "500000")
    journal = ledger.path.with_name("ledger.db-wal")
    await ledger.do(lambda tx: None)
    sizes = [journal.stat().st_size]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watchdog.watch, ledger, print)
        for _ in range(3):
            while "WATCHDOG=1" not in await heard(manager):
                pass
            sizes.append(journal.stat().st_size)
        tasks.cancel_scope.cancel()
    assert sizes == sorted(set(sizes)), sizes


@pytest.mark.anyio
async def test_a_ledger_that_refuses_or_is_silent_withholds_the_ping_and_is_told_once_until_it_is_well(
    manager: socket.socket, ledger: Ledger
) -> None:
    elsewhere = ledger.path.with_name("elsewhere.db")
    ledger.path.rename(elsewhere)
    told: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watchdog.watch, ledger, told.append)
        [status] = await heard(manager)
        assert status.startswith("STATUS=") and "taken away" in status
        with anyio.move_on_after(1.0):
            pytest.fail(str(await heard(manager)))
        elsewhere.rename(ledger.path)
        assert await heard(manager) == ["WATCHDOG=1", "STATUS=at work"]
        assert len(told) == 1 and "started anew if that lasts" in told[0]
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.expects_block
async def test_a_loop_that_stands_still_while_a_ping_is_sent_is_told_too(
    manager: socket.socket, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "500000")
    send, stands, told = watchdog.tell, [True], list[str]()

    async def tell(*fields: str) -> None:
        await send(*fields)
        if stands:
            stands.clear()
            time.sleep(1.0)  # noqa: ASYNC251

    monkeypatch.setattr(watchdog, "tell", tell)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watchdog.watch, ledger, told.append)
        while "STATUS=at work" not in await heard(manager):
            pass
        tasks.cancel_scope.cancel()
    assert len(told) == 1 and "the event loop and the ledger took" in told[0]
