"""What `config.toml` may say. Every table of the contract is here or in `service`; this is its reference (`group`: of
`group.toml`).

Unknown keys are refused. A table whose room is not built yet is accepted: `group.not_built` names it, `doctor` says so.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from clawd.config.engines import EngineTable as EngineTable
from clawd.config.engines import laid as engines_laid
from clawd.config.presets import laid
from clawd.config.secrets import Secret, revealed
from clawd.config.service import Inject as Inject
from clawd.config.service import Service as Service
from clawd.config.service import ServiceLimits as ServiceLimits
from clawd.config.values import Binding as Binding
from clawd.config.values import Count, Days, Dollars, Image, Package, Positive, Size, Table, Zone, written
from clawd.config.values import Mode as Mode
from clawd.config.values import RoleName as RoleName
from clawd.config.values import check_zone as check_zone
from clawd.model import EngineName

SCHEMA = 1
STALE_HOURS = 24.0
Hours = Annotated[float, Field(ge=0, allow_inf_nan=False)]


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
    """Docker: the image that agents run in; with engine "claude-code" its own, clawd-claude-code."""
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
    inbox: Size = 1 << 30
    """Bytes that a group's `inbox/` may hold: files that came with messages."""
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
    window: Positive | None = None
    """Tokens that the model can read; without it that of a model that is known."""
    effort: Literal["low", "medium", "high"] | None = None
    """How much the model thinks, where it can be told."""
    fallbacks: list[str] = []
    """Models to try in order when this one is exhausted: `model` or `service/model`."""
    script: str | None = None
    """Engine "scripted": the transcript file, below the home or absolute."""
    agent: str | None = None
    """Engine "exec": the `[engines]` entry."""


class LimitsTable(Table):
    steps: Annotated[int, Field(gt=0, le=400)] = 50
    """Answers of the model in one turn."""
    wall_minutes: Annotated[float, Field(gt=0, le=1440)] = 15
    """How long a turn may take."""
    tool_s: Annotated[float, Field(gt=0, le=86_400)] = 120
    """Seconds that one tool may take."""
    output_bytes: Annotated[Size, Field(ge=1000, le=500_000)] = 30_000
    """Bytes of one tool's output; of a longer one the middle is left out."""
    final_bytes: Annotated[Size, Field(ge=1000, le=256 << 10)] = 256 << 10
    """Bytes of an answer's text."""
    retries: Annotated[int, Field(ge=0, le=20)] = 5
    """How often a call of the model is tried again when its service is overloaded or breaks off."""


class Telegram(Table):
    enabled: bool = False
    """Whether the channel is opened."""
    token: Secret | None = None
    """The bot's token, by reference."""
    api_base: str = "https://api.telegram.org"
    """The address before `/bot<token>/`."""
    stale_hours: Hours = STALE_HOURS
    """A message that is older when it comes is not answered; 0: each is."""
    poll_s: Annotated[int, Field(ge=1, le=50)] = 25
    """Seconds that Telegram may keep a question for news open."""


class Slack(Table):
    enabled: bool = False
    """Whether the channel is opened."""
    bot_token: Secret | None = None
    """The bot's token, by reference."""
    app_token: Secret | None = None
    """The app's token for Socket Mode, by reference."""
    api_base: str = "https://slack.com"
    """The address before `/api/`."""
    stale_hours: Hours = STALE_HOURS
    """A message that is older when it comes is not answered; 0: each is."""
    ping_s: Annotated[float, Field(gt=0, le=60)] = 5
    """Seconds between two pings. After four without an answer it connects anew."""


class Discord(Table):
    enabled: bool = False
    """Whether the channel is opened."""
    token: Secret | None = None
    """The bot's token, by reference."""
    api_base: str = "https://discord.com/api/v10"
    """The API's address, used as it stands."""
    gateway_url: str | None = None
    """The gateway's address; without it the one that the API names."""
    stale_hours: Hours = STALE_HOURS
    """A message that is older when it comes is not answered; 0: each is."""


