"""`make test` is two processes (pytest-xdist) that take the files of tests one after the other. What there is once
only, the Engine that is stopped and killed, and the clone, one of them has for all its tests: those files are a group,
which goes first, for it takes longest."""

from __future__ import annotations

import pytest

ONCE = ("dockerd", "clone")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    uses: dict[str, str] = {}
    for item in items:
        for name in ONCE:
            if name in getattr(item, "fixturenames", ()):
                uses.setdefault(str(item.path), name)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(uses.get(str(item.path), str(item.path.relative_to(config.rootpath)))))
    items.sort(key=lambda item: ONCE.index(uses[at]) if (at := str(item.path)) in uses else len(ONCE))
