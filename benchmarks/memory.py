"""An index of 10,000 and of 100,000 memories: filling it, finding some, changing one."""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from pydoc_data.topics import topics

from benchmarks.figures import Figure, figure
from clawd.clock import SystemClock
from clawd.memory.store import GroupMemory
from clawd.search import terms
from clawd.search.document import Document, Where
from clawd.search.embedders import WordLlama
from clawd.search.index import Index, Method

_NOW = 1_800_000_000.0
_TIMES = 200
_GOALS: dict[int, dict[str, float]] = {
    10_000: {"rebuild": 1000, "change": 1, "file": 2, "hybrid": 4},
    100_000: {"file": 20},
}


def memory() -> Iterator[Figure]:
    for count, goals in _GOALS.items():
        speech = Speech(count)
        documents = [speech.document(number) for number in range(count)]
        for method in ("file", "hybrid"):
            yield from _indexed(speech, documents, method, goals)  # type: ignore[arg-type]
    yield from _files()


def _files() -> Iterator[Figure]:
    """From 10,000 files: the whole, and what one of them costs that a person changed."""
    speech = Speech(1)
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as directory:
        root, state = Path(directory) / "memory", Path(directory) / "state"
        (root / "episodes").mkdir(parents=True)
        state.mkdir()
        files = [root / "episodes" / f"{n}.md" for n in range(10_000)]
        for n, file in enumerate(files):
            file.write_text(
                f"---\nschema: 1\nid: ep_{n:010}\nkind: episode\nevent_time: 2026-03-{n % 28 + 1:02}T09:00:00Z\n---\n"
                f"{speech.document(n).text}\n"
            )
        memory = GroupMemory(root, state, "bench", SystemClock())
        yield figure("10,000 files indexed, file", [_ms(memory.reindex)], "ms", _GOALS[10_000]["rebuild"])
        yield figure("10,000 files looked at, nothing new", [_ms(memory.look) for _ in range(20)], "ms")
        taken = []
        for n in range(0, len(files), 100):
            files[n].write_text(speech.text(20))
            taken.append(_ms(lambda n=n: memory.look([f"episodes/{n}.md"])))
        yield figure("one of 10,000 files changed", taken, "ms")
        memory.close()


def _indexed(speech: Speech, documents: list[Document], method: Method, goals: dict[str, float]) -> Iterator[Figure]:
    of = f"{len(documents):,} memories, {method}"
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as directory:
        index = Index(Path(directory) / "index.db", WordLlama() if method == "hybrid" else None)
        index.count()
        taken = [_ms(lambda: index.replace_all(documents))]
        yield figure(f"indexed: {of}", taken, "ms", goals.get("rebuild"))
        for length in (4, 12):
            asked = [speech.question(length) for _ in range(_TIMES)]
            taken = [_ms(lambda asked=asked, n=n: _search(index, asked[n], method)) for n in range(_TIMES)]
            yield figure(f"{length} words found: {of}", taken, "ms", goals.get(method))
        changed = [speech.document(n * len(documents) // _TIMES) for n in range(_TIMES)]
        taken = [_ms(lambda n=n: index.put([changed[n]])) for n in range(_TIMES)]
        yield figure(f"one changed: {of}", taken, "ms", goals.get("change"))
        index.close()


def _search(index: Index, query: str, method: Method) -> None:
    assert index.search(query, 10, Where(), method=method, now=_NOW).hits


def _ms(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


class Speech:
    """Texts of 8 to 40 words, which come as often as they do in the documentation of Python."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._words = re.findall("[A-Za-z]+", " ".join(topics.values()))

    def text(self, length: int) -> str:
        return " ".join(self._chance.choices(self._words, k=length))

    def question(self, length: int) -> str:
        """So many words that count."""
        words: list[str] = []
        while len(words) < length:
            words, _ = terms.words(" ".join([*words, self.text(1)]))
        return " ".join(words)

    def document(self, number: int) -> Document:
        return Document(f"ep_{number}", "episode", self.text(self._chance.randint(8, 40)), _NOW - 3600.0 * number, 1.0,
                        thread=str(number // 1000))  # fmt: skip
