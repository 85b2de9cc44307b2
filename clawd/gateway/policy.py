"""The one decision: may this group, at this role, send this request there, and with which credential.

Pure: `decide` looks at plain data and touches nothing, so that `clawd gateway check` is the same function. What it
allows is a frozen `Destination`, and that alone selects credential, address, SNI and Host from there on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from clawd.config import grammar
from clawd.config.grammar import PORTS, Scheme
from clawd.config.group import Effective
from clawd.config.load import nearest
from clawd.config.models import model_services
from clawd.config.presets import services
from clawd.config.schema import Config, Inject, Service, ServiceLimits
from clawd.config.secrets import Secret
from clawd.errors import ConfigError
from clawd.gateway.target import Target
from clawd.trust import Role, at_least

_READING = frozenset(("GET", "HEAD"))
# The ends of paths that hand out a key or a token: what they answer would be a credential in the sandbox.
_MINTING = re.compile(
    r"access_?tokens?|(admin_)?api_?keys?|create_api_key|client_secrets?|refresh_token|id_token|auth_tokens?"
    r"|(registration|remove)-token|service_accounts|transcription_sessions"
)
# Ends that do so beneath a word which says so.
_MINTING_BELOW = {
    "token": ("oauth", "connect", "auth", "login", "applications", "sts"),
    "tokens": ("oauth", "auth", "login", "user"),
    "keys": ("auth", "oauth"),
    "conversions": ("app-manifests",),
    "code": ("device", "oauth"),
    "sessions": ("realtime", "chatkit"),
}


@dataclass(frozen=True, slots=True)
class Granted:
    """A service as one group has it: preset, `config.toml` and the group's grant laid over each other.

    `base` is (scheme, host, port, path prefix without a trailing slash) of its base_url; `hosts` are further ones that
    are reached through the proxy, each (host, port or None for the scheme's own), `*.` for subdomains, `*` for any.
    `paths` are counted from the base's prefix. With `inject`, nothing is sent without the credential.
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
    """What a group may use now, by service name, in the order of its grants; `known` are all services there are,
    granted or not. `group` and `others` (what is not granted) are for the hints alone."""

    granted: Mapping[str, Granted]
    known: frozenset[str]
    group: str = "<group>"
    others: Mapping[str, Granted] = field(default_factory=dict)


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


# -- what a group may use --


def grants(config: Config, effective: Effective, group: str, chosen: frozenset[str] = frozenset()) -> Grants:
    """What `group` may use now; `chosen` are services that its live turns reach a model of their own choice through. A
    grant of a service that does not exist is none. Raises ConfigError for a credential of the group's own that the
    service cannot take."""
    known = services(config)
    own = model_services(effective.model, known) | chosen
    granted: dict[str, Granted] = {}
    for grant in effective.group.grants:
        service = known.get(grant.service)
        if service is None:
            continue
        credential = grant.credential or service.credential
        if trouble := service.trouble(credential):
            where = f"groups/{group}/group.toml"
            raise ConfigError(f"{where}: the grant of {grant.service}: {trouble}", hint=f"edit {where}")
        role = Role(grant.for_) if grant.for_ else _needed(service, model=grant.service in own)
        granted[grant.service] = _granted(grant.service, service, credential, role, model=grant.service in own)
    others = {
        name: _granted(name, service, service.credential, Role.OWNER, model=False)
        for name, service in known.items()
        if name not in granted
    }
    return Grants(granted, frozenset(known), group, others)


def own_call(name: str, service: Service) -> Grants:
    """What the daemon itself may use for a call of its own: this service, by the same rules."""
    granted = _granted(name, service, service.credential, Role.OWNER, model=False)
    return Grants({name: granted}, frozenset([name]))


def _needed(service: Service, *, model: bool) -> Role:
    """Who may use a service whose grant does not say it."""
    reading = set(service.methods) <= _READING and not service.websocket
    return Role.MEMBER if model or reading else Role.OWNER


def _granted(name: str, service: Service, credential: Secret | None, needed: Role, *, model: bool) -> Granted:
    return Granted(
        name=name,
        base=None if service.base_url is None else grammar.base(service.base_url),
        hosts=tuple(map(grammar.host_rule, service.hosts)),
        methods=frozenset(service.methods),
        paths=tuple(service.paths),
        credential=credential,
        inject=service.inject or (Inject(bearer=True) if credential is not None else None),
        needed=needed,
        model=model,
        websocket=service.websocket,
        allow_private=service.allow_private,
        limits=service.limits,
        ca=service.ca,
    )


# -- the decision --


def decide(method: str, target: Target, grants: Grants, role: Role) -> Verdict:
    """Whether the request may go, and where. A CONNECT alone (its path is empty) is decided by host, port and role;
    what follows inside is decided again."""
    if method in ("TRACE", "TRACK"):
        return Verdict(False, "method", f"{method} would echo what is sent", status=405)
    if target.shape == "route":
        service = grants.granted.get(target.service)
        return _ungranted(target, grants) if service is None else _service(method, target, service, grants, role)
    if target.scheme == "https" and target.shape == "plain":
        return Verdict(False, "scheme", "https:// goes through CONNECT", hint="set HTTPS_PROXY as HTTP_PROXY is set")
    if grammar.is_address(target.host) and not grammar.is_canonical(target.host):
        return Verdict(False, "address_not_allowed", f"{target.host} is an address in disguise")
    found = _select(target, grants.granted)
    if found is None:
        return _unreachable(target, grants)
    return _service(method, target, found, grants, role)


def _service(method: str, target: Target, service: Granted, grants: Grants, role: Role) -> Verdict:
    """The verdict of the one service that the target belongs to."""
    name = service.name

    def refused(rule: str, reason: str, hint: str | None = None, status: int = 403) -> Verdict:
        return Verdict(False, rule, reason, name, status, hint)

    config = f"[services.{name}] in config.toml"
    if target.shape == "route" and service.base is None:
        return refused("path", f"{name} has no base_url: its hosts are reached through the proxy")
    if not at_least(role, service.needed):
        hint = None
        if at_least(role, Role.MEMBER):
            hint = f'{{service = "{name}", for = "{role}"}} in grants in groups/{grants.group}/group.toml'
        acts = "nobody" if role is Role.NONE else f"role {role}"
        return refused("role", f"{name} needs role {service.needed} here, and this turn acts for {acts}", hint)
    if target.shape == "plain" and service.credential is not None:
        instead = f"/svc/{name}/ leads there" if service.base and service.base[0] == "http" else "use https://"
        return refused("scheme", f"{name} has a credential: no http:// goes through the proxy to it", instead)
    destination = _destination(target, service)
    if target.shape == "tunnel" and not target.path:
        return Verdict(True, "granted", f"{name} is granted", name, 200, None, destination)
    if method not in service.methods:
        hint = f"add {method!r} to methods of {config}" if method.isalpha() else None
        return refused("method", f"{name} does not take {method}", hint)
    keyed = service.inject is not None or service.credential is not None
    if keyed and _mints(destination.path):
        return refused("token_endpoint", f"{name} would hand out a key or token there, and none enters a sandbox")
    relative = _beneath(target, service)
    if relative is None or (service.paths and not any(grammar.matches(rule, relative) for rule in service.paths)):
        return refused("path", f"{name} does not take this path", f"add it to paths of {config}")
    if service.inject is not None and service.credential is None:
        hint = f'credential = "${{file:PATH}}" in {config}'
        return refused("no_credential", f"{name} needs a credential and has none", hint, 503)
    return Verdict(True, "granted", f"{name} is granted", name, 200, None, destination)


def _destination(target: Target, service: Granted) -> Destination:
    if target.shape == "route" and service.base is not None:
        scheme, host, port, prefix = service.base
        return Destination(service, scheme, host, port, prefix + target.path or "/", target.query)
    return Destination(service, target.scheme, target.host, target.port, target.path, target.query)


def _beneath(target: Target, service: Granted) -> str | None:
    """The path as `paths` counts it: from the base's prefix on, at the base's host; None for one that is beside it."""
    if target.shape == "route" or service.base is None:
        return target.path or "/"
    scheme, host, port, prefix = service.base
    if (target.scheme, target.host, target.port) != (scheme, host, port) or not prefix:
        return target.path
    if target.path == prefix or target.path.startswith(f"{prefix}/"):
        return target.path[len(prefix) :] or "/"
    return None


def _mints(path: str) -> bool:
    segments = [grammar.decoded(part).lower().partition(";")[0] for part in path.strip("/").split("/")]
    last = segments[-1].partition(".")[0]
    words = {word for segment in segments[:-1] for word in (segment, segment.rstrip("0123456789"))}
    return _MINTING.fullmatch(last) is not None or not words.isdisjoint(_MINTING_BELOW.get(last, ()))


# -- which service a host belongs to --


def _select(target: Target, among: Mapping[str, Granted]) -> Granted | None:
    """The service of a host and port: the one that names it most closely, among equals the first."""
    best: tuple[int, Granted] | None = None
    for service in among.values():
        for host, port in _reached(service, target.scheme):
            closeness = _closeness(host, target.host)
            if port == target.port and closeness and (best is None or closeness > best[0]):
                best = (closeness, service)
    return best[1] if best else None


def _reached(service: Granted, scheme: Scheme) -> Iterator[tuple[str, int]]:
    """What the proxy reaches of a service by this scheme."""
    if service.base is not None and service.base[0] == scheme:
        yield service.base[1], service.base[2]
    for host, port in service.hosts:
        yield host, port or PORTS[scheme]


def _closeness(rule: str, host: str) -> int:
    """0 when the rule is not of this host; the greater, the closer. An address is named only as itself, and `*` is no
    name of the local network."""
    if rule == host:
        return 1 << 16
    if grammar.is_address(host) or not rule.startswith("*"):
        return 0
    return len(rule) if "." in host and host.endswith(rule[1:]) else 0


# -- refusals that name no granted service --


def _ungranted(target: Target, grants: Grants) -> Verdict:
    name = target.service
    if name in grants.known:
        return _not_granted(name, grants)
    hint = nearest(name, grants.known) or f"[services.{name}] in config.toml"
    return Verdict(False, "unknown_service", f"there is no service {name}", hint=hint)


def _unreachable(target: Target, grants: Grants) -> Verdict:
    host = target.host
    named = {
        (service.name, scheme)
        for service in grants.granted.values()
        for scheme in PORTS
        if any(_closeness(rule, host) for rule, _ in _reached(service, scheme))
    }
    for name, scheme in sorted(named):
        if scheme == target.scheme:
            hint = f'"{_shown(host)}:{target.port}" in hosts of [services.{name}] in config.toml'
            return Verdict(False, "port", f"{name} is not reached at port {target.port}", name, hint=hint)
    for name, scheme in sorted(named):
        return Verdict(False, "scheme", f"{name} is not reached by {target.scheme}://", name, hint=f"use {scheme}://")
    if grammar.is_address(host):
        return Verdict(False, "address_not_allowed", f"{host} is an address, and no granted service names it")
    other = _select(target, grants.others)
    if other is not None and all(rule != "*" for rule, _ in other.hosts):
        return _not_granted(other.name, grants)
    hint = f'a service with hosts = ["{host}"] in config.toml, and its name in grants'
    return Verdict(False, "not_granted", f"no granted service has the host {host}", hint=hint)


def _not_granted(name: str, grants: Grants) -> Verdict:
    hint = f'add "{name}" to grants in groups/{grants.group}/group.toml'
    return Verdict(False, "not_granted", f"{name} is not granted to this group", name, hint=hint)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
