"""Reading the home of NanoClaw: the folder of its project.

How its files lie, both generations (repositories qwibitai/nanoclaw, gavrielc/nanoclaw and nanocoai/nanoclaw):
- `groups/<folder>/CLAUDE.md`, a folder a group, and what all of them read in `groups/global/CLAUDE.md`, once
  `groups/CLAUDE.md` (qwibitai/nanoclaw docs/SPEC.md, src/group-folder.ts); in the second generation CLAUDE.md is made
  at each start, from `instructions.prepend.md` or `CLAUDE.local.md` among others, and memory is Markdown in `memory/`
  (nanocoai/nanoclaw docs/memory.md, src/group-init.ts);
- skills of its containers in `container/skills/<name>/SKILL.md`, once `<name>.md`; copies, and what an agent added, in
  `data/sessions/<folder>/.claude/skills/`; `.claude/skills/` are for whoever changes its program (docs/SPEC.md);
- keys in `.env` and `data/env/env`, WhatsApp's in `store/auth/` (docs/SPEC.md);
- `mount-allowlist.json` and `sender-allowlist.json` in `~/.config/nanoclaw/`, outside of the project
  (src/mount-security.ts, src/sender-allowlist.ts): they are looked for beside the home and in it, and only told.
Its databases: see `first` and `second`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from clawd.arrivals.items import Brought
from clawd.bridges.foreign import secrets
from clawd.bridges.foreign.bringing import MAIN, Bringing
from clawd.bridges.foreign.place import ANEW, JUNK, Place, table, within
from clawd.bridges.foreign.tables import opened
from clawd.bridges.nanoclaw import first, second
from clawd.errors import UsageError

_INSTRUCTIONS = ("CLAUDE.md", "instructions.prepend.md", "CLAUDE.local.md")
_COMPOSED = "<!-- Composed at spawn"
_SHARED = ("groups/global/CLAUDE.md", "groups/CLAUDE.md")
_FOR_ALL = "what all of its groups read stands in the instructions of each"
_BY_HAND = "it is of the agent's work: copy by hand what is wanted of it"
_LOGS = ("logs", "conversations")
_ALLOWLISTS = {"mount-allowlist.json": secrets.mounts, "sender-allowlist.json": secrets.senders}
_TAKEN = frozenset({*_INSTRUCTIONS, "memory", "skills", ".claude", ".seed.md", "container.json", *_LOGS})


def read(home: Path, group: str | None, *, now: datetime | None = None) -> Brought:
    """All that it has; with `group` all for that group, else each folder for a group of its name, and the main one for
    `main`. Raises UsageError for what is no such home."""
    bringing = Bringing(home, "nanoclaw", group, now)
    place = bringing.place
    if not any(place.kind(path) for path in ("groups", first.DATABASE, second.DATABASE)):
        raise UsageError(
            f"nothing of NanoClaw lies in {home}", hint="its home is the folder of its project, with groups/ in it"
        )
    with opened(place, first.DATABASE) as old, opened(place, second.DATABASE) as new:
        chats = first.chats(place, old)
        agents = second.agents(new)
        on_disk = [name for name in place.folders("groups") if name != "global"]
        named = [*(chat.folder for chat in chats), *(agent.folder for agent in agents)]
        folders = list(dict.fromkeys([*on_disk, *(name for name in named if first.is_folder(name))]))
        mains = {chat.folder for chat in chats if chat.main} | {agent.folder for agent in agents if agent.main}
        groups = _groups(bringing, folders, mains)
        shared = [path for path in _SHARED if place.kind(path) == "file"]
        for folder, of in groups.items():
            _folder(bringing, of, f"groups/{folder}", shared)
        if not groups:
            for path in shared:
                bringing.pages.instructions(bringing.group(MAIN, main=True), path)
        bringing.rest("groups/global", lambda name: name == "CLAUDE.md" or name in JUNK, _BY_HAND)
        _skills(bringing, groups)
        first.bring(bringing, old, chats, groups)
        second.bring(bringing, new, agents, groups)
    _secrets(place)
    place.leave("the rest of the project", "it is NanoClaw's own program")
    return bringing.done()


def _groups(bringing: Bringing, folders: Sequence[str], mains: set[str]) -> dict[str, str]:
    """The groups of the folders; the main folder's is `main`."""
    flagged = [name for name in folders if name in mains]
    ending = [name for name in folders if name.endswith("_main")]
    candidates = ([MAIN] if MAIN in folders else [], flagged, ending, folders)
    main = next((names[0] for names in candidates if len(names) == 1), None)
    groups = {main: bringing.group(main, main=True)} if main is not None else {}
    return groups | {name: bringing.group(name) for name in folders if name != main}


