"""The Docker Engine of this machine: where its socket is, and calls to it that end in a sentence when they fail.

The SDK is imported with the first call. Each call has a client, and so sockets, of its own, in a worker thread: the
SDK's sessions are not for several threads, and what an Engine that was restarted left in a pool is never met.
"""

from __future__ import annotations

import errno
import hashlib
import json
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread

from clawd.errors import SandboxUnavailable

if TYPE_CHECKING:
    import docker

T = TypeVar("T")

DEFAULT = Path("/var/run/docker.sock")
SECONDS = 30.0  # without a byte from the Engine
CALLS = 8  # at one time


class NotThere(SandboxUnavailable):
    """No Engine answers: it may come back by itself."""


class NoImage(SandboxUnavailable):
    """The Engine does not have the image, or not one that fits."""


class Engine:
    """The Engine behind a unix socket. `host` is what DOCKER_HOST would be."""

    def __init__(self, socket: Path) -> None:
        self.socket, self.host = socket, f"unix://{socket}"
        self._version = ""  # of the API, as it was agreed on
        self._limiter: anyio.CapacityLimiter | None = None

    def present(self) -> bool:
        """Whether there is a socket at all: a look, no call."""
        try:
            return stat.S_ISSOCK(self.socket.stat().st_mode)
        except OSError as error:
            return isinstance(error, PermissionError)

    async def call(self, work: Callable[[docker.DockerClient], T], seconds: float = SECONDS) -> T:
        """`run` in a worker thread, of which there are at most `CALLS`. Cancelled, it returns at once, and the call
        goes on to its end."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(CALLS)
        return await anyio.to_thread.run_sync(self.run, work, seconds, abandon_on_cancel=True, limiter=self._limiter)

    def run(self, work: Callable[[docker.DockerClient], T], seconds: float = SECONDS) -> T:
        """What `work` gives for a client that waits `seconds` for each answer. Raises SandboxUnavailable for whatever
        the Engine, the SDK or the system says against it, NotThere and NoImage among them."""
        import docker
        import docker.errors
        import urllib3

        try:
            client = docker.DockerClient(self.host, self._version or "auto", seconds)
            try:
                client.api.trust_env = False  # no proxy and no .netrc for a socket
                client.api.headers["Connection"] = "close"  # the SDK keeps a pool for every address
                self._version = client.api._version
                return work(client)
            finally:
                client.close()
        except (docker.errors.DockerException, urllib3.exceptions.HTTPError, OSError) as error:
            self._version = ""
            raise self._told(error) from error

    def _told(self, error: BaseException) -> SandboxUnavailable:
        """The sentence for a failure of a call."""
        import docker.errors

        if isinstance(error, docker.errors.ImageNotFound):
            return NoImage("the image for sandboxes is not there", hint="clawd image build")
        if isinstance(error, docker.errors.APIError):
            told = " ".join(str(error.explanation or error.response.reason).split())[:300]
            if "no space left" in told:
                return SandboxUnavailable("the Docker Engine has no space left", hint="docker system df")
            return SandboxUnavailable(f"the Docker Engine refused: {told}")
        numbers = {cause.errno for cause in _causes(error) if isinstance(cause, OSError)}
        if errno.EACCES in numbers or errno.EPERM in numbers:
            return SandboxUnavailable(
                f"this user may not use the Docker Engine at {self.socket}",
                hint="sudo usermod -aG docker $USER, then log in again",
            )
        if errno.ENOSPC in numbers:
            return SandboxUnavailable("no space is left on the disk", hint="df -h")
        if numbers & {errno.ENOENT, errno.ENOTDIR, errno.ECONNREFUSED}:
            return NotThere(f"no Docker Engine is at {self.socket}", hint="sudo systemctl start docker")
        if any(isinstance(cause, TimeoutError) or "timed out" in str(cause) for cause in _causes(error)):
            return NotThere(f"the Docker Engine at {self.socket} does not answer", hint="sudo systemctl restart docker")
        if not isinstance(error, docker.errors.DockerException) or numbers:
            return NotThere(f"the Docker Engine at {self.socket} went away in the middle of a call")
        return SandboxUnavailable(f"the Docker Engine cannot be used: {' '.join(str(error).split())[:300]}")


def find_engine(configured: str | None, environment: Mapping[str, str]) -> Engine:
    """The Engine that a person means: `sandbox.docker_host`, DOCKER_HOST, the docker context, the system's socket, a
    rootless one. Looks at files only; whether it answers, a call tells. Raises SandboxUnavailable for one of another
    machine."""
    home = Path(environment.get("HOME") or "/")
    if host := configured or environment.get("DOCKER_HOST") or _of_context(home, environment):
        return Engine(_local(host))
    places = [DEFAULT, home / ".docker" / "run" / "docker.sock"]
    if runtime := environment.get("XDG_RUNTIME_DIR"):
        places.insert(1, Path(runtime) / "docker.sock")
    engines = [Engine(place) for place in places]
    return next((engine for engine in engines if engine.present()), engines[0])


def _local(host: str) -> Path:
    """The socket that a DOCKER_HOST names."""
    path = host.removeprefix("unix://")
    if "://" in path or not path.strip("/"):
        raise SandboxUnavailable(
            f"the Docker Engine at {host} is no unix socket of this machine, so its mounts would be another machine's",
            hint="set docker_host in [sandbox] of config.toml to a unix:// socket, or unset DOCKER_HOST",
        )
    return Path("/" + path.lstrip("/"))


def _of_context(home: Path, environment: Mapping[str, str]) -> str | None:
    """The host of docker's current context; None for its default. Read from docker's own files, as its command does
    (the SDK's reader knows no DOCKER_CONTEXT, and takes a broken file for none)."""
    directory = Path(environment.get("DOCKER_CONFIG") or home / ".docker")
    name = environment.get("DOCKER_CONTEXT") or ""
    if not name:
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            name = str(_object(directory / "config.json").get("currentContext") or "")
    if name in ("", "default"):
        return None
    meta = directory / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
    try:
        return str(_object(meta)["Endpoints"]["docker"]["Host"])
    except (OSError, KeyError, TypeError):
        raise SandboxUnavailable(
            f"the docker context {name} says nothing of an Engine", hint="docker context ls"
        ) from None


def _object(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SandboxUnavailable(f"{file} cannot be read as JSON", hint=f"mend it: {file}")
    return found


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and everything that led to it: urllib3 and requests keep it in their arguments."""
    waiting, seen = [error], set[int]()
    while waiting:
        cause = waiting.pop()
        if id(cause) not in seen:
            seen.add(id(cause))
            yield cause
            also = (cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args)
            waiting += [one for one in also if isinstance(one, BaseException)]
