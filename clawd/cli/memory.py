"""`clawd memory write|read|search|list|update|delete|edit|consolidate|reflect|reindex|pending|approve|reject|
quarantine|trust|why`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawd.cli.clean import clean
from clawd.cli.page import cell, give, say, when_shortly, write_json
from clawd.commands import writing
from clawd.config.home import Home
from clawd.errors import ClawdError, UsageError

if TYPE_CHECKING:
    from clawd.memory.store import GroupMemory

_COLUMNS = ("id", "kind", "status", "trust", "event_time", "text")


# ── looking ──


def search(options: Namespace, home: Home) -> int:
    from clawd.commands import memory

    found = memory.searched(
        _opened(options, home, options.backend),
        options.query,
        k=options.k,
        kind=options.kind,
        after=options.since,
        untrusted=options.include_untrusted,
        explain=options.explain,
        namespace=options.namespace,
    )
    if options.json:
        return _json(found)
    for hit in found["hits"]:
        head = f"{hit['id']}  {hit['kind']}  {when_shortly(hit['event_time'])}  score {hit['score']:g}"
        _print(f"{head}  trust {hit['trust']:g}  {hit['source']}")
        if options.explain:
            _print("    " + "  ".join(f"{name} {part:g}" for name, part in hit["parts"].items()))
        _print(_indented(hit["text"]))
    if not found["hits"]:
        say("nothing is found")
    say(f"searched by: {', '.join(found['lanes'])}" if found["lanes"] else "there is no word in that to search for")
    if "vector: not installed" in found["lanes"]:
        say("to search by meaning: pip install 'clawd[vector]'")
    return 0


def listing(options: Namespace, home: Home) -> int:
    from clawd.commands import memory

    statuses = memory.STATUSES if options.status == "all" else [options.status]
    rows = memory.listed(_opened(options, home), options.kind, statuses, options.namespace)
    if options.json:
        return _json(rows)
    short = [{**row, "text": _short(row), "event_time": when_shortly(row["event_time"])} for row in rows]
    give(short, False, _COLUMNS, "no memories yet: clawd memory write TEXT")
    return 0


def read(options: Namespace, home: Home) -> int:
    from clawd.commands import memory

    of = _opened(options, home)
    found = memory.shown(of, of.get(options.id))
    if options.json:
        return _json(found)
    give({key: value for key, value in found.items() if key != "text" and value not in (None, [])}, False)
    _print(f"\n{found['text']}")
    return 0


def pending(options: Namespace, home: Home) -> int:
    from clawd.commands import memory

    rows = memory.pending(_opened(options, home))
    if options.json:
        return _json(rows)
    for row in rows:
        _print_whole(row)
        _print("")
    group = "" if options.group == "main" else f" --group {options.group}"
    say(f"clawd memory approve ID{group}, or reject ID" if rows else "nothing waits for your word")
    return 0


def why(options: Namespace, home: Home) -> int:
    from clawd.commands import memory

    found = memory.why(home, _opened(options, home), options.id)
    give(found, options.json)
    return 0


# ── changing ──


def write(options: Namespace, home: Home) -> int:
    made = writing.call(
        home,
        "memory.write",
        group=options.group,
        text=_text(options.text),
        kind=options.kind,
        key=options.key,
        event_time=options.event_time,
        tags=options.tag,
        supersedes=options.supersedes,
        derived_from=options.derived_from,
        namespace=options.namespace,
    )
    return _wrote(options, made)


def update(options: Namespace, home: Home) -> int:
    return _wrote(
        options, writing.call(home, "memory.update", group=options.group, id=options.id, text=_text(options.text))
    )


def _wrote(options: Namespace, made: dict[str, Any]) -> int:
    if options.json:
        return _json(made)
    _print(f"{made['id']} is {made['status']}, and trusted at {made['trust']:g}")
    if made.get("why"):
        group = "" if options.group == "main" else f" --group {options.group}"
        say(f"it waits: {made['why']}; clawd memory approve {made['id']}{group}")
    elif made["file"]:
        say(f"it is in {made['file']}")
    return 0


def delete(options: Namespace, home: Home) -> int:
    from clawd.commands import memory

    of = _opened(options, home)
    record = of.get(options.id)
    if not (options.yes or options.json) and sys.stdin.isatty():
        _print_whole(memory.shown(of, record))
        _confirm(f"Forget {options.id}? It leaves the files, the search and the conversations.")
    gone = writing.call(home, "memory.delete", group=options.group, id=options.id)
    if options.json:
        return _json(gone)
    also = f"; what was made of it alone went with it: {', '.join(gone['also'])}" if gone["also"] else ""
    _print(f"{gone['id']} is forgotten{also}")
    for sentence in gone["left"]:
        say(sentence)
    return 0


def edit(options: Namespace, home: Home) -> int:
    """The file itself in an editor; of a fact, its value."""
    from clawd.commands import memory

    of = _opened(options, home)
    record = of.get(options.id)
    if record.kind == "fact":
        _edit_value(options, home, record.text)
    else:
        path = of.root / record.file
        if not record.file or not path.is_file():
            raise UsageError(f"{options.id} has no file of its own")
        _open_editor(path)
        for sentence in of.look([record.file]):
            say(sentence)
    now = memory.shown(of, of.get(options.id))
    if options.json:
        return _json(now)
    changed = "it is as it was" if now["text"] == record.text else "the edit is taken"
    _print(f"{now['id']}: {changed}; it keeps its trust, {now['trust']:g}, and is {now['status']}")
    return 0


def _edit_value(options: Namespace, home: Home, value: str) -> None:
    with tempfile.NamedTemporaryFile("w+", suffix=".md", encoding="utf-8") as file:
        file.write(value)
        file.flush()
        _open_editor(Path(file.name))
        edited = Path(file.name).read_text("utf-8").strip()  # an editor may put another file in its place
    if edited != value.strip():
        writing.call(home, "memory.update", group=options.group, id=options.id, text=edited)


def _open_editor(path: Path) -> None:
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not words:
        raise UsageError("no editor is set", hint=f"EDITOR=nano clawd memory edit …, or open {path}")
    try:
        code = subprocess.run([*words, str(path)], check=False).returncode
    except OSError as error:
        raise UsageError(f"the editor {words[0]} cannot be started: {error.strerror}") from None
    if code != 0:
        raise ClawdError(f"the editor {words[0]} ended with {code}; what it saved counts")


def approve(options: Namespace, home: Home) -> int:
    """It is bound to the text that is printed here."""
    from clawd.commands import memory

    of = _opened(options, home)
    record = of.get(options.id)
    if not options.json:
        _print_whole(memory.shown(of, record))
        if not options.yes and sys.stdin.isatty():
            _confirm("Is that so, and may the agent rely on it as on your own word?")
    sha256 = memory.digest(record.text)
    made = writing.call(home, "memory.approve", group=options.group, id=options.id, sha256=sha256)
    return _became(options, made)


def reject(options: Namespace, home: Home) -> int:
    return _became(options, writing.call(home, "memory.reject", group=options.group, id=options.id))


def quarantine(options: Namespace, home: Home) -> int:
    return _became(options, writing.call(home, "memory.quarantine", group=options.group, id=options.id))


def trust(options: Namespace, home: Home) -> int:
    """A file that is named from here, or from the group's `memory/`."""
    path, own = Path(options.file).absolute(), home.group(options.group).memory
    path = path if path.exists() else own / options.file
    return _became(options, writing.call(home, "memory.trust", group=options.group, file=str(path)))


