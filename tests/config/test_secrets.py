"""Secrets: references that are read on use, and values that nothing shows."""

import os
import traceback
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from clawd.config.group import GroupConfig
from clawd.config.schema import Config
from clawd.config.secrets import Secret, known_secrets
from clawd.errors import ConfigError

CANARY = "sk-CANARY-9f8e7d"


def test_each_kind_is_revealed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{CANARY}\n")
    env = {"NAME": CANARY, "CREDENTIALS_DIRECTORY": str(tmp_path)}
    for reference in ("${env:NAME}", f"${{file:{tmp_path}/token}}", "${cred:token}"):
        secret = Secret(reference)
        assert secret.reveal(env) == CANARY
        assert secret.present(env)
        assert str(secret) == reference
    assert CANARY in known_secrets()


def test_a_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token")
    with pytest.raises(ConfigError, match="no plain file"):
        Secret(f"${{file:{tmp_path}/token}}").reveal({})


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("${env:NONE}", "the environment variable NONE is not set"),
        ("${env:EMPTY}", "is empty"),
        ("${env:LINES}", "not one line"),
        ("${file:/nowhere/at/all}", "cannot be read"),
        ("${cred:x}", "LoadCredential"),
    ],
)
def test_what_is_not_there_is_a_sentence(reference: str, sentence: str) -> None:
    secret = Secret(reference)
    with pytest.raises(ConfigError, match=sentence):
        secret.reveal({"EMPTY": "", "LINES": "a\nb"})
    assert not secret.present({})


@pytest.mark.parametrize("path", ["relative", "~nobody/x"])
def test_a_relative_file_is_refused_before_it_is_used(path: str) -> None:
    with pytest.raises(ValueError, match="absolute path"):
        Secret(f"${{file:{path}}}")


def test_a_credential_is_a_plain_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="plain name"):
        Secret("${cred:../x}").reveal({"CREDENTIALS_DIRECTORY": str(tmp_path)})


@pytest.mark.parametrize("literal", [CANARY, f"${{env:X}}{CANARY}", f"${{vault:{CANARY}}}", "", "${env:}"])
def test_a_literal_is_refused_and_not_repeated(literal: str) -> None:
    class Holder(BaseModel):
        token: Secret

    with pytest.raises(ValueError, match="write a reference"):
        Secret(literal)
    for model, data in (
        (Config, {"services": {"a": {"base_url": "https://x", "credential": literal}}}),
        (Config, {"channels": {"telegram": {"token": literal}}}),
        (GroupConfig, {"webhook": [{"name": "a", "secret": literal}]}),
        (GroupConfig, {"grants": [{"service": "a", "credential": literal}]}),
    ):
        with pytest.raises(ValidationError) as caught:
            model.model_validate(data)
        assert CANARY not in str(caught.value)
        assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_no_form_of_a_config_shows_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", CANARY)
    config = Config.model_validate({"channels": {"telegram": {"token": "${env:NAME}"}}})
    token = config.channels.telegram.token
    assert token is not None and token.reveal() == CANARY
    for shown in (
        repr(config),
        str(config),
        config.model_dump_json(),
        repr(config.model_dump()),
        repr(token),
    ):
        assert CANARY not in shown
        assert "${env:NAME}" in shown or "Secret" in shown


def test_a_secret_is_never_half_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x" * (16 << 10))
    assert Secret(f"${{file:{file}}}").reveal({}) == file.read_text()
    file.write_text(file.read_text() + "y")
    with pytest.raises(ConfigError, match="larger than 16 KB"):
        Secret(f"${{file:{file}}}").reveal({})
