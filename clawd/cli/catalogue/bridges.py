"""The commands that bring in what other agents know, and give it to them."""

from __future__ import annotations

from clawd.cli.catalogue.arguments import Command, argument

_GROUP = argument(
    "--group", metavar="G", help="the group (default: the session's, else the one whose external names it)"
)
_OF_GROUP = argument("--group", metavar="G", default="main", help="of this group (default: main)")
_TO_GROUP = argument("--group", metavar="G", help="all of it into this group (default: each of its chats to its own)")
_HOME = argument("source_home", metavar="HOME", help="the other agent's home, like ~/.pythonclaw")
_DRY = argument("--dry-run", action="store_true", help="say what would be done, and change nothing")

COMMANDS = (
    Command(
        ("inject",),
        "put a message of another program into a session, as history; standard input is its text",
        "bridges:inject",
        (
            argument("--session", required=True, metavar="ID", help="like mmkr:agent-1, which the group allows"),
            argument("--role", required=True, choices=("user", "assistant", "tool"), help="user, assistant or tool"),
            argument("--tool-call-id", metavar="ID", help="of a tool's result: the id of its call"),
            argument("--tool-calls", metavar="FILE", help="of an assistant's message: its calls, a JSON list"),
            argument("--key", metavar="K", help="what the writer calls this message: said twice, it is there once"),
            argument("--at", metavar="T", help="when it was said, in RFC 3339 (default: now)"),
            _GROUP,
        ),
    ),
    Command(
        ("bridge", "mmkr", "convert"),
        "make sessions and memories of an mmkr trace",
        "bridges:mmkr_convert",
        (
            argument("trace", metavar="TRACE", help="trace.jsonl, in any of its dialects"),
            argument("--agent-id", required=True, metavar="A", help="whose it is: the session is mmkr:A"),
            argument("--output", metavar="DIR", help="a PythonClaw or clawd home (default: this clawd home)"),
            _GROUP,
        ),
        home=False,  # the one that --output names need not be there
    ),
    Command(
        ("bridge", "pythonclaw", "import"),
        "bring in a PythonClaw home; nothing of it is used before clawd bridge accept",
        "bridges:pythonclaw_import",
        (_HOME, _DRY, _TO_GROUP),
    ),
    Command(
        ("bridge", "pythonclaw", "export"),
        "write a group's sessions, memories, skills and schedules into a PythonClaw home",
        "bridges:pythonclaw_export",
        (_HOME, _DRY, _OF_GROUP),
    ),
    Command(
        ("bridge", "pythonclaw", "sync"),
        "both: bring in what is new there, and write there what is new here",
        "bridges:pythonclaw_sync",
        (_HOME, _DRY, _OF_GROUP),
    ),
    Command(
        ("bridge", "claude-code", "export"),
        "write a group's instructions, memory and skills into the .claude/ of a project",
        "bridges:claude_code_export",
        (
            argument("directory", nargs="?", metavar="DIR", help="the project (default: the group's own folder)"),
            _DRY,
            _OF_GROUP,
        ),
    ),
    Command(
        ("bridge", "import"),
        "bring in the home of another claw; nothing of it is used before clawd bridge accept",
        "bridges:import_",
        (
            argument("source", choices=("nanoclaw", "openclaw", "nanobot"), help="nanoclaw, openclaw or nanobot"),
            _HOME,
            _DRY,
            _TO_GROUP,
        ),
    ),
    Command(
        ("bridge", "list"),
        "what was brought in, and what of it waits for your word",
        "bridges:listing",
        (argument("--group", metavar="G", help="of this group alone"),),
    ),
    Command(
        ("bridge", "accept"),
        "use what was brought in, as it lies in import/SOURCE",
        "bridges:accept",
        (
            argument("source", metavar="SOURCE", help="pythonclaw, nanoclaw, openclaw, nanobot (clawd bridge list)"),
            argument(
                "--only",
                action="append",
                choices=("instructions", "sessions", "memory", "skills", "schedules"),
                help="only these; may be said again",
            ),
            argument("--group", metavar="G", help="of this group alone (default: of all)"),
        ),
    ),
)
