"""The commands of a session's context, as they are typed; what they do is tested in tests/commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from clawd.cli import contexts as cli
from clawd.cli import patience
from clawd.cli.catalogue import COMMANDS
from clawd.cli.main import parse, run
from clawd.commands import standing, writing
from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.ledger import contexts
from clawd.model import Block
from clawd.sessions.file import SessionFile
from tests.commands.test_contexts import SESSION, begun, write
from tests.ledger.conftest import NOW

PAGE = Path(__file__).parents[2] / "docs/context.md"
NOTHING_OLDER = "nothing was said in it that could be left out"
Said = tuple[int, Any, str]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    init_home(made)
    write(made, begun)
    path = made.group("main").sessions / "mmkr_agent-1.md"
    for turn in range(1, 5):
        SessionFile(path, SESSION).append([Block("user", f"Look {turn}."), Block("assistant", "I looked.")], turn)
    return made


@pytest.fixture
def say(home: Home, capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: str) -> Said:
        code = run(["context", *words, "--home", str(home.root)])
        out, err = capsys.readouterr()
        return code, json.loads(out) if "--json" in words else out, err

    return call


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Somebody at a terminal, who types this."""

    def type_(text: str) -> None:
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("sys.stdin.readline", lambda: text, raising=False)

    return type_


def test_status_says_what_is_known(home: Home, say: Any) -> None:
    code, said, _ = say("status", "--session", SESSION)
    assert code == 0 and re.search(r"^window_tokens +70000$", said, re.M) and "stopped_reason" not in said
    assert "goal: Count the rows of /srv/copy\n" in said and "constraints: Never write to /srv/live\n" in said
    assert say("status", "--session", SESSION, "--json")[1]["soft"] == 60_000


def test_what_somebody_pinned_does_nothing_to_a_terminal(home: Home, say: Any) -> None:
    text = "do \x1b[2J \u202e this"
    write(home, lambda tx: contexts.pin(tx, SESSION, "blockers", text, turn=1, at=NOW, origin="tool", trust=0.4))
    said = say("status", "--session", SESSION)[1]
    assert "blockers: do ␛[2J ⟨U+202E⟩ this\n" in said and "\x1b" not in said


@pytest.mark.parametrize("verb", ["status", "compact", "handoff", "signal --phase-done", "export --format csv"])
def test_a_session_that_is_nowhere_is_5(home: Home, say: Any, verb: str) -> None:
    code, said, err = say(*verb.split(), "--session", "nobody:1", "--json")
    assert code == 5 and "no session" in said["error"] and "session list" in err
    code, said, _ = say(*verb.split(), "--session", SESSION, "--group", "other", "--json")
    assert code == 5 and said["hint"] == "it is one of group main"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("compact", "--session"),
        ("signal --session x", "--phase-done"),
        ("export --session x", "--format"),
        ("export --session x --format pdf", "csv"),
        ("status --session", "--session"),
    ],
)
def test_wrong_use_is_2(say: Any, words: str, says: str) -> None:
    code, _, err = say(*words.split())
    assert code == 2 and says in err


def test_compact_prints_what_it_freed(home: Home, say: Any) -> None:
    code, said, _ = say("compact", "--session", SESSION, "--json")
    assert code == 0
    assert list(said) == ["session", "action", "trigger", "state", "method", "before", "after", "recall", "successor"]
    assert (said["session"], said["action"], said["trigger"], said["state"]) == (
        SESSION,
        "compact",
        "manual",
        "written",
    )
    assert said["before"] == 70_000 and said["after"] <= 70_000
    write(home, lambda tx: contexts.update(tx, SESSION, NOW, window=70_000))
    code, said, _ = say("compact", "--session", SESSION)
    assert code == 0 and re.fullmatch(rf"session {SESSION}: [\d,]+ tokens are [\d,]+ now \(by \w+.*\)\n", said)


def test_handoff_names_the_successor(home: Home, say: Any) -> None:
    code, said, _ = say("handoff", "--session", SESSION, "--json")
    assert code == 0 and (said["session"], said["successor"]) == (SESSION, f"{SESSION}.2")
    assert json.loads(Path(said["handoff_manifest"]).read_text())["schema_version"] == "1.1"
    code, said, err = say("handoff", "--session", SESSION)
    assert (code, said) == (1, "") and f"goes on as {SESSION}.2" in err


def test_signal_and_export_say_what_they_did(home: Home, say: Any) -> None:
    assert say("signal", "--phase-done", "--session", SESSION)[:2] == (
        0,
        f"session {SESSION} is handed over after its next turn\n",
    )
    code, said, err = say("export", "--format", "csv", "--session", SESSION)
    assert code == 0 and [Path(line).name for line in said.splitlines()] == ["metrics.csv", "decisions.csv"]
    assert all(Path(line).is_file() for line in said.splitlines()) and err == ""
    assert list(say("export", "--format", "html", "--session", SESSION, "--json")[1]) == ["session", "format", "files"]


# ── a yes that is wanted first ──


@pytest.fixture
def asks(home: Home) -> None:
    home.group("main").config_file.write_text('require_confirm = ["compact", "handoff"]\n')


@pytest.mark.parametrize("verb", ["compact", "handoff"])
def test_without_a_terminal_it_is_2_and_names_yes(asks: None, say: Any, verb: str) -> None:
    code, said, err = say(verb, "--session", SESSION)
    assert (code, said) == (2, "") and "--yes" in err
    assert say("status", "--session", SESSION, "--json")[1]["status"] == "running"
    assert say(verb, "--session", SESSION, "--yes")[0] == 0


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("Yes\n", 0), ("n\n", 2), ("\n", 2), ("", 2)])
def test_at_a_terminal_it_is_asked(asks: None, say: Any, typed: Any, answer: str, code: int) -> None:
    typed(answer)
    found, said, err = say("handoff", "--session", SESSION)
    assert found == code and "is to be handed over (manual). Go on? [y/N]" in err
    assert ("goes on as" in said) is (code == 0)
    status = say("status", "--session", SESSION, "--json")[1]["status"]
    assert status == ("handoff" if code == 0 else "running")


