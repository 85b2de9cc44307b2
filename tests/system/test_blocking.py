"""What a person, an agent or a model may make large blocks nobody else: the daemon's event loop is watched meanwhile
(tests/blocking.py), as it is in every test here."""

from __future__ import annotations

import pytest

from tests.system.conftest import Home, call

BIG = "x" * (200 << 10)


def test_large_files_and_messages_block_nobody(home: Home) -> None:
    group = home.layout.group("main")
    group.root.mkdir()
    group.claude_md.write_text("words " * 170_000)
    home.start()
    assert home.cli("chat", "-m", "-", text=f"say {BIG}").stdout == f"{BIG}\n"
    assert "Noted" in home.cli("chat", "-m", "-", text=f"note: {BIG}").stdout
    group.claude_md.write_text("other words " * 80_000)
    assert home.cli("chat", "-m", "sh:head -c 3000000 /dev/urandom | base64").returncode == 0
    assert home.cli("chat", "-m", "sh:seq 200000 > made").returncode == 0
    assert home.cli("chat", "-m", "send file: made").returncode == 0


def test_a_large_script_and_many_steps_block_nobody(home: Home) -> None:
    steps = [call("bash", command=f"echo {number} {'y' * 90_000}") for number in range(40)]
    home.script(*steps, {"text": "done"})
    home.start()
    assert home.cli("chat", "-m", "go", timeout=100).stdout == "done\n"
    assert home.cli("chat", "-m", "again", timeout=100).stdout == "done\n"


@pytest.mark.parametrize("blocks", [10_000])
def test_a_long_session_blocks_nobody(home: Home, blocks: int) -> None:
    home.start()
    assert home.cli("chat", "-m", "say one").stdout == "one\n"
    home.settled(1)
    [file] = home.layout.group("main").sessions.glob("*.md")
    text = file.read_text()
    at = text.index("<!-- msg:")
    file.write_text(text[:at] + text[at:] * (blocks // 2))
    assert home.cli("chat", "-m", "say two").stdout == "two\n"
    home.kill()
    home.start()
    assert home.cli("chat", "-m", "say three").stdout == "three\n"
    home.settled(3)
