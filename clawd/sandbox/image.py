"""The image that containers are made from: what is in it, how it is built, and whether one that is there fits.

The runner's files are copied in; nothing is installed for them. Labels say which they are: a hash of them all, and the
version of the run's protocol that they speak. A group's own packages are a layer on top, in an image of its own.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clawd.config.engines import CLAUDE_CODE
from clawd.errors import ClawdError
from clawd.resources import shipped

if TYPE_CHECKING:
    from clawd.config.schema import SandboxTable

LABEL_RUNNER = "clawd.runner"
LABEL_PROTOCOL = "clawd.protocol"
LABEL_FROM = "clawd.from"
LABEL_NAME = "clawd.name"  # what clawd built it as: an image that somebody built on top has it too, and another name
PROTOCOL = 1
BASE = "python:3.12-slim-bookworm"
BASES = "clawd-base"  # the repository of imported bases
PACKAGES = "clawd-packages"  # the repository of the images with packages
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")  # build arguments that every Engine knows and no image keeps

State = Literal["fits", "old", "wrong", "missing"]
Say = Callable[[str], None]


def runner_hash(agent: Path) -> str:
    """What tells these files of the runner (`containers/agent`), and the Dockerfile beside them, from any others:
    sha256, 64 hex digits."""
    digest = hashlib.sha256()
    for file in (*_files(agent), *agent.parent.glob("Dockerfile")):
        data = file.read_bytes()
        digest.update(f"{file.relative_to(agent.parent)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


@cache
def shipped_runner() -> str:
    """The hash of the runner that came with this program, as it was when it was first asked for."""
    return runner_hash(shipped("containers/agent"))


def _files(agent: Path) -> list[Path]:
    return sorted(path for path in agent.rglob("*") if path.suffix in (".py", ".json"))


def state_of(labels: Mapping[str, str] | None, runner: str) -> State:
    """What an image with these labels (None: there is no image) is to a daemon whose runner has this hash: one that
    fits, one of another runner that can still be spoken with, one that cannot."""
    if labels is None:
        return "missing"
    if labels.get(LABEL_PROTOCOL) != str(PROTOCOL):
        return "wrong"
    return "fits" if labels.get(LABEL_RUNNER) == runner else "old"


def image_for(table: SandboxTable, group: str) -> str:
    """The name of the image that a group's containers are made from: `[sandbox] image`, and with packages one that is
    named after them, so that another list is another image."""
    if not table.packages:
        return table.image
    wanted = "\0".join([table.image, *sorted(set(table.packages))])
    return f"{PACKAGES}:{group}-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"


def advice(state: State, image: str) -> str:
    """What a person is told of an image in this state."""
    what = {
        "fits": "is as it should be",
        "old": "holds the runner of another version of clawd",
        "wrong": "holds no runner that this clawd can speak with",
        "missing": "is not built",
    }[state]
    return f"the image {image} {what}"


def remedy(image: str) -> str:
    """The command that builds an image."""
    repository, _, tag = image.partition(":")
    if repository == CLAUDE_CODE:
        return "clawd image build --target claude-code"
    return "clawd image build" + (f" --group {tag.rpartition('-')[0]}" if repository == PACKAGES else "")


# ── building: `client` is a docker.DockerClient, `say` is told of the progress in lines ──


def labels_of(client: Any, image: str) -> dict[str, str] | None:
    """The labels of an image, None when it is not there."""
    from docker.errors import ImageNotFound

    try:
        return dict(client.images.get(image).labels)
    except ImageNotFound:
        return None


def build_agent(client: Any, containers: Path, tag: str, base: str | None, say: Say) -> str:
    """Build `tag` from a base image (or its tar, as `base.sh` makes it), by default the one of last time. Gives its id.

    Raises ClawdError when the base cannot be had or the build fails, and for a `tag` that is somebody's own image.
    """
    labels = _ours(client, tag)
    base = base or (labels or {}).get(LABEL_FROM) or BASE
    if Path(base).is_file():
        base = import_base(client, Path(base), say)
    elif labels_of(client, base) is None:
        _pull(client, base, containers, say)
    arguments = {"BASE": base, "RUNNER": runner_hash(containers / "agent"), "PROTOCOL": str(PROTOCOL)}
    dockerfile = (containers / "Dockerfile").read_bytes()
    return _build(client, tag, dockerfile, arguments, say, _files(containers / "agent"), containers)


def build_claude_code(client: Any, containers: Path, parent: str, tag: str, say: Say) -> str:
    """Build `tag`: an agent's image and the Claude Code CLI. Gives its id. Raises ClawdError."""
    _ours(client, tag)
    registry = {name: os.environ[name] for name in ("NPM_CONFIG_REGISTRY",) if os.environ.get(name)}
    dockerfile = (containers / "Dockerfile.claude-code").read_bytes()
    return _build(client, tag, dockerfile, {"PARENT": parent} | registry, say)


