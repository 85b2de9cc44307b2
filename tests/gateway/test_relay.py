"""A request and its answer on their way, as bytes: what reaches the upstream, and what comes back."""

from __future__ import annotations

import json

import pytest

from .conftest import CANARY, Stage
from .upstream import Upstream, echo

pytestmark = pytest.mark.anyio


def keyed(upstream: Upstream, more: str = "") -> str:
    return f'base_url = "{upstream.url}/base"\nallow_private = true\ncredential = "${{env:CANARY}}"\n{more}'


async def test_the_credential_is_exchanged_for_the_token(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", keyed(upstream, 'inject = {header = "x-api-key"}'))
    upstream.script = echo()
    got = await stage.ask("/svc/shop/v1/a?b=%7e&c=d+e", method="POST", body=b'{"x": 1}')
    assert got.status == 200
    [request] = upstream.requests
    assert request.target == "/base/v1/a?b=%7e&c=d+e" and request.body == b'{"x": 1}'
    assert request.values("x-api-key") == [CANARY] and request.values("authorization") == []
    assert request.values("host") == [f"127.0.0.1:{upstream.port}"]
    assert request.values("accept-encoding") == ["identity"] and request.values("content-length") == ["8"]
    assert stage.a.token.encode() not in upstream.received
    assert CANARY.encode() not in got.raw and "[redacted]" in json.loads(got.body)["headers"][-2][1]
    assert stage.a.taints == [0.2]
    entry = await stage.entry()
    assert entry["credential"] == "${env:CANARY}" and entry["path"] == "/base/v1/a" and entry["verdict"] == "allow"
    assert (entry["bytes_in"], entry["bytes_out"], entry["status"]) == (8, len(got.body), 200)
