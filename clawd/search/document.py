"""What is searched, by what, and what is found: the values that the index, its methods and their callers share."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Document:
    """One text to be found. `id` names what it is part of (`piece` counts the parts of one that is long, or of a day).
    `thread` joins documents that lie beside each other in time; "" joins nothing. `at` is when it happened, in seconds
    since the epoch. `shown` says whether it may be shown beside others than the owner, `space` is its namespace."""

    id: str
    kind: str
    text: str
    at: float
    trust: float
    taint: float = 1.0
    status: str = "active"
    shown: bool = True
    thread: str = ""
    piece: int = 0
    title: str = ""  # a name, a key, tags: searched with the text
    space: str = ""


@dataclass(frozen=True, slots=True)
class Where:
    """What may be a candidate at all, for every method alike. Empty `kinds` is every kind; times in seconds since the
    epoch. `floor` bounds trust, `taint` what it would lower a turn to. `hidden`: also what others may not see.
    `spaces`: the namespaces that it may be in; none of them finds nothing."""

    kinds: frozenset[str] = frozenset()
    statuses: frozenset[str] = frozenset({"active"})
    floor: float = 0.5
    taint: float = 0.0
    hidden: bool = True
    since: float | None = None
    until: float | None = None
    spaces: frozenset[str] = frozenset({""})


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that was found. `score` is above 0, the best first; `parts` say how it came about, for --explain:
    {lexical, trigram, dense, recency, trust}."""

    document: Document
    score: float
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """`lanes` are the methods that were used, and what was amiss: "lexical", "trigram", "vector", "rebuilt: …",
    "vector: not installed"."""

    hits: list[Hit]
    lanes: list[str]