def build_packages(client: Any, parent: str, tag: str, packages: Iterable[str], say: Say) -> str:
    """Build `tag`: `parent` and these Debian packages. Gives its id. Raises ClawdError."""
    return _build(client, tag, packages_file(parent, packages), {}, say)


def packages_file(parent: str, packages: Iterable[str]) -> bytes:
    """The Dockerfile of an image with packages, whose names `[sandbox] packages` has checked: no pattern, no sign of
    apt-get's own, nothing that a shell reads."""
    return f"""FROM {parent}
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -o APT::Cmd::Pattern-Only=true install -qy \
--no-install-recommends -- {" ".join(sorted(set(packages)))} && rm -rf /var/lib/apt/lists/* /var/cache/apt/* && \
find / -xdev ! -type l ! -path /tmp -perm /6002 -exec chmod a-s,o-w {{}} +
""".encode()


def import_base(client: Any, tar: Path, say: Say, name: str = "") -> str:
    """Make an image of a file system's tar; gives its name, by default one that is the same for the same tar."""
    if not name:
        with tar.open("rb") as stream:
            name = f"{BASES}:{hashlib.file_digest(stream, 'sha256').hexdigest()[:12]}"
    if labels_of(client, name) is None:
        say(f"importing {tar} as {name} …")
        repository, _, tag = name.partition(":")
        answer = client.api.import_image_from_file(str(tar), repository, tag)
        if '"error"' in answer:
            raise ClawdError(f"{tar} could not be imported: {answer.strip()[-300:]}")
    return name


def _ours(client: Any, tag: str) -> dict[str, str] | None:
    """The labels of an image that may be replaced, None when there is none. Raises ClawdError for somebody's own."""
    labels, name = labels_of(client, tag), tag.removesuffix(":latest")
    if labels is not None and (LABEL_RUNNER not in labels or labels.get(LABEL_NAME, name) != name):
        raise ClawdError(
            f"{tag} is an image that clawd did not make, and would be replaced",
            hint=f"name another in [sandbox] image, then: clawd image build --base {tag}",
        )
    return labels


def _pull(client: Any, base: str, containers: Path, say: Say) -> None:
    from docker.errors import APIError

    say(f"pulling {base} …")
    try:
        for news in client.api.pull(base, stream=True, decode=True):
            if "error" in news:
                raise ClawdError(str(news["error"]))
            if "complete" in str(news.get("status")).lower():
                say(f"{news.get('id', '')} {news['status']}".strip())
    except (APIError, ClawdError) as error:
        why = str(getattr(error, "explanation", None) or error)
        raise ClawdError(
            f"the base image {base} is not here and cannot be pulled: {why.strip()[:300]}",
            hint="let the Engine reach a registry, or make a base without one, as root:"
            f" sh {containers / 'base.sh'} > base.tar && clawd image build --base base.tar",
        ) from error


def _build(
    client: Any,
    tag: str,
    dockerfile: bytes,
    arguments: dict[str, str],
    say: Say,
    files: Iterable[Path] = (),
    root: Path = Path(),
) -> str:
    """One build by the classic builder, which every Engine has, on the host's network: no other need be there."""
    from docker.errors import APIError

    proxies = {name: os.environ[name] for each in _PROXIES for name in (each, each.upper()) if os.environ.get(name)}
    said: list[str] = []
    try:
        stream = client.api.build(
            fileobj=_context(dockerfile, files, root),
            custom_context=True,
            tag=tag,
            rm=True,
            forcerm=True,
            network_mode="host",
            buildargs=arguments | proxies,
            labels={LABEL_NAME: tag.removesuffix(":latest")},
            decode=True,
        )
        for line in _lines(stream):
            said.append(line)
            say(line)
    except APIError as error:
        raise ClawdError(f"{tag} could not be built: {error.explanation or error}") from error
    except ClawdError as error:
        raise ClawdError(f"{tag} could not be built: {error}", hint="; ".join(said[-3:])) from error
    return str(client.images.get(tag).id)


def _lines(stream: Iterable[dict[str, Any]]) -> Iterator[str]:
    for news in stream:
        if "error" in news:
            raise ClawdError(str(news["error"]).strip())
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(news.get("stream") or ""))
        yield from filter(None, (line.strip() for line in plain.splitlines()))


def _context(dockerfile: bytes, files: Iterable[Path], root: Path) -> io.BytesIO:
    """The build's context: the same bytes for the same files, whoever's and whenever they are."""
    out = io.BytesIO()
    import tarfile

    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in (("Dockerfile", dockerfile), *((str(f.relative_to(root)), f.read_bytes()) for f in files)):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    out.seek(0)
    return out
