"""What a session costs and still knows when its window is kept small: not at all, by leaving out old tool output, by a
summary, and by both, on the same scripted sessions in one run. Nobody is called: tokens are estimates, the summary is
the one that needs no model, and what a summariser would be given counts as spent.

A session is asked to look into things, one after the other: each turn is a question, a tool's output of some KB with a
figure in it, and an answer that names the figure in its first line or further down. Now and then the owner sets a
limit, which is pinned. `pinned` are the limits and what was verified, `said` the figures of answers, `seen` those that
stand in tool output alone; kept is what is in the last window. `fresh` are tokens that no prompt cache would have
known, because what stood before them was another.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.figures import Figure, Share, figure, share
from clawd.lifecycle import estimate, masking, summary
from clawd.lifecycle.deciding import Facts, Thresholds, decide
from clawd.lifecycle.pinned import Class, Item, Pinned
from clawd.lifecycle.recall import recall
from clawd.model import Block
from clawd.trust import Origin

SESSIONS, TURNS, SYSTEM = 10, 300, 1_100  # SYSTEM: tokens before the conversation
LIMITS = Thresholds("chat", 60_000, 100_000)
WAYS = ("none", "masking", "summary", "masking and summary")
_WORDS = ("service", "reads", "each", "entry", "of", "the", "table", "writes", "what", "changed", "to", "its", "log")


@dataclass(frozen=True, slots=True)
class Turn:
    """`pins` is what is held on to from then on, `said` and `seen` the figures of its answer and of its tool alone."""

    blocks: tuple[Block, ...]
    pins: tuple[Item, ...]
    said: str
    seen: str


def context() -> Iterator[Figure | Share]:
    scripts = [list(_script(seed)) for seed in range(SESSIONS)]
    for way in WAYS:
        runs = [_gone(way, script) for script in scripts]
        yield figure(f"context: tokens spent, {way}", [float(run.spent) for run in runs], "tokens")
        yield figure(f"context: fresh tokens, {way}", [float(run.fresh) for run in runs], "tokens")
        yield figure(f"context: largest window, {way}", [float(run.largest) for run in runs], "tokens")
        yield figure(f"context: times it was made smaller, {way}", [float(run.compactions) for run in runs], "times")
        for kind in ("pinned", "said", "seen"):
            yield share(f"context: kept of what was {kind}, {way}", [run.kept(kind) for run in runs])
        if recalls := [each for run in runs for each in run.recalls]:
            yield share(f"context: recall of a summary, {way}", recalls)


def _gone(way: str, script: Sequence[Turn]) -> _Run:
    run = _Run(way)
    for turn in script:
        run.take(turn)
    return run


@dataclass(slots=True)
class _Run:
    """A session as it goes on in one of the ways."""

    way: str
    spent: int = 0
    fresh: int = 0
    largest: int = 0
    compactions: int = 0
    recalls: list[float] = field(default_factory=list)
    _turns: list[Turn] = field(default_factory=list)
    _upto: int = 0  # turns that the summary stands for
    _masked: int | None = None
    _summary: str | None = None
    _block: str = ""
    _before: list[str] = field(default_factory=list)

    def take(self, turn: Turn) -> None:
        """One more turn: two calls of the model, before its tool and after it."""
        self._turns.append(turn)
        for parts in (self._shown()[:-2], self._shown()[:-1]):
            tokens = SYSTEM + sum(map(_tokens, parts))
            same = 0
            while same < min(len(parts), len(self._before)) and parts[same] == self._before[same]:
                same += 1
            self.spent += tokens
            self.fresh += sum(map(_tokens, parts[same:]))
            self._before = parts
        self.spent += sum(_tokens(block.content) for block in turn.blocks if block.role == "assistant")
        window = self._window()
        self.largest = max(self.largest, window)
        if self.way != "none" and decide(Facts(window, LIMITS)).action != "continue":
            self._compact()

    def kept(self, kind: str) -> float:
        """The share of these facts that the last window has."""
        window = "\n".join(self._shown())
        if kind == "pinned":
            facts = [item.text for item in self._pinned().items]
        else:
            facts = [turn.said if kind == "said" else turn.seen for turn in self._turns]
        return sum(fact in window for fact in facts) / len(facts)

    def _compact(self) -> None:
        self.compactions += 1
        if "masking" in self.way:
            before, window = self._masked, self._window()
            self._masked = masking.last_masked(range(len(self._turns)))
            if self._window() <= 0.7 * LIMITS.soft:
                return
            if self.way == "masking":
                if self._window() > 0.9 * window:  # what it frees is not worth a prompt that no cache knows
                    self._masked, self.compactions = before, self.compactions - 1
                return
        keep, size = 1, 0
        for turn in reversed(self._turns[self._upto :]):
            size += sum(_tokens(block.content) for block in turn.blocks)
            if size > LIMITS.soft // 4:
                break
            keep += 1
        upto = max(self._upto, len(self._turns) - max(1, keep - 1))
        blocks = [block for turn in self._turns[self._upto : upto] for block in turn.blocks]
        shown = [_shown(block, self._masked) for block in blocks]
        asked = summary.given(shown, self._summary, self._pinned(), 3 * LIMITS.soft)
        text = summary.extract(blocks, self._summary, self._pinned())
        self.spent += sum(_tokens(str(line)) for line in asked.lines()) + _tokens(text)
        self.fresh += sum(_tokens(str(line)) for line in asked.lines())
        self.recalls.append(recall(text, self._pinned()).score or 0.0)
        self._summary, self._upto = text, upto
        self._block = summary.block_text(self._pinned(), text, "clawd context expand")

    def _window(self) -> int:
        return SYSTEM + sum(map(_tokens, self._shown()))

    def _shown(self) -> list[str]:
        blocks = [_shown(block, self._masked) for turn in self._turns[self._upto :] for block in turn.blocks]
        first = [self._block] if self._block else []
        return first + [block.content for block in blocks]

    def _pinned(self) -> Pinned:
        return Pinned([item for turn in self._turns for item in turn.pins])


def _shown(block: Block, masked: int | None) -> Block:
    return Block("tool", masking.placeholder(block, 1), meta=block.meta) if masking.is_masked(block, masked) else block


def _tokens(text: str) -> int:
    return estimate.tokens(len(text))


def _script(seed: int) -> Iterator[Turn]:
    chance = random.Random(seed)
    for number in range(TURNS):
        said, seen = (f"{chance.randrange(10**6, 10**7)}" for _ in range(2))
        thing, meta = f"table_{chance.randrange(10**4)}", {"turn": number}
        asked, pins = f"How large is {thing}?", list[Item]()
        if number == 0:
            asked = "Look through the tables of the billing service and find what grew."
            pins.append(_item("goal", asked))
        elif number % 12 == 5:
            limit = f"You must never touch {thing} before {chance.randrange(10, 24)}:00."
            asked, pins = f"{asked} {limit}", [_item("constraints", limit)]
        elif number % 8 == 3:
            pins.append(_item("verified", f"{thing} has {said} rows"))
        rows = [f"{thing} {' '.join(chance.choices(_WORDS, k=12))} {n}" for n in range(chance.randrange(20, 100))]
        rows.insert(chance.randrange(len(rows)), f"bytes={seen}")
        told = f"{thing} has {said} rows."
        more = " ".join(chance.choices(_WORDS, k=60))
        answer = f"{told}\n{more}" if number % 2 else f"{more}\n{told}"
        blocks = (
            Block("user", asked, meta=meta),
            Block("tool", "\n".join(rows), tool_call_id=f"c{number}", meta=meta),
            Block("assistant", answer, meta=meta),
        )
        yield Turn(blocks, tuple(pins), said, seen)


def _item(cls: Class, text: str) -> Item:
    return Item(cls, text, Origin.OWNER, 1.0)