def _folder(bringing: Bringing, group: str, folder: str, shared: Sequence[str]) -> None:
    place, pages = bringing.place, bringing.pages
    for path in shared:
        pages.instructions(group, path, _FOR_ALL)
    for name in _INSTRUCTIONS:
        path = within(folder, name)
        found = place.text(path) if name == "CLAUDE.md" else None
        if found is not None and found.text.startswith(_COMPOSED):
            place.leave(path, "it is made anew at each start, of files that are brought and of its program's own")
            continue
        pages.instructions(group, path)
    pages.memory(group, within(folder, ".seed.md"), "seed.md")
    bringing.memories(group, within(folder, "memory"))
    for name in ("skills", ".claude/skills"):
        bringing.skills.folder(group, within(folder, name))
    bringing.rest(within(folder, ".claude"), lambda name: name == "skills", _BY_HAND)
    settings = within(folder, "container.json")
    if place.kind(settings):
        secrets.config(place, settings, place.json(settings))
        place.leave(settings, "what a container may is said anew, in group.toml")
    for name in _LOGS:
        if place.kind(within(folder, name)):
            place.leave(f"{folder}/{name}/", "logs are not brought; its messages are in the database")
    for name in place.names(folder):
        path = within(folder, name)
        if name in _TAKEN or name in JUNK:
            continue
        if name.endswith(".md") and not name.startswith(".") and place.kind(path) == "file":
            pages.memory(group, path, name)
        elif secrets.CREDENTIAL.match(name):
            secrets.credential(place, path)
        else:
            tail = "/" if place.kind(path) == "folder" else ""
            place.leave(path + tail, _BY_HAND)


def _skills(bringing: Bringing, groups: dict[str, str]) -> None:
    place = bringing.place
    main = MAIN if MAIN in groups.values() else next(iter(groups.values()), None) or bringing.group(MAIN, main=True)
    said = ["all of its groups had it"] if len(set(groups.values())) > 1 else []
    shipped = bringing.skills.folder(main, "container/skills", *said)
    for name in place.names("container/skills"):
        if name.endswith(".md") and place.kind(path := f"container/skills/{name}") == "file":
            bringing.skills.add(main, path, *said)
    for folder, group in groups.items():
        bringing.skills.folder(group, f"data/sessions/{folder}/.claude/skills", but=shipped)
        if place.kind(f"data/sessions/{folder}/.claude/projects"):
            place.leave(
                f"data/sessions/{folder}/.claude/projects/",
                "these are transcripts of Claude Code; its messages are in the database",
            )
    if place.kind(".claude/skills"):
        place.leave(".claude/skills/", "they change NanoClaw's own program")


def _secrets(place: Place) -> None:
    names = [name for name in place.names("") if name.startswith(".env") and name != ".env.example"]
    for path in [*names, "data/env/env"]:
        if place.kind(path):
            secrets.env(place, path)
            place.leave(path, ANEW)
    if place.kind("store/auth"):
        secrets.told(place, "the link to WhatsApp", "store/auth")
        place.leave("store/auth/", "it holds keys: link the account anew")
    beside = Path(place.root).parent / ".config" / "nanoclaw"
    for root, prefix in ((place, ".config/nanoclaw"), (place, "config"), (_beside(beside), "")):
        for name, told in _ALLOWLISTS.items():
            if root is not None and root.kind(path := within(prefix, name)) == "file":
                place.brought.allowed += [f"{name}: {each}" for each in told(table(root.json(path)))]
                place.leave(path if root is place else f"~/.config/nanoclaw/{name}", "who may what is said anew")


def _beside(folder: Path) -> Place | None:
    """The folder of its allowlists beside the home, where there is one, and no link leads to it."""
    try:
        beside = Place(folder, "nanoclaw")
    except UsageError:
        return None
    return beside if beside.root == folder else None
