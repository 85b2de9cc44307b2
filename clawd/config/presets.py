"""Services that everybody knows, so that a person only grants them and says where the key is.

None has a credential of its own. Paths leave out what hands out keys and tokens, and what administers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from clawd.config.grammar import service_name

if TYPE_CHECKING:
    from clawd.config.schema import Config
    from clawd.config.service import Service

PRESETS: dict[str, dict[str, Any]] = {
    "anthropic": {
        "base_url": "https://api.anthropic.com",
        "inject": {"header": "x-api-key"},
        "paths": ["/v1/messages", "/v1/models", "/v1/complete", "/v1/files"],
    },
    "openai": {
        "base_url": "https://api.openai.com",
        "inject": {"bearer": True},
        "paths": [
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/responses",
            "/v1/conversations",
            "/v1/embeddings",
            "/v1/models",
            "/v1/moderations",
            "/v1/audio",
            "/v1/images",
            "/v1/files",
            "/v1/batches",
        ],
    },
    "openrouter": {
        "base_url": "https://openrouter.ai/api",
        "inject": {"bearer": True},
        "paths": [
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/responses",
            "/v1/messages",
            "/v1/embeddings",
            "/v1/models",
            "/v1/generation",
        ],
    },
    "xai": {
        "base_url": "https://api.x.ai",
        "inject": {"bearer": True},
        "paths": ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/models"],
    },
    "ollama": {
        "base_url": "http://127.0.0.1:11434",
        "allow_private": True,
        "paths": [
            "/api/chat",
            "/api/generate",
            "/api/embed",
            "/api/embeddings",
            "/api/tags",
            "/api/show",
            "/api/ps",
            "/api/version",
            "/v1",
        ],
    },
    "github": {
        "base_url": "https://api.github.com",
        "hosts": ["github.com", "codeload.github.com", "uploads.github.com"],
        "inject": {"basic": "x-access-token"},
        "methods": ["GET", "HEAD", "POST", "PATCH", "PUT"],
    },
}

# The service that an engine's model is reached through when `[model] service` does not say.
MODEL_SERVICE = {"messages": "anthropic", "chat": "openai", "claude-code": "anthropic"}
# What known services speak; any other one speaks what its group's engine speaks.
DIALECTS = {"anthropic": "messages", "openai": "chat", "openrouter": "chat", "xai": "chat", "ollama": "chat"}
_VERSION = re.compile(r"v\d+(alpha|beta)?\d*")


def laid(services: object) -> object:
    """`[services]` as TOML gave it, with the presets beneath, key by key. Raises ValueError for a name that cannot be.

    Another address takes the preset's hosts away, hosts without an address its address: they are the vendor's.
    """
    if not isinstance(services, Mapping):
        return services
    variables: dict[str, str] = {}
    for name in map(str, services):
        other = variables.setdefault(service_name(name).replace("-", "_"), name)
        if other != name:
            raise ValueError(f"{other} and {name} would have the same variables in a sandbox: rename one of them")
    return {str(name): _laid(str(name), own) for name, own in services.items()}


def _laid(name: str, own: object) -> object:
    beneath = dict(PRESETS.get(name, {}))
    if not beneath or not isinstance(own, Mapping):
        return own
    if "base_url" in own:
        beneath.pop("hosts", None)
        if "paths" in beneath:
            beneath["paths"] = _counted(beneath["paths"], str(own["base_url"]))
    elif "hosts" in own:
        del beneath["base_url"]
    return {**beneath, **own}


def _counted(paths: list[str], base_url: str) -> list[str]:
    """The paths as they count from an address that has their beginning in it: many clients are told `…/v1`."""
    last = f"/{base_url.rstrip('/').rpartition('/')[2]}"
    inside = [path.removeprefix(last) for path in paths if f"{path}/".startswith(f"{last}/")]
    return ["/"] if "" in inside else inside or paths


def versioned(address: str) -> bool:
    """Whether an address, or its path, ends in a version: `…/v1`."""
    return _VERSION.fullmatch(address.rstrip("/").rpartition("/")[2]) is not None


def services(config: Config) -> dict[str, Service]:
    """Every service there is: the presets, and what `config.toml` says."""
    return {**_presets(), **config.services}


@lru_cache(maxsize=1)
def _presets() -> dict[str, Service]:
    from clawd.config.service import Service

    return {name: Service.model_validate(preset) for name, preset in PRESETS.items()}
