"""`clawd image build`, and what a home says of an image that is not as it must be."""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import Iterator
from typing import Any

import pytest

from clawd.sandbox.image import LABEL_NAME
from tests.dockerd import client
from tests.engine import Engine
from tests.system.conftest import Home, homes

TAG = "clawd-tests-cli"


def own(home: Home) -> str:
    """What no other home's images are called."""
    return home.root.parent.name.lower().replace("_", "0")


def created(image: Any) -> str:
    return str(image.attrs["Created"])


@pytest.fixture
def home(engine: Engine) -> Iterator[Home]:
    """A home whose image is not built, and the image's end."""
    with contextlib.closing(client(engine.host)) as docker:
        with homes(engine) as make:
            home = make()
            text = home.layout.config_file.read_text()
            home.layout.config_file.write_text(text.replace(engine.image, f"{TAG}:{own(home)}"))
            yield home
        named = {"dangling": True, "label": LABEL_NAME}  # a stage of a build has no tag, and its parent's labels
        stages = [each for each in docker.images.list(filters=named) if own(home) in each.labels[LABEL_NAME]]
        for image in sorted([*stages, *docker.images.list(TAG)], key=created, reverse=True):  # the youngest first
            for name in image.tags or [image.id]:  # others may have built the same
                if not image.tags or own(home) in name:
                    docker.images.remove(name, force=True)


def test_a_message_waits_for_its_image_and_is_answered_once_it_is_built(home: Home, engine: Engine) -> None:
    home.start()
    done = home.cli("chat", "-m", "say hi")
    assert done.returncode == 1 and "clawd image build" in done.stdout + done.stderr
    built = home.cli("image", "build", "--base", engine.image)
    assert built.returncode == 0 and "Step 1/" in built.stderr and built.stdout == "", built.stderr
    home.settled(1)
    assert home.said() == [("user", "say hi"), ("assistant", "hi")]
    again = home.json("image", "build")
    assert again["image"].startswith(TAG) and again["id"].startswith("sha256:")


def test_the_image_that_a_group_names_is_built_with_the_home_s(home: Home, engine: Engine) -> None:
    home.json("groups", "add", "dev")
    home.json("groups", "set", "dev", "sandbox.image", dev := f"{TAG}:dev-{own(home)}")
    held = home.cli("chat", "-m", "say hi", "--group", "dev")
    assert f"{dev} is not built (clawd image build)" in held.stderr
    built = home.cli("image", "build", "--base", engine.image)
    assert built.returncode == 0 and f"building {dev} …" in built.stderr, built.stderr
    assert home.json("chat", "-m", "say hi", "--group", "dev")["reply"] == "hi"


NPM = """#!/bin/sh
echo "$@" >/asked
mkdir package
printf '#!/bin/sh\\necho the CLI of the test\\n' >package/claude
tar czf cli.tgz package
"""


def test_the_image_with_claude_code_has_what_npm_gave(home: Home, engine: Engine) -> None:
    """npm is a stand-in that the base has, so that no registry is asked."""
    base = f"{TAG}:base-{own(home)}"
    encoded = base64.b64encode(NPM.encode()).decode()
    npm = "/usr/local/bin/npm"
    dockerfile = f"FROM {engine.image}\nRUN echo {encoded} | base64 -d >{npm} && chmod 755 {npm}\n"
    with contextlib.closing(client(engine.host)) as docker:
        docker.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=base, rm=True)
    built = home.cli("image", "build", "--target", "claude-code", "--base", base)
    assert built.returncode == 0 and "adding Claude Code to" in built.stderr, built.stderr
    home.start()
    said = home.json("chat", "-m", "sh:claude; ls /asked")["reply"]
    assert "the CLI of the test" in said and "No such file" in said  # npm's own stage stays behind


def test_packages_are_shown_and_not_installed_without_a_yes(home: Home) -> None:
    home.json("groups", "add", "dev")
    home.json("groups", "set", "dev", "sandbox.packages", '["tree", "jq"]')
    for said in ("", "n\n", "nonsense\n"):
        done = home.cli("image", "build", "--group", "dev", text=said)
        assert done.returncode == 2 and "  jq\n  tree\n" in done.stderr, done.stderr
    done = home.cli("chat", "-m", "say hi", "--group", "dev")
    assert "clawd image build --group dev" in done.stdout + done.stderr
    refused = home.cli("groups", "set", "dev", "sandbox.packages", '["jq; id"]')
    assert refused.returncode == 4 and "sandbox.packages" in refused.stderr


def test_what_cannot_be_built_is_a_sentence(home: Home) -> None:
    assert home.cli("image", "build", "--group", "nobody").returncode == 5
    remote = home.cli("image", "build", DOCKER_HOST="tcp://127.0.0.1:9")
    assert remote.returncode == 1 and "another machine" in remote.stderr
    absent = home.cli("image", "build", DOCKER_HOST=f"unix://{home.root}/none")
    assert absent.returncode == 1 and "no Docker Engine" in absent.stderr
    nowhere = home.cli("image", "build", "--base", "localhost:9/none")
    assert nowhere.returncode == 1 and "base.sh" in nowhere.stderr and "registry" in nowhere.stderr
