"""The policies that ship, and those of other packages (entry points of the group `clawd.context_policies`).

One is in force only where `[context] policies` names it. Nothing is loaded before that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import metadata

from clawd.config.load import nearest
from clawd.lifecycle.deciding import Action, Facts, Policy

GROUP = "clawd.context_policies"
PATIENCE_S = 2.0
_hanging: set[str] = set()  # names of those that did not come back


class Blockers:
    """Hands over when something blocks: for work that a fresh mind should look at. What the session began with does not
    count, or its successors would hand over without end."""

    name = "blockers"

    def decide(self, facts: Facts) -> Action | None:
        return "handoff" if facts.blockers else None


class Cost:
    """At half of `[context] usd` a session is compacted, once: what it was compacted for before counts. At all of it it
    is handed over, but not after its first turn, for what that alone costs its successor's would cost, too. A session
    whose cost is not known is left alone."""

    name = "cost"

    def decide(self, facts: Facts) -> Action | None:
        if facts.usd is None or facts.usd_limit is None:
            return None
        if facts.usd >= facts.usd_limit and facts.step_index > 1:
            return "handoff"
        return "compact" if facts.usd >= facts.usd_limit / 2 and facts.compact_count == 0 else None


_SHIPPED: dict[str, Callable[[], Policy]] = {"blockers": Blockers, "cost": Cost}


def known() -> list[str]:
    """The names that `[context] policies` may have."""
    return sorted({*_SHIPPED, *_brought()})


def in_force(names: Sequence[str]) -> tuple[list[Policy], list[str]]:
    """The policies of these names, in their order, and a sentence for each that there is none of, or that cannot be
    made."""
    found: list[Policy] = []
    told: list[str] = []
    for name in dict.fromkeys(names):
        if name in _hanging:
            told.append(
                f"the policy {name} did not answer within {PATIENCE_S:g} s: it is not asked until the next start"
            )
            continue
        try:
            factory = _SHIPPED.get(name) or (_brought()[name].load() if name in _brought() else None)
            if factory is not None:
                found.append(_Named(name, factory()) if name in _SHIPPED else _Brought(name, factory()))
                continue
        except Exception as error:
            told.append(f"the policy {name} of [context] cannot be used: {type(error).__name__}: {error}"[:300])
            continue
        near = nearest(name, known())
        there = f"there is no policy {name!r} for [context]; there are {', '.join(known())}"
        told.append(f"{there} ({near})" if near else there)
    return found, told


class _Named:
    """A policy under the name by which the config calls it."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.name, self._policy = name, policy

    def decide(self, facts: Facts) -> Action | None:
        return self._policy.decide(facts)


class _Brought(_Named):
    """One that a package brought. Everybody waits for its answer, as it is asked while a turn is settled: one that does
    not come back is left to itself, and not asked again. It ends nothing but itself."""

    def decide(self, facts: Facts) -> Action | None:
        said: list[Action | None] = []
        failed: list[BaseException] = []

        def ask() -> None:
            try:
                said.append(self._policy.decide(facts))
            except BaseException as error:  # also one that would end the process
                failed.append(error)

        thread = threading.Thread(target=ask, name=f"policy {self.name}", daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        if thread.is_alive():
            _hanging.add(self.name)
            raise TimeoutError(f"no answer within {PATIENCE_S:g} s")
        if failed:
            raise RuntimeError(type(failed[0]).__name__) from failed[0]
        return said[0] if said else None


@lru_cache(maxsize=1)
def _brought() -> dict[str, metadata.EntryPoint]:
    """What packages bring; none of them replaces one that ships."""
    return {entry.name: entry for entry in metadata.entry_points(group=GROUP) if entry.name not in _SHIPPED}
