"""The mount allowlist's decision: which of the host's directories a group is shown, and how.

`group.toml` asks, `mounts.toml` allows, and what is forbidden or has changed is refused all the same. A verdict is of
this moment: it is made anew for each turn, and what a backend mounted is compared with it by device and inode before
anything of an agent runs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from clawd.apart import Apart
from clawd.config.group import Mount as Asked
from clawd.config.home import Home, is_home
from clawd.config.mounts import Root, allowlist_file, load_allowlist, user_home
from clawd.config.schema import Mode
from clawd.errors import ClawdError, ConfigError, NotFound
from clawd.sandbox import forbidden, repository
from clawd.sandbox.protocol import Mount
from clawd.sandbox.walk import Found, Identity, Link, MountPoint, beneath, identity, mount_table, resolved
from clawd.trust import TRUST, Origin, Role

AT = "/mnt"
_LOOSE = TRUST[Origin.DOCUMENT]
_WRITTEN = "give it an absolute path, or one that begins with ~/"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`mode` is what is given, None for nothing; `rule` is a word (`allowed`, `read_only`, `not_allowed` …), `reason` a
    sentence, `hint` what helps. `closed` are paths in a writable one that are shut again (True: kept in place only)."""

    allow: bool
    rule: str
    reason: str
    real: str
    mode: Mode | None = None
    hint: str | None = None
    found: Found | None = None
    trust: float = 1.0
    closed: tuple[tuple[Path, bool], ...] = ()

    @property
    def writable(self) -> bool:
        return self.allow and self.mode == "rw"

    def refused(self, rule: str, reason: str, hint: str | None = None) -> Verdict:
        return replace(self, allow=False, mode=None, rule=rule, reason=reason, hint=hint, closed=())

    def lowered(self, rule: str, reason: str, hint: str | None = None) -> Verdict:
        """Allowed, but read-only."""
        return replace(self, mode="ro", rule=rule, reason=reason, hint=hint, closed=())


@dataclass(frozen=True, slots=True)
class Given:
    """What a group's sandbox is shown, outer mounts first, and a sentence for each thing that it asked for and does not
    have. `problem` is why the allowlist counts for nothing."""

    mounts: tuple[Mount, ...] = ()
    told: tuple[str, ...] = ()
    problem: ClawdError | None = None


@dataclass(frozen=True, slots=True)
class _Ground:
    """What a decision stands on: this moment's allowlist, forbidden places and mounts. `problem` is why the allowlist
    counts for nothing."""

    user: Path
    forbidden: Sequence[tuple[forbidden.Place, Found | None]]
    table: Mapping[int, MountPoint]
    roots: Sequence[tuple[Root, Found]] = ()
    problem: ClawdError | None = None


