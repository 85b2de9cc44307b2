"""A memory that is forgotten while its daemon runs, and while none does: no file of the home has it any more."""

from __future__ import annotations

from pathlib import Path

from clawd.commands import memory as looking
from tests.system.conftest import Home, until

SECRET = "the spare key hangs behind the kitchen clock"


def files_with(home: Home, words: str) -> list[str]:
    """Every file beneath the home, and of the runs, in which the words stand."""
    files = [path for root in (home.root, home.runtime) for path in root.rglob("*")]
    whole = (path for path in files if path.is_file() and not path.is_symlink())
    return [str(path) for path in whole if words.encode() in path.read_bytes()]


def ids(home: Home) -> list[str]:
    memory = looking.opened(home.layout, "main")
    try:
        memory.look()
        return [each.id for each in memory.every() if "clock" in each.text]
    finally:
        memory.close()


def test_nothing_of_it_is_left(home: Home) -> None:
    home.start()

    def chat(text: str) -> str:
        done = home.cli("chat", "-m", text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    chat(f"remember {SECRET}")
    assert "clock" in chat("recall spare key")
    [id] = ids(home)
    assert len(files_with(home, "behind the kitchen clock")) >= 3, "a memory, a session and the ledger"
    gone = home.ask("memory.delete", group="main", id=id)
    assert gone["sessions"] == 1 and gone["rows"] >= 2 and "state/backups" in gone["left"][0]
    assert ids(home) == [] and not [text for _, text in home.said() if "clock" in text]
    until(lambda: not files_with(home, "behind the kitchen clock"))
    assert home.json("session", "check", "terminal:main")["ok"]
    assert "clock" not in chat("recall spare key")

    chat(f"remember {SECRET}, and so does the other one")
    [id] = ids(home)
    assert home.stop() == 0
    home.json("memory", "delete", id, "--yes")
    assert files_with(home, "behind the kitchen clock") == []
    assert Path(home.layout.state / "trust.jsonl").exists()
