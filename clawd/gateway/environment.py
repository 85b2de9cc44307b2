"""What the commands of a sandbox find in their environment, so that ordinary clients use the gateway unmodified.

All of it is good inside this sandbox alone: the only secret is the run's token, in the shapes that clients expect.
"""

from __future__ import annotations

from clawd.config.presets import versioned
from clawd.gateway.policy import Grants

GATEWAY = "127.0.0.1:8080"
BUNDLE = "/run/clawd/ca.pem"
# wget reads no variable but the one that names this file, and would wait for a 401 before it says who it is.
WGETRC = f"ca_certificate = {BUNDLE}\nauth_no_challenge = on\n"
TOKEN = "{token}"

_ROAD = f"http://claw:{TOKEN}@{GATEWAY}"
# What each client that reads no other one reads.
_CERTIFICATES = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "npm_config_cafile",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
)
_KEYS = {
    "anthropic": {"ANTHROPIC_API_KEY": f"sk-ant-api03-{TOKEN}", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    "openai": {"OPENAI_API_KEY": f"sk-proj-{TOKEN}"},
    "openrouter": {"OPENROUTER_API_KEY": f"sk-or-v1-{TOKEN}"},
    "github": {"GH_TOKEN": f"ghp_{TOKEN}", "GITHUB_TOKEN": f"ghp_{TOKEN}"},
    "ollama": {"OLLAMA_HOST": f"{_ROAD}/svc/ollama", "OLLAMA_API_KEY": TOKEN},
}
# Their clients want it in the address, once.
_SUFFIX = {"openai": "/v1", "openrouter": "/v1"}


def environment(grants: Grants) -> dict[str, str]:
    """Variables for the children of a run's runner; `{token}` in a value stands for the run's token. None where nothing
    is granted."""
    if not grants.granted:
        return {}
    variables = {
        "NO_PROXY": "127.0.0.1,localhost",
        "NODE_USE_ENV_PROXY": "1",
        "GIT_HTTP_PROXY_AUTHMETHOD": "basic",  # git would wait for a 407 first
        "GIT_TERMINAL_PROMPT": "0",
        # git sends what an address says of its user only after a 401, which the gateway never answers
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.http://{GATEWAY}/.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: Bearer {TOKEN}",
        "WGETRC": "/run/clawd/wgetrc",
        "HTTP_PROXY": _ROAD,
        "HTTPS_PROXY": _ROAD,
    }
    variables |= {name.lower(): variables[name] for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")}
    variables |= dict.fromkeys(_CERTIFICATES, BUNDLE)
    for name, service in grants.granted.items():
        word = name.upper().replace("-", "_")
        if service.base is not None:
            suffix = "" if versioned(service.base[3]) else _SUFFIX.get(name, "")
            variables[f"{word}_BASE_URL"] = f"{_ROAD}/svc/{name}{suffix}"
            variables |= _KEYS.get(name, {f"{word}_API_KEY": TOKEN})
        elif service.inject is not None:
            variables[f"{word}_API_KEY"] = TOKEN
    return variables
