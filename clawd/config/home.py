"""The home: where everything lies. Paths only; `create` makes the directories, 0700, and nothing else writes
here."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clawd.errors import NotFound, Refused, StorageError
from clawd.files import plain
from clawd.ids import is_group_name

# Folders of a group that agents, other programs or other people's words fill, whoever owns the files.
THEIRS = frozenset({"work", "inbox", "memory", "sessions", "import", "exports", "manifests", "experiences"})
_CONFIG_BYTES = 1 << 20  # of a file that has more nothing is used


@dataclass(frozen=True, slots=True)
class GroupHome:
    """One group's folder."""

    root: Path

    @property
    def claude_md(self) -> Path:
        return self.root / "CLAUDE.md"

    @property
    def user_profile(self) -> Path:
        return self.root / "user_profile.md"

    @property
    def config_file(self) -> Path:
        return self.root / "group.toml"

    def says(self, *words: bytes) -> bool:
        """Whether the group's file has one of these words: of very many groups only those are parsed. Raises OSError,
        also for what is no plain file."""
        with open(self.config_file, "rb", opener=plain) as file:
            data = file.read(_CONFIG_BYTES)
        return any(word in data for word in words)

    @property
    def sessions(self) -> Path:
        return self.root / "sessions"

    @property
    def exports(self) -> Path:
        """What was made of its sessions' contexts for others to read."""
        return self.root / "exports"

    @property
    def manifests(self) -> Path:
        """What its sessions handed on."""
        return self.root / "manifests"

    @property
    def memory(self) -> Path:
        return self.root / "memory"

    @property
    def skills(self) -> Path:
        return self.root / "skills"

    @property
    def schedules(self) -> Path:
        return self.root / "schedules"

    @property
    def arrivals(self) -> Path:
        """What was brought in from elsewhere; nothing of it is in force."""
        return self.root / "import"

    @property
    def inbox(self) -> Path:
        return self.root / "inbox"

    @property
    def work(self) -> Path:
        return self.root / "work"


@dataclass(frozen=True, slots=True)
class Home:
    """One installation: config, groups, skills and state beneath `root`."""

    root: Path

    @property
    def config_file(self) -> Path:
        return self.root / "config.toml"

    @property
    def people_file(self) -> Path:
        return self.root / "people.toml"

    @property
    def skills(self) -> Path:
        return self.root / "skills"

    @property
    def groups(self) -> Path:
        return self.root / "groups"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def ledger_file(self) -> Path:
        return self.state / "ledger.db"

    @property
    def blobs(self) -> Path:
        return self.state / "blobs"

    @property
    def backups(self) -> Path:
        return self.state / "backups"

    @property
    def lock_file(self) -> Path:
        return self.state / "lock"

    @property
    def log_file(self) -> Path:
        return self.state / "logs" / "clawd.jsonl"

    def group(self, folder: str) -> GroupHome:
        return GroupHome(self.groups / folder)

    def create(self) -> None:
        """Make the directories of a home. `state/` and `groups/` are the person's alone (0700). Raises StorageError."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for directory in (self.groups, self.state, self.blobs, self.backups, self.log_file.parent):
                directory.mkdir(mode=0o700, exist_ok=True)
                if stat.S_IMODE(directory.stat().st_mode) != 0o700:
                    directory.chmod(0o700)
            self.skills.mkdir(mode=0o755, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{error.filename or self.root} cannot be written ({error.strerror})",
                hint="a home must be yours, on a disk that can be written",
            ) from error


def is_home(path: Path) -> bool:
    """Whether a directory may count as a home just by being the current one: `config.toml` has `schema` and
    `[claw]`, is the caller's own, and nobody else can write to it or to its directory."""
    config = path / "config.toml"
    try:
        for status in (path.stat(), config.lstat()):
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return False
        if not config.is_file() or config.is_symlink():
            return False
        text = config.read_text("utf-8", "replace")
    except OSError:
        return False
    # Not parsed: a slip of the pen in it is told, and has no other home taken for this one.
    return all(re.search(line, text, re.MULTILINE) for line in (r"^\s*schema\s*=", r"^\s*\[\s*claw\s*\]"))


def find_home(explicit: str | None, environment: dict[str, str], current: Path) -> Home:
    """`--home`, `CLAWD_HOME`, a current directory that is one, else `~/clawd`: in this order."""
    chosen = explicit or environment.get("CLAWD_HOME")
    if chosen:
        return Home(Path(chosen).expanduser().absolute())
    if is_home(current):
        return Home(current.absolute())
    return Home(Path("~/clawd").expanduser())


def group_folders(home: Home) -> list[str]:
    """Every folder beneath `groups/` that can be a group, whoever made it."""
    if not home.groups.is_dir():
        return []
    with os.scandir(home.groups) as entries:
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return sorted(name for name in names if is_group_name(name))


def require_home(home: Home, passed_over: Path | None = None) -> Home:
    """The same home, if it exists. Raises NotFound with the command that makes one, and why a current directory was
    `passed_over` that has a config; Refused when it is no directory."""
    if not home.root.exists():
        hint = f"make one: clawd init {shlex.quote(str(home.root))}"
        if passed_over is not None and (passed_over / "config.toml").is_file():
            hint += f"; or, if {passed_over} is one, nobody else may write to it: chmod go-w . config.toml"
        raise NotFound(f"there is no home at {home.root}", hint=hint)
    if not home.root.is_dir():
        raise Refused(f"{home.root} is not a directory")
    return home


def runtime_directory(environment: dict[str, str]) -> Path:
    """Where runs keep their sockets and views: outside every home, 0700.

    `$XDG_RUNTIME_DIR/clawd`, `/run/clawd` for root, else `/tmp/clawd-<uid>`. Raises Refused when it is not
    ours alone.
    """
    return make_private(runtime_path(environment))


def runtime_path(environment: Mapping[str, str]) -> Path:
    """The same place, at which nothing is looked."""
    user = os.geteuid()
    base = environment.get("XDG_RUNTIME_DIR")
    return Path(base) / "clawd" if base else Path("/run/clawd") if user == 0 else Path(f"/tmp/clawd-{user}")


def make_private(path: Path) -> Path:
    """The same path, a directory for this user alone now. Raises Refused when somebody else holds the name, OSError."""
    user = os.geteuid()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user:
        raise Refused(f"{path} is not a directory of this user", hint=f"remove it: rm -r {path}")
    if status.st_mode & 0o077:
        path.chmod(0o700)
    return path
