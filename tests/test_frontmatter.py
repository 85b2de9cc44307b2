"""What is read of the YAML at the top of a Markdown file, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd import frontmatter
from clawd.frontmatter import Unreadable


def read(text: str) -> tuple[dict[str, Any], str, list[str]]:
    return frontmatter.read(text, "SKILL.md")


def fields(head: str) -> dict[str, Any]:
    return read(f"---\n{head}\n---\nbody\n")[0]


@pytest.mark.parametrize(
    ("head", "value"),
    [
        ("a: yes\nb: 1.10\nc: 2026-12-01\nd: 0x10", {"a": "yes", "b": "1.10", "c": "2026-12-01", "d": "0x10"}),
        ("a: ~\nb:\nc: null\nd: 'null'", {"d": "null"}),
        ("a: >-\n  one\n  two\nb: |\n  x\n  ---\n  y", {"a": "one two", "b": "x\n---\ny\n"}),
        ("a: one --- two\nb: '---'", {"a": "one --- two", "b": "---"}),
        ("a: [x, y]\nb:\n  c: d\n  e: {f: g}", {"a": ["x", "y"], "b": {"c": "d", "e": {"f": "g"}}}),
        ("a: <b>&amp;</skills>", {"a": "<b>&amp;</skills>"}),
        ("<<: {a: b}", {"<<": {"a": "b"}}),
        ("# nothing but this\na: b # and this", {"a": "b"}),
    ],
)
def test_scalars_are_the_text_that_stands_there(head: str, value: Any) -> None:
    assert fields(head) == value


@pytest.mark.parametrize(
    ("head", "value"),
    [
        ("a: Use when: x, or y: z", {"a": "Use when: x, or y: z"}),
        ("a: Use when: x\nb: [c, d]\ne:\n  f: g", {"a": "Use when: x", "b": ["c", "d"], "e": {"f": "g"}}),
        ("a: [WIP] what it does", {"a": "[WIP] what it does"}),
        ('a: @mention: "quoted" and \\ slashes', {"a": '@mention: "quoted" and \\ slashes'}),
        ("a: **Bold**: yes", {"a": "**Bold**: yes"}),
        ("a: `code`", {"a": "`code`"}),
    ],
)
def test_plain_text_that_yaml_refuses_is_read_with_a_note(head: str, value: Any) -> None:
    found, _, notes = read(f"---\n{head}\n---\n")
    assert found == value and "line 2 of SKILL.md is no YAML" in notes[0] and "put it in quotes" in notes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no frontmatter", "does not begin with a line ---"),
        ("\n---\na: b\n---\n", "does not begin"),
        ("---\na: b\n", "does not end"),
        ("---\na: &x [1]\n---\n", "line 2 of SKILL.md has an anchor"),
        ("---\na: 1\nb: *x\n---\n", "line 3 of SKILL.md has an anchor or an alias"),
        ("---\na: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n---\n", "an anchor or an alias"),
        ("---\na: !!python/object/apply:os.system ['true']\n---\n", "has a tag (!)"),
        ("---\na: !x y\n---\n", "has a tag (!)"),
        ("---\na: b\na: c\n---\n", "'a' stands in the frontmatter of SKILL.md twice"),
        ("---\na:\n  b: 1\n  b: 2\n---\n", "'b' stands"),
        ("---\n? [a]\n: b\n---\n", "a key that is no text"),
        ("---\n- a\n- b\n---\n", "not made of lines like"),
        ("---\nonly words\n---\n", "not made of lines like"),
        ("---\n---\n", "not made of lines like"),
        ("---\na: 'open\n---\n", "is no YAML"),
        ("---\na: b\n--- \t\n--- c\n", None),
        ("---\na: b\n--- c\n---\n", "more than one document"),
        ("---\na: " + "[" * 20 + "]" * 20 + "\n---\n", "nested too deep"),
        ("---\na:\n  " + "[" * 5000 + "\n---\n", "no YAML"),
        ("---\na: " + "x" * 40_000 + "\n---\n", "longer than 32,768 characters"),
        ("---\na: \x01\n---\n", "characters that YAML does not take"),
    ],
)
def test_what_is_refused_says_where(text: str, words: str | None) -> None:
    if words is None:
        assert read(text)[1] == "\n--- c\n"
        return
    with pytest.raises(Unreadable) as caught:
        read(text)
    assert words in caught.value.message


LINES = st.lists(
    st.sampled_from(["a: b", "a:", "  - x", "  c: d", "---", "b: c: d", "'", "*a", "&a", "? x", ">", "{", "]", "\t"])
)


@given(st.one_of(st.text(max_size=200), LINES.map("\n".join)))
def test_nothing_but_a_sentence_comes_of_any_text(head: str) -> None:
    try:
        found, _, _ = read(f"---\n{head}\n---\n")
    except Unreadable as error:
        assert error.message
    else:
        assert all(isinstance(key, str) for key in found)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(min_size=1), max_size=4))
def test_what_yaml_writes_is_read_again(value: dict[str, str]) -> None:
    import yaml

    head = yaml.safe_dump(value, default_style='"')
    if value:
        assert read(f"---\n{head}---\n")[0] == value
