"""Which model answers, and by which road."""

from __future__ import annotations

from typing import Any

import pytest

from clawd.config.group import GroupConfig
from clawd.config.load import merged, parse, parse_group
from clawd.config.models import checked, command_of, laid, model_services, models
from clawd.config.presets import services
from clawd.config.schema import Config, ModelTable
from clawd.errors import ConfigError, UsageError

CONFIG = """
[services.here]
base_url = "http://127.0.0.1:8000/v1"
allow_private = true
[services.lab]
base_url = "https://lab.example.org/models/v1beta"
[services.docs]
hosts = ["docs.example.org"]
[engines.mine]
command = ["mine", "run"]
"""
GRANTS = 'grants = ["anthropic", "openai", "openrouter", "ollama", "here", "lab", "docs"]\n'


def found(model: str, grants: str = GRANTS) -> tuple[list[dict[str, Any]], list[str]]:
    config = parse(Config, CONFIG, "config.toml")
    return models(config, "main", merged(config, parse_group(f"{grants}[model]\n{model}")))


@pytest.mark.parametrize(
    ("model", "dialect", "path"),
    [
        ('engine = "messages"', "messages", "/svc/anthropic/v1/messages"),
        ('engine = "chat"', "chat", "/svc/openai/v1/chat/completions"),
        ('engine = "chat"\nservice = "openrouter"', "chat", "/svc/openrouter/v1/chat/completions"),
        ('engine = "chat"\nservice = "ollama"', "chat", "/svc/ollama/v1/chat/completions"),
        ('engine = "messages"\nservice = "ollama"', "chat", "/svc/ollama/v1/chat/completions"),
        ('engine = "chat"\nservice = "here"', "chat", "/svc/here/chat/completions"),
        ('engine = "messages"\nservice = "here"', "messages", "/svc/here/messages"),
        ('engine = "messages"\nservice = "lab"', "messages", "/svc/lab/messages"),
        ('engine = "claude-code"', "messages", "/svc/anthropic/v1/messages"),
        ('engine = "claude-code"\nservice = "openrouter"', "messages", "/svc/openrouter/v1/messages"),
        ('engine = "exec"\nagent = "codex"', "chat", "/svc/openai/v1/chat/completions"),
    ],
)
def test_where_a_model_is_reached(model: str, dialect: str, path: str) -> None:
    [first], told = found(f'{model}\nmodel = "m"\neffort = "high"\nmax_output = 9')
    assert (first["dialect"], first["path"], told) == (dialect, path, [])
    assert (first["model"], first["effort"], first["max_output"]) == ("m", "high", 9)


def test_fallbacks_in_order_and_those_that_cannot_be() -> None:
    table = 'engine = "messages"\nmodel = "m"\nfallbacks = ["n", "openrouter/a/b", "github/x", "meta/y"]'
    reached, told = found(table)
    assert [(each["service"], each["model"], each["dialect"]) for each in reached] == [
        ("anthropic", "m", "messages"),
        ("anthropic", "n", "messages"),
        ("openrouter", "a/b", "chat"),
        ("anthropic", "meta/y", "messages"),
    ]
    assert len(told) == 1 and "github/x" in told[0] and "not granted" in told[0]


