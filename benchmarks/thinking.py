"""Turns with a model: what they add to a model that answers at once, and what they send to it; beside nanobot's own
server, if NANOBOT names its program (`pip install nanobot-ai` into an environment of its own).

The model is the tests' stand-in, in a process of its own, so that nobody shares its thread with it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.daemon import daemon, home
from benchmarks.figures import Figure, figure
from benchmarks.turn import FOUR, backends, crowd_of, series_of
from clawd.config.home import Home

TIMES = 100
_SERVE = """
import os, sys, threading
from tests.standin import Reply, Standin
def note(request):
    if not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").write(str(len(request.raw)))
    return Reply("ok")
model = Standin()
model.decide = note
print(model.port, flush=True)
threading.Event().wait()
"""
_DIALECTS = {
    "messages": ("/v1/messages", {"max_tokens": 64}),
    "chat": ("/v1/chat/completions", {"stream_options": {"include_usage": True}}),
}


def thinking() -> Iterator[Figure]:
    """Alone: the model itself; one warm turn after another; twenty sessions over four groups. Then nanobot."""
    with _model() as (port, seen):
        for dialect, (path, more) in _DIALECTS.items():
            bare = figure(f"the stand-in alone, {dialect}", _bare(port, path, more), "ms")
            yield bare
            for backend in backends():
                with _home(["main"], dialect, port, backend) as made, daemon(made):
                    seen.unlink(missing_ok=True)  # what was measured bare
                    warm = asyncio.run(series_of(made, TIMES))
                added = [each - bare.p50 for each in warm]
                yield figure(f"warm turn with a model, less the model, {dialect}, {backend}", added, "ms", goal=5)
                yield figure(f"sent to the model by a hello, {dialect}, {backend}", [_first(seen)], "bytes", goal=8192)
        for backend in backends():
            with _home(FOUR, "messages", port, backend) as made, daemon(made):
                alone, together = asyncio.run(crowd_of(made, FOUR, 10))
            one = figure(f"one session with a model, {backend}", alone, "ms")
            many = figure(f"twenty sessions with a model over four groups, {backend}", together, "ms")
            yield from (one, many)
            yield figure(f"ratio of these p50s, {backend}", [many.p50 / one.p50], "x", goal=2)
        if program := os.environ.get("NANOBOT"):
            with _nanobot(program, port) as server:
                seen.unlink(missing_ok=True)
                taken = _bare(server, "/v1/chat/completions", {}, stream=False)
                yield figure("nanobot: sent to the model by a hello", [_first(seen)], "bytes")
                bare = figure("the stand-in alone, chat", _bare(port, *_DIALECTS["chat"]), "ms")
                yield figure("nanobot: a turn less the model", [each - bare.p50 for each in taken], "ms")
        else:
            print("nanobot is not measured: NANOBOT does not name its program", file=sys.stderr)


def _first(seen: Path) -> float:
    """The size of the first request since this was asked last."""
    try:
        return float(seen.read_text())
    finally:
        seen.unlink()


@contextmanager
def _model() -> Iterator[tuple[int, Path]]:
    """The stand-in's port, and a file for the size of a body that it is sent."""
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as directory:
        seen = Path(directory) / "seen"
        process = subprocess.Popen([sys.executable, "-c", _SERVE, str(seen)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), seen
        finally:
            process.kill()
            process.wait(10)


@contextmanager
def _home(names: list[str], dialect: str, port: int, backend: str) -> Iterator[Home]:
    with home(names, backend=backend) as made:
        key = made.root / "key"
        key.write_text("the-key-of-the-stand-in")
        key.chmod(0o600)
        made.config_file.write_text(
            f'schema = 1\n[model]\nengine = "{dialect}"\nservice = "standin"\nmodel = "standin-1"\n'
            f'[services.standin]\nbase_url = "http://127.0.0.1:{port}"\nallow_private = true\n'
            f'credential = "${{file:{key}}}"\ninject = {{ bearer = true }}\n'
            '[prices."standin-1"]\ninput = 3\noutput = 15\n'
            f'[sandbox]\nbackend = "{backend}"\nkeep = false\n'
        )
        for name in names:
            made.group(name).config_file.write_text('schema = 1\ngrants = ["standin"]\n')
        yield made


def _bare(port: int, path: str, more: dict[str, Any], *, stream: bool = True) -> list[float]:
    """What one request after another takes on a kept connection, in ms."""
    connection, taken = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
    said = [{"role": "user", "content": "hello"}]
    body = json.dumps({"model": "standin-1", "messages": said, "stream": stream, **more})
    for _ in range(TIMES + 10):
        began = time.perf_counter()
        connection.request("POST", path, body, {"content-type": "application/json", "anthropic-version": "2023-06-01"})
        response = connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {text[:200]!r}")
        taken.append((time.perf_counter() - began) * 1000)
    return taken[10:]


@contextmanager
def _nanobot(program: str, port: int) -> Iterator[int]:
    """nanobot's OpenAI-compatible server over the stand-in, as its own set-up makes it."""
    with tempfile.TemporaryDirectory(prefix="nanobot-bench-") as directory:
        environment = {**os.environ, "HOME": directory}
        subprocess.run(
            [program, "onboard"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=120,
        )
        file = Path(directory) / ".nanobot" / "config.json"
        config = json.loads(file.read_text())
        config["agents"]["defaults"] |= {"model": "standin-1", "provider": "custom"}
        config["providers"]["custom"] |= {"apiKey": "key", "apiBase": f"http://127.0.0.1:{port}/v1"}
        file.write_text(json.dumps(config))
        listens = config["api"]["port"]
        process = subprocess.Popen(
            [program, "serve"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _await(listens, process)
            yield listens
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.connect()
            connection.close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("nanobot's server did not come up") from None
            time.sleep(0.1)
