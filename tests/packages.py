"""Packages of Debian that tests need and this machine has not: installed by root, one run of apt at a time, however
many tests and fetches want some at once."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess

from tests.dockerd import CACHE, Say, Unavailable

LOCK = CACHE.with_name("apt.lock")


def install(packages: list[str], say: Say) -> None:
    """Install them. Raises Unavailable with why they cannot be."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise Unavailable(f"{', '.join(packages)} is not installed, and only root on Debian can install it here")
    say(f"installing {', '.join(packages)} …")
    # RUNLEVEL: without systemd, a package's script starts no service of the machine's
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        for command in (["update", "-q"], ["install", "-qy", "--no-install-recommends", *packages]):
            done = subprocess.run(
                ["apt-get", *command], env=environment, text=True, capture_output=True, timeout=600, check=False
            )
            if done.returncode:
                raise Unavailable(f"apt-get {command[0]} failed: {done.stderr.strip()[-300:]}")
