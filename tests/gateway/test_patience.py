"""What the gateway answers to who keeps it waiting."""

from __future__ import annotations

import pytest

from clawd.host.connection import Patience

from . import conftest
from .conftest import Stage
from .upstream import Upstream, echo

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("length", [10, 1_000_000])
async def test_a_body_that_comes_to_a_halt_is_too_slow(
    stage: Stage, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(conftest, "Patience", lambda: Patience(body=0.2))
    stage.serves("shop", f'base_url = "{upstream.url}"\nallow_private = true')
    upstream.script = echo()
    client = await stage.dial()
    head = stage.request("/svc/shop/v1", "Content-Type: text/plain", method="POST", body=b"x" * length)[:-length]
    await client.send(head + b"xxxxx")
    answer = await client.answer()
    assert (answer.status, answer.rule) == (408, "too_slow")
    assert await client.read() == b""
    entry = await stage.entry()
    assert (entry["status"], entry["rule"], entry["bytes_in"]) == (408, "too_slow", 5)
    assert not any(request.complete for request in upstream.requests)
