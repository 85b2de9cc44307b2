"""Names of keys, never a value; and who was allowed what.

A key is what an environment file sets, and what a config calls by a name like `apiKey` or `botToken`. A stranger's file
may have a key where a name is due: a name that looks like one is shown as `…`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from clawd.bridges import loose
from clawd.bridges.foreign.place import ANEW, Place, rows, shown, table, text_of, within

_ENV_LINE = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Z][A-Z0-9_]{0,63})[ \t]*=[ \t]*(.*)")
_SECRET = re.compile(
    r"(?i)key$|token|secret|passw|passphrase|credential|cookie|authorization|bearer|webhook|signature|^pass$|^pin$|jwt"
)
_NAMED = re.compile(r"(?i)(?:env|vars|headers|environment|secrets)$")  # tables of which each entry is a key
_NO_KEY = re.compile(
    r"(?i)(?:max|min|num|total|context|input|output|budget|limit)\w*tokens?$|session_?key|main_?key|store_?key"
)
_SEGMENT = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.:@/+-]{0,63}")
_LIKE_A_KEY = re.compile(
    r"(?i)(?:sk|pk|rk|xox[a-z]|xapp|gh[a-z]|glpat|ya29|eyJ|AIza|AKIA)[-_.A-Za-z0-9]{6}|[A-Za-z0-9_-]{24,}"
)
_ALLOWED = re.compile(r"(?i)(?:group_?)?(?:allow_?(?:from|list|ed|ed_?users)|allow)$")
_POLICY = re.compile(r"(?i)(?:dm|group)_?policy$")
KEYS = 1_000  # names of one home that are told
_MOST = 50  # ids of one list that are told
_DEEPEST = 24

CREDENTIAL = re.compile(
    r"(?i).*\.env(?:\..*)?$|.*\.(?:pem|key|p12|pfx|keystore|jks)$|id_(?:rsa|dsa|ecdsa|ed25519)|\.?(?:netrc|npmrc|pypirc)$"
    r"|\.?(?:credentials?|secrets?|tokens?|o?auth|auth[-_]profiles?|service[-_]account|client[-_]secrets?|creds?)"
    r"(?:[-_.].*)?\.(?:json5?|ya?ml|toml|ini|txt|env)$"
)
"""Names of files that hold keys and nothing else."""
_SETTINGS = (".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties")
_SETTING = re.compile(r"(?m)^[ \t]*[\"']?([A-Za-z][\w.-]{0,63})[\"']?[ \t]*[:=][ \t]*[\"']?[^\s\"'#{\[]")


def env(place: Place, path: str) -> None:
    """The names that an environment file sets."""
    if (found := place.text(path)) is None:
        return
    closing = ""
    for line in found.text.split("\n"):
        if closing:  # a value of several lines, none of which is a name
            closing = "" if line.rstrip().endswith(closing) else closing
            continue
        if (match := _ENV_LINE.match(line)) is None:
            continue
        value = match[2].strip()
        if value[:1] in ("'", '"') and not (len(value) > 1 and value[1:].rstrip().endswith(value[0])):
            closing = "" if value[0] in value[1:] else value[0]
        if value.strip("='\" ") or closing:
            told(place, match[1], path)


def credential(place: Place, path: str) -> None:
    """A file that holds keys and nothing else: it is left, and its keys are told."""
    name = path.rpartition("/")[2].lower()
    if name.startswith(".env") or name.endswith(".env"):
        env(place, path)
    else:
        told(place, "a credential", path)
    place.leave(path, ANEW)


def credentials(place: Place, folder: str) -> set[str]:
    """Those of a folder's files, hidden ones too, that hold keys and nothing else: as `credential`. Gives their
    names."""
    found = [name for name in place.names(folder) if CREDENTIAL.match(name)]
    for name in found:
        credential(place, within(folder, name))
    return {*found}


def held(place: Place, path: str, data: bytes) -> bool:
    """Whether a file holds keys, by its name or as a config does: it is left then, and they are told."""
    name = path.rpartition("/")[2].lower()
    if CREDENTIAL.match(name):
        credential(place, path)
        return True
    found = list[str]()
    if name.endswith((".json", ".json5", ".jsonc")):
        with suppress(loose.NotJson):
            found = keys(loose.read(data.decode("utf-8-sig", "replace")))
    elif name.endswith(_SETTINGS):
        found = settings(data.decode("utf-8", "replace"))
    for key in found:
        told(place, key, path)
    if found:
        place.leave(path, ANEW)
    return bool(found)


def config(place: Place, path: str, value: Any) -> None:
    """The keys of a config, by their paths in it, and whom it allows what."""
    for key in keys(value):
        told(place, key, path)
    for each in allowed(value):
        if each not in place.brought.allowed:
            place.brought.allowed.append(each)


def told(place: Place, name: str, where: str) -> None:
    """Tell a key's name once; `where` it stood."""
    named = f"{name} ({shown(where)})"
    known = place.brought.keys
    if len(known) <= KEYS and named not in known:
        known.append(named if len(known) < KEYS else f"… (more than {KEYS:,} keys: only the first are told)")