@dataclass(slots=True)
class Mounts:
    """Decides for all `groups` of a home. `asked` gives what a group asks for now (raises ConfigError); `tell` is for
    what is wrong with the allowlist while somebody asks. Looks at the disk: not for the event loop."""

    home: Home
    environment: Mapping[str, str]
    runtime: Path
    asked: Callable[[str], Sequence[Asked]]
    groups: Callable[[], Iterable[str]]
    docker_host: str | None = None
    tell: Callable[[str], object] = lambda sentence: None
    living: dict[str, tuple[str, tuple[Mount, ...]]] = field(default_factory=dict)
    """The group and the mounts of each run that lives: set by whoever makes them."""
    apart: Apart = field(default_factory=Apart)

    def given(self, group: str, role: Role, uid: int | None) -> Given:
        """For a sandbox of this group, whose turns act for `role` and whose agent is the user `uid`."""
        asked = self._all()
        if not asked.get(group):
            return Given()
        ground = self._ground()
        others = {name: [self._judge(each, Role.OWNER, ground) for each in asked[name]] for name in asked}
        own = [self._judge(each, role, ground) for each in asked[group]]
        mounts, told = list[Mount](), list[str]()
        for n, each in enumerate(asked[group]):
            verdict = self._beside(group, n, own, asked, others)
            if not verdict.allow or verdict.mode != each.mode:
                what = "not shown" if not verdict.allow else "read-only"
                told.append(_sentence(f"The mount {each.name} ({each.path}) is {what}: {verdict.reason}", verdict.hint))
            if verdict.allow:
                mounts += _mounts(each.name, verdict)
                told += _rights(each, verdict, uid)
        return Given(tuple(mounts), tuple(told), ground.problem)

    def check(self, path: str, writable: bool, group: str | None = None, role: Role = Role.OWNER) -> Verdict:
        """What would be given for a path, to nobody in particular or to a group of which turns act for `role`."""
        ask = Asked(path=path, name="check", mode="rw" if writable else "ro")
        ground = self._ground()
        verdict = self._judge(ask, role, ground)
        if group is None or not verdict.allow:
            return verdict
        asked = self._all()
        others = {name: [self._judge(each, Role.OWNER, ground) for each in asked[name]] for name in asked}
        same = (n for n, each in enumerate(others.get(group, ())) if each.found and each.real == verdict.real)
        at = next(same, None)
        mine, own = list(asked.get(group, [])), list(others.get(group, []))
        if at is None:
            at, mine, own = len(own), [*mine, ask], [*own, verdict]
        else:
            own[at] = verdict
        return self._beside(group, at, own, {**asked, group: mine}, others)

    def _all(self) -> dict[str, list[Asked]]:
        """What every group asks for."""
        asked = {}
        for group in self.groups():
            with suppress(ConfigError):  # it can have no sandbox then
                asked[group] = list(self.asked(group))
        return asked

    def problem(self) -> ClawdError | None:
        """Why the allowlist counts for nothing now."""
        return self._ground().problem

    def judge(self, asked: Iterable[Asked]) -> list[Verdict]:
        """Each by itself, as the owner's."""
        ground = self._ground()
        return [self._judge(each, Role.OWNER, ground) for each in asked]

    # ── by itself ──

    def _ground(self) -> _Ground:
        user, table = user_home(self.environment), mount_table()
        file, problem, roots = None, None, list[tuple[Root, Found]]()
        try:
            file = allowlist_file(self.environment)
            roots = [
                (root, found) for root in load_allowlist(file).roots for found in self._meant(root.path, user, table)
            ]
            self._lies_well(file, roots, table)
        except ClawdError as error:
            problem, roots = error, []
        places = forbidden.places(self.home, self.environment, self.runtime, file, self.docker_host)
        return _Ground(user, list(forbidden.found(places, table)), table, roots, problem)

    def _meant(self, path: str, user: Path, table: Mapping[int, MountPoint]) -> Iterator[Found]:
        """What a root means now, if there is such a thing. Raises ConfigError for one that can mean nothing: it might
        have been to keep others from writing there."""
        if wrong := syntax(path):
            raise ConfigError(f"the mount allowlist is not used: of the root {path!a}, {wrong}", hint=_WRITTEN)
        root = _expanded(path, user)
        if self.apart.answers(root, root.stat):
            with suppress(OSError):
                yield resolved(root, table)

    def _lies_well(self, file: Path, roots: Iterable[tuple[Root, Found]], table: Mapping[int, MountPoint]) -> None:
        """Raises ConfigError where the allowlist lies in what it should guard."""
        try:
            at = resolved(file, table)
        except OSError as error:
            raise ConfigError(f"the mount allowlist {file} cannot be looked at ({error})", hint="try again") from None
        elsewhere = "move it, and set CLAWD_MOUNTS to where it is"
        if self._at_home(at):
            raise ConfigError(f"the mount allowlist is not used: {file} lies in a home", hint=elsewhere)
        if inside := [root.path for root, found in roots if any(each.within(found) for each in (at, *at.over))]:
            raise ConfigError(f"the mount allowlist is not used: {file} lies in its root {inside[0]}", hint=elsewhere)
        if at.open_at:
            why = f"the mount allowlist is not used: others could put another one there, for {at.open_at} is open"
            raise ConfigError(why, hint=f"chmod go-w {at.open_at}")

    def _at_home(self, found: Found) -> Found | None:
        """What of a thing, and of the links to it, lies in a home."""
        own = set[Identity]()
        with suppress(OSError):
            own.add(identity(self.home.root.stat()))
        for each in (found, *found.over):
            parents = (parent for name in each.names for parent in (name, *name.parents))
            if not own.isdisjoint(each.ids) or any(map(is_home, parents)):
                return each
        return None

    def _judge(self, ask: Asked, role: Role, ground: _Ground) -> Verdict:
        """One mount, without regard to any other."""
        verdict = Verdict(False, "", "", ask.path)
        if problem := syntax(ask.path):
            return verdict.refused("syntax", problem, _WRITTEN)
        path = _expanded(ask.path, ground.user)
        verdict = replace(verdict, real=str(path))
        if ground.problem is not None:
            rule = "no_allowlist" if isinstance(ground.problem, NotFound) else "allowlist"
            return verdict.refused(rule, ground.problem.message, ground.problem.hint)
        if not self.apart.answers(path, path.stat):
            return verdict.refused(
                "unreadable", "the disk or machine that it lies on does not answer", f"ls -ld {path}"
            )
        try:
            found = resolved(path, ground.table)
        except Link:
            return verdict.refused("changed", "it was exchanged while it was looked at")
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            why = "it does not exist" if missing else f"it cannot be looked at ({getattr(error, 'strerror', error)})"
            return verdict.refused("missing" if missing else "unreadable", why, f"ls -ld {path}")
        verdict = replace(verdict, real=str(found.real), found=found)
        if problem := syntax(verdict.real):
            return verdict.refused("syntax", f"it leads to {verdict.real!r}: {problem}")
        if refusal := self._forbidden(path, found, ground):
            return verdict.refused(*refusal)
        return _allowed(verdict, found, ask.mode == "rw", role, ground)

    def _forbidden(self, path: Path, found: Found, ground: _Ground) -> tuple[str, str] | None:
        """The rule that forbids it whatever the allowlist says, and a sentence."""
        if place := forbidden.touching(found, ground.forbidden):
            return "forbidden", f"it is, holds or lies in {place.path} ({place.what}), which is never shown"
        for name in (path, *found.names):
            if part := forbidden.secret(name):
                return "secret", f"{part} is where secrets are kept"
        if found.mounted.kind in forbidden.PSEUDO:
            return "pseudo", f"{found.real} is no disk, but the kernel's own ({found.mounted.kind})"
        if each := self._at_home(found):
            return "forbidden", f"{_it(each, found)} lies in a home"
        if inside := next(beneath(found.real, ground.table), None):
            return "submount", f"something else is mounted inside of it, at {inside}"
        if not (stat.S_ISDIR(found.status.st_mode) or stat.S_ISREG(found.status.st_mode)):
            return "special", "it is neither a directory nor a plain file"
        if socket := next(forbidden.sockets_within(found.real), None):
            return "socket", f"a program of this machine is reached through the socket {socket}"
        if found.open_at:
            return "open_path", f"others could put another thing in its place, for they can write to {found.open_at}"
        return None

    # ── beside others ──

    def _beside(
        self,
        group: str,
        n: int,
        own: Sequence[Verdict],
        asked: Mapping[str, Sequence[Asked]],
        others: Mapping[str, Sequence[Verdict]],
    ) -> Verdict:
        """The verdict over a group's mount `n`, when all that groups ask for is looked at together."""
        verdict, ask = own[n], asked[group][n]
        found = verdict.found
        if [each.name for each in asked[group]].count(ask.name) > 1:
            return verdict.refused("name", f"two mounts of the group are called {ask.name}", "give them other names")
        if not verdict.allow or found is None:
            return verdict
        for tree in (each.found for each in own if each.writable and each.found):
            if each := _exchangeable(found, tree):
                why = f"{_it(each, found)} lies in {tree.real}, which this group can write to"
                return verdict.refused("nested", why)
        for name in (name for name in others if name != group):
            for their, theirs in zip(asked[name], others[name], strict=True):
                if not theirs.allow or theirs.found is None or not (verdict.writable or theirs.writable):
                    continue
                inside, around = found.within(theirs.found), theirs.found.within(found)
                if theirs.writable and (each := _exchangeable(found, theirs.found)):
                    why = f"{_it(each, found)} lies in {theirs.real}, which the group {name} can write to"
                    return verdict.refused("nested", why)
                if (inside or around) and not (ask.shared and their.shared):
                    why = f"the group {name} has {theirs.real} too, and one of them could write what the other reads"
                    return verdict.refused("shared", why, "say shared = true in the group.toml of both")
                if inside or around:
                    verdict = replace(verdict, trust=min(verdict.trust, _LOOSE))
            if stale := self._still_written(name, found, verdict, others[name]):
                return verdict.refused("shared", f"a sandbox of the group {name} still has {stale}", "try again later")
        return verdict

    def _still_written(self, group: str, found: Found, verdict: Verdict, now: Sequence[Verdict]) -> Path | None:
        """A mount that a living sandbox of another group has, though the group asks for it no longer."""
        for mount in (mount for name, mounts in list(self.living.values()) if name == group for mount in mounts):
            touches = found.real.is_relative_to(mount.source) or mount.source.is_relative_to(found.real)
            now_too = (each for each in now if each.allow and mount.writable <= each.writable)
            known = any(mount.source.is_relative_to(each.real) for each in now_too)
            if touches and (mount.writable or verdict.writable) and not known:
                return mount.source
        return None


