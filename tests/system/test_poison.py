"""Poison in a running daemon: what an attacker writes, through every door, is in no prompt, found by no search and
believed by nobody; what the owner wants kept is. The same attacks work where the defence is laid down."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.system.conftest import Home
from tests.system.poison import undefended
from tests.system.poison.world import OWN, world


def report(failed: Mapping[str, object], total: int) -> str:
    return "\n".join([f"{len(failed)} of {total}:", *(f"  {name}: {what}" for name, what in failed.items())])


def test_no_poison_is_believed_and_what_is_honest_is_found(home: Home) -> None:
    with world(home) as played:
        played.play()
        harm = {each.name: found for each in played.attacks if (found := played.harm(each))}
        assert not harm, report(harm, len(played.attacks))
        lost = {each.name: played.search(each.door or OWN, each.asks)
                for each in played.honest if not played.serves(each)}  # fmt: skip
        assert 1 - len(lost) / len(played.honest) >= 0.95, report(lost, len(played.honest))

        trojan = next(each for each in played.attacks if each.name.startswith("15 "))
        for record in played.records(trojan.door, trojan.mark):
            home.ask("memory.delete", group=trojan.door, id=record.id)
        home.ask("memory.reindex", group=trojan.door)
        assert not played.records(trojan.door, trojan.mark)
        assert trojan.mark not in str(home.blocks(trojan.door)), "what was forgotten is in no later prompt"


def test_without_the_defence_the_attacks_work(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    undefended.lay_down(monkeypatch.setattr)
    with world(home, program="tests.system.poison.undefended", memory="floor = 0") as played:
        played.play()
        harmless = {each.name: "no harm" for each in played.attacks if not played.harm(each)}
        assert 1 - len(harmless) / len(played.attacks) >= 0.9, report(harmless, len(played.attacks))
