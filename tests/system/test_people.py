"""People from outside: from the first code to a revoked member, over a real channel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.platforms import Platform
from tests.platforms.telegram import Telegram
from tests.system.conftest import until
from tests.system.ground import Ground, ground
from tests.system.test_contract import CONTRACT, check, moment, shape

CHANNELS = ("terminal", "telegram")


def shown(home: Ground, command: str, *words: str, code: int = 0, **env: str) -> Any:
    """What a command prints with --json, which has the contract's shape."""
    value = json.loads(home.done(*command.split(), *words, "--json", code=code, **env).stdout)
    check(value, shape(CONTRACT[command]))
    return value


@pytest.fixture
def world() -> Iterator[tuple[Ground, Platform]]:
    with Telegram() as platform, ground() as home:
        home.script({"text": "You said: {message}"}, more=platform.config)
        home.start(**platform.env)
        yield home, platform
        assert platform.problems == []


def test_from_the_first_code_to_the_end_of_a_members_rights(world: tuple[Ground, Platform]) -> None:
    home, platform = world
    assert home.json("people", "list") == []
    me, friend = platform.direct(platform.owner), platform.direct(platform.member)

    # nobody may speak; a code for the owner
    platform.say("hello")
    platform.wait(lambda: any("private assistant" in text for text in platform.texts(me)))
    code = home.json("pair")["code"]
    platform.say(f"{code[:4].lower()} {code[4:]}")
    platform.wait(lambda: any("You are paired: the owner" in text for text in platform.texts(me)))
    platform.say("and now?")
    platform.wait(lambda: "and now?" in platform.texts(me)[-1])
    assert home.json("people", "list") == [
        {"name": "owner", "role": "owner", "accounts": [platform.account(platform.owner)]}
    ]
    [row] = home.messages(channel="telegram")
    assert (row["role"], row["group"], row["session"]) == ("owner", "main", platform.binding(me))

    # a code that the owner makes in the chat is for their own other account; a friend is given one of his own
    platform.say("/pair")
    platform.wait(lambda: "in a direct message from your other account" in platform.texts(me)[-1])
    code = home.json("pair", "--person", "Bob")["code"]
    platform.say(f"/pair {code}", chat=friend, sender=platform.member)
    platform.wait(lambda: any("You are paired: Bob, member" in text for text in platform.texts(friend)))
    platform.say("I am Bob", chat=friend, sender=platform.member)
    platform.wait(lambda: "I am Bob" in platform.texts(friend)[-1])
    assert [row["role"] for row in home.messages(group="bob")] == ["member"]

    # a code of somebody else is not taken, and a used one is used
    told = len(platform.texts(friend))
    platform.say(home.json("pair")["code"], chat=friend, sender=platform.member)
    platform.wait(lambda: any("does not count" in text for text in platform.texts(friend)[told:]))
    assert home.cli("people", "revoke", "owner").returncode == 2
    assert shown(home, "people revoke", "bob") == {"person": "Bob", "stopped": 0}
    platform.say("still me", chat=friend, sender=platform.member)
    platform.wait(lambda: "private assistant" in platform.texts(friend)[-1])
    assert len(home.messages(group="bob")) == 1

    # an edit by hand holds at once, and a slip of the pen lets nobody speak
    home.write("people.toml", "nonsense")
    platform.say("anybody?")
    platform.wait(lambda: "nobody may speak to it just now" in platform.texts(me)[-1])
    assert home.cli("pair").returncode == 4 and home.cli("people", "list").returncode == 4
    found = [each for each in json.loads(home.cli("doctor", "--json").stdout) if each["check"] == "people"]
    assert [each["level"] for each in found] == ["error"]
    assert (home.root / "people.toml").read_text() == "nonsense"
    until(lambda: any("Nobody but you at the terminal" in str(row) for row in home.log()))


def test_chats_and_strangers_that_the_owner_says_yes_to(world: tuple[Ground, Platform]) -> None:
    home, platform = world
    shared, stranger = platform.shared, platform.direct(platform.stranger)
    assert [each["ok"] for each in shown(home, "channels test", "telegram", code=1, **platform.env)["checks"]][
        -1
    ] is False
    code = shown(home, "pair")
    assert moment(code["expires"]).tzinfo and (code["person"], code["role"]) == ("owner", "owner")
    platform.say(code["code"])
    platform.wait(lambda: platform.texts())
    assert shown(home, "channels test", "telegram", **platform.env)["ok"] is True
    assert {row["channel"]: row["state"] for row in shown(home, "channels list")} == dict.fromkeys(CHANNELS, "live")

    # a shared chat: nothing before the owner is meant, then they are asked in private, and then it is a group
    platform.say("just talking", chat=shared)
    platform.say("ignore me", chat=shared, sender=platform.stranger, mention=True)
    platform.say("what do you think?", chat=shared, mention=True)
    platform.wait(lambda: "I asked my owner privately" in "".join(platform.texts(shared)))
    [asked] = shown(home, "approvals list")
    assert (asked["kind"], asked["state"]) == ("group", "open") and len(platform.texts(shared)) == 1
    platform.wait(lambda: any(str(asked["id"]) in text for text in platform.texts()))
    assert "I answer" in shown(home, "approvals show", str(asked["id"]))["words"]
    shown(home, "approvals approve", str(asked["id"]))
    group = until(lambda: [row for row in home.json("groups", "list") if platform.binding(shared) in row["bindings"]])
    assert group[0]["group"] != "main"
    platform.wait(lambda: any("said yes: I work in this chat" in text for text in platform.texts(shared)))
    platform.say("and now?", chat=shared, mention=True)
    platform.wait(lambda: any("and now?" in text for text in platform.texts(shared)))

    # a stranger: one question to the owner, then a member in a group of their own
    platform.say("/pair", chat=stranger, sender=platform.stranger)
    platform.wait(lambda: "was asked" in "".join(platform.texts(stranger)))
    [asked] = [row for row in home.json("approvals", "list") if row["kind"] == "person"]
    home.json("approvals", "approve", str(asked["id"]))
    until(lambda: [row for row in home.json("people", "list") if row["role"] == "member"])
    platform.wait(lambda: any("said yes: you may speak" in text for text in platform.texts(stranger)))
    platform.say("hello", chat=stranger, sender=platform.stranger)
    platform.wait(lambda: any("You said: hello" in text for text in platform.texts(stranger)))
    assert {row["role"] for row in home.messages() if row["group"] not in ("main", group[0]["group"])} == {"member"}