# ── a daemon that goes on with it ──


class Daemon:
    """What a daemon answers, and how its compaction goes on."""

    def __init__(self, answer: dict[str, Any], *states: dict[str, Any] | None, alive: bool = True) -> None:
        self.answer, self.states, self.alive = answer, list(states), alive

    def call(self, home: Home, op: str, **params: Any) -> dict[str, Any]:
        return {"session": SESSION, "action": "compact", "trigger": "manual", "state": "begun", "compaction": 1,
                "successor": None, "waits": True} | self.answer  # fmt: skip

    def ask(self, home: Home, op: str, **params: Any) -> Any:
        if not self.alive:
            raise writing.NoDaemon("gone")
        return {}

    def outcome(self, home: Home, session: str, compaction: int) -> dict[str, Any] | None:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        whole = {"method": None, "before": 90_000, "after": None, "recall": None, "error": None, "status": "running"}
        return state and whole | {"successor": None} | state


def at_once(monkeypatch: pytest.MonkeyPatch, daemon: Daemon) -> None:
    monkeypatch.setattr(writing, "call", daemon.call)
    monkeypatch.setattr(writing, "ask", daemon.ask)
    monkeypatch.setattr(standing, "outcome", daemon.outcome)
    monkeypatch.setattr(cli, "PAUSE_S", 0.0)
    monkeypatch.setattr(cli, "ALIVE_S", 0.0)


WRITTEN = {"state": "written", "method": "summary", "after": 20_000, "recall": 0.9512}
LOST = {"state": "failed", "error": "it leaves out what is held on to (goal: Count)", "recall": 0.5}


@pytest.mark.parametrize(
    ("daemon", "code", "says", "beside"),
    [
        (Daemon({}, {"state": "begun"}, {"state": "asked"}, WRITTEN), 0,
         "90,000 tokens are 20,000 now (by summary, recall 0.95)", ""),
        (Daemon({}, {"state": "asked"}, LOST | {"successor": "s.2"}), 0, "it goes on as s.2", "leaves out"),
        (Daemon({}, LOST), 1, "is as it was: it leaves out what is held on to (goal: Count)\n", ""),
        (Daemon({}, {"state": "asked"}, alive=False), 0, "as soon as a daemon runs", ""),
        (Daemon({"waits": False}, {"state": "asked"}), 0, "as soon as a daemon runs", ""),
        (Daemon({"state": "later", "compaction": None}, None), 0, "is compacted when the turn ends", ""),
        (Daemon({"state": "asked", "compaction": None}, None), 0, "once the chat says yes", ""),
        (Daemon({"action": "handoff", "compaction": None, "successor": "s.2", "trigger": "hard_handoff"}, None), 0,
         "was handed over (hard_handoff): it goes on as s.2", ""),
        (Daemon({}, None), 1, "", "is gone"),
    ],
)  # fmt: skip
def test_the_result_is_waited_for_and_told(
    monkeypatch: pytest.MonkeyPatch, say: Any, daemon: Daemon, code: int, says: str, beside: str
) -> None:
    at_once(monkeypatch, daemon)
    found, said, err = say("compact", "--session", SESSION)
    assert found == code and says in said and beside in err


def test_whoever_waits_longer_is_told_what_for(monkeypatch: pytest.MonkeyPatch, say: Any) -> None:
    monkeypatch.setattr(patience, "FIRST_S", 0.0)
    at_once(monkeypatch, Daemon({}, *[{"state": "asked"}] * 200, WRITTEN))
    monkeypatch.setattr(cli, "PAUSE_S", 0.001)
    assert f"compacting {SESSION} …" in say("compact", "--session", SESSION)[2]


def test_what_has_nothing_to_leave_out_says_so(home: Home, say: Any) -> None:
    file = home.group("main").sessions / "mmkr_agent-1.md"
    file.unlink()
    SessionFile(file, SESSION).append([Block("system", "It begins.")], None)
    code, said, _ = say("compact", "--session", SESSION)
    assert code == 0 and said == f"session {SESSION} is as it was: {NOTHING_OLDER}\n"


@pytest.mark.parametrize("words", ["decide --tokens 100k", "decide --tokens -5", "run --goal x --max-steps 0"])
def test_a_number_that_is_none_is_refused_in_words(say: Any, words: str) -> None:
    code, _, err = say(*words.split())
    assert code == 2 and "is no whole number above 0" in err and "--help" in err


# ── the page that tells how ──


def test_every_command_of_the_page_is_one() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    told = [line.partition("#")[0].split()[1:] for block in blocks for line in block.splitlines() if line]
    assert len(told) >= 8
    for words in told:
        command, left = parse(words)
        assert command is not None
        if not command.does:
            continue
        import argparse

        parser = argparse.ArgumentParser(exit_on_error=False)
        for argument in command.arguments:
            parser.add_argument(*argument.names, **argument.settings)
        assert parser.parse_args(left)


def test_every_command_of_the_page_is_told_of_and_every_trigger() -> None:
    page = PAGE.read_text()
    missing = [words for words in COMMANDS if words[0] == "context" and f"clawd {' '.join(words)}" not in page]
    assert missing in ([], [("context", "show")])
    for trigger in ("none", "soft_compact", "hard_handoff", "verify_fail", "phase_boundary", "compact_ineffective",
                    "manual", "policy:"):  # fmt: skip
        assert f"`{trigger}" in page