def syntax(path: str) -> str | None:
    """What is wrong with a path as it is written."""
    if not path.startswith(("/", "~/")):
        return "only ~/ of this very user can be meant" if path.startswith("~") else "it is not absolute"
    if not path.isprintable() or any(character in path for character in ":,\\"):
        return "it has a character that no mount's path may have"
    return "it has .. in it" if ".." in path.split("/") else None


def _expanded(path: str, user: Path) -> Path:
    """The same path without ~, doubled slashes and dots; it must be of good syntax."""
    base = user if path.startswith("~/") else Path("/")
    return base.joinpath(*(part for part in path.removeprefix("~").split("/") if part not in ("", ".")))


def _exchangeable(found: Found, tree: Found) -> Found | None:
    """What of a thing, and of the links to it, can be exchanged by who can write to a tree."""
    return next((each for each in (found, *found.over) if each.within(tree) and each.own != tree.own), None)


def _it(each: Found, found: Found) -> str:
    return "it" if each is found else f"the link {each.real}"


def _allowed(verdict: Verdict, found: Found, wanted: bool, role: Role, ground: _Ground) -> Verdict:
    """What the allowlist gives: the deepest root decides, and one that lies inside cannot be written from outside."""
    around = [(root, at) for root, at in ground.roots if at.own in found.ids]
    if stat.S_ISREG(found.status.st_mode):
        around = [(root, at) for root, at in around if at.own == found.own]
    if not around:
        return verdict.refused(
            "not_allowed", "no root of the mount allowlist covers it", "allow it: see docs/mounts.md"
        )
    depth = max(found.ids.index(at.own) for _, at in around)
    around = [(root, at) for root, at in around if found.ids.index(at.own) == depth]
    deciding = [root for root, _ in around]
    if loose := next((at.open_at for _, at in around if at.open_at), None):
        why = f"others could have the root {deciding[0].path} mean another place, for they can write to {loose}"
        return verdict.refused("open_path", why)
    found = replace(found, over=(*found.over, *(link for _, at in around for link in at.over)))
    verdict = replace(verdict, found=found)
    inside = [root for root, at in ground.roots if found.own in at.ids[:-1]]
    counting = [*deciding, *inside]
    trust = 1.0 if all(root.trust == "owner" for root in counting) else _LOOSE
    root = deciding[0].path
    verdict = replace(verdict, allow=True, mode="ro", rule="allowed", reason=f"the root {root} allows it", trust=trust)
    if not wanted:
        return verdict
    if locked := next((root for root in counting if root.mode == "ro"), None):
        return verdict.lowered("read_only", f"the mount allowlist has {locked.path} read-only")
    if role != Role.OWNER:
        why = "only the owner may have it written to, and the group acts for somebody else now"
        return verdict.lowered("role", why, "clawd groups trust, or clean, lifts that")
    closed = repository.closed(found.real)
    if closed is None:
        return verdict.lowered(
            "git", "what git would run in it cannot be shut: it lies in a .git, or has one without hooks and config"
        )
    return replace(verdict, mode="rw", closed=closed)


