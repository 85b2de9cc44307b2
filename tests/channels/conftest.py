from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def until(what: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Once it is true; gives it."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, f"not in {seconds:g} s"
        await anyio.sleep(0.01)
    return found
