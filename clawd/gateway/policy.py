"""The one decision: may this group, at this role, send this request there, and with which credential.

Pure: `decide` looks at plain data and touches nothing, so that `clawd gateway check` is the same function. What it
allows is a frozen `Destination`, and that alone selects credential, address, SNI and Host from there on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clawd.config.schema import Inject, ServiceLimits
from clawd.config.secrets import Secret
from clawd.gateway.target import Scheme
from clawd.trust import Role


@dataclass(frozen=True, slots=True)
class Granted:
    """A service as one group has it: preset, `config.toml` and the group's grant laid over each other.

    `base` is (scheme, host, port, path prefix without a trailing slash) of its base_url; `hosts` are those that are
    reached through the proxy too, each (host, port or None for the scheme's own), `*.` for subdomains, `*` for any.
    `needed` is the lowest role; `model`: it is the group's model's own service, whose answers do not taint.
    """

    name: str
    base: tuple[Scheme, str, int, str] | None
    hosts: tuple[tuple[str, int | None], ...]
    methods: frozenset[str]
    paths: tuple[str, ...]
    credential: Secret | None
    inject: Inject | None
    needed: Role
    model: bool
    websocket: bool
    allow_private: bool
    limits: ServiceLimits
    ca: str | None


@dataclass(frozen=True, slots=True)
class Grants:
    """What a group may use now, by service name; `known` are all services there are, granted or not."""

    granted: Mapping[str, Granted]
    known: frozenset[str]


@dataclass(frozen=True, slots=True)
class Destination:
    """Where an allowed request goes. `path` and `query` are the raw bytes that were judged, the base's prefix
    included. No field of it comes from a Host header."""

    service: Granted
    scheme: Scheme
    host: str
    port: int
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`rule` is a word for the audit (`granted`, `not_granted`, `method`, `path` …), `reason` a sentence, `hint` what
    the person can do, where there is something. `status` is what a refusal is answered with."""

    allow: bool
    rule: str
    reason: str
    service: str | None = None
    status: int = 403
    hint: str | None = None
    destination: Destination | None = None
