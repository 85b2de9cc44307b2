"""The hunt for the canary can fail: it finds what is planted, in each form."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

from tests.canary import CANARY, Hunt

SAID = {
    "plain": f"key={CANARY}.",
    "basic": base64.b64encode(f"x-access-token:{CANARY}".encode()).decode(),
    "somewhere in base64": base64.b64encode(f'{{"key": "{CANARY}", "and": "more"}}'.encode()).decode(),
    "hex": CANARY.encode().hex(),
    "url": urllib.parse.quote(CANARY, safe=""),
    "json": json.dumps({"key": CANARY}),
    "the end of it": CANARY[-32:],
}


@pytest.mark.parametrize("form", SAID)
def test_a_planted_canary_is_found(tmp_path: Path, form: str) -> None:
    (tmp_path / "own").write_text(CANARY)
    (tmp_path / "file").write_text("nothing")
    (tmp_path / "deep").mkdir()
    hunt = Hunt([tmp_path / "own"])
    hunt.tree(tmp_path)
    assert not hunt.found and hunt.looked == 3
    (tmp_path / "deep" / "file").write_text(f"and so {SAID[form]} on")
    hunt.tree(tmp_path)
    assert hunt.found == [str(tmp_path / "deep" / "file")]


def test_a_canary_in_a_process_a_name_or_a_core_is_found(tmp_path: Path) -> None:
    hunt = Hunt([])
    hunt.processes([os.getpid()])
    assert not hunt.found
    command = [sys.executable, "-c", "input('ready\\n')", CANARY]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={"KEY": CANARY}, **pipes) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        hunt.processes([process.pid])
        process.communicate(b"\n")
    assert hunt.found == [f"environ of {process.pid}", f"cmdline of {process.pid}"]
    (tmp_path / f"x{CANARY}").touch()
    (tmp_path / "core.1").write_text(CANARY)
    hunt.tree(tmp_path)
    hunt.cores(tmp_path)
    assert len(hunt.found) == 5
