"""Reading the home of openclaw."""

from __future__ import annotations

from pathlib import Path

from clawd.arrivals.items import Brought
from clawd.errors import NotBuilt


def read(home: Path, group: str | None) -> Brought:
    """All that it has; with `group` all for that group. Raises UsageError for what is no such home."""
    raise NotBuilt("bringing in is not built yet")
