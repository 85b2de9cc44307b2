"""What `config.toml` may say. Every table of the contract is here; this is its reference (`group`: of `group.toml`).

Unknown keys are refused. A table whose room is not built yet is accepted: `group.not_built` names it, `doctor` says
so. Sizes are bytes, written as numbers or "512m", "1g"; money is US dollars.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from clawd.config import grammar
from clawd.config.presets import laid
from clawd.config.secrets import Secret
from clawd.model import EngineName

SCHEMA = 1

RoleName = Literal["owner", "admin", "member"]
Mode = Literal["ro", "rw"]
_CONNECTION = re.compile(
    r"host|connection|keep-alive|content-(length|encoding)|transfer-encoding|te|trailer|upgrade|expect"
    r"|(proxy|sec-websocket)-.*"
)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _size(value: object) -> object:
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([kmgt]?)(?:i?b)?\s*", value.lower())
        if match is None:
            raise ValueError('a size is a number of bytes, or like "512m" or "1g"')
        return int(float(match[1]) * _UNITS[match[2]])
    return value


@lru_cache(maxsize=256)
def check_zone(name: str) -> str:
    """The same name. Raises ValueError when it is no time zone."""
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f'{name!r} is no time zone; write one like "Europe/Berlin" or "UTC"') from None
    return name


def _zone_name(value: object) -> object:
    return check_zone(value) if isinstance(value, str) else value


def _binding(value: str) -> str:
    channel, colon, chat = value.partition(":")
    if not (channel and colon and chat) or any(character.isspace() for character in value):
        raise ValueError('a binding is "<channel>:<chat>", like "telegram:-100123"')
    return value


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


# apt-get takes a trailing - for "remove": that ends no package's name.
Package = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9+.-]*[a-z0-9+]$", max_length=100)]
# Docker's names of images: nothing else that its API's paths would take.
Image = Annotated[str, Field(pattern=r"^[A-Za-z0-9]+((\.|/|:|@|__?|-+)[A-Za-z0-9]+)*$", max_length=300)]
Size = Annotated[int, BeforeValidator(_size), Field(gt=0, le=1 << 60)]
Days = Annotated[int, Field(ge=0, le=36_500)]
Zone = Annotated[str, BeforeValidator(_zone_name)]
Binding = Annotated[str, BeforeValidator(lambda value: _binding(value) if isinstance(value, str) else value)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Table(BaseModel):
    """A table of TOML: known keys only, and no value of it in an error."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        coerce_numbers_to_str=True,
        populate_by_name=True,
    )


class Claw(Table):
    name: str = "clawd"
    """What the claw is called in its own messages."""
    timezone: Zone | None = None
    """The owner's time zone; without it the machine's."""
    trigger: str | None = None
    """The word that calls the claw in groups with `answer = "trigger"`."""


class SandboxTable(Table):
    backend: Literal["auto", "docker", "bubblewrap"] = "auto"
    """What makes sandboxes; `auto` takes docker where its Engine and image answer."""
    image: Image = "clawd-agent"
    """Docker: the image that agents run in."""
    warm_minutes: Annotated[float, Field(ge=0)] = 10
    """How long an idle sandbox is kept."""
    keep: bool = True
    """Docker: leave living sandboxes to the next daemon when this one ends."""
    max_live: Positive = 4
    """Sandboxes at one time."""
    parallel: Annotated[int, Field(gt=0, le=32)] = 4
    """Sessions of one group that work side by side in its sandbox."""
    memory: Size = 1 << 30
    """The most memory that a sandbox may use."""
    cpus: Annotated[float, Field(gt=0, le=10_000)] = 1.0
    """CPUs that a sandbox may use."""
    pids: Annotated[int, Field(gt=0, le=1 << 22)] = 256
    """Processes and threads at one time in a sandbox."""
    work: Size = 1 << 30
    """Bytes that a group's `work/` may hold."""
    work_files: Positive = 100_000
    """Files that a group's `work/` may hold."""
    tmp_exec: bool = False
    """Docker: programs may be started from /tmp, which pip and npm need to build packages."""
    packages: list[Package] = []
    """Debian packages that `clawd image build --group G` adds to the image, in an image of the group's own."""
    docker_host: str | None = None
    """The Engine's address, before `DOCKER_HOST`."""


class ModelTable(Table):
    engine: EngineName = "offline"
    """What answers a turn."""
    service: str | None = None
    """The `[services]` entry that the model is reached through."""
    model: str | None = None
    """The model's name at the service."""
    max_output: Positive = 8192
    """Tokens of one answer."""
    effort: Literal["low", "medium", "high"] | None = None
    """How much the model thinks, where it can be told."""
    fallbacks: list[str] = []
    """Models to try in order when this one is exhausted: `model` or `service/model`."""
    script: str | None = None
    """Engine "scripted": the transcript file, below the home or absolute."""
    agent: str | None = None
    """Engine "exec": the `[engines]` entry."""