def segment(name: str) -> str:
    """A part of a key's name; `…` where it may be a key itself."""
    return name if _SEGMENT.fullmatch(name) and not _LIKE_A_KEY.match(name) else "…"


def keys(value: Any) -> list[str]:
    """Paths like `channels.telegram.botToken` at which a value has something that is secret."""
    return list(dict.fromkeys(path for path, name, parent, each in entries(value) if _is_key(name, parent, each)))


def _is_key(name: str, parent: str, value: Any) -> bool:
    if isinstance(value, dict):  # OpenClaw's reference to a secret that is kept elsewhere
        return bool(_SECRET.search(name)) and "source" in value and "id" in value
    if not isinstance(value, str) or not value.strip():
        return False
    return bool(_NAMED.search(parent)) or bool(_SECRET.search(name) and not _NO_KEY.search(name))


def settings(text: str) -> list[str]:
    """Names of keys in a YAML, TOML or INI file."""
    return [name for name in _SETTING.findall(text) if _SECRET.search(name) and not _NO_KEY.search(name)]


def allowed(value: Any) -> list[str]:
    """Sentences on who may write, by the lists and policies of a config."""
    told = []
    for path, name, _, each in entries(value):
        if _POLICY.search(name) and isinstance(each, str):
            told.append(f"{path} is {shown(each)}")
        elif _ALLOWED.search(name) and isinstance(each, list):
            ids = [shown(text_of(one)) for one in each if text_of(one)]
            more = f" and {len(ids) - _MOST} more" if len(ids) > _MOST else ""
            told.append(f"{path}: {', '.join(ids[:_MOST]) or 'nobody'}{more}")
    return told


def entries(value: Any) -> Iterator[tuple[str, str, str, Any]]:
    """Every entry of every table in it: its path, its name, that of the table, and what it is."""
    waiting: list[tuple[str, str, Any, int]] = [("", "", value, 0)]
    while waiting:
        path, name, each, depth = waiting.pop()
        below = []
        if isinstance(each, dict) and depth < _DEEPEST:
            for key, one in each.items():
                at = f"{path}.{segment(key)}" if path else segment(key)
                yield at, key, name, one
                below.append((at, key, one, depth + 1))
        elif isinstance(each, list) and depth < _DEEPEST:
            below = [(f"{path}[{n}]", name, one, depth + 1) for n, one in enumerate(each)]
        waiting += reversed(below)


def senders(value: Any) -> list[str]:
    """Sentences of NanoClaw's sender-allowlist.json: {default, chats: {chat: {allow: "*" or ids, mode}}}."""
    entries = {"any other chat": table(value).get("default"), **table(table(value).get("chats"))}
    told = []
    for chat, entry in entries.items():
        if not isinstance(entry, dict):
            continue
        who, mode = entry.get("allow"), shown(text_of(entry.get("mode")))
        names = "everybody" if who == "*" else ", ".join(shown(text_of(one)) for one in _list(who)[:_MOST]) or "nobody"
        told.append(f"in {shown(chat)}: {names}" + (f"; others: {mode}" if mode else ""))
    return told


def mounts(value: Any) -> list[str]:
    """Sentences of NanoClaw's mount-allowlist.json: {allowedRoots: [{path, allowReadWrite}], nonMainReadOnly}."""
    told = []
    for root in rows(table(value).get("allowedRoots"))[:_MOST]:
        how = "read and write" if root.get("allowReadWrite") else "read"
        told.append(f"mounts beneath {shown(text_of(root.get('path')))}: {how}")
    return told


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
