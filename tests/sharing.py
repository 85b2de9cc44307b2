"""`make test` is two processes (pytest-xdist) that take file after file of tests. What there is only once, the Engine
that is stopped and killed and the clone, is of one of them alone: the files that use it are one, and go first, for they
take longest. So are those of sandboxes: their runs have the same names, and a sweep ends a run whoever it is of."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from tests.dockerd import ROOT

ONCE = re.compile(r"\b(dockerd: Dockerd|clone: Clone)\b")


@cache
def scope(file: str) -> str:
    """What a process takes as one: a file, or all those that use what there is only once."""
    if file.startswith("tests/sandbox/"):
        return "sandbox"
    return "once" if ONCE.search((ROOT / file).read_text()) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid.partition("::")[0])

        def _assign_work_unit(self, node: Any) -> None:
            if "once" in self.workqueue:
                self.workqueue.move_to_end("once", last=False)
            super()._assign_work_unit(node)

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Any:
    """What a test logged may be no text that can be sent from process to process."""
    return _sendable((yield))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(each) for key, each in value.items()}
    return [_sendable(each) for each in value] if isinstance(value, (list, tuple)) else value
