"""Changing one value: comments and order stay, nothing invalid is written."""

from pathlib import Path

import pytest

from clawd.config.edit import change, remove, set_value
from clawd.config.load import parse_group
from clawd.errors import ConfigError, UsageError

TEXT = """\
# mine
schema = 1
answer = "mention"  # only when called

[model]
# cheap
engine = "offline"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "group.toml"
    file.write_text(TEXT)
    return file


def test_comments_and_order_stay(file: Path) -> None:
    set_value(file, "model.engine", "scripted")
    set_value(file, "answer", "always")
    assert file.read_text() == TEXT.replace('"offline"', '"scripted"').replace('"mention"', '"always"')


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("share_profile", "true", lambda group: group.share_profile is True),
        ("sandbox.max_live", "2", lambda group: group.sandbox.max_live == 2),
        ("sandbox.memory", "512m", lambda group: group.sandbox.memory == 512 << 20),
        ("bindings", '["telegram:7"]', lambda group: group.bindings == ["telegram:7"]),
        ("trigger", "7", lambda group: group.trigger == "7"),
        ("trigger", "true", lambda group: group.trigger == "true"),
        ("heartbeat.hours", "9-18", lambda group: group.heartbeat.hours == "9-18"),
    ],
)
def test_values_are_toml_else_text(file: Path, key: str, value: str, read: object) -> None:
    set_value(file, key, value)
    assert callable(read) and read(parse_group(file.read_text()))
    assert file.read_text().startswith("# mine\n")


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("model.engine", "gpt", ConfigError),
        ("nonsense", "1", ConfigError),
        ("schema", "9", ConfigError),
        ("answer.x", "1", UsageError),
        ("", "1", UsageError),
        ("model..engine", "1", UsageError),
        ("webhook", '[{name = "a", secret = "literal"}]', ConfigError),
    ],
)
def test_what_would_not_be_valid_is_not_written(file: Path, key: str, value: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        set_value(file, key, value)
    assert file.read_text() == TEXT


def test_a_broken_file_is_left_to_the_person(file: Path) -> None:
    file.write_text("[model\n")
    with pytest.raises(ConfigError, match="not TOML"):
        set_value(file, "answer", "off")
    assert file.read_text() == "[model\n"


def test_several_keys_are_one_write_and_none_takes_a_key_out(file: Path) -> None:
    change(file, {"model.engine": None, "model.model": "7", "limits.steps": None, "model.fallbacks": ["a"]})
    assert file.read_text() == TEXT.replace('engine = "offline"\n', 'model = "7"\nfallbacks = ["a"]\n')
    with pytest.raises(ConfigError):
        change(file, {"model.model": "8", "model.engine": "gpt"})
    assert parse_group(file.read_text()).model.model == "7"


def test_a_missing_file_is_made(tmp_path: Path) -> None:
    set_value(tmp_path / "group.toml", "model.engine", "scripted")
    assert (tmp_path / "group.toml").read_text() == 'schema = 1\n\n[model]\nengine = "scripted"\n'


def test_a_list_grows_with_its_comments_kept(file: Path) -> None:
    change(file, {}, {"bindings": ["telegram:7"]})
    assert parse_group(file.read_text()).bindings == ["telegram:7"] and file.read_text().startswith("# mine\n")
    file.write_text('bindings = [\n  "telegram:7",  # home\n]\n[model]\n')
    change(file, {}, {"bindings": ["slack:T012/C345", "discord:5"]})
    assert parse_group(file.read_text()).bindings == ["telegram:7", "slack:T012/C345", "discord:5"]
    assert "# home" in file.read_text()
    with pytest.raises(ConfigError):
        change(file, {}, {"bindings": ["nonsense"]})
    assert "nonsense" not in file.read_text()


WATCH = {"paths": ["inbox"], "prompt": 'see\nit "q"'}


@pytest.mark.parametrize(
    "before, after",
    [
        (TEXT, TEXT),
        (TEXT.rstrip(), TEXT),
        ('[[watch]]\npaths = ["work"]  # keep\n\n# a comment\n[model]\neffort = "low"\n', None),
        ('[[watch]]\npaths = ["a"]\n[model]\neffort = "low"\n', None),
        ('watch = [{paths = ["work"]}]\n', None),
        ("watch = []\n", ""),
    ],
)
def test_tables_are_added_to_a_list_and_taken_out_again(file: Path, before: str, after: str | None) -> None:
    file.write_text(before)
    count = len(parse_group(before).watch)
    change(file, {}, {"watch": [WATCH]})
    assert [each.prompt for each in parse_group(file.read_text()).watch][count:] == [WATCH["prompt"]]
    if "watch =" not in before:
        assert file.read_text().startswith(f"{before.rstrip()}\n\n[[watch]]\n")
    remove(file, "watch", lambda item: item.get("prompt") == WATCH["prompt"])
    assert file.read_text() == (before if after is None else after)
