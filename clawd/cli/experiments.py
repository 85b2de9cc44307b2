"""`clawd experiment memory`: the same scripted run on several memory backends, each in a temporary home of its own."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from clawd.cli.companion import companion
from clawd.cli.page import give, say, write_json
from clawd.cli.running import Account, Loop, Plan
from clawd.commands import experiments, scripts
from clawd.config.home import Home, require_home
from clawd.errors import ClawdError, UsageError
from clawd.memory.backends import BACKENDS

GOAL = "play the script to its end"
_COLUMNS = (
    *("backend", "completed", "steps", "peak", "cumulative", "compactions", "recall", "compaction_recall"),
    *("interventions", "wall_s", "note"),
)
_SET_BY_US = ("CLAWD_MEMORY__", "CLAWD_MODEL__", "CLAWD_HOME")
_MEANING = ("vector", "hybrid")
_LACKING = "not run: what turns words into meaning is not installed (pip install 'clawd[vector]')"


def memory(options: Namespace, home: Home) -> int:
    """1 when a run failed that could be made. What is not installed is said in the report."""
    backends = backends_of(options.backends)
    script = scripts.read(scripts.found(options.script))
    out = Path(options.out).absolute() if options.out else require_home(home).root / "exports"
    limits = {"soft": options.soft_compact, "hard": options.hard_handoff}
    soft, hard = limits.values()
    if soft is not None and hard is not None and soft >= hard:
        raise UsageError(f"--soft-compact {soft} must be below --hard-handoff {hard}")
    table, found, failed = _sandbox(home), dict[str, dict[str, Any]](), False
    for backend in backends:
        if backend in _MEANING and not _has_meaning():
            found[backend] = _nothing(_LACKING)
            say(f"{backend}: {_LACKING}")
            continue
        say(f"{backend}: {len(scripts.turns_of(script.steps))} steps of {script.path.name}")
        began = time.monotonic()
        with _home(backend, table) as apart:
            account = _played(apart, script, options.goal or GOAL, limits)
            row = _row(account, apart, script)
        failed = failed or account.failed is not None
        found[backend] = {**row, "wall_s": round(time.monotonic() - began, 2)} | _noted(backend, account)
    report = experiments.report(script.sha256, script.path.name, found)
    files = _written(out, report)
    if options.json:
        write_json(report)
    else:
        give(experiments.rows_of(report), False, _COLUMNS)
        say(f"the report: {', '.join(map(str, files))}")
    return int(failed)


def backends_of(said: str) -> list[str]:
    """`file,mem0` as a list, each once. Raises UsageError."""
    named = list(dict.fromkeys(each.strip() for each in said.split(",") if each.strip()))
    if wrong := [each for each in named if each not in BACKENDS]:
        raise UsageError(f"there is no memory backend {wrong[0]!a}", hint=f"there are {', '.join(BACKENDS)}")
    if not named:
        raise UsageError("--backends names none", hint=f"--backends {','.join(BACKENDS)}")
    return named


def _has_meaning() -> bool:
    from clawd.search import embedders

    try:
        return embedders.embedder() is not None
    except ClawdError:
        return False


def _sandbox(home: Home) -> list[str]:
    """The lines of `[sandbox]` that say where a sandbox comes from, as the person's own home has them."""
    from clawd.config.load import load_config

    if not home.config_file.exists():
        return []
    table = load_config(home, dict(os.environ)).sandbox
    given = {name: getattr(table, name) for name in ("backend", "image", "docker_host")}
    return [f"{name} = {_toml(value)}" for name, value in given.items() if value]


def _toml(value: object) -> str:
    from tomlkit import item

    return str(item(str(value)).as_string())


@contextmanager
def _home(backend: str, sandbox: list[str]) -> Iterator[Home]:
    """A home in which nothing ever happened; it goes with the block."""
    from clawd.config.begin import init_home

    with tempfile.TemporaryDirectory(prefix="clawd-x-", ignore_cleanup_errors=True) as directory:
        home = Home(Path(directory) / "h")
        init_home(home)
        lines = [
            "schema = 1\n[model]\nengine = 'scripted'\n[sandbox]", *sandbox,
            f"[memory]\nbackend = '{backend}'\nmem0 = 'in-memory'",
        ]  # fmt: skip
        home.config_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        home.config_file.chmod(0o600)
        yield home


def _played(home: Home, script: scripts.Script, goal: str, limits: Mapping[str, int | None]) -> Account:
    """The script, played to its end. Raises ClawdError where nothing of it can be played here."""
    session = f"experiment-{experiments.seed_of(script.sha256)}"
    begin = {"session": session, "goal": goal, "group": "main", "resume": False, "script": str(script.path), **limits}
    environment = {key: value for key, value in os.environ.items() if not key.startswith(_SET_BY_US)}
    with companion(home, say, environment) as beside:
        account = asyncio.run(Loop(home, beside, Plan(begin, most=script.turns, yes=True), say).play())
    if account.failed is not None and not account.stands["step_index"]:
        raise ClawdError(account.failed, hint="clawd doctor")  # no sandbox: it is so for every backend
    return account


def _row(account: Account, home: Home, script: scripts.Script) -> dict[str, Any]:
    stands = account.stands
    played = account.reason == "handoff" and stands["step_index"] >= (script.turns or 0)  # handed over behind its last
    recalls = account.recalls
    return {
        "completed": account.reason == "completed" or played,
        "steps": stands["step_index"],
        "tokens": {"peak": account.peak, "cumulative": stands["tokens"]["cumulative"]},
        "compactions": stands["compact_count"],
        "recall": _recall(home, script),
        "compaction_recall": round(sum(recalls) / len(recalls), 4) if recalls else None,
        "interventions": (account.reason == "handoff") + account.asked + (account.failed is not None),
    }


def _recall(home: Home, script: scripts.Script) -> float | None:
    """By the memory as the run left it."""
    from clawd.commands.memory import opened
    from clawd.memory.store import OWNER

    facts = experiments.facts_of(script.steps)
    with closing(opened(home, "main")) as memory:
        return experiments.recall(
            facts, lambda query: [hit.text for hit in memory.find(query, OWNER, k=experiments.K)[0]]
        )


def _noted(backend: str, account: Account) -> dict[str, str]:
    notes = ["mem0 (in-memory client)"] if backend == "mem0" else []
    notes += [account.failed] if account.failed else []
    return {"note": "; ".join(notes)} if notes else {}


def _nothing(note: str) -> dict[str, Any]:
    tokens = {"peak": None, "cumulative": None}
    empty = dict.fromkeys(("compactions", "recall", "compaction_recall", "interventions", "wall_s"))
    return {"completed": False, "steps": 0, "tokens": tokens, **empty, "note": note}


def _written(out: Path, report: Mapping[str, Any]) -> list[Path]:
    from clawd.files import write_atomic

    out.mkdir(0o700, parents=True, exist_ok=True)
    stem = f"memory-experiment-{datetime.now():%Y%m%d-%H%M%S}"
    files = [out / f"{stem}.json", out / f"{stem}.html"]
    write_atomic(files[0], experiments.json_of(report))
    write_atomic(files[1], experiments.page_of(report))
    return files
