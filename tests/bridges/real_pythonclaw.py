"""PythonClaw itself, as its authors published it: what the bridge's files are held against.

Fetched once into `.cache/pythonclaw` by name and hash, from whatever index this machine's uv or pip uses; none of it is
ever part of the repository. Before the tests, `python -m tests.bridges.real_pythonclaw` fetches it. Its modules are
loaded without its packages' own `__init__`, and so without what they depend on; two versions stand side by side.
"""

from __future__ import annotations

import fcntl
import importlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.dockerd import CACHE

ESC, RAW = "0.7.2", "0.6.6"  # by the dialect that they write
HASHES = {
    ESC: "98f9994540c5d0cc2f703829fd78a75630a333fd83e21020022800ec15d1dc18",
    RAW: "0b21c08c32c5907ae2e3695b56d024c721dcc90666f82344babff1eb16280880",
}
UNLIMITED = 0  # of its `max_messages`
_CLAWS = CACHE.with_name("pythonclaw")
_FOLDERS = ("", "core", "core/knowledge", "core/llm", "core/memory", "core/retrieval")
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


class Unavailable(Exception):
    """It could not be fetched, and why."""


class PythonClaw:
    """One version's own code, and what it does with files."""

    def __init__(self, version: str, fetch: bool = True) -> None:
        self.version = version
        self._root = _stubbed(fetched(version, fetch), f"pythonclaw_{version.replace('.', '_')}")

    def module(self, name: str) -> Any:
        """One of its modules: "core.session_store"."""
        return importlib.import_module(f"{self._root}.{name}")

    def store(self, sessions: Path, most: int = UNLIMITED) -> Any:
        """Its SessionStore over a folder."""
        return self.module("core.session_store").SessionStore(str(sessions), max_messages=most)

    def memory(self, folder: Path) -> Any:
        """Its MemoryStorage over a folder."""
        return self.module("core.memory.storage").MemoryStorage(str(folder))

    def manager(self, folder: Path) -> Any:
        """Its MemoryManager over a folder."""
        return self.module("core.memory.manager").MemoryManager(str(folder))

    def skills(self, *folders: Path) -> Any:
        """Its SkillRegistry over folders of skills."""
        return self.module("core.skill_loader").SkillRegistry([str(folder) for folder in folders])

    def writes(self, session: str, messages: list[dict[str, Any]]) -> bytes:
        """The file that its `save` makes of these messages; they get a `_ts` where they have none. b"" where it saves
        nothing."""
        with tempfile.TemporaryDirectory(prefix="clawd-claw-") as folder:
            self.store(Path(folder)).save(session, [{"role": "system", "content": "prompt"}, *messages])
            (file,) = list(Path(folder).glob("*.md")) or [Path(os.devnull)]
            return file.read_bytes()

    def reads(self, data: bytes) -> list[dict[str, Any]]:
        """What its `load` gives for a file of these bytes. Raises what it raises."""
        with tempfile.TemporaryDirectory(prefix="clawd-claw-") as folder:
            Path(folder, "s.md").write_bytes(data)
            loaded: list[dict[str, Any]] = self.store(Path(folder)).load("s")
            return loaded

    def restores(self, data: bytes) -> list[dict[str, Any]]:
        """The history that its agent goes on with after its restore step, without prompt and memory."""
        agent_class = self.module("core.persistent_agent").PersistentAgent
        with tempfile.TemporaryDirectory(prefix="clawd-claw-") as folder:
            Path(folder, "s.md").write_bytes(data)
            agent = agent_class.__new__(agent_class)  # whose __init__ wants a provider and a home
            agent.messages = [{"role": "system", "content": "prompt"}]
            agent.loaded_skill_names = set()
            agent.memory = self.manager(Path(folder, "memory"))
            agent._store, agent._session_id = self.store(Path(folder)), "s"
            agent._restore()
        return list(agent.messages[1:])


@cache
def claw(version: str = ESC) -> PythonClaw:
    """A version, fetched if it is not there yet; the test fails where it cannot be had."""
    try:
        return PythonClaw(version)
    except Unavailable as error:
        pytest.fail(str(error))


def fetched(version: str, fetch: bool = True) -> Path:
    """The folder of its package, fetched where it may be. Raises Unavailable."""
    directory = _CLAWS / version
    if not fetch:
        if not directory.is_dir():
            raise Unavailable(f"PythonClaw {version} was not fetched: python -m tests.bridges.real_pythonclaw")
        return directory / "pythonclaw"
    _CLAWS.mkdir(parents=True, exist_ok=True)
    with (_CLAWS / f"{version}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not directory.is_dir():
            _fetch(version, directory)
    return directory / "pythonclaw"


def _fetch(version: str, directory: Path) -> None:
    beside = directory.with_name(f"{version}.new")
    wanted = directory.with_name(f"{version}.txt")
    wanted.write_text(f"pythonclaw=={version} --hash=sha256:{HASHES[version]}\n")
    whys = []
    for installer in _installers():
        shutil.rmtree(beside, ignore_errors=True)
        options = ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--target", str(beside)]
        try:
            done = subprocess.run(
                [*installer, *options, "-r", str(wanted)],
                capture_output=True, text=True, check=False, timeout=120, env=_environment(),
            )  # fmt: skip
            why = done.stderr.strip()[-500:] or "it says nothing" if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            why = str(error)
        if not why:
            beside.rename(directory)
            return
        whys.append(f"{Path(installer[0]).name}: {why}")
    raise Unavailable(f"PythonClaw {version}, which this runs for real, could not be fetched: {'; '.join(whys)}")


def _installers() -> list[list[str]]:
    """The ways to install a package that this machine may have: a clone's .venv always has uv, but not always pip."""
    uv = [str(Path(sys.executable).with_name("uv")), shutil.which("uv") or ""]
    pythons = [sys.executable, shutil.which("python3") or ""]
    python = ["--python", sys.executable]
    return [
        *([each, "pip", "install", "--no-cache", *python] for each in uv if Path(each).is_file()),
        *([each, "-m", "pip", "install", "--disable-pip-version-check"] for each in pythons if each),
    ]


def _environment() -> dict[str, str]:
    """uv trusts what this machine trusts, as in .ci/setup."""
    bundle = next((each for each in _CERTIFICATES if Path(each).is_file()), None)
    return ({"SSL_CERT_FILE": bundle} if bundle else {}) | os.environ


def _stubbed(folder: Path, root: str) -> str:
    """Empty packages under a name of this version, which find its modules and log nothing."""
    logging.getLogger(root).addHandler(logging.NullHandler())
    logging.getLogger(root).propagate = False
    for each in _FOLDERS:
        stub = ModuleType(".".join([root, *each.split("/")]).rstrip("."))
        stub.__path__ = [str(folder / each)]
        sys.modules[stub.__name__] = stub
    return root


if __name__ == "__main__":
    for each in HASHES:
        fetched(each)
