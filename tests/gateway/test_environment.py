"""The environment of a sandbox: only what is granted, and what real clients make of it."""

import base64
import os
import socket
import subprocess
import threading
from collections.abc import Callable

import pytest

from clawd.gateway.environment import environment
from tests.gateway.granting import granting

TOKEN = "claw-" + "t" * 43
ALL = granting(
    'grants = ["anthropic", "openai", "openrouter", "ollama", "github", "web", "my-api"]',
    '[services.web]\nhosts = ["*"]\n[services.my-api]\nbase_url = "https://api.example.org"',
)


def test_nothing_granted_is_nothing_set() -> None:
    assert environment(granting("")) == {}


def test_only_what_is_granted_is_set() -> None:
    found = environment(granting('grants = ["web"]', '[services.web]\nhosts = ["example.org"]'))
    assert found["HTTPS_PROXY"] == found["https_proxy"] == "http://claw:{token}@127.0.0.1:8080"
    assert found["GIT_CONFIG_VALUE_0"] == "Authorization: Bearer {token}" and "8080/." in found["GIT_CONFIG_KEY_0"]
    assert found["SSL_CERT_FILE"] == found["CURL_CA_BUNDLE"] == "/run/clawd/ca.pem"
    assert found["WGETRC"] == "/run/clawd/wgetrc"
    assert not [name for name in found if name.endswith(("_BASE_URL", "_KEY", "_TOKEN")) or "OLLAMA" in name]
    github = environment(granting('grants = ["github"]'))
    assert github["GH_TOKEN"] == github["GITHUB_TOKEN"] == "ghp_{token}" and "ANTHROPIC_API_KEY" not in github


def test_every_service_has_its_address_and_its_placeholder() -> None:
    found = environment(ALL)
    for name, path in (("ANTHROPIC", "anthropic"), ("OPENAI", "openai/v1"), ("MY_API", "my-api"), ("GITHUB", "github")):
        assert found[f"{name}_BASE_URL"] == f"http://claw:{{token}}@127.0.0.1:8080/svc/{path}"
    own = granting('grants = ["openai"]', '[services.openai]\nbase_url = "https://api.example.org/v1"')
    assert environment(own)["OPENAI_BASE_URL"].endswith("/svc/openai")  # the version is in the service's own address
    assert found["MY_API_API_KEY"] == found["OLLAMA_API_KEY"] == "{token}"
    assert found["ANTHROPIC_API_KEY"] == "sk-ant-api03-{token}" and found["OPENAI_API_KEY"] == "sk-proj-{token}"
    assert found["OPENROUTER_API_KEY"] == "sk-or-v1-{token}" and found["OLLAMA_HOST"].endswith("/svc/ollama")


class Listener:
    """Takes connections, keeps the head of each request, and answers 403."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.heads: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(60)
                head = b""
                while b"\r\n\r\n" not in head and (read := connection.recv(65_536)):
                    head += read
                self.heads.append(head.decode("latin-1"))
                connection.sendall(b"HTTP/1.1 403 no\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def close(self) -> None:
        self._socket.close()


def told(variables: dict[str, str], address: str) -> dict[str, str]:
    return {name: it.replace("{token}", TOKEN).replace("127.0.0.1:8080", address) for name, it in variables.items()}


def anthropic(variables: dict[str, str]) -> None:
    from anthropic import Anthropic, PermissionDeniedError

    base, key = variables["ANTHROPIC_BASE_URL"], variables["ANTHROPIC_API_KEY"]
    with pytest.raises(PermissionDeniedError):
        Anthropic(base_url=base, api_key=key, max_retries=0).models.list()


def openai(variables: dict[str, str]) -> None:
    from openai import OpenAI, PermissionDeniedError

    base, key = variables["OPENAI_BASE_URL"], variables["OPENAI_API_KEY"]
    with pytest.raises(PermissionDeniedError):
        OpenAI(base_url=base, api_key=key, max_retries=0).models.list()


def git(variables: dict[str, str]) -> None:
    command = ["git", "ls-remote", "https://github.com/a/b"]
    subprocess.run(command, env={"PATH": os.environ["PATH"], **variables}, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("client", "line", "header"),
    [
        (anthropic, "GET /svc/anthropic/v1/models", "authorization"),
        (openai, "GET /svc/openai/v1/models", "authorization"),
        (git, "CONNECT github.com:443", "proxy-authorization"),
    ],
)
def test_real_clients_send_the_token_with_their_first_request(
    client: Callable[[dict[str, str]], None], line: str, header: str
) -> None:
    listener = Listener()
    try:
        client(told(environment(ALL), listener.address))
    finally:
        listener.close()
    (head,) = listener.heads
    assert head.startswith(line)
    sent = dict(field.lower().split(": ", 1) for field in head.split("\r\n")[1:] if field)
    token = base64.b64encode(f"claw:{TOKEN}".encode()).decode().lower()
    assert sent[header] == f"basic {token}"
