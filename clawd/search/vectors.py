"""The vectors of an index in memory: one matrix, in step with the file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clawd.search.ranking import NEAR

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[Any]]


class Matrix:
    """A row is never changed: a document that changes gets another. So only what is new is read."""

    def __init__(self, dimensions: int) -> None:
        import numpy as np

        self.rows: Numbers = np.zeros(0, dtype=np.int64)  # ascending
        self.vouched: Numbers = np.zeros(0, dtype=bool)
        self.missing = 0  # documents that have no vector yet
        self._before = self._after = self._blank = self.rows
        self._vectors: Numbers = np.zeros((0, dimensions), dtype=np.float32)

    def refresh(self, connection: sqlite3.Connection) -> None:
        """Read what changed."""
        import numpy as np

        listed = connection.execute("SELECT row, before, after, vouched FROM documents ORDER BY row").fetchall()
        table = np.array(listed, dtype=np.int64).reshape(-1, 4)
        rows = table[:, 0]
        kept = np.isin(self.rows, rows, assume_unique=True)
        vectors = np.zeros((len(rows), self._vectors.shape[1]), dtype=np.float32)
        vectors[np.searchsorted(rows, self.rows[kept])] = self._vectors[kept]
        wanted = np.setdiff1d(rows, np.setdiff1d(self.rows, self._blank, assume_unique=True), assume_unique=True)
        if len(wanted) > len(rows) // 2:
            found = connection.execute("SELECT row, vector FROM vectors").fetchall()
        else:
            found = connection.execute(
                "SELECT row, vector FROM vectors WHERE row IN (SELECT value FROM json_each(?))",
                (json.dumps(wanted.tolist()),),
            ).fetchall()
        there = np.array([row for row, _ in found], dtype=np.int64)
        if found:
            vectors[np.searchsorted(rows, there)] = np.frombuffer(
                b"".join(vector for _, vector in found), dtype="<f4"
            ).reshape(len(found), -1)
        self._blank = np.setdiff1d(wanted, there, assume_unique=True)
        self.rows, self.missing, self._vectors = rows, len(self._blank), vectors
        self.vouched = table[:, 3].astype(bool)
        self._before, self._after = (self._places(table[:, column]) for column in (1, 2))

    def scores(self, query: Numbers) -> Numbers:
        """Of each row how near it is in meaning, its neighbours' meaning lent to it."""
        import numpy as np

        own = np.append(self._vectors @ query, np.float32(0))  # the last stands for no neighbour
        lent = np.maximum(own[self._before], own[self._after])
        near: Numbers = own[:-1] + np.float32(NEAR) * np.maximum(lent, 0)
        return near

    def best(self, scores: Numbers, count: int) -> list[int]:
        """The rows that score highest, the best first; what scores -inf is none."""
        import numpy as np

        first = np.argpartition(-scores, min(count, len(scores) - 1))[:count]
        first = first[np.argsort(-scores[first], kind="stable")]
        found: list[int] = self.rows[first[np.isfinite(scores[first])]].tolist()
        return found

    def of(self, scores: Numbers, rows: Sequence[int]) -> dict[int, float]:
        """The scores of some rows."""
        import numpy as np

        found = scores[np.searchsorted(self.rows, np.array(rows, dtype=np.int64))]
        return dict(zip(rows, found.tolist(), strict=True))

    def _places(self, rows: Numbers) -> Numbers:
        """Where rows lie in the matrix; one behind its end for 0."""
        import numpy as np

        places = np.searchsorted(self.rows, rows)
        return np.where(rows == 0, len(self.rows), places)
