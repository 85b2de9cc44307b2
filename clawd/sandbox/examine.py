"""What `clawd doctor` says about the Docker Engine, its images and the containers of this install. What was read is
judged by pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawd.sandbox import image
from clawd.sandbox.engine import Engine
from clawd.sandbox.hardening import LABEL_INSTALL, LABEL_RUN
from clawd.sandbox.probe import Check

if TYPE_CHECKING:
    import docker

_SECONDS = 3.0  # for each answer of the Engine: who asks the doctor waits for it
_LIMITS = {"MemoryLimit": "memory", "SwapLimit": "swap", "PidsLimit": "processes", "CpuCfsQuota": "CPU"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the Engine answered: its version and info, the labels of each image (None for one that it does not have),
    and the containers of this install by the name of their run."""

    version: Mapping[str, Any]
    info: Mapping[str, Any]
    images: Mapping[str, Mapping[str, str] | None]
    containers: Mapping[str, str]


def look(engine: Engine, images: Iterable[str], install: str) -> Seen:
    """Ask the Engine. Raises SandboxUnavailable."""

    def ask(client: docker.DockerClient) -> Seen:
        labels = {name: image.labels_of(client, name) for name in images}
        ours = client.api.containers(all=True, filters={"label": f"{LABEL_INSTALL}={install}"})
        containers = {(each.get("Labels") or {}).get(LABEL_RUN, ""): each["Id"][:12] for each in ours}
        return Seen(client.version(), client.info(), labels, containers)

    return engine.run(ask, _SECONDS)


def judge(
    seen: Seen, where: str, agent: Path, groups: Mapping[str, str], alive: set[str], *, chosen: bool
) -> Iterator[Check]:
    """The lines about what was seen. `chosen`: no other backend would take the place of this one. `alive` are the runs
    that the ledger has not seen end, `groups` names the group of an image that is one group's own."""
    version, info = seen.version, seen.info
    options = [str(each) for each in info.get("SecurityOptions") or ()]
    rootless = ", rootless" if any(each.startswith("name=rootless") for each in options) else ""
    yield Check("engine", "ok", f"Docker Engine {version.get('Version')}{rootless} at {where}")
    if any(each.startswith("name=userns") for each in options):
        message = "the Engine maps users (userns-remap): files in work/ belong to mapped users, which clawd cannot know"
        yield Check("engine", "warn", message, "remove userns-remap from /etc/docker/daemon.json")
    seccomp = [each for each in options if each.startswith("name=seccomp")]
    if not seccomp or "unconfined" in seccomp[0]:
        message = "the Engine filters no system calls of containers"
        yield Check("seccomp", "error", message, "remove seccomp-profile from /etc/docker/daemon.json")
    else:
        yield Check("seccomp", "ok", "the Engine filters the system calls of containers")
    if unheld := [name for key, name in _LIMITS.items() if info.get(key) is False]:
        message = f"the Engine cannot limit {', '.join(unheld)} of a container"
        command = "add cgroup_enable=memory swapaccount=1 to the kernel's command line"
        yield Check("limits", "warn", message, command)
    else:
        message = f"cgroups (v{info.get('CgroupVersion', '1')}) hold each container's memory, processes and CPU"
        yield Check("limits", "ok", message)
    runner = image.runner_hash(agent)
    for name, labels in seen.images.items():
        state = image.state_of(labels, runner)
        told = image.advice(state, name)
        build = f"clawd image build{f' --group {groups[name]}' if groups.get(name) else ''}"
        if state == "missing":
            told += ": no container can be started" if chosen else ": bubblewrap makes the sandboxes"
        if state == "fits":
            yield Check("image", "ok", told)
        else:
            grave = state == "wrong" or (state == "missing" and chosen)
            yield Check("image", "error" if grave else "warn", told, build)
    for run, container in seen.containers.items():
        if run not in alive:
            message = f"container {container} is of this home, and of no run that it knows"
            yield Check("remains", "warn", message, f"docker rm -f {container}")