class Channels(Table):
    """The channels that ship, and any other that an installed package brings: a table with `enabled` and what that
    package wants, secrets by reference."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Any]] = Field(init=False)

    telegram: Telegram = Telegram()
    """Telegram, by long poll."""
    slack: Slack = Slack()
    """Slack, by Socket Mode."""
    discord: Discord = Discord()
    """Discord, by its gateway."""

    def enabled(self) -> list[str]:
        """The channels to open, the terminal apart."""
        names = [*type(self).model_fields, *(self.model_extra or {})]
        return [name for name in names if self._table(name).get("enabled")]

    def settings(self, name: str) -> dict[str, Any]:
        """A channel's table with its secrets revealed. Raises ConfigError."""
        return {key: revealed(value) for key, value in self._table(name).items()}

    def stale_hours(self, name: str) -> float:
        """How old a message may be that is answered; one of a package's own table may be anything."""
        hours = self._table(name).get("stale_hours", STALE_HOURS) if hasattr(self, name) else STALE_HOURS
        return float(hours) if isinstance(hours, int | float) and hours >= 0 else STALE_HOURS

    def _table(self, name: str) -> dict[str, Any]:
        return dict(getattr(self, name))


class MemoryTable(Table):
    backend: Literal["file", "vector", "hybrid", "mem0"] = "file"
    """How memories are searched: words, meaning, both, or by mem0."""
    mem0: str | None = None
    """For mem0: the JSON file below the home that its `Memory.from_config` is given, or `in-memory`."""
    recall_k: Count = 8
    """Memories that a turn is given."""
    floor: Annotated[float, Field(ge=0, le=1)] = 0.5
    """The lowest trust of a memory that is recalled."""

    @model_validator(mode="after")
    def _there(self) -> MemoryTable:
        if self.backend == "mem0" and self.mem0 != "in-memory" and find_spec("mem0") is None:
            raise ValueError("mem0 is not installed: pip install 'clawd[mem0]'")
        return self


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


_HOST = r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)"
_PORT = r"(\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
Listen = Annotated[str, written(f"{_HOST}:{_PORT}", 'it is like "127.0.0.1:8787"')]


class Webhooks(Table):
    listen: Listen = "127.0.0.1:8787"
    """`host:port` where webhooks are listened for, as soon as a group has one."""


_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
ProfileName = Annotated[str, written(_NAME, "a profile's name is of letters, digits, - and _")]
Calibration = Annotated[
    str, written(rf"state/calibrations/{_NAME}\.json", 'it is a file like "state/calibrations/coding.json"')
]


class Profile(Table):
    soft: Positive | None = None
    """Tokens of the window at which a session is compacted."""
    hard: Positive | None = None
    """Tokens of the window at which it is handed over."""
    calibration: Calibration | None = None
    """The file of `clawd context calibrate --write` whose figures hold instead of `soft` and `hard`, which may then be
    left out."""

    @model_validator(mode="after")
    def _ordered(self) -> Profile:
        if self.calibration is None and (self.soft is None or self.hard is None):
            raise ValueError("a profile has soft and hard, or a calibration")
        if self.soft is not None and self.hard is not None and self.soft >= self.hard:
            raise ValueError("soft must be below hard")
        return self


class ContextTable(Table):
    policies: Annotated[list[str], Field(max_length=16)] = []
    """What may have a session compacted or handed over earlier, in this order: `blockers`, `cost`, or what a package
    brings."""
    usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Dollars of one session for the policy `cost`: at half of them it is compacted, then handed over."""


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
    """The `[services]` entry that turns voice notes into text. The daemon itself sends them there: it is the only thing
    that the host calls."""
    model: str = "whisper-1"
    """The model that the service is asked for."""


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
    limits: LimitsTable = LimitsTable()
    services: Annotated[dict[str, Service], BeforeValidator(laid)] = {}
    channels: Channels = Channels()
    memory: MemoryTable = MemoryTable()
    budget: Budget = Budget()
    logging: Logging = Logging()
    webhooks: Webhooks = Webhooks()
    profiles: Annotated[dict[ProfileName, Profile], Field(max_length=64)] = {}
    context: ContextTable = ContextTable()
    engines: Annotated[dict[str, EngineTable], BeforeValidator(engines_laid)] = {}
    prices: dict[str, Price] = {}
    speech: Speech = Speech()
    retention: Retention = Retention()
    distil: Distil = Distil()
