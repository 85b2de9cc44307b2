"""The copies of skills that sandboxes are shown. What lies in the home is never shown itself.

`state/skills/<sha256 of its manifest>/` is one version of a skill, plain files alone, never changed; each run has two
directories of hard links to such, `state/skills/runs/<run>/{shared,own}/<name>/`. So what is edited or removed in the
home stays whole for whoever uses it. Nothing here must outlive a crash: what is missing is made again.
"""

from __future__ import annotations

import os
import secrets
import shutil
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from clawd.config.home import Home
from clawd.errors import UnsafePath
from clawd.files import open_beneath, remove_tree
from clawd.model import Authority
from clawd.skills.catalogue import Catalogue
from clawd.skills.manifest import MOST_BYTES, look, manifest, mode_of, stamp, version
from clawd.skills.skill import Skill, load
from clawd.trust import Role

RUNS = "runs"
_TRIES = 3  # while somebody changes it
_OWNER = Authority(Role.OWNER, 1.0)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a skill, and for whom what it says acts."""

    skill: Skill
    sha256: str
    acts: Authority = _OWNER

    @property
    def key(self) -> str:
        """Where it lies in the directories of a run."""
        return f"{'shared' if self.skill.shared else 'own'}/{self.skill.name}"

    @property
    def at(self) -> str:
        """Where it lies in the sandbox."""
        return f"{'/skills' if self.skill.shared else '/group/skills'}/{self.skill.name}"


@dataclass(frozen=True, slots=True)
class _Known:
    stamp: str
    version: Version | None
    told: tuple[str, ...]


def copy(folder: Path, to: Path) -> None:
    """The plain files of a folder, whoever wrote it, as a new directory that is whoever runs this' own. Raises
    UnsafePath, also for more than a skill may be, and OSError."""
    room = MOST_BYTES
    to.mkdir(mode=0o755)
    to.chmod(0o755)
    for path, status in look(folder).files:
        for parent in reversed((to / path).relative_to(to).parents[:-1]):
            (to / parent).mkdir(exist_ok=True)
            (to / parent).chmod(0o755)
        with os.fdopen(open_beneath(folder, path), "rb") as source, (to / path).open("xb") as file:
            os.fchmod(file.fileno(), mode_of(status))
            while chunk := source.read(1 << 20):
                file.write(chunk)
                if (room := room - len(chunk)) < 0:
                    raise UnsafePath(f"it has more than {MOST_BYTES >> 20} MB")


def called(skill: Skill) -> str:
    """How a person knows it."""
    return f"The skill {skill.name} ({skill.path})"


class Shelf:
    """All copies of a home. Its functions look at the disk, not for the event loop; any thread may call them."""

    def __init__(self, home: Home, catalogue: Catalogue) -> None:
        self._root, self._catalogue = home.state / "skills", catalogue
        self._known: dict[Path, _Known] = {}
        self._lock = threading.Lock()

    def directories(self, run: str) -> tuple[Path, Path]:
        """What a run is shown at /skills and at /group/skills."""
        return self._root / RUNS / run / "shared", self._root / RUNS / run / "own"

    def copy_of(self, version: Version) -> Path:
        return self._root / version.sha256

    def look(self, group: str) -> tuple[list[Version], list[str]]:
        """What the group can use, each version copied, sorted by name; and sentences on what is not used, or not as it
        stands. Raises OSError."""
        versions, told = list[Version](), list[str]()
        with self._lock:
            skills = self._catalogue.of(group)
            for skill in skills:
                known = self._renewed(skill)
                versions += [known.version] if known.version else []
                told += known.told
            told += _refused(self._catalogue, group)
            homes = {skill.path.parent for skill in skills}
            lying = {skill.path for skill in skills}
            self._known = {at: each for at, each in self._known.items() if at in lying or at.parent not in homes}
        return versions, told

    def on(self, run: str, versions: Iterable[Version]) -> dict[str, Version | None]:
        """What an earlier daemon put into the directories of a run; None for a version that is none of these."""
        found: dict[str, Version | None] = {}
        by_key = {each.key: each for each in versions}
        for directory in self.directories(run):
            for at in directory.iterdir() if directory.is_dir() else ():
                version = by_key.get(key := f"{directory.name}/{at.name}")
                same = version is not None and _same(at / "SKILL.md", self.copy_of(version) / "SKILL.md")
                found[key] = version if same else None
        return found

    def render(
        self, run: str, wanted: Mapping[str, Version], shown: Mapping[str, Version | None], *, busy: bool
    ) -> dict[str, Version | None]:
        """Have a run see what is `wanted`, each by its key, where it saw what was `shown`; while it is `busy` nothing
        that it saw is taken away or replaced. Gives what it sees. Raises OSError."""
        now = dict(shown)
        with self._lock:
            self.make(run)
            for key, version in wanted.items():
                old = shown.get(key)
                if key not in shown or not (busy or (old is not None and old.sha256 == version.sha256)):
                    self._put(run, version)
                    now[key] = version
                elif old is not None and old.sha256 == version.sha256:
                    now[key] = version  # whose it is can have changed
            for key in () if busy else shown.keys() - wanted.keys():
                self._take(run, key)
                del now[key]
        return now

    def make(self, run: str) -> None:
        """The directories of a run, where they are missing."""
        for directory in self.directories(run):
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            directory.chmod(0o755)

    def drop(self, run: str) -> None:
        """The run is over."""
        with suppress(OSError):  # what is left is collected
            remove_tree(self._root / RUNS / run)

    def collect(self, living: Collection[str]) -> int:
        """Remove what runs that are over have left, and copies that nobody has a use for; gives how many."""
        removed = 0
        with self._lock:
            runs = self._root / RUNS
            for at in runs.iterdir() if runs.is_dir() else ():
                if at.name not in living:
                    remove_tree(at)
                    removed += 1
            wanted = {each.version.sha256 for each in self._known.values() if each.version}
            for at in self._root.iterdir() if self._root.is_dir() else ():
                if at.name != RUNS and at.name not in wanted and not _linked(at):
                    remove_tree(at)
                    removed += 1
        return removed

    # ── copies ──

    def _renewed(self, skill: Skill) -> _Known:
        """The skill as it lies there now, or why it is not used."""
        known = self._known.get(skill.path)
        try:
            now = stamp(skill.path)
            if known is None or known.stamp != now or (known.version and not self.copy_of(known.version).is_dir()):
                known = self._copied(skill, now)
        except FileNotFoundError:
            return _Known("", None, (f"{called(skill)} is not used: it was removed just now.",))
        except (UnsafePath, OSError) as error:
            why = error.message if isinstance(error, UnsafePath) else f"it cannot be copied ({error.strerror})"
            return _Known("", None, (f"{called(skill)} is not used: {why}.",))
        self._known[skill.path] = known
        return known

    def _copied(self, skill: Skill, now: str) -> _Known:
        for _ in range(_TRIES):
            before = now
            read = load(skill.path, shared=skill.shared)
            if read.errors:
                return _Known(before, None, (f"{called(skill)} is not used: {'; '.join(read.errors)}.",))
            sha256 = manifest(skill.path).sha256
            # One that is there may be hollow: a power cut can leave its names without what was in them.
            if version(self._root / sha256, linked=True) != sha256 and not self._keep(skill.path, sha256):
                continue
            if (now := stamp(skill.path)) == before:
                told = tuple(f"{called(skill)}: {warning}." for warning in read.warnings)
                return _Known(now, Version(read, sha256), told)
        raise UnsafePath("it is being changed just now; the next turn has it")

    def _keep(self, folder: Path, sha256: str) -> bool:
        """Copy a version; False when it is another one meanwhile."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._root / f".{secrets.token_hex(8)}"
        try:
            copy(folder, temporary)
            if manifest(temporary).sha256 != sha256:
                return False
            remove_tree(self._root / sha256)
            temporary.rename(self._root / sha256)
        finally:
            remove_tree(temporary)
        return True

    # ── a run's directories ──

    def _put(self, run: str, version: Version) -> None:
        at, temporary = self._root / RUNS / run / version.key, self._root / RUNS / run / f".{secrets.token_hex(8)}"
        try:
            shutil.copytree(self.copy_of(version), temporary, copy_function=_link)
            self._take(run, version.key)
            temporary.rename(at)
        finally:
            remove_tree(temporary)

    def _take(self, run: str, key: str) -> None:
        away = self._root / RUNS / run / f".{secrets.token_hex(8)}"
        with suppress(FileNotFoundError):
            (self._root / RUNS / run / key).rename(away)
        remove_tree(away)


