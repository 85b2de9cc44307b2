"""The policies that ship, and those of other packages (entry points of the group `clawd.context_policies`)."""

from __future__ import annotations

from clawd.lifecycle.deciding import Action, Facts


class Blockers:
    """Hands over when something blocks: for work that a fresh mind should look at."""

    name = "blockers"

    def decide(self, facts: Facts) -> Action | None:
        return "handoff" if facts.blockers else None


class Cost:
    """Compacts, then hands over, when a session has cost much."""

    name = "cost"

    def decide(self, facts: Facts) -> Action | None:
        return None
