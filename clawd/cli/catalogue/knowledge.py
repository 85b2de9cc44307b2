"""The commands that are about what a group knows: its schedules, its skills, its memory."""

from __future__ import annotations

from clawd.cli.catalogue.arguments import IN_GROUP, OF_GROUP, Command, argument, dollars, number

_FOR_GROUP = argument("--group", metavar="G", help="as this group has it")
_SKILL = argument("name", metavar="N", help="its name (clawd skills list)")
_SKILLS_GROUP = argument("--group", metavar="G", help="of this group alone (default: of all groups)")
_MEMORY = argument("id", metavar="ID", help="its id (clawd memory list, search, pending)")
_KIND = ("profile", "episode", "entity", "procedure", "reflection", "fact")
_OF_KIND = argument("--kind", metavar="K", choices=(*_KIND, "day"), help=f"of this kind alone: {', '.join(_KIND)}, day")
_MEMORY_TEXT = argument("text", nargs="?", metavar="TEXT", help="- reads standard input")
_YES = argument("--yes", action="store_true", help="without asking")
_SCHEDULE = (argument("id", metavar="ID", help="its name, or GROUP/NAME (clawd schedule list)"), OF_GROUP)
_IN_NAMESPACE = argument("--namespace", metavar="NS", help="of this namespace alone (default: all of the group's)")

