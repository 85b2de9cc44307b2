"""Who is let in, and where to; what strangers are told; pairing, and what is tried against it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

from clawd.errors import UsageError
from clawd.ledger import groups
from clawd.model import Attachment, Said
from clawd.people.bindings import Place
from clawd.people.door import LAST, STRANGER, UNREADABLE, WRONG, Admitted
from clawd.people.pairing import LIFE_S
from clawd.people.strangers import DAY_S
from clawd.trust import Role
from tests.ledger.conftest import NOW
from tests.people.conftest import DIRECT, SHARED, Asked, World

pytestmark = pytest.mark.anyio
NEW = replace(DIRECT, chat="9", sender="telegram:9", name="Eve")  # somebody whom nobody knows, alone with us
SILENCE = Admitted(Role.STRANGER)


# ── who ──


async def test_the_account_decides_and_nothing_that_somebody_chose(world: World) -> None:
    world.people()
    world.group("main", 'bindings = ["telegram:-100"]')
    main = Place("main", "telegram:-100")
    assert await world.admit(SHARED) == Admitted(Role.OWNER, "Ada", main)
    assert await world.admit(SHARED, sender="telegram:8") == Admitted(Role.MEMBER, "bob", main)
    for sender in ("telegram:9", "", "owner", "Ada", "discord:7", "telegram:7 ", "slack:T999/U345"):
        for name in ("", "owner", "Ada", "telegram:7"):
            assert await world.admit(SHARED, sender=sender, name=name) == SILENCE
    slack = replace(SHARED, channel="slack", account="T012", chat="C1", sender="slack:T012/U345")
    assert (await world.admit(slack)).person == "Ada"


async def test_at_the_terminal_the_caller_is_the_owner_or_whom_they_try(world: World) -> None:
    terminal = replace(DIRECT, channel="terminal", chat="main", sender="owner")
    assert await world.admit(terminal) == Admitted(Role.OWNER, None, Place("main", "terminal:main"))
    assert (await world.admit(terminal, sender="member:bob")).role is Role.MEMBER
    assert await world.admit(terminal, sender="stranger:x") == Admitted(Role.STRANGER, told=STRANGER)


@pytest.mark.parametrize("spoil", ["nonsense", None])
async def test_without_a_list_nobody_may_speak_and_it_says_so_once_a_day(world: World, spoil: str | None) -> None:
    world.people()
    world.group("main", 'bindings = ["telegram:7"]')
    assert (await world.admit(DIRECT)).role is Role.OWNER
    if spoil is None:
        world.home.people_file.unlink()
    else:
        world.people(spoil)
    assert await world.admit(DIRECT) == Admitted(Role.STRANGER, told=UNREADABLE)
    assert await world.admit(DIRECT) == await world.admit(SHARED) == SILENCE
    assert world.told and world.told[0].startswith("Nobody but you at the terminal may speak")
    terminal = replace(DIRECT, channel="terminal", chat="main", sender="owner")
    assert (await world.admit(terminal)).role is Role.OWNER
    if spoil is not None:
        code, _ = world.codes.make("Ada", "owner")
        assert "not TOML" in str((await world.admit(DIRECT, code.text)).told)
        assert world.home.people_file.read_text() == spoil


async def test_a_role_that_is_taken_away_is_gone_with_the_next_message(world: World) -> None:
    world.people()
    world.group("main", 'bindings = ["telegram:-100"]')
    assert (await world.admit(SHARED)).place
    assert (await world.admit(NEW)).told == STRANGER
    world.people("schema = 1")
    assert await world.admit(SHARED) == SILENCE
    assert (await world.admit(DIRECT)).told == STRANGER
    world.people()
    assert (await world.admit(DIRECT)).place
    world.people("nonsense")  # also on the same day
    assert (await world.admit(DIRECT)).told == UNREADABLE


# ── strangers ──


async def test_a_stranger_gets_one_line_a_day_in_private_and_silence_elsewhere(world: World) -> None:
    world.people()
    assert await world.admit(NEW) == Admitted(Role.STRANGER, told=STRANGER)
    for more in ({}, {"texts": ("more",)}, {"kind": "command", "texts": ("/status",)}, {"kind": "edit", "rev": 1}):
        assert await world.admit(NEW, **more) == SILENCE
    other = replace(NEW, chat="10", sender="telegram:10")
    for kind in ("edit", "button", "reaction"):
        assert await world.admit(other, kind=kind) == SILENCE
    assert await world.admit(replace(SHARED, sender="telegram:10")) == SILENCE
    assert await world.admit(other, sender="") == SILENCE
    assert (await world.admit(other)).told == STRANGER
    world.clock.advance(DAY_S)
    assert (await world.admit(NEW)).told == STRANGER
    assert world.asked == [] and world.ledger.tx(lambda tx: tx.all("SELECT * FROM chat")) == []


async def test_a_stranger_can_have_the_owner_asked_once_a_day(world: World) -> None:
    world.people()
    evil = replace(NEW, name="owner\u202e")
    assert "was asked" in str((await world.admit(evil, "/pair")).told)
    assert await world.admit(evil, "/pair") == await world.admit(SHARED, "/pair", sender="telegram:10") == SILENCE
    effect = {
        "account": "telegram:9",
        "name": "owner 2",
        "role": "member",
        "binding": "telegram:9",
        "group": "owner-2",
        "called": "owner\u202e",
    }
    assert world.asked == [("person", effect)]
    world.answer = UsageError("5 questions of this kind wait already")
    assert "cannot be asked" in str((await world.admit(NEW, "/pair", sender="telegram:11")).told)
    world.people("nonsense")
    assert (await world.admit(NEW, "/pair", sender="telegram:12")).told == UNREADABLE


# ── chats ──


async def test_the_owners_own_chat_is_part_of_main_at_once(world: World) -> None:
    world.people()
    assert await world.admit(DIRECT) == Admitted(Role.OWNER, "Ada", Place("main", "telegram:7"))
    assert world.bound() == ["telegram:7"]
    slack = replace(DIRECT, channel="slack", account="T012", chat="D1", sender="slack:T012/U345")
    assert (await world.admit(slack)).place == Place("main", "telegram:7")
    assert world.bound() == ["telegram:7", "slack:T012/D1"] and world.asked == []


async def test_where_main_cannot_be_edited_that_is_said(world: World) -> None:
    world.people()
    world.group("main", "nonsense")
    admitted = await world.admit(DIRECT)
    assert admitted.place is None and "groups/main/group.toml" not in str(admitted.place)
    assert "group main, whose group.toml is not understood" in str(admitted.told)
    assert await world.admit(DIRECT, kind="edit") == Admitted(Role.OWNER, "Ada")


@pytest.mark.parametrize(
    ("incoming", "group", "shared"),
    [
        (SHARED, "family-friends", True),
        (replace(SHARED, sender="telegram:8"), "family-friends", True),
        (replace(DIRECT, chat="8", sender="telegram:8"), "bob", False),
    ],
)
async def test_for_any_other_chat_the_owner_is_asked(world: World, incoming: Any, group: str, shared: bool) -> None:
    world.people()
    admitted = await world.admit(incoming)
    assert admitted.place is None and "I asked my owner privately" in str(admitted.told)
    [(kind, effect)] = world.asked
    assert (kind, effect["group"], effect["shared"]) == ("group", group, shared)
    assert effect["person"] == admitted.person and effect["binding"] == f"telegram:{incoming.chat}"
    world.answer = Asked(fresh=False)
    assert "has not answered yet" in str((await world.admit(incoming)).told)
    world.answer = Asked(fresh=False, state="denied")
    assert "does not want" in str((await world.admit(incoming)).told)
    world.answer = UsageError("too many")
    assert (await world.admit(incoming)).told == "too many"
    world.bindings.make(effect["group"], effect["binding"], shared)
    assert (await world.admit(incoming)).place == Place(group, effect["binding"])


async def test_nobody_is_asked_about_what_was_not_said_to_us(world: World) -> None:
    world.people()
    for more in ({"addressed": False}, {"kind": "edit"}, {"kind": "reaction"}, {"kind": "button"}):
        assert await world.admit(SHARED, **more) == Admitted(Role.OWNER, "Ada")
    assert await world.admit(SHARED, sender="telegram:9") == SILENCE
    assert world.asked == []


async def test_a_chat_of_two_groups_or_of_a_broken_one_is_worked_in_by_none(world: World) -> None:
    world.people()
    world.group("a", 'bindings = ["telegram:7", "telegram:-100"]')
    world.group("b", 'bindings = ["telegram:7"]')
    assert "is in the bindings of a and b" in str((await world.admit(DIRECT)).told)
    assert world.told and (await world.admit(DIRECT, kind="delete", sender="")).place is None
    world.group("b", "nonsense")
    assert (await world.admit(SHARED)).place == Place("a", "telegram:7")
    other = replace(DIRECT, chat="77")
    assert "may be one of group b" in str((await world.admit(other)).told)
    assert world.asked == [] and world.bound("a") == ["telegram:7", "telegram:-100"]


async def test_who_deletes_need_not_be_known(world: World) -> None:
    world.group("main", 'bindings = ["telegram:7"]')
    gone = Admitted(Role.NONE, place=Place("main", "telegram:7"))
    assert await world.admit(DIRECT, kind="delete", texts=(), sender="") == gone
    assert (await world.admit(SHARED, kind="delete", sender="")).place is None


async def test_a_folder_that_was_made_by_hand_is_a_group(world: World) -> None:
    world.people()
    world.group("byhand", 'bindings = ["telegram:-100"]')
    assert (await world.admit(SHARED)).place == Place("byhand", "telegram:-100")
    assert world.ledger.tx(lambda tx: groups.find(tx, "byhand"))


# ── pairing ──


async def test_the_first_run(world: World) -> None:
    code, _ = world.codes.make("owner", "owner")
    admitted = await world.admit(NEW, f" {code.text[:4].lower()}-{code.text[4:]} ")
    assert admitted.place is None and "You are paired: the owner." in str(admitted.told)
    assert world.accounts() == {"owner": ("telegram:9",)} and world.bound() == ["telegram:9"]
    assert await world.admit(NEW) == Admitted(Role.OWNER, "owner", Place("main", "telegram:9"))
    again = await world.admit(NEW, code.text)  # the platform sends it again
    assert again.place is None and "yours already" in str(again.told)
    [chat] = world.ledger.tx(lambda tx: tx.all("SELECT * FROM chat"))
    assert (chat["person"], chat["direct"]) == ("owner", 1) and world.told == []


async def test_the_conversation_at_the_terminal_goes_on_in_the_paired_chat(world: World) -> None:
    await world.operations.group("main")
    world.ledger.tx(lambda tx: groups.open_session(tx, "terminal:main", "main", NOW))
    code, _ = world.codes.make("owner", "owner")
    await world.admit(NEW, code.text)
    assert (await world.admit(NEW)).place == Place("main", "terminal:main")


async def test_a_second_account_is_the_same_person_and_the_owner_hears_of_it(world: World) -> None:
    world.people()
    code, _ = world.codes.make("Ada", "owner")
    assert "group main" in str((await world.admit(NEW, f"/pair {code.text}")).told)
    assert world.accounts()["Ada"] == ("telegram:7", "slack:T012/U345", "telegram:9")
    assert len(world.told) == 1 and "telegram:9 was paired" in world.told[0] and "(not by telegram)" in world.told[0]


async def test_a_members_chats_are_a_group_of_their_own_and_the_second_joins_the_first(world: World) -> None:
    world.people()
    code, _ = world.codes.make("Carl", "member")
    assert "group carl" in str((await world.admit(NEW, code.text)).told)
    assert (await world.admit(NEW)).place == Place("carl", "telegram:9")
    code, _ = world.codes.make("Carl", "member")
    second = replace(NEW, channel="discord", chat="55", sender="discord:99")
    assert "group carl" in str((await world.admit(second, code.text)).told)
    assert await world.admit(second) == Admitted(Role.MEMBER, "Carl", Place("carl", "telegram:9"))
    assert world.bound() == []


async def test_a_paired_person_whose_chat_cannot_be_bound_is_told_so(world: World) -> None:
    world.group("other", "nonsense")
    code, _ = world.codes.make("owner", "owner")
    told = str((await world.admit(NEW, code.text)).told)
    assert "You are paired" in told and "has no group yet" in told and "group other" in told
    shutil.rmtree(world.home.group("other").root)
    assert (await world.admit(NEW)).place == Place("main", "telegram:9")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda code: {"texts": (code,), "chat": "-100", "direct": False, "addressed": True},
        lambda code: {"texts": (f"/pair {code}",), "chat": "-100", "direct": False, "addressed": True},
        lambda code: {"texts": (), "said": (Said("forwarded", code, "Ada"),)},
        lambda code: {"texts": (), "said": (Said("quoted", code),)},
        lambda code: {"texts": (code,), "said": (Said("forwarded", "x"),)},
        lambda code: {"texts": (code,), "attachments": (Attachment("x", {}),)},
        lambda code: {"texts": ("see", code)},
        lambda code: {"texts": (f"my code is {code}",)},
        lambda code: {"texts": (code,), "kind": "edit", "rev": 1},
        lambda code: {"texts": (code,), "kind": "reaction", "value": code},
        lambda code: {"texts": (), "kind": "button", "value": code},
        lambda code: {"texts": (code,), "sender": ""},
        lambda code: {"texts": ("hi",), "name": code, "title": code},
    ],
)
async def test_a_code_counts_only_as_the_whole_of_what_somebody_types_to_us_alone(
    world: World, spoil: Callable[[str], dict[str, Any]]
) -> None:
    world.people()
    before = world.accounts()
    code, _ = world.codes.make("Ada", "owner")
    admitted = await world.door.admit(replace(NEW, **spoil(code.text)))
    assert admitted.place is None and world.accounts() == before and "paired" not in str(admitted.told)
    assert "group main" in str((await world.admit(NEW, code.text)).told)  # and it still lives


async def test_wrong_codes_are_told_five_times_and_then_the_right_one_does_not_count(world: World) -> None:
    world.people()
    code, _ = world.codes.make("Ada", "owner")
    told = [(await world.admit(NEW, "/pair 2222-2222")).told for _ in range(5)]
    assert told == [WRONG] * 4 + [WRONG + LAST]
    assert (await world.admit(NEW, code.text)).told == STRANGER
    assert await world.admit(NEW, f"/pair {code.text}") == SILENCE
    assert "telegram:9" not in world.accounts()["Ada"]
    world.clock.advance(LIFE_S)
    assert (await world.admit(NEW, code.text)).told is None and "telegram:9" not in world.accounts()["Ada"]


async def test_many_who_guess_void_the_code_and_the_owner_is_told(world: World) -> None:
    world.people()
    code, _ = world.codes.make("Ada", "owner")
    for sender in range(5):
        for _ in range(5):
            await world.admit(NEW, "22222222", sender=f"telegram:{100 + sender}")
    assert len(world.told) == 1 and "void" in world.told[0]
    await world.admit(NEW, code.text)
    assert "telegram:9" not in world.accounts()["Ada"]


async def test_two_at_once_are_one(world: World) -> None:
    code, _ = world.codes.make("owner", "owner")
    async with anyio.create_task_group() as tasks:
        for sender in range(20):
            other = replace(NEW, texts=(code.text,), sender=f"telegram:{100 + sender}", chat=str(100 + sender))
            tasks.start_soon(world.door.admit, other)
    assert len(world.accounts()["owner"]) == 1


async def test_a_code_that_somebody_else_got_hold_of_is_void_and_told(world: World) -> None:
    world.people()
    code, _ = world.codes.make("Ada", "owner")
    bob = replace(DIRECT, chat="8", sender="telegram:8")
    assert (await world.admit(bob, code.text)).told == WRONG
    assert "bob sent the pairing code that was for Ada" in world.told[0]
    assert (await world.admit(NEW, code.text)).told == WRONG  # nor from an account that nobody knows
    assert world.accounts() == {"Ada": ("telegram:7", "slack:T012/U345"), "bob": ("telegram:8",)}


async def test_a_person_whose_role_changed_meanwhile_is_not_paired_with_the_old_one(world: World) -> None:
    world.people()
    code, _ = world.codes.make("carl", "member")
    world.people(PEOPLE_WITH_CARL)
    assert "could not be paired" in str((await world.admit(NEW, code.text)).told)
    assert world.accounts()["carl"] == ()


async def test_a_word_of_somebody_who_may_speak_is_a_message_whatever_its_form(world: World) -> None:
    world.people()
    assert (await world.admit(DIRECT, "HEYTHERE")).place == Place("main", "telegram:7")
    world.codes.make("Ada", "owner")
    assert (await world.admit(DIRECT, "hey there")).place == Place("main", "telegram:7")
    assert (await world.admit(NEW, "hey there")).told == WRONG
    world.clock.advance(LIFE_S)
    assert (await world.admit(NEW, "hey there")).told == STRANGER  # without a code it is nothing special


PEOPLE_WITH_CARL = """\
schema = 1
[[people]]
name = "Ada"
role = "owner"
[[people]]
name = "carl"
role = "admin"
"""
