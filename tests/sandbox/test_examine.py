"""What the doctor says of an Engine: by table, of one that is real, and of none."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.health import doctor
from clawd.resources import shipped
from clawd.sandbox import examine
from clawd.sandbox.engine import find_engine
from clawd.sandbox.examine import Seen
from clawd.sandbox.hardening import LABEL_INSTALL, LABEL_RUN
from clawd.sandbox.image import LABEL_PROTOCOL, LABEL_RUNNER, PROTOCOL, runner_hash
from tests.engine import Engine

AGENT = shipped("containers/agent")
FITS = {LABEL_RUNNER: runner_hash(AGENT), LABEL_PROTOCOL: str(PROTOCOL)}
WELL = Seen(
    {"Version": "20.10"},
    {
        "SecurityOptions": ["name=seccomp,profile=default"],
        "CgroupVersion": "1",
        **dict.fromkeys(("MemoryLimit", "SwapLimit", "PidsLimit", "CpuCfsQuota"), True),
    },
    {"agent": FITS},
    {"r1": "c1"},
)


def info(**changes: Any) -> Seen:
    return replace(WELL, info={**WELL.info, **changes})


@pytest.mark.parametrize(
    ("seen", "chosen", "check", "level", "words"),
    [
        (info(SecurityOptions=[]), True, "seccomp", "error", "filters no system calls"),
        (
            info(SecurityOptions=["name=seccomp,profile=unconfined"]),
            True,
            "seccomp",
            "error",
            "filters no system calls",
        ),
        (info(SecurityOptions=["name=seccomp,profile=default", "name=userns"]), True, "engine", "warn", "userns-remap"),
        (info(SwapLimit=False, PidsLimit=False), True, "limits", "warn", "cannot limit swap, processes"),
        (replace(WELL, images={"agent": None}), True, "image", "error", "no container can be started"),
        (replace(WELL, images={"agent": None}), False, "image", "warn", "bubblewrap makes the sandboxes"),
        (replace(WELL, images={"agent": {}}), False, "image", "error", "no runner that"),
        (replace(WELL, images={"agent": {**FITS, LABEL_RUNNER: "0"}}), True, "image", "warn", "another version"),
        (replace(WELL, containers={"r2": "c2"}), True, "remains", "warn", "container c2"),
    ],
)
def test_each_thing_that_is_not_well_is_a_line_with_what_mends_it(
    seen: Seen, chosen: bool, check: str, level: str, words: str
) -> None:
    lines = list(examine.judge(seen, "unix:///s", AGENT, {"agent": ""}, {"r1"}, chosen=chosen))
    [found] = [each for each in lines if each.level != "ok"]
    assert (found.check, found.level) == (check, level) and words in found.message and found.command


def test_all_well_and_rootless_is_said_so() -> None:
    seen = info(SecurityOptions=["name=seccomp,profile=default", "name=rootless"])
    lines = list(examine.judge(seen, "unix:///s", AGENT, {"agent": ""}, {"r1"}, chosen=True))
    assert {each.level for each in lines} == {"ok"} and "rootless" in lines[0].message
    assert [each.check for each in lines] == ["engine", "seccomp", "limits", "image"]


def test_a_group_s_own_image_is_built_for_the_group() -> None:
    seen = replace(WELL, images={"own": None})
    lines = examine.judge(seen, "unix:///s", AGENT, {"own": "kids"}, {"r1"}, chosen=True)
    assert [each.command for each in lines if each.check == "image"] == ["clawd image build --group kids"]


def test_a_real_engine_is_looked_at(engine: Engine) -> None:
    found, install, run = find_engine(engine.host, {}), uuid.uuid4().hex[:12], "r9"
    labels = {LABEL_INSTALL: install, LABEL_RUN: run}
    made = found.run(lambda client: client.containers.create(engine.image, "true", labels=labels).id)
    try:
        seen = examine.look(found, [engine.image, "clawd-there-is-none"], install)
    finally:
        found.run(lambda client: client.api.remove_container(made))
    assert seen.containers == {run: made[:12]}
    assert seen.images["clawd-there-is-none"] is None and seen.images[engine.image] is not None
    lines = list(examine.judge(seen, found.host, AGENT, dict.fromkeys(seen.images, ""), set(), chosen=True))
    assert {"engine": "ok", "seccomp": "ok", "remains": "warn"}.items() <= {it.check: it.level for it in lines}.items()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    init_home(made)
    return made


@pytest.mark.parametrize(
    ("backend", "host", "level", "words"),
    [
        ("docker", "tcp://10.0.0.1:2375", "error", "another machine's"),
        ("auto", "tcp://10.0.0.1:2375", "warn", "another machine's"),
        ("docker", "unix:///nowhere/docker.sock", "error", "no Docker Engine is at"),
        ("auto", "unix:///nowhere/docker.sock", "ok", "bubblewrap makes the sandboxes"),
        ("bubblewrap", "tcp://10.0.0.1:2375", None, ""),
    ],
)
def test_an_engine_that_does_not_answer_is_told_where_it_is_wanted(
    home: Home, monkeypatch: pytest.MonkeyPatch, backend: str, host: str, level: str | None, words: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    home.config_file.write_text(f'schema = 1\n[claw]\n[sandbox]\nbackend = "{backend}"\n')
    lines = [each for each in doctor(home) if each["check"] == "engine"]
    assert [each["level"] for each in lines] == ([level] if level else [])
    assert all(words in each["message"] for each in lines)
    assert bool([each for each in doctor(home) if each["check"] == "bubblewrap"]) == (backend != "docker")


def test_the_doctor_asks_a_real_engine(home: Home, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine.host)
    home.config_file.write_text(f'schema = 1\n[claw]\n[sandbox]\nbackend = "docker"\nimage = "{engine.image}"\n')
    found = {each["check"]: each for each in doctor(home)}
    assert found["engine"]["level"] == "ok" and engine.host in found["engine"]["message"]
    assert engine.image in found["image"]["message"] and "bubblewrap" not in found
