"""The commands that are about the context life cycle."""

from __future__ import annotations

from clawd.cli.catalogue.arguments import Command, argument, number

SESSION = argument("--session", required=True, metavar="S", help="the session (clawd session list)")
GROUP = argument("--group", metavar="G", help="its group, where that is to be sure")
_PROFILE = argument("--profile", metavar="P", help="coding, chat, or one of [profiles] (default: the group's)")
_YES = argument("--yes", action="store_true", help="without being asked, where that is wanted (require_confirm)")
_FORMAT = argument("--format", required=True, choices=("csv", "json", "html"), help="csv, json, or a page: html")

COMMANDS = (
    Command(("context", "status"), "how a session's window stands", "contexts:status", (SESSION, GROUP)),
    Command(
        ("context", "compact"),
        "have a session's window hold less, without losing what it holds on to",
        "contexts:compact",
        (SESSION, GROUP, _YES),
    ),
    Command(
        ("context", "handoff"),
        "end a session, and begin its successor with what must be known",
        "contexts:handoff",
        (SESSION, GROUP, _YES),
    ),
    Command(
        ("context", "signal"),
        "say that a phase of the work is done: it is handed over after the next turn",
        "contexts:signal",
        (
            argument("--phase-done", action="store_true", required=True, help="the phase is done"),
            SESSION,
            GROUP,
        ),
    ),
    Command(
        ("context", "export"),
        "what is known of a session's context, as files",
        "contexts:export",
        (_FORMAT, SESSION, GROUP),
    ),
    Command(
        ("context", "decide"),
        "what would be done with a session of so many tokens: continue, compact or handoff",
        "contexts:decide",
        (
            argument("--tokens", type=number, required=True, metavar="N", help="what its next prompt would hold"),
            _PROFILE,
            argument("--phase-done", action="store_true", help="as if a phase of its work were done"),
            argument("--group", metavar="G", default="main", help="as this group has it (default: main)"),
        ),
        home=False,
    ),
    Command(
        ("context", "calibrate"),
        "limits for a profile, from how its sessions went",
        "contexts:calibrate",
        (
            _PROFILE,
            argument("--write", action="store_true", help="write them to state/calibrations/, for config.toml to name"),
            argument("--group", metavar="G", help="from this group's sessions, for its model (default: all, main's)"),
        ),
    ),
)
