from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from clawd.config.home import Home
from tests.cli.conftest import Cli


def test_exec_passes_streams_and_code_and_starts_a_daemon_where_none_runs(home: Home, cli: Cli) -> None:
    done = cli("sandbox", "exec", "--", "sh", "-c", "cat; echo err >&2; exit 9", text="in")
    assert (done.returncode, done.stdout, done.stderr) == (9, "in", "err\n")
    assert (home.state / "ended").exists()
    assert cli("sandbox", "exec").returncode == 125


def test_what_changes_goes_through_the_daemon(cli: Cli, daemon: Callable[..., Any]) -> None:
    daemon()
    assert json.loads(cli("messages", "retry", "3", "--json").stdout) == {"id": 3, "state": "received"}
    assert cli("sandbox", "list", "--json").stdout == "[]\n"
    assert cli("sandbox", "stop", "main").returncode == 2
