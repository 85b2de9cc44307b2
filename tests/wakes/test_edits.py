"""What a person edits is taken up and told once, by whatever program they edit."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

from clawd.clock import TurnedClock
from clawd.config.begin import ensure_group, init_home
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.wakes import edits
from clawd.wakes.edits import Edits, edited, is_no_edit
from clawd.wakes.watcher import Watcher

pytestmark = pytest.mark.anyio

SECOND = 5.0


class Room:
    """The room over a real home, with a group for each name, and what it said and asked for."""

    def __init__(self, home: Home, ledger: Ledger) -> None:
        self.home, self.ledger, self.clock = home, ledger, TurnedClock(datetime(2026, 11, 30, tzinfo=UTC))
        self.told: list[tuple[str, tuple[str, ...]]] = []
        self.looks: list[str] = []
        self.known: set[str] = set()
        self.config = LiveConfig(home, {})
        self.edits = Edits(
            home,
            self.config,
            ledger,
            self.clock,
            tell=self._tell,
            renew=lambda: self.looks.append("config"),
            people=self._people,
            adopt=self._adopt,
            is_news=self._is_news,
            config_of=lambda group: self.looks.append(f"config {group}"),
            schedules=lambda group: self.looks.append(f"schedules {group}"),
            skills=lambda group: self.looks.append(f"skills {group}"),
        )
        self.watcher = Watcher(print)
        self.edits.open(self.watcher)

    async def _tell(self, text: str, *, also: Sequence[str] = (), level: int = 0) -> None:
        self.told.append((text, tuple(also)))

    async def _people(self) -> None:
        self.looks.append("people")

    async def _adopt(self, name: str) -> None:
        await self.ledger.do(lambda tx: groups.add(tx, name, "now"))
        self.looks.append(f"adopted {name}")
        ensure_group(self.home, name)

    def _is_news(self, group: str, sentence: str) -> bool:
        new = sentence not in self.known
        self.known.add(sentence)
        return new

    def add(self, name: str) -> Path:
        ensure_group(self.home, name)
        return self.home.group(name).root

    async def quiet(self) -> None:
        """Until nothing more comes."""
        before = None
        while before != (before := (len(self.told), len(self.looks), len(self.edits._pending))):
            await anyio.sleep(1.1)

    async def until(self, done: Callable[[], object]) -> None:
        with anyio.fail_after(SECOND):
            while not done():
                await anyio.sleep(0.02)

    def said(self) -> set[str]:
        """What was told since this was last asked."""
        told, self.told = self.told, []
        return {text for text, _ in told}


@asynccontextmanager
async def running(tmp_path: Path, *names: str) -> AsyncIterator[Room]:
    home = Home(tmp_path / "h")
    init_home(home)
    ledger = Ledger.open(home.ledger_file)
    try:
        for name in ("main", *names):
            ensure_group(home, name)
            await ledger.do(lambda tx, name=name: groups.add(tx, name, "now"))
        room = Room(home, ledger)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(room.edits.run)
            tasks.start_soon(room.watcher.run)
            await room.until(lambda: "skills None" in room.looks)
            room.looks.clear()
            assert room.told == []
            yield room
            tasks.cancel_scope.cancel()
    finally:
        ledger.close()


# ── how programs save ──


def vim(file: Path, text: bytes) -> None:
    """It tries the directory, keeps a swap file, moves the old file away and writes a new one."""
    swap, backup = file.with_name(f".{file.name}.swp"), file.with_name(f"{file.name}~")
    file.with_name("4913").touch()
    file.with_name("4913").unlink()
    swap.write_bytes(b"swap")
    if file.exists():
        file.rename(backup)
    file.write_bytes(text)
    backup.unlink(missing_ok=True)
    swap.unlink()


def emacs(file: Path, text: bytes) -> None:
    lock, auto = file.with_name(f".#{file.name}"), file.with_name(f"#{file.name}#")
    lock.symlink_to("me@here.1:1")
    auto.write_bytes(b"auto")
    if file.exists():
        shutil.copy2(file, file.with_name(f"{file.name}~"))
    file.write_bytes(text)
    auto.unlink()
    lock.unlink()


def code(file: Path, text: bytes) -> None:
    """VS Code truncates, then writes."""
    with file.open("wb") as open_file:
        open_file.flush()
        open_file.write(text[: len(text) // 2])
        open_file.flush()
        open_file.write(text[len(text) // 2 :])


def nano(file: Path, text: bytes) -> None:
    lock = file.with_name(f".{file.name}.swp")
    lock.write_bytes(b"b0nano")
    file.write_bytes(text)
    lock.unlink()


def sed(file: Path, text: bytes) -> None:
    temporary = file.with_name("sedAbC12x")
    temporary.write_bytes(text)
    temporary.replace(file)


def rsync(file: Path, text: bytes) -> None:
    """It keeps the time of the other side."""
    temporary = file.with_name(f".{file.name}.Xy12Zz")
    temporary.write_bytes(text)
    os.utime(temporary, (1_000_000_000, 1_000_000_000))
    temporary.replace(file)


def cp(file: Path, text: bytes) -> None:
    file.write_bytes(text)


def mv(file: Path, text: bytes) -> None:
    other = file.parents[3] / f"{file.parent.name}-{file.name}"
    other.write_bytes(text)
    other.rename(file)


WAYS = [vim, emacs, code, nano, sed, rsync, cp, mv]


async def test_each_way_of_saving_is_one_notice(tmp_path: Path) -> None:
    """At once, and all of them at the same time."""
    names = [way.__name__ for way in WAYS]
    async with running(tmp_path, *names) as room:
        for way in WAYS:
            root = room.home.group(way.__name__).root
            (root / "schedules").mkdir()
            (root / "skills" / "s").mkdir()
            (room.home.skills / way.__name__).mkdir()
        await room.quiet()
        room.looks.clear()
        for way in WAYS:
            root = room.home.group(way.__name__).root
            way(root / "CLAUDE.md", b"be brief\n" * 300)
            way(root / "schedules" / "a.toml", b"schema = 1\n")
        await room.until(lambda: {f"schedules {name}" for name in names} <= set(room.looks))
        await room.quiet()
        assert sorted(room.looks) == sorted(f"schedules {name}" for name in names)
        (said,) = room.said()
        assert said.startswith("Edited by hand: groups/code/CLAUDE.md (2.6 KB), groups/cp/CLAUDE.md (2.6 KB), ")
        assert f"and {len(WAYS) - 4} more" in said

        room.looks.clear()
        for way in WAYS:
            way(room.home.group(way.__name__).root / "skills" / "s" / "SKILL.md", b"---\n")
            way(room.home.skills / way.__name__ / "SKILL.md", b"---\n")
        await room.until(lambda: {"skills None", *(f"skills {name}" for name in names)} <= set(room.looks))
        await room.quiet()
        assert len(room.looks) <= 2 * (len(names) + 1)
        assert room.told == []


async def test_what_is_said_of_a_groups_files(tmp_path: Path) -> None:
    async with running(tmp_path, *"bcdef") as room:
        main, b, c, d, e, f = (room.home.group(name) for name in ("main", *"bcdef"))
        main.claude_md.write_bytes(b"x" * 1229)
        f.config_file.write_text('bindings = ["telegram:7", "slack:T/C"]\ntrigger = "ok"\n')
        await room.until(lambda: "config f" in room.looks and room.told)
        assert room.said() == {"groups/main/CLAUDE.md was edited (1.2 KB); it holds from the next turn on."}

        main.claude_md.touch()
        main.claude_md.chmod(0o644)
        main.user_profile.write_text("Ada")
        b.claude_md.chmod(0o666)
        c.user_profile.unlink()
        os.mkfifo(c.user_profile)
        d.claude_md.unlink()
        d.claude_md.symlink_to("/etc/passwd")
        e.config_file.write_text("x = \n")
        await room.until(lambda: len(room.told) >= 5)
        (unheard,) = [each for each in room.told if "group.toml" in each[0]]
        assert unheard[0].startswith(
            "groups/e/group.toml is not used; nothing is answered here meanwhile: groups/e/group.toml:1: not TOML"
        )
        assert unheard[1] == ()
        assert room.said() - {unheard[0]} == {
            "groups/main/user_profile.md was edited (3 bytes); it holds from the next turn on.",
            f"{b.claude_md} is not used: others can write to it (chmod go-w {b.claude_md})",
            f"{c.user_profile} is not used: it is a link, or not a regular file",
            f"{d.claude_md} is not used: it is a link, or not a regular file",
        }

        main.claude_md.write_bytes(b"told an hour later at the earliest")
        b.claude_md.write_text("more")
        f.config_file.write_text('bindings = ["telegram:7", "slack:T/C"]\ntriger = "ok"\n')
        await room.until(lambda: room.told)
        await room.quiet()
        ((sentence, chats),) = room.told
        assert "what it said before still holds" in sentence and "groups/f/group.toml:2" in sentence
        assert chats == ("telegram:7", "slack:T/C")
        assert room.config.group("f").trigger == "ok"
        room.told.clear()

        room.clock.advance(edits.AGAIN_S)
        main.claude_md.unlink()
        b.claude_md.chmod(0o600)
        vim(f.config_file, b'bindings = ["telegram:7"]\ntrigger = "new"\n')
        await room.until(lambda: len(room.told) >= 2)
        assert ("groups/f/group.toml is understood again, and used.", ("telegram:7",)) in room.told
        assert any("groups/b/CLAUDE.md (4 bytes), groups/main/CLAUDE.md (removed)" in each for each in room.said())
        assert room.config.group("f").trigger == "new"

        room.watcher.unwatch("groups")
        room.told.clear()
        room.looks.clear()
        ensure_group(room.home, "main")  # what we make is nobody's edit
        c.claude_md.write_text("edited")
        (d.root / "schedules").mkdir()
        (d.schedules / "a.toml").write_text("x")
        e.config_file.write_text("\ny = \n")
        room.edits._hit("groups", frozenset({""}))  # after a storm this is all that is heard
        await room.until(lambda: len(room.told) >= 2)
        assert {each.partition(" ")[0] for each in room.said()} == {"groups/c/CLAUDE.md", "groups/e/group.toml"}
        assert "schedules d" in room.looks and "schedules b" not in room.looks


async def test_the_home_s_own_files_and_new_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "ADOPT_S", 0.5)
    async with running(tmp_path) as room:
        vim(room.home.config_file, room.home.config_file.read_bytes() + b"\n")
        await room.until(lambda: room.looks)
        (room.home.root / "people.toml.new").write_text("none of ours")
        sed(room.home.people_file, b"schema = 1\n")
        await room.until(lambda: len(room.looks) > 1)
        assert room.looks == ["config", "people"]
        room.looks.clear()

        other = tmp_path / "other"
        (other / "schedules").mkdir(parents=True)
        (other / "CLAUDE.md").write_text("moved in")
        other.rename(room.home.groups / "moved")
        (room.home.groups / ".hidden").mkdir()
        await room.until(lambda: "adopted moved" in room.looks and "schedules moved" in room.looks)
        await room.quiet()
        assert [look for look in room.looks if look.startswith("adopted")] == ["adopted moved"]
        assert room.told == []  # it was as it is when it became a group
        room.looks.clear()
        (room.home.group("moved").schedules / "a.toml").write_text("x")
        await room.until(lambda: room.looks == ["schedules moved"])
        room.home.group("moved").claude_md.write_text("edited")
        await room.until(lambda: room.told)
        shutil.rmtree(room.home.group("moved").root)
        await room.until(lambda: "schedules moved" in room.looks[1:])


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("main", True),
        (".tmp.new", False),
        ("main/CLAUDE.md", True),
        ("main/CLAUDE.md~", False),
        ("main/.group.toml.ab12.tmp", False),
        ("main/work", False),
        ("main/work/CLAUDE.md", False),
        ("main/sessions/x.md", False),
        ("main/schedules", True),
        ("main/schedules/a-1.toml", True),
        ("main/schedules/done", False),
        ("main/schedules/done/a.toml", False),
        ("main/schedules/#a.toml#", False),
        ("main/schedules/.a.toml.swp", False),
        ("main/skills/x/scripts/run.py", True),
        ("main/skills/x/.git", False),
        ("main/skills/x/SKILL.md~", False),
    ],
)
def test_what_is_an_edit(path: str, ours: bool) -> None:
    assert is_no_edit(path) is not ours


def test_many_files_are_one_sentence() -> None:
    assert edited({"a": "1 bytes", "b": "removed"}).startswith("Edited by hand: a (1 bytes), b (removed). ")
    assert "e (5)" not in edited(dict.fromkeys("abcdef", "5"))
    assert "and 2 more" in edited(dict.fromkeys("abcdef", "5"))
