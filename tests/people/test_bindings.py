"""Which group and conversation a chat belongs to, and how one is given a group."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import ClawdError
from clawd.ids import is_group_name
from clawd.ledger import groups
from clawd.ledger.deliveries import binding_of
from clawd.people.bindings import Place, group_name
from tests.ledger.conftest import NOW
from tests.people.conftest import DIRECT, SHARED, World


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Family & Friends", "family-friends"),
        ("Família 👪", "familia"),
        ("Семья", "chat-2"),
        ("main", "main-2"),
        ("MAIN", "main-2"),
        ("", "chat-2"),
        ("../../etc", "etc"),
        ("state", "state-2"),  # a word of ours
        ("x" * 200, "x" * 40),
    ],
)
def test_a_new_group_is_called_like_its_chat(title: str, name: str) -> None:
    assert group_name(title, ["main", "Chat"]) == name


@given(st.text(), st.lists(st.sampled_from(["chat", "chat-2", "main", "a", "A-2"])))
def test_whatever_the_title_the_name_is_one_that_a_group_may_have(title: str, taken: list[str]) -> None:
    name = group_name(title, taken)
    assert is_group_name(name) and name.casefold() not in {each.casefold() for each in taken}


def test_a_chat_is_named_with_its_account() -> None:
    assert binding_of(DIRECT) == "telegram:7"
    assert binding_of(replace(DIRECT, channel="slack", account="T012", chat="C345")) == "slack:T012/C345"


@pytest.mark.anyio
async def test_a_message_is_part_of_its_groups_conversation_or_of_its_threads(world: World) -> None:
    world.group("work", 'bindings = ["telegram:-100", "slack:T012/C345"]')
    world.group("threads", 'bindings = ["telegram:-200", "discord:5"]\nsessions = "thread"')
    place = world.bindings.place
    assert await place(SHARED, "work") == Place("work", "telegram:-100")
    assert await place(replace(SHARED, channel="slack", account="T012", chat="C345"), "work") == Place(
        "work", "telegram:-100"
    )
    assert await place(replace(SHARED, thread="9"), "work") == Place("work", "telegram:-100")
    threads = replace(SHARED, channel="discord", chat="5")
    assert await place(replace(threads, thread="9"), "threads") == Place("threads", "discord:5:9")
    assert await place(threads, "threads") == Place("threads", "telegram:-200")
    assert await world.bindings.base("main") == "terminal:main"


@pytest.mark.anyio
async def test_a_chat_that_moves_to_another_group_begins_a_conversation_of_its_own_there(world: World) -> None:
    world.group("old", 'bindings = ["telegram:-100"]')
    world.group("new", "")
    for name in ("old", "new"):
        await world.operations.group(name)
    base = (await world.bindings.place(SHARED, "old")).base
    world.ledger.tx(lambda tx: groups.open_session(tx, base, "old", NOW))
    world.group("old", "")
    world.group("new", 'bindings = ["telegram:-100"]')
    for _ in range(2):
        place = await world.bindings.place(SHARED, "new")
        assert place == Place("new", "telegram:-100@new")
        world.ledger.tx(lambda tx, base=place.base: groups.open_session(tx, base, "new", NOW))
    assert (await world.bindings.place(SHARED, "old")).base != place.base


@pytest.mark.anyio
async def test_edits_hold_at_once_and_a_chat_of_two_groups_is_neithers_and_told_once(world: World) -> None:
    assert (await world.bindings.now()).of("telegram:-100") == ()
    world.group("a", 'bindings = ["telegram:-100", "telegram:-100"]')
    assert (await world.bindings.now()).of("telegram:-100") == ("a",)
    world.group("b", 'bindings = ["telegram:-100"]')
    for _ in range(2):
        assert (await world.bindings.now()).of("telegram:-100") == ("a", "b")
    assert len(world.told) == 1 and "telegram:-100 is in the bindings of a and b" in world.told[0]
    world.group("b", "")
    assert (await world.bindings.now()).of("telegram:-100") == ("a",)
    world.group("a", "nonsense")
    found = await world.bindings.now()
    assert found.of("telegram:-100") == () and list(found.broken) == ["a"]


@pytest.mark.anyio
@pytest.mark.parametrize("spoken", [False, True])
async def test_the_owners_chat_is_part_of_main_and_goes_on_with_what_was_said_at_the_terminal(
    world: World, spoken: bool
) -> None:
    await world.operations.group("main")
    world.group("main", "# mine\n")
    if spoken:
        world.ledger.tx(lambda tx: groups.open_session(tx, "terminal:main", "main", NOW))
    for _ in range(2):
        await world.bindings.bind_main("telegram:7")
    await world.bindings.bind_main("discord:5")
    assert world.bound() == [*(["terminal:main"] if spoken else []), "telegram:7", "discord:5"]
    assert "# mine" in world.home.group("main").config_file.read_text()
    assert await world.bindings.base("main") == ("terminal:main" if spoken else "telegram:7")


def test_a_group_of_its_own_is_made_whole_and_made_again_is_the_same(world: World) -> None:
    for _ in range(2):
        world.bindings.make("friends", "telegram:-100", True)
    file = world.home.group("friends").config_file
    assert file.read_text() == 'schema = 1\nbindings = ["telegram:-100"]\nanswer = "mention"\n'
    world.bindings.make("bob", "telegram:8", False)
    assert "answer" not in world.home.group("bob").config_file.read_text()
    assert [entry.name for entry in world.home.groups.iterdir() if entry.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("group", "binding", "says"),
    [
        ("main", "telegram:5", "there is a group main already"),
        ("other", "telegram:-100", "belongs to the group friends"),
        ("..", "telegram:5", "cannot be a group's name"),
        ("other", "telegram:5\n", "a binding is"),
    ],
)
def test_what_would_take_something_over_is_refused(world: World, group: str, binding: str, says: str) -> None:
    world.bindings.make("friends", "telegram:-100", True)
    before = sorted(world.home.groups.rglob("*"))
    with pytest.raises(ClawdError, match=says):
        world.bindings.make(group, binding, True)
    assert sorted(world.home.groups.rglob("*")) == before
    with pytest.raises(ClawdError):
        world.bindings.bind("main", "telegram:-100")


def test_nothing_is_bound_while_a_file_is_broken_that_may_hold_the_chat(world: World) -> None:
    world.group("broken", "nonsense")
    for attempt in (lambda: world.bindings.make("x", "telegram:5", True), lambda: world.bindings.bind("main", "x:5")):
        with pytest.raises(ClawdError, match="while groups/broken/"):
            attempt()
