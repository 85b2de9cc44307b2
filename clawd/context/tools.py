"""The tools of the sandbox as a model is told of them. Their one definition lies beside what does them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from clawd.resources import shipped


@cache
def sandbox_tools() -> tuple[dict[str, Any], ...]:
    """`{name, description, parameters: JSON schema, where: "sandbox"}` of each. Not to be changed."""
    declared = json.loads(shipped("containers/agent/tools/declared.json").read_text("utf-8"))
    return tuple({**tool, "where": "sandbox"} for tool in declared if "description" in tool)
