from collections.abc import Iterator
from typing import Any

import pytest

from tests.blocking import Guard

pytest_plugins = ["tests.engine"]


# `make test` shares the files out between two processes, each file whole: its tests share daemons, sandboxes and
# upstreams. Files that share more than that are shared out together. What takes long comes first, so that what comes
# last is short and neither process waits for the other.
TOGETHER = {
    "the Engine that is killed": ("system/test_soak", "system/test_engine_trouble", "system/test_adoption"),
    "the clone": ("system/test_first_run", "system/test_wheel"),
    "the other user": ("system/test_isolation", "sandbox/test_another_user"),
}
GROUPS = {f"tests/{file}.py": group for group, files in TOGETHER.items() for file in files}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return GROUPS.get(file, file)

    return Together(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # of a process beside another
        firsts = [*GROUPS]
        files = [item.nodeid.partition("::")[0] for item in items]
        ranks = {
            file: firsts.index(file) if file in firsts else len(firsts) + ("/system/" not in file) for file in files
        }
        items.sort(key=lambda item: ranks[item.nodeid.partition("::")[0]])


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[Any]:
    """What a test printed or logged may hold what cannot go from one process to the other as it is."""
    return sendable((yield))


def sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: sendable(each) for key, each in value.items()}
    return type(value)(map(sendable, value)) if isinstance(value, list | tuple) else value


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
