"""A daemon whose world outside is the tests': upstreams that record every byte, under real names, behind a CA of ours;
and the canary as the key of every service that has one. What is printed by any command is kept for the hunt."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.canary import CANARY, Hunt
from tests.dockerd import client
from tests.engine import Engine
from tests.gateway.upstream import Authority, Recorded, Upstream
from tests.system.conftest import ROOT
from tests.system.ground import Ground
from tests.system.world import VARIABLE, World

NAMES = (
    *("api.anthropic.com", "api.openai.com", "api.github.com", "github.com", "openrouter.ai"),
    *("tool.example.org", "limits.example.org", "rates.example.org", "turns.example.org", "keyless.example.org"),
    *("lines.example.org", "ws.example.org", "one.example.com", "two.one.example.com", "example.com"),
    *("badexample.com", "rebind.example.org", "mixed.example.org", "private.example.org"),
)
BROKEN = ("wrong.example.org", "expired.example.org", "old.example.org", "unknown.example.org")
GRANTS = (
    *("anthropic", "openai", "github", "tool", "limits", "rates", "turns", "keyless", "lines", "ws", "wild"),
    *("rebind", "local", "plain", "query", "broken"),
)


class Outside(Ground):
    """`tls` answers for every good name, `http` for plain.example.org and on loopback, `evil` for names that nobody
    granted; `broken` are upstreams with a certificate that is not to be trusted."""

    def __init__(self, root: Path, engine: Engine | None) -> None:
        self.printed: list[str] = []
        self.authority, other = Authority(), Authority()
        self.tls = Upstream(tls=self.authority.context(*NAMES))
        self.http, self.evil = Upstream(), Upstream()
        self.broken = {
            "wrong.example.org": Upstream(tls=self.authority.context("right.example.org")),
            "expired.example.org": Upstream(tls=self.authority.context("expired.example.org", expired=True)),
            "old.example.org": Upstream(
                tls=self.authority.context(
                    "old.example.org", oldest=ssl.TLSVersion.TLSv1, newest=ssl.TLSVersion.TLSv1_1
                )
            ),
            "unknown.example.org": Upstream(tls=other.context("unknown.example.org")),
        }
        self.upstreams = [self.tls, self.http, self.evil, *self.broken.values()]
        super().__init__(root, engine=engine)
        self.world = World(root)
        for name in NAMES:
            self.world.host(name, self.tls.port)
        for name, upstream in self.broken.items():
            self.world.host(name, upstream.port)
        self.world.host("plain.example.org", self.http.port, at=80)
        for name in ("evil.example.net", "evil-api.anthropic.com.example.net", "xapi.anthropic.com", "openai.com"):
            address = self.world.host(name, self.evil.port)
            self.world.road(address, 80, self.evil.port)
        self.world.save()
        self.more = {VARIABLE: str(self.world.path)}
        self.key = root / "key"
        self.key.write_text(f"{CANARY}\n")
        (root / "lines").write_text(f"{CANARY}\r\nX-More: of it\n")

    def config(self) -> str:
        """`[services]`, each with the canary as its key where it has one."""
        key, ca = f'credential = "${{file:{self.key}}}"', f'ca = "{self.authority.pem}"'
        broken = ", ".join(f'"{name}"' for name in BROKEN)
        return f"""
[services.anthropic]
{key}
{ca}
[services.openai]
{key}
{ca}
[services.openrouter]
{key}
{ca}
[services.github]
{key}
{ca}
[services.tool]
base_url = "https://tool.example.org/base"
methods = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]
paths = ["/v1/*", "/only", "/oauth"]
{key}
{ca}
[services.query]
base_url = "https://tool.example.org/query"
inject = {{query = "key"}}
{key}
{ca}
[services.limits]
base_url = "https://limits.example.org"
limits = {{request_bytes = 1000, response_bytes = 100000}}
{key}
{ca}
[services.rates]
base_url = "https://rates.example.org"
limits = {{requests_per_minute = 3}}
{ca}
[services.turns]
base_url = "https://turns.example.org"
limits = {{requests_per_turn = 3}}
{ca}
[services.keyless]
base_url = "https://keyless.example.org"
credential = "${{file:{self.key.with_name("missing")}}}"
{ca}
[services.lines]
base_url = "https://lines.example.org"
credential = "${{file:{self.key.with_name("lines")}}}"
{ca}
[services.ws]
base_url = "https://ws.example.org"
websocket = true
{key}
{ca}
[services.wild]
hosts = ["*.example.com"]
{ca}
[services.rebind]
hosts = ["rebind.example.org", "mixed.example.org", "private.example.org"]
{ca}
[services.local]
base_url = "{self.http.url}"
allow_private = true
inject = {{header = "X-Local-Key"}}
{key}
[services.plain]
hosts = ["plain.example.org"]
[services.broken]
hosts = [{broken}]
{key}
{ca}
[services.any]
hosts = ["*"]
"""

    def grant(self, group: str, *grants: str, more: str = "") -> None:
        """Write a group's group.toml: names, or TOML tables."""
        items = ", ".join(each if each.startswith("{") else f'"{each}"' for each in grants)
        self.write(f"groups/{group}/group.toml", f"schema = 1\ngrants = [{items}]\n{more}\n")

    def cli(self, *words: str, **named: Any) -> subprocess.CompletedProcess[str]:
        done = super().cli(*words, **named)
        self.printed += [done.stdout, done.stderr]
        return done

    def audit(self, group: str) -> list[dict[str, Any]]:
        return list(self.json("gateway", "audit", "--group", group))

    def arrived(self, case: str) -> list[Recorded]:
        """The requests that upstreams received with this name in X-Case."""
        requests = [request for upstream in self.upstreams for request in upstream.requests]
        return [request for request in requests if request.values("x-case") == [case]]

    def hunt(self) -> Hunt:
        """Look for the canary in everything that this home has, is and said."""
        base = self.root.parent
        hunt = Hunt([self.key, self.key.with_name("lines")])
        hunt.tree(base)
        hunt.cores(Path.cwd(), ROOT, self.root, base)
        assert self.daemon is not None
        hunt.processes([self.daemon.pid, *self.sandboxed()])
        for n, text in enumerate(self.printed):
            hunt.data(f"what command {n} printed", text.encode())
        if self.engine is not None:
            with contextlib.closing(client(self.engine.host)) as docker:
                for container in self.containers():
                    hunt.data(f"docker inspect {container.id}", json.dumps(container.attrs).encode())
                    hunt.data(f"the log of {container.id}", container.logs())
                    docker.api.top(container.id)
        return hunt

    def close(self) -> None:
        for upstream in self.upstreams:
            upstream.close()


@contextlib.contextmanager
def outside(engine: Engine | None) -> Iterator[Outside]:
    """A home in this world, ended and removed with the block; no daemon yet."""
    with tempfile.TemporaryDirectory(prefix="cl", ignore_cleanup_errors=True) as name:
        made = Outside(Path(name), engine)
        try:
            yield made
        finally:
            made.end()
            made.close()
            blocked = made.blocked()
    assert not blocked, "\n".join(blocked)


def begun(made: Outside) -> Outside:
    """Its daemon, and the groups `main` with every grant but `any`, `bare` with none, and `other` with a few."""
    made.configure(sandbox="warm_minutes = 60\nmax_live = 6", more=made.config())
    made.start()
    for group, grants in (("main", GRANTS), ("bare", ()), ("other", ("anthropic", "any"))):
        made.json("groups", "add", group)
        made.grant(group, *grants)
    return made
