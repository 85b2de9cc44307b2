"""Fifty kills in a stream of two hundred messages: nothing is lost, nothing is doubled, nothing is left."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter

import pytest

from tests.system.conftest import BOTH, Home, call, until
from tests.system.talkers import Talker, talkers, unfinished

SEED = 20261
GROUPS = [f"g{n}" for n in range(5)]
MESSAGES, KILLS = 200, 50


def strike(home: Home, victim: str, chance: random.Random) -> None:
    """Kill one: the daemon, or a runner or a sandbox of a group. A turn bears three faults of its own, so that one that
    bore two is spared."""
    if victim == "daemon":
        home.kill()
        home.start()
        return

    def struck() -> bool:
        living = [row["group"] for row in home.ask("sandbox.list") if row["id"] and row["state"] != "draining"]
        if not living:
            return False
        group = chance.choice(living)
        pid = home.runner(group) if victim == "runner" else chance.choice(home.sandbox_processes(group))
        if any(row["attempt"] > 2 for row in unfinished(home, group=group)):
            return False
        os.kill(pid, signal.SIGKILL)
        return True

    until(struck)


@BOTH
@pytest.mark.timeout(300)
def test_fifty_kills_lose_nothing_and_double_nothing(home: Home) -> None:
    home.script(call("send_message", text="got {message}"), {"text": "re {message}", "delay_s": 0.03})
    for group in GROUPS:
        home.json("groups", "add", group)
        home.layout.group(group).config_file.write_text('followups = "queue"\n')  # a turn for each message
    chance = random.Random(SEED)
    victims = ["daemon"] * 20 + ["runner"] * 15 + ["sandbox"] * 15
    chance.shuffle(victims)
    said: dict[str, list[str]] = {group: [] for group in GROUPS}
    home.start()
    with talkers(home, GROUPS) as talking:
        for number in range(MESSAGES):
            group = chance.choice(GROUPS)
            said[group].append(f"m{number}")
            talking[group].say(f"m{number}")
            if number % (MESSAGES // KILLS) == 0:
                backlog = chance.randint(1, 12)  # the stream goes on between the kills: so many wait at most
                until(lambda: len(unfinished(home)) <= backlog)  # noqa: B023
                time.sleep(chance.uniform(0, 0.1))
                strike(home, victims.pop(), chance)
        assert not victims
        until(lambda: all(len(talking[group].receipts) == len(said[group]) for group in GROUPS))
        until(lambda: not unfinished(home), 120)
        until(lambda: all(len(each.shown) >= 2 * len(each.receipts) for each in talking.values()))
    assert home.stop() == 0
    assert not home.left_over()
    judge(home, said, talking)


def judge(home: Home, said: dict[str, list[str]], talking: dict[str, Talker]) -> None:
    messages = home.messages()
    assert len(messages) == len({row["turn"] for row in messages}) == MESSAGES
    sent = Counter((row["turn"], row["kind"]) for row in home.deliveries(state="sent"))
    for group in GROUPS:
        mine = [row for row in messages if row["group"] == group]
        assert [talking[group].receipts[text] for text in said[group]] == [row["id"] for row in mine]
        assert home.said(group) == [
            block
            for text in said[group]
            for block in (
                ("user", text),
                ("assistant", "calling send_message"),
                ("tool", '{"queued": "message"}'),
                ("assistant", f"re {text}"),
            )
        ]
        assert [sent[row["turn"], "text"] for row in mine] == [2] * len(mine)
        replies = Counter(text for text in talking[group].shown.values() if text.startswith(("got ", "re ")))
        assert replies == Counter(f"{word} {text}" for text in said[group] for word in ("got", "re"))
