"""What only Telegram has, with the real daemon: topics, a group that becomes a supergroup, and the time while nobody
asked for news."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.platforms.telegram import Telegram
from tests.system.ground import Ground, ground

PEOPLE = 'schema = 1\n[[people]]\nname = "anna"\nrole = "owner"\naccounts = ["telegram:7"]\n'


@pytest.fixture
def platform() -> Iterator[Telegram]:
    with Telegram(poll_s=1) as platform:
        yield platform
        assert platform.problems == []


@pytest.fixture
def home(platform: Telegram) -> Iterator[Ground]:
    with ground() as home:
        home.configure(more=platform.config)
        home.write("people.toml", PEOPLE)
        home.write("groups/main/group.toml", 'schema = 1\nbindings = ["telegram:7"]\n')
        home.write("groups/club/group.toml", 'schema = 1\nbindings = ["telegram:-1001"]\nanswer = "mention"\n')
        yield home


def test_topics_a_group_that_moves_and_a_daemon_that_was_away(platform: Telegram, home: Ground) -> None:
    home.start(**platform.env)
    club = next(platform.chats())
    topic = platform.thread(club)
    # the answer comes in the topic, as a reply; another bot's command is not ours
    platform.say("/status@other_bot", chat=club)
    asked = platform.say("hello there", chat=club, thread=topic, mention=True)
    platform.wait(lambda: platform.texts(club))
    [answer] = [each for each in platform.sent if each.chat == club]
    assert (answer.thread, answer.reply_to) == (topic, asked)
    typed = [each.params for each in platform.calls if each.method == "sendChatAction"]
    assert all(each.get("message_thread_id") == topic for each in typed)
    # the group becomes a supergroup: the same conversation goes on under its new id
    platform.known.add("-1009")
    platform.moved[club] = "-1009"
    platform.put(club, migrate_to_chat_id=-1009)
    platform.say("still there?", chat="-1009", mention=True)
    platform.wait(lambda: platform.texts("-1009"))
    rows = home.rows("SELECT * FROM inbound WHERE grp = 'club' ORDER BY seq")
    assert [row["chat"] for row in rows] == [club, club] and len({row["session"] for row in rows}) == 1
    # what is written while no daemon runs is answered by the next one, once
    assert home.stop() == 0
    platform.wait(lambda: not platform.live and not platform.connections)
    platform.say("while you were away")
    platform.again()
    home.start(**platform.env)
    platform.wait(lambda: platform.texts())
    assert len(home.settled(3)) == 3 and len(platform.texts()) == 1
    assert home.stop() == 0
