"""What a turn is handed: its wakes, its steps so far, its engine, and what its model is told. JSON-ready, no secret.

`Composer.told` is what the next turn of a group tells a model; `clawd context show` prints it, `offer` sends it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import anyio

from clawd.clock import Clock
from clawd.config.engines import served
from clawd.config.group import Effective
from clawd.config.home import GroupHome, Home
from clawd.config.models import THINKING, command_of, laid, models
from clawd.config.presets import services
from clawd.config.schema import Config, LimitsTable
from clawd.context import fence, memories, skills
from clawd.context.fence import Fences
from clawd.context.memories import Recalled
from clawd.context.parts import Part, compact, declared, prompt
from clawd.context.skills import Listed
from clawd.context.tools import sandbox_tools
from clawd.errors import ClawdError, ConfigError, UnsafePath
from clawd.files import read_owned
from clawd.ledger.contexts import AS_IT_IS, Standing
from clawd.ledger.db import Row
from clawd.ledger.turns import Claim
from clawd.lifecycle import estimate
from clawd.model import Offer

if TYPE_CHECKING:
    from clawd.context.history import Front, Histories, Message

log = logging.getLogger(__name__)

SCRIPT_BYTES = 4 << 20
_BYTES_A_TOKEN = 4
RECALL_S = 2.0  # then a turn goes without what its memory would give

Tool = Mapping[str, Any]  # {name, description, parameters}


@dataclass(frozen=True, slots=True)
class Told:
    """What a model is told. `refused` are sentences for the person on what of their files is not used. `memories` go in
    front of the first wake."""

    system: list[Part]
    tools: list[dict[str, Any]]
    history: list[Message]
    wakes: list[dict[str, Any]]
    refused: list[str]
    memories: Part | None = None

    def parts(self, dialect: str) -> list[Part]:
        """All of it in the order in which it is sent."""
        identity, *rest = self.system
        said = [Part("history", compact(self.history))] if self.history else []
        wake = Part("wake", "\n".join(wake["text"] for wake in self.wakes))
        recalled = [self.memories] if self.memories else []
        return [identity, Part("tools", declared(self.tools, dialect)), *rest, *said, *recalled, wake]

    def sent(self) -> list[dict[str, Any]]:
        """The wakes as they are sent."""
        if self.memories is None or not self.wakes:
            return self.wakes
        first, *rest = self.wakes
        return [{**first, "text": f"{self.memories.text}\n\n{first['text']}"}, *rest]


@dataclass(frozen=True, slots=True)
class Seen:
    """A session whose next turn is asked about: which channel that comes by, and what it is shown by."""

    group: str
    stem: str
    channel: str
    standing: Standing = AS_IT_IS
    forgot: str | None = None
    others: bool = False


async def _nothing(claim: Claim) -> Recalled:
    return Recalled()


async def _unnoted(turn: int, memories: Sequence[str]) -> None:
    pass


async def _no_script(session: str) -> Any | None:
    return None


class Composer:
    """Puts offers together. `settings` gives a group's config as it stands now, `environment` what its commands find
    the gateway by, with `{token}` for the run's token; `host_tools` are those that the daemon does itself, in a turn of
    this channel, `skills` what the turn of a group that was claimed last is told of, `recall` what memory gives a turn
    of itself, and `given` is told which of it a turn was shown; `script` is what a session plays of its own, `hard` how
    many tokens one may come to before it is handed over."""

    def __init__(
        self,
        home: Home,
        clock: Clock,
        settings: Callable[[str], Effective],
        environment: Callable[[str], dict[str, str]] = lambda group: {},
        *,
        config: Callable[[], Config] = Config,
        host_tools: Callable[[str], Sequence[Tool]] = lambda channel: (),
        skills: Callable[[str], Listed] = lambda group: Listed(),
        recall: Callable[[Claim], Awaitable[Recalled]] = _nothing,
        given: Callable[[int, Sequence[str]], Awaitable[None]] = _unnoted,
        script: Callable[[str], Awaitable[Any | None]] = _no_script,
        hard: Callable[[str, Standing], int] = lambda group, standing: 0,
    ) -> None:
        self._home, self._clock, self._settings, self._environment = home, clock, settings, environment
        self._config, self._host_tools, self._skills = config, host_tools, skills
        self._recall, self._given, self._own_script, self._hard = recall, given, script, hard
        self._fences = Fences(home.state)
        self._refused: dict[str, set[str]] = {}  # what each group was told of, until it is mended

    @cached_property
    def histories(self) -> Histories:
        """Imported with the first turn that has a model, beside the event loop."""
        from clawd.context.history import Histories

        return Histories(self._fences)

    def limit(self, group: str, standing: Standing) -> int:
        """Bytes of a session that are shown at most: more than it comes to before it is handed over."""
        from clawd.context.history import BYTES

        return max(BYTES, _BYTES_A_TOKEN * self._hard(group, standing))

    def engine(self, group: str) -> str | None:
        """Who answers the group's turns; None while its config cannot be read, which `offer` tells."""
        self._environment(group)  # as there, for the config of the moment
        try:
            return str(self._settings(group).model.engine)
        except ConfigError:
            return None

    async def offer(self, claim: Claim) -> tuple[Offer, list[str]]:
        """The offer, and sentences for the turn's chat on what of the person's files is not used, each once. Raises
        ConfigError when the engine lacks what it needs, UnsafePath for a session's file that is a link."""
        row = claim.turn
        environment = self._environment(row["grp"])  # which sees to it that the config is that of the moment
        settings = self.chosen(row["grp"], row["choice"])
        engine, zone = settings.model.engine, settings.timezone
        refused = [] if claim.job else list(self._skills(row["grp"]).refused)
        context: dict[str, Any] = {
            "group": row["grp"],
            "session": row["session"],
            "ordinal": row["ordinal"],
            "authority": claim.authority,
            "engine": engine,
            "time": self._clock.now().astimezone(ZoneInfo(zone)).isoformat(timespec="seconds"),
            "timezone": zone,
            "environment": environment,
        }
        wakes, steps = claim.wakes, claim.steps
        if engine == "scripted":
            own = await self._own_script(row["session"])
            context["script"] = own if own is not None else self._script(settings.model.script)
        elif engine in THINKING:
            context["models"], wrong = models(self._config(), row["grp"], settings)
            entry = command_of(self._config(), settings.model)
            context["exec"] = entry and {"name": settings.model.agent or engine, **entry.model_dump()}
            told = await self.told(claim, settings)
            wakes, refused = told.sent(), refused + wrong + told.refused
            steps = memories.without_forgotten(steps, claim.forgot)
            context |= {
                "fence": self._fences.of_turn(row["id"]),
                "system": [{"name": part.name, "text": part.text} for part in told.system],
                "history": told.history,
                "memories": told.memories.text if told.memories else "",  # the history will not have it
                "forgot": claim.forgot or "",
                "tools": told.tools,
                "job": {"schema": claim.job["schema"]} if claim.job else None,
                "effects": list(claim.effects),
            }
        new = self.news(row["grp"], refused)
        self._refused[row["grp"]] = set(refused)
        limits = limits_of(settings.limits)
        taken = claim.steps[: row["base_steps"]]  # over from the turn that is tried again: they are not counted
        limits["steps"] += sum(step["role"] == "assistant" for step in taken)
        return Offer(row["id"], claim.attempt, steps, wakes, context, limits), new

    def news(self, group: str, refused: Sequence[str]) -> list[str]:
        """Which of these sentences on a person's files the group was not told of; it is now."""
        known = self._refused.setdefault(group, set())
        new = [each for each in refused if each not in known]
        known.update(new)
        return new

    def chosen(self, group: str, choice: str | None) -> Effective:
        """What holds for a turn of the group, with the choice that was made for it alone (JSON)."""
        settings = self._settings(group)
        if not choice:
            return settings
        config = self._config()
        table = laid(settings.model, json.loads(choice), services(config))
        return replace(settings, model=served(config, table))

    def shown(self, row: Row | Mapping[str, Any], wakes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Wakes of this turn, or that join it, with `text`: what its model is shown of each."""
        name, zone = self._fences.of_turn(row["id"]), self._settings(row["grp"]).timezone
        listed = self._skills(row["grp"])
        return [{"joined": 0, **wake, "text": fence.shown(name, skills.noted(wake, listed), zone)} for wake in wakes]

    async def told(self, claim: Claim, settings: Effective) -> Told:
        """What the model of a claimed turn is told. What is slow is done beside the event loop."""
        row, job = claim.turn, claim.job
        wakes = self.shown(row, claim.wakes)
        name = settings.name
        if job:
            return Told(
                [Part("job", prompt("job").replace("{name}", name))],
                [],
                [],
                [{**wake, "text": job["prompt"]} for wake in wakes[:1]],
                [],
            )
        shared = settings.group.share_profile or not claim.others
        engine = settings.model.engine
        folder = self._home.group(row["grp"])

        def read() -> tuple[list[Part], list[dict[str, Any]], list[str], list[Message]]:
            tools = _tools(self._host_tools(row["channel"]), foreign=engine in ("claude-code", "exec"))
            system, refused = _files(folder, profile=shared, reads_itself=engine == "claude-code")
            without = {row["retry_of"]} if row["retry_of"] is not None else ()
            said: list[Message] = []
            if claim.stem is not None:
                path = folder.sessions / f"{claim.stem}.md"
                said = self.histories.of(
                    path,
                    settings.timezone,
                    self.limit(row["grp"], claim.standing),
                    without,
                    claim.forgot,
                    claim.standing,
                )
            return system, tools, refused, said

        (system, tools, refused, said), recalled = await asyncio.gather(asyncio.to_thread(read), self._recalled(claim))
        identity = Part("identity", prompt("identity").replace("{name}", name))
        taught, more = skills.part(self._skills(row["grp"]))
        shown = memories.part(recalled.hits, self._fences.of_memory(row["id"]), recalled.more, settings.timezone)
        return Told([identity, *system, *taught], tools, said, wakes, [*refused, *more, *recalled.wrong], shown)

    async def fixed(self, group: str, channel: str = "terminal", others: bool = False) -> int:
        """Characters of what every turn of a group is told before its conversation: the prompt, the person's files, the
        skills, the tools. Raises ConfigError."""
        settings = self._settings(group)
        engine, folder = settings.model.engine, self._home.group(group)
        shared = settings.group.share_profile or not others
        taught, _ = skills.part(self._skills(group))

        def read() -> int:
            tools = _tools(self._host_tools(channel), foreign=engine in ("claude-code", "exec"))
            parts, _ = _files(folder, profile=shared, reads_itself=engine == "claude-code")
            texts = [prompt("identity"), declared(tools, "messages"), *(part.text for part in [*parts, *taught])]
            return sum(map(len, texts))

        return await asyncio.to_thread(read)

    async def window(self, seen: Seen, front: Front | None = None) -> int:
        """About how many tokens the session's next turn would send before what it is woken by: as the file stands, or
        behind another front. Raises ConfigError, UnsafePath, OSError."""
        zone = self._settings(seen.group).timezone
        path = self._home.group(seen.group).sessions / f"{seen.stem}.md"

        def read() -> int:
            before = front or self.histories.front(path, seen.standing)
            limit = self.limit(seen.group, seen.standing)
            return len(compact(self.histories.shown(path, before, zone, limit, forgot=seen.forgot)))

        fixed = await self.fixed(seen.group, seen.channel, seen.others)
        return estimate.tokens(fixed + await asyncio.to_thread(read))

    async def _recalled(self, claim: Claim) -> Recalled:
        """What memory gives the turn. It fails no turn, and holds none up."""
        turn, group = claim.turn["id"], claim.turn["grp"]
        try:
            with anyio.fail_after(RECALL_S):
                recalled = await self._recall(claim)
                await self._given(turn, [hit.record.id for hit in memories.fitting(recalled.hits)])
                return recalled
        except TimeoutError:
            why = f"it could not be searched within {RECALL_S:g} s"
        except Exception as error:
            log.exception("the memory of group %s cannot be searched", group)
            why = error.message if isinstance(error, ClawdError) else f"it cannot be searched ({type(error).__name__})"
        log.warning("turn %s goes without its memory", turn)
        return Recalled(wrong=[f"A turn of group {group} goes without its memory: {why}. (clawd doctor says more)"])

    def _script(self, name: str | None) -> Any:
        if not name:
            raise ConfigError('the engine "scripted" needs [model] script = "FILE"')
        path = self._home.root / name
        try:
            if path.stat().st_size > SCRIPT_BYTES:
                raise ConfigError(f"the script {path} is larger than {SCRIPT_BYTES >> 20} MB")
            return json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"the script {path} cannot be read: {error}") from error


def limits_of(table: LimitsTable) -> dict[str, Any]:
    """`[limits]` as the runner is told them, times in seconds."""
    given = table.model_dump()
    return {"wall_s": round(given.pop("wall_minutes") * 60, 3), **given}


def _tools(host: Sequence[Tool], *, foreign: bool) -> list[dict[str, Any]]:
    """What an engine of ours may call; a foreign one has tools of its own beside the host's."""
    inside = [] if foreign else list(sandbox_tools())
    return inside + [{**tool, "where": "host"} for tool in host]


def _files(folder: GroupHome, *, profile: bool, reads_itself: bool) -> tuple[list[Part], list[str]]:
    """The person's files as they stand, byte for byte, and what they import, with sentences on what is not used. An
    engine that `reads_itself` finds CLAUDE.md by its own means, but not what that imports."""
    from clawd.context import imports

    parts: list[Part] = []
    sources: list[tuple[str, str]] = []
    refused: list[str] = []
    for path in (folder.claude_md, folder.user_profile) if profile else (folder.claude_md,):
        try:
            text, trouble = imports.decoded(path.name, read_owned(path.parent, path.name))
        except FileNotFoundError:
            continue
        except (UnsafePath, OSError) as error:  # the chat is told by whoever renders the view
            why = error.message if isinstance(error, UnsafePath) else f"it cannot be read: {error.strerror}"
            parts.append(Part(path.name, f"[{path.name} is not used: {why}]"))
            continue
        refused += trouble
        sources.append((path.name, text))
        if text.strip() and not (reads_itself and path == folder.claude_md):
            parts.append(Part(path.name, text))
    found = imports.resolve(folder, sources)
    parts += [Part(f"import {name}", f"{name}, imported:\n\n{text}") for name, text in found.files if text.strip()]
    if found.refused:
        parts.append(Part("imports", "\n".join(f"[{sentence}]" for sentence in found.refused)))
    return parts, refused + found.refused
