from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clawd.config.home import Home
from tests.cli.conftest import ROOT, Cli, environment

Start = Callable[..., "subprocess.Popen[bytes]"]


def rows(home: Home) -> list[dict[str, object]]:
    result: list[dict[str, object]] = json.loads((home.state / "standin.json").read_text())
    return result


def starts(home: Home) -> int:
    return len((home.state / "starts").read_text().splitlines())


def test_one_message_starts_a_daemon_and_ends_it(home: Home, cli: Cli) -> None:
    done = cli("chat", "-m", "echo $5 'a' \"b\"")
    assert (done.returncode, done.stdout, done.stderr) == (0, "you said echo $5 'a' \"b\"\n", "")
    assert starts(home) == 1 and (home.state / "ended").exists()
    assert rows(home)[0]["seen"] and rows(home)[0]["sender"] == "owner"


def test_one_message_as_json(home: Home, cli: Cli, daemon: Start) -> None:
    daemon()
    done = cli("chat", "--json", "-m", "-", "--as", "member:bob", text="file me\n")
    result = json.loads(done.stdout)
    assert result == {
        "turn": 1,
        "session": "terminal:main",
        "group": "main",
        "reply": "you said file me",
        "files": ["milk.txt"],
        "engine": "scripted",
        "model": None,
        "backend": "bubblewrap",
        "attempt": 1,
        "ms": 3,
        "usage": None,
        "error": None,
    }
    assert (done.returncode, done.stderr, starts(home), rows(home)[0]["sender"]) == (0, "", 1, "member:bob")
    assert not (home.state / "ended").exists()
    assert "[file] milk.txt" in cli("chat", "-m", "file two").stdout


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("fail", (), "the engine broke"),
        ("hold", (), "no sandbox can be made"),
        ("slow", ("--timeout", "0.5"), "no reply within 0.5 s"),
        ("refuse", (), "not you"),
    ],
)
def test_what_was_not_answered_ends_with_1_and_a_sentence(
    cli: Cli, daemon: Start, text: str, options: tuple[str, ...], says: str
) -> None:
    daemon()
    done = cli("chat", "-m", text, *options)
    assert done.returncode == 1 and says in done.stdout + done.stderr
    done = cli("chat", "-m", text, "--json", *options)
    assert done.returncode == 1 and says in json.loads(done.stdout)["error"] and says in done.stderr
    if text in ("hold", "slow"):
        assert "kept" in done.stderr


def test_wrong_use(cli: Cli, home: Home, daemon: Start) -> None:
    daemon()
    assert cli("chat", "-m", "x", "--group", "nowhere").returncode == 5
    assert cli("chat", "--group", "nowhere", text="echo\n").returncode == 5
    assert cli("chat", "-m", "x", "--as", "king").returncode == 2
    assert cli("chat", "-m", " ").returncode == 2
    assert cli("chat", "--json", text="echo\n").returncode == 2


def test_a_command_is_answered_by_its_receipt(cli: Cli, daemon: Start) -> None:
    daemon()
    done = cli("chat", "-m", "/help")
    assert (done.returncode, done.stdout) == (0, "help yourself\n")
    assert json.loads(cli("chat", "-m", "/help", "--json").stdout)["reply"] == "help yourself"


@pytest.mark.parametrize("fault", ["kill@received", "kill@sending"])
def test_its_own_daemon_that_dies_is_followed_by_another(home: Home, cli: Cli, fault: str) -> None:
    done = cli("chat", "-m", "echo once", CLAWD_FAULT=fault)
    assert (done.returncode, done.stdout) == (0, "you said echo once\n")
    assert (starts(home), len(rows(home))) == (2, 1)


def test_a_daemon_that_cannot_start_says_why(home: Home, cli: Cli) -> None:
    (home.root / "refuse").touch()
    done = cli("chat", "-m", "echo", "--json")
    assert done.returncode == 4 and json.loads(done.stdout) == {
        "error": "config.toml is wrong",
        "hint": "mend it",
    }


