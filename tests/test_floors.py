"""The floors of docs/architecture.md: the contracts of pyproject.toml hold, and would notice."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
AGENT = ROOT / "containers/agent"
LINT = Path(sys.executable).with_name("lint-imports")


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over a tree of the project."""
    return subprocess.run([str(LINT), "--no-cache"], cwd=tree, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("floors")
    shutil.copy(ROOT / "pyproject.toml", tree)
    for package in ("clawd", "channels"):
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__", "_data"))
    return tree


def test_every_import_keeps_to_the_floors() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("file", "text", "broken"),
    [
        ("clawd/ledger/up.py", "import clawd.turns.slots", "Each floor"),
        ("clawd/turns/beside.py", "def late() -> None:\n    import clawd.delivery.outbox", "Each floor"),
        ("clawd/sessions/beside.py", "from clawd.commands import looking", "Each floor"),
        ("clawd/homeless.py", "", "Each floor"),
        ("channels/nosy.py", "import clawd.ledger.db", "A channel knows"),
        ("channels/twin.py", "import channels.terminal", "Channels do not know"),
        ("clawd/delivery/named.py", "import channels.terminal", "Nothing of clawd"),
    ],
)
def test_an_import_that_breaks_a_floor_is_found(copied: Path, file: str, text: str, broken: str) -> None:
    (copied / file).write_text(text + "\n")
    try:
        done = lint(copied)
    finally:
        (copied / file).unlink()
    said = " ".join(done.stdout.split())
    assert done.returncode == 1
    assert "BROKEN" in said.partition(broken)[2].partition("Contracts:")[0] or "not listed as layers" in said


def imported(tree: ast.AST) -> Iterator[str]:
    """The top-level names of everything that a module imports, wherever in it; relative ones as `.`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." if node.level else (node.module or "").partition(".")[0]


@pytest.mark.parametrize("file", sorted(AGENT.rglob("*.py")), ids=lambda file: str(file.relative_to(AGENT)))
def test_the_agent_side_knows_nothing_of_ours(file: Path) -> None:
    """The standard library and itself alone, in the syntax of the oldest Python that a sandbox may have."""
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    assert set(imported(tree)) <= sys.stdlib_module_names | {"agent", "."}
