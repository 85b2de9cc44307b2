"""What a session holds on to whatever its window loses: its goal, what was verified, constraints, blockers, decisions
and what is to be done next; each with where it came from and how far that is trusted. Pure.

It comes from the notes of an agent, from what the owner typed, and from tools that failed. All of it is hostile until
it was cleaned: a text is one line without what cannot be seen.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from clawd.lifecycle.constraints import binds
from clawd.model import Block
from clawd.trust import TRUST, Origin

Class = Literal["goal", "verified", "constraints", "blockers", "decisions", "next_safe_action"]
CLASSES: tuple[Class, ...] = ("goal", "verified", "constraints", "blockers", "decisions", "next_safe_action")
ONE: tuple[Class, ...] = ("goal", "next_safe_action")  # of these the last holds
_GO_FIRST: tuple[Class, ...] = ("verified", "decisions")  # where it is too much

MOST_BYTES = 48 << 10  # of all that a session holds on to, as a manifest has it
MOST_OTHERS = 32 << 10  # of that: constraints and blockers that are not the owner's, whose own always find room
_EACH = 112  # bytes that a manifest says of an item beside its text: where it is from, and how far that is trusted
LONGEST_NOTE = 500  # characters of what an agent notes
LONGEST_GOAL = 500  # of a goal that is the first thing that was typed
LONGEST_SAID = 4000  # of a sentence: what is longer is none
LONGEST_ERROR = 200
MOST_NOTED = 100  # of each class in one note
MOST_SAID = 100  # sentences of one turn
MOST_READ = 32 << 10  # characters of a message that are gone through: of a longer one, which is a paste, both ends
MOST_ERRORS = 50  # of one session

_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
# A sentence ends behind . ! ? … and the like where white space follows: `3.5`, `/a/b.c` and URLs have none.
_END = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*(?:\s+|$)")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Za-zÄÖÜ]|e\.g|i\.e|z\.B|d\.h|u\.a|p\.ex|etc|vs|approx|ca|bzw|ggf|usw|evtl|inkl|Nr|No|Mr|Mrs|Dr"
    r"|St|Sr|Sra|p|pp|fig|cf|max|min|\d+)\.$",
    re.IGNORECASE,
)
_BREAK = re.compile(r"\n[ \t]*\n+")
_ITEM = re.compile(r"\s*(?:[-*+•–]|\d{1,3}[.)]|#{1,6})\s")
_FENCED = re.compile(r"^ {0,3}(`{3,8}|~{3,8})[^\n]*\n.*?(?:^ {0,3}\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_WRAPPED = 60  # characters: a shorter line was ended by whoever wrote it
_FAILED = re.compile(r"\[[^\[\]]*(?:exit code [1-9]\d*|by signal \d+|was refused|out of memory)[^\[\]]*\]\s*$")
_HARMLESS = ("[exit code 0]", "[no result: the turn ended first]", "[forgotten]", "[token]")


class Columns(Protocol):
    """A row of the ledger, or what has the same columns."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Item:
    """`turn` is where it was pinned, `at` when (RFC 3339). `inherited`: the session began with it."""

    cls: Class
    text: str
    origin: Origin
    trust: float
    turn: int | None = None
    at: str = ""
    id: int | None = None
    inherited: bool = False


@dataclass(frozen=True, slots=True)
class Pinned:
    """All that is pinned, in the order in which that was done. Of goal and next_safe_action the last holds."""

    items: Sequence[Item] = ()

    def of(self, cls: Class) -> list[str]:
        return [item.text for item in self.items if item.cls == cls]

    @property
    def goal(self) -> str:
        return next(reversed(self.of("goal")), "")

    @property
    def next_safe_action(self) -> str:
        return next(reversed(self.of("next_safe_action")), "")

    @property
    def trust(self) -> float:
        """The lowest of its items."""
        return min((item.trust for item in self.items), default=1.0)

    @property
    def taint(self) -> float:
        """How far a turn that reads it may be trusted: the agent's own words over clean input, and what its tools gave
        inside, taint none that hears them from here, as they tainted none that heard them first."""
        return min((item.trust for item in self.items if item.trust < TRUST[Origin.TOOL]), default=1.0)

    def as_json(self) -> dict[str, Any]:
        """{goal, verified[], constraints[], blockers[], decisions[], next_safe_action}: the texts alone."""
        return {cls: self.of(cls)[-1] if cls in ONE and self.of(cls) else "" if cls in ONE else self.of(cls)
                for cls in CLASSES}  # fmt: skip


def of_rows(rows: Iterable[Columns]) -> Pinned:
    """What the ledger's rows say."""
    return Pinned(
        [
            Item(
                row["class"], row["text"], Origin(row["origin"]), row["trust"], row["turn"], row["at"], row["id"],
                bool(row["inherited"]),
            )
            for row in rows
        ]
    )  # fmt: skip


_COLUMNS = ("class", "text", "turn", "at", "origin", "trust", "inherited")


