"""What the commands of a sandbox find in their environment, so that ordinary clients use the gateway unmodified."""

from __future__ import annotations

from clawd.gateway.policy import Grants


def environment(grants: Grants) -> dict[str, str]:
    """Variables for the children of a run's runner; `{token}` in a value stands for the run's token."""
    raise NotImplementedError
