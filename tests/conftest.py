import pytest

pytest_plugins = ["tests.engine"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
