"""Which backend makes the next sandbox, and which one ends what is left."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import inside

from clawd.errors import SandboxUnavailable
from clawd.sandbox import choose
from clawd.sandbox.choose import Chosen, choose_backend
from clawd.sandbox.docker import Docker
from clawd.sandbox.protocol import LeftOver
from tests.engine import Engine

pytestmark = pytest.mark.anyio

SLEEPER = "time.sleep(600)"


async def test_without_an_engine_auto_is_bubblewrap_and_docker_stays_docker(tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/none.sock"
    assert await choose_backend("auto", tmp_path, nowhere).check("clawd-agent") == "bubblewrap"
    assert await choose_backend("auto", tmp_path, "tcp://10.0.0.1:2375").check("clawd-agent") == "bubblewrap"
    with pytest.raises(SandboxUnavailable, match="no Docker Engine is at"):
        await choose_backend("docker", tmp_path, nowhere).check("clawd-agent")
    with pytest.raises(SandboxUnavailable, match="another machine's"):
        await choose_backend("docker", tmp_path, "tcp://10.0.0.1:2375").check("clawd-agent")


async def test_with_an_engine_auto_goes_by_the_image(
    tmp_path: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    auto = choose_backend("auto", tmp_path, engine.host)
    assert await auto.check(engine.image) == "docker"
    assert not caplog.records
    for _ in range(2):
        assert await auto.check("no-such-image") == "bubblewrap"
    assert [record.getMessage().count("clawd image build") for record in caplog.records] == [1]
    assert await choose_backend("bubblewrap", tmp_path, engine.host).check(engine.image) == "bubblewrap"
    with pytest.raises(SandboxUnavailable, match="clawd image build"):
        await choose_backend("docker", tmp_path, engine.host).check("no-such-image")


@pytest.mark.parametrize("wanted", ["docker", "bubblewrap"])
async def test_what_the_other_backend_left_is_ended_too(docker, bubblewrap, wanted: str) -> None:
    spec, other = docker.spec(), replace(bubblewrap.spec("run-2", "other"), directory=bubblewrap.root / "r2")
    left = [await docker.start(SLEEPER, spec), await bubblewrap.start(SLEEPER, other)]
    assert isinstance(docker.backend, Docker)
    now = Chosen(wanted, docker.another(), bubblewrap.another())
    found = [
        LeftOver("run-1", "docker", left[0].handle, spec.directory, spec.uid),
        LeftOver("run-2", "bubblewrap", left[1].handle, other.directory, other.uid),
    ]
    assert await now.adopt(found[1], other) is None
    if wanted == "bubblewrap":
        assert await now.adopt(found[0], spec) is None
    assert await now.sweep(found) == ["run-1", "run-2"]
    assert not any(inside(sandbox) for sandbox in left)


def test_choosing_looks_at_nothing(tmp_path: Path) -> None:
    code = f"import sys; from pathlib import Path; from {choose.__name__} import choose_backend\n"
    code += f"choose_backend('docker', Path({str(tmp_path)!r}), 'tcp://far'); print('docker' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
