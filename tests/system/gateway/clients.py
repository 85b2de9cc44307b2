"""Ordinary clients as they come, with nothing but the environment that a sandbox's commands have: `clients.py`. Prints
a line of JSON: what each was answered, by its name."""

import json
import os
import subprocess
import sys
import tempfile
from functools import partial

sys.path.insert(0, "/group/inbox/packages")
SAID = {}
ANTHROPIC, OPENAI, FORGE = (os.environ.get(f"{name}_BASE_URL", "") for name in ("ANTHROPIC", "OPENAI", "FORGE"))


def run(name, *command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100)
    SAID[name] = done.stdout.decode("utf-8", "replace").strip() or f"code {done.returncode}"


def said(name, call):
    try:
        SAID[name] = call()
    except Exception as error:
        SAID[name] = f"{type(error).__name__}: {error}"


def curl():
    key = ("-H", f"x-api-key: {os.environ['ANTHROPIC_API_KEY']}", "-H", "X-Case: curl", "-d", '{"model": "m"}')
    run("curl by base URL", "curl", "-sS", *key, f"{ANTHROPIC}/v1/messages")
    run("curl by proxy", "curl", "-sS", *key, "https://api.anthropic.com/v1/messages")
    run("curl, plain http", "curl", "-sS", "-H", "X-Case: curl", "http://plain.example.org/x")
    run("curl, not granted", "curl", "-sS", "-w", " %{http_connect}", "https://openrouter.ai/api/v1/models")
    run("curl, not granted by base URL", "curl", "-sS", ANTHROPIC.replace("anthropic", "openrouter") + "/v1/models")
    run("curl without a token", "curl", "-sS", "http://127.0.0.1:8080/svc/anthropic/v1/messages")


def git():
    with tempfile.TemporaryDirectory(dir="/group/work") as at:
        urls = {"proxy": "https://github.com", "base URL": FORGE, "proxy, not granted": "https://evil.example.net"}
        for name, url in urls.items():
            where = f"{at}/{name.replace(' ', '')}"
            run(f"git by {name}", "git", "clone", "-q", f"{url}/o/r.git", where)
            if os.path.exists(f"{where}/README"):
                with open(f"{where}/README") as file:
                    SAID[f"git by {name}"] = file.read()


def with_requests():
    import requests

    key = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "X-Case": "requests"}
    body = {"model": "m", "messages": []}

    def post(base):
        return requests.post(f"{base}/chat/completions", headers=key, json=body, timeout=100).json()["id"]

    said("requests by base URL", lambda: post(OPENAI))
    said("requests by proxy", lambda: post("https://api.openai.com/v1"))
    said("requests, not granted", lambda: post(OPENAI.replace("openai", "openrouter")))


def sdks():
    import anthropic
    import openai

    asked = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    options = {"timeout": 100, "max_retries": 0}

    def anthropic_text(client):
        return client.messages.create(**asked, max_tokens=9).content[0].text

    def anthropic_stream(client):
        with client.messages.stream(**asked, max_tokens=9) as events:
            return "".join(events.text_stream)

    def openai_text(client):
        return client.chat.completions.create(**asked).choices[0].message.content

    def openai_stream(client):
        chunks = client.chat.completions.create(**asked, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    for way, base in (("base URL", None), ("proxy", "https://api.anthropic.com")):
        with anthropic.Anthropic(base_url=base, **options) as client:
            said(f"anthropic by {way}", partial(anthropic_text, client))
            said(f"anthropic by {way}, streaming", partial(anthropic_stream, client))
    with anthropic.Anthropic(base_url=ANTHROPIC.replace("anthropic", "openrouter"), timeout=100) as client:
        said("anthropic, not granted", partial(anthropic_text, client))
    for way, base in (("base URL", None), ("proxy", "https://api.openai.com/v1")):
        with openai.OpenAI(base_url=base, **options) as client:
            said(f"openai by {way}", partial(openai_text, client))
            said(f"openai by {way}, streaming", partial(openai_stream, client))


curl()
git()
with_requests()
sdks()
print(json.dumps(SAID))
