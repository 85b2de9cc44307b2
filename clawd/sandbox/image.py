"""The image that containers are made from: what is in it, and how one that fits is told from one that does not.

The runner's files are copied in. Two labels say which they are: a hash of them all, and the version of the run's
protocol that they speak.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

LABEL_RUNNER = "clawd.runner"
LABEL_PROTOCOL = "clawd.protocol"
PROTOCOL = 1


def runner_hash(agent: Path) -> str:
    """What tells these files of the runner (`containers/agent`) from any others: sha256, 64 hex digits."""
    digest = hashlib.sha256()
    for file in sorted(agent.rglob("*.py")):
        data = file.read_bytes()
        digest.update(f"{file.relative_to(agent)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
