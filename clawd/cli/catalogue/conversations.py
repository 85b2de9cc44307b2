"""The commands that are about conversations."""

from __future__ import annotations

from clawd.cli.catalogue.arguments import IN_GROUP, OF_GROUP, Command, argument, number, seconds

_ID = argument("id", nargs="?", metavar="ID", help="the session (clawd session list)")
_NAMED = argument("--session", metavar="ID", help="the same, by name")

COMMANDS = (
    Command(
        ("chat",),
        "talk to the agent",
        "chat:chat",
        (
            argument("-m", dest="message", metavar="TEXT", help="one message, one reply; - reads standard input"),
            IN_GROUP,
            argument("--session", metavar="ID", help="a session of its own (default: the group's)"),
            argument(
                "--as",
                dest="speaker",
                metavar="WHO",
                default="owner",
                help="owner, admin:NAME, member:NAME, …",
            ),
            argument("--timeout", type=seconds, metavar="S", help="how long to wait for a reply (-m: 300)"),
            argument("--engine", metavar="E", help="what answers, for this conversation alone (the owner's choice)"),
            argument("--model", metavar="M", help="which model, as NAME or SERVICE/NAME"),
            argument("--effort", metavar="L", help="how much it thinks: low, medium or high"),
        ),
    ),
    Command(
        ("context", "show"),
        "what the next turn would tell its model, part by part",
        "context:show",
        (
            argument("--group", metavar="G", help="the group (default: the session's, else main)"),
            argument("--session", metavar="S", help="of this session, also a new one (default: the group's)"),
            argument("--wake", metavar="TEXT", default="hello", help="what is said to it (default: hello)"),
        ),
    ),
    Command(
        ("context", "expand"),
        "what a compaction left out of what a model is shown",
        "context:expand",
        (
            argument("--session", metavar="S", required=True, help="the session (clawd session list)"),
            argument("--compaction", type=number, metavar="N", help="this one (default: the newest)"),
            argument("--group", metavar="G", help="the session is one of this group"),
        ),
    ),
    Command(
        ("session", "list"),
        "all sessions",
        "looking:sessions",
        (OF_GROUP, argument("--session", metavar="ID", help="this one alone, with every segment of it")),
    ),
    Command(("session", "show"), "a session's messages", "looking:session", (_ID, _NAMED)),
    Command(("session", "resume"), "let a paused session go on", "changing:resume", (_ID, _NAMED)),
    Command(("session", "check"), "whether a session's file is whole", "looking:session_check", (_ID, _NAMED)),
)
