"""What a person asks of the gateway. Nothing here sends, looks up or writes, and a daemon is not needed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from clawd.commands.looking import check_group
from clawd.config.home import Home, group_folders
from clawd.config.load import load_config, load_group, merged
from clawd.config.presets import services as every
from clawd.config.schema import Inject
from clawd.config.secrets import Secret
from clawd.errors import ConfigError, UsageError
from clawd.gateway import audit as lines
from clawd.gateway import policy, target
from clawd.gateway.policy import Granted, Grants
from clawd.trust import Role

Shown = dict[str, Any]
_ADDRESS = re.compile(r"(https?)://([^/?]*)(.*)", re.DOTALL)


def services(home: Home) -> list[Shown]:
    """Every service: {service, granted_to[{group, for, credential}], credential, hosts[], base_url|null}; a credential
    is present, missing, or none where the service takes none."""
    config = load_config(home, dict(os.environ))
    granted = list(_granted(home))
    return [
        {
            "service": name,
            "granted_to": [
                {"group": group, "for": each.needed, "credential": _state(each.credential, each.inject)}
                for group, each in granted
                if each.name == name
            ],
            "credential": _state(service.credential, service.inject),
            "hosts": list(service.hosts),
            "base_url": service.base_url,
        }
        for name, service in every(config).items()
    ]


def _granted(home: Home) -> Iterator[tuple[str, Granted]]:
    for group in group_folders(home):
        with suppress(ConfigError):  # the doctor says what is wrong with it
            for each in grants_of(home, group).granted.values():
                yield group, each


def _state(credential: Secret | None, inject: Inject | None) -> str:
    if credential is None:
        return "none" if inject is None else "missing"
    return "present" if credential.present() else "missing"


def grants_of(home: Home, group: str) -> Grants:
    """What a group may use, as its files say now. Raises ConfigError, NotFound."""
    config = load_config(home, dict(os.environ))
    return policy.grants(config, merged(config, load_group(home, group)), group)


def check(home: Home, group: str, method: str, url: str, role: Role) -> Shown:
    """What the gateway would say to a request of `group`: {allow, rule, reason, hint, service|null}. Raises NotFound
    when there is no such group."""
    check_group(home, group)
    grants = grants_of(home, group)
    try:
        verdict = _decided(method, url, grants, role)
    except target.Malformed as error:
        return {"allow": False, "rule": error.rule, "reason": error.message, "hint": None, "service": None}
    return {
        "allow": verdict.allow,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "hint": verdict.hint,
        "service": verdict.service,
    }


def _decided(method: str, url: str, grants: Grants, role: Role) -> policy.Verdict:
    """An address as its client would go about it: https:// is a tunnel, which is decided first, and the request inside;
    a query without a path stands behind `/`."""
    address = _ADDRESS.fullmatch(url)
    if method == "CONNECT" or address is None:
        return policy.decide(method, target.parse(method, url), grants, role)
    scheme, authority, rest = address.groups()
    rest = rest if rest.startswith("/") else f"/{rest}"
    if scheme == "http":
        return policy.decide(method, target.parse(method, f"http://{authority}{rest}"), grants, role)
    asked = target.parse("GET", f"https://{authority}/")  # the same grammar, and its port where it names none
    tunnel = target.Target("tunnel", "", "https", asked.host, asked.port)
    verdict = policy.decide("CONNECT", tunnel, grants, role)
    return policy.decide(method, target.inside(tunnel, rest), grants, role) if verdict.allow else verdict


def audit(home: Home, group: str | None, since: str | None) -> list[Shown]:
    """What was asked of the gateway, the oldest first, as the contract has it; a line with `folded` stands for so many
    more refusals of its rule. Raises UsageError for a time that is none, NotFound for a group that never was."""
    moment = None if since is None else lines.since(since, datetime.now(UTC))
    if since is not None and moment is None:
        raise UsageError(f"--since {since} is no time", hint="write it like 2h, 1d or 2026-12-01T09:00:00+01:00")
    found = list(lines.read(home.state / "audit", group, moment))
    if group is not None and not found:
        check_group(home, group)
    return found