def _became(options: Namespace, made: dict[str, Any]) -> int:
    if options.json:
        return _json(made)
    if made.get("kind") == "profile" and made["status"] == "active":
        _print(f"{made['id']} is approved: it stands in user_profile.md now")
    else:
        trusted = f", and trusted at {made['trust']:g}" if made["status"] == "active" else ""
        _print(f"{made['id']} is {made['status']}{trusted}")
    return 0


def consolidate(options: Namespace, home: Home) -> int:
    done = writing.call(home, "memory.consolidate", group=options.group, dry_run=options.dry_run)
    if options.json:
        return _json(done)
    for each in done["actions"]:
        into = f" → {each['into']}" if each["into"] else ""
        _print(f"{each['action']}  {', '.join(each['ids'])}{into}  ({each['why']})")
    if not done["actions"]:
        say("there is nothing to merge, to supersede or to sum up")
    elif options.dry_run:
        say("nothing was changed")
    return 0


def reflect(options: Namespace, home: Home) -> int:
    found = writing.call(home, "memory.reflect", group=options.group, turn=options.turn)
    if options.json:
        return _json(found)
    for each in found["reflections"]:
        _print(f"{each['id']}  of turn {each['turn']}, {each['status']}")
        _print(_indented(each["text"]))
    if not found["reflections"]:
        say("there is nothing to be learned")
    return 0


def reindex(options: Namespace, home: Home) -> int:
    give(writing.call(home, "memory.reindex", group=options.group), options.json)
    return 0


def _opened(options: Namespace, home: Home, backend: str | None = None) -> GroupMemory:
    """The group's memory, which knows its files."""
    from clawd.commands import memory

    of = memory.opened(home, options.group, backend)
    for sentence in of.look():
        say(sentence)
    return of


# ── words ──


def _json(value: Any) -> int:
    write_json(value)
    return 0


def _text(said: str | None) -> str:
    """The argument, or standard input. Raises UsageError."""
    if said is None and sys.stdin.isatty():
        raise UsageError("say the text, or - for standard input")
    return sys.stdin.read() if said in (None, "-") else str(said)


def _confirm(question: str) -> None:
    sys.stderr.write(clean(f"{question} [y/N] "))
    sys.stderr.flush()
    if sys.stdin.readline().strip().casefold() not in ("y", "yes"):
        raise UsageError("nothing was done")


def _print_whole(row: dict[str, Any]) -> None:
    _print(f"{row['id']}  {row['kind']}  {row['status']}  {when_shortly(row['event_time'])}  trust {row['trust']:g}")
    _print(f"from {row['source'] or 'a file'}, by {row['origin']}")
    for name in ("key", "namespace", "supersedes", "why"):
        if row.get(name):
            _print(f"{name if name != 'why' else 'it waits'}: {row[name]}")
    if row["tags"]:
        _print(f"tags: {', '.join(row['tags'])}")
    if row["said"]:
        _print(f"your own words, that it cites:\n{_indented(row['said']['quote'])}")
    _print(_indented(row["text"]))


def _indented(text: str) -> str:
    from clawd.text import made_visible

    return "\n".join(f"    {line}" for line in made_visible(text).split("\n"))


def _short(row: dict[str, Any]) -> str:
    line = " ".join(f"{row['key']}: {row['text']}".split() if row["key"] else row["text"].split())
    return line if len(line) <= 100 else f"{line[:99]}…"


def _print(text: str) -> None:
    sys.stdout.write(clean(cell(text)) + "\n")
