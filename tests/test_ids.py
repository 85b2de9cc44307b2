"""Names of files from names that others chose."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd import ids
from clawd.errors import UsageError
from tests.sessions.strategies import steady


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("mmkr:agent-1", "mmkr_agent-1"),
        ("telegram:-100123", "telegram_-100123"),
        ("../../x", "______x"),
        ("日本 é", "日本_é"),
        ("slack:T012/C345", "slack_T012_C345"),
    ],
)
def test_safe_name_is_pythonclaws(id: str, name: str) -> None:
    assert ids.safe_name(id) == name == ids.session_stem(id, taken=False)


@pytest.mark.parametrize(
    ("pattern", "id", "is_of"),
    [
        ("mmkr:*", "mmkr:agent-1", True),
        ("mmkr:*", "mmkr:", True),
        ("mmkr:*", "mmkr", False),
        ("mmkr:*", "MMKR:a", False),
        ("mmkr:*", "x mmkr:a", False),
        ("mmkr:agent-1", "mmkr:agent-1", True),
        ("mmkr:agent-1", "mmkr:agent-1.2", False),
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("a*a", "a", False),
        ("a*b*", "acbc", True),
        ("mm.r:[a-z]", "mmkr:a", False),
    ],
)
def test_what_is_of_a_pattern(pattern: str, id: str, is_of: bool) -> None:
    assert ids.matches(pattern, id) is is_of


@steady
@given(st.text(st.sampled_from("ab*"), max_size=8), st.text(st.sampled_from("ab*"), max_size=10))
def test_a_star_is_any_text(pattern: str, id: str) -> None:
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert ids.matches(pattern, id) is bool(re.fullmatch(expression, id, re.DOTALL))


@steady
@given(st.lists(st.text(st.sampled_from("aAéÉßs:/_- ~.\u0301"), min_size=1, max_size=6), unique=True, max_size=12))
def test_two_ids_never_share_a_stem(names: list[str]) -> None:
    taken: list[str] = []
    for name in names:
        taken.append(ids.choose_stem(name, taken))
    assert len({ids.folded(stem) for stem in taken}) == len(names)


@steady
@given(st.text(st.characters(), min_size=1, max_size=400), st.booleans())
def test_a_stem_is_a_safe_file_name(id: str, taken: bool) -> None:
    stem = ids.session_stem(id, taken)
    assert len(stem.encode("utf-8", "replace")) <= ids.STEM_BYTES
    assert "/" not in stem and "\0" not in stem and stem not in ("", ".", "..")
    assert ("~" in stem) == (taken or len(ids.safe_name(id).encode("utf-8", "replace")) > ids.STEM_BYTES)


@pytest.mark.parametrize("id", ["", " ", "a\nb", "a\x00", "a\u2028", "a\ud800", "x" * 1025])
def test_session_ids_that_are_refused(id: str) -> None:
    with pytest.raises(UsageError):
        ids.check_session_id(id)


@pytest.mark.parametrize("id", ["x", "mmkr:agent-1", "日本:é", "x" * 1024, "a <b>"])
def test_session_ids_that_are_taken(id: str) -> None:
    assert ids.check_session_id(id) == id


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "_a", "a b", "é", "x" * 65, "shared", "State", "a\n"])
def test_group_names_that_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        ids.folder_name(name)
    assert not ids.is_group_name(name)


@pytest.mark.parametrize("name", ["main", "A", "0-_", "x" * 64])
def test_group_names_that_are_taken(name: str) -> None:
    assert ids.folder_name(name) == name and ids.is_group_name(name)


@pytest.mark.parametrize("who", ["owner", "member:bob", "admin:a.b@c", "stranger:x"])
def test_speakers_that_are_taken(who: str) -> None:
    assert ids.check_speaker(who) == who


@pytest.mark.parametrize("who", ["owner:x", "member:", "member", "x", "", "member:a b", "owner\n"])
def test_speakers_that_are_refused(who: str) -> None:
    with pytest.raises(UsageError, match="nobody can speak"):
        ids.check_speaker(who)


def test_segments() -> None:
    assert [ids.segment_id("main", n) for n in (1, 2, 3)] == ["main", "main.2", "main.3"]


def test_new_ids_are_safe_and_new() -> None:
    made = {ids.new_id() for _ in range(100)}
    assert len(made) == 100
    assert all(len(id) == 16 and ids.safe_name(id) == id for id in made)


# Two ids with one name and the same first 8 digits of their sha256: found in a minute, by whoever chooses ids.
TWINS = ("mmkr:: :!|", "mmkr/@!!. ")


@pytest.mark.parametrize(
    ("names", "stems"),
    [
        (("mmkr:agent-1", "mmkr/agent-1", "mmkr_agent-1", "mmkr agent-1"), ("mmkr_agent-1", "mmkr_agent-1~")),
        (("main", "MAIN", "Main"), ("main", "MAIN~")),
        (("é", "e\u0301"), ("é", "e_")),  # a combining mark is no letter
        (("\u00c5", "\u212b"), ("Å", "\u212b~")),  # the ångström sign, which is normalised to the letter
        (("straße", "strasse", "STRASSE"), ("straße", "strasse~")),
        (("ß", "ẞ", "ss"), ("ß", "ẞ~")),
        (("ı", "i", "I"), ("ı", "i~")),
        (("İ", "i\u0307"), ("İ", "i_")),
        (("ﬁle", "file"), ("ﬁle", "file~")),
        (("ſ", "s", "S"), ("ſ", "s~")),
        (("Σ", "σ", "ς"), ("Σ", "σ~")),
        (("a\u3164", "a", "a\uffa0"), ("a\u3164", "a~")),  # a letter without a shape, which some disks leave out
        (("🦀", "🐙", "_"), ("_", "_~")),
        (("..", ".", "/"), ("__", "_")),
        (("../../etc/passwd", "..\\..\\etc\\passwd"), ("______etc_passwd", "______etc_passwd~")),
        (("x~12345678", "x_12345678"), ("x_12345678", "x_12345678~")),
        (("-rf", "--"), ("-rf", "--")),
        (("x" * 200, "x" * 201, "x" * 1024), ("x" * 200, "x" * 191 + "~")),
        (("日" * 67, "日" * 68), ("日" * 63 + "~", "日" * 63 + "~")),
        ((".md", "_md"), ("_md", "_md~")),
        (("con", "CON"), ("con", "CON~")),
        ((TWINS[0].replace("!", "?"), *TWINS), ("mmkr______", "mmkr______~952a6264", "mmkr______~952a6264")),
    ],
)
def test_ids_that_might_share_a_file(names: tuple[str, ...], stems: tuple[str, ...]) -> None:
    taken: list[str] = []
    for name in names:
        taken.append(ids.choose_stem(name, taken))
    assert len({stem.casefold() for stem in taken}) == len(names)
    for stem, expected in zip(taken, stems, strict=False):
        assert stem == expected or ("~" in expected and stem.startswith(expected))
    assert all(stem in list(ids.session_stems(name)) for stem, name in zip(taken, names, strict=True))
    assert all(len(stem.encode()) <= ids.STEM_BYTES for stem in taken)


def test_a_name_that_is_taken_has_a_number() -> None:
    taken = {"a", "a-2", "ab-cd"}
    assert [ids.free(name, lambda each: each not in taken) for name in ("a", "b")] == ["a-3", "b"]
    assert ids.free("ab-cd", lambda each: each not in taken, 5) == "ab-2"


@given(st.text(), st.sampled_from(("chat", "nanobot")))
def test_whatever_something_is_called_a_group_may_be_called_like_it(name: str, otherwise: str) -> None:
    like = ids.group_like(name, otherwise)
    assert ids.is_group_name(like) and (
        like == name or not ids.is_group_name(name) or name[-1] in "-_" or len(name) > 56
    )