class Inject(Table):
    header: Annotated[str, _checked(_injected_header)] | None = None
    """The name of the header that carries the credential."""
    bearer: bool = False
    """`Authorization: Bearer <credential>`."""
    basic: Annotated[str, Field(pattern=r"^[!-9;-~]{1,100}$")] | None = None
    """The user name; the credential is the password of HTTP Basic."""
    query: Annotated[str, Field(pattern=r"^[A-Za-z0-9._~-]{1,100}$")] | None = None
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
            return "a service has base_url, hosts or both"
        if any(grammar.host_rule(entry)[0] == "*" for entry in self.hosts):
            if credential is not None:
                return 'hosts = ["*"] takes no credential: any host could read it'
            if self.allow_private:
                return 'hosts = ["*"] takes no allow_private: all of this network would be open'
        cleartext = self.base_url is not None and grammar.base(self.base_url)[0] == "http"
        if cleartext and credential is not None and not self.allow_private:
            return "a credential goes over http:// to a private address alone: write https://, or allow_private = true"
        return None


class Telegram(Table):
    enabled: bool = False
    """Whether the channel is opened."""
    token: Secret | None = None
    """The bot's token, by reference."""
    api_base: str = "https://api.telegram.org"
    """The address before `/bot<token>/`."""


class Slack(Table):
    enabled: bool = False
    """Whether the channel is opened."""
    bot_token: Secret | None = None
    """The bot's token, by reference."""
    app_token: Secret | None = None
    """The app's token for Socket Mode, by reference."""
    api_base: str = "https://slack.com"
    """The address before `/api/`."""


class Discord(Table):
    enabled: bool = False
    """Whether the channel is opened."""
    token: Secret | None = None
    """The bot's token, by reference."""
    api_base: str = "https://discord.com/api/v10"
    """The API's address, used as it stands."""
    gateway_url: str | None = None
    """The gateway's address; without it the one that the API names."""


class Channels(Table):
    telegram: Telegram = Telegram()
    """Telegram, by long poll."""
    slack: Slack = Slack()
    """Slack, by Socket Mode."""
    discord: Discord = Discord()
    """Discord, by its gateway."""


class MemoryTable(Table):
    backend: Literal["file", "vector", "hybrid"] = "file"
    """How memories are searched: words, meaning, or both."""
    recall_k: Count = 8
    """Memories that a turn is given."""
    floor: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The lowest trust of a memory that is recalled."""


class Budget(Table):
    usd_per_day: Dollars | None = None
    """Dollars a day."""
    usd_per_month: Dollars | None = None
    """Dollars a calendar month."""
    tokens_per_day: Count | None = None
    """Tokens a day."""
    tokens_per_month: Count | None = None
    """Tokens a calendar month."""
    requests_per_minute: Positive | None = None
    """Model requests a minute."""


class Logging(Table):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least serious line that is written."""
    format: Literal["json", "text"] = "text"
    """What a terminal gets of `clawd run`; the file is always JSON lines."""


class Webhooks(Table):
    listen: str | None = None
    """`host:port` of the webhook listener; without it there is none."""


class Profile(Table):
    soft: Positive
    """Tokens of the window at which a session is compacted."""
    hard: Positive
    """Tokens of the window at which it is handed over."""

    @model_validator(mode="after")
    def _ordered(self) -> Profile:
        if self.soft > self.hard:
            raise ValueError("soft must not be above hard")
        return self


class EngineTable(Table):
    command: list[str] = Field(min_length=1)
    """The command line; `{prompt}`, `{model}` and `{session}` are filled in."""
    prompt: Literal["stdin", "argument"] = "stdin"
    """How the prompt goes in."""
    output: Literal["plain", "json", "stream-json"] = "plain"
    """How the answer comes out."""


class Price(Table):
    input: Dollars
    """Dollars a million input tokens."""
    output: Dollars
    """Dollars a million output tokens."""
    cached: Dollars | None = None
    """Dollars a million cached input tokens; without it the price of input."""
    date: str | None = None
    """When the price was looked up."""


class Speech(Table):
    service: str | None = None
    """The `[services]` entry that turns voice notes into text."""


class Retention(Table):
    text_days: Days = 7
    """Days that a message's text stays in the ledger after it was recorded."""
    key_days: Days = 30
    """Days that a message's identity stays there, to know it again, and what a terminal was never shown."""
    log_days: Annotated[Days, Field(gt=0)] = 30
    """Days that logs and the audit are kept."""
    keep_free: Size = 500 << 20
    """Room that is left on the disk, but at most a tenth of it: no turn begins with less."""
    transcript_days: Days = 30
    """Days that a distilled transcript is kept; 0 keeps it."""


class Distil(Table):
    sessions: Positive = 5
    """Sealed sessions that start a round."""
    message_chars: Positive = 8_000
    """Characters of one message that are read."""
    transcript_chars: Positive = 80_000
    """Characters of one session that are read."""


class Config(Table):
    """`config.toml`."""

    claw: Claw = Claw()
    sandbox: SandboxTable = SandboxTable()
    model: ModelTable = ModelTable()
    services: Annotated[dict[str, Service], BeforeValidator(laid)] = {}
    channels: Channels = Channels()
    memory: MemoryTable = MemoryTable()
    budget: Budget = Budget()
    logging: Logging = Logging()
    webhooks: Webhooks = Webhooks()
    profiles: dict[str, Profile] = {}
    engines: dict[str, EngineTable] = {}
    prices: dict[str, Price] = {}
    speech: Speech = Speech()
    retention: Retention = Retention()
    distil: Distil = Distil()
