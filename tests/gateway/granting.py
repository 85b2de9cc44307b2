"""Grants as a person writes them, for the tests of this room."""

from __future__ import annotations

import tomllib

from clawd.config.load import merged, parse_group
from clawd.config.schema import Config
from clawd.gateway import policy
from clawd.gateway.policy import Grants


def granting(group: str, config: str = "") -> Grants:
    """What `group.toml` and `config.toml` come to."""
    read = Config.model_validate(tomllib.loads(config))
    return policy.grants(read, merged(read, parse_group(group)), "main")
