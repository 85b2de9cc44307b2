"""`[services.NAME]`: what a service is, and which combinations cannot be."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from clawd.config import grammar
from clawd.config.presets import PRESETS
from clawd.config.secrets import Secret
from clawd.config.values import Dollars, Positive, Size, Table, written

_CONNECTION = re.compile(
    r"host|connection|keep-alive|content-(length|encoding)|transfer-encoding|te|trailer|upgrade|expect"
    r"|(proxy|sec-websocket)-.*"
)


def _checked(check: Callable[[str], object]) -> AfterValidator:
    """The value as it is, once `check` does not raise ValueError."""

    def same(value: str) -> str:
        check(value)
        return value

    return AfterValidator(same)


def _method(value: str) -> None:
    if not re.fullmatch(r"[A-Z]{1,20}(-[A-Z]{1,20})?", value) or value in ("CONNECT", "TRACE", "TRACK"):
        raise ValueError(f'{value[:40]!a} is no method that can be let through; write one like "GET" or "POST"')


def _file(value: str) -> None:
    if not value.startswith(("/", "~/")):
        raise ValueError("a file's path is absolute, or begins with ~/")


def _injected_header(value: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", value):
        raise ValueError("a header's name is of letters, digits, - and _")
    if _CONNECTION.fullmatch(value.lower()):
        raise ValueError(f"{value} belongs to the connection; no service takes its key there")


class Inject(Table):
    header: Annotated[str, _checked(_injected_header)] | None = None
    """The name of the header that carries the credential."""
    bearer: bool = False
    """`Authorization: Bearer <credential>`."""
    basic: Annotated[str, written(r"[!-9;-~]{1,100}", "a user name has no colon and no space")] | None = None
    """The user name; the credential is the password of HTTP Basic."""
    query: Annotated[str, written(r"[A-Za-z0-9._~-]{1,100}", 'a parameter has a name like "key"')] | None = None
    """The name of the query parameter."""

    @model_validator(mode="after")
    def _one(self) -> Inject:
        if sum((self.header is not None, self.bearer, self.basic is not None, self.query is not None)) != 1:
            raise ValueError("inject takes exactly one of header, bearer, basic, query")
        return self


class ServiceLimits(Table):
    requests_per_minute: Positive | None = None
    """Requests that a group may send in a minute."""
    requests_per_turn: Positive | None = None
    """Requests that one turn may send."""
    bytes_per_turn: Size | None = None
    """Bytes that one turn may take in."""
    request_bytes: Size | None = None
    """The largest request."""
    response_bytes: Size | None = None
    """The largest answer."""
    tokens_per_day: Positive | None = None
    """Tokens a day over all groups."""
    usd_per_day: Dollars | None = None
    """Dollars a day over all groups."""
    idle_s: Positive | None = None
    """Seconds without a byte after which an answer is given up."""
    total_s: Positive | None = None
    """Seconds after which an answer is given up."""


# Of a service that is reached through the proxy alone: it is for looking things up.
_LOOKING = ("GET", "HEAD")
_LOOKED_UP = {"requests_per_turn": 300, "bytes_per_turn": 256 << 20}


class Service(Table):
    base_url: Annotated[str, _checked(grammar.base)] | None = None
    """The service's address, reached from a sandbox as `/svc/<name>/`, and through the proxy."""
    hosts: list[Annotated[str, _checked(grammar.host_rule)]] = []
    """Further hosts, reached through the proxy: `name`, `*.name` for its subdomains, `*` for any, `name:port`."""
    credential: Secret | None = None
    """The key, by reference; it never enters a sandbox."""
    inject: Inject | None = None
    """How the credential is added to a request; without it as a bearer token."""
    methods: Annotated[list[Annotated[str, _checked(_method)]], Field(min_length=1)] = ["GET", "HEAD", "POST"]
    """Methods that are let through; without base_url GET and HEAD alone."""
    paths: list[Annotated[str, _checked(grammar.path_rule)]] = []
    """Paths that are let through, with all below them, by whole segments and counted from base_url; `*` stands for one
    segment. Empty lets all through."""
    websocket: bool = False
    """Whether a request may become a WebSocket."""
    allow_private: bool = False
    """Whether the service may lie on this machine or a private network."""
    limits: ServiceLimits = ServiceLimits()
    """Limits of this service; without base_url a turn has 300 requests and 256 MB."""
    ca: Annotated[str, _checked(_file)] | None = None
    """A file of certificates to trust for this service alone."""

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get("base_url") is not None:
            return data
        given = data.get("limits", {})
        limits = {**_LOOKED_UP, **given} if isinstance(given, Mapping) else given
        return {"methods": list(_LOOKING), **data, "limits": limits}

    @model_validator(mode="after")
    def _sound(self) -> Service:
        if trouble := self.trouble(self.credential):
            raise ValueError(trouble)
        return self

    def trouble(self, credential: Secret | None) -> str | None:
        """Why the service cannot be used with this credential, None when it can."""
        if self.base_url is None and not self.hosts:
            return f"a service has base_url, hosts or both; known without are {', '.join(PRESETS)}"
        if any(grammar.host_rule(entry)[0] == "*" for entry in self.hosts):
            if credential is not None:
                return 'hosts = ["*"] takes no credential: any host could read it'
            if self.allow_private:
                return 'hosts = ["*"] takes no allow_private: all of this network would be open'
        cleartext = self.base_url is not None and grammar.base(self.base_url)[0] == "http"
        if cleartext and credential is not None and not self.allow_private:
            return "a credential goes over http:// to a private address alone: write https://, or allow_private = true"
        return None
