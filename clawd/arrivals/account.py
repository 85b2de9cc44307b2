"""The account of one source in one group, `import/<source>/import.json`: what came, as which bytes, and what became of
each. The files beside it are the truth about themselves; the account knows them by their sha256.

Nothing here follows a link. One process at a time works with a source: whoever does holds `alone`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawd.arrivals.items import Kind
from clawd.config.home import Home, group_folders
from clawd.errors import DiskFull, NotFound, Refused, StorageError, UnsafePath, UsageError
from clawd.files import directory_beneath, open_beneath, parts_of, read_beneath, walk_beneath, write_atomic
from clawd.ids import is_group_name
from clawd.memory import daily, keyed
from clawd.schedules.file import ID

SCHEMA = 1
FILE, REPORT = "import.json", "REPORT.md"
MOST_BYTES = 256 << 20  # of one thing; what is larger is not read into memory
_ACCOUNT_BYTES = 64 << 20
_NAME_BYTES = 200
_TORN = re.compile(r"\..*\.[0-9a-f]{8}\.tmp")  # as `files.write_atomic` calls them
State = Literal["waits", "accepted", "left"]
STATES: tuple[State, ...] = ("waits", "accepted", "left")


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Entry(_Told):
    """One thing. `sha256` is that of what came, as it was staged; `coming` that of what is being written; `accepted`
    that of what was accepted. `parts` says what was made of it here, and as which bytes: only that is ever replaced."""

    kind: Kind
    source: str = Field(alias="from")
    to: str
    sha256: str = ""
    changed: tuple[str, ...] = ()
    state: State = "waits"
    at: str = ""
    why: str = ""
    coming: str = ""
    accepted: str = ""
    parts: dict[str, str] = Field(default_factory=dict)


class Note(_Told):
    source: str = Field(alias="from")
    why: str


class Account(_Told):
    """`brought` is when something new came last. `left`, `keys`, `allowed` and `chats` are of the whole home."""

    schema_: Literal[1] = Field(1, alias="schema")
    source: str
    home: str
    brought: str = ""
    items: tuple[Entry, ...] = ()
    left: tuple[Note, ...] = ()
    keys: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    chats: tuple[str, ...] = ()


def check_source(name: str) -> str:
    """The same name. Raises UsageError."""
    if not is_group_name(name) or name != name.lower():
        raise UsageError(f"{name[:64]!a} is no source", hint="clawd bridge list")
    return name


def places(home: Home, source: str | None = None, group: str | None = None) -> Iterator[tuple[str, str]]:
    """(group, source) of each that has an account."""
    for folder in group_folders(home) if group is None else [group]:
        root = home.group(folder).arrivals
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as entries:
            if root.is_symlink():
                continue
            for name in sorted(each.name for each in entries if each.is_dir(follow_symlinks=False)):
                named = is_group_name(name) and name == name.lower() and source in (None, name)
                if named and (root / name / FILE).is_file():
                    yield folder, name


# ── the file ──


def read(place: Path) -> Account | None:
    """None where there is none. Raises Refused for one that cannot be used, UnsafePath, OSError."""
    try:
        data = read_beneath(place, FILE, _ACCOUNT_BYTES + 1)
    except FileNotFoundError:
        return None
    file = place / FILE
    hint = f"move {place} away, and bring it in again"
    try:
        said = json.loads(data)
        schema = said.get("schema")
        if isinstance(schema, int) and schema > SCHEMA:
            raise Refused(f"{file} was written by a newer clawd (schema {schema})", hint="use that one")
        found = Account.model_validate(said)
        if found.source != place.name:
            raise ValueError
        return found
    except (ValueError, AttributeError, RecursionError, ValidationError):
        raise Refused(f"{file} cannot be understood: nothing was changed", hint=hint) from None


def write(place: Path, account: Account) -> None:
    """Where it says something else than the file."""
    said = account.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    said = {"schema": SCHEMA, **said}
    put(place, FILE, (json.dumps(said, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace"))


# ── what lies beside it ──


def misplaced(kind: Kind, to: str) -> str:
    """Why there is no such place for a thing of this kind; empty where there is."""
    return "" if _PLACES[kind](to) else f"{to[:_NAME_BYTES]!a} is no place for it"


def refused(kind: Kind, to: str, files: Mapping[str, bytes]) -> str:
    """Why something cannot lie where it is to; empty where it can."""
    if why := misplaced(kind, to):
        return why
    if (kind == "skill") is ("" in files) or not files:
        return "it is no folder" if kind == "skill" else "it is no file"
    for path in (to, *filter(None, files)):
        try:
            parts = parts_of(path)
        except UnsafePath as error:
            return error.message
        if "/".join(parts) != path:
            return f"{path[:_NAME_BYTES]!a} is not written as paths are"
        for part in parts:
            if len(part.encode("utf-8", "replace")) > _NAME_BYTES or not _plain(part):
                return f"{part[:_NAME_BYTES]!a} cannot be the name of a file here"
    return f"it is larger than {MOST_BYTES >> 20} MB" if sum(map(len, files.values())) > MOST_BYTES else ""


def _plain(name: str) -> bool:
    return all(unicodedata.category(each) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") for each in name)


def _named(folder: str, suffix: str, name: str = r"[^/.][^/]*") -> re.Pattern[str]:
    return re.compile(re.escape(folder) + name + re.escape(suffix))


_PLACES: dict[Kind, Callable[[str], object]] = {
    "instructions": lambda to: to == "CLAUDE.md",
    "profile": lambda to: to == "user_profile.md",
    "session": _named("sessions/", ".md").fullmatch,
    "facts": lambda to: to == f"memory/{keyed.FACTS}",
    "index": lambda to: to == f"memory/{keyed.INDEX}",
    "day": lambda to: to.startswith("memory/") and daily.day_of(to.removeprefix("memory/")) is not None,
    "note": _named("memory/notes/", ".md").fullmatch,
    "skill": _named("skills/", "").fullmatch,
    "schedule": _named("schedules/", ".toml", ID).fullmatch,
}


def digest(files: Mapping[str, bytes]) -> str:
    """By which something is known: of one file the sha256 of its bytes, of a folder that of its files' names and
    hashes."""
    if "" in files:
        return hashlib.sha256(files[""]).hexdigest()
    lines = (f"{hashlib.sha256(files[path]).hexdigest()} {path}\n" for path in sorted(files))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def lying(place: Path, to: str) -> dict[str, bytes] | None:
    """What lies there now, as it came: by path, of what is one file by "". None where nothing does. Raises UnsafePath
    for a link, or what is too large; OSError."""
    try:
        at = open_beneath(place, to)
    except FileNotFoundError:
        return None
    except UnsafePath:
        return _folder(place, to)
    with os.fdopen(at, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UnsafePath(f"{to} is larger than {MOST_BYTES >> 20} MB")
    return {"": data}


def _folder(place: Path, to: str) -> dict[str, bytes]:
    os.close(directory_beneath(place, to))
    found, room = dict[str, bytes](), MOST_BYTES
    for path, status in walk_beneath(place / to):
        if (room := room - status.st_size) < 0:
            raise UnsafePath(f"{to} is larger than {MOST_BYTES >> 20} MB")
        found[path] = read_beneath(place / to, path, status.st_size)
    return found


def put(root: Path, relative: str, data: bytes) -> None:
    """A file beneath `root`, whole or not at all, for the owner alone; one that has these bytes is not touched. Raises
    UnsafePath for a link on the way, OSError."""
    with suppress(FileNotFoundError):
        if read_beneath(root, relative, len(data) + 1) == data:
            return
    folder = make(root, relative.rpartition("/")[0])
    mode = 0o700 if relative.startswith("skills/") and data.startswith(b"#!") else 0o600
    write_atomic(folder / relative.rpartition("/")[2], data, mode)


def sweep(place: Path) -> None:
    """Take away what a run that was killed had not renamed yet."""
    for path, _ in walk_beneath(place):
        if _TORN.fullmatch(path.rpartition("/")[2]) and not path.startswith("skills/"):
            (place / path).unlink(missing_ok=True)


def make(root: Path, relative: str) -> Path:
    """The folder beneath `root`, made for the owner alone. Raises UnsafePath for a link on the way, OSError."""
    os.close(directory_beneath(root, relative, make=0o700))
    return root / relative


def place_of(home: Home, group: str, source: str) -> Path:
    """`import/<source>/` of a group, made where it is missing. Raises UnsafePath, StorageError."""
    root = home.group(group).root
    with told(root):
        return make(root, f"{home.group(group).arrivals.name}/{check_source(source)}")


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """No other process of ours works with this source. Raises StorageError where one does for more than 10 s."""
    with ExitStack() as held:
        try:
            held.enter_context(keyed.alone(place))
        except StorageError:
            why = f"what lies in {place} is being brought in or accepted just now"
            raise StorageError(why, hint="wait until that is over, then say it again") from None
        yield


def still(place: Path) -> AbstractContextManager[None]:
    """No text is forgotten in what lies in import/ of its group. Whoever forgets holds the group's memory, which is not
    to be waited for in here. Raises StorageError where somebody does for more than 10 s."""
    return keyed.alone(place.parent)


def known(home: Home, source: str, group: str | None) -> list[str]:
    """The groups that have something of it. Raises NotFound, Refused."""
    if group is not None and group not in group_folders(home):
        raise NotFound(f"there is no group {group!a}", hint="clawd groups list")
    found = [folder for folder, _ in places(home, check_source(source), group)]
    for folder in found:  # one that cannot be used stops all, before anything is done
        read(home.group(folder).arrivals / source)
    if not found:
        where = "" if group is None else f" into group {group}"
        raise NotFound(f"nothing was brought in from {source}{where}", hint="clawd bridge list")
    return found


@contextmanager
def told(place: Path) -> Iterator[None]:
    """What the disk refuses, as a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"there is no room in {place}: not all of it is there yet", hint="make room, then say it again"
            ) from error
        raise StorageError(
            f"{place} cannot be written to: {error.strerror}", hint="mend that, then say it again: it goes on"
        ) from error