def _mounts(name: str, verdict: Verdict) -> Iterator[Mount]:
    """A mount, and what is laid over parts of it."""
    found = verdict.found
    assert found is not None
    yield Mount(found.real, f"{AT}/{name}", verdict.writable, *found.own, verdict.trust)
    for path, writable in verdict.closed:
        inner = path.relative_to(found.real)
        yield Mount(path, f"{AT}/{name}/{inner}", writable, *identity(path.lstat()), verdict.trust)


def _rights(ask: Asked, verdict: Verdict, uid: int | None) -> Iterator[str]:
    """A sentence where the agent's user cannot do by its rights what the mount lets it."""
    assert verdict.found is not None
    status, needed = verdict.found.status, 0o5 if stat.S_ISDIR(verdict.found.status.st_mode) else 0o4
    needed |= 0o2 if verdict.writable else 0
    if uid is None and not os.access(verdict.real, needed):
        yield f"The agent cannot use the mount {ask.name}: this very user has no right to {verdict.real}"
    if uid is None or _listed(verdict.found.real):
        return
    held = (
        status.st_mode >> 6 if status.st_uid == uid else status.st_mode >> 3 if status.st_gid == uid else status.st_mode
    )
    if held & needed != needed:
        what = "write to" if held & needed & 0o5 == needed & 0o5 else "read"
        rights = "rwX" if verdict.writable else "rX"
        yield (
            f"The agent cannot {what} the mount {ask.name}: its user {uid} has no right to {verdict.real}"
            f" (setfacl -R -m u:{uid}:{rights} {verdict.real})"
        )


def _listed(path: Path) -> bool:
    """Whether it has an access list, which the plain rights do not tell of."""
    try:
        return "system.posix_acl_access" in os.listxattr(path, follow_symlinks=False)
    except OSError:
        return False


def _sentence(text: str, hint: str | None) -> str:
    return f"{text} ({hint})" if hint else text
