"""The wheel: in a clean environment, away from every clone, it answers."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.system.clone import Clone

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def wheel(clone: Clone) -> Path:
    """Built with what the tests' own environment has: no registry is asked."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(clone.beside)]
    clone.run(*build).check_returncode()
    (built,) = clone.beside.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clawd(clone: Clone, wheel: Path) -> Path:
    """The command, installed from the wheel with the locked requirements."""
    clone.make(".venv/.runtime")  # so that uv is there
    environment = clone.beside / "venv"
    into = ("pip", "install", "--quiet", "--python", str(environment / "bin/python"))
    lock = str(clone.tree / "requirements.lock")
    for words in (
        ("venv", "--quiet", "--python", sys.executable, str(environment)),
        (*into, "--require-hashes", "-r", lock),
        (*into, "--no-deps", "--offline", str(wheel)),
    ):
        done = clone.run(clone.uv(), *words, cwd=clone.beside)
        assert done.returncode == 0, done.stderr
    return environment / "bin/clawd"


def test_the_wheel_holds_what_the_program_needs_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"clawd", "channels", next(top for top in tops if top.endswith(".dist-info"))}
    for needed in ("containers/agent/runner.py", "config.example.toml"):
        assert f"clawd/_data/{needed}" in names
    for needed in ("ledger/migrations/0001.sql", "context/prompts/identity.md", "context/prompts/job.md"):
        assert f"clawd/{needed}" in names
    assert not [name for name in names if "__pycache__" in name or "tests" in name.split("/")]


def test_it_tells_its_version(clone: Clone, clawd: Path) -> None:
    done = clone.run(str(clawd), "--version", cwd=clone.beside)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[0] == "clawd" and done.stdout.split()[1] in clawd_version(clone)


def clawd_version(clone: Clone) -> str:
    return (clone.tree / "pyproject.toml").read_text().partition("\nversion = ")[2].partition("\n")[0]


def test_it_makes_a_home_and_answers_there(clone: Clone, clawd: Path, tmp_path: Path) -> None:
    def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return clone.run(str(clawd), *words, cwd=cwd, HOME=str(tmp_path), PATH=os.defpath)

    home = clone.beside / "home"
    assert run("init", str(home), cwd=clone.beside).returncode == 0
    done = run("chat", "-m", "say hi", cwd=home)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hi\n", "")


def test_its_data_and_its_modules_come_from_the_wheel(clone: Clone, clawd: Path) -> None:
    said = "import channels, clawd.resources as r; print(channels.__file__, r.shipped('containers/agent'))"
    done = clone.run(str(clawd.with_name("python")), "-c", said, cwd=clone.beside)
    places = done.stdout.split()
    assert len(places) == 2 and all(Path(place).is_relative_to(clone.beside / "venv") for place in places)
    assert places[1].endswith("clawd/_data/containers/agent")
