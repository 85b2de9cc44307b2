"""The mount allowlist: which directories of the host a group may be given, `~/.config/clawd/mounts.toml`.

It lies outside every home, where no agent can reach it. A file that is not surely the owner's own allows nothing: it is
read anew each time, and no earlier reading of it is ever used.
"""

from __future__ import annotations

import os
import pwd
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from clawd.config.load import parse
from clawd.config.schema import Mode
from clawd.config.values import Table, written
from clawd.errors import ConfigError, NotFound

_LIMIT = 1 << 20  # bytes
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Root(Table):
    path: str
    """A directory that groups may ask for, with all that lies in it; a single file only by its own path."""
    mode: Mode
    """Read-only, or writable for a group that asks for it."""
    trust: Literal["owner", "document"] = "document"
    """`owner`: what stands there is the owner's own word; else it taints the turns that can read it."""
    why: Annotated[str, written(r"(?s).*\S.*", "say in a sentence what it is allowed for")]
    """What it is allowed for, in a sentence."""


class Allowlist(Table):
    """`mounts.toml`, whose `schema = 1` must be there."""

    roots: tuple[Root, ...] = ()
    """What may be shown to groups; the deepest one decides."""


def user_home(environment: Mapping[str, str]) -> Path:
    """The home of the daemon's user."""
    return Path(environment.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir)


def allowlist_file(environment: Mapping[str, str]) -> Path:
    """`CLAWD_MOUNTS`, else in the user's own config. Raises ConfigError for a relative one."""
    if named := environment.get("CLAWD_MOUNTS"):
        file = Path(named)
    else:
        own = environment.get("XDG_CONFIG_HOME") or ""
        file = (Path(own) if own.startswith("/") else user_home(environment) / ".config") / "clawd" / "mounts.toml"
    if not file.is_absolute() or ".." in file.parts:
        raise ConfigError(f"the mount allowlist {file} is no absolute path", hint="set CLAWD_MOUNTS to one")
    return file


def load_allowlist(file: Path) -> Allowlist:
    """What the file says now. Raises NotFound when there is none, ConfigError for one that counts for nothing: not
    valid, a link, not this user's own, or open to others."""
    try:
        directory = file.parent.stat()
        if directory.st_uid not in (0, os.geteuid()) or directory.st_mode & _OTHERS:
            raise _refused(f"others can write to its directory {file.parent}", f"chmod go-w {file.parent}")
        with open(file, "rb", opener=_opened) as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _refused(f"{file} is no plain file", f"ls -l {file}")
            if status.st_uid != os.geteuid():
                raise _refused(f"{file} belongs to another user", f"ls -l {file}")
            if status.st_mode & _OTHERS:
                raise _refused(f"others can write to {file}", f"chmod go-w {file}")
            data = opened.read(_LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no mount allowlist {file}", hint="docs/mounts.md shows one") from None
    except OSError as error:
        if file.is_symlink():
            raise _refused(f"{file} is a link", "put the file itself there") from None
        raise _refused(f"{file} cannot be read ({error.strerror})", f"ls -l {file}") from None
    if len(data) > _LIMIT:
        raise _refused(f"{file} is larger than {_LIMIT >> 20} MB", "say less")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise _refused(f"byte {error.start} of {file} is not UTF-8", "save it as UTF-8") from None
    try:
        allowed = parse(Allowlist, text, file.name)
    except ConfigError as error:
        raise _refused(error.message, error.hint or f"edit {file}") from None
    if "schema" not in tomllib.loads(text):
        raise _refused(f"{file} does not say which schema it has", "begin it with: schema = 1")
    return allowed


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _refused(what: str, hint: str) -> ConfigError:
    return ConfigError(f"the mount allowlist is not used: {what}", hint=hint)
