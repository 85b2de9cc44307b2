"""How soon a daemon with 10,000 schedules is there, beside one without any, and how long until it knows of each."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import closing

from benchmarks.daemon import CLAWD, await_answer, home
from benchmarks.figures import Figure, figure
from clawd.config.home import Home
from clawd.ledger.db import Ledger

COUNT, GROUPS, TIMES = 10_000, 100, 5
_LOOKED = "schedules were looked at"


def schedules() -> Iterator[Figure]:
    """Files that did not change since the last start: they are only looked up."""
    names = [f"g{n}" for n in range(GROUPS)]
    with home(names) as made:
        yield figure("ready without schedules", [_ready(made)[0] for _ in range(TIMES)], "ms")
        for n in range(COUNT):
            folder = made.group(names[n % GROUPS]).schedules
            folder.mkdir(exist_ok=True)
            (folder / f"s{n}.toml").write_text(f'schema = 1\ncron = "{n % 60} {n % 24} 1 1 *"\nprompt = "p"\n')
        yield figure("10,000 new schedules taken up", [_ready(made, COUNT)[1]], "ms")
        taken = [_ready(made, COUNT) for _ in range(TIMES)]
        yield figure("ready with 10,000 schedules", [ready for ready, _ in taken], "ms")
        yield figure("10,000 schedules looked at after ready", [looked for _, looked in taken], "ms", goal=1000)


def _ready(made: Home, count: int = 0) -> tuple[float, float]:
    """Milliseconds until the daemon answers, and from then until each schedule is known."""
    before, began = _looks(made), time.perf_counter()
    process = subprocess.Popen([*CLAWD, "run", "--home", str(made.root)], stderr=subprocess.DEVNULL)
    await_answer(made, process)
    ready = time.perf_counter()
    while count and not (_looks(made) > before and _known(made) == count):
        time.sleep(0.01)
    known = time.perf_counter()
    process.terminate()
    process.wait(30)
    return (ready - began) * 1000, (known - ready) * 1000


def _looks(made: Home) -> int:
    """How many daemons so far had looked at every file."""
    return made.log_file.read_text().count(_LOOKED) if made.log_file.exists() else 0


def _known(made: Home) -> int:
    """Schedules of which the ledger knows when they are due."""
    with closing(Ledger.read_only(made.ledger_file)) as ledger:
        row = ledger.tx(lambda tx: tx.one("SELECT COUNT(*) AS n FROM schedule WHERE next IS NOT NULL"))
    return row["n"] if row is not None else 0
