"""Writing what was brought in to `groups/<g>/import/<source>/`, and the account of it, `import.json`.

Doing it twice changes nothing: an item is known by where it came from, and its bytes by their sha256.
"""

from __future__ import annotations

from typing import Any

from clawd.arrivals.items import Brought
from clawd.config.home import Home
from clawd.errors import NotBuilt


def stage(home: Home, brought: Brought, *, dry_run: bool) -> dict[str, Any]:
    """{source, home, dry_run, groups[], came[{kind, group, from, to, state: new|changed|same, changed[]}], left[{from,
    why}], keys[], allowed[], chats[]}. Raises StorageError, UnsafePath."""
    raise NotBuilt("bringing in is not built yet")
