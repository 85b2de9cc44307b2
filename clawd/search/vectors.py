"""The vectors of an index in memory: one matrix, in step with the file whoever changes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clawd.search.ranking import NEAR

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[Any]]

_CHANGED = "SELECT row, before, after, vouched, vector FROM points WHERE changed > ? ORDER BY row"


class Matrix:
    """Rows of the file are numbered upwards and never used again, so that new ones come at the end here too; one that
    is gone keeps its place until all is read again."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._seen = -1
        self._make(0)

    def _make(self, room: int) -> None:
        import numpy as np

        self._size = 0
        self._rows: Numbers = np.zeros(room, dtype=np.int64)
        self._beside: Numbers = np.zeros((2, room), dtype=np.int64)
        self._side: Numbers = np.zeros(room, dtype=np.int8)  # -1 is gone
        self._blank: Numbers = np.zeros(room, dtype=bool)
        self._vectors: Numbers = np.zeros((room, self._dimensions), dtype=np.float32)

    def refresh(self, db: sqlite3.Connection) -> None:
        """Read what changed since the last time."""
        import numpy as np

        newest, purged = (int(value) for (value,) in db.execute(
            "SELECT value FROM meta WHERE name IN ('changed', 'purged') ORDER BY name"))  # fmt: skip
        if self._seen < purged or newest < self._seen:
            self._seen = -1
            self._make(0)
        listed = db.execute(_CHANGED, (self._seen,)).fetchall()
        self._seen = newest
        known = int(self._rows[self._size - 1]) if self._size else 0
        fresh = [each for each in listed if each[0] > known and each[3] >= 0]
        first = self._grown(len(fresh))
        self._rows[first : self._size] = [each[0] for each in fresh]
        there = [each for each in listed if each[0] <= known or each[3] >= 0]
        rows = np.array([each[0] for each in there], dtype=np.int64)
        places = np.searchsorted(self.rows, rows)
        if self._size:
            held = self.rows[np.minimum(places, self._size - 1)] == rows
            there = [each for each, holds in zip(there, held.tolist(), strict=True) if holds]
            places = places[held]
        for way in (0, 1):
            beside = np.array([each[1 + way] for each in there], dtype=np.int64)
            self._beside[way, places] = np.where(beside == 0, -1, np.searchsorted(self.rows, beside))
        self._side[places] = [each[3] for each in there]
        self._blank[places] = [each[4] is None for each in there]
        none = bytes(4 * self._dimensions)
        vectors = np.frombuffer(b"".join(each[4] or none for each in there), dtype="<f4")
        self._vectors[places] = vectors.reshape(len(there), self._dimensions)

    def _grown(self, count: int) -> int:
        """Make room for so many more; gives where they begin."""
        first = self._size
        if first + count > len(self._rows):
            old = self._rows, self._beside, self._side, self._blank, self._vectors
            self._make((first + count) * 5 // 4)
            self._rows[:first], self._side[:first], self._blank[:first] = old[0][:first], old[2][:first], old[3][:first]
            self._beside[:, :first], self._vectors[:first] = old[1][:, :first], old[4][:first]
        self._size = first + count
        return first

    @property
    def rows(self) -> Numbers:
        return self._rows[: self._size]

    def waiting(self) -> tuple[int, int]:
        """How many have no vector yet, of how many."""
        there = self._side[: self._size] >= 0
        return int((self._blank[: self._size] & there).sum()), int(there.sum())

    def scores(self, query: Numbers, sides: Sequence[int]) -> Numbers:
        """Of each row how near it is in meaning, with what its neighbours lend it; -inf for what is not of `sides`."""
        import numpy as np

        own = np.zeros(self._size + 1, dtype=np.float32)  # the last one stands for no neighbour
        # einsum, not dot: BLAS would wait for a thread of its own on each core, also on those that others keep busy.
        np.einsum("ij,j->i", self._vectors[: self._size], query, out=own[:-1])
        lent = np.maximum(own[self._beside[0, : self._size]], own[self._beside[1, : self._size]])
        near: Numbers = own[:-1] + np.float32(NEAR) * np.maximum(lent, 0)
        near[self._side[: self._size] < min(sides)] = -np.inf
        return near

    def best(self, scores: Numbers, count: int) -> list[int]:
        """The rows that score highest, the best first."""
        import numpy as np

        first = np.argpartition(-scores, count)[:count] if count < len(scores) else np.arange(len(scores))
        first = first[np.argsort(-scores[first], kind="stable")]
        found: list[int] = self.rows[first[np.isfinite(scores[first])]].tolist()
        return found

    def of(self, scores: Numbers, rows: Sequence[int]) -> dict[int, float]:
        """The scores of some rows."""
        import numpy as np

        found = scores[np.searchsorted(self.rows, np.array(rows, dtype=np.int64))]
        return dict(zip(rows, found.tolist(), strict=True))
