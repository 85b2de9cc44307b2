"""Safe names: how ids that people, platforms and other programs chose become names of files. Pure.

A session id is any text (`telegram:-100123`, `mmkr:agent-1`); a group's name is also the name of its folder.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count

from clawd.errors import UsageError

STEM_BYTES = 200  # leaves room for `.state.json`, `.quarantine` and a temporary name within the usual 255
FILE_BYTES = 120
_SPEAKER = re.compile(r"owner|(?:admin|member|stranger):[\w.@-]{1,64}")
_FILLERS = dict.fromkeys((0x115F, 0x1160, 0x3164, 0xFFA0))  # letters to Python; file systems that fold ignore them
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# Names that commands, ids or other systems already use for something else.
_RESERVED = frozenset({"shared", "state", "skills", "groups", "all", "none", "con", "nul", "aux", "prn"})


def safe_name(id: str) -> str:
    """PythonClaw's file name for an id: every character but letters, digits, `_` and `-` becomes `_`."""
    return re.sub(r"[^\w\-]", "_", id)


def file_name(name: str) -> str:
    """What a file that somebody sent is called here: the last component of its name, in one line that hides nothing,
    not a hidden file, not an option of a command, at most 120 bytes with its suffix."""
    shown = unicodedata.normalize("NFC", re.split(r"[/\\]", name.encode("utf-8", "replace").decode())[-1])
    plain = "".join(" " if each.isspace() else each for each in shown if unicodedata.category(each)[0] != "C")
    plain = re.sub(r"[:*?\"'<>|`$&;!{}\[\]]", "_", re.sub(r" +", " ", plain)).strip(" .")
    stem, dot, suffix = plain.rpartition(".")
    if not stem or len(suffix.encode()) > 16:
        stem, dot, suffix = plain, "", ""
    stem = stem.encode()[: FILE_BYTES - len(suffix.encode()) - 1].decode("utf-8", "ignore").rstrip(" .")
    return re.sub(r"^-", "_", f"{stem}{dot}{suffix}") or "file"


def folded(name: str) -> str:
    """What two names have in common when some file system takes them for one: NFC and case folded."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def session_stem(id: str, taken: bool) -> str:
    """The file stem of a session. When another id holds the plain name, or it is too long, `~` and 8 hex
    digits of the id's sha256 follow: no plain name can equal that."""
    return next(stem for stem in session_stems(id) if "~" in stem or not taken)


def session_stems(id: str) -> Iterator[str]:
    """Every file stem that a session may have, the best first. Whoever chooses ids can choose two with the same name
    and the same 8 digits: then one of them has more."""
    plain = safe_name(id).encode("utf-8", "replace")
    if len(plain) <= STEM_BYTES:
        yield plain.decode()
    digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()
    for digits in range(8, len(digest) + 1):
        yield f"{plain[: STEM_BYTES - 1 - digits].decode('utf-8', 'ignore')}~{digest[:digits]}"


class Stems:
    """File stems of sessions, no two of which some file system takes for one."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {_one_file(stem) for stem in taken}

    def choose(self, id: str) -> str:
        """The stem for one more session."""
        stem = next(stem for stem in session_stems(id) if _one_file(stem) not in self._taken)
        self._taken.add(_one_file(stem))
        return stem


def choose_stem(id: str, taken_stems: Iterable[str]) -> str:
    """The file stem for a new session, given those that other ids hold."""
    return Stems(taken_stems).choose(id)


def _one_file(stem: str) -> str:
    """What stems have in common that some file system takes for one: by their capitals (a dotless i has that of an i),
    and without the letters that are none."""
    return folded(folded(stem).upper()).translate(_FILLERS)


def check_session_id(id: str) -> str:
    """The same id. Raises UsageError when it is empty, longer than 1,024 characters or holds control
    characters."""
    if not id.strip():
        raise UsageError("a session id cannot be empty")
    if len(id) > 1024:
        raise UsageError(f"a session id has at most 1,024 characters; this one has {len(id):,}")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in id):
        raise UsageError(f"the session id {id!a} holds control characters")
    return id


def is_job(session: str) -> bool:
    """Whether a session is a job's: no conversation, and no file."""
    return session.startswith("job:")


def matches(pattern: str, id: str) -> bool:
    """Whether an id is of a pattern, in which `*` is any text, also none; everything else stands for itself."""
    first, *middle = pattern.split("*")
    if not middle:
        return id == pattern
    last = middle.pop()
    if not id.startswith(first) or len(id) < len(first) + len(last) or not id.endswith(last):
        return False
    at, end = len(first), len(id) - len(last)
    for piece in middle:  # the first place of each leaves the most for the next
        found = id.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def check_speaker(who: str) -> str:
    """The same word, if a terminal's person may speak as that: `owner`, `member:bob`. Raises UsageError."""
    if not _SPEAKER.fullmatch(who):
        raise UsageError(f"nobody can speak as {who!a}", hint="owner, admin:NAME, member:NAME or stranger:NAME")
    return who


def folder_name(name: str) -> str:
    """The same name, if a group may have it: 1 to 64 of `A-Z a-z 0-9 _ -`, the first a letter or digit.

    Raises UsageError, also for reserved names.
    """
    if not _GROUP.fullmatch(name):
        raise UsageError(
            f"{name!a} cannot be a group's name",
            hint="1 to 64 letters, digits, - and _, beginning with a letter or digit",
        )
    if name.lower() in _RESERVED:
        raise UsageError(f"{name!r} is reserved and cannot be a group's name", hint="choose another name")
    return name


def is_group_name(name: str) -> bool:
    """Whether a group may have this name."""
    return bool(_GROUP.fullmatch(name)) and name.lower() not in _RESERVED


def group_like(name: str, otherwise: str) -> str:
    """A name that a group may have, as like this one as can be; `otherwise` stands in for what has nothing of one."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:56].rstrip("-_") or otherwise
    return plain if is_group_name(plain) else f"{otherwise}-{plain}"


def free(name: str, is_free: Callable[[str], bool], most: int = 1 << 10) -> str:
    """The same name, or with the first number with which it is free; of at most `most` characters then."""
    numbered = (f"{name[: most - len(f'-{n}')].rstrip('-')}-{n}" for n in count(2))
    return next(filter(is_free, chain([name], numbered)))


def segment_id(base: str, n: int) -> str:
    """The id of the n-th segment of a session: the plain id first, then `<id>.2`, `<id>.3` …"""
    return base if n <= 1 else f"{base}.{n}"


def new_id() -> str:
    """A random id of 16 characters, safe in a URL and a file name."""
    return secrets.token_urlsafe(12)
