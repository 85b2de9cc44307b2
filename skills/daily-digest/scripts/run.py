"""Print what the group wrote down lately, as Markdown: run.py [DAYS]. Reads the Markdown files of the current
directory, links and hidden directories left out."""

import os
import re
import sys
import time

NOTE = re.compile(r"[-*] (\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)(?::\d\d)? (.+)")
TO_DO = re.compile(r"\s*[-*] \[ \] (.+)")
MOST_FILES, MOST_BYTES, MOST_LINES = 500, 200_000, 100


def documents():
    """(path, when it changed, lines) of each Markdown file, sorted by path."""
    found = []
    for directory, below, names in os.walk("."):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            path = os.path.normpath(os.path.join(directory, name))
            if name.endswith(".md") and os.path.isfile(path) and not os.path.islink(path) and len(found) < MOST_FILES:
                with open(path, encoding="utf-8", errors="replace") as file:
                    found.append((path, os.path.getmtime(path), file.read(MOST_BYTES).splitlines()))
    return sorted(found)


def section(title, lines):
    more = [f"- … and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return "\n".join(["## " + title, "", *lines[:MOST_LINES], *more, ""]) if lines else ""


def digest(days, now):
    since, files = now - days * 86400, documents()
    first = time.strftime("%Y-%m-%d", time.localtime(since))
    notes = {}
    for path, _, lines in files:
        for match in map(NOTE.match, lines if os.path.basename(path) == "notes.md" else ()):
            if match and match[1] >= first:
                notes.setdefault(match[1], []).append(f"- {match[2]} {match[3]}")
    open_ = [f"- {match[1]} ({path})" for path, _, lines in files for match in map(TO_DO.match, lines) if match]
    changed = [f"- {path}" for path, at, _ in files if at >= since and os.path.basename(path) != "notes.md"]
    days_of = [section(f"Notes of {day}", sorted(notes[day])) for day in sorted(notes, reverse=True)]
    parts = [*days_of, section("Still open", open_), section("Changed files", changed)]
    return "\n".join(part for part in parts if part) or "There is nothing: no notes, nothing open, nothing changed."


def main():
    try:
        days = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    except ValueError:
        days = 0.0
    if not 0 < days <= 3660:
        return "Say for how many days: run.py 7"
    print(digest(days, time.time()).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
