"""`@path`: what counts as one, what is let in, what is refused aloud."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.config.home import GroupHome
from clawd.context.imports import decoded, mentions, resolve


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@a.md", ["a.md"]),
        ("see @./a.md, or @../b and @docs/c\\ d.md#part", ["./a.md,", "../b", "docs/c d.md"]),
        ("@/abs.md @~/home.md\r\n@x\n- @y\n# @z\n> @q", ["/abs.md", "~/home.md", "x", "y", "z", "q"]),
        ("ada@example.org (@a.md) x@b /@c @ @@d @/ @# @%e", []),
        ("`@a.md` ``x ` @b`` @c.md", ["c.md"]),
        ("one `tick and @a.md", ["a.md"]),
        ("a `span\nover lines @a.md` @b", ["b"]),
        ("a `tick\n\n@a.md and a ` tick", ["a.md"]),
        ("\\`@a.md \\` @b.md", ["b.md"]),
        ("```\n@a.md\n```\n@b.md", ["b.md"]),
        ("  ~~~~ text\n@a.md\n```\n~~~\n~~~~\n@b.md", ["b.md"]),
        ("```\n@never.md\nclosed", []),
        ("``` not `a fence\n@a.md", ["a.md"]),
        ("text\n\n    @code.md\n\n    @code.md\n\n@b.md", ["b.md"]),
        ("text\n    @a.md", ["a.md"]),
        ("- item\n\n    @a.md\n\nend\n\n\t@code.md", ["a.md"]),
        ("<!-- @a.md --> @b.md <!-- @c.md\n@d.md --> @e.md", ["b.md", "e.md"]),
        ("`<!--` @a.md", ["a.md"]),
        ("\ufeff@a.md", ["a.md"]),
    ],
)
def test_what_is_an_import(text: str, found: list[str]) -> None:
    assert list(mentions(text)) == found


@given(st.from_regex(r"([`~@<!\-> \t\n\\a]|-->|```|@a\.md)*", fullmatch=True))
def test_any_text_is_read(text: str) -> None:
    assert all("\n" not in each for each in mentions(text))


@pytest.fixture
def group(tmp_path: Path) -> GroupHome:
    group = GroupHome(tmp_path / "groups" / "main")
    group.root.mkdir(parents=True)
    return group


def put(group: GroupHome, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = group.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)


def test_they_are_found_from_the_file_that_names_them(group: GroupHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(group.root.parents[1]))
    put(
        group,
        {"docs/a.md": "@b.md @../top.md", "docs/b.md": "B", "top.md": "T @CLAUDE.md @user_profile.md", "h.md": "H"},
    )
    found = resolve(
        group, [("CLAUDE.md", f"@docs/a.md @{group.root}/top.md"), ("user_profile.md", "@~/groups/main/h.md")]
    )
    assert [name for name, _ in found.files] == ["docs/a.md", "top.md", "h.md", "docs/b.md"]
    assert found.refused == []


def test_four_hops_and_cycles(group: GroupHome) -> None:
    put(group, {f"{n}.md": f"@{n + 1}.md @1.md" for n in range(1, 7)})
    found = resolve(group, [("CLAUDE.md", "@1.md")])
    assert [name for name, _ in found.files] == ["1.md", "2.md", "3.md", "4.md"]
    assert found.refused == ["@5.md in 4.md is not imported: it is more than 4 imports away from CLAUDE.md"]
    near = resolve(group, [("CLAUDE.md", "@1.md @5.md")])
    assert [name for name, _ in near.files] == ["1.md", "5.md", "2.md", "6.md", "3.md", "4.md"]


def link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("name", "why", "spoil"),
    [
        *[(f"{place}/a.md", "word", None) for place in ("inbox", "memory", "sessions", "import", "exports", "MEMORY")],
        ("work/a.md", "agent's", None),
        ("work.20261201-090000.ab12/a.md", "agent's", None),
        ("x/../work/a.md", "agent's", None),
        (".git/config", "nothing in .git", None),
        ("skills/.proposed/a.md", "nothing in .proposed", None),
        ("../other/CLAUDE.md", "outside", None),
        ("/etc/passwd", "outside", None),
        ("~/x.md", "outside", None),
        ("missing.md", "no such file", None),
        ("./missing", "no such file", None),
        ("a.md", "link", link),
        ("a.md", "not a regular file", fifo),
        ("a.md", "others can write", lambda path: path.chmod(0o666)),
        ("a.md", "larger than 1 MB", lambda path: os.truncate(path, (1 << 20) + 1)),
        ("a.md", "no text", lambda path: path.write_bytes(b"\0")),
        ("docs/a.md", "not a regular file", lambda path: link(path.parent)),
    ],
)
def test_what_is_not_surely_the_owner_s_is_refused_aloud(group: GroupHome, name: str, why: str, spoil) -> None:
    (group.root / "x").mkdir()
    if "missing" not in name and not name.startswith(("/", "~", "..")):
        put(group, {name: "secret"})
    if spoil:
        spoil(group.root / name)
    found = resolve(group, [("CLAUDE.md", f"@{name}")])
    assert found.files == []
    assert len(found.refused) == 1 and f"@{name} in CLAUDE.md" in found.refused[0] and why in found.refused[0]


def test_another_s_file_and_another_name_of_work(group: GroupHome) -> None:
    put(group, {"work/a.md": "x", "a.md": "x"})
    if os.geteuid() == 0:
        os.chown(group.root / "a.md", 64_001, 64_001)
        assert "another user" in resolve(group, [("CLAUDE.md", "@a.md")]).refused[0]
    (group.root / "w").symlink_to("work")
    assert "link" in resolve(group, [("CLAUDE.md", "@w/a.md")]).refused[0]


def test_words_are_no_missing_files(group: GroupHome) -> None:
    assert resolve(group, [("CLAUDE.md", "@alice maintains @scope/package")]).refused == []


def test_all_together_have_a_limit(group: GroupHome) -> None:
    put(group, {"a.md": "a" * (1 << 20), "b.md": "b"})
    found = resolve(group, [("CLAUDE.md", "@a.md @b.md")])
    assert [name for name, _ in found.files] == ["a.md"] and "all imports together" in found.refused[0]


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbfBOM\r\nCRLF\r", "é\u2028".encode(), b"a" * (1 << 20)])
def test_bytes_stay_as_they_are(data: bytes) -> None:
    text, told = decoded("CLAUDE.md", data)
    assert text.encode() == data and told == []


def test_what_is_no_utf_8_is_said() -> None:
    text, told = decoded("CLAUDE.md", b"caf\xe9")
    assert text == "caf\ufffd" and "byte 3" in told[0]
