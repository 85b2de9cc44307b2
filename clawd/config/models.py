"""Which models a group may turn to: its own, then its fallbacks, each with the service that it is reached through."""

from __future__ import annotations

from collections.abc import Collection

from clawd.config.schema import ModelTable

# The service that an engine's model is reached through when `[model] service` does not say.
SERVICES = {"messages": "anthropic", "chat": "openai", "claude-code": "anthropic"}


def own_service(table: ModelTable) -> str | None:
    return table.service or SERVICES.get(table.engine)


def candidates(table: ModelTable, known: Collection[str]) -> list[tuple[str | None, str | None]]:
    """(service, model), in the order in which they are tried. `known` are all services that there are: a fallback that
    begins with one of them goes there, any other is a model of the group's own service."""
    own = own_service(table)
    found = [(own, table.model)]
    for fallback in table.fallbacks:
        service, slash, model = fallback.partition("/")
        found.append((service, model) if slash and service in known else (own, fallback))
    return found
