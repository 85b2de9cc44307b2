"""What is granted, who acts, and what came in, while it changes: a daemon, a sandbox and an upstream on loopback."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine import Engine
from tests.gateway.upstream import Upstream, answer
from tests.system.conftest import BOTH, Home, call, until

KEEP = {"CLAWD_SANDBOX__KEEP": "true"}
KEY, NEW = "sk-ant-api03-the-real-one", "sk-ant-api03-a-newer-one"
ASK = "python3 /group/inbox/ask.py"
MODEL, TOOL = "/svc/anthropic/v1/messages", "/svc/tool/x"
GRANTS = '[model]\nservice = "anthropic"\n'


class Stage:
    """A home whose services `anthropic` and `tool` are an upstream of the test's."""

    def __init__(self, home: Home, upstream: Upstream) -> None:
        self.home, self.upstream, self.key = home, upstream, home.root.parent / "key"
        self.key.write_text(f"{KEY}\n")
        base = f"http://127.0.0.1:{upstream.port}"
        more = f'allow_private = true\ncredential = "${{file:{self.key}}}"'
        self.services = (
            f'[services.anthropic]\nbase_url = "{base}"\n{more}\n[services.tool]\nbase_url = "{base}/tool"\n{more}\n'
        )
        home.configure(more=self.services)
        for group in ("main", "other"):
            inbox = home.layout.group(group).inbox
            inbox.mkdir(parents=True, exist_ok=True)
            (inbox / "ask.py").write_text((Path(__file__).parent / "hostile/ask.py").read_text())
            (inbox / "ask.py").chmod(0o644)

    def grant(self, *grants: str) -> None:
        self.home.layout.group("main").config_file.write_text(f"grants = [{', '.join(grants)}]\n{GRANTS}")

    def script(self, *commands: str) -> None:
        """Turns of anybody run these."""
        steps = [step for each in commands for step in (call("bash", command=each), {"text": "done"})]
        self.home.script(*steps, more=self.services)

    def run(self, command: str, group: str = "main") -> str:
        """What a command prints in a turn of the owner."""
        done = self.home.cli("chat", "-m", f"sh:{command}", "--group", group)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def beside(self, *argv: str, group: str = "main") -> str:
        done = self.home.cli("sandbox", "exec", "--group", group, "--", *argv)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def keys(self) -> list[str]:
        """What each request that reached the upstream was authenticated by."""
        return [",".join(each.values("x-api-key") + each.values("authorization")) for each in self.upstream.requests]

    def notices(self) -> list[str]:
        """What people were told beside their answers."""
        with contextlib.closing(
            sqlite3.connect(f"{self.home.layout.ledger_file.as_uri()}?mode=ro", uri=True)
        ) as ledger:
            return [text for (text,) in ledger.execute("SELECT text FROM delivery WHERE kind = 'notice' ORDER BY id")]

    def authority(self, group: str = "main") -> tuple[str, float]:
        row: dict[str, Any] = next(each for each in self.home.json("groups", "list") if each["group"] == group)
        return row["authority"], row["taint"]


@pytest.fixture
def stage(home: Home) -> Iterator[Stage]:
    with Upstream(answer(b"hello")) as upstream:
        yield Stage(home, upstream)