def packed(rows: Iterable[Columns]) -> str:
    """The ledger's rows as one text, as they are now."""
    return json.dumps([{name: row[name] for name in _COLUMNS} for row in rows], ensure_ascii=False)


def unpacked(text: str | None) -> Pinned:
    """The same again."""
    return of_rows({**row, "id": None} for row in json.loads(text or "[]") if row["class"] in CLASSES)


def of_turn(
    notes: Iterable[Any], blocks: Sequence[Block], *, taint: float, turn: int, at: str, held: Pinned
) -> list[Item]:
    """What a turn brings that is to be held on to: from its notes, in their order, from what the owner typed in it, and
    from its tools that failed at last. `taint` is the turn's: what it came to is trusted no more than that, but the
    owner's own words, which are a quote."""
    agent, tool = (min(TRUST[origin], taint) for origin in (Origin.AGENT, Origin.TOOL))
    noted = [Item(cls, text, Origin.AGENT, agent, turn, at) for note in notes for cls, text in of_notes(note)]
    said = [text for block in blocks if block.role == "user" if (text := typed(block))]
    own = [Item("constraints", text, Origin.OWNER, TRUST[Origin.OWNER], turn, at) for text in limits_of(said)]
    found = [item for item in noted if item.cls != "goal" or _may_replace(item, held)]
    if not held.goal and not any(item.cls == "goal" for item in found) and (goal := goal_of(said)):
        own.insert(0, Item("goal", goal, Origin.OWNER, TRUST[Origin.OWNER], turn, at))
    before = sum(item.origin == Origin.TOOL for item in held.items)
    failed = [Item("blockers", text, Origin.TOOL, tool, turn, at) for text in errors_of(blocks)]
    return [*own, *found, *failed[: max(0, MOST_ERRORS - before)]]


def _may_replace(goal: Item, held: Pinned) -> bool:
    """What a page made an agent say is no new goal for one that is trusted more, and nothing is for one that the owner
    stated here, which no turn brought."""
    last = next((item for item in reversed(held.items) if item.cls == "goal"), None)
    if last is not None and last.origin == Origin.OWNER and last.turn is None and not last.inherited:
        return False
    return last is None or goal.trust >= min(last.trust, TRUST[Origin.AGENT])


def of_notes(notes: Any) -> list[tuple[Class, str]]:
    """What an agent's notes name, cleaned and clipped; whatever else they are is ignored."""
    if not isinstance(notes, dict):
        return []
    found: list[tuple[Class, str]] = []
    for cls in CLASSES:
        said = notes.get(cls)
        texts = [said] if cls in ONE else said if isinstance(said, list) else []
        found += [(cls, text) for each in texts[:MOST_NOTED] if isinstance(each, str) if (text := _clip(each))]
    return found


def kept_notes(notes: Any) -> dict[str, Any] | None:
    """The same as an object: what of notes is worth keeping until their turn is over, None for nothing."""
    found = of_notes(notes)
    kept: dict[str, Any] = {}
    for cls, text in found:
        if cls in ONE:
            kept[cls] = text
        else:
            kept.setdefault(cls, []).append(text)
    return kept or None


def typed(block: Block) -> str:
    """What the owner typed in a block of a turn: not what they passed on, and nobody else's words."""
    return "" if block.meta.get("from") or block.meta.get("kind") not in (None, "edit", "answer") else block.content


def goal_of(said: Sequence[str]) -> str:
    """The first thing that was typed, on one line."""
    return next((text for each in said if (text := _clip(each, LONGEST_GOAL))), "")


def limits_of(said: Sequence[str]) -> list[str]:
    """The sentences that set a limit to the work, as they were written, but for line ends."""
    found = [text for each in said for text in sentences(_FENCED.sub("\n\n", _ends(each)))]
    return list(dict.fromkeys(text for text in found if len(text) <= LONGEST_SAID and binds(text)))[:MOST_SAID]


def _ends(text: str) -> str:
    half = MOST_READ // 2
    return text if len(text) <= MOST_READ else f"{text[:half]}\n\n{text[-half:]}"


def sentences(text: str) -> list[str]:
    """The sentences of a text, each on one line; numbers, paths and addresses stay whole. A list that follows a colon
    belongs to its sentence."""
    found: list[str] = []
    for paragraph in _BREAK.split(text.replace("\r\n", "\n").replace("\r", "\n")):
        for piece in _pieces(paragraph):
            found += _split(_line(piece))
    return found


def _pieces(paragraph: str) -> list[str]:
    """Lines that belong together: one that was wrapped goes on with the next."""
    pieces: list[str] = []
    goes_on, listed = False, False
    for line in paragraph.split("\n"):
        item = _ITEM.match(line) is not None
        goes_on = goes_on or line.lstrip()[:1].islower()
        joins = bool(pieces) and (listed if item else goes_on)
        if joins:
            pieces[-1] += f"\n{line}"
        else:
            pieces.append(line)
            listed = False
        bare = line.rstrip()
        listed = listed or bare.endswith(":")
        goes_on = len(bare) >= _WRAPPED or bare.endswith((",", ";"))
    return pieces


