"""Ordinary clients, unmodified, in a sandbox: by base URL and by the proxy, from a turn and beside the runner. They get
their answers; the upstream sees the real key, once, and nothing that a sandbox has."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.canary import CANARY
from tests.engine import Engine
from tests.gateway.upstream import Recorded, Script, Wire, answer, chunked
from tests.system.conftest import EACH
from tests.system.outside import GRANTS, Outside, outside

PROGRAM = Path(__file__).parent / "gateway" / "clients.py"
TOKEN = re.compile(rb"claw-[A-Za-z0-9_-]{43}")
JSON = [("Content-Type", "application/json")]
WELL = {
    **{f"curl by {way}": "anthropic" for way in ("base URL", "proxy")},
    "curl, plain http": "ok",
    **{f"git by {way}": "hello from the forge\n" for way in ("base URL", "proxy")},
    **{f"requests by {way}": "openai" for way in ("base URL", "proxy")},
    **{f"anthropic by {way}": "said" for way in ("base URL", "proxy")},
    **{f"anthropic by {way}, streaming": "said in pieces" for way in ("base URL", "proxy")},
    **{f"openai by {way}": "said" for way in ("base URL", "proxy")},
    **{f"openai by {way}, streaming": "said in pieces" for way in ("base URL", "proxy")},
}
REFUSED = {
    "curl, not granted": "403",
    "curl, not granted by base URL": '"rule":"not_granted"',
    "curl without a token": '"rule":"no_token"',
    "git by proxy, not granted": "403",
    "requests, not granted": "KeyError",
    "anthropic, not granted": "PermissionDeniedError",
}


def streamed(*events: tuple[str, object]) -> Script:
    """Server-sent events: (name, data), without a name where it is empty."""
    pieces = [
        (f"event: {name}\n" if name else "") + f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
        for name, data in events
    ]
    return chunked(*(piece.encode() for piece in pieces), headers=[("Content-Type", "text/event-stream")])


def messages(request: Recorded, wire: Wire) -> None:
    """As much of a Messages API as its client needs."""
    whole = {"id": "anthropic", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    usage = {"stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    if not json.loads(request.body).get("stream"):
        said = json.dumps({**whole, **usage, "content": [{"type": "text", "text": "said"}]})
        return answer(said.encode(), 200, JSON)(request, wire)
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    texts = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
        for text in ("said", " in", " pieces")
    ]
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}
    events = [
        {"type": "message_start", "message": {**whole, **usage, "content": [], "stop_reason": None}},
        *(start, *texts, {"type": "content_block_stop", "index": 0}, end, {"type": "message_stop"}),
    ]
    return streamed(*((str(event["type"]), event) for event in events))(request, wire)


def completions(request: Recorded, wire: Wire) -> None:
    """As much of a chat completions API."""
    whole = {"id": "openai", "created": 1, "model": "m"}
    if not json.loads(request.body).get("stream"):
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "said"}}
        said = json.dumps({**whole, "object": "chat.completion", "choices": [choice]})
        return answer(said.encode(), 200, JSON)(request, wire)
    chunks = [
        ("", {**whole, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]})
        for text in ("said", " in", " pieces")
    ]
    return streamed(*chunks, ("", "[DONE]"))(request, wire)


def forge(at: Path) -> Script:
    """A repository as plain files, which git clones over http too."""
    tree, bare = at / "tree", at / "o" / "r.git"
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    tree.mkdir()
    (tree / "README").write_text("hello from the forge\n")
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["commit", "-qm", "first"],
        ["clone", "-q", "--bare", ".", str(bare)],
    ):
        subprocess.run([*git, *command], cwd=tree, check=True, timeout=100)
    subprocess.run([*git, "update-server-info"], cwd=bare, check=True, timeout=100)

    def script(request: Recorded, wire: Wire) -> None:
        file = at / request.path.lstrip("/")
        if request.path.startswith("/o/r.git/") and file.is_file():
            answer(file.read_bytes(), 200, [("Content-Type", "text/plain")])(request, wire)
        else:
            answer(b"there is nothing here", 404)(request, wire)

    return script


def packages(at: Path, *names: str) -> None:
    """Copy installed distributions, with what they need, from where the tests have them."""
    copied, wanted = set[str](), list(names)
    while wanted:
        name = wanted.pop()
        if name in copied:
            continue
        copied.add(name)
        found = importlib.metadata.distribution(name)
        for text in found.requires or ():
            needs = Requirement(text)
            if needs.marker is None or needs.marker.evaluate({"extra": ""}):
                wanted.append(needs.name)
        for file in found.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (at / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(str(file.locate()), at / file)


@pytest.fixture(scope="module", params=EACH)
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    """A daemon whose group `main` may use what the clients ask for, and has them in its inbox."""
    engine = request.getfixturevalue("engine") if request.param == "docker" else None
    assert engine is None or isinstance(engine, Engine)
    with outside(engine) as made:
        made.tls.script = forge(tmp_path_factory.mktemp("forge"))
        made.tls.scripts |= {"/v1/messages": messages, "/v1/chat/completions": completions}
        key, ca = f'credential = "${{file:{made.key}}}"', f'ca = "{made.authority.pem}"'
        own = f'[services.forge]\nbase_url = "https://github.com"\ninject = {{basic = "x-access-token"}}\n{key}\n{ca}\n'
        made.configure(more=made.config() + own)
        made.start()
        made.json("groups", "add", "main")
        made.grant("main", "forge", *GRANTS)
        made.write("groups/main/inbox/clients.py", PROGRAM.read_text(), 0o644)
        shown = made.root / "groups/main/inbox/packages"
        packages(shown, "anthropic", "openai", "requests")
        version = made.inside("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        assert version == f"{sys.version_info[0]}.{sys.version_info[1]}", (
            f"the sandbox has Python {version}: run the tests with that one, whose packages they show to it"
        )
        yield made


@pytest.mark.parametrize("turn", [True, False], ids=["turn", "exec"])
def test_clients_work_unmodified(home: Outside, turn: bool) -> None:
    before = len(home.tls.requests) + len(home.http.requests)
    command = "python3 /group/inbox/clients.py"
    text = home.sh(command) if turn else home.inside("sh", "-c", command)
    said = json.loads(text.splitlines()[-1])
    told = {name: json.loads(end)["id"] if end.startswith("{") and name in WELL else end for name, end in said.items()}
    assert {name: told.get(name) for name in WELL} == WELL, said
    for name, part in REFUSED.items():
        assert part in said[name], (name, said[name])
    assert said.keys() == WELL.keys() | REFUSED.keys()

    requests = (home.tls.requests + home.http.requests)[before:]
    for request in home.tls.requests:
        assert keys(request) == 1, request.head
    assert len(requests) > len(WELL)
    for upstream in home.upstreams:
        assert not TOKEN.search(upstream.received) and b"sk-ant-api03" not in upstream.received
    assert home.evil.connections == []
    assert not home.hunt().found


def keys(request: Recorded) -> int:
    """How often the real key is in what arrived: as it is, or as HTTP Basic's password."""
    import base64

    basic = base64.b64encode(f"x-access-token:{CANARY}".encode())
    return request.head.count(CANARY.encode()) + request.head.count(basic) + request.body.count(CANARY.encode())
