"""The commands that keep a home, or a group, aside, and put it back."""

from __future__ import annotations

from clawd.cli.catalogue.arguments import Command, argument

_ARCHIVE = argument("archive", metavar="ARCHIVE", help="its file, or its name alone (clawd backup list)")

COMMANDS = (
    Command(
        ("backup", "create"),
        "keep the home, or one group, in an archive; a daemon may run meanwhile",
        "backups:create",
        (
            argument("--group", metavar="G", help="this group alone (default: all of the home)"),
            argument("--label", metavar="L", help="a word in its name: letters, digits, - and _"),
            argument("--to", metavar="FILE", help="where (default: state/backups, named by the moment)"),
        ),
    ),
    Command(("backup", "verify"), "whether an archive is whole and sound", "backups:verify", (_ARCHIVE,)),
    Command(
        ("backup", "restore"),
        "put an archive in the place of what is there, which is kept; no daemon may run",
        "backups:restore",
        (
            _ARCHIVE,
            argument("--group", metavar="G", help="this group of a home's archive alone"),
            argument("--yes", action="store_true", help="without asking"),
        ),
    ),
    Command(("backup", "list"), "the archives in state/backups, the newest first", "backups:listing"),
)
