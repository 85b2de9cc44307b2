"""What the gateway answers to who keeps it waiting."""

from __future__ import annotations

import time

import pytest

from clawd.config.secrets import Secret
from clawd.gateway import credentials
from clawd.host.connection import Patience

from . import conftest
from .conftest import Stage
from .upstream import Upstream, echo

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("length", [10, 1_000_000])
async def test_a_body_that_comes_to_a_halt_is_too_slow(
    stage: Stage, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, length: int, busy: bool
) -> None:
    """Even if that is over before the gateway gets to it."""

    def read(secret: Secret) -> tuple[str, bool]:
        time.sleep(1 if busy else 0)  # five times its patience
        return "a-secret-of-the-shop", False

    monkeypatch.setattr(credentials, "_read", read)
    monkeypatch.setattr(conftest, "Patience", lambda: Patience(body=0.2))
    key = 'credential = "${file:/a/key}"'
    stage.serves("shop", f'base_url = "{upstream.url}"\nallow_private = true\n{key}')
    upstream.script = echo()
    client = await stage.dial()
    head = stage.request("/svc/shop/v1", "Content-Type: text/plain", method="POST", body=b"x" * length)[:-length]
    await client.send(head + b"xxxxx")
    answer = await client.answer()
    assert (answer.status, answer.rule) == (408, "too_slow")
    assert await client.read() == b""
    entry = await stage.entry()
    assert (entry["status"], entry["rule"]) == (408, "too_slow")
    assert not any(request.complete for request in upstream.requests)
