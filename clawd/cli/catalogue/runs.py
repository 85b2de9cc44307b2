"""The commands that run the context life cycle by hand: a run, and an experiment of several."""

from __future__ import annotations

from clawd.cli.catalogue.arguments import IN_GROUP, Command, argument, number

_SCRIPT = argument(
    "--script", metavar="FILE", help="what the engine scripted plays: a file, or demo or memory, which ship"
)
_SOFT = argument("--soft-compact", type=number, metavar="N", help="tokens of the window at which it is compacted")
_HARD = argument("--hard-handoff", type=number, metavar="N", help="tokens of the window at which it is handed over")
_GOAL = argument("--goal", metavar="TEXT", help="what is to be done: the first message")

COMMANDS = (
    Command(
        ("context", "run"),
        "run a session step by step towards a goal, compacting and handing over as its window fills",
        "running:run",
        (
            _GOAL,
            _SCRIPT,
            argument("--profile", metavar="P", help="thresholds by name: coding, chat, or one of [profiles]"),
            _SOFT,
            _HARD,
            argument("--max-steps", type=number, metavar="N", help="how many steps this run may take (20)"),
            argument("--session-id", metavar="ID", help="the session's id (default: one of its own)"),
            argument("--resume", metavar="ID", help="go on with an earlier run that was stopped"),
            IN_GROUP,
            argument("--agent", metavar="ENGINE", help="which engine answers (default: the group's, or the script)"),
            argument("--agent-id", metavar="A", help="who works here, for manifests and metrics"),
            argument("--memory-namespace", metavar="NS", help="under which its memories are kept"),
            argument(
                "--require-confirm", metavar="ACTIONS", help="ask before these: compact, handoff, or compact,handoff"
            ),
            argument("--yes", action="store_true", help="say yes to what asks first"),
        ),
    ),
    Command(
        ("experiment", "memory"),
        "the same script on several memory backends, side by side",
        "experiments:memory",
        (
            argument(
                "--script", metavar="FILE", default="memory", help="a file, or demo or memory, which ship (memory)"
            ),
            argument(
                "--backends", metavar="LIST", default="file,vector,hybrid,mem0", help="of file, vector, hybrid and mem0"
            ),
            _GOAL,
            _SOFT,
            _HARD,
            argument("--out", metavar="DIR", help="where the report goes (default: exports/ of the home)"),
        ),
        home=False,
    ),
)
