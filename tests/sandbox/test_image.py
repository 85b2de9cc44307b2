"""The image: what is in it, and how one that fits is told from one that does not."""

from __future__ import annotations

import contextlib
import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from clawd.config.schema import SandboxTable
from clawd.errors import ClawdError
from clawd.sandbox import image
from containers.agent import protocol
from tests.dockerd import client
from tests.engine import CONTAINERS, Engine

RUNNER = image.runner_hash(CONTAINERS / "agent")
FITS = {image.LABEL_RUNNER: RUNNER, image.LABEL_PROTOCOL: str(image.PROTOCOL)}


def test_what_is_said_twice_is_the_same() -> None:
    assert image.PROTOCOL == protocol.SCHEMA
    assert f"\nARG BASE={image.BASE}\nFROM " in (CONTAINERS / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("labels", "state"),
    [
        (None, "missing"),
        ({}, "wrong"),
        (FITS, "fits"),
        (FITS | {image.LABEL_RUNNER: "0" * 64}, "old"),
        (FITS | {image.LABEL_PROTOCOL: "2"}, "wrong"),
        ({image.LABEL_RUNNER: RUNNER}, "wrong"),
    ],
)
def test_the_state_of_an_image(labels: dict[str, str] | None, state: image.State) -> None:
    assert image.state_of(labels, RUNNER) == state
    assert image.advice(state, "clawd-agent").startswith("the image clawd-agent ")


def test_the_hash_changes_with_every_name_and_every_byte(tmp_path: Path) -> None:
    def of(**files: str) -> str:
        root = tmp_path / str(len(list(tmp_path.iterdir()))) / "agent"
        root.mkdir(parents=True)
        for name, text in files.items():
            (root / f"{name}.py").write_text(text)
        return image.runner_hash(root)

    assert of(a="1", b="2") == of(b="2", a="1")
    assert len({of(a="1", b="2"), of(a="1", b="3"), of(a="1", c="2"), of(a="12", b=""), of(a="1")}) == 5


def test_a_list_of_packages_has_an_image_of_its_own() -> None:
    def name(group: str = "main", parent: str = "clawd-agent", *packages: str) -> str:
        return image.image_for(SandboxTable(image=parent, packages=list(packages)), group)

    assert name("main", "mine") == "mine"
    assert name("main", "mine", "jq", "gcc") == name("main", "mine", "gcc", "jq", "gcc")
    others = [
        name("main", "mine", "jq"),
        name("a_B-c", "mine", "jq"),
        name("main", "other", "jq"),
        name("main", "mine"),
    ]
    assert len({*others, name("main", "mine", "jq", "gcc")}) == 5
    assert all(re.fullmatch(r"[a-z-]+(:[A-Za-z0-9_.-]{1,128})?", each) for each in others)
    assert [image.remedy(each) for each in others[:2]] == [f"clawd image build --group {g}" for g in ("main", "a_B-c")]
    assert image.remedy("mine") == image.remedy("registry:5000/mine:1") == "clawd image build"


@pytest.mark.parametrize("name", ["g++", "libc6", "python3.11", "x11-apps", "7zip", "libstdc++6"])
def test_a_package_is_a_line_of_the_build(name: str) -> None:
    packages = SandboxTable(packages=[name]).packages
    assert f"-- {name} && rm" in image.packages_file("sha256:1", packages).decode()


NO_PACKAGES = [
    *("", "a", "jq ", "jq\n", "jq\nRUN x", "jq;id", "$(id)", "`id`", "jq&&id", "jq\\"),
    *("-y", "--", "python3-", "jq=1", "jq/x", "Jq", "j*", "^jq$", "é1"),
]


@pytest.mark.parametrize("name", NO_PACKAGES)
def test_what_is_no_package_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        SandboxTable(packages=[name])


@given(st.lists(st.text(max_size=12), min_size=1, max_size=3))
def test_no_list_of_packages_says_anything_else_to_the_build(packages: list[str]) -> None:
    try:
        taken = SandboxTable(packages=packages).packages
    except ValidationError:
        return
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+]", each) for each in taken)
    assert image.packages_file("base", taken).count(b"\n") == 2


# ── in an Engine ──


@pytest.fixture
def docker(engine: Engine) -> Iterator[Any]:
    with contextlib.closing(client(engine.host)) as docker:
        yield docker


