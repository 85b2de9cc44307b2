"""Which backend makes this home's sandboxes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from clawd.errors import SandboxUnavailable
from clawd.sandbox.bubblewrap import Bubblewrap
from clawd.sandbox.protocol import Backend


def install_id(home: Path) -> str:
    """What tells this home's sandboxes from another's on the same machine: the same for one path for ever."""
    return hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]


def choose_backend(wanted: str, home: Path) -> Backend:
    """The backend that `sandbox.backend` means. An explicit one never falls back to another."""
    if wanted == "docker":
        raise SandboxUnavailable(
            "the docker backend is not built yet",
            hint='set backend = "bubblewrap" or "auto" in [sandbox] of config.toml',
        )
    return Bubblewrap(install_id(home))
