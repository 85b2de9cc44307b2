"""What is in a backup, what is not, and that nothing but a whole one is ever there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd import faults
from clawd.backups import making, reading
from clawd.backups.contents import Source
from clawd.commands import backups
from clawd.errors import DiskFull, NotFound, UsageError
from clawd.faults import InjectedFault
from clawd.ledger.db import Ledger
from tests.backups.conftest import Ground

ROOT = Path(__file__).parents[2]


def paths(ground: Ground, **options: object) -> set[str]:
    return set(ground.back_up(**options).index.files)


def test_a_homes_backup_has_what_cannot_be_made_again_and_nothing_else(ground: Ground) -> None:
    home = ground.home
    (home.state / "index").mkdir()
    (home.state / "gateway").mkdir()
    (home.state / "audit").mkdir()
    (home.state / "skills" / "ab").mkdir(parents=True)
    for name in (
        "index/main.db",
        "gateway/authority.pem",
        "audit/audit.jsonl",
        "skills/ab/SKILL.md",
        "logs/clawd.jsonl",
    ):
        (home.state / name).write_text("x")
    (home.root / "api.key").write_text("secret")
    ground.back_up()  # the first one is not in the second
    found = paths(ground)
    assert {
        "config.toml", "people.toml", "skills/skill-writer/SKILL.md", "groups/main/CLAUDE.md",
        "groups/main/memory/MEMORY.md", "groups/main/sessions/terminal_main.md", "groups/side/work/a/run.sh",
        "state/ledger.db", "state/trust.jsonl", "state/known.json", "state/audit/audit.jsonl",
        f"state/blobs/{'0' * 64}",
    } <= found  # fmt: skip
    without = ("state/lock", "state/ballast", "state/backups", "state/index", "state/gateway", "state/skills",
               "state/logs", "state/control", "api.key")  # fmt: skip
    assert not [path for path in found if path.startswith(without)]


def test_a_groups_backup_has_nothing_of_another_group(ground: Ground) -> None:
    made = ground.back_up(group="side", label="before-the-move")
    assert made.archive.name == "20261201T090000Z-before-the-move-side.tar.gz"
    files = set(made.index.files)
    own = {path for path in files if path.startswith("groups/side/")}
    assert own and files - own == {"state/ledger.jsonl", "state/trust.jsonl", "state/known.json"}
    subprocess.run(["tar", "xzf", made.archive, "-C", ground.home.root.parent, "state"], check=True)
    for name in ("ledger.jsonl", "trust.jsonl", "known.json"):
        text = (ground.home.root.parent / "state" / name).read_text()
        assert "side" in text and "main" not in text, name
    assert made.index.head.people == ("terminal:owner",) and made.index.head.groups == ("side",)


def test_no_link_is_followed_and_what_is_left_out_is_said(ground: Ground) -> None:
    work = ground.home.group("main").work
    os.mkfifo(work / "pipe")
    (work / "up").symlink_to("../..")
    outside = ground.home.root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (ground.home.group("side").root / "exports").symlink_to(outside)
    made = ground.back_up()
    said = {each.path: each.why for each in made.skipped}
    assert said == {
        "groups/main/work/notes": "it is a link",
        "groups/main/work/up": "it is a link",
        "groups/main/work/pipe": "it is no plain file",
        "groups/side/work/notes": "it is a link",
        "groups/side/exports": "it is a link",
    }
    assert {each.path for each in made.index.head.skipped} == set(said) and made.index.head.left == 5
    assert not [path for path in made.index.files if "secret" in path or "passwd" in path]


def test_names_that_an_agent_chose_are_names(ground: Ground) -> None:
    work = os.fsencode(ground.home.group("main").work)
    names = [b"new\nline", b"\xff\xfe", b"back\\slash", b"a" * 255, b"--option", b" ", "é\u202e".encode()]
    for name in names:
        Path(os.fsdecode(work + b"/" + name)).write_bytes(name)
    made = ground.back_up(group="main")
    assert {f"groups/main/work/{os.fsdecode(name)}" for name in names} <= set(made.index.files)
    assert reading.verify(made.archive).errors == []


def test_very_many_files_are_one_walk(ground: Ground) -> None:
    work = ground.home.group("main").work / "many"
    work.mkdir()
    (work / "0").write_bytes(b"x")
    for number in range(1, 5000):
        os.link(work / "0", work / str(number))
    assert len(ground.back_up(group="main").index.files) > 5000


def test_what_changes_while_it_is_read_is_left_out_or_whole(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    work = ground.home.group("main").work
    for name in ("gone", "linked", "cut", "grows"):
        (work / name).write_bytes(b"x" * (2 << 20))
    add = making._Copy._add
    tries = []

    def meanwhile(self: making._Copy, source: Source) -> None:
        if source.path == "groups/main/work/gone":
            (work / "gone").unlink()
        if source.path == "groups/main/work/linked":
            (work / "linked").unlink()
            (work / "linked").symlink_to("/etc/passwd")
        add(self, source)

    status = os.fstat

    def first(descriptor: int) -> os.stat_result:
        found = status(descriptor)
        name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if name.endswith("/cut"):
            tries.append(name)
            os.truncate(work / "cut", found.st_size - 5)
        if name.endswith("/grows"):
            with (work / "grows").open("ab") as file:
                file.write(b"more")
        return found

    monkeypatch.setattr(making._Copy, "_add", meanwhile)
    monkeypatch.setattr(making.os, "fstat", first)
    made = ground.back_up(group="main")
    monkeypatch.undo()
    said = {each.path.rpartition("/")[2]: each.why for each in made.skipped}
    assert said.pop("notes") and set(said) == {"gone", "linked", "cut"} and len(tries) >= 3, said
    assert 2 << 20 <= made.index.files["groups/main/work/grows"].bytes < (work / "grows").stat().st_size
    assert reading.verify(made.archive).errors == []
    assert {each.path for each in made.index.head.skipped} == {each.path for each in made.skipped}


def test_a_session_is_whole_blocks_while_it_is_written(ground: Ground) -> None:
    """Its writer holds it: until that is over nothing is read of it."""
    import fcntl
    import threading

    file = ground.home.group("main").sessions / "terminal_main.md"
    whole = file.read_bytes()
    with file.open("ab") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(b"\n<!-- msg:{")
        writer.flush()

        def complete() -> None:
            os.ftruncate(writer.fileno(), len(whole))
            fcntl.flock(writer, fcntl.LOCK_UN)

        threading.Timer(0.1, complete).start()
        made = ground.back_up(group="main")
    assert made.index.files["groups/main/sessions/terminal_main.md"].bytes == len(whole)


def test_it_is_made_beside_whoever_writes_the_ledger(ground: Ground) -> None:
    with ground.ledger() as ledger:
        ledger.tx(lambda tx: tx.execute("UPDATE grp SET taint = 0.25 WHERE name = 'side'"))  # in the journal alone
        made = ground.back_up()
    subprocess.run(["tar", "xzf", made.archive, "-C", ground.home.root.parent, "state/ledger.db"], check=True)
    copy = Ledger.open(ground.home.root.parent / "state" / "ledger.db")
    assert copy.tx(lambda tx: tx.one("SELECT taint FROM grp WHERE name = 'side'"))["taint"] == 0.25  # type: ignore[index]
    copy.close()


@pytest.mark.parametrize("point", ["backup-walked", "backup-copied", "backup-written"])
def test_what_is_not_whole_is_never_a_backup(ground: Ground, point: str) -> None:
    before = set(ground.home.backups.iterdir())
    faults.load(f"raise@{point}")
    with pytest.raises(InjectedFault):
        ground.back_up()
    assert set(ground.home.backups.iterdir()) == before
    faults.load(None)

    command = [sys.executable, "-m", "clawd", "--home", str(ground.home.root), "backup", "create"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CLAWD_FAULT": f"kill@{point}"}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert backups.listed(ground.home) == []
    made = ground.back_up()  # takes away what was left
    assert set(ground.home.backups.iterdir()) == before | {made.archive}
    assert [row["name"] for row in backups.listed(ground.home)] == [made.archive.name]


def test_a_maker_sweeps_nothing_of_another(ground: Ground) -> None:
    with making._place(ground.home) as place, making._whole(ground.home.backups / "x.tar.gz") as file:
        ground.back_up()
        assert place.is_dir()
        file.write(b"x")
    assert (ground.home.backups / "x.tar.gz").exists()
    [row] = [row for row in backups.listed(ground.home) if row["name"] == "x.tar.gz"]
    assert row["error"]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 6 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a disk")
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place], check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("keep_free", [0, 3 << 20])
def test_a_full_disk_is_a_sentence_and_leaves_nothing(ground: Ground, small: Path, keep_free: int) -> None:
    (ground.home.group("main").work / "big").write_bytes(os.urandom(12 << 20))
    with pytest.raises(DiskFull, match="gone again") as told:
        ground.back_up(to=small / "a.tar.gz", keep_free=keep_free)
    assert "free some space" in str(told.value.hint) and list(small.iterdir()) == []
    (ground.home.group("main").work / "big").unlink()
    assert ground.back_up(to=small / "a.tar.gz", keep_free=keep_free).archive.exists()


def test_what_is_to_stay_free_stays_free(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = shutil.disk_usage(ground.home.root)
    with pytest.raises(DiskFull, match="keep_free"):
        monkeypatch.setattr(making, "free_bytes", lambda path: 1 << 20)
        ground.back_up(keep_free=disk.total)
    assert backups.listed(ground.home) == []


@pytest.mark.parametrize("label", ["", "../x", "a b", "x" * 41, "é", "a/b", "a.b"])
def test_a_label_is_a_word(ground: Ground, label: str) -> None:
    with pytest.raises(UsageError, match="label"):
        ground.back_up(label=label)


def test_where_a_backup_may_lie(ground: Ground, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        ground.back_up(group="nobody")
    with pytest.raises(UsageError, match="agent could read it"):
        ground.back_up(to=ground.home.group("main").work / "a.tar.gz")
    (tmp_path / "in").symlink_to(ground.home.group("main").work)
    with pytest.raises(UsageError, match="agent could read it"):
        ground.back_up(to=tmp_path / "in" / "a.tar.gz")
    with pytest.raises(NotFound):
        ground.back_up(to=tmp_path / "no" / "a.tar.gz")
    made = ground.back_up(to=tmp_path / "a.tar.gz")
    assert made.archive == tmp_path / "a.tar.gz" and made.archive.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="not overwritten"):
        ground.back_up(to=tmp_path / "a.tar.gz")
    assert [ground.back_up().archive.name for _ in range(2)] == ["20261201T090000Z.tar.gz", "20261201T090000Z.2.tar.gz"]


def test_progress_comes_to_all_of_it(ground: Ground) -> None:
    said: list[tuple[int, int]] = []
    ground.back_up(progress=lambda done, total: said.append((done, total)))
    assert said == sorted(said) and len({total for _, total in said}) == 1 and said[-1][0] >= said[-1][1] > 0
