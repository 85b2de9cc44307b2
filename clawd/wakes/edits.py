"""What a person edits by hand is taken up at once: the config, who may speak, a group's files, schedules and skills.

The next turn reads each file anew in any case. What is done here is to say so, to say what is wrong and where, and to
have the rooms look that work without a turn. What was edited while no daemon ran is not told.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
from anyio import to_thread

from clawd.clock import Clock
from clawd.config.begin import TEMPLATES
from clawd.config.home import Home, group_folders
from clawd.config.live import LiveConfig
from clawd.errors import ClawdError, ConfigError, Refused
from clawd.ids import is_group_name
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.sandbox import view
from clawd.schedules.file import ID
from clawd.wakes.watcher import Watcher

log = logging.getLogger(__name__)

SETTLE_S = 0.2  # after a notice: an editor may write twice
ADOPT_S = 2.0  # after the last notice of a new folder: somebody may still copy into it
AGAIN_AFTER_S = 5.0  # what could not be looked at
AGAIN_S = 3600.0  # an edited file is told so often
NAMED = 4  # files in one sentence
_SLACK_NS = 1_000_000_000  # a file system's clock is not ours
_HOME = ("config.toml", "people.toml")
_TOLD = ("CLAUDE.md", "user_profile.md")
_CONFIG = "group.toml"
_SCHEDULE = re.compile(rf"{ID}\.toml")
_PASSING = re.compile(r"\..*|.*~|#.*#|4913")  # hidden, backups, locks, and what vim tries a directory with


class Tell(Protocol):
    """Say something to the owner, and in chats."""

    async def __call__(self, text: str, *, also: Sequence[str] = ..., level: int = ...) -> None: ...


@dataclass(slots=True)
class _Found:
    """What one look at files found; files by their paths beneath the home."""

    edited: dict[str, str] = field(default_factory=dict)  # and how large each is now
    refused: list[tuple[str, str]] = field(default_factory=list)  # group, sentence
    broken: list[tuple[str, str]] = field(default_factory=list)  # group, sentence
    mended: list[str] = field(default_factory=list)  # groups
    configs: list[str] = field(default_factory=list)  # groups, in these three
    schedules: list[str] = field(default_factory=list)
    skills: list[str] = field(default_factory=list)


class Edits:
    """`renew` looks at config.toml, `people` at people.toml. `adopt` makes a group of a folder. `is_news` says of a
    sentence whether a group was not told it yet. `config_of`, `schedules` and `skills` are given the group whose own
    may have changed; None stands for all groups, and for the shared skills."""

    def __init__(
        self,
        home: Home,
        config: LiveConfig,
        ledger: Ledger,
        clock: Clock,
        *,
        tell: Tell,
        renew: Callable[[], None],
        people: Callable[[], Awaitable[object]],
        adopt: Callable[[str], Awaitable[object]],
        is_news: Callable[[str, str], bool],
        config_of: Callable[[str], None],
        schedules: Callable[[str | None], None],
        skills: Callable[[str | None], None],
    ) -> None:
        self._home, self._config, self._ledger, self._clock = home, config, ledger, clock
        self._tell, self._renew, self._people, self._adopt, self._is_news = tell, renew, people, adopt, is_news
        self._config_of, self._schedules, self._skills = config_of, schedules, skills
        self._pending: set[str] = set()  # paths beneath the home
        self._woken = anyio.Event()
        self._since = time.time_ns()  # what did not change since is none of ours
        self._seen: dict[str, bytes | None] = {}  # a digest of each file that was looked at
        self._told: dict[str, float] = {}  # edited files, and when that was told
        self._broken: dict[str, str] = {}  # groups, and what was told
        self._new: dict[str, float] = {}  # folders that are no groups yet, and when they will be

    def open(self, watcher: Watcher) -> None:
        home = self._home
        watcher.watch("home", home.root, partial(self._hit, ""), deep=False, skip=lambda path: path not in _HOME)
        watcher.watch("skills", home.skills, partial(self._hit, "skills"), deep=True, skip=is_passing)
        watcher.watch("groups", home.groups, partial(self._hit, "groups"), deep=True, skip=is_no_edit)

    def _hit(self, top: str, paths: frozenset[str]) -> None:
        self._pending |= {"/".join(filter(None, (top, path))) for path in paths}
        self._woken.set()

    async def run(self) -> None:
        while True:
            with anyio.CancelScope(deadline=min(self._new.values(), default=math.inf)):
                await self._woken.wait()
                await anyio.sleep(SETTLE_S)
            self._woken = anyio.Event()
            pending, self._pending = self._pending, set()
            try:
                await self._look(pending)
                await self._adopt_folders()
            except Exception:
                log.exception("an edit was not taken up; it is tried again")
                self._pending |= pending
                await anyio.sleep(AGAIN_AFTER_S)
                self._woken.set()

    # ── looking ──

    async def _look(self, paths: set[str]) -> None:
        if paths & {"", "config.toml"}:
            before = self._config.current
            self._renew()
            if self._config.current is not before:
                self._schedules(None)  # they may lie in its zone
        if "people.toml" in paths:
            await self._people()
        changed: dict[str, set[str]] = defaultdict(set)
        for path in paths:
            top, _, below = path.partition("/")
            if top == "groups" and below:
                name, _, file = below.partition("/")
                changed[name].add(file.partition("/")[0])
        whole, began = "groups" in paths, time.time_ns()
        if whole:
            for name, files in (await to_thread.run_sync(self._newer)).items():
                changed[name] |= files
        await self._meet([name for name, files in changed.items() if "" in files])
        found = await to_thread.run_sync(self._found, changed)
        if whole or any(path.partition("/")[0] == "skills" for path in paths):
            self._skills(None)
        for name in found.configs:
            self._config_of(name)
        for name in found.skills:
            self._skills(name)
        for name in found.schedules:
            self._schedules(name)
        if whole:
            self._since = max(self._since, began - _SLACK_NS)
        await self._say(found)

    def _newer(self) -> dict[str, set[str]]:
        """In a thread: of each group the files that changed since the last such look; `""` of a folder that did."""
        newer: dict[str, set[str]] = {}
        for name in group_folders(self._home):
            root = f"{self._home.groups}/{name}"
            found = {file for file in (*_TOLD, _CONFIG) if _changed(f"{root}/{file}") > self._since}
            schedules = f"{root}/schedules"
            with suppress(OSError), os.scandir(schedules) as entries:
                paths = [schedules, *(entry.path for entry in entries)]
                found |= {"schedules"} if any(_changed(path) > self._since for path in paths) else set()
            if found or _changed(root) > self._since:
                newer[name] = found | ({""} if _changed(root) > self._since else set())
        return newer

    async def _meet(self, names: Sequence[str]) -> None:
        """Folders that are no groups are to be; who copies into one is let finish."""
        known = await self._ledger.do(lambda tx: {name for name in names if groups.find(tx, name)}) if names else set()
        soon = anyio.current_time() + ADOPT_S
        self._new |= {name: soon for name in names if name not in known}

    async def _adopt_folders(self) -> None:
        for name in [name for name, due in self._new.items() if due <= anyio.current_time()]:
            del self._new[name]
            if self._home.group(name).root.is_dir():
                try:
                    await self._adopt(name)
                    log.info("groups/%s is a group now", name)
                    self._schedules(name)
                except (ClawdError, OSError) as error:
                    await self._tell(f"groups/{name} is no group: {error}")

    def _found(self, changed: Mapping[str, set[str]]) -> _Found:
        """In a thread: what became of these files of groups. `""` stands for all of a group's."""
        found = _Found()
        for name, files in sorted(changed.items()):
            root, every = self._home.group(name).root, "" in files
            if every or "schedules" in files:
                found.schedules.append(name)
            if every or "skills" in files:
                found.skills.append(name)
            if not root.is_dir():
                continue
            for file in _TOLD:
                if every or file in files:
                    self._read(name, root / file, found, surely=file in files)
            if every or _CONFIG in files:
                self._read_config(name, found)
        return found

    def _read(self, name: str, path: Path, found: _Found, surely: bool) -> None:
        """`surely`: it changed, also if it was never looked at."""
        file = f"groups/{name}/{path.name}"
        try:
            content: bytes | None = view.read(path)
        except FileNotFoundError:
            content = None
        except Refused as error:
            self._seen[file] = b""
            if surely or _changed(str(path)) > self._since:  # what was so before, the next turn tells
                found.refused.append((name, error.message))
            return
        now = hashlib.sha256(content).digest() if content is not None else None
        before = self._seen.get(file, now if not surely and _changed(str(path)) <= self._since else b"")
        self._seen[file] = now
        if now != before and content not in TEMPLATES and name not in self._new:
            found.edited[file] = size_of(len(content)) if content is not None else "removed"

    def _read_config(self, name: str, found: _Found) -> None:
        found.configs.append(name)
        with suppress(ConfigError):  # it is in `problem_of`, too
            self._config.group(name)
        if self._config.problem_of(name) is None:
            log.info("groups/%s/%s was looked at, and is in order", name, _CONFIG)
            if self._broken.pop(name, None) is not None:
                found.mended.append(name)
        else:
            (sentence,) = self._config.warnings(name)
            if self._broken.get(name) != sentence:
                self._broken[name] = sentence
                found.broken.append((name, sentence))

    # ── saying ──

    async def _say(self, found: _Found) -> None:
        now = self._clock.monotonic()
        self._told = {file: since for file, since in self._told.items() if now - since < AGAIN_S}
        for file, size in found.edited.items():
            log.info("%s was edited: %s", file, size)
        if fresh := {file: size for file, size in found.edited.items() if file not in self._told}:
            self._told |= dict.fromkeys(fresh, now)
            await self._tell(edited(fresh), level=logging.INFO)
        for name, sentence in found.refused:
            if self._is_news(name, sentence):
                await self._tell(sentence)
        for name, sentence in found.broken:
            if self._is_news(name, sentence):
                await self._tell(sentence, also=self._chats(name))
        for name in found.mended:
            sentence = f"groups/{name}/{_CONFIG} is understood again, and used."
            await self._tell(sentence, also=self._chats(name), level=logging.INFO)

    def _chats(self, name: str) -> Sequence[str]:
        try:
            return self._config.group(name).bindings
        except ConfigError:
            return ()


