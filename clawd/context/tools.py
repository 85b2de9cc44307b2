"""The tools that run in the sandbox, as a model is told of them."""

from __future__ import annotations

from typing import Any

SANDBOX: tuple[dict[str, Any], ...] = ()
