"""What the doctor looks at in each group: its own files and their rights, and what an agent left in `work/` that a
person's tools would run."""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from clawd.commands.mounts import mounts_of
from clawd.config.group import Mount
from clawd.config.home import Home, group_folders
from clawd.config.load import load_group
from clawd.errors import ClawdError, UnsafePath
from clawd.files import read_beneath, read_owned, walk_beneath
from clawd.health.findings import Finding, finding, read_ledger
from clawd.ledger import groups as rows
from clawd.ledger.groups import UID_BASE

MOST_FILES = 50_000  # of all groups' `work/` together that are looked at
_SHOWN = 5
_READ = 256 << 10
# By name alone, or by name and a word in it: no parser of ours reads what an agent wrote.
_RUN = (
    (re.compile(r"(.*/)?\.git/hooks/[^/]+(?<!\.sample)"), None),
    (re.compile(r"(.*/)?\.git/commondir"), None),  # has git take hooks and config from elsewhere
    (re.compile(r"(.*/)?\.git/config"), rb"(?i)fsmonitor|hookspath|sshcommand|pager|editor|helper|textconv"),
    (re.compile(r"(.*/)?\.envrc"), None),
    (re.compile(r"(.*/)?\.vscode/.+"), None),
    (re.compile(r"(.*/)?\.mcp\.json"), None),
    (re.compile(r"(.*/)?\.claude/settings[^/]*\.json"), None),
    (
        re.compile(r"(?!(.*/)?node_modules/)(.*/)?package\.json"),
        rb'"(pre|post)?(install|prepare|publish|pack|test|start)"\s*:',
    ),
)


def files(home: Home) -> Iterator[Finding]:
    """What a group's owner says to its agent must surely be the owner's."""
    wrong = False
    for folder in group_folders(home):
        group = home.group(folder)
        for file in (group.claude_md, group.user_profile, group.config_file):
            try:
                read_owned(file.parent, file.name)
            except FileNotFoundError:
                continue
            except (UnsafePath, OSError) as error:
                wrong = True
                why = error.message if isinstance(error, UnsafePath) else str(error.strerror)
                yield finding("groups", "error", f"{file} is not used: {why}", f"ls -l {shlex.quote(str(file))}")
    for each in _beneath_mounts(home):
        wrong = True
        yield each
    for each in _works(home):
        wrong = True
        yield each
    if not wrong:
        yield finding("groups", "ok", "every group's own files are its owner's alone")


def _beneath_mounts(home: Home) -> Iterator[Finding]:
    """A writable mount around the home would let an agent write its own orders."""
    real = home.root.resolve()
    for folder in group_folders(home):
        asked = list[Mount]()
        with suppress(ClawdError):  # its config is another finding
            asked = load_group(home, folder).mounts
        for mount, verdict in zip(asked, mounts_of(home).judge(asked), strict=True):
            tree = Path(verdict.real)
            if mount.mode == "rw" and (real.is_relative_to(tree) or tree.is_relative_to(real)):
                message = f"group {folder} could write to {mount.path}, in which this home or a part of it lies"
                yield finding("groups", "error", message, f"edit {shlex.quote(str(home.group(folder).config_file))}")


def _works(home: Home) -> Iterator[Finding]:
    numbers = read_ledger(home, rows.every) or []
    known = {row.folder: UID_BASE + row.number for row in numbers}
    for folder in group_folders(home):
        work = home.group(folder).work
        with suppress(FileNotFoundError):
            status = work.lstat()
            uid = known.get(folder) if os.geteuid() == 0 else os.geteuid()
            if not stat.S_ISDIR(status.st_mode):
                yield finding("groups", "error", f"{work} is a link, or no directory", f"rm {shlex.quote(str(work))}")
            elif uid is not None and status.st_uid not in (uid, os.geteuid()):
                message = f"{work} belongs to user {status.st_uid}, and the agent is {uid}"
                yield finding("groups", "error", message, f"chown -R {uid}:{uid} {shlex.quote(str(work))}")


def work(home: Home) -> Iterator[Finding]:
    """`work/` is an agent's: what lies there is looked at and never run, and a person should know what would be."""
    left, clean = MOST_FILES, True
    for folder in group_folders(home):
        group = home.group(folder)
        runs, raised, stop = list[str](), list[str](), ""
        try:
            for path, status in walk_beneath(group.work):
                if not left:
                    stop = f"only some of the files in {group.work} were looked at: there are too many"
                    break
                left -= 1
                if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                    raised.append(path)
                if would_run(group.work, path):
                    runs.append(path)
        except UnsafePath as error:
            stop = error.message
        where = shlex.quote(str(group.work))
        if raised:
            command = f"find {where} -type f -perm /6000 -exec chmod a-s {{}} +"
            yield finding("work", "error", f"{named(raised)} in {group.work} would run as its owner", command)
        if runs:
            message = f"tools of your own would run {named(runs)} in {group.work}: look before you use them there"
            yield finding("work", "warn", message, f"clawd groups clean {folder}")
        if stop:
            yield finding("work", "warn", stop, f"clawd groups clean {folder}")
        clean = clean and not (raised or runs or stop)
    if clean:
        yield finding("work", "ok", "nothing in work/ would be run by tools of your own")


def would_run(tree: Path, path: str) -> bool:
    """Whether a person's git, editor, shell or package manager would run this file of a tree, or what it names."""
    for name, words in _RUN:
        if name.fullmatch(path):
            if words is None:
                return True
            with suppress(OSError, UnsafePath):
                return re.search(words, read_beneath(tree, path, _READ)) is not None
    return False


def named(paths: list[str]) -> str:
    """The first few of them, and how many more."""
    more = len(paths) - _SHOWN
    return ", ".join(sorted(paths)[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
