"""Engines of other vendors, for real: Claude Code and codex, unmodified, in sandboxes of both kinds, against a model
server that has the real key. It sees the key; no sandbox does."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import agents
from tests.canary import CANARY, Hunt
from tests.engine import Engine
from tests.standin import Recorded, Reply, Standin
from tests.system.conftest import EACH, until
from tests.system.ground import Ground, ground


class Foreign:
    """A daemon whose groups work with foreign engines against `model`."""

    def __init__(self, made: Ground, model: Standin) -> None:
        self.home, self.model = made, model
        self.key = made.root.parent / "key"
        self.key.write_text(CANARY)
        self.key.chmod(0o600)
        claude, codex = (shown(program, made.root.parent) for program in (agents.claude(), agents.codex()))
        allowed = made.root.parent / "mounts.toml"
        roots = "".join(
            f'[[roots]]\npath = "{path.parent}"\nmode = "ro"\nwhy = "the tests"\ntrust = "owner"\n'
            for path in (claude, codex)
        )
        allowed.write_text(f"schema = 1\n{roots}")
        allowed.chmod(0o600)
        made.more = {"CLAWD_MOUNTS": str(allowed)}
        service = f'base_url = "{model.url}"\nallow_private = true\ncredential = "${{file:{self.key}}}"'
        made.configure(
            more=f"[services.anthropic]\n{service}\n[services.openai]\n{service}\n"
            '[engines.claude-code]\ncommand = ["/mnt/claude/claude"]\n[engines.codex]\ncommand = ["/mnt/codex/codex"]\n',
            sandbox="warm_minutes = 60",
        )
        made.start()
        for group, engine, path in (
            ("main", '"claude-code"\nmodel = "standin-1"', claude),
            ("other", '"exec"\nagent = "codex"\nmodel = "standin-1"', codex),
        ):
            made.json("groups", "add", group)
            name = path.name
            made.write(
                f"groups/{group}/group.toml",
                f'schema = 1\ngrants = ["anthropic", "openai"]\n[[mounts]]\nname = "{name}"\npath = "{path.parent}"\n'
                f"[model]\nengine = {engine}\n",
            )


def shown(program: Path, beside: Path) -> Path:
    """The same program where it can be mounted from: nothing of the repository can."""
    to = beside / "programs" / program.name / program.name
    to.parent.mkdir(parents=True)
    try:
        to.hardlink_to(program)
    except OSError:  # another file system
        shutil.copy2(program, to)
    return to


@pytest.fixture(scope="module", params=EACH)
def foreign(request: pytest.FixtureRequest) -> Iterator[Foreign]:
    engine = request.getfixturevalue("engine") if request.param == "docker" else None
    assert engine is None or isinstance(engine, Engine)
    with Standin(key=CANARY, alternate=False) as model, ground(engine=engine) as made:
        yield Foreign(made, model)


def test_claude_code_works_in_a_sandbox(foreign: Foreign) -> None:
    home, model = foreign.home, foreign.model
    home.write("groups/main/CLAUDE.md", "Speak like MARK-ONE.\n", 0o644)
    model.say("looking", calls=[("Bash", {"command": "echo in $(pwd) > /group/work/seen; cat /group/work/seen"})])
    model.say("Done.")
    model.say("Second.")
    said = home.answer("please look", "--group", "main")
    print(said, model.problems)
    print([r.path for r in model.requests])
    assert said["error"] is None, said
    t = time.time()
    said = home.answer("again", "--group", "main")
    print(time.time() - t, said, model.problems)
    for r in model.requests:
        print(json.dumps(r.body["messages"])[:1500] if r.body else r)
    print(home.said() if hasattr(home, "said") else "")
    import subprocess

    print(
        subprocess.run(
            "ps axo pid,args | grep -v grep | grep -c 'mnt/claude/claude -p'",
            shell=True,
            capture_output=True,
            text=True,
        ).stdout
    )