def lying(catalogue: Catalogue, group: str) -> tuple[list[Version], list[str]]:
    """What `Shelf.look` gives, without any copy: for a command beside the daemon."""
    versions, told = list[Version](), list[str]()
    for skill in catalogue.of(group):
        try:
            versions.append(Version(skill, manifest(skill.path).sha256))
            told += [f"{called(skill)}: {warning}." for warning in skill.warnings]
        except (UnsafePath, OSError) as error:
            told.append(f"{called(skill)} is not used: {error}.")
    return versions, told + _refused(catalogue, group)


def _refused(catalogue: Catalogue, group: str) -> list[str]:
    return [f"{called(skill)} is not used: {'; '.join(skill.errors)}." for skill in catalogue.refused(group)]


def acting(versions: Iterable[Version], by: Mapping[str, Authority]) -> list[Version]:
    """The same, each with for whom it acts, by its sha256."""
    return [replace(each, acts=by.get(each.sha256, _OWNER)) for each in versions]


def _link(source: str, to: str) -> None:
    try:
        os.link(source, to, follow_symlinks=False)
    except OSError:  # a disk without links, or one that has too many to this file
        shutil.copy2(source, to, follow_symlinks=False)


def _linked(copy: Path) -> bool:
    return any(each.stat().st_nlink > 1 for each in copy.rglob("*") if each.is_file())


def _same(one: Path, other: Path) -> bool:
    try:
        return os.path.samestat(one.lstat(), other.lstat())
    except OSError:
        return False
