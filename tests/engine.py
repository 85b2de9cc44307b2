"""The Docker Engine that the tests use, and the image in it.

An Engine that answers is used. Else, as root on Debian, one is installed and a `dockerd` of our own started
(`tests/dockerd.py`). Where there can be none, the tests that need one are told as NOT RUN at the end, with the reason;
with CLAWD_TESTS_NEED_ENGINE=1 they fail. It is made ready before the first test, for it may take minutes; by
`python -m tests.engine` without any test.

Test runs side by side use one Engine: the first that comes makes it ready, the last that goes ends it. What stops or
kills an Engine has a second one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import pytest

from clawd.errors import ClawdError
from clawd.sandbox import image
from clawd.sandbox.engine import find_engine
from tests.dockerd import CACHE, NAME, ROOT, Dockerd, Say, Unavailable, answers, client
from tests.packages import install

CONTAINERS = ROOT / "containers"
IMAGE = f"clawd-tests:{NAME}"
NEEDED = "CLAWD_TESTS_NEED_ENGINE"
NOT_RUN = "no Docker Engine: "
_OURS = ("DOCKER_HOST", "DOCKER_CONTEXT")


@dataclass(frozen=True, slots=True)
class Engine:
    """An Engine that answers at `host` (a DOCKER_HOST) and has `image`."""

    host: str
    image: str


class Provider:
    """Makes the Engine ready once, and ends with the session what it started."""

    def __init__(self) -> None:
        # The caller's Engine is for the tests that ask for it: to all others there is none.
        self.caller = {name: os.environ.pop(name) for name in _OURS if name in os.environ}
        self.found: Engine | str = ""
        self.dockerd: Dockerd | None = None
        self.second: Dockerd | None = None

    def get(self, say: Say = lambda line: None) -> Engine | str:
        """The Engine, or why there is none."""
        if not self.found:
            try:
                CACHE.mkdir(parents=True, exist_ok=True)
                with (CACHE / "preparing").open("w") as alone:
                    fcntl.flock(alone, fcntl.LOCK_EX)
                    host = self._host(say)
                    self.found = Engine(host, _image(host, say))
            except (Unavailable, ClawdError, OSError, subprocess.SubprocessError) as error:
                self.found = str(error)
        return self.found

    def _host(self, say: Say) -> str:
        if found := self._answering():
            return found
        if not shutil.which("dockerd"):
            install(["docker.io"], say)
            if found := self._answering():  # the package may have started the machine's own
                return found
        say("starting a Docker Engine in .cache/engine …")
        self.dockerd = Dockerd()
        self.dockerd.start(say)
        return self.dockerd.host

    def _answering(self) -> str:
        """The Engine that the product would find, where it answers. One that the caller names must."""
        host = find_engine(None, os.environ | self.caller).host
        if answers(host):
            return host
        if self.caller:
            raise Unavailable(f"nothing answers at {host}, which {' and '.join(self.caller)} means")
        return ""

    def mine(self) -> tuple[Engine, Dockerd]:
        """An Engine that a test may stop and kill, with the same image: a second one, for others use the first.
        Raises Unavailable."""
        found = self.get()
        if isinstance(found, str):
            raise Unavailable(found)
        if self.second is None:
            if os.geteuid() != 0 or not shutil.which("dockerd"):
                raise Unavailable("only root can start a second one here, where docker.io is installed")
            second = Dockerd(CACHE.with_name("second"))
            second.start(lambda line: None)
            with contextlib.closing(client(found.host)) as one, contextlib.closing(client(second.host)) as other:
                theirs = one.images.get(found.image)
                if theirs.id not in {each.id for each in other.images.list(found.image)}:
                    other.images.load(theirs.save(named=found.image))
            self.second = second
        return Engine(self.second.host, found.image), self.second

    def end(self) -> None:
        for each in (self.second, self.dockerd):
            if each is not None:
                each.stop()


def _image(host: str, say: Say) -> str:
    """The agent's image of this repository, built where the one that is there is another's or of another base."""
    with contextlib.closing(client(host)) as engine:
        base = _base(engine, say)
        labels = image.labels_of(engine, IMAGE)
        fits = image.state_of(labels, image.runner_hash(CONTAINERS / "agent")) == "fits"
        if not fits or (labels or {}).get(image.LABEL_FROM) != base:
            say(f"building the image {IMAGE} …")
            image.build_agent(engine, CONTAINERS, IMAGE, base, lambda line: None)
    return IMAGE


def _base(engine: Any, say: Say) -> str:
    """A base image: one that is there, one made by debootstrap, one that the Engine can pull."""
    script = CONTAINERS / "base.sh"
    made = f"{image.BASES}:{hashlib.sha256(script.read_bytes()).hexdigest()[:12]}"
    for name in (made, image.BASE):
        if image.labels_of(engine, name) is not None:
            return name
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return image.BASE
    if not shutil.which("debootstrap"):
        install(["debootstrap"], say)
    say("making a base image with debootstrap …")
    CACHE.mkdir(parents=True, exist_ok=True)
    tar, log = CACHE / f"base-{os.getpid()}.tar", CACHE / "base.log"
    try:
        with tar.open("wb") as out, log.open("wb") as said:
            done = subprocess.run(
                ["sh", script],
                stdout=out,
                stderr=said,
                timeout=900,
                check=False,
                env=os.environ | {"TMPDIR": str(CACHE)},
            )
        if done.returncode:
            raise Unavailable(f"{script} failed: {log.read_text(errors='replace').strip()[-300:]}")
        return image.import_base(engine, tar, say, made)
    finally:
        tar.unlink(missing_ok=True)


# ── what pytest calls ──

_provider = pytest.StashKey[Provider]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engine: needs a Docker Engine")
    if config.getoption("dist", "no") == "no":  # else the tests run in other processes, which come here too
        config.stash[_provider] = Provider()
    # A run that is ended ends what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _needs_engine(item: pytest.Item) -> bool:
    return "engine" in getattr(item, "fixturenames", ()) or item.get_closest_marker("engine") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    provider = session.config.stash.get(_provider, None)
    if provider and not session.config.option.collectonly and any(map(_needs_engine, session.items)):
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        provider.get(lambda line: reporter.write_line(line) if reporter else None)


def _missing(why: object) -> NoReturn:
    (pytest.fail if os.environ.get(NEEDED) == "1" else pytest.skip)(f"{NOT_RUN}{why}")


@pytest.fixture(scope="session")
def engine(pytestconfig: pytest.Config) -> Engine:
    found = pytestconfig.stash[_provider].get()
    return found if isinstance(found, Engine) else _missing(found)


@pytest.fixture
def dockerd(engine: Engine, pytestconfig: pytest.Config) -> Iterator[Dockerd]:
    """A `dockerd` that the test may stop, kill and start; it answers again for the next one."""
    try:
        _, ours = pytestconfig.stash[_provider].mine()
    except Unavailable as error:
        _missing(error)
    ours.again()
    yield ours
    ours.again()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if provider := session.config.stash.get(_provider, None):
        provider.end()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    told = [str(each.longrepr) for each in terminalreporter.stats.get("skipped", ())]
    if missed := [text for text in told if NOT_RUN in text]:
        why = missed[0].partition(NOT_RUN)[2].rstrip("')")
        terminalreporter.section("NOT RUN")
        terminalreporter.write_line(f"{len(missed)} container tests were NOT RUN: {NOT_RUN}{why}")


if __name__ == "__main__":
    provider = Provider()
    found = provider.get(lambda line: print(line, flush=True))  # noqa: T201
    provider.end()
    sys.exit(0 if isinstance(found, Engine) else f"{NOT_RUN}{found}")
