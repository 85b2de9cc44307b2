from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.bridges.foreign import talks
from clawd.bridges.foreign.place import Place
from clawd.bridges.foreign.talks import NO_RESULT, Talks, call, called, result, said
from clawd.model import Block
from clawd.sessions.format import parse

BLOCKS = st.lists(
    st.one_of(
        st.builds(said, st.sampled_from(["user", "assistant"]), st.text(max_size=20), st.none()),
        st.builds(
            lambda ids: called("", None, [call(id, "t", {}) for id in ids]),
            st.lists(st.sampled_from("abc\0"), max_size=3),
        ),
        st.builds(lambda id, text: result(id, text, None), st.sampled_from("abcd"), st.text(max_size=9)),
    ),
    max_size=12,
)


def sessions(*added: tuple[str, list[Block]]) -> tuple[list[tuple[str | None, list[Block]]], list[tuple[str, ...]]]:
    found = Talks(Place(Path("/"), "nanobot"))
    for id, blocks in added:
        found.add("main", "s", id, blocks)
    read = [parse(item.files[""]) for item in found.items()]
    assert not any(each.problems for each in read)
    return [(each.session, each.blocks) for each in read], [item.changed for item in found.items()]


@given(BLOCKS)
def test_every_call_has_its_result_beside_it_and_no_word_is_lost(blocks: list[Block]) -> None:
    found, _ = sessions(("x", blocks))
    kept = found[0][1] if found else []

    words = [(block.role, block.content) for block in blocks if block.role != "tool" and not block.tool_calls]
    assert [(b.role, b.content) for b in kept if b.role != "tool" and not b.tool_calls] == [
        (role, text) for role, text in words if text.strip()
    ]
    waiting: list[str] = []
    for block in kept:
        if block.role == "tool":
            assert block.tool_call_id in waiting
            waiting.remove(block.tool_call_id)
        else:
            assert waiting == []
            waiting = [each["id"] for each in block.tool_calls]
            assert len(set(waiting)) == len(waiting) and all(waiting)
    assert waiting == []


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    ((_, blocks),), _ = sessions(("x", [called("", None, [call("a", "t", "{}")]), said("user", "and?", None)]))
    assert [(block.role, block.content) for block in blocks] == [
        ("assistant", ""),
        ("tool", NO_RESULT),
        ("user", "and?"),
    ]


def test_a_result_that_came_behind_other_words_is_beside_its_call() -> None:
    asked = [called("", None, [call("c", "look", {})]), said("user", "and?", None), result("c", "seen", None)]
    [(_, found)], [changed] = sessions(("a", asked))
    assert [(each.role, each.content) for each in found] == [("assistant", ""), ("tool", "seen"), ("user", "and?")]
    assert changed == ()


def test_two_conversations_of_one_name_are_two_and_an_odd_name_is_a_name() -> None:
    hello = [said("user", "hello", None)]
    found, _ = sessions(
        ("a", hello), ("a", hello), ("A", hello), ("../../\n\u202ex", hello), ("", hello), ("y" * 5_000, hello)
    )
    ids = [id for id, _ in found]
    assert sorted(each or "" for each in ids)[:5] == [
        "nanobot:../../x",
        "nanobot:A",
        "nanobot:a",
        "nanobot:a~2",
        "nanobot:chat",
    ]
    assert len(set(ids)) == 6


def test_the_newest_of_a_long_one_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talks, "BLOCKS", 3)
    many = [
        said("user", "1", None),
        called("", None, [call("a", "t", {})]),
        result("a", "r", None),
        *[said("user", n, None) for n in "23"],
    ]

    ((_, blocks),), (changed,) = sessions(("x", many))

    assert [block.content for block in blocks] == ["2", "3"]
    assert changed == ("only the newest 3 of 5 messages are brought",)


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("2026-06-30T10:00:00Z", 1_782_813_600),
        ("2026-06-30T12:00:00+02:00", 1_782_813_600),
        (1_782_813_600, 1_782_813_600),
        (1_782_813_600_000, 1_782_813_600),
        (1e300, None),
        ("soon", None),
        (True, None),
        (None, None),
        ([], None),
    ],
)
def test_when_it_was(value: object, at: int | None) -> None:
    found = talks.moment(value)
    assert (None if found is None else found.timestamp()) == at


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("x", "x"),
        (None, ""),
        (
            [{"type": "text", "text": "a"}, "b", {"type": "thinking", "thinking": "c"}, {"type": "image"}, 7],
            "a\n\nb\n\n[image]",
        ),
        ({"text": "x"}, ""),
        ([{"type": ["x"]}, {"type": "text", "text": {"x": 1}}], ""),
    ],
)
def test_what_was_said(content: object, text: str) -> None:
    assert talks.words(content) == text
