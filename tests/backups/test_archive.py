"""An archive that is anybody's: what is not sound is told, by a sentence, and nothing of it is ever put anywhere."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import stat
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.backups import index as indexes
from clawd.backups import reading, restoring
from clawd.backups.archive import SMALL, Reader, Shrunk, Writer
from clawd.backups.index import Entry, Folder, Head, Index, Unsound, parse, render
from clawd.errors import ClawdError, NotFound, Refused
from tests.backups.conftest import Ground, hashes

HEAD = Head("home", None, None, "2026-12-01T09:00:00.000+00:00", "0.1.0", 9, ("main",), ("terminal:owner",))


def entry(path: str, data: bytes, **more: object) -> Entry:
    import hashlib

    return replace(Entry(path, len(data), 0o600, hashlib.sha256(data).hexdigest(), 0), **more)  # type: ignore[arg-type]


class Forged:
    """An archive made by hand: `files` are in the index, `members` in the tar."""

    def __init__(self) -> None:
        self.files = {"config.toml": b"schema = 1\n", "groups/main/work/a.txt": b"a" * 1000}
        self.index = Index(HEAD)
        for path, data in self.files.items():
            self.index.files[path] = entry(path, data)
        self.members: list[tuple[tarfile.TarInfo, bytes]] = [member(path, data) for path, data in self.files.items()]
        self.text: bytes | None = None
        self.whole: bytes | None = None

    def bytes(self) -> bytes:
        if self.whole is not None:
            return gzip.compress(self.whole)
        text = self.text if self.text is not None else render(self.index)
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for info, data in [member("index.json", text), *self.members]:
                tar.addfile(info, io.BytesIO(data))
        return gzip.compress(out.getvalue())


def member(path: str, data: bytes = b"", type: bytes = tarfile.REGTYPE, to: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(path)
    info.size, info.type, info.linkname = len(data), type, to
    return info, data


def put(path: str, data: bytes = b"x", type: bytes = tarfile.REGTYPE, to: str = "") -> Callable[[Forged], None]:
    return lambda forged: forged.members.append(member(path, data, type, to))


def named(path: str, **more: object) -> Callable[[Forged], None]:
    """In the index and in the tar."""

    def change(forged: Forged) -> None:
        forged.index.files[path] = entry(path, b"x", **more)
        forged.members.append(member(path, b"x"))

    return change


def line(**values: object) -> Callable[[Forged], None]:
    """One more line in the index."""

    def change(forged: Forged) -> None:
        forged.text = render(forged.index).replace(b"\n]}", b",\n" + json.dumps(values).encode() + b"\n]}")

    return change


def longer(forged: Forged) -> None:
    forged.members[1] = member("groups/main/work/a.txt", bytes(50 << 20))


def other(forged: Forged) -> None:
    forged.members[1] = member("groups/main/work/a.txt", b"b" * 1000)


def newer(forged: Forged) -> None:
    forged.text = render(forged.index).replace(b'"schema": 1', b'"schema": 2', 1)


def many(forged: Forged) -> None:
    forged.text = b"[" * 100_000


def huge(forged: Forged) -> None:
    """A header says so; there is nothing behind it."""
    info, _ = member("index.json")
    info.size = indexes.MOST_BYTES + 1
    forged.whole = info.tobuf()


HOSTILE: dict[str, tuple[Callable[[Forged], object], str]] = {
    "absolute": (named("/etc/cron.d/x"), "no path inside"),
    "up": (named("groups/main/../../../x"), "no path inside"),
    "up alone": (named(".."), "no path inside"),
    "dot": (named("groups/./main/x"), "no path inside"),
    "empty": (named("groups//main/x"), "no path inside"),
    "deep": (named("groups/main/work/" + "d/" * 200 + "x"), "no path inside"),
    "long": (named("groups/main/work/" + "n" * 300), "no path inside"),
    "elsewhere": (named("state/lock"), "does not hold"),
    "a key": (named("state/gateway/authority.pem"), "does not hold"),
    "its backups": (named("state/backups/x.tar.gz"), "does not hold"),
    "no group": (named("groups/-x/work/a"), "does not hold"),
    "beside": (named("bashrc"), "does not hold"),
    "absolute, not in the index": (put("/etc/cron.d/x"), "is not in its index"),
    "up, not in the index": (put("../../x"), "is not in its index"),
    "more": (put("groups/main/work/b.txt"), "is not in its index"),
    "symbolic link": (put("groups/main/work/l", b"", tarfile.SYMTYPE, "/etc/passwd"), "a link"),
    "link": (put("groups/main/work/l", b"", tarfile.LNKTYPE, "config.toml"), "a link"),
    "link in the place of a file": (put("config.toml", b"", tarfile.SYMTYPE, "/etc/passwd"), "a link"),
    "device": (put("groups/main/work/d", b"", tarfile.CHRTYPE), "a device"),
    "disk": (put("groups/main/work/d", b"", tarfile.BLKTYPE), "a device"),
    "pipe": (put("groups/main/work/d", b"", tarfile.FIFOTYPE), "a pipe"),
    "directory": (put("groups/main/work/d", b"", tarfile.DIRTYPE), "a directory"),
    "sparse": (put("groups/main/work/d", b"", tarfile.GNUTYPE_SPARSE), "no plain file"),
    "twice": (put("config.toml", b"schema = 1\n"), "twice"),
    "twice in the index": (line(path="config.toml", bytes=1, mode=384, sha256="0" * 64, mtime_ns=0), "twice"),
    "a file as a directory": (named("groups/main/work/a.txt/b"), "as a file and as a directory"),
    "bomb": (longer, "52,428,800 bytes, its index says 1,000"),
    "another content": (other, "its hash is another one"),
    "missing": (lambda forged: forged.members.pop(), "is missing"),
    "no hash": (line(path="people.toml", bytes=1, mode=384, sha256="z", mtime_ns=0), "no hash"),
    "no length": (line(path="people.toml", bytes=-1, mode=384, sha256="0" * 64, mtime_ns=0), "no usable 'bytes'"),
    "set-uid": (line(path="people.toml", bytes=1, mode=0o4755, sha256="0" * 64, mtime_ns=0), "no usable 'mode'"),
    "a newer clawd's": (newer, "use the newer clawd"),
    "nested": (many, "not one of clawd's"),
    "no index": (lambda forged: setattr(forged, "text", b"{}"), "not one of clawd's"),
    "a huge index": (huge, "does not begin with an index"),
}


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory, template: Ground) -> Ground:
    return template.copied(tmp_path_factory.mktemp("standing") / "home")


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_sound_is_told_and_never_put_anywhere(tmp_path: Path, standing: Ground, name: str) -> None:
    change, says = HOSTILE[name]
    forged, archive = Forged(), tmp_path / "a.tar.gz"
    change(forged)
    archive.write_bytes(forged.bytes())
    verdict = reading.verify(archive)
    assert not verdict.ok and says in " ".join(str(each) for each in verdict.errors) + _hint(archive), verdict.errors

    root = standing.home.root
    before = hashes(root, "state/lock")
    with pytest.raises(Refused):
        restoring.restore(standing.home, archive, standing.clock)
    assert hashes(root, "state/lock") == before and not (tmp_path / "x").exists()
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises((Refused, ClawdError)):  # also where nobody looked before
        reading.extract(archive, into, lambda path: True, lambda done, total: None)
    assert not [path for path in into.rglob("*") if path.is_symlink() or (not path.is_file() and not path.is_dir())]
    assert all(path.stat().st_size <= 1000 for path in into.rglob("*") if path.is_file() and name != "another content")


def _hint(archive: Path) -> str:
    try:
        reading.index_of(archive)
    except ClawdError as error:
        return str(error.hint)
    return ""


def test_a_sound_one_is_sound(tmp_path: Path) -> None:
    (archive := tmp_path / "a.tar.gz").write_bytes(Forged().bytes())
    assert reading.verify(archive).errors == []


@pytest.mark.parametrize("part", [0, 1, 9, 100, 0.3, 0.7, -9, -1])
def test_what_was_cut_off_is_told(ground: Ground, part: float) -> None:
    archive = ground.back_up().archive
    data = archive.read_bytes()
    archive.write_bytes(data[: int(part * len(data)) if isinstance(part, float) else part])
    verdict = reading.verify(archive)
    assert not verdict.ok and len(verdict.errors) == 1


def test_a_bit_that_fell_over_is_told(ground: Ground) -> None:
    archive = ground.back_up().archive
    data = bytearray(archive.read_bytes())
    for at in range(40, len(data), len(data) // 25):
        bad = bytearray(data)
        bad[at] ^= 4
        archive.write_bytes(bad)
        assert not reading.verify(archive).ok, at


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("hello")
    for name in ("pipe", "text"):
        assert reading.verify(tmp_path / name).errors
    with pytest.raises(NotFound):
        reading.verify(tmp_path / "nowhere")


def test_anybodys_tar_reads_it(ground: Ground, tmp_path: Path) -> None:
    (ground.home.group("main").work / ("n" * 200)).mkdir()
    (ground.home.group("main").work / ("n" * 200) / "é\n.txt").write_text("far")
    archive = ground.back_up().archive
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert names[0] == "index.json" and f"groups/main/work/{'n' * 200}/é\n.txt" in names
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(["tar", "xzf", archive, "-C", out], check=True)
    said = json.loads((out / "index.json").read_bytes())
    assert {each["path"] for each in said["files"]} | {"index.json"} == set(names)
    assert (said["kind"], said["groups"], said["people"]) == ("home", ["main", "side"], ["terminal:owner"])
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600


_name = st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..") and indexes.is_path(name)
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(_name, st.binary(max_size=3000), max_size=6), st.lists(_name, max_size=3))
def test_what_is_written_is_what_is_read(tmp_path: Path, files: dict[str, bytes], folders: list[str]) -> None:
    archive = tmp_path / "a.tar.gz"
    index = Index(HEAD)
    with archive.open("w+b") as file:
        paths = [f"groups/main/work/{name}" for name in files]
        room = indexes.head_room(HEAD) + sum(indexes.room_for(path) for path in [*paths, *folders]) + 3000
        writer = Writer(file, room, lambda more: None)
        for path, data in zip(paths, files.values(), strict=True):
            sha256, size = writer.add(path, io.BytesIO(data), len(data), 0o640, 5)
            index.files[path] = Entry(path, size, 0o640, sha256, 5)
        for name in folders:
            if (path := f"groups/main/inbox/{name}") not in index.folders:
                index.folders[path] = Folder(path, 0o700, True)
        writer.finish(render(index), 0)
    with Reader(archive) as reader:
        assert (reader.index.head, reader.index.files, reader.index.folders) == (index.head, index.files, index.folders)
        read = {each.name: each.data.read() for each in reader.members()}
    assert list(read) == paths and [bytes(each or b"") for each in read.values()] == list(files.values())


def test_a_large_file_that_shrinks_leaves_nothing_of_it(tmp_path: Path) -> None:
    archive, index = tmp_path / "a.tar.gz", Index(HEAD)
    with archive.open("w+b") as file:
        writer = Writer(file, 5000, lambda more: None)
        with pytest.raises(Shrunk):
            writer.add("groups/main/work/big", io.BytesIO(os.urandom(SMALL)), SMALL + 1, 0o600, 0)
        sha256, size = writer.add("config.toml", io.BytesIO(b"x"), 1, 0o600, 0)
        index.files["config.toml"] = Entry("config.toml", size, 0o600, sha256, 0)
        writer.finish(render(index), 0)
    assert reading.verify(archive).errors == [] and archive.stat().st_size < 10_000


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400) | st.tuples(st.integers(0, 900), st.binary(max_size=6)))
def test_no_index_is_a_defect_of_ours(noise: bytes | tuple[int, bytes]) -> None:
    if isinstance(noise, tuple):
        text = bytearray(render(Forged().index))
        text[noise[0] : noise[0] + len(noise[1])] = noise[1]
    else:
        text = bytearray(noise)
    with contextlib.suppress(Unsound, Refused):
        parse(io.BytesIO(text), len(text))
