"""A minute, with denser kills, of what `make soak` does for thirty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dockerd import Dockerd
from tests.engine import Engine
from tests.system.conftest import Make, homes
from tests.system.soak import Plan, Soak, grown

SECONDS = 60.0


@pytest.fixture
def make_home(engine: Engine, dockerd: Dockerd) -> Iterator[Make]:
    with homes(Engine(dockerd.host, engine.image)) as make:
        yield make


@pytest.mark.timeout(900)
def test_a_minute_of_kills_lose_double_and_leave_nothing(make_home: Make, dockerd: Dockerd) -> None:
    home = make_home()
    home.may_block = True  # that is looked for elsewhere, where nothing is killed
    report = Soak(home, Plan(SECONDS, rate=2.0, pause=2.0), dockerd).run(lambda line: None)
    assert not report.wrong
    assert report.messages > 0 and report.requests > 0 and all(report.killed.values())
    assert not grown(report.descriptors, 25), report