@pytest.mark.parametrize(
    ("model", "grants", "says"),
    [
        ('engine = "messages"', GRANTS, "/model NAME"),
        ('engine = "messages"\nmodel = "m"', "", 'grants = ["anthropic"] at the top of groups/main/group.toml'),
        ('engine = "chat"\nmodel = "m"', 'grants = ["anthropic"]\n', 'add "openai" in grants at the top'),
        ('engine = "chat"\nmodel = "m"\nservice = "opnai"', GRANTS, "did you mean openai?"),
        ('engine = "chat"\nmodel = "m"\nservice = "zzz"', GRANTS, "[services.zzz]"),
        ('engine = "chat"\nmodel = "m"\nservice = "docs"', GRANTS, "no base_url"),
        ('engine = "claude-code"', "", "not granted"),
        ('engine = "claude-code"\nservice = "here"', GRANTS, "base_url of here without the version"),
        ('engine = "exec"\nagent = "codex"', GRANTS, 'engine "exec" with codex needs a model'),
    ],
)
def test_what_is_missing_is_said_with_what_to_write(model: str, grants: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        found(model, grants)
    assert says in error.value.message


def test_an_engine_of_its_own_needs_no_model() -> None:
    assert found('engine = "exec"\nagent = "mine"', "") == ([], [])
    assert found('engine = "offline"', "") == ([], [])
    assert found('engine = "claude-code"')[0][0]["model"] is None
    config = parse(Config, CONFIG, "config.toml")
    entry = command_of(config, ModelTable(engine="exec", agent="mine"))
    assert entry is not None and entry.command == ["mine", "run"]
    with pytest.raises(ConfigError, match=r"there is no \[engines.pie\]; there are .*codex.*mine"):
        command_of(config, ModelTable(engine="exec", agent="pie"))
    with pytest.raises(ConfigError, match=r"needs agent = .*codex"):
        command_of(Config(), ModelTable(engine="exec"))


MESSAGES = ModelTable(engine="messages", model="m", fallbacks=["n", "ollama/o"])


@pytest.mark.parametrize(
    ("table", "choice", "answers", "service", "model", "fallbacks"),
    [
        (MESSAGES, {}, "messages", None, "m", ["n", "ollama/o"]),
        (MESSAGES, {"model": "x"}, "messages", None, "x", ["n", "ollama/o"]),
        (MESSAGES, {"model": "meta/x"}, "messages", None, "meta/x", ["n", "ollama/o"]),
        (MESSAGES, {"model": "openai/x"}, "messages", "openai", "x", ["anthropic/n", "ollama/o"]),
        (MESSAGES, {"model": "anthropic/x"}, "messages", None, "x", ["n", "ollama/o"]),
        (MESSAGES, {"engine": "claude-code"}, "claude-code", None, "m", ["n", "ollama/o"]),
        (MESSAGES, {"engine": "chat"}, "chat", None, None, []),
        (MESSAGES, {"engine": "chat", "model": "openai/x"}, "chat", "openai", "x", ["anthropic/n", "ollama/o"]),
        (ModelTable(), {"engine": "chat", "model": "x"}, "chat", None, "x", []),
    ],
)
def test_a_choice_is_laid_over_what_the_group_has(
    table: ModelTable,
    choice: dict[str, str],
    answers: str,
    service: str | None,
    model: str | None,
    fallbacks: list[str],
) -> None:
    chosen = laid(table, choice, services(Config()))
    assert (chosen.engine, chosen.service, chosen.model, chosen.fallbacks) == (answers, service, model, fallbacks)


def test_every_service_of_a_model_is_the_model_s_own() -> None:
    assert model_services(MESSAGES, services(Config())) == {"anthropic", "ollama"}
    assert model_services(ModelTable(), services(Config())) == frozenset()


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"engine": "gpt"}, "offline, scripted, messages, chat, claude-code, exec"),
        ({"engine": "mesages"}, "did you mean messages"),
        ({"effort": "huge"}, "low, medium, high"),
        ({"service": "x"}, "engine, model, effort"),
        ({"model": " "}, "cannot be chosen"),
        ("messages", "cannot be chosen"),
    ],
)
def test_what_cannot_be_chosen_names_what_can(choice: Any, says: str) -> None:
    with pytest.raises(UsageError) as error:
        checked(choice)
    assert says in str(error.value)


def test_an_unknown_engine_in_a_file_names_those_that_exist() -> None:
    assert checked(None) == {} and checked({"engine": "chat"}) == {"engine": "chat"}
    with pytest.raises(ConfigError, match="'messages', 'chat', 'claude-code' or 'exec'"):
        parse_group('[model]\nengine = "gpt"')
    assert GroupConfig().limits.steps == 50
