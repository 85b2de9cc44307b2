"""The commands that are about when a session is compacted or handed over."""

from __future__ import annotations

from clawd.cli.catalogue.arguments import Command, argument, number

_PROFILE = argument("--profile", metavar="P", help="coding, chat, or one of [profiles] (default: the group's)")

COMMANDS = (
    Command(
        ("context", "decide"),
        "what would be done with a session of so many tokens: continue, compact or handoff",
        "limits:decide",
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
        "limits:calibrate",
        (
            _PROFILE,
            argument("--write", action="store_true", help="write them to state/calibrations/, for config.toml to name"),
            argument("--group", metavar="G", help="from this group's sessions, for its model (default: all, main's)"),
        ),
    ),
)
