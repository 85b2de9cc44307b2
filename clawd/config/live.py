"""The config as it stands now. A bad edit keeps what worked, and is told; an edit of a group's file holds at
its next turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from clawd.config.group import Effective, GroupConfig, Mount
from clawd.config.home import Home
from clawd.config.load import load_config, load_group, merged
from clawd.config.schema import Config
from clawd.errors import ClawdError, ConfigError

Stamp = tuple[int, ...] | None


class LiveConfig:
    """Holds the running config. Raises ConfigError or NotFound when the first reading fails."""

    def __init__(self, home: Home, environment: Mapping[str, str]) -> None:
        self._home, self._environment = home, environment
        self._stamp = stamp(home.config_file)
        self.current: Config = load_config(home, environment)
        self._files: dict[str, Path] = {}  # a turn asks for it often
        self._groups: dict[str, tuple[Stamp, GroupConfig]] = {}
        self._effective: dict[str, tuple[Config, GroupConfig, Effective]] = {}
        self.problems: dict[str, ClawdError] = {}
        """What is wrong now, by file: `doctor` and the owner are told. Empty when all is well."""

    def changed(self) -> bool:
        """Whether `config.toml` was touched since it was last read: one `stat`."""
        return stamp(self._home.config_file) != self._stamp

    def reload(self) -> list[str]:
        """Read `config.toml` again; gives the keys that changed, as "model.engine: offline → scripted".

        Raises ConfigError or NotFound; the running config stays then.
        """
        self._stamp = stamp(self._home.config_file)
        try:
            fresh = load_config(self._home, self._environment)
        except ClawdError as error:
            self.problems["config.toml"] = error
            raise
        self.problems.pop("config.toml", None)
        changes = _changes(self.current, fresh)
        self.current = fresh
        return changes

    def group(self, folder: str) -> GroupConfig:
        """The group's own config, read again when its file changed. After a bad edit the last good one, with
        the error in `problems`; raises ConfigError when there never was a good one."""
        path = self._files.get(folder) or self._files.setdefault(folder, self._home.group(folder).config_file)
        seen, known = stamp(path), self._groups.get(folder)
        if known is not None and known[0] == seen:
            return known[1]
        name = f"groups/{folder}/group.toml"
        try:
            fresh = load_group(self._home, folder)
        except ConfigError as error:
            self.problems[name] = error
            if known is None:
                raise
            fresh = known[1]
        else:
            self.problems.pop(name, None)
        self._groups[folder] = (seen, fresh)
        return fresh

    def problem_of(self, folder: str) -> ClawdError | None:
        """What is wrong with a group's file since it was last read."""
        return self.problems.get(f"groups/{folder}/group.toml")

    def warnings(self, folder: str) -> list[str]:
        """What those who talk to a group must know of its file."""
        problem = self.problem_of(folder)
        holds = "what it said before still holds, but for grants and mounts, of which there are none meanwhile"
        if folder not in self._groups:
            holds = "nothing is answered here meanwhile"
        return [f"groups/{folder}/group.toml is not used; {holds}: {problem}"] if problem else []

    def mounts(self, folder: str) -> Sequence[Mount]:
        """What a group asks for. What an edit was to take away must not stay because of a slip of the pen."""
        asked = self.group(folder).mounts
        return asked if self.problem_of(folder) is None else ()

    def bindings(self, folder: str) -> Sequence[str]:
        """The chats that a group may be heard in; none while a mistake may be in what takes one away."""
        bound = self.group(folder).bindings
        return bound if self.problem_of(folder) is None else ()

    def external(self, folder: str) -> Sequence[str]:
        """The sessions that other programs may write into; none while a mistake may be in what takes one away."""
        allowed = self.group(folder).external
        return allowed if self.problem_of(folder) is None else ()

    def first_binding(self, folder: str) -> str:
        """A group's own chat, where it is told what nobody asked for: its first, or its terminal."""
        bindings = self.group(folder).bindings
        return bindings[0] if bindings else f"terminal:{folder}"

    def followups(self, folder: str) -> str:
        """What a message does while a turn of its group is at work; the default where that cannot be read."""
        try:
            return self.group(folder).followups
        except ConfigError:
            return GroupConfig().followups

    def shared(self, folder: str) -> tuple[GroupConfig, str]:
        """What holds in a group's shared chats, and the word that calls us there; the default, but no answer without a
        mention, where its file cannot be read."""
        claw = self.current.claw
        try:
            settings = self.for_group(folder)
        except ConfigError:
            return GroupConfig(answer="mention"), claw.trigger or claw.name
        return settings.group, settings.trigger or claw.name

    def wall_seconds(self, folder: str) -> float:
        """How long a turn may take; leases are watched where the group's file cannot be read, too."""
        try:
            return self.for_group(folder).limits.wall_minutes * 60
        except ConfigError:
            return self.current.limits.wall_minutes * 60

    def for_group(self, folder: str) -> Effective:
        """What holds for one group now."""
        config, own = self.current, self.group(folder)
        known = self._effective.get(folder)
        if known is None or known[0] is not config or known[1] is not own:
            known = self._effective[folder] = (config, own, merged(config, own))
        return known[2]


def stamp(path: Path) -> Stamp:
    """What is another one whenever the file was changed, or is another file; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino  # a copy may keep the first


def _changes(old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, BaseModel) and type(old) is type(new):
        old, new = dict(old), dict(new)
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        dotted = ((key, f"{path}.{key}" if path else str(key)) for key in keys)
        return [change for key, below in dotted for change in _changes(old.get(key), new.get(key), below)]
    return [] if old == new else [f"{path}: {_shown(old)} → {_shown(new)}"]


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)
