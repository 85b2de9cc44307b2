"""`clawd context decide` and `calibrate`, and what the config says of contexts that cannot hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clawd.commands.limits import calibrate, decide, problems
from clawd.commands.looking import config_check
from clawd.config.begin import ensure_group, init_home
from clawd.config.home import Home
from clawd.errors import ConfigError, NotFound
from clawd.health import contexts


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    init_home(made)
    ensure_group(made, "main")
    return made


def write(home: Home, config: str = "", group: str = "") -> None:
    home.config_file.write_text(f"schema = 1\n[claw]\n{config}")
    home.group("main").config_file.write_text(group)


def triple(found: dict[str, Any]) -> tuple[Any, ...]:
    return found["action"], found["trigger"], found["soft"], found["hard"]


@pytest.mark.parametrize(
    ("tokens", "action", "trigger"),
    [(260_000, "compact", "soft_compact"), (360_000, "handoff", "hard_handoff"), (100_000, "continue", "none")],
)
def test_so_many_tokens_with_coding(home: Home, tmp_path: Path, tokens: int, action: str, trigger: str) -> None:
    for where in (home, Home(tmp_path / "nowhere")):
        found = decide(where, tokens, "coding", False, "main")
        assert triple(found) == (action, trigger, 250_000, 350_000)
        assert (found["tokens"], found["estimated"], found["profile"]) == (tokens, False, "coding")


def test_what_a_group_has_holds(home: Home) -> None:
    write(home, '[profiles.own]\nsoft = 10\nhard = 20\n[model]\nmodel = "claude-sonnet-4-5"\n', 'profile = "own"\n')
    assert triple(decide(home, 15, None, False, "main")) == ("compact", "soft_compact", 10, 20)
    assert triple(decide(home, 5, None, True, "main")) == ("handoff", "phase_boundary", 10, 20)
    # a model of 200,000 tokens: 200000 - 8192 - 13000, and three quarters of it
    assert triple(decide(home, 260_000, "coding", False, "main")) == ("handoff", "hard_handoff", 134_106, 178_808)


def test_what_cannot_be_decided_is_an_error(home: Home) -> None:
    with pytest.raises(ConfigError, match="did you mean coding"):
        decide(home, 1, "codin", False, "main")
    with pytest.raises(NotFound):
        decide(home, 1, None, False, "nosuch")
    home.config_file.write_text("schema = 1\n[claw]\n[profiles.x]\nsoft = 3\nhard = 3\n")
    with pytest.raises(ConfigError, match="soft must be below hard") as raised:
        decide(home, 1, None, False, "main")
    assert raised.value.code == 4


def past(home: Home, count: int, peak: int, group: str = "main") -> None:
    home.group(group).sessions.mkdir(parents=True, exist_ok=True)
    for n in range(count):
        lines = [
            {"event": "turn", "step_index": 1, "window_tokens": peak},
            {"event": "compact", "step_index": 1, "window_tokens": 10},
        ]
        stem = home.group(group).sessions / f"s{n}"
        stem.with_suffix(".metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
        said = {"action": "compact", "step_index": 1, "total_tokens": peak}
        stem.with_suffix(".decisions.jsonl").write_text(json.dumps(said))


def test_a_recommendation_is_kept_only_where_that_is_wanted_and_holds_where_the_config_names_it(home: Home) -> None:
    past(home, 4, 100_000)
    found = calibrate(home, "coding", None, write=True)
    assert (found["sessions"], found["sufficient"], found["soft"], found["hard"]) == (4, False, None, None)
    assert found["file"] is None and "5 are needed" in found["said"]
    ensure_group(home, "other")
    past(home, 2, 100_000, "other")
    # P 100000, D 100000, none handed over: soft .5*.7*100000 + .5*100000 = 85000, at most .8 * 100000; hard 100000
    found = calibrate(home, "coding", None, write=False)
    assert (found["sessions"], found["soft"], found["hard"], found["file"]) == (6, 80_000, 100_000, None)
    assert not (home.state / "calibrations").exists()
    assert calibrate(home, "coding", "other", write=False)["sessions"] == 2
    found = calibrate(home, "coding", None, write=True)
    assert found["file"] == "state/calibrations/coding.json"
    kept = json.loads((home.root / found["file"]).read_text())
    assert {"schema": 1, "profile": "coding", "soft": 80_000, "hard": 100_000, "sessions": 6}.items() <= kept.items()
    assert triple(decide(home, 90_000, "coding", False, "main"))[0] == "continue"  # not by itself
    write(home, f'[profiles.coding]\ncalibration = "{found["file"]}"\n')
    assert triple(decide(home, 90_000, "coding", False, "main")) == ("compact", "soft_compact", 80_000, 100_000)
    assert list(problems(home)) == []
    (home.root / found["file"]).write_text("{")
    with pytest.raises(ConfigError, match="not JSON"):
        decide(home, 90_000, "coding", False, "main")


def test_sessions_of_another_profile_do_not_count(home: Home) -> None:
    write(home, "", 'profile = "coding"\n')
    past(home, 6, 100_000)
    home.group("main").sessions.joinpath("s0.state.json").write_text('{"profile": "chat"}')
    home.group("main").sessions.joinpath("s1.state.json").write_text('{"profile": null}')
    assert calibrate(home, None, None, write=False)["sessions"] == 5
    assert calibrate(home, "chat", None, write=False)["sessions"] == 5
    with pytest.raises(ConfigError, match="there is no profile"):
        calibrate(home, "../../x", None, write=True)


@pytest.mark.parametrize(
    ("config", "group", "says"),
    [
        ("", 'profile = "codign"\n', "did you mean coding?"),
        ("", '[context]\npolicies = ["blokers"]\n', "there are blockers, cost"),
        ('[context]\npolicies = ["cost"]\n', "", "usd = N"),
        ('[profiles.chat]\ncalibration = "state/calibrations/chat.json"\n', "", "there is no calibration"),
        ("[model]\nwindow = 9000\n", "", "no room"),
    ],
)
def test_what_cannot_hold_is_told_by_the_check_and_the_doctor(home: Home, config: str, group: str, says: str) -> None:
    write(home, config, group)
    (error,) = config_check(home, None)["errors"]
    assert error["where"] == "group main [context]" and says in error["what"] + error["hint"]
    (found,) = contexts.limits(home)
    assert found["level"] == "error" and says in found["message"]


def test_what_can_hold_is_told_too(home: Home) -> None:
    write(home, '[context]\npolicies = ["blockers", "cost"]\nusd = 2\n', "[context]\npolicies = []\n")
    assert config_check(home, None)["ok"]
    assert [each["level"] for each in contexts.limits(home)] == ["ok"]
    assert decide(home, 5, None, False, "main")["notes"] == []


def test_what_nothing_can_be_written_to_is_told(home: Home, tmp_path: Path) -> None:
    root = home.group("main").root
    (root / "sessions").mkdir(exist_ok=True)
    for name in ("a.md", "a.state.json", "b.decisions.jsonl", "a note of mine"):
        (root / "sessions" / name).write_text("")
    assert list(contexts.files(home)) == []
    os.mkfifo(root / "sessions/a.decisions.jsonl")
    (root / "sessions/b.state.json").symlink_to(tmp_path / "x")
    (root / "manifests").symlink_to(tmp_path)
    told = "\n".join(each["message"] for each in contexts.files(home))
    assert all(each in told for each in ("a.decisions.jsonl", "b.state.json", "manifests")) and told.count("\n") == 2
    for n in range(9):
        os.mkfifo(root / f"sessions/{n}.state.json")
    assert len(list(contexts.files(home))) == 6
