"""The commands on people: pairing codes, who may speak and as what."""

from __future__ import annotations

from argparse import Namespace

from clawd.cli.page import give, say
from clawd.commands import writing
from clawd.config.home import Home


def pair(options: Namespace, home: Home) -> int:
    result = writing.call(home, "pair", person=options.person, role=options.role)
    give(result, options.json)
    if not options.json:
        from clawd.people.roster import called

        who = called(result["person"], result["role"])
        say(f"Whoever sends it to the bot in a direct message within ten minutes is {who}.")
    return 0


def people(options: Namespace, home: Home) -> int:
    from clawd.commands.people import listed

    empty = "nobody yet but you at the terminal: clawd pair shows a code for your account on a channel"
    give(listed(home), options.json, ("name", "role", "accounts"), empty)
    return 0


def grant(options: Namespace, home: Home) -> int:
    result = writing.call(home, "people.grant", person=options.person, role=options.role)
    give(result, options.json)
    if not options.json and not result["accounts"]:
        say(f"They have no account yet: clawd pair --person {result['name']}")
    return 0


def revoke(options: Namespace, home: Home) -> int:
    give(writing.call(home, "people.revoke", person=options.person), options.json)
    return 0