def test_a_foreign_daemon_may_die_and_come_back(home: Home, daemon: Start) -> None:
    first = daemon(CLAWD_FAULT="kill@received")
    argv = [
        sys.executable,
        str(ROOT / "tests/cli/standin.py"),
        "--home",
        str(home.root),
        "chat",
        "-m",
        "echo back",
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as chat:
        assert first.wait(20) == -signal.SIGKILL
        daemon()
        out, err = chat.communicate(timeout=30)
    assert (chat.returncode, out, len(rows(home))) == (0, "you said echo back\n", 1)
    assert "went away" in err


def test_another_commands_daemon_that_ends_is_followed_by_its_own(home: Home, cli: Cli, daemon: Start) -> None:
    """It ends with that command and does not come back: nobody waits for it."""
    daemon(CLAWD_FAULT="kill@received", CLAWD_PASSING="1")
    done = cli("chat", "-m", "echo on")
    assert (done.returncode, done.stdout, len(rows(home))) == (0, "you said echo on\n", 1)
    assert "went away" not in done.stderr and starts(home) == 2


def test_piped_lines_are_messages_in_turn(home: Home, cli: Cli, daemon: Start) -> None:
    daemon()
    assert cli("chat", "-m", "echo unseen", "--session", "terminal:main", "--timeout", "20").returncode == 0
    done = cli("chat", text="echo one\n\n/help\necho two\n/quit\necho three\n")
    assert done.stdout.splitlines() == ["you said echo one", "help yourself", "you said echo two"]
    assert (done.returncode, len(rows(home))) == (0, 3)
    assert cli("chat", text="fail\n").returncode == 1


def test_what_nobody_saw_is_shown_at_the_next_opening(home: Home, cli: Cli) -> None:
    assert cli("chat", "-m", "echo one").returncode == 0
    (row,) = rows(home)
    (home.state / "standin.json").write_text(json.dumps([{**row, "seen": False}]))
    done = cli("chat", text="echo two\n")
    assert done.stdout.splitlines() == ["you said echo one", "you said echo two"]
    assert cli("chat", text="echo three\n").stdout.splitlines() == ["you said echo three"]


def test_a_terminal_says_with_whom_it_talks_before_what_was_missed(home: Home, cli: Cli, daemon: Start) -> None:
    assert cli("chat", "-m", "echo one").returncode == 0
    (row,) = rows(home)
    (home.state / "standin.json").write_text(json.dumps([{**row, "seen": False}]))
    daemon()
    person = Typing(home)
    person.until("you said echo one", after="talking to main")
    person.until("you › ")
    person.type("\x04")
    assert person.end() == 0 and person.seen.count("talking to main") == 1


def test_whoever_leaves_before_the_reply_is_told_what_becomes_of_the_message(home: Home, daemon: Start) -> None:
    daemon()
    argv = [sys.executable, str(ROOT / "tests/cli/standin.py"), "--home", str(home.root), "chat", "-m", "slow"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as chat:
        deadline = time.monotonic() + 20
        while not (home.state / "standin.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        chat.send_signal(signal.SIGINT)
        out, err = chat.communicate(timeout=30)
    assert (chat.returncode, out) == (130, "") and "is kept" in err and "Traceback" not in err


def test_a_message_cannot_steer_the_terminal(cli: Cli, daemon: Start) -> None:
    daemon()
    done = cli("chat", "-m", "echo \x1b[2J\u202eevil")
    assert done.stdout == "you said echo ␛[2J⟨U+202E⟩evil\n"


class Typing:
    """A person at a terminal: a pseudo-terminal with the command line on it."""

    def __init__(self, home: Home) -> None:
        self._bytes = b""
        argv = [sys.executable, str(ROOT / "tests/cli/standin.py"), "--home", str(home.root), "chat"]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(argv[0], argv, environment(TERM="xterm", NO_COLOR="1"))

    @property
    def seen(self) -> str:
        return self._bytes.decode("utf-8", "replace")

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def until(self, text: str, after: str = "") -> None:
        """Wait until `text` is seen, behind the last `after`."""
        deadline = time.monotonic() + 30
        while after not in self.seen or text not in (self.seen.rpartition(after)[2] if after else self.seen):
            ready, _, _ = select.select([self.terminal], [], [], deadline - time.monotonic())
            assert ready, self.seen
            self._bytes += os.read(self.terminal, 65536)

    def end(self) -> int:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                self._bytes += os.read(self.terminal, 65536)
            except OSError:  # the other end is closed
                break
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_person_talks_streams_stops_and_leaves(home: Home, daemon: Start) -> None:
    daemon()
    person = Typing(home)
    person.until("you ›")
    person.type("echo streamed\r")
    person.until("you ›", after="you said echo streamed")
    person.type("slow\r")
    person.until("thinking")
    person.until("slow")
    deadline = time.monotonic() + 20
    while len(rows(home)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    person.type("\x03")
    person.until("stopping")
    person.until("stopped")
    person.type("\x03")
    assert person.end() == 130
    assert person.seen.count("you said echo streamed") == 1
    assert [row["text"] for row in rows(home)] == ["echo streamed", "slow", "/stop"]


def test_what_is_typed_while_the_agent_works_is_said_at_once(home: Home, daemon: Start) -> None:
    daemon()
    person = Typing(home)
    person.until("you ›")
    person.type("slow\r")
    person.until("thinking")
    deadline = time.monotonic() + 20
    while not (home.state / "standin.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    person.type("/st")
    person.type("op\r")
    person.until("you › /stop", after="slow")
    person.until("stopped")
    person.type("/quit\r")
    assert person.end() == 0
    assert [row["text"] for row in rows(home)] == ["slow", "/stop"]


def test_lines_that_are_pasted_are_said_once_each(home: Home, daemon: Start) -> None:
    daemon()
    person = Typing(home)
    person.until("you ›")
    person.type("echo one\recho two\recho three\r")
    for word in ("one", "two", "three"):
        person.until(f"you said echo {word}")
    person.until("you › ", after="you said echo three")
    person.type("\x04")
    assert person.end() == 0
    assert [row["text"] for row in rows(home)] == ["echo one", "echo two", "echo three"]


def test_what_comes_unasked_does_not_tear_the_line_that_is_typed(home: Home, cli: Cli, daemon: Start) -> None:
    daemon()
    person = Typing(home)
    person.until("you ›")
    person.type("half a li")
    person.until("half a li")
    assert cli("chat", "-m", "echo meanwhile").returncode == 0
    person.until("you › half a li", after="you said echo meanwhile")
    person.type("ne\r")
    person.until("you ›", after="you said half a line")
    person.type("\x04")
    assert person.end() == 0
    assert [row["text"] for row in rows(home)] == ["echo meanwhile", "half a line"]


def test_a_killed_chat_leaves_no_daemon(home: Home, tmp_path: Path) -> None:
    argv = [
        sys.executable,
        str(ROOT / "tests/cli/standin.py"),
        "--home",
        str(home.root),
        "chat",
        "-m",
        "slow",
    ]
    with subprocess.Popen(argv, env=environment()) as chat:
        deadline = time.monotonic() + 20
        while not (home.state / "standin.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        chat.kill()
    while not (home.state / "ended").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
