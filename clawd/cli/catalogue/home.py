"""The commands that are about the home: its daemon, its groups, what became of messages, its sandboxes."""

from __future__ import annotations

from clawd.cli.catalogue.arguments import GROUP, IN_GROUP, OF_GROUP, Command, argument, number
from clawd.ledger.moves import INBOUND

_NEW_GROUP = argument("group", metavar="GROUP", help="its name: letters, digits, - and _")
_NUMBER = argument("id", metavar="ID", type=number, help="the message's number (clawd messages list)")
_STATES = sorted(set(INBOUND.values()))
_SERVICE = (
    argument("--user", dest="scope", action="store_const", const="user", help="of your own (default, but for root)"),
    argument("--system", dest="scope", action="store_const", const="system", help="of the machine (default for root)"),
    argument("--name", metavar="NAME", help="clawd-NAME instead of clawd: for a second home"),
)

COMMANDS = (
    Command(
        ("init",),
        "make a home",
        "homes:init",
        (argument("directory", nargs="?", metavar="DIR", help="where (default: as --home says)"),),
        home=False,
    ),
    Command(
        ("run",),
        "run the daemon",
        "run:run",
        (argument("--until-closed", type=int, metavar="FD", help="end when this inherited pipe closes"),),
        home=False,
    ),
    Command(("status",), "what the daemon is doing", "looking:status"),
    Command(
        ("doctor",),
        "what is wrong, and what to do about it",
        "looking:doctor",
        (argument("--recover", action="store_true", help="salvage a damaged ledger"),),
    ),
    Command(
        ("config", "check"),
        "whether config.toml, every group.toml and every schedule are valid",
        "homes:check",
        (argument("file", nargs="?", metavar="FILE", help="one alone (default: all of the home)"),),
        home=False,
    ),
    Command(("groups", "list"), "all groups", "looking:groups"),
    Command(("groups", "show"), "one group", "looking:group", (GROUP,)),
    Command(("groups", "add"), "make a group", "changing:add", (_NEW_GROUP,)),
    Command(
        ("groups", "set"),
        "set a key of group.toml",
        "changing:set_key",
        (
            GROUP,
            argument("key", metavar="KEY", help="like timezone or sandbox.memory"),
            argument("value", metavar="VALUE", help="as it would stand in the file; text may do without quotes"),
        ),
    ),
    Command(
        ("groups", "clean"),
        "a fresh work/, free of taint; the old one is kept aside",
        "changing:clean",
        (GROUP,),
    ),
    Command(("groups", "trust"), "lift the taint of work/ as it is", "changing:trust", (GROUP,)),
    Command(
        ("messages", "list"),
        "the last messages",
        "looking:messages",
        (
            OF_GROUP,
            argument("--state", metavar="S", choices=_STATES, help=f"in this state alone: {', '.join(_STATES)}"),
            argument("--limit", type=number, default=50, metavar="N", help="at most N (default: 50)"),
        ),
    ),
    Command(("messages", "show"), "one message and what became of it", "looking:message", (_NUMBER,)),
    Command(("messages", "retry"), "try a failed message again", "changing:retry", (_NUMBER,)),
    Command(("deliveries", "list"), "what was sent, and what was not", "looking:deliveries"),
    Command(
        ("image", "build"),
        "build the image that containers are made from",
        "image:build",
        (
            argument(
                "--base", metavar="IMAGE", help="what it is built on: an image, or a file from containers/base.sh"
            ),
            argument("--target", choices=("agent", "claude-code"), default="agent", help="which one (default: agent)"),
            argument("--group", metavar="G", help="the image of this group, with its packages"),
            argument("--yes", action="store_true", help="install the packages without asking"),
        ),
    ),
    Command(("sandbox", "list"), "living sandboxes", "sandbox:listing"),
    Command(("sandbox", "stop"), "end a group's sandbox", "sandbox:stop", (GROUP,)),
    Command(
        ("sandbox", "exec"),
        "run a command in a group's sandbox",
        "sandbox:execute",
        (IN_GROUP, argument("command", nargs="...", metavar="-- CMD…", help="the command; its exit code is ours")),
        failure=125,
    ),
    Command(("service", "print"), "what systemd would be told (on macOS: launchd)", "service:show", _SERVICE),
    Command(
        ("service", "install"),
        "have the daemon run from boot on",
        "service:install",
        (*_SERVICE, argument("--force", action="store_true", help="replace another home's service of this name")),
    ),
    Command(("service", "uninstall"), "end that, and take it away", "service:uninstall", _SERVICE),
)
