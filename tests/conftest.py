import pytest

from tests.engine import engine  # noqa: F401


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
