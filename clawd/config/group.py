"""What `group.toml` may say, and what holds for a group: `config.toml` with the group's differences laid over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from clawd import scopes
from clawd.config.schema import Budget, Config, ContextTable, LimitsTable, MemoryTable, ModelTable, SandboxTable
from clawd.config.secrets import Secret
from clawd.config.values import Binding, Mode, Positive, RoleName, Table, Zone, written
from clawd.errors import UsageError


class Grant(Table):
    service: str
    """The service."""
    for_: RoleName | None = Field(default=None, alias="for")
    """The lowest role whose turns may use it; without it, what the service does decides."""
    credential: Secret | None = None
    """A key of this group's own, by reference."""


GrantOrName = Annotated[Grant, BeforeValidator(lambda value: {"service": value} if isinstance(value, str) else value)]


class Mount(Table):
    path: str
    """A directory of the host that the mount allowlist allows."""
    name: Annotated[str, written(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "a mount's name is of letters, digits, . - and _")]
    """It appears as `/mnt/<name>`."""
    mode: Mode = "ro"
    """Read-only, or writable."""
    shared: bool = False
    """Whether another group may see what this one writes there."""


class Watch(Table):
    paths: list[str] = Field(min_length=1)
    """Directories of the group's folder, or of its mounts as `/mnt/<name>`."""
    globs: list[str] = Field(default=["*"], min_length=1)
    """Names that count, like `*.md`; with a slash, paths like `docs/**/*.txt`."""
    events: list[Literal["added", "modified", "deleted"]] = ["added", "modified"]
    """Changes that count."""
    settle: Annotated[float, Field(ge=0, le=3600)] = 2.0
    """Seconds without a further change before the wake."""
    cooldown: Annotated[float, Field(ge=0, le=604800)] = 60.0
    """Seconds between two wakes."""
    max_per_hour: Positive = 12
    """Wakes an hour, after which the rule rests and says so."""
    prompt: str = ""
    """What the agent is asked to do."""


