"""work/ is looked at as often as that is cheap, and what costs much is never counted to its end."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clawd.sandbox.protocol import SandboxLimits
from clawd.turns import watch
from clawd.turns.leases import LOOK_S, LiveTurn
from clawd.turns.watch import FAR_OVER, WALK_SHARE, Watch, measure
from tests.turns.conftest import PushedClock


class Looked:
    """A watch over a run whose work/ is `work`, with a walk that takes `cost` CPU seconds, and how often it walked."""

    def __init__(self, work: Path, monkeypatch: pytest.MonkeyPatch, cost: float = 0.0) -> None:
        self.work, self.walks, self.free, self.stopped = work, 0, 1 << 40, list[str]()
        live = LiveTurn(1, "s", 1, 0, 0.0, 0.0, 0.0)
        spec = SimpleNamespace(work=work, limits=SandboxLimits(work_bytes=1 << 20, work_files=10))
        run = SimpleNamespace(
            spec=spec, live={1: live}, ask_to_stop=lambda live, now, why: self.stopped.append(why), group="main"
        )
        self.clock = PushedClock()

        def walk(work: Path, most: int) -> tuple[int, int, float]:
            self.walks += 1
            return *measure(work, most)[:2], cost

        monkeypatch.setattr(watch, "measure", walk)
        monkeypatch.setattr(watch, "free_bytes", lambda path: self.free)
        self.watch = Watch(
            cast(Any, run), self.clock, lambda group: 0.0, cast(Any, None), cast(Any, None), cast(Any, None)
        )

    async def look(self, later: float) -> None:
        self.clock.ahead += later
        await self.watch.look_at_work()


@pytest.mark.anyio
async def test_a_cheap_walk_is_taken_at_every_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(tmp_path, monkeypatch)
    for _ in range(3):
        await looked.look(LOOK_S)
    await looked.look(0)  # something else was the occasion
    assert looked.walks == 3


@pytest.mark.anyio
async def test_a_dear_walk_is_taken_less_often_unless_the_disk_loses_what_would_fill_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = Looked(tmp_path, monkeypatch, cost=1.0)
    for _ in range(int(WALK_SHARE // LOOK_S)):
        await looked.look(LOOK_S)
    assert looked.walks == 1
    await looked.look(LOOK_S)
    assert looked.walks == 2
    (tmp_path / "large").write_bytes(bytes(2 << 20))
    looked.free -= 2 << 20
    await looked.look(LOOK_S)
    assert looked.walks == 3 and "over its limit (1 MB, 10 files)" in looked.stopped[0]


@pytest.mark.parametrize(("wall", "after", "ends"), [(30.0, 31.0, True), (30.0, 29.0, False), (1200.0, 901.0, False)])
def test_the_wall_time_is_the_group_s_own(wall: float, after: float, ends: bool) -> None:
    live, clock, stopped = LiveTurn(1, "s", 0, 0, 0.0, after, 0.0, confirmed=True), PushedClock(), list[str]()
    run = SimpleNamespace(group="main", ask_to_stop=lambda live, now, why: stopped.append(why))
    nothing = cast(Any, None)
    watch = Watch(cast(Any, run), clock, lambda group: 0.0, nothing, nothing, lambda group: {"main": wall}[group])
    assert not watch._judge(live, after) and bool(stopped) is ends


@pytest.mark.anyio
async def test_work_that_was_taken_away_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(tmp_path / "gone", monkeypatch)
    monkeypatch.undo()
    await looked.look(LOOK_S)
    assert looked.stopped == []


def test_far_over_the_limit_nobody_counts(tmp_path: Path) -> None:
    for n in range(100):
        (tmp_path / str(n)).touch()
    size, count, cost = measure(tmp_path, 10)
    assert (size, count) == (0, FAR_OVER * 10 + 1) and cost >= 0
    assert measure(tmp_path, 100)[:2] == (0, 100)