def edited(files: Mapping[str, str]) -> str:
    """What the owner is told of files that were edited, by the size of each."""
    if len(files) == 1:
        ((file, size),) = files.items()
        what = "was removed; it holds no more" if size == "removed" else f"was edited ({size}); it holds"
        return f"{file} {what} from the next turn on."
    named = [f"{file} ({size})" for file, size in list(files.items())[:NAMED]]
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    return f"Edited by hand: {', '.join(named)}{more}. What they say now holds from the next turn on."


def size_of(count: int) -> str:
    return f"{count / 1024:.1f} KB" if count >= 1024 else f"{count} bytes"


def is_passing(path: str) -> bool:
    """Whether a name is one that an editor makes and takes away, or hidden."""
    return _PASSING.fullmatch(path.rpartition("/")[2]) is not None


def is_no_edit(path: str) -> bool:
    """Whether a path beneath groups/ is nothing that a person edits for us."""
    name, *below = path.split("/")
    if not below:
        return not is_group_name(name)
    if below[0] == "schedules":
        return len(below) > 2 or (len(below) == 2 and _SCHEDULE.fullmatch(below[1]) is None)
    return is_passing(path) if below[0] == "skills" else len(below) > 1 or below[0] not in (*_TOLD, _CONFIG)


def _changed(path: str) -> int:
    """When it was last changed in any way, in ns; 0 where there is nothing."""
    try:
        return os.lstat(path).st_ctime_ns
    except OSError:
        return 0
