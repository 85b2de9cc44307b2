"""The commands that are about what is outside: services, directories, channels, money, people."""

from __future__ import annotations

from typing import get_args

from clawd.cli.catalogue.arguments import GROUP, IN_GROUP, OF_GROUP, Command, argument, dollars, number
from clawd.config.values import RoleName
from clawd.trust import Role

_APPROVAL = argument("id", metavar="ID", type=number, help="its number (clawd approvals list)")
_ROLES = tuple(role.value for role in Role)
_SPEAKERS = get_args(RoleName)
_PERSON = argument("person", metavar="PERSON", help="their name (clawd people list)")

COMMANDS = (
    Command(("gateway", "services"), "every service, and which groups may use it", "gateway:services"),
    Command(
        ("gateway", "audit"),
        "what was asked of the gateway, and what became of it",
        "gateway:audit",
        (
            OF_GROUP,
            argument("--since", metavar="T", help="not what is older: like 2h, 1d or 2026-12-01T09:00:00+01:00"),
        ),
    ),
    Command(
        ("gateway", "check"),
        "whether a request would be let through; nothing is sent",
        "gateway:check",
        (
            IN_GROUP,
            argument("method", metavar="METHOD", help="GET, POST, …; CONNECT with HOST:PORT"),
            argument("url", metavar="URL", help="https://…, http://… or /svc/SERVICE/…"),
            argument(
                "--as",
                dest="role",
                metavar="ROLE",
                choices=_ROLES,
                default="owner",
                help="for whom it acts (default: owner)",
            ),
        ),
    ),
    Command(
        ("mounts", "check"),
        "whether a group could be shown a directory, and why not",
        "mounts:check",
        (
            argument("path", metavar="PATH", help="a directory of this machine"),
            argument("--rw", action="store_true", help="to be written to"),
            argument("--group", metavar="G", help="as this group would have it, beside what it and the others have"),
        ),
    ),
    Command(("channels", "list"), "every channel, and how it is by what was heard of it", "looking:channels"),
    Command(
        ("channels", "test"),
        "whether a channel's token and rights are as they must be, and a round trip",
        "looking:channel_test",
        (argument("name", metavar="NAME", help="telegram, slack, discord, or one that a package brings"),),
    ),
    Command(("budget", "show"), "every limit, and what is left of it", "budget:show"),
    Command(
        ("budget", "raise"),
        "raise a group's limits for one day or month",
        "budget:raise_",
        (
            GROUP,
            argument("--usd", type=dollars, metavar="N", help="by so many dollars"),
            argument("--tokens", type=number, metavar="N", help="by so many tokens"),
            argument("--for", dest="span", required=True, metavar="PERIOD", help="day, month, 2026-11-29 or 2026-11"),
        ),
    ),
    Command(
        ("usage",),
        "what was used, and what it cost",
        "budget:usage",
        (
            argument(
                "--by",
                choices=("group", "session", "service", "day"),
                default="group",
                help="what it is summed by (default: group)",
            ),
        ),
    ),
    Command(("approvals", "list"), "what the owner is asked, and what became of it", "approvals:listing"),
    Command(("approvals", "show"), "one of them, as they are shown it", "approvals:show", (_APPROVAL,)),
    Command(("approvals", "approve"), "say yes", "approvals:approve", (_APPROVAL,)),
    Command(("approvals", "deny"), "say no", "approvals:deny", (_APPROVAL,)),
    Command(
        ("pair",),
        "a one-time code: whoever sends it to the bot in a direct message is that person",
        "people:pair",
        (
            argument("--person", metavar="NAME", help="who they are (default: the owner); somebody new is a member"),
            argument("--role", metavar="ROLE", choices=_SPEAKERS, help=f"of somebody new: {', '.join(_SPEAKERS)}"),
        ),
    ),
    Command(("people", "list"), "who may speak, as what, and from which accounts", "people:people"),
    Command(
        ("people", "grant"),
        "give a person a role; who is new has no account until they pair",
        "people:grant",
        (_PERSON, argument("role", metavar="ROLE", choices=_SPEAKERS, help=", ".join(_SPEAKERS))),
    ),
    Command(
        ("people", "revoke"),
        "take all rights of a person away, and stop what works for them alone",
        "people:revoke",
        (_PERSON,),
    ),
)