def _split(line: str) -> list[str]:
    found, start = [], 0
    for match in _END.finditer(line):
        if match.end() < len(line) and _ABBREVIATION.search(line[max(start, match.start() - 12) : match.start()]):
            continue
        found.append(line[start : match.end()].strip())
        start = match.end()
    return [each for each in (*found, line[start:].strip()) if each]


def errors_of(blocks: Sequence[Block]) -> list[str]:
    """What tools said last that is a failure: one that worked later in the turn was overcome."""
    names: dict[str, str] = {}
    last: dict[str, str] = {}
    for block in blocks:
        for call in block.tool_calls:
            function = call.get("function")
            if isinstance(function, dict):
                names[str(call.get("id"))] = str(function.get("name"))
        if block.role == "tool":
            last[names.get(str(block.tool_call_id), "tool")] = block.content
    return [_clip(f"{name}: {_tail(said)}", LONGEST_ERROR) for name, said in last.items() if is_failure(said)]


def is_failure(said: str) -> bool:
    """Whether a tool's result is one: a sentence of ours in brackets alone, or what a command ended with."""
    bare = said[-4000:].strip()
    if not bare.endswith("]") or bare in _HARMLESS:
        return False
    if _FAILED.search(bare):
        return True
    if len(said) > 4000 or not bare.startswith("[") or "\n" in bare or bare.startswith("[["):
        return False
    try:
        json.loads(bare)
        return False
    except (ValueError, RecursionError):
        return True


def _tail(said: str) -> str:
    """The end of what was said, where the reason stands."""
    bare = said.strip()
    return bare if len(bare) <= LONGEST_ERROR else f"… {bare[-(LONGEST_ERROR - 40) :]}"


def _line(text: str) -> str:
    return " ".join(filter(None, map(str.strip, _UNSEEN.sub("", text).splitlines())))


def _clip(text: str, longest: int = LONGEST_NOTE) -> str:
    line = _line(text[: 8 * longest])
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


# ── how much of it ──


@dataclass(frozen=True, slots=True)
class Fit:
    """`add` is pinned, `drop` is let go, `refused` is not taken in any more."""

    add: Sequence[Item] = ()
    drop: Sequence[Item] = ()
    refused: Sequence[Item] = ()


def size(items: Iterable[Item]) -> int:
    """Bytes of a manifest that names them: their texts as JSON, and what is said of each. So many short ones, or some
    that are all quotation marks, never come to more than can be handed over."""
    return sum(len(json.dumps(item.text, ensure_ascii=False).encode("utf-8", "replace")) + _EACH for item in items)


def fit(held: Pinned, new: Sequence[Item], most: int = MOST_BYTES, others: int | None = None) -> Fit:
    """What becomes of new items where all may have so many bytes: goals and next steps that hold no more go first, then
    the oldest of what was verified, then decisions. Constraints and blockers stay: where they are too much, new ones
    are refused, the owner's last; and of those that are not the owner's all beyond `others`, a third less than `most`.
    """
    others = most * MOST_OTHERS // MOST_BYTES if others is None else others
    known = {(item.cls, _known(item.text)) for item in held.items if item.cls not in ONE}
    fresh: list[Item] = []
    for item in new:
        if (key := (item.cls, _known(item.text))) not in known:
            fresh.append(item)
            known |= {key} if item.cls not in ONE else set()
    everything = [*held.items, *fresh]
    let_go = {id(item) for cls in ONE for item in [each for each in everything if each.cls == cls][:-1]}
    refused: list[Item] = []
    theirs = size(item for item in held.items if _stays(item))
    for item in (each for each in fresh if _stays(each)):
        if theirs + size([item]) > others:
            refused.append(item)
            let_go.add(id(item))
        else:
            theirs += size([item])
    total = size(item for item in everything if id(item) not in let_go)
    for cls in _GO_FIRST:
        for item in everything:
            if total > most and item.cls == cls:
                let_go.add(id(item))
                total -= size([item])
    for owner in (False, True):
        for item in reversed(fresh):
            if total > most and id(item) not in let_go and (item.origin == Origin.OWNER) == owner:
                refused.append(item)
                let_go.add(id(item))
                total -= size([item])
    return Fit(
        [item for item in fresh if id(item) not in let_go],
        [item for item in held.items if id(item) in let_go],
        refused,
    )


def _stays(item: Item) -> bool:
    """Whether nothing takes it away again, and the owner did not say it."""
    return item.origin != Origin.OWNER and item.cls not in (*ONE, *_GO_FIRST)


def of_file(items: Iterable[Item]) -> Sequence[Item]:
    """What a file says is pinned, cleaned, and no more of it than a session may hold. Nobody vouches for a file: none
    is trusted more than what came by hand."""
    most = TRUST[Origin.HAND]
    found = [replace(each, text=_clip(each.text, LONGEST_SAID), trust=min(each.trust, most)) for each in items]
    return fit(Pinned(), [each for each in found if each.text]).add


def _known(text: str) -> str:
    return " ".join(text.casefold().split())
