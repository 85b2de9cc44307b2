"""The Docker Engine that the tests use, and the image in it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Engine:
    """An Engine that answers at `host` (a DOCKER_HOST) and has `image`."""

    host: str
    image: str


def find() -> Engine | str:
    """The Engine, or why there is none."""
    host = os.environ.get("DOCKER_HOST", "")
    if not host:
        return "no Docker Engine answers"
    subprocess.run(["docker", "image", "inspect", "clawd-agent"], check=True, capture_output=True, timeout=60)
    return Engine(host, "clawd-agent")


@pytest.fixture(scope="session")
def engine() -> Engine:
    found = find()
    if isinstance(found, str):
        pytest.skip(found)
    return found
