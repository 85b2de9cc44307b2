"""Changed files wake their group: real files, the real watcher, one wake for what changed and none for what did not.

Each case has a group of its own, and all of them run at the same time: they mostly wait.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import to_thread

from clawd.approvals.watch import digest
from clawd.channel import NOTICE
from clawd.clock import SystemClock, rfc3339
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.config.load import init_home
from clawd.ledger import authored, groups, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.groups import UID_BASE
from clawd.people.bindings import Bindings
from clawd.sandbox.mounts import Mounts
from clawd.tasks import Tasks
from clawd.trust import Role
from clawd.wakes.files import LOOKS, Files
from clawd.wakes.watcher import Watcher

pytestmark = pytest.mark.anyio

DEADLINE = 30.0
RULE = '[[watch]]\npaths = ["work"]\nsettle = 0.1\ncooldown = 0\nprompt = "see"\n'
EVENTS = 'events = ["added", "modified", "deleted"]\n'


class World:
    """A home with a watcher, whose lives can end and begin again."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.root, self.home = root, Home(root / "home")
        init_home(self.home)
        self.list = root / "lists" / "mounts.toml"
        self.list.parent.mkdir(mode=0o700)
        (root / "me").mkdir()
        environment = {"CLAWD_MOUNTS": str(self.list), "HOME": str(root / "me")}
        self.ledger = Ledger.open(self.home.ledger_file)
        self.config = LiveConfig(self.home, {})
        self.mounts = Mounts(self.home, environment, root / "run", self.config.mounts, lambda: sorted(self.names))
        self.names: set[str] = set()
        self.woken: list[str] = []
        self.heard: Counter[str] = Counter()  # wakes of a group that were looked at
        self.commands: dict[str, list[tuple[str, str | None]]] = {}
        self.files: Files

    def allow(self, *paths: Path, trust: str = "owner") -> None:
        text = "".join(f'[[roots]]\npath = "{path}"\nmode = "rw"\ntrust = "{trust}"\nwhy = "t"\n' for path in paths)
        self.list.write_text(f"schema = 1\n{text}")
        self.list.chmod(0o600)

    @asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            watcher = Watcher(self.woken.append, check_s=0.3)
            self.files = Files(
                self.home,
                self.config,
                self.ledger,
                SystemClock(),
                Tasks(group),
                watcher,
                judge=self.mounts.check,
                commands=lambda group: self.commands.get(group, ()),
                base=Bindings(self.home, self.config, self.ledger, self.woken.append).base,
                wake=self.woken.append,
                deliver=lambda to: None,
                limits=lambda channel: NOTICE,
            )
            group.start_soon(watcher.run)
            await self.files.start()
            yield
            group.cancel_scope.cancel()

    async def group(self, name: str, text: str = RULE, *, roots: int = 1) -> Path:
        """A group with these rules, whose folders were looked at; gives its folder."""
        folder = self.home.group(name)
        folder.work.mkdir(parents=True, exist_ok=True)
        if name not in self.names:
            await self.ledger.do(lambda tx: groups.add(tx, name, "2026-12-01T09:00:00+00:00"))
            self.names.add(name)
        self.write(name, text)
        await self.until(lambda: self.looked(name) >= roots)
        return folder.root

    def write(self, name: str, text: str) -> None:
        self.home.group(name).config_file.write_text(f"schema = 1\n{text}")
        self.files.renew(name)

    def looked(self, name: str) -> int:
        states = [json.loads(row["roots"]) for row in self.rows("SELECT roots FROM watching WHERE grp = ?", name)]
        return sum("device" in state for each in states for state in each.values())

    def rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """Read beside the ledger's thread: the cases share an event loop, which may not wait for it."""
        with closing(sqlite3.connect(f"{self.home.ledger_file.as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, values)]

    async def until(self, what: Callable[[], Any], seconds: float = DEADLINE) -> Any:
        with anyio.fail_after(seconds):
            while not (found := what()):
                await anyio.sleep(0.05)
        return found

    def wakes(self, name: str) -> list[dict[str, Any]]:
        return self.rows(
            "SELECT w.*, t.id AS turn FROM wake w JOIN turn_wake tw ON tw.wake = w.id JOIN turn t ON t.id = tw.turn"
            " WHERE t.grp = ? ORDER BY w.id", name,
        )  # fmt: skip

    async def told(self, name: str) -> dict[str, str]:
        """What its next wake lists: events by path."""
        found = await self.until(lambda: self.wakes(name)[self.heard[name] :])
        self.heard[name] += 1
        return listed(found[0])

    async def tells(self, name: str, expected: dict[str, str]) -> None:
        """Its next wakes list this, each path once. That may be more than one wake: a watch that is made anew
        meanwhile, for another group's sake, or a machine that is busy, tells a part of it later."""
        told: dict[str, str] = {}
        while told != expected:
            more = await self.told(name)
            assert not told.keys() & more.keys() and more.items() <= expected.items(), (told, more, expected)
            told |= more

    def notices(self, name: str) -> list[str]:
        return [row["text"] for row in self.rows("SELECT text FROM delivery WHERE chat = ? ORDER BY id", name)]

    async def settled(self, name: str) -> None:
        """All that was seen is known, and told where it is news."""
        await self.until(lambda: not self.rows("SELECT 1 FROM changed WHERE grp = ?", name))


def listed(wake: dict[str, Any]) -> dict[str, str]:
    text = json.loads(wake["text"])[-1]["text"]
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {line["path"]: line["event"] for line in lines}


Case = Callable[[World], Awaitable[None]]
CASES: list[Case] = []


def case(run: Case) -> Case:
    CASES.append(run)
    return run


# ── what counts ──


@case
async def editors(world: World) -> None:
    """vim, VS Code, rsync and others, each by the calls that it makes; and what is no change."""
    folder = await world.group("editors", "", roots=0)
    work = folder / "work"
    for name in ("vim", "code", "touched", "chmod", "same", "rsynced"):
        (work / name).write_text("before")
    await world.group("editors")
    _vim(work, "vim", b"by vim")
    with (work / "code").open("r+") as file:  # as VS Code does
        file.truncate(0)
        file.write("by code")
        file.flush()
        os.fsync(file.fileno())
    for name in ("rsynced", "new"):
        temporary = work / f".{name}.Xa29bQ"
        temporary.write_text("by rsync")
        os.utime(temporary, (1_000_000_000, 1_000_000_000))
        temporary.rename(work / name)
    os.utime(work / "touched")
    (work / "chmod").chmod(0o600)
    (work / "same.tmp").write_text("before")
    (work / "same.tmp").rename(work / "same")
    (work / ".git").mkdir()
    (work / ".git" / "index").write_text("x")
    (work / "gone").write_text("x")
    (work / "gone").unlink()
    expected = {"work/vim": "modified", "work/code": "modified", "work/rsynced": "modified", "work/new": "added"}
    await world.tells("editors", expected)


def _vim(work: Path, name: str, content: bytes) -> None:
    """As `strace vim` has it with backup and writebackup."""
    (work / "4913").touch()
    (work / "4913").unlink()
    (work / name).rename(work / f"{name}~")
    descriptor = os.open(work / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(descriptor, content)
    os.fsync(descriptor)
    os.close(descriptor)
    (work / f"{name}~").unlink()


@case
async def real_editor(world: World) -> None:
    """vim itself, where there is one; else another one that writes beside and renames."""
    work = (await world.group("vim", RULE + 'globs = ["*.md"]\n')) / "work"
    (work / "a.md").write_text("before\n")
    await world.told("vim")
    command = ["vim", "-u", "NONE", "-es", "-c", "set backup writebackup", "-c", "s/before/after/", "-c", "wq", "a.md"]
    if shutil.which("vim") is None:
        command = ["sed", "-i", "s/before/after/", "a.md"]
    await to_thread.run_sync(lambda: subprocess.run(command, cwd=work, timeout=DEADLINE, stdin=subprocess.DEVNULL))
    assert (work / "a.md").read_text() == "after\n"
    await world.tells("vim", {"work/a.md": "modified"})


@case
async def names_and_kinds(world: World) -> None:
    """Any name; never a link, a pipe, a socket, or what lies behind them."""
    work = (await world.group("names")) / "work"
    names = [b"a\nb", b"bad-\xff", b"n" * 255]
    outside = world.root / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    for name in names:
        (work / os.fsdecode(name)).write_bytes(name)
    (work / "link").symlink_to(outside / "secret")
    (work / "dir").symlink_to(outside)
    (work / "loop").symlink_to(".")
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        at = os.open(work, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{at}/socket")
        os.close(at)
    await world.tells("names", {f"work/{os.fsdecode(name)}": "added" for name in names})
    (outside / "secret").write_text("more")
    (work / os.fsdecode(names[0])).write_text("more")
    await world.tells("names", {"work/a\nb": "modified"})


@case
async def directories(world: World) -> None:
    """A directory that is moved in or out stands for each file in it."""
    work = (await world.group("directories", RULE + EVENTS)) / "work"
    made = world.root / "made"
    for name in ("made/x", "made/y/z"):
        (world.root / name).parent.mkdir(parents=True, exist_ok=True)
        (world.root / name).write_text(name)
    made.rename(work / "in")
    await world.tells("directories", {"work/in/x": "added", "work/in/y/z": "added"})
    (work / "in").rename(world.root / "out")
    (work / "later").mkdir()
    (work / "later" / "new").write_text("x")
    expected = {"work/in/x": "deleted", "work/in/y/z": "deleted", "work/later/new": "added"}
    await world.tells("directories", expected)


@case
async def globs(world: World) -> None:
    rule = RULE.replace('["work"]', '["work", "inbox/a"]') + 'globs = ["*.txt", "docs/*.md"]\n'
    folder = await world.group("globs", rule, roots=2)
    for name in ("work/a.txt", "work/x/b.txt", "work/docs/c.md", "work/d.md", "inbox/a/e.txt", "inbox/f.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    # Its second folder was not there when the rule was made: whatever is in it is new.
    expected = {"work/a.txt", "work/x/b.txt", "work/docs/c.md", "inbox/a/e.txt"}
    found: set[str] = set()
    while found != expected:
        found = set().union(*map(listed, await world.until(lambda: world.wakes("globs"))))
        await anyio.sleep(0.05)
    for wake in world.wakes("globs"):  # what comes from outside is no more than that
        assert wake["trust"] == (0.2 if "inbox/a/e.txt" in listed(wake) else 1.0)


@case
async def many_rules(world: World) -> None:
    """As many as there are, they open a few folders at one time."""
    rules = "".join(RULE + f'globs = ["{n}"]\n' for n in range(60))
    most = 0

    async def count() -> None:
        nonlocal most
        work = str(world.home.group("many").work)
        while True:
            most = max(most, list(map(_target, Path("/proc/self/fd").iterdir())).count(work))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        await world.group("many", rules, roots=60)
        tasks.cancel_scope.cancel()
    assert 0 < most <= 4 * LOOKS, "a look opens the folder itself up to three times"


def _target(link: Path) -> str:
    with suppress(OSError):
        return str(link.readlink())
    return ""


# ── when it is told ──


@case
async def a_copy(world: World) -> None:
    """What is being written waits until it stands still; the rest does not wait for it."""
    work = (await world.group("copy", RULE + EVENTS)) / "work"
    (work / "quick").write_text("x")
    with (work / "big").open("wb", buffering=0) as file:
        for _ in range(16):
            file.write(b"x" * 100_000)
            await anyio.sleep(0.25)
        await world.tells("copy", {"work/quick": "added"})
    await world.tells("copy", {"work/big": "added"})
    assert json.loads(json.loads(world.wakes("copy")[1]["text"])[-1]["text"])["size"] == 1_600_000


@case
async def a_storm(world: World) -> None:
    """What comes while the first of it is read is told with it."""
    work = (await world.group("storm", RULE.replace("settle = 0.1", "settle = 1"))) / "work"
    (watching,) = world.files._rules["storm"].values()
    read = watching._read

    async def slowly() -> bool:
        moving = await read()
        if not (work / "late").exists():
            (work / "late").write_text("x")
            await world.until(lambda: watching._dirty)
        return moving

    watching._read = slowly  # type: ignore[method-assign]
    (work / "soon").write_text("x")
    assert await world.told("storm") == {"work/soon": "added", "work/late": "added"}


@case
async def large_files(world: World) -> None:
    """One over 50 MB is known by its size and time."""
    work = (await world.group("large")) / "work"
    with (work / "large").open("wb") as file:
        file.truncate(51 << 20)
    await world.tells("large", {"work/large": "added"})
    assert world.rows("SELECT sha256 FROM seen WHERE grp = 'large'") == [{"sha256": None}]
    os.utime(work / "large", (1, 1))
    await world.tells("large", {"work/large": "modified"})


@case
async def cool_down(world: World) -> None:
    """What changes in a cool-down is told once, afterwards, as what it came to."""
    work = (await world.group("cool", RULE.replace("cooldown = 0", "cooldown = 5") + EVENTS)) / "work"
    (work / "a").write_text("1")
    await world.told("cool")
    (work / "b").write_text("1")
    (work / "d").write_text("1")
    await world.until(lambda: world.rows("SELECT 1 FROM changed WHERE grp = 'cool' AND event IS NOT NULL"))
    (work / "b").write_text("2")
    (work / "c").write_text("2")
    (work / "d").unlink()
    assert len(world.wakes("cool")) == 1
    await world.tells("cool", {"work/b": "added", "work/c": "added"})


@case
async def an_hour(world: World) -> None:
    """A rule that has had its wakes rests, which is told once, and then tells what came meanwhile."""
    work = (await world.group("hour", RULE + "max_per_hour = 1\n")) / "work"
    (work / "a").write_text("1")
    await world.told("hour")
    (work / "b").write_text("1")
    await world.until(lambda: world.notices("hour"))
    (work / "c").write_text("1")
    await world.until(lambda: len(world.rows("SELECT 1 FROM changed WHERE grp = 'hour' AND event IS NOT NULL")) == 2)
    (said,) = world.notices("hour")
    assert "The watch on work has woken this group 1 times within an hour" in said
    assert len(world.wakes("hour")) == 1
    id = world.wakes("hour")[0]["id"]
    await world.ledger.do(lambda tx: tx.execute("UPDATE wake SET made = '2026-01-01T00:00:00+00:00' WHERE id = ?", id))
    world.files.renew("hour")
    await world.tells("hour", {"work/b": "added", "work/c": "added"})
    assert world.rows("SELECT rests FROM watching WHERE grp = 'hour'") == [{"rests": None}]


@case
async def edits_of_the_rule(world: World) -> None:
    """An edit of the prompt keeps what was seen; a new glob looks for the first time; a rule that is gone leaves
    nothing."""
    work = (await world.group("edited")) / "work"
    (work / "a").write_text("1")
    await world.told("edited")
    world.write("edited", RULE.replace('"see"', '"look"'))
    (work / "b").write_text("1")
    await world.tells("edited", {"work/b": "added"})
    assert json.loads(world.wakes("edited")[1]["text"])[0] == {
        "kind": "typed", "origin": "owner", "text": "look", "sender": None, "name": None,
    }  # fmt: skip
    before = world.rows("SELECT rule FROM watching WHERE grp = 'edited'")
    world.write("edited", RULE + 'globs = ["**"]\n')
    await world.until(
        lambda: world.looked("edited") and world.rows("SELECT rule FROM watching WHERE grp = 'edited'") != before
    )
    await world.settled("edited")
    world.write("edited", "[[watch]\n")  # a slip of the pen takes nothing away
    (work / "c").write_text("1")
    await world.tells("edited", {"work/c": "added"})
    world.write("edited", "")
    await world.until(lambda: not world.rows("SELECT 1 FROM watching WHERE grp = 'edited'"))
    assert not world.rows("SELECT 1 FROM seen WHERE grp = 'edited'")


# ── folders ──


@case
async def a_root_that_goes(world: World) -> None:
    """One that vanishes is told once, and is no deletion of all that was in it; it is compared when it is back."""
    work = (await world.group("root", RULE.replace('"work"', '"work/data"') + EVENTS)) / "work"
    data = work / "data"
    assert world.notices("root") == [
        "The watched folder work/data is not there. It is looked for, and compared when it is back."
    ]
    data.mkdir()
    for n in range(60):
        (data / f"f{n}").write_text("x")
    await world.until(lambda: len(world.rows("SELECT 1 FROM seen WHERE grp = 'root'")) == 60)
    world.heard["root"] = len(world.wakes("root"))
    data.rename(work / "away")
    await world.until(lambda: len(world.notices("root")) == 2)
    (work / "away" / "f1").write_text("other")
    (work / "away" / "f2").unlink()
    (work / "away").rename(data)
    await world.tells("root", {"work/data/f1": "modified", "work/data/f2": "deleted"})
    shutil.rmtree(data)
    data.mkdir()
    (data / "f1").write_text("other")
    told = await world.until(lambda: world.wakes("root")[world.heard["root"] :])
    assert "58 deleted" in json.loads(told[0]["text"])[1]["text"], "made again, it is another one that is compared"


@case
async def a_root_that_is_a_link(world: World) -> None:
    outside = world.root / "elsewhere"
    outside.mkdir()
    work = (await world.group("link", RULE.replace('"work"', '"work/data"') + EVENTS)) / "work"
    (work / "data").mkdir()
    (work / "data" / "a").write_text("x")
    await world.told("link")
    (work / "data").rename(work / "old")
    (outside / "a").write_text("secret")
    (work / "data").symlink_to(outside)
    await world.until(lambda: any("is a link" in each for each in world.notices("link")))
    (outside / "b").write_text("secret")
    (work / "data").unlink()
    (work / "old").rename(work / "data")
    (work / "data" / "b").write_text("y")
    await world.tells("link", {"work/data/b": "added"})


@case
async def refused_paths(world: World) -> None:
    """Each is told with its reason, and the others work."""
    paths = '["work", "sessions", ".claude", "../other", "/etc", "/mnt/none", "skills/x", "."]'
    work = (await world.group("refused", RULE.replace('["work"]', paths))) / "work"
    await world.until(lambda: len(world.notices("refused")) == 7)
    said = "\n".join(world.notices("refused"))
    assert "sessions is not watched: sessions is clawd's own" in said and "skills/x is not watched" in said
    assert ".. and nothing that does not show" in said and "/etc is not watched: it is no mount of the group" in said
    (work / "a").write_text("x")
    await world.tells("refused", {"work/a": "added"})


@case
async def mounts(world: World) -> None:
    """What the allowlist does not let a mount show, no watch sees; two groups see the same one, and each the other's
    doing."""
    tree = world.root / "lent"
    (tree / "sub").mkdir(parents=True)
    world.allow()
    asked = f'[[mounts]]\nname = "docs"\npath = "{tree}"\nmode = "rw"\nshared = true\n'
    rule = RULE.replace('"work"', '"/mnt/docs/sub"')
    await world.group("lent1", asked + rule, roots=0)
    await world.until(lambda: world.notices("lent1"))
    assert (
        "/mnt/docs/sub is not watched: the mount docs is not shown: no root of the mount allowlist"
        in world.notices("lent1")[0]
    )
    (tree / "sub" / "before").write_text("x")
    world.allow(tree)
    world.files.renew("lent1")
    await world.until(lambda: world.looked("lent1"))
    await world.group("lent2", asked + RULE.replace('"work"', f'"{tree}"'))
    number = world.rows("SELECT number FROM grp WHERE name = 'lent1'")[0]["number"]
    async with working(world, "lent1"):
        (tree / "sub" / "after").write_text("x")
        if os.geteuid() == 0:
            os.chown(tree / "sub" / "after", UID_BASE + number, UID_BASE + number)
        await world.tells("lent2", {"/mnt/docs/sub/after": "added"})
    await world.settled("lent1")
    assert not world.wakes("lent1")
    assert [row["trust"] for row in world.wakes("lent2")] == [0.2], "what another one writes to"


# ── whose doing ──


@asynccontextmanager
async def working(world: World, group: str) -> AsyncIterator[None]:
    """While a turn of a group is live."""

    def begin(tx: Transaction) -> int:
        session = groups.open_session(tx, f"terminal:{group}", group, now()).id
        place = {"grp": group, "session": session, "channel": "terminal", "account": "", "chat": "x", "thread": ""}
        turn = turns.queue(tx, place, Role.OWNER, 1.0, now(), claimed_at=now())
        tx.execute("UPDATE turn SET state = 'claimed' WHERE id = ?", turn)
        return turn

    turn, ended = await world.ledger.do(begin), "UPDATE turn SET state = 'answered', ended_at = ? WHERE id = ?"
    yield
    await world.ledger.do(lambda tx: tx.execute(ended, now(), turn))


def now() -> str:
    return rfc3339(SystemClock().now())


@case
async def own_writes(world: World) -> None:
    """What a turn, or a command of the owner's in the sandbox, does is no news to its own group; what somebody else
    does meanwhile is."""
    work = (await world.group("own", RULE + EVENTS)) / "work"
    number = world.rows("SELECT number FROM grp WHERE name = 'own'")[0]["number"]
    root = os.geteuid() == 0

    def write(name: str, text: str) -> None:
        (work / name).write_text(text)
        if root:
            os.chown(work / name, UID_BASE + number, UID_BASE + number)

    (work / "person").write_text("1")
    await world.tells("own", {"work/person": "added"})
    async with working(world, "own"):
        write("agent", "1")
        (work / "person").write_text("2")
        await anyio.sleep(1)
    world.commands["own"] = [(now(), None)]
    write("command", "1")
    await world.until(lambda: len(world.rows("SELECT 1 FROM seen WHERE grp = 'own'")) == 3)
    world.commands.clear()
    if root:  # its owner shows that it was not the agent
        async with working(world, "own"):
            (work / "by hand").write_text("1")
            await world.tells("own", {"work/by hand": "added"})
    assert len(world.wakes("own")) == 1 + root


@case
async def authority(world: World) -> None:
    """What a person wrote is the owner's, at the trust of the folder; what an agent wrote acts as its turn."""
    work = (await world.group("whose", "", roots=0)) / "work"
    await world.ledger.do(lambda tx: groups.fall(tx, "whose", Role.OWNER, 0.6))
    async with working(world, "whose"):
        pass
    turn = world.rows("SELECT MAX(id) AS id FROM turn WHERE grp = 'whose'")[0]["id"]
    await world.ledger.do(lambda tx: tx.execute("UPDATE turn SET authority = 'member', taint = 0.4 WHERE id = ?", turn))
    agent = RULE.replace('"see"', '"sh: id"') + 'globs = ["*.md"]\n'
    await world.group("whose", RULE + agent, roots=2)
    watch = world.config.group("whose").watch[1]
    await world.ledger.do(lambda tx: authored.note(tx, "watch", "whose", "work", digest(watch), turn, now()))
    (work / "a.md").write_text("x")
    found = await world.until(lambda: w if len(w := world.wakes("whose")) == 2 else None)
    assert {(each["authority"], each["trust"], each["origin"], each["kind"]) for each in found} == {
        ("owner", 0.6, "owner", "file"),
        ("member", 0.4, "agent", "file"),
    }
    typed = {each["origin"]: json.loads(each["text"])[0] for each in found}
    assert typed["agent"]["origin"] == "agent" and typed["agent"]["text"] == "sh: id"
    assert typed["owner"]["origin"] == "owner"
    await world.until(lambda: world.woken.count("whose") == 2)


# ── lives ──


@case
async def lives(others: World) -> None:
    """What changed while nobody looked is told once."""
    world = await to_thread.run_sync(World, others.root / "another")
    async with world.life():
        work = (await world.group("main", RULE + EVENTS)) / "work"
        cool = (await world.group("cool", RULE.replace("cooldown = 0", "cooldown = 2"))) / "work"
        for name in ("a", "b", "c"):
            (work / name).write_text("1")
        (cool / "a").write_text("1")
        await world.told("main")
        await world.told("cool")
        (cool / "b").write_text("1")  # its life ends in the cool-down
        await world.until(lambda: world.rows("SELECT 1 FROM changed WHERE grp = 'cool'"))
    (work / "a").write_text("2")
    os.utime(work / "b")
    (work / "c").unlink()
    async with world.life():
        await world.tells("main", {"work/a": "modified", "work/c": "deleted"})
        await world.tells("cool", {"work/b": "added"})
        await world.settled("main")
    async with world.life():
        await world.until(lambda: all(each._met for each in world.files._rules["main"].values()))
        (work / "d").write_text("1")
        await world.tells("main", {"work/d": "added"})
        assert "not running" not in world.wakes("main")[2]["text"]
    (work / "e").write_text("1")
    async with world.life():
        await world.tells("main", {"work/e": "added"})
        assert "while clawd was not running" in world.wakes("main")[3]["text"]
    world.home.group("cool").config_file.unlink()
    async with world.life():
        assert {row["grp"] for row in world.rows("SELECT grp FROM seen")} == {"main"}
    await to_thread.run_sync(world.ledger.close)


@case
async def a_disk_that_goes(world: World) -> None:
    """A disk that is taken away deletes nothing: in a mount namespace of its own."""
    unmounting = [sys.executable, "-m", "tests.wakes.unmounting", str(world.root / "disk")]
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        unshare += ["--user", "--map-root-user"]
    done = await to_thread.run_sync(lambda: subprocess.run([*unshare, *unmounting], capture_output=True, timeout=60))
    assert done.returncode == 0, done.stderr.decode()


async def test_every_case(tmp_path: Path) -> None:
    world = World(tmp_path)
    failed: list[str] = []

    async def alone(run: Case) -> None:
        try:
            await run(world)
        except Exception as error:
            failed.append(f"{run.__name__}: {type(error).__name__} {error}")

    async with world.life(), anyio.create_task_group() as tasks:
        for run in CASES:
            tasks.start_soon(alone, run)
    world.ledger.close()
    assert not failed, "\n".join(failed)
