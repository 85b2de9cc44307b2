"""Every command of the contract as data: words, arguments, and the function that does it.

A command without a function belongs to a room that is not built yet; it says so and exits 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from clawd.config.values import RoleName
from clawd.ledger.moves import INBOUND
from clawd.trust import Role


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as `argparse` takes it."""

    names: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Command:
    """`does` is `module:function` beneath `clawd.cli`, called with (options, home) and giving the exit code.

    `failure` replaces the exit code of our own failures; `home` says whether the home must exist already.
    """

    words: tuple[str, ...]
    help: str
    does: str = ""
    arguments: tuple[Argument, ...] = ()
    failure: int | None = None
    home: bool = True


def _argument(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError
    return seconds


def _number(text: str) -> int:
    number = int(text)
    if not 0 < number < 1 << 63:
        raise ValueError
    return number


def _dollars(text: str) -> float:
    dollars = float(text)
    if not 0 < dollars < 1e9:
        raise ValueError
    return dollars


# argparse names them in its sentences
_seconds.__name__, _number.__name__, _dollars.__name__ = "number of seconds", "number", "number of dollars"

_GROUP = _argument("group", metavar="GROUP", help="its name (clawd groups list)")
_NEW_GROUP = _argument("group", metavar="GROUP", help="its name: letters, digits, - and _")
_OF_GROUP = _argument("--group", metavar="G", help="of this group alone")
_IN_GROUP = _argument("--group", metavar="G", default="main", help="the group (default: main)")
_FOR_GROUP = _argument("--group", metavar="G", help="as this group has it")
_SKILL = _argument("name", metavar="N", help="its name (clawd skills list)")
_SKILLS_GROUP = _argument("--group", metavar="G", help="of this group alone (default: of all groups)")
_MEMORY = _argument("id", metavar="ID", help="its id (clawd memory list, search, pending)")
_KIND = ("profile", "episode", "entity", "procedure", "reflection", "fact")
_OF_KIND = _argument(
    "--kind", metavar="K", choices=(*_KIND, "day"), help=f"of this kind alone: {', '.join(_KIND)}, day"
)
_MEMORY_TEXT = _argument("text", nargs="?", metavar="TEXT", help="- reads standard input")
_YES = _argument("--yes", action="store_true", help="without asking")
_ID = _argument("id", metavar="ID", help="the session (clawd session list)")
_NUMBER = _argument("id", metavar="ID", type=_number, help="the message's number (clawd messages list)")
_APPROVAL = _argument("id", metavar="ID", type=_number, help="its number (clawd approvals list)")
_STATES = sorted(set(INBOUND.values()))
_ROLES = tuple(role.value for role in Role)
_SPEAKERS = get_args(RoleName)
_PERSON = _argument("person", metavar="PERSON", help="their name (clawd people list)")

_SCHEDULE = (_argument("id", metavar="ID", help="its name, or GROUP/NAME (clawd schedule list)"), _OF_GROUP)

_SERVICE = (
    _argument("--user", dest="scope", action="store_const", const="user", help="of your own (default, but for root)"),
    _argument("--system", dest="scope", action="store_const", const="system", help="of the machine (default for root)"),
    _argument("--name", metavar="NAME", help="clawd-NAME instead of clawd: for a second home"),
)

_BUILT = (
    Command(
        ("init",),
        "make a home",
        "homes:init",
        (_argument("directory", nargs="?", metavar="DIR", help="where (default: as --home says)"),),
        home=False,
    ),
    Command(
        ("run",),
        "run the daemon",
        "run:run",
        (_argument("--until-closed", type=int, metavar="FD", help="end when this inherited pipe closes"),),
        home=False,
    ),
    Command(("status",), "what the daemon is doing", "looking:status"),
    Command(
        ("doctor",),
        "what is wrong, and what to do about it",
        "looking:doctor",
        (_argument("--recover", action="store_true", help="salvage a damaged ledger"),),
    ),
    Command(
        ("chat",),
        "talk to the agent",
        "chat:chat",
        (
            _argument("-m", dest="message", metavar="TEXT", help="one message, one reply; - reads standard input"),
            _IN_GROUP,
            _argument("--session", metavar="ID", help="a session of its own (default: the group's)"),
            _argument(
                "--as",
                dest="speaker",
                metavar="WHO",
                default="owner",
                help="owner, admin:NAME, member:NAME, …",
            ),
            _argument("--timeout", type=_seconds, metavar="S", help="how long to wait for a reply (-m: 300)"),
            _argument("--engine", metavar="E", help="what answers, for this conversation alone (the owner's choice)"),
            _argument("--model", metavar="M", help="which model, as NAME or SERVICE/NAME"),
            _argument("--effort", metavar="L", help="how much it thinks: low, medium or high"),
        ),
    ),
    Command(
        ("context", "show"),
        "what the next turn would tell its model, part by part",
        "context:show",
        (
            _IN_GROUP,
            _argument("--session", metavar="S", help="of this session (default: the group's)"),
            _argument("--wake", metavar="TEXT", default="hello", help="what is said to it (default: hello)"),
        ),
    ),
    Command(
        ("config", "check"),
        "whether config.toml, every group.toml and every schedule are valid",
        "homes:check",
        (_argument("file", nargs="?", metavar="FILE", help="one alone (default: all of the home)"),),
        home=False,
    ),
    Command(("groups", "list"), "all groups", "looking:groups"),
    Command(("groups", "show"), "one group", "looking:group", (_GROUP,)),
    Command(("groups", "add"), "make a group", "changing:add", (_NEW_GROUP,)),
    Command(
        ("groups", "set"),
        "set a key of group.toml",
        "changing:set_key",
        (
            _GROUP,
            _argument("key", metavar="KEY", help="like timezone or sandbox.memory"),
            _argument("value", metavar="VALUE", help="as it would stand in the file; text may do without quotes"),
        ),
    ),
    Command(
        ("groups", "clean"),
        "a fresh work/, free of taint; the old one is kept aside",
        "changing:clean",
        (_GROUP,),
    ),
    Command(("groups", "trust"), "lift the taint of work/ as it is", "changing:trust", (_GROUP,)),
    Command(
        ("messages", "list"),
        "the last messages",
        "looking:messages",
        (
            _OF_GROUP,
            _argument("--state", metavar="S", choices=_STATES, help=f"in this state alone: {', '.join(_STATES)}"),
            _argument("--limit", type=_number, default=50, metavar="N", help="at most N (default: 50)"),
        ),
    ),
    Command(("messages", "show"), "one message and what became of it", "looking:message", (_NUMBER,)),
    Command(("messages", "retry"), "try a failed message again", "changing:retry", (_NUMBER,)),
    Command(("deliveries", "list"), "what was sent, and what was not", "looking:deliveries"),
    Command(("session", "list"), "all sessions", "looking:sessions", (_OF_GROUP,)),
    Command(("session", "show"), "a session's messages", "looking:session", (_ID,)),
    Command(("session", "check"), "whether a session's file is whole", "looking:session_check", (_ID,)),
    Command(
        ("image", "build"),
        "build the image that containers are made from",
        "image:build",
        (
            _argument(
                "--base", metavar="IMAGE", help="what it is built on: an image, or a file from containers/base.sh"
            ),
            _argument("--target", choices=("agent", "claude-code"), default="agent", help="which one (default: agent)"),
            _argument("--group", metavar="G", help="the image of this group, with its packages"),
            _argument("--yes", action="store_true", help="install the packages without asking"),
        ),
    ),
    Command(("sandbox", "list"), "living sandboxes", "sandbox:listing"),
    Command(("sandbox", "stop"), "end a group's sandbox", "sandbox:stop", (_GROUP,)),
    Command(
        ("sandbox", "exec"),
        "run a command in a group's sandbox",
        "sandbox:execute",
        (_IN_GROUP, _argument("command", nargs="...", metavar="-- CMD…", help="the command; its exit code is ours")),
        failure=125,
    ),
    Command(("gateway", "services"), "every service, and which groups may use it", "gateway:services"),
    Command(
        ("gateway", "audit"),
        "what was asked of the gateway, and what became of it",
        "gateway:audit",
        (
            _OF_GROUP,
            _argument("--since", metavar="T", help="not what is older: like 2h, 1d or 2026-12-01T09:00:00+01:00"),
        ),
    ),
    Command(
        ("gateway", "check"),
        "whether a request would be let through; nothing is sent",
        "gateway:check",
        (
            _IN_GROUP,
            _argument("method", metavar="METHOD", help="GET, POST, …; CONNECT with HOST:PORT"),
            _argument("url", metavar="URL", help="https://…, http://… or /svc/SERVICE/…"),
            _argument(
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
            _argument("path", metavar="PATH", help="a directory of this machine"),
            _argument("--rw", action="store_true", help="to be written to"),
            _argument("--group", metavar="G", help="as this group would have it, beside what it and the others have"),
        ),
    ),
    Command(("channels", "list"), "every channel, and how it is by what was heard of it", "looking:channels"),
    Command(
        ("channels", "test"),
        "whether a channel's token and rights are as they must be, and a round trip",
        "looking:channel_test",
        (_argument("name", metavar="NAME", help="telegram, slack, discord, or one that a package brings"),),
    ),
    Command(("budget", "show"), "every limit, and what is left of it", "budget:show"),
    Command(
        ("budget", "raise"),
        "raise a group's limits for one day or month",
        "budget:raise_",
        (
            _GROUP,
            _argument("--usd", type=_dollars, metavar="N", help="by so many dollars"),
            _argument("--tokens", type=_number, metavar="N", help="by so many tokens"),
            _argument("--for", dest="span", required=True, metavar="PERIOD", help="day, month, 2026-11-29 or 2026-11"),
        ),
    ),
    Command(
        ("usage",),
        "what was used, and what it cost",
        "budget:usage",
        (
            _argument(
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
            _argument("--person", metavar="NAME", help="who they are (default: the owner); somebody new is a member"),
            _argument("--role", metavar="ROLE", choices=_SPEAKERS, help=f"of somebody new: {', '.join(_SPEAKERS)}"),
        ),
    ),
    Command(("people", "list"), "who may speak, as what, and from which accounts", "people:people"),
    Command(
        ("people", "grant"),
        "give a person a role; who is new has no account until they pair",
        "people:grant",
        (_PERSON, _argument("role", metavar="ROLE", choices=_SPEAKERS, help=", ".join(_SPEAKERS))),
    ),
    Command(
        ("people", "revoke"),
        "take all rights of a person away, and stop what works for them alone",
        "people:revoke",
        (_PERSON,),
    ),
    Command(("schedule", "list"), "every schedule, and when it is due next", "schedules:listing", (_OF_GROUP,)),
    Command(
        ("schedule", "add"),
        "have the agent told something later, or regularly",
        "schedules:add",
        (
            _argument(
                "when", metavar="WHEN", help='"every weekday at 9", "0 9 * * mon-fri", "every 20m", "in 2 hours"'
            ),
            _argument(
                "prompt",
                nargs="?",
                metavar="PROMPT",
                help='what it is told; without it WHEN says both: "remind me in 10 minutes to stretch"',
            ),
            _IN_GROUP,
            _argument("--id", metavar="ID", help="its name (default: from what it does)"),
            _argument("--tz", metavar="Z", help="the time zone (default: the group's)"),
            _argument("--skill", metavar="S", help="the skill to use, instead of a prompt"),
            _argument(
                "--session", choices=("group", "own"), help="the group's conversation (default), or one of its own"
            ),
            _argument(
                "--deliver-to", metavar="B", help="the binding of the group that is answered (default: the first)"
            ),
            _argument(
                "--catch-up",
                choices=("once", "skip", "all"),
                help="of runs that were missed: the newest (default), none, or the newest ten",
            ),
            _argument("--catch-up-within", metavar="SPAN", help="not what was missed for longer (default: 24h)"),
            _argument("--jitter", metavar="SPAN", help="late by up to so much, by chance"),
            _argument(
                "--check", metavar="CMD", help='run in the sandbox first; its last line says {"wake": true} or not'
            ),
            _argument("--until", metavar="T", help="never after this: like 2026-12-31T18:00"),
            _argument("--budget", type=_dollars, metavar="USD", help="dollars that one run may cost"),
        ),
    ),
    Command(("schedule", "show"), "one schedule, and its next times", "schedules:show", _SCHEDULE),
    Command(("schedule", "run"), "run one now", "schedules:run", _SCHEDULE),
    Command(("schedule", "pause"), "put one out of force", "schedules:pause", _SCHEDULE),
    Command(("schedule", "resume"), "bring one back, also one that paused itself", "schedules:resume", _SCHEDULE),
    Command(("schedule", "remove"), "take one away; its file is kept", "schedules:remove", _SCHEDULE),
    Command(
        ("schedule", "history"),
        "what became of runs",
        "schedules:history",
        (_argument("id", nargs="?", metavar="ID", help="of this one alone"), _OF_GROUP),
    ),
    Command(("skills", "list"), "every skill, and which are refused", "skills:listing", (_FOR_GROUP,)),
    Command(("skills", "show"), "one skill, whole", "skills:show", (_SKILL, _FOR_GROUP)),
    Command(
        ("skills", "check"),
        "whether a folder is a skill that would be used, and what is wrong with it",
        "skills:check",
        (_argument("directory", metavar="DIR", help="a folder with a SKILL.md"),),
        home=False,
    ),
    Command(
        ("skills", "add"),
        "make a skill of a folder or an archive; it is used from the next turn on",
        "skills:add",
        (
            _argument("source", metavar="PATH", help="a folder, or a .zip, .skill, .tar, .tar.gz or .tgz"),
            _SKILLS_GROUP,
            _argument("--force", action="store_true", help="replace one of that name, which is kept aside"),
        ),
    ),
    Command(("skills", "remove"), "take a skill away; it is kept aside", "skills:remove", (_SKILL, _SKILLS_GROUP)),
    Command(
        ("skills", "new"),
        "make a skill to be filled in",
        "skills:new",
        (_argument("name", metavar="N", help="lower-case letters, digits and hyphens"), _SKILLS_GROUP),
    ),
    Command(("skills", "pending"), "the skills that agents propose", "skills:pending"),
    Command(("skills", "approve"), "say yes to one of them", "skills:approve", (_SKILL, _OF_GROUP)),
    Command(("skills", "reject"), "say no to it", "skills:reject", (_SKILL, _OF_GROUP)),
    Command(
        ("memory", "write"),
        "keep something, as your own word",
        "memory:write",
        (
            _MEMORY_TEXT,
            _IN_GROUP,
            _argument(
                "--kind", metavar="K", choices=_KIND, default="episode", help=f"{', '.join(_KIND)} (default: episode)"
            ),
            _argument("--key", metavar="KEY", help="of a fact: its name in MEMORY.md"),
            _argument("--event-time", metavar="T", help="when it happened (default: now)"),
            _argument("--tag", metavar="T", action="append", help="a word it can be found by; may be said again"),
            _argument("--supersedes", metavar="ID", help="what it stands in the place of"),
            _argument("--derived-from", metavar="ID", action="append", help="what it was made of; may be said again"),
        ),
    ),
    Command(("memory", "read"), "one memory, whole", "memory:read", (_MEMORY, _IN_GROUP)),
    Command(
        ("memory", "search"),
        "what is remembered of something",
        "memory:search",
        (
            _argument("query", metavar="Q", help="words, or a question"),
            _argument("-k", type=_number, default=10, metavar="N", help="at most N (default: 10)"),
            _OF_KIND,
            _argument(
                "--since", metavar="T", help="not what is older: like 7d, 2026-12-01 or 2026-12-01T09:00:00+01:00"
            ),
            _IN_GROUP,
            _argument(
                "--backend", choices=("file", "vector", "hybrid"), help="search so (default: as the config says)"
            ),
            _argument("--include-untrusted", action="store_true", help="also what is below the floor, or waits"),
            _argument("--explain", action="store_true", help="with the parts of each score"),
        ),
    ),
    Command(
        ("memory", "list"),
        "every memory, the newest last",
        "memory:listing",
        (
            _IN_GROUP,
            _OF_KIND,
            _argument(
                "--status",
                choices=("active", "proposed", "quarantined", "superseded", "all"),
                default="active",
                help="default: active",
            ),
        ),
    ),
    Command(("memory", "update"), "give a memory another text", "memory:update", (_MEMORY, _MEMORY_TEXT, _IN_GROUP)),
    Command(
        ("memory", "delete"),
        "forget one: its file, what was made of it alone, and where it was said",
        "memory:delete",
        (_MEMORY, _IN_GROUP, _YES),
    ),
    Command(("memory", "edit"), "open its file in your editor", "memory:edit", (_MEMORY, _IN_GROUP)),
    Command(
        ("memory", "consolidate"),
        "merge what is there twice, supersede what was corrected, sum up what is long past",
        "memory:consolidate",
        (_IN_GROUP, _argument("--dry-run", action="store_true", help="say what would be done, and change nothing")),
    ),
    Command(
        ("memory", "reflect"),
        "what is to be learned of turns that failed or were corrected",
        "memory:reflect",
        (_IN_GROUP, _argument("--turn", type=_number, metavar="N", help="of this one, though it was looked at before")),
    ),
    Command(("memory", "reindex"), "make the search index anew from the files", "memory:reindex", (_IN_GROUP,)),
    Command(("memory", "pending"), "what waits for your word, whole", "memory:pending", (_IN_GROUP,)),
    Command(("memory", "approve"), "say yes to it", "memory:approve", (_MEMORY, _IN_GROUP, _YES)),
    Command(("memory", "reject"), "say no: it is gone, and known", "memory:reject", (_MEMORY, _IN_GROUP)),
    Command(("memory", "quarantine"), "have one found by nobody", "memory:quarantine", (_MEMORY, _IN_GROUP)),
    Command(
        ("memory", "trust"),
        "a file of memory/ is your own word as it stands",
        "memory:trust",
        (_argument("file", metavar="FILE", help="its path, from here or from memory/"), _IN_GROUP),
    ),
    Command(("memory", "why"), "where a memory comes from, and what became of it", "memory:why", (_MEMORY, _IN_GROUP)),
    Command(
        ("schedule", "next"),
        "when a rule is due next, and how it is understood",
        "schedules:next_times",
        (
            _argument("expr", metavar="EXPR", help='a cron line, "every 20m", "at 2026-12-01T09:00", or plain words'),
            _argument("--tz", dest="zone", metavar="Z", help="its zone (default: as config.toml says)"),
            _argument("--after", metavar="T", help="later than this (default: now)"),
            _argument("-n", dest="count", type=_number, default=5, metavar="N", help="so many (default: 5)"),
        ),
        home=False,
    ),
    Command(("service", "print"), "what systemd would be told (on macOS: launchd)", "service:show", _SERVICE),
    Command(
        ("service", "install"),
        "have the daemon run from boot on",
        "service:install",
        (*_SERVICE, _argument("--force", action="store_true", help="replace another home's service of this name")),
    ),
    Command(("service", "uninstall"), "end that, and take it away", "service:uninstall", _SERVICE),
)

_LATER = {
    "context": "decide run compact handoff status expand signal export calibrate",
    "skills": "history revert",
    "inject": "",
    "bridge": "mmkr pythonclaw claude-code import accept",
    "session": "seal resume",
    "experiment": "memory",
    "backup": "create verify restore",
    "erase": "",
    "migrate": "",
    "dashboard": "",
    "update": "",
    "evals": "",
}


def _later() -> Iterator[Command]:
    for noun, verbs in _LATER.items():
        for verb in verbs.split() or [""]:
            yield Command((noun, verb) if verb else (noun,), "not built yet")


COMMANDS: dict[tuple[str, ...], Command] = {command.words: command for command in (*_BUILT, *_later())}
