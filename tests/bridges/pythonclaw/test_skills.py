"""Frontmatter as PythonClaw reads it, made into a SKILL.md that is ours; and the other way."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.bridges.pythonclaw import skills
from clawd.skills.skill import FILE, Skill, load, name_refused
from tests.bridges.pythonclaw.conftest import SKILL, lay
from tests.sessions.strategies import steady, texts


def loaded(root: Path, found: skills.Brought) -> Skill:
    lay(root / found.name, found.files)
    return load(root / found.name, shared=False)


@pytest.mark.parametrize(
    ("text", "fields", "body"),
    [
        ("---\nname: a\ndescription: b\n---\nc", {"name": "a", "description": "b"}, "c"),
        ("---\ndescription: >\n  one\n  two\n---\n", {"description": "one two"}, ""),
        ("---\ndescription: |\n  one\n  two\n---\n", {"description": "one\ntwo"}, ""),
        ("---\ndescription: >-\n  one\n  two\n---\n", {"description": ">-\none\ntwo"}, ""),
        ("---\ndescription: one\n  more\n---\n", {"description": "one\nmore"}, ""),
        ('---\nname: "a"\nempty:\n---\n', {"name": '"a"'}, ""),
        ("---\ndescription: a --- b\nname: c\n---\nd", {"description": "a"}, "b\nname: c\n---\nd"),
        ("---\nname: a: b\n---\n", {"name": "a: b"}, ""),
        ("---\nmetadata:\n  emoji: x\n  a: b\n---\n", {"metadata": "emoji: x\na: b"}, ""),
        ("name: a", {}, "name: a"),
        ("---\nname: a", {}, "---\nname: a"),
        ("\ufeff---\nname: a\n---\n", {}, "\ufeff---\nname: a\n---\n"),
    ],
)
def test_its_lines_are_read_as_it_reads_them(text: str, fields: dict[str, str], body: str) -> None:
    assert skills.parted(text) == (fields, body)


def test_a_skill_becomes_one_that_is_used_here(tmp_path: Path) -> None:
    files = {FILE: SKILL.encode(), "read.py": b"print(1)\n", "check_setup.sh": b"#!/bin/sh\n"}
    found = skills.brought(files, "pdf_reader", "data")
    skill = loaded(tmp_path, found)
    assert not skill.errors and not skill.warnings
    assert (skill.name, skill.description) == ("pdf-reader", "Reads PDF files. Use it when somebody sends one.")
    assert skill.metadata == {
        "emoji": "📄", "category": "data", "dependencies": "PyPDF2, Pillow", "fitness_score": "3.5"
    }  # fmt: skip
    assert skill.compatibility == "Needs these Python packages: PyPDF2, Pillow"
    assert skill.triggers == ("read pdf", "scan")
    assert "Run `python ./read.py`." in skill.body and skill.body.startswith("Paths that begin with `./`")
    assert found.files["read.py"] == b"print(1)\n"
    told = " · ".join(found.changed)
    assert all(each in told for each in ("'Pdf Reader'", "PyPDF2", "check_setup.sh", "{skill_path}"))


@pytest.mark.parametrize(
    ("text", "folder", "name", "description"),
    [
        ("no frontmatter", "my_skill", "my-skill", "No description."),
        ("---\nname: Größe 2\ndescription: 'x'\n---\n", "a", "größe-2", "x"),
        ("---\nname: con\n---\n", "a", "con-skill", "No description."),
        ("---\nname: ../../x\n---\n", "a", "x", "No description."),
        ("---\nname: !!!\n---\n", "a", "skill", "No description."),
        (f"---\nname: {'n' * 100}\n---\n", "a", "n" * 64, "No description."),
        ('---\nname: x\ndescription: say: "hi" \\ # & *\n---\n', "a", "x", 'say: "hi" \\ # & *'),
        ("\ufeff---\r\nname: x\r\ndescription: d\r\n---\r\nbody", "a", "x", "d"),
    ],
)
def test_names_and_descriptions_are_such_as_one_may_have(
    tmp_path: Path, text: str, folder: str, name: str, description: str
) -> None:
    skill = loaded(tmp_path, skills.brought({FILE: text.encode()}, folder))
    assert (skill.name, skill.description, skill.errors) == (name, description, ())


def test_of_two_with_one_name_the_second_has_a_number() -> None:
    found = skills.brought({FILE: b"---\nname: tides\n---\n"}, "x", taken={"tides"})
    assert found.name == "tides-2" and "another has that name" in found.changed[0]


@steady
@given(
    st.one_of(st.binary(max_size=200), texts.map(lambda text: f"---\n{text}\n---\nx".encode("utf-8", "replace"))), texts
)
def test_whatever_the_bytes_it_is_one_that_loads(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, folder: str
) -> None:
    found = skills.brought({FILE: data}, folder)
    assert name_refused(found.name) is None
    assert not loaded(tmp_path_factory.mktemp("skills"), found).errors


def ours(root: Path, text: str, name: str = "tides") -> Skill:
    lay(root / name, {FILE: text})
    return load(root / name, shared=False)


def test_ours_is_written_as_it_reads_it(tmp_path: Path) -> None:
    skill = ours(
        tmp_path,
        '---\nname: tides\ndescription: "Tells the tides --- high\n  and low"\ntriggers: [ebb, flow]\n'
        'metadata: {dependencies: "a, b", emoji: "🌊"}\n---\nRun /group/skills/tides/x.py\n---\nthen rest\n',
    )
    data = skills.given(skill).decode()
    assert data == (
        "---\nname: tides\ndescription: ebb, flow: Tells the tides -- high and low\ndependencies: a, b\n"
        "metadata:\n  emoji: 🌊\n---\nRun {skill_path}/x.py\n---\nthen rest\n"
    )
    fields, body = skills.parted(data)
    assert fields["name"] == "tides" and body.endswith("then rest")
    assert skills.dependencies(fields["dependencies"]) == ["a", "b"]


def test_there_and_back_the_words_are_the_same(tmp_path: Path) -> None:
    first = loaded(tmp_path / "a", skills.brought({FILE: SKILL.encode()}, "pdf_reader"))
    data = skills.given(first)
    second = loaded(tmp_path / "b", skills.brought({FILE: data}, "pdf-reader"))
    assert second.body == first.body and second.name == first.name
    assert first.description in second.description
    assert skills.given(second) == data
