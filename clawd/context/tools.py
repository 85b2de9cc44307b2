"""The tools of the sandbox as a model is told of them."""

from __future__ import annotations

from typing import Any


def sandbox_tools() -> tuple[dict[str, Any], ...]:
    """`{name, description, parameters: JSON schema, where: "sandbox"}` of each. Not to be changed."""
    return ()
