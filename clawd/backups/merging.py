"""What the trust ledger is told when a backup is put back. It is appended to alone, so nothing that it knows is lost.

Of what the backup and the present say of a memory the lower holds, and nothing rises. What is quarantined or rejected
now stays so, although the backup did not know it. A memory that was deleted or superseded since is as the backup has
it, at the lower trust: that is what a backup is put back for. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from clawd.memory.provenance import Stamp
from clawd.scopes import is_shared

_Key = tuple[str, str]


class Merging:
    """Fed with the present's lines first, then with the backup's."""

    def __init__(self) -> None:
        self._present: dict[_Key, Stamp] = {}
        self._known: set[int] = set()
        self._backup: dict[_Key, Stamp] = {}
        self._behind: set[_Key] = set()  # those that the backup's lines are appended of

    def present(self, stamp: Stamp) -> None:
        self._present[stamp.group, stamp.id] = stamp
        self._known.add(hash(stamp))

    def backup(self, stamp: Stamp) -> Stamp | None:
        """The line itself where the present ledger lacks it: it is to be appended."""
        key = (stamp.group, stamp.id)
        self._backup[key] = stamp
        if hash(stamp) in self._known:
            return None
        self._behind.add(key)
        return stamp

    def last(self) -> Iterator[Stamp]:
        """What is to be said at the end, of each memory whose last line would not say what holds."""
        for key, kept in self._backup.items():
            now = self._present.get(key)
            if now is None or now == kept:
                continue
            holds = _lower(now, kept)
            if holds != now or key in self._behind:
                yield holds


def _lower(now: Stamp, kept: Stamp) -> Stamp:
    if _is_shut(now):
        return now
    if _is_shut(kept):
        return kept
    trust, taint = min(kept.trust, now.trust), min(kept.taint, now.taint)
    namespace = now.namespace if is_shared(kept.namespace) else kept.namespace  # never shown to more groups than now
    lower = replace(
        kept, op="carry", trust=trust, taint=taint, private=kept.private or now.private, namespace=namespace
    )
    return now if now == lower else lower


def _is_shut(stamp: Stamp) -> bool:
    return stamp.status == "quarantined" or stamp.op == "reject"


def merged(present: Iterable[Stamp], backup: Iterable[Stamp]) -> Iterator[Stamp]:
    """The lines to append."""
    merging = Merging()
    for stamp in present:
        merging.present(stamp)
    yield from filter(None, map(merging.backup, backup))
    yield from merging.last()
