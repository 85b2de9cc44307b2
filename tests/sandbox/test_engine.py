"""Where the Engine is, and what is said when it cannot be used."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from clawd.errors import SandboxUnavailable
from clawd.sandbox import engine as engine_room
from clawd.sandbox.engine import Engine, NoImage, NotThere, find_engine
from tests.engine import Engine as Real


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home whose docker context `far` is at /srv/far.sock, on a machine without the system's own Engine."""
    monkeypatch.setattr(engine_room, "DEFAULT", tmp_path / "none.sock")
    meta = tmp_path / ".docker" / "contexts" / "meta" / hashlib.sha256(b"far").hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Endpoints": {"docker": {"Host": "unix:///srv/far.sock"}}}))
    yield tmp_path


@pytest.mark.parametrize(
    ("configured", "environment", "current", "expected"),
    [
        ("unix:///a.sock", {"DOCKER_HOST": "unix:///b.sock"}, "far", "/a.sock"),
        (None, {"DOCKER_HOST": "unix:///b.sock", "DOCKER_CONTEXT": "far"}, "far", "/b.sock"),
        (None, {"DOCKER_HOST": "unix://b.sock"}, None, "/b.sock"),
        (None, {"DOCKER_HOST": "", "DOCKER_CONTEXT": "far"}, "default", "/srv/far.sock"),
        (None, {}, "far", "/srv/far.sock"),
        (None, {"DOCKER_CONTEXT": "default"}, "far", "{home}/none.sock"),
        (None, {}, "default", "{home}/none.sock"),
        (None, {}, None, "{home}/none.sock"),
    ],
)
def test_whose_word_counts(
    home: Path, configured: str | None, environment: dict[str, str], current: str | None, expected: str
) -> None:
    if current:
        (home / ".docker" / "config.json").write_text(json.dumps({"currentContext": current}))
    found = find_engine(configured, {"HOME": str(home), **environment})
    assert found.host == "unix://" + expected.format(home=home)
    assert not found.present()


def test_a_rootless_socket_is_found_where_there_is_no_other(home: Path) -> None:
    at = home / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(at))
        found = find_engine(None, {"HOME": str(home), "XDG_RUNTIME_DIR": str(home)})
    assert (found.host, found.present()) == (f"unix://{at}", True)


@pytest.mark.parametrize(
    "host", ["tcp://10.0.0.1:2375", "ssh://me@far", "npipe:////./pipe/docker", "http://far", "unix://"]
)
def test_an_engine_of_another_machine_is_refused(host: str) -> None:
    with pytest.raises(SandboxUnavailable, match="another machine's"):
        find_engine(host, {})


@pytest.mark.parametrize("text", ["{", "[]", '{"currentContext": "gone"}'])
def test_a_broken_context_is_told(home: Path, text: str) -> None:
    (home / ".docker" / "config.json").write_text(text)
    with pytest.raises(SandboxUnavailable, match=r"config\.json cannot be read|context gone says nothing"):
        find_engine(None, {"HOME": str(home)})


def test_finding_it_imports_no_docker() -> None:
    code = "import sys; from clawd.sandbox import choose, engine; engine.find_engine(None, {}); "
    code += "print('docker' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_one_that_is_not_there_or_says_nothing_is_told(tmp_path: Path) -> None:
    at = tmp_path / "s"
    with pytest.raises(NotThere, match=r"no Docker Engine is at .*systemctl start docker"):
        Engine(at).run(lambda client: None)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(at))
        with pytest.raises(NotThere, match="no Docker Engine is at"):
            Engine(at).run(lambda client: None)
        listener.listen()
        with pytest.raises(NotThere, match="does not answer"):
            Engine(at).run(lambda client: None, 0.1)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(13, "Permission denied"), "usermod -aG docker"),
        (OSError(28, "No space left on device"), "no space is left on the disk"),
        (ConnectionResetError(104, "reset"), "went away in the middle"),
    ],
)
def test_what_the_system_says_becomes_a_sentence(engine: Real, error: OSError, told: str) -> None:
    def work(client: object) -> None:
        raise error

    with pytest.raises(SandboxUnavailable, match=told):
        find_engine(engine.host, {}).run(work)


def test_what_the_engine_refuses_becomes_a_sentence(engine: Real) -> None:
    found = find_engine(engine.host, {})
    with pytest.raises(NoImage, match="clawd image build"):
        found.run(lambda client: client.api.inspect_image("no-such-image"))
    with pytest.raises(SandboxUnavailable, match=r"the Docker Engine refused: .*no-such-policy"):
        body = {"Image": engine.image, "HostConfig": {"RestartPolicy": {"Name": "no-such-policy"}}}
        found.run(lambda client: client.api.create_container_from_config(body))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        found.run(lambda client: client.api.ping())
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.anyio
async def test_a_call_does_not_hold_up_the_loop_and_is_left_alone_when_cancelled(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        with anyio.move_on_after(0.05) as scope:
            await Engine(tmp_path / "s").call(lambda client: os.read(reading, 1), 0.5)
        assert scope.cancelled_caught
    os.close(writing)
    os.close(reading)
