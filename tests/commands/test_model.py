"""`/model`: it shows, changes the group's own file with its comments kept, and writes nothing that could not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.commands.model import say
from clawd.config.load import merged, parse, parse_group
from clawd.config.schema import Config
from clawd.errors import ClawdError

CONFIG = '[model]\nengine = "messages"\nmodel = "big"\nfallbacks = ["small"]\n'
GROUP = '# mine\ngrants = ["anthropic", "openai"]\n\n[model]\n# cheap\nmax_output = 100  # short\n'


class Chat:
    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_text(GROUP)
        self.config = parse(Config, CONFIG, "config.toml")

    def say(self, words: str) -> str:
        settings = merged(self.config, parse_group(self.file.read_text()))
        return say(self.file, self.config, settings, "main", words)


@pytest.fixture
def chat(tmp_path: Path) -> Chat:
    return Chat(tmp_path / "group.toml")


def test_it_shows_what_answers(chat: Chat) -> None:
    shown = chat.say("")
    for line in ("engine: messages", "service: anthropic", "model: big", "effort: not said", "fallbacks: small"):
        assert line in shown.splitlines()
    assert "/model reset" in shown


@pytest.mark.parametrize(
    ("words", "written"),
    [
        ("huge", 'model = "huge"\n'),
        ("7", 'model = "7"\n'),
        ("openai/gpt", 'engine = "chat"\nmodel = "gpt"\nservice = "openai"\nfallbacks = ["anthropic/small"]\n'),
        ("engine=claude-code effort=low", 'engine = "claude-code"\neffort = "low"\n'),
        (
            "engine=chat model=gpt service=openai",
            'engine = "chat"\nmodel = "gpt"\nservice = "openai"\nfallbacks = []\n',
        ),
        ("engine=exec agent=codex", 'engine = "exec"\nagent = "codex"\n'),
        ("engine=offline", 'engine = "offline"\n'),
    ],
)
def test_a_change_is_written_and_comments_stay(chat: Chat, words: str, written: str) -> None:
    assert chat.say(words).startswith("From the next turn on:")
    assert chat.file.read_text() == GROUP + written
    assert chat.say("reset").splitlines()[2] == "service: anthropic"
    assert chat.file.read_text().startswith(GROUP) and "engine =" not in chat.file.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("ollama/llama", 'add "ollama" in grants'),
        ("engine=gpt", "offline, scripted, messages"),
        ("effort=huge", "low, medium, high"),
        ("engine=exec agent=pie", "codex"),
        ("engine=exec agent=grok", 'add "xai" in grants'),
        ("engine=exec", "agent ="),
        ("engine=chat", "needs a model"),
        ("colour=red", "is not understood"),
        ("model=", "is not understood"),
        ("one two", "is not understood"),
        ("service=opnai", "did you mean openai"),
    ],
)
def test_what_could_not_answer_is_not_written(chat: Chat, words: str, says: str) -> None:
    with pytest.raises(ClawdError) as error:
        chat.say(words)
    assert says in str(error.value) and chat.file.read_text() == GROUP


def test_a_reset_says_what_the_config_s_model_lacks(chat: Chat) -> None:
    chat.file.write_text('grants = ["openai"]\n[model]\nengine = "chat"\nservice = "openai"\n')
    assert "It cannot answer yet: the service anthropic is not granted" in chat.say("reset")


def test_there_may_be_nothing_to_reset(chat: Chat) -> None:
    assert "nothing of its own" in chat.say("reset") and chat.file.read_text() == GROUP


def test_a_write_that_fails_is_told(chat: Chat) -> None:
    directory = chat.file.with_name("gone")
    with pytest.raises(ClawdError, match="could not be written"):
        say(directory / "group.toml", chat.config, merged(chat.config, parse_group(GROUP)), "main", "huge")