COMMANDS = (
    Command(("schedule", "list"), "every schedule, and when it is due next", "schedules:listing", (OF_GROUP,)),
    Command(
        ("schedule", "add"),
        "have the agent told something later, or regularly",
        "schedules:add",
        (
            argument("when", metavar="WHEN", help='"every weekday at 9", "0 9 * * mon-fri", "every 20m", "in 2 hours"'),
            argument(
                "prompt",
                nargs="?",
                metavar="PROMPT",
                help='what it is told; without it WHEN says both: "remind me in 10 minutes to stretch"',
            ),
            IN_GROUP,
            argument("--id", metavar="ID", help="its name (default: from what it does)"),
            argument("--tz", metavar="Z", help="the time zone (default: the group's)"),
            argument("--skill", metavar="S", help="the skill to use, instead of a prompt"),
            argument(
                "--session", choices=("group", "own"), help="the group's conversation (default), or one of its own"
            ),
            argument(
                "--deliver-to", metavar="B", help="the binding of the group that is answered (default: the first)"
            ),
            argument(
                "--catch-up",
                choices=("once", "skip", "all"),
                help="of runs that were missed: the newest (default), none, or the newest ten",
            ),
            argument("--catch-up-within", metavar="SPAN", help="not what was missed for longer (default: 24h)"),
            argument("--jitter", metavar="SPAN", help="late by up to so much, by chance"),
            argument(
                "--check", metavar="CMD", help='run in the sandbox first; its last line says {"wake": true} or not'
            ),
            argument("--until", metavar="T", help="never after this: like 2026-12-31T18:00"),
            argument("--budget", type=dollars, metavar="USD", help="dollars that one run may cost"),
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
        (argument("id", nargs="?", metavar="ID", help="of this one alone"), OF_GROUP),
    ),
    Command(("skills", "list"), "every skill, and which are refused", "skills:listing", (_FOR_GROUP,)),
    Command(("skills", "show"), "one skill, whole", "skills:show", (_SKILL, _FOR_GROUP)),
    Command(
        ("skills", "check"),
        "whether a folder is a skill that would be used, and what is wrong with it",
        "skills:check",
        (argument("directory", metavar="DIR", help="a folder with a SKILL.md"),),
        home=False,
    ),
    Command(
        ("skills", "add"),
        "make a skill of a folder or an archive; it is used from the next turn on",
        "skills:add",
        (
            argument("source", metavar="PATH", help="a folder, or a .zip, .skill, .tar, .tar.gz or .tgz"),
            _SKILLS_GROUP,
            argument("--force", action="store_true", help="replace one of that name, which is kept aside"),
        ),
    ),
    Command(("skills", "remove"), "take a skill away; it is kept aside", "skills:remove", (_SKILL, _SKILLS_GROUP)),
    Command(
        ("skills", "new"),
        "make a skill to be filled in",
        "skills:new",
        (argument("name", metavar="N", help="lower-case letters, digits and hyphens"), _SKILLS_GROUP),
    ),
    Command(("skills", "pending"), "the skills that agents propose", "skills:pending"),
    Command(("skills", "approve"), "say yes to one of them", "skills:approve", (_SKILL, OF_GROUP)),
    Command(("skills", "reject"), "say no to it", "skills:reject", (_SKILL, OF_GROUP)),
    Command(
        ("memory", "write"),
        "keep something, as your own word",
        "memory:write",
        (
            _MEMORY_TEXT,
            IN_GROUP,
            argument(
                "--kind", metavar="K", choices=_KIND, default="episode", help=f"{', '.join(_KIND)} (default: episode)"
            ),
            argument("--key", metavar="KEY", help="of a fact: its name in MEMORY.md"),
            argument("--event-time", metavar="T", help="when it happened (default: now)"),
            argument("--tag", metavar="T", action="append", help="a word it can be found by; may be said again"),
            argument("--supersedes", metavar="ID", help="what it stands in the place of"),
            argument("--derived-from", metavar="ID", action="append", help="what it was made of; may be said again"),
            argument("--namespace", metavar="NS", help="where it is kept, like shared/garden (default: the group)"),
        ),
    ),
    Command(("memory", "read"), "one memory, whole", "memory:read", (_MEMORY, IN_GROUP)),
    Command(
        ("memory", "search"),
        "what is remembered of something",
        "memory:search",
        (
            argument("query", metavar="Q", help="words, or a question"),
            argument("-k", type=number, default=10, metavar="N", help="at most N (default: 10)"),
            _OF_KIND,
            argument(
                "--since", metavar="T", help="not what is older: like 7d, 2026-12-01 or 2026-12-01T09:00:00+01:00"
            ),
            IN_GROUP,
            argument("--backend", choices=("file", "vector", "hybrid"), help="search so (default: as the config says)"),
            argument("--include-untrusted", action="store_true", help="also what is below the floor, or waits"),
            argument("--explain", action="store_true", help="with the parts of each score"),
            _IN_NAMESPACE,
        ),
    ),
    Command(
        ("memory", "list"),
        "every memory, the newest last",
        "memory:listing",
        (
            IN_GROUP,
            _OF_KIND,
            argument(
                "--status",
                choices=("active", "proposed", "quarantined", "superseded", "all"),
                default="active",
                help="default: active",
            ),
            _IN_NAMESPACE,
        ),
    ),
    Command(("memory", "update"), "give a memory another text", "memory:update", (_MEMORY, _MEMORY_TEXT, IN_GROUP)),
    Command(
        ("memory", "delete"),
        "forget one: its file, what was made of it alone, and where it was said",
        "memory:delete",
        (_MEMORY, IN_GROUP, _YES),
    ),
    Command(("memory", "edit"), "open its file in your editor", "memory:edit", (_MEMORY, IN_GROUP)),
    Command(
        ("memory", "consolidate"),
        "merge what is there twice, supersede what was corrected, sum up what is long past",
        "memory:consolidate",
        (IN_GROUP, argument("--dry-run", action="store_true", help="say what would be done, and change nothing")),
    ),
    Command(
        ("memory", "reflect"),
        "what is to be learned of turns that failed or were corrected",
        "memory:reflect",
        (IN_GROUP, argument("--turn", type=number, metavar="N", help="of this one, though it was looked at before")),
    ),
    Command(("memory", "reindex"), "make the search index anew from the files", "memory:reindex", (IN_GROUP,)),
    Command(("memory", "pending"), "what waits for your word, whole", "memory:pending", (IN_GROUP,)),
    Command(("memory", "approve"), "say yes to it", "memory:approve", (_MEMORY, IN_GROUP, _YES)),
    Command(("memory", "reject"), "say no: it is gone, and known", "memory:reject", (_MEMORY, IN_GROUP)),
    Command(("memory", "quarantine"), "have one found by nobody", "memory:quarantine", (_MEMORY, IN_GROUP)),
    Command(
        ("memory", "trust"),
        "a file of memory/ is your own word as it stands",
        "memory:trust",
        (argument("file", metavar="FILE", help="its path, from here or from memory/"), IN_GROUP),
    ),
    Command(("memory", "why"), "where a memory comes from, and what became of it", "memory:why", (_MEMORY, IN_GROUP)),
    Command(
        ("schedule", "next"),
        "when a rule is due next, and how it is understood",
        "schedules:next_times",
        (
            argument("expr", metavar="EXPR", help='a cron line, "every 20m", "at 2026-12-01T09:00", or plain words'),
            argument("--tz", dest="zone", metavar="Z", help="its zone (default: as config.toml says)"),
            argument("--after", metavar="T", help="later than this (default: now)"),
            argument("-n", dest="count", type=number, default=5, metavar="N", help="so many (default: 5)"),
        ),
        home=False,
    ),
)
