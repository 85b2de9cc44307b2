from collections.abc import Iterator

import pytest

from tests.blocking import Guard

pytest_plugins = ["tests.engine", "tests.sharing"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def unblocked(request: pytest.FixtureRequest) -> Iterator[None]:
    """No callback blocks an event loop of this process for more than 50 ms."""
    found: list[str] = []
    guard = Guard(found.append, lenient=True).install()
    yield
    guard.remove()
    assert not found or request.node.get_closest_marker("expects_block"), "\n".join(found)
