"""What the doctor says of the host's directories that groups ask for: what is refused and why, what the allowlist lets
too much of, and what lies in a mount that an agent should not see, or that a person's own tools would run."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from clawd.commands.mounts import mounts_of
from clawd.config.group import Mount
from clawd.config.home import Home, group_folders
from clawd.config.load import load_group
from clawd.config.mounts import allowlist_file, load_allowlist
from clawd.errors import ClawdError, NotFound, UnsafePath
from clawd.files import walk_beneath
from clawd.health.findings import Finding, finding
from clawd.health.groups import MOST_FILES, named, would_run
from clawd.sandbox import forbidden
from clawd.sandbox.mounts import Verdict


def mounts(home: Home) -> Iterator[Finding]:
    """The allowlist, then each mount."""
    asked = dict[str, list[Mount]]()
    for folder in group_folders(home):
        with suppress(ClawdError):  # its config is another finding
            asked[folder] = load_group(home, folder).mounts
    decided = mounts_of(home)
    problem = decided.problem()
    if problem is not None and not (isinstance(problem, NotFound) and not any(asked.values())):
        level = "error" if any(asked.values()) else "warn"
        yield finding("mounts", level, f"no group has a mount: {problem.message}", problem.hint)
    found = [] if problem else [*_roots(home)]
    for group, wanted in asked.items() if problem is None else ():
        command = f"edit {shlex.quote(str(home.group(group).config_file))}"
        for mount in wanted:
            verdict = decided.check(mount.path, mount.mode == "rw", group)
            what = f"the mount {mount.name} of group {group}"
            if not verdict.allow:
                found.append(finding("mounts", "warn", f"{what} is not shown: {verdict.reason}", command))
                continue
            if verdict.mode != mount.mode:
                found.append(finding("mounts", "warn", f"{what} is read-only: {verdict.reason}", command))
            found += _inside(what, verdict)
    yield from found
    if problem is None and not found:
        yield finding("mounts", "ok", "the mount allowlist is sound, and every mount is shown")


def _roots(home: Home) -> Iterator[Finding]:
    """Roots that allow nothing, or not themselves."""
    file = allowlist_file(os.environ)
    roots = load_allowlist(file).roots
    verdicts = mounts_of(home).judge(Mount(path=root.path, name="root") for root in roots)
    for root, verdict in zip(roots, verdicts, strict=True):
        if not verdict.allow:
            message = f"the root {root.path} cannot be shown as a whole: {verdict.reason}"
            yield finding("mounts", "warn", message, f"edit {shlex.quote(str(file))}")


def _inside(what: str, verdict: Verdict) -> Iterator[Finding]:
    """What a look at the names in a mount tells. Its secrets are refused by the path that is asked for alone."""
    tree = Path(verdict.real)
    secrets, linked, runs, raised = (list[str]() for _ in range(4))
    with suppress(UnsafePath):  # too deep to be looked at whole
        for path, status in islice(walk_beneath(tree), MOST_FILES):
            if forbidden.secret(Path(path)) and "/.git/" not in f"/{path}":
                secrets.append(path)
            if status.st_nlink > 1:
                linked.append(path)
            if verdict.mode == "rw" and would_run(tree, path):
                runs.append(path)
            if verdict.mode == "rw" and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                raised.append(path)
    where = shlex.quote(str(tree))
    if secrets:
        message = f"{what} shows what may be secrets: {named(secrets)}"
        yield finding("mounts", "warn", message, f"move them out of {where}")
    if linked:
        message = f"{what} has files with a second name, which may lie anywhere: {named(linked)}"
        yield finding("mounts", "warn", message, f"find {where} -type f -links +1")
    if runs:
        message = f"{what} can be written to, and tools of your own would run {named(runs)}: look before you use them"
        yield finding("mounts", "warn", message, f"ls -la {where}")
    if raised:
        command = f"find {where} -type f -perm /6000 -exec chmod a-s {{}} +"
        yield finding("mounts", "error", f"{what}: {named(raised)} would run as its owner", command)
