"""Which backend makes this home's sandboxes. Whichever made a run takes it over, or ends what is left of it."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Literal

from clawd.errors import SandboxUnavailable
from clawd.sandbox.bubblewrap import Bubblewrap
from clawd.sandbox.docker import Docker
from clawd.sandbox.engine import NoImage, find_engine
from clawd.sandbox.protocol import Backend, BackendName, LeftOver, RunSpec, Sandbox

log = logging.getLogger(__name__)


def install_id(home: Path) -> str:
    """What tells this home's sandboxes from another's on the same machine: the same for one path for ever."""
    return hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]


def choose_backend(
    wanted: Literal["auto", "docker", "bubblewrap"],
    home: Path,
    docker_host: str | None = None,
    tell: Callable[[str], object] = log.warning,
) -> Backend:
    """The backend that `sandbox.backend` means. Nothing is looked at yet. `tell` hears what a person should mend."""
    install = install_id(home)
    docker = Docker(install, lambda: find_engine(docker_host, os.environ), tell=tell)
    return Chosen(wanted, docker, Bubblewrap(install))


class Chosen:
    """See `protocol.Backend`. An explicit `wanted` never falls back to another; `auto` decides for each image when it
    is first asked for: Docker when its Engine answers and has the image, else bubblewrap."""

    def __init__(self, wanted: Literal["auto", "docker", "bubblewrap"], docker: Docker, bubblewrap: Bubblewrap) -> None:
        self._wanted, self._docker, self._bubblewrap = wanted, docker, bubblewrap
        self._decided: dict[str, BackendName] = {}

    async def check(self, image: str = "") -> BackendName:
        return await (await self._for(image)).check(image)

    async def start(self, spec: RunSpec) -> Sandbox:
        return await (await self._for(spec.image)).start(spec)

    async def adopt(self, left: LeftOver, spec: RunSpec) -> Sandbox | None:
        if self._wanted not in ("auto", left.backend):  # the config has changed since
            return None
        return await self._named(left.backend).adopt(left, spec)

    async def sweep(self, left: Iterable[LeftOver], ours: Collection[str] = ()) -> list[str]:
        left = list(left)
        by_docker = [one for one in left if one.backend == "docker"]
        by_bubblewrap = [one for one in left if one.backend != "docker"]
        dead = await self._bubblewrap.sweep(by_bubblewrap, ours)
        if by_docker or self._may_hold_containers():
            dead += await self._docker.sweep(by_docker, ours)
        return [one.run for one in left if one.run in dead]

    def _named(self, name: BackendName) -> Backend:
        return self._docker if name == "docker" else self._bubblewrap

    def _may_hold_containers(self) -> bool:
        """Whether there may be containers that no run of the ledger claims: a look, no call."""
        try:
            return self._wanted != "bubblewrap" and self._docker.engine.present()
        except SandboxUnavailable:
            return False

    async def _for(self, image: str) -> Backend:
        if self._wanted != "auto":
            return self._named(self._wanted)
        if image not in self._decided:
            self._decided[image] = "docker" if await self._fits(image) else "bubblewrap"
        return self._named(self._decided[image])

    async def _fits(self, image: str) -> bool:
        try:
            if self._docker.engine.present():
                await self._docker.check(image)
                return True
        except NoImage as error:
            log.warning("agents run under bubblewrap, until a restart: %s", error)
        except SandboxUnavailable as error:
            log.info("agents run under bubblewrap, until a restart: %s", error)
        return False
