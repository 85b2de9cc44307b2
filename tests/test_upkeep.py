"""What grows is cut back by itself, whatever part of it fails; a disk that is nearly full begins no turn."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from clawd import upkeep
from clawd.channel import ChannelLimits
from clawd.clock import TurnedClock
from clawd.config.home import Home
from clawd.config.schema import Retention
from clawd.errors import StorageError
from clawd.files import Blobs
from clawd.ledger import deliveries
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import Address
from clawd.upkeep import Upkeep, is_tight
from tests.turns.conftest import opened

DAY = 86400.0


class Ground:
    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.home.create()
        self.ledger = Ledger.open(self.home.ledger_file)
        self.clock = TurnedClock(datetime.now(UTC))
        self.retention = Retention()
        self.told: list[str] = []
        self.upkeep = Upkeep(self.home, self.ledger, self.clock, lambda: self.retention, self.told.append)
        (root / "report").write_text("content")
        self.blob, _ = Blobs(self.home.blobs).keep(root, "report", 100)

    def deliver(self) -> int:
        """The blob is sent: its row."""
        to = Address("terminal", "", "main", "")
        [row] = self.ledger.tx(
            lambda tx: deliveries.enqueue(
                tx,
                to,
                session="s",
                kind="file",
                text="",
                blob=self.blob,
                now=str(self.clock.now()),
                limits=ChannelLimits(10),
            )
        )
        return row

    def blobs(self) -> list[str]:
        return [path.name for path in self.home.blobs.iterdir()]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path / "home")
    yield ground
    ground.ledger.close()


@pytest.mark.anyio
async def test_a_blob_goes_when_nothing_refers_to_it_and_not_before_its_row_could_be_there(ground: Ground) -> None:
    (ground.home.blobs / ".torn.tmp").write_text("half")
    await ground.upkeep.once()  # its row is not committed yet
    assert sorted(ground.blobs()) == sorted([ground.blob, ".torn.tmp"])
    row = ground.deliver()
    ground.clock.advance(40 * DAY)
    await ground.upkeep.once()  # not sent yet
    assert ground.blobs() == [ground.blob]

    ground.ledger.tx(lambda tx: tx.execute("UPDATE delivery SET state = 'sent', seen = 1 WHERE id = ?", row))
    await ground.upkeep.once()
    assert ground.blobs() == []


@pytest.mark.anyio
async def test_what_is_kept_once_more_is_new(ground: Ground) -> None:
    old = ground.home.blobs / ground.blob
    os.utime(old, (1, 1))
    assert Blobs(ground.home.blobs).keep(ground.home.root, "report", 100)[0] == ground.blob
    await ground.upkeep.once()
    assert ground.blobs() == [ground.blob]


@pytest.mark.anyio
async def test_whatever_one_part_meets_the_others_are_done(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(ground.ledger, "check_room", fail)
    monkeypatch.setattr(upkeep, "drop_old", fail)
    ground.clock.advance(2 * DAY)
    await ground.upkeep.once()
    assert ground.blobs() == []


@pytest.mark.anyio
async def test_it_comes_again_every_day(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "PERIOD_S", 0.001)
    times = 0

    async def once() -> None:
        nonlocal times
        times += 1
        if times == 3:
            tasks.cancel_scope.cancel()

    monkeypatch.setattr(ground.upkeep, "once", once)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ground.upkeep.run)
    assert times == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_of_a_small_disk_a_tenth_is_kept_free(small_disk: Path) -> None:
    assert not is_tight(small_disk, 500 << 20)
    (small_disk / "hog").write_bytes(bytes(85 << 20))
    assert not is_tight(small_disk, 500 << 20)
    (small_disk / "more").write_bytes(bytes(6 << 20))
    assert is_tight(small_disk, 500 << 20) and not is_tight(small_disk, 1 << 20)


@pytest.mark.anyio
async def test_groups_that_somebody_removed_are_made_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as ground:
        kept = Upkeep(ground.home, ground.ledger, ground.clock, Retention)
        message = await ground.accept()
        await ground.recorded(message)
        assert await ground.dispatcher.end_run("main")
        shutil.rmtree(ground.home.groups)
        ground.dispatcher.runs.check_room = kept.check_room
        await ground.dispatcher.ensure("main")
        assert ground.home.group("main").work.is_dir()


@pytest.mark.anyio
async def test_a_nearly_full_disk_begins_no_turn_says_so_once_and_goes_on_by_itself(small_disk: Path) -> None:
    """Also where a sandbox is warm."""
    async with opened(small_disk) as ground:
        told: list[str] = []
        kept = Upkeep(ground.home, ground.ledger, ground.clock, Retention, told.append)
        ground.dispatcher.runs.check_room = kept.check_room
        await ground.recorded(await ground.accept(text="one"))
        hog = small_disk / "hog"
        hog.write_bytes(bytes(88 << 20))
        waiting = [await ground.accept(text="two"), await ground.accept("other", text="three")]
        for seq in waiting:
            row = await ground.until_state(seq, "held")
            assert row["held"] == "the disk is nearly full"
        hog.unlink()
        await ground.recorded(*waiting)
        assert len(told) == 1 and "nearly full" in told[0]
        assert len([text for text in await ground.notices() if "the disk is nearly full" in text]) == 2
        hog.write_bytes(bytes(88 << 20))
        await ground.until_state(await ground.accept(text="four"), "held")
        assert len(told) == 2
        hog.unlink()