class Webhook(Table):
    name: Annotated[str, written(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", "a hook's name is of letters, digits, - and _")]
    """It listens at `/hooks/<group>/<name>`."""
    secret: Secret
    """The sender's secret, by reference."""
    scheme: Literal["github", "slack", "stripe", "bearer"] = "github"
    """How the sender proves that it knows the secret."""
    prompt: str = ""
    """What the agent is asked to do."""


def _apart(hooks: list[Webhook]) -> list[Webhook]:
    if twice := [hook.name for n, hook in enumerate(hooks) if hook.name in {each.name for each in hooks[:n]}]:
        raise ValueError(f"there are two webhooks {twice[0]}: give one of them another name")
    return hooks


class Heartbeat(Table):
    hours: Annotated[str, written(r"\d{1,2}(:\d\d)?-\d{1,2}(:\d\d)?", 'hours are like "9-18"')] | None = None
    """When it beats, like "9-18"; without it there is none."""
    every: Annotated[str, written(r"[1-9]\d{0,3}\s*(m|min|h)", 'a time between beats is like "30m" or "1h"')] = "1h"
    """How far apart beats are."""
    tz: Zone | None = None
    """The zone of `hours`; without it the group's."""
    file: str = "HEARTBEAT.md"
    """The checklist, in the group's folder; an empty one makes no call."""


def _said(check: Callable[[object], str]) -> AfterValidator:
    """The same text, if it may be one; the sentence says what to write."""

    def same(value: str) -> str:
        try:
            return check(value)
        except UsageError as error:
            raise ValueError(f"{error.message}; {error.hint}") from None

    return AfterValidator(same)


def _listed(names: list[str]) -> list[str]:
    if wrong := [each for each in names if not scopes.is_shared(each)]:
        raise ValueError(f"{wrong[0]} stays in its group: what several groups list is called like shared/{wrong[0]}")
    return list(dict.fromkeys(names))


AgentId = Annotated[str, _said(scopes.agent)]
Namespace = Annotated[str, _said(scopes.namespace)]


class GroupConfig(Table):
    """`group.toml`. Its `[sandbox] [model] [limits] [memory] [budget] [context]` say what differs from `config.toml`
    for this group."""

    bindings: list[Binding] = []
    """Chats that belong to the group; the first names its session."""
    grants: list[GrantOrName] = []
    """Services that the group may use."""
    mounts: list[Mount] = []
    """Directories of the host that the group asks for."""
    watch: list[Watch] = []
    """File changes that wake the group."""
    webhook: Annotated[list[Webhook], AfterValidator(_apart)] = []
    """Requests from outside that wake the group."""
    heartbeat: Heartbeat = Heartbeat()
    """A regular look at a checklist."""
    external: list[str] = []
    """Session ids that may be injected from outside; `*` stands for any text."""
    answer: Literal["always", "mention", "trigger", "off"] = "always"
    """Which messages of a shared chat are answered."""
    listen: bool = False
    """Whether what members say in a shared chat without being answered is read with the next answer; then that acts for
    them, too."""
    followups: Literal["steer", "queue", "interrupt"] = "steer"
    """What a message does while a turn is at work."""
    sessions: Literal["group", "thread"] = "group"
    """One session for the group, or one for each thread."""
    timezone: Zone | None = None
    """The group's time zone."""
    trigger: str | None = None
    """The word that calls the claw here."""
    share_profile: bool = False
    """Whether `user_profile.md` is sent where others read along."""
    default_session_tag: Literal["task", "conversation"] | None = None
    """What kind of session this group has when nothing else says it."""
    learn: Literal["propose", "auto"] = "propose"
    """Whether learned skills wait for a yes."""
    require_confirm: list[Literal["compact", "handoff"]] = []
    """What asks before it is done."""
    profile: str | None = None
    """The context profile: `coding`, `chat`, or one of `[profiles]`."""
    agent_id: AgentId | None = None
    """Who this group's agent is: in its sessions, their manifests, and where its memories come from."""
    memory_namespace: Namespace | None = None
    """Where this group's agents keep what they remember, like `team/a`: seen by those alone that have it, too."""
    shared: Annotated[list[Namespace], AfterValidator(_listed)] = []
    """Namespaces like `shared/garden`, whose memories the groups that list them have in common."""
    sandbox: SandboxTable = SandboxTable()
    model: ModelTable = ModelTable()
    limits: LimitsTable = LimitsTable()
    memory: MemoryTable = MemoryTable()
    budget: Budget = Budget()
    context: ContextTable = ContextTable()

    @model_validator(mode="after")
    def _lists_its_own(self) -> Self:
        name = self.memory_namespace
        if name is not None and scopes.is_shared(name) and name not in self.shared:
            raise ValueError(f'memory_namespace is {name}, which this group must list: shared = ["{name}"]')
        return self


@dataclass(frozen=True, slots=True)
class Effective:
    """What holds for one group: `config.toml` with the group's own differences laid over it."""

    name: str
    timezone: str
    trigger: str | None
    sandbox: SandboxTable
    model: ModelTable
    limits: LimitsTable
    memory: MemoryTable
    budget: Budget
    context: ContextTable
    group: GroupConfig


_LATER = ("distil",)
_GROUP_LATER = ("learn", "default_session_tag")


def not_built(config: Config | GroupConfig) -> list[str]:
    """The tables and keys that are set although what they are for is not built yet."""
    later = _LATER if isinstance(config, Config) else _GROUP_LATER
    found = {name: getattr(config, name) for name in later if name in config.model_fields_set}
    return [f"[{name}]" if _is_table(value) else name for name, value in found.items() if value]


def _is_table(value: object) -> bool:
    return isinstance(value, Table | dict) or (isinstance(value, list) and isinstance(value[0], Table))