class Asking:
    """A command beside the runner that asks over one connection, whenever it is told to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __call__(self, target: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{target}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def asking(stage: Stage) -> Iterator[Asking]:
    process = stage.home.spawn("sandbox", "exec", "--", *ASK.split())
    yield Asking(process)
    process.communicate(timeout=60)
    assert process.returncode == 0


@BOTH
def test_grants_and_credentials_are_those_of_the_moment(stage: Stage) -> None:
    """Over one connection: each edit holds from the next request on."""
    stage.grant('"anthropic"')
    stage.home.start()
    file = stage.home.layout.group("main").config_file
    with asking(stage) as ask:
        assert ask(MODEL) == "200 hello"
        assert ask(TOOL) == "403 not_granted"
        stage.key.write_text(NEW)
        assert ask(MODEL) == "200 hello"
        stage.key.chmod(0)
        stage.key.rename(stage.key.with_name("away"))
        assert ask(MODEL) == "503 no_credential"
        stage.key.with_name("away").rename(stage.key)
        stage.key.chmod(0o600)
        stage.grant('"tool"')
        assert ask(MODEL) == "403 not_granted"
        assert ask(TOOL) == "200 hello"
        file.write_text('grants = ["tool"')
        assert ask(TOOL) == "503 config", "what cannot be understood grants nothing"
        stage.grant('"tool"')
        assert ask(TOOL) == "200 hello"
        stage.home.configure(
            more=stage.services.replace("/tool", "/renamed").replace("services.anthropic", "services.a")
        )
        assert ask(TOOL) == "200 hello"
        assert ask(MODEL) == "403 not_granted"
        stage.home.configure(more="[services")
        assert ask(TOOL) == "200 hello", "a bad config.toml leaves the last good one in force"
        file.write_text("")
        assert ask(TOOL) == "403 not_granted"
    assert stage.keys() == [KEY, NEW, *[f"Bearer {NEW}"] * 4]
    assert [each.target for each in stage.upstream.requests[-2:]] == ["/renamed/x", "/renamed/x"]
    assert b"claw-" not in stage.upstream.received
    told = until(stage.notices)
    assert len(told) == 1 and "The edited config was refused" in told[0]
    assert stage.beside("sh", "-c", f"{ASK} {MODEL}", group="other") == "403 not_granted"


@BOTH
def test_what_comes_in_taints_and_the_models_own_answers_do_not(stage: Stage) -> None:
    stage.grant('"anthropic"', '"tool"')
    stage.home.start()
    assert stage.run(f"{ASK} {MODEL}") == "200 hello"
    assert stage.authority() == ("owner", 1.0)
    assert stage.run(f"{ASK} {TOOL}") == "200 hello"
    assert stage.authority() == ("owner", 0.2)
    stage.home.json("groups", "trust", "main")
    with asking(stage) as ask:
        assert ask(MODEL) == "200 hello"
        assert stage.authority() == ("owner", 1.0)
        assert ask(TOOL) == "200 hello"
        assert stage.authority() == ("owner", 0.2), "what a command brings in lies in the work tree at once"


@BOTH
def test_a_service_for_the_owner_is_for_nobody_else_and_the_first_refusal_is_told(stage: Stage) -> None:
    stage.grant('{service = "tool", for = "owner"}', '{service = "anthropic", for = "member"}')
    stage.script(f"{ASK} {MODEL} {TOOL} {TOOL}")
    stage.home.start()

    def said(role: str) -> str:
        done = stage.home.cli("chat", "-m", "go", "--as", role)
        assert done.returncode == 0, done
        return next(text for kind, text in reversed(stage.home.said()) if kind == "tool")

    assert said("owner") == "200 hello\n200 hello\n200 hello"
    assert not stage.notices()
    assert said("member:Bob") == "200 hello\n403 role\n403 role"
    [notice] = until(stage.notices)
    assert "GET to tool was refused (role)" in notice and "clawd gateway audit --group main" in notice
    with asking(stage) as ask:  # the work tree has fallen to a member's
        assert ask(TOOL) == "403 role"
    assert stage.authority() == ("member", 0.2)
    assert len(stage.upstream.requests) == 4


@BOTH
def test_after_the_turn_there_is_no_road_and_a_token_ends_with_what_it_is_for(stage: Stage) -> None:
    stage.grant('"anthropic"')
    stage.home.start()
    asks = f"(setsid sh -c 'while :; do {ASK} {MODEL}; done' >seen 2>&1 &)"
    left = f"rm -f seen; {asks}; until grep -q hello seen; do sleep .05; done"
    stage.run(left)
    asked = len(stage.upstream.requests)
    old = stage.beside("sh", "-c", f"({left}); echo $CLAWD_TOKEN").splitlines()[-1]
    until(lambda: not stage.home.named(f"{ASK} {MODEL}"))
    assert len(stage.upstream.requests) > asked
    asked = len(stage.upstream.requests)
    assert stage.run(f"TOKEN={old} {ASK} {TOOL}") == "403 no_token"
    assert stage.beside("sh", "-c", f"TOKEN={old} {ASK} {TOOL}; wc -l <seen; sleep .3; wc -l <seen").split()[-2:] == (
        [str(len((stage.home.layout.group("main").work / "seen").read_text().splitlines()))] * 2
    )
    assert len(stage.upstream.requests) == asked


@pytest.mark.engine
@pytest.mark.parametrize("backend", ["docker"], indirect=True)
def test_while_no_daemon_is_there_nothing_goes_out_and_the_next_serves_the_same_turn(
    stage: Stage, engine: Engine
) -> None:
    stage.grant('"anthropic"')
    home, work = stage.home, stage.home.layout.group("main").work
    home.start(**KEEP)
    home.say(f"sh:{ASK} --until go {MODEL}")
    until(lambda: (work / "seen").exists() and (work / "seen").read_text())
    run = home.json("sandbox", "list")[0]["run"]
    home.kill()
    until(lambda: "502 no_daemon" in (work / "seen").read_text())
    asked = len(stage.upstream.requests)
    home.start(**KEEP)
    assert home.json("sandbox", "list")[0]["run"] == run
    assert asked == 1
    until(lambda: (work / "seen").read_text().endswith("403 unknown_service"))
    (work / "go").touch()
    home.settled(1)
    assert next(text for kind, text in home.said() if kind == "tool") == "200 hello\n200 hello"
    seen = [each for each in (work / "seen").read_text().splitlines() if each != "cut"]
    assert seen == ["403 unknown_service", "502 no_daemon", "403 unknown_service"]
    assert stage.keys() == [KEY, KEY]
