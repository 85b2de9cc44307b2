"""Folders and archives that anybody may have made: a skill comes of one, whole, or nothing does."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawd.errors import ClawdError, NotFound, UsageError
from clawd.skills.archive import add, set_aside
from tests.skills.folders import skill

TEXT = b"---\nname: digest\ndescription: Sums up a day.\n---\nDo it.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "skills"
    made.mkdir()
    return made


def zipped(path: Path, *entries: tuple[str | zipfile.ZipInfo, bytes], text: bytes = TEXT) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("SKILL.md", text)
        for name, content in entries:
            archive.writestr(name, content)
    return path


def moded(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr, info.create_system = mode << 16, 3
    return info


def tarred(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, content in ((tarfile.TarInfo("digest/SKILL.md"), TEXT), *members):
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, to: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname = kind, mode, to
    return info


def within(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def tree(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.lstat().st_mode) for path in root.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("suffix", [".zip", ".skill", ".tar", ".tar.gz", ".tgz", ".ZIP"])
def test_each_kind_of_archive(tmp_path: Path, root: Path, suffix: str) -> None:
    archive = tmp_path / f"whatever{suffix}"
    if suffix.lower() in (".zip", ".skill"):
        zipped(archive, (moded("scripts/run.py", 0o100755), b"#!"), ("__MACOSX/._x", b""), ("a/.DS_Store", b""))
    else:
        run = member("digest/scripts/run.py", mode=0o4755)
        tarred(
            archive, (run, b"#!"), (member("digest/d", tarfile.DIRTYPE), b""), mode="w" if suffix == ".tar" else "w:gz"
        )
    made = add(archive, root, shared=True)
    assert made.skill.name == "digest" and made.skill.path == root / "digest" and made.kept is None
    assert tree(root) == {"digest/SKILL.md": 0o644, "digest/scripts/run.py": 0o755}
    assert (made.notes == ()) == ("tar" not in suffix and "tgz" not in suffix)


def test_a_folder_is_copied_without_what_is_no_part_of_it(tmp_path: Path, root: Path) -> None:
    folder = skill(tmp_path, "digest-main", "name: digest\ndescription: x\n", scripts__run="#!", git__config="secret")
    (folder / "git").rename(folder / ".git")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "SKILL.md").chmod(0o666)
    (folder / "scripts/run").chmod(0o6755)
    (tmp_path / "here").symlink_to(folder)
    made = add(tmp_path / "here", root, shared=False)
    assert tree(root) == {"digest/SKILL.md": 0o644, "digest/scripts/run": 0o755}
    assert any("'link' is left out" in each for each in made.notes) and not made.skill.shared


def test_its_name_is_the_one_that_it_gives_itself_else_that_of_its_folder(tmp_path: Path, root: Path) -> None:
    bare = b"---\ndescription: x\n---\nx\n"
    assert add(zipped(tmp_path / "notes.zip", text=bare), root, shared=True).skill.name == "notes"
    assert (
        add(skill(tmp_path, "letters", "name: Two Words\ndescription: x\n"), root, shared=True).skill.name == "letters"
    )
    with pytest.raises(ClawdError, match="no name that a skill may have"):
        add(zipped(tmp_path / "No Name.zip", text=bare), root, shared=True)


def test_one_that_is_there_is_replaced_by_force_alone_and_kept(tmp_path: Path, root: Path) -> None:
    skill(root, "digest", body="the old one")
    archive = zipped(tmp_path / "digest.zip")
    with pytest.raises(UsageError, match="there is a skill digest already"):
        add(archive, root, shared=True)
    assert "the old one" in (root / "digest/SKILL.md").read_text()
    made = add(archive, root, shared=True, force=True)
    assert made.kept is not None and "the old one" in (made.kept / "SKILL.md").read_text()
    assert (root / "digest/SKILL.md").read_bytes() == TEXT and made.kept.parent == root / ".old"
    assert set_aside(root / "digest") != made.kept and not (root / "digest").exists()


HUGE = b"\0" * (20 << 20)
HOSTILE: list[tuple[str, tuple[tuple[str | zipfile.ZipInfo, bytes], ...], str]] = [
    ("slip", (("../evil", b"x"),), "would lie outside"),
    ("deep slip", (("a/../../evil", b"x"),), "would lie outside"),
    ("absolute", (("/tmp/evil", b"x"),), "would lie outside"),
    ("drive", (("C:\\evil", b"x"),), "would lie outside"),
    ("drive and slash", (("C:/evil", b"x"),), "would lie outside"),
    ("backslash", (("..\\evil", b"x"),), "would lie outside"),
    ("through a link", ((moded("d", stat.S_IFLNK | 0o777), b"/tmp"), ("d/evil", b"x")), "is there twice"),
    ("beneath a file", (("d", b"x"), ("d/evil", b"x")), "is there twice"),
    ("twice", (("SKILL.md", b"x"),), "is there twice"),
    ("case", (("skill.MD", b"x"),), "the case of letters"),
    ("case of a folder", (("a/x", b"x"), ("A/y", b"x")), "the case of letters"),
    ("composition", (("caf\u00e9", b"x"), ("cafe\u0301", b"x")), "is there twice"),
    ("bomb", (("x", HUGE),), "grows more than 100 times"),
    ("many", tuple((f"{n}", b"") for n in range(4_100)), "more than 2,000 files"),
    ("hidden", (("a\u202eb", b"x"),), "nobody could read the name"),
    ("line", (("a\nb", b"x"),), "nobody could read the name"),
    ("long", (("x" * 250, b"x"),), "is too long"),
    ("deep", (("/".join("d" * 40), b"x"),), "is too long"),
]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("entries", "words"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_hostile_zips_are_refused_and_nothing_stays(
    tmp_path: Path, root: Path, entries: tuple[tuple[str | zipfile.ZipInfo, bytes], ...], words: str
) -> None:
    archive = zipped(tmp_path / "evil.zip", *entries)
    with pytest.raises(ClawdError, match=words):
        add(archive, root, shared=True)
    assert list(root.iterdir()) == [] and within(tmp_path) == ["evil.zip", "skills"]


TARS: list[tuple[str, tarfile.TarInfo, bytes, str | None]] = [
    ("slip", member("../evil"), b"x", "would lie outside"),
    ("absolute", member("/tmp/evil"), b"x", "would lie outside"),
    ("link", member("digest/l", tarfile.SYMTYPE, to="/etc/passwd"), b"", None),
    ("hard link", member("digest/l", tarfile.LNKTYPE, to="/etc/passwd"), b"", None),
    ("pipe", member("digest/p", tarfile.FIFOTYPE), b"", None),
    ("device", member("digest/d", tarfile.CHRTYPE), b"", None),
    ("block device", member("digest/d", tarfile.BLKTYPE), b"", None),
    ("bomb", member("digest/x"), HUGE, "grows more than 100 times"),
    ("large", member("digest/x"), os.urandom(1 << 20) * 52, "is larger than 50 MB|more than 50 MB|grows"),
    ("beneath a file", member("digest/SKILL.md/x"), b"x", "is there twice"),
]


@pytest.mark.parametrize(("info", "content", "words"), [case[1:] for case in TARS], ids=[case[0] for case in TARS])
def test_hostile_tars(tmp_path: Path, root: Path, info: tarfile.TarInfo, content: bytes, words: str | None) -> None:
    archive = tarred(tmp_path / "evil.tgz", (info, content))
    if words is None:
        made = add(archive, root, shared=True)
        assert "is left out: it is a" in made.notes[0] and tree(root) == {"digest/SKILL.md": 0o644}
        return
    with pytest.raises(ClawdError, match=words):
        add(archive, root, shared=True)
    assert list(root.iterdir()) == []


def test_what_headers_claim_is_not_believed(tmp_path: Path, root: Path) -> None:
    """A header of a tar that says that gigabytes of names follow, which gzip packs into nothing; and one of a zip that
    says that little does."""
    info = member("x" * 200, tarfile.XHDTYPE)
    info.size = 4 << 30
    lies = tmp_path / "lies.tgz"
    with gzip.open(lies, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(200):
            file.write(b"\0" * (1 << 20))
    with pytest.raises(ClawdError, match=r"grows more than 100 times|more than 50 MB"):
        add(lies, root, shared=True)
    small = zipped(tmp_path / "small.zip", ("x", HUGE))
    data = small.read_bytes()
    small.write_bytes(data.replace(len(HUGE).to_bytes(4, "little"), (5).to_bytes(4, "little")))
    with pytest.raises(ClawdError, match=r"it is damaged|grows"):
        add(small, root, shared=True)
    assert list(root.iterdir()) == []


def test_what_cannot_be_unpacked_says_why(tmp_path: Path, root: Path) -> None:
    locked = zipped(tmp_path / "locked.zip", ("x", b"y"))
    data = bytearray(locked.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    locked.write_bytes(data)
    with zipfile.ZipFile(tmp_path / "other.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("SKILL.md", TEXT)
    for name in ("no.zip", "no.tar", "no.tgz"):
        (tmp_path / name).write_bytes(b"nothing of the kind" * 100)
    (tmp_path / "cut.tgz").write_bytes(
        tarred(tmp_path / "whole.tgz", (member("digest/x"), os.urandom(99_999))).read_bytes()[:5_000]
    )
    (tmp_path / "text.txt").touch()
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        pass
    two = tmp_path / "two"
    skill(two, "one-a")
    skill(two, "one-b")
    wrong = skill(tmp_path, "wrong", "name: wrong\n")
    for name, words in (
        ("locked.zip", "is encrypted"), ("other.zip", "an ordinary zip"), ("no.zip", "it is damaged"),
        ("no.tar", "it is damaged"),
        ("no.tgz", "it is damaged"), ("cut.tgz", "it is damaged"), ("text.txt", "is no folder and no archive"),
        ("empty.zip", "no SKILL.md at its top"), ("two", "add each of one-a, one-b"), (wrong.name, "no description"),
    ):  # fmt: skip
        with pytest.raises(ClawdError) as caught:
            add(tmp_path / name, root, shared=True)
        assert words in str(caught.value), name
    with pytest.raises(NotFound):
        add(tmp_path / "nowhere", root, shared=True)
    assert list(root.iterdir()) == []


def test_what_an_ended_command_left_is_removed_by_the_next(tmp_path: Path, root: Path) -> None:
    old, new = root / ".adding-1", root / ".adding-2"
    for left in (old, new):
        (left / "x").mkdir(parents=True)
    os.utime(old, (0, 0))
    add(zipped(tmp_path / "digest.zip"), root, shared=True)
    assert within(root) == [".adding-2", "digest"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(st.text(st.sampled_from("aA./\\é\u0301\0\n: C"), min_size=1, max_size=8), max_size=5))
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_no_name_leads_out_of_a_skill(tmp_path: Path, names: list[str]) -> None:
    root = tmp_path / "skills"
    infos = [zipfile.ZipInfo("placeholder") for _ in names]
    for info, name in zip(infos, names, strict=True):
        info.filename = name
    archive = zipped(tmp_path / "any.zip", *((info, b"x") for info in infos))
    with suppress(ClawdError):
        add(archive, root, shared=True, force=True)
    assert within(tmp_path) == ["any.zip", "skills"] and set(within(root)) <= {"digest", ".old"}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    suffix=st.sampled_from([".zip", ".tar", ".tgz"]),
    flips=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 1 << 10),
)
def test_nothing_but_a_sentence_comes_of_a_damaged_archive(
    tmp_path: Path, suffix: str, flips: list[tuple[int, int]], cut: int
) -> None:
    archive = tmp_path / f"any{suffix}"
    if suffix == ".zip":
        zipped(archive, ("x", b"y" * 99))
    else:
        tarred(archive, (member("digest/x"), b"y" * 99), mode="w" if suffix == ".tar" else "w:gz")
    data = bytearray(archive.read_bytes())
    for at, value in flips:
        data[at % len(data)] = value
    archive.write_bytes(data[: len(data) - cut % 8])
    with suppress(ClawdError):
        add(archive, tmp_path / "skills", shared=True, force=True)