@pytest.fixture
def tag(docker: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"clawd-tests-{request.node.name.replace('_', '')[-40:]}:x"
    yield name
    if image.labels_of(docker, name) is not None:
        docker.images.remove(name, force=True)


def quiet(line: str) -> None:
    assert line


def inside(docker: Any, name: str, script: str) -> str:
    """What a shell in the image says, as the user that agents are."""
    said = docker.containers.run(
        name, ["-c", script], entrypoint="sh", user="64001:64001", network_mode="none", working_dir="/", remove=True
    )
    return str(said.decode())


def test_nothing_in_the_image_is_the_agents_and_nothing_raises_its_rights(docker: Any, engine: Engine) -> None:
    found = inside(docker, engine.image, "find / -xdev \\( -writable -o -perm /6000 \\) ! -type l 2>&- || true")
    assert found.split() == ["/tmp"]  # a tmpfs is mounted over it
    owners = inside(docker, engine.image, "find /opt/clawd -printf '%u %m\\n' | sort -u")
    assert owners.splitlines() == ["root 644", "root 755"]


def test_the_runner_in_the_image_is_ours_and_its_python_is_whole(docker: Any, engine: Engine) -> None:
    script = "import asyncio, http.client, json, ssl, sqlite3, sys; sys.path.insert(0, '/opt/clawd/agent')"
    said = inside(docker, engine.image, f'python3 -I -B -c "{script}; import protocol; print(protocol.SCHEMA)"')
    assert said.split() == [str(protocol.SCHEMA)]
    assert image.state_of(image.labels_of(docker, engine.image), RUNNER) == "fits"


def test_an_image_is_built_again_on_what_it_was_built_on_and_the_same_is_the_same(
    docker: Any, engine: Engine, tag: str
) -> None:
    said: list[str] = []
    first = image.build_agent(docker, CONTAINERS, tag, engine.image, said.append)
    assert any(line.startswith("Step 1/") for line in said)
    assert image.build_agent(docker, CONTAINERS, tag, None, quiet) == first
    assert (image.labels_of(docker, tag) or {})[image.LABEL_FROM] == engine.image


def test_a_base_that_is_nowhere_is_a_sentence_that_says_both_ways(docker: Any, tag: str) -> None:
    with pytest.raises(ClawdError, match=r"localhost:9/none is not here and cannot be pulled.*registry.*base\.sh"):
        image.build_agent(docker, CONTAINERS, tag, "localhost:9/none", quiet)


@pytest.fixture
def bare(docker: Any, tag: str, tmp_path: Path) -> str:
    """An image with nothing in it, which somebody else made."""
    tar = tmp_path / "base.tar"
    with tarfile.open(tar, "w") as out:
        out.addfile(tarfile.TarInfo("etc"), io.BytesIO())
    assert image.import_base(docker, tar, quiet, tag) == tag == image.import_base(docker, tar, quiet, tag)
    return tag


def test_somebody_elses_image_is_not_replaced(docker: Any, bare: str) -> None:
    with pytest.raises(ClawdError, match="did not make"):
        image.build_agent(docker, CONTAINERS, bare, None, quiet)


def test_an_image_that_somebody_built_on_ours_is_not_replaced(docker: Any, engine: Engine, tag: str) -> None:
    ours = f"{tag}-ours"
    try:
        image.build_agent(docker, CONTAINERS, ours, engine.image, quiet)
        docker.images.build(fileobj=io.BytesIO(f"FROM {ours}\nENV MINE=1\n".encode()), tag=tag, rm=True)
        assert image.state_of(image.labels_of(docker, tag), RUNNER) == "fits"
        with pytest.raises(ClawdError, match="did not make"):
            image.build_agent(docker, CONTAINERS, tag, None, quiet)
        image.build_agent(docker, CONTAINERS, ours, tag, quiet)  # but it is built upon
        assert "MINE=1" in docker.images.get(ours).attrs["Config"]["Env"]
    finally:
        docker.images.remove(ours)


def test_a_build_that_fails_says_why_and_leaves_no_container(docker: Any, bare: str) -> None:
    with pytest.raises(ClawdError, match=r"clawd-none:x could not be built: .*/bin/sh"):
        image.build_agent(docker, CONTAINERS, "clawd-none:x", bare, quiet)
    assert docker.containers.list(all=True, filters={"ancestor": bare}) == []


def test_packages_are_installed_on_top_and_the_runner_stays(docker: Any, engine: Engine, tag: str) -> None:
    """With an apt-get that writes down what it is asked: a real one needs the network."""
    fake = "printf '#!/bin/sh\\necho \"$@\" >> /asked; touch /su; chmod 4777 /su\\n' > /usr/bin/apt-get"
    dockerfile = f"FROM {engine.image}\nRUN {fake}\n".encode()
    parent = f"{tag}-parent"
    docker.images.build(fileobj=io.BytesIO(dockerfile), tag=parent, network_mode="host", rm=True)
    try:
        image.build_packages(docker, parent, tag, ["jq", "g++", "jq"], quiet)
        asked = inside(docker, tag, "cat /asked; stat -c %a /su").splitlines()
        assert asked[0].startswith("update") and asked[1].endswith(" --no-install-recommends -- g++ jq")
        assert asked[2] == "775"
        assert image.state_of(image.labels_of(docker, tag), RUNNER) == "fits"
    finally:
        docker.images.remove(parent)
