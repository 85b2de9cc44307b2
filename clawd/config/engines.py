"""`[engines.NAME]`: headless command lines, and those that are known (`engines.toml`), so that a person names one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from clawd.config.values import Table, written

if TYPE_CHECKING:
    from clawd.config.schema import Config, ModelTable


CLAUDE_CODE = "clawd-claude-code"  # the image that has the CLI, which `clawd image build --target claude-code` makes


def _beneath(path: str) -> str:
    if path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path[:80]!a} is no file beneath work/")
    return path


Pattern = Annotated[str, written(r"(\S+( +\S+)*)?", 'a pattern is words, like "type=message_end message.text"')]


class EngineTable(Table):
    command: list[str] = Field(min_length=1)
    """The command line, started in `work/`. Filled in, here and below: `{prompt} {model} {effort} {max_output}
    {base_url}` (what `/chat/completions` or `/messages` is added to) `{service_url} {gateway} {token} {work} {session}`
    (the program's own) and `{conversation}` (ours)."""
    resume: list[str] = []
    """The command line that goes on with its `{session}`; without it the conversation is told in each prompt."""
    prompt: Literal["stdin", "argument"] = "stdin"
    """How the prompt goes in; with `argument`, where `{prompt}` stands in the command or in a file."""
    output: Literal["plain", "json", "stream-json"] = "plain"
    """How the answer comes out."""
    answer: Pattern = ""
    """Where the answer is: `path=value` must hold of an event, the bare path is the value. The last one counts."""
    session: Pattern = ""
    """Where its session's id is."""
    usage: Pattern = ""
    """Where its usage is, an object of token counts; of several the sum counts."""
    error: Pattern = ""
    """Where it says what went wrong."""
    calls: Pattern = ""
    """Where it says that a tool begins: `id:path name:path arguments:path`."""
    results: Pattern = ""
    """Where a tool's result is: `id:path output:path`."""
    blocked: list[str] = []
    """Further words by which it says that its own permission rules stopped it."""
    environment: dict[str, str] = {}
    """Variables for it."""
    files: dict[Annotated[str, AfterValidator(_beneath)], str] = {}
    """Files that are written beneath `work/` before each start."""
    service: str | None = None
    """The `[services]` entry that its model is reached through when `[model] service` does not say."""
    dialect: Literal["messages", "chat"] = "chat"
    """What it speaks with a service whose API is not known."""

    @model_validator(mode="after")
    def _sound(self) -> EngineTable:
        if self.output != "plain" and not self.answer:
            raise ValueError(f'output = "{self.output}" needs answer, which says where in it the answer is')
        filled = (*self.command, *self.files.values())
        if self.prompt == "argument" and not any("{prompt}" in text for text in filled):
            raise ValueError('prompt = "argument" needs {prompt} in the command, or in a file')
        if self.resume and not self.session:
            raise ValueError("resume needs session, which says where the id is")
        return self

    def names(self, placeholder: str) -> bool:
        """Whether it cannot be started without what stands in the place of `placeholder`."""
        texts = (*self.command, *self.environment.values(), *self.files.values())
        return any(placeholder in text for text in texts)


@lru_cache(maxsize=1)
def _known() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("engines.toml").read_text("utf-8"))


def laid(engines: object) -> object:
    """`[engines]` as TOML gave it, with the known entries beneath, key by key. A command of one word only says where
    the known program is; any other takes away the known `resume` too."""
    if not isinstance(engines, Mapping):
        return engines
    return {str(name): _laid(str(name), own) for name, own in engines.items()}


def _laid(name: str, own: object) -> object:
    beneath = dict(_known().get(name, {}))
    if not beneath or not isinstance(own, Mapping):
        return own
    command = own.get("command")
    if isinstance(command, list) and command and "resume" not in own:
        if len(command) > 1:
            beneath["resume"] = []
        else:
            named = {key: [*command, *beneath[key][1:]] for key in ("command", "resume") if beneath.get(key)}
            return {**beneath, **own, **named}
    return {**beneath, **own}


def engines(config: Config) -> dict[str, EngineTable]:
    """Every entry there is: the known ones, and what `config.toml` says."""
    return {**_presets(), **config.engines}


@lru_cache(maxsize=1)
def _presets() -> dict[str, EngineTable]:
    return {name: EngineTable.model_validate(entry) for name, entry in _known().items()}


def served(config: Config, table: ModelTable) -> ModelTable:
    """`[model]` with the service of the `[engines]` entry that it names, where it says none itself."""
    entry = engines(config).get(table.agent or "") if table.engine == "exec" and table.service is None else None
    return table.model_copy(update={"service": entry.service}) if entry and entry.service else table
