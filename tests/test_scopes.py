"""Who may write where and read what: the one rule for memories and skills."""

from __future__ import annotations

import string
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.errors import Refused, UsageError
from clawd.scopes import LONGEST, Scopes, is_namespace, is_shared, namespace, narrowed, scope_of

GOOD = ["a", "team/shared", "private/a", "shared/team", "shared/team/x", "a.b-c_d/0", "..a", "a..", "x" * LONGEST]
BAD = [
    "", "/", "/a", "a/", "a//b", ".", "..", "...", "../x", "a/../b", "a/.", "shared", "shared/", "shared/..", "A",
    "a b", "a\n", "a\0", "%2e%2e/a", "a%2fb", "a\\b", "..\\x", "а", "ｓhared/x", "sharеd/x", "a\u2215b", "a\u200bb",
    "a:b", "shared/x\u202e", "x" * (LONGEST + 1), "é", "ß", "İ", "\u0131", None, 7, ["a"],
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_what_is_a_namespace(name: str) -> None:
    assert namespace(name) == name and is_namespace(name)


@pytest.mark.parametrize("name", BAD)
def test_what_is_none_is_refused_with_a_sentence(name: object) -> None:
    assert not is_namespace(name)
    with pytest.raises(UsageError, match="is no namespace: it has a-z") as refused:
        namespace(name)
    assert "shared/garden" in (refused.value.hint or "") and refused.value.message.isascii()


@given(st.text(alphabet=st.one_of(st.sampled_from("./ab"), st.characters()), max_size=12))
@settings(max_examples=200)
def test_a_namespace_is_one_path_below_wherever_it_is_put(text: str) -> None:
    if not is_namespace(text):
        return
    assert set(text) <= set(string.ascii_lowercase + string.digits + "._-/")
    assert all(part.strip(".") for part in text.split("/"))


A, B, C = (Scopes(name, frozenset({"shared/x"} if name != "c" else ())) for name in "abc")


@pytest.mark.parametrize(
    ("scopes", "writes", "spaces"),
    [
        (Scopes("a"), "group:a", {""}),
        (Scopes("a", namespace="private/a"), "group:a", {"", "private/a"}),
        (Scopes("a", namespace="team/shared"), "group:a", {"", "team/shared"}),
        (Scopes("a", frozenset({"shared/x"})), "group:a", {"", "shared/x"}),
        (Scopes("a", frozenset({"shared/x"}), "shared/x"), "shared:x", {"", "shared/x"}),
        (Scopes("a", frozenset({"shared/x"}), "private/a"), "group:a", {"", "private/a", "shared/x"}),
        (Scopes("a", frozenset({"shared/y"}), "shared/x"), None, {"", "shared/y"}),
    ],
)
def test_where_a_group_writes_and_what_it_reads_of_itself(scopes: Scopes, writes: str | None, spaces: set[str]) -> None:
    assert scopes.spaces == spaces
    if writes is not None:
        assert scopes.write() == writes == scope_of("a", scopes.namespace)
    else:
        with pytest.raises(Refused, match="does not list shared/x") as refused:
            scopes.write()
        assert refused.value.hint == 'write shared = ["shared/x"] in its group.toml'


@pytest.mark.parametrize(
    ("reader", "scope", "writer", "may"),
    [
        (A, "group:a", A, True),
        (A, "group:b", B, False),
        (A, "group:a", B, False),  # it lies with another
        (A, "shared:x", B, True),
        (A, "shared:x", A, True),
        (A, "shared:x", C, False),  # who wrote it does not list it
        (C, "shared:x", A, False),
        (A, "shared:y", B, False),
        (A, "shared:../x", B, False),
        (A, "", A, False),
        (A, "a", A, False),
        (A, "group:", A, False),
        (A, "*", B, False),
    ],
)
def test_what_is_read(reader: Scopes, scope: str, writer: Scopes, may: bool) -> None:
    assert reader.may_read(scope, writer) is may


def test_between_groups_both_must_list_it() -> None:
    for one, other in product((A, B, C), repeat=2):
        shared = {"shared/x"} if {one.group, other.group} == {"a", "b"} else set()
        assert one.beside(other) == other.beside(one) == shared
    assert Scopes("b", namespace="private/a").beside(Scopes("a", namespace="private/a")) == set()


def test_nobody_lists_what_stays_in_a_group() -> None:
    for name in ("team/shared", "private/a", "../x", "shared"):
        with pytest.raises(UsageError):
            Scopes("a", frozenset({name}))
    with pytest.raises(UsageError):
        Scopes("a", namespace="../x")
    assert is_shared("shared/x") and not is_shared("team/shared")


NAMES = st.sampled_from(["", "a", "private/a", "shared/x", "shared/y", "shared/x/y"])
LISTS = st.frozensets(st.sampled_from(["shared/x", "shared/y", "shared/x/y"]))


@given(LISTS, LISTS, st.sampled_from(["", "a", "private/a"]), st.lists(NAMES))
@settings(max_examples=100)
def test_asking_never_widens(own: frozenset[str], other: frozenset[str], name: str, asked: list[str]) -> None:
    one, two = Scopes("a", own, name), Scopes("b", other, name)
    assert one.beside(two) <= own & other
    assert narrowed(one.spaces, asked) <= one.spaces and narrowed(one.spaces, []) == set()
    assert all(one.may_read(scope_of("b", each), two) == (each in one.beside(two)) for each in asked)
