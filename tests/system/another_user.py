"""The program as another user than root: a copy of it that they can read, and their own Python.

A checkout, a virtual environment and a Python may all lie below a 0700 directory of root's."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
USER = 1500
SHOWN = ("clawd", "channels", "containers", "skills", "config.example.toml")


@contextmanager
def copied() -> Iterator[tuple[Path, list[str]]]:
    """A directory that belongs to the other user, and the command line that runs Python as them."""
    with tempfile.TemporaryDirectory(prefix="clawd-other-") as name:
        root, code = Path(name), Path(name) / "code"
        code.mkdir()
        for each in SHOWN:
            source = ROOT / each
            if source.is_dir():
                shutil.copytree(source, code / each, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, code / each)
        for distribution in _needed():
            _copy(distribution, code)
        python = _python(root)
        for path in (root, *root.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or path.stat().st_mode & 0o100 else 0o044))
        theirs = root / "theirs"
        theirs.mkdir(mode=0o700)
        os.chown(theirs, USER, USER)
        become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all", "--"]
        yield theirs, [*become, "env", f"PYTHONPATH={code}", python]


def _needed() -> list[metadata.Distribution]:
    """What the program depends on, with all that these depend on."""
    text = (ROOT / "pyproject.toml").read_text()
    waiting = re.findall(r'"([\w-]+)', re.search(r"^dependencies = \[(.*?)^\]", text, re.S | re.M)[1])  # type: ignore[index]
    found: dict[str, metadata.Distribution] = {}
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name not in found:
            try:
                found[name] = metadata.distribution(name)
            except metadata.PackageNotFoundError:
                continue  # for another system, or an extra
            required = [each for each in found[name].requires or () if "extra ==" not in each]
            waiting += [re.match(r"[\w.-]+", each)[0] for each in required]  # type: ignore[index]
    return list(found.values())


def _copy(distribution: metadata.Distribution, to: Path) -> None:
    for file in distribution.files or ():
        source, target = Path(distribution.locate_file(file)), to / file
        if ".." not in file.parts and file.suffix != ".pyc" and source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)


def _python(root: Path) -> str:
    """A Python of this version that anybody can run: the system's, else a copy of ours."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    system = Path("/usr/bin") / version
    if system.exists():
        return str(system)
    shutil.copytree(sys.base_prefix, root / "python", symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return str(root / "python" / "bin" / version)
