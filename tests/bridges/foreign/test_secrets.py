from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clawd.bridges.foreign import secrets
from clawd.bridges.foreign.place import Place
from tests.bridges.homes import files


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        (
            {"apiKey": "x", "api_key": "x", "botToken": "x", "imapPassword": "x"},
            ["apiKey", "api_key", "botToken", "imapPassword"],
        ),
        (
            {"apiKey": "", "token": " ", "secret": None, "maxTokens": "9", "max_output_tokens": "9", "sessionKey": "x"},
            [],
        ),
        ({"maxTokens": 9, "tokens": {"max": 9}, "keyboard": "x", "monkey": "x"}, ["monkey"]),
        ({"a": [{"b": {"clientSecret": "x"}}]}, ["a[0].b.clientSecret"]),
        ({"env": {"HOME": "x", "N": 1}, "headers": {"X": "x"}}, ["env.HOME", "headers.X"]),
        ({"token": {"source": "env", "provider": "p", "id": "X"}}, ["token"]),
        ({"token": {"other": 1}}, []),
        ([], []),
        (None, []),
    ],
)
def test_keys_of_a_config(config: Any, keys: list[str]) -> None:
    assert secrets.keys(config) == keys


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("A=1\nexport B_2 = x\n# C=1\nlower=1\n D='x'\n", ["A", "B_2", "D"]),
        ("A=\nB=''\nC==\n", []),
        ('PEM="-----BEGIN\nMIIKEYNAME=x\nEND"\nA=1', ["PEM", "A"]),
        ("PEM='-----BEGIN\nMIIKEYNAME=x\n", ["PEM"]),
        ("A=x # it's\nB=1", ["A", "B"]),
        ("no line", []),
    ],
)
def test_names_of_an_environment(tmp_path: Path, text: str, names: list[str]) -> None:
    place = Place(files(tmp_path, {".env": text}), "nanoclaw")
    secrets.env(place, ".env")
    assert place.brought.keys == [f"{name} (.env)" for name in names]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in (".env", ".env.local", "prod.env.json", "x.pem", "id_ed25519", "credentials.json")),
        *(
            (name, True)
            for name in ("token.json", "oauth.json", "auth-profiles.json", "client_secret_1.json", ".netrc")
        ),
        *(
            (name, False)
            for name in ("tokens.py", "keyboard.md", "environment.md", "auth.py", "config.json", "SKILL.md")
        ),
    ],
)
def test_files_for_keys(name: str, is_one: bool) -> None:
    assert bool(secrets.CREDENTIAL.match(name)) is is_one


def test_who_was_allowed() -> None:
    config = {
        "a": {"allowFrom": [1, "x\n"], "dmPolicy": "open"},
        "b": {"group_allow_from": []},
        "c": {"allowFrom": "no"},
    }
    assert secrets.allowed(config) == ["a.allowFrom: 1, x\\n", "a.dmPolicy is open", "b.group_allow_from: nobody"]
    assert secrets.allowed({"allowFrom": list(range(60))})[0].endswith(", 49 and 10 more")
