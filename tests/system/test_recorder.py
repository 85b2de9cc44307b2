"""A live recorder beside a talking daemon, on the same session, while both are killed: nothing of either is lost, there
twice, or torn apart by the other."""

from __future__ import annotations

import subprocess
import sys
import threading
from itertools import groupby

import pytest

from clawd.commands import looking
from clawd.control.client import ConnectionLost, NoDaemon
from clawd.ledger.db import peek
from clawd.model import Block
from clawd.sessions import reading
from tests.system import recorder
from tests.system.conftest import Home, until

pytestmark = pytest.mark.timeout(180)

SESSION, TICKS, AGAIN = "mmkr:agent-1", 1000, 20
# What ends when so many ticks are in: the daemon by a signal or where it says, or the recorder, which begins again
# some ticks before the last that it knows of.
DEATHS = {
    60: "daemon",
    130: "kill@injected:5",
    220: "recorder",
    300: "kill@injection-appended:5",
    420: "daemon",
    480: "recorder",
    540: "kill@appended:2",
    660: "kill@injection-recorded:5",
}


class Recorder:
    """The program, from one tick to the last; what it says is read in a thread."""

    def __init__(self, home: Home) -> None:
        self.home, self.ticks = home, -1
        self.begin(0)

    def begin(self, first: int) -> None:
        words = [sys.executable, "-m", "tests.system.recorder", str(self.home.root), SESSION, str(first), str(TICKS)]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.home.environment()
        )
        self.home.started.append(self.process)
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.ticks = max(self.ticks, int(line))

    def begin_again(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.begin(max(0, self.ticks - AGAIN))

    def reaches(self, tick: int) -> None:
        def there() -> bool:
            code = self.process.poll()
            assert code in (None, 0), self.process.stderr and self.process.stderr.read()
            return self.ticks >= tick

        until(there)


def talk(home: Home, said: list[str], over: threading.Event) -> None:
    """A person in the same session, who says each thing until it was taken."""
    while not over.is_set():
        text = f"how is it going, {len(said)}?"
        try:
            home.say(text, key=text, session=SESSION)
        except (NoDaemon, ConnectionLost, OSError):
            over.wait(0.1)
            continue
        said.append(text)
        over.wait(0.4)


def start(home: Home, fault: str | None = None) -> None:
    """A daemon, again where the one before has not ended yet."""
    if home.daemon is not None:
        home.daemon.wait(60)
    home.start(fault)


def ours(blocks: list[Block]) -> list[tuple[object, list[Block]]]:
    """The blocks of each turn, and those of each piece from outside, as they lie in the file."""
    return [
        (key, list(run)) for key, run in groupby(blocks, lambda block: block.meta.get("turn", block.meta.get("name")))
    ]


def test_a_recorder_beside_a_talk(home: Home) -> None:
    home.json("groups", "add", "main")
    home.json("groups", "set", "main", "external", '["mmkr:*"]')
    start(home)
    said: list[str] = []
    over = threading.Event()
    talking = threading.Thread(target=talk, args=(home, said, over), daemon=True)
    talking.start()
    recording = Recorder(home)
    for tick, what in DEATHS.items():
        recording.reaches(tick)
        if what == "recorder":
            recording.begin_again()
            continue
        home.kill()
        start(home, None if what == "daemon" else what)
        if what != "daemon":
            assert home.wait() == -9
            start(home)
    recording.reaches(TICKS - 1)
    assert recording.process.wait(60) == 0
    over.set()
    talking.join()
    aside = home.chat("-m", "and now?", "--session", SESSION)
    assert aside.wait(60) == 0
    home.settled(len(said) + 1)

    read = reading.load(looking.session_file(home.layout, SESSION))
    assert not read.errors and len(said) > 10
    outside = [block for block in read.blocks if reading.is_external(block)]
    expected = [(each["role"], each["content"]) for tick in range(TICKS) for each in recorder.messages(tick)]
    assert [(block.role, block.content) for block in outside] == expected
    # each call has its result next to it, whoever else wrote
    for block, behind in zip(read.blocks, [*read.blocks[1:], None], strict=True):
        for call in block.tool_calls:
            assert behind is not None and behind.tool_call_id == call["id"]
    # each turn in one piece and once, as its message and its answer are
    turns = [run for key, run in ours(read.blocks) if key != SESSION]
    assert all(block.meta["n"] == f"{n}/{len(run)}" for run in turns for n, block in enumerate(run, 1))
    assert sorted(run[0].content for run in turns) == sorted([*said, "and now?"])
    assert all([block.role for block in run] == ["user", "assistant"] for run in turns)
    # and the ledger keeps nothing but keys of what is in the file
    kept = peek(home.layout.ledger_file, lambda tx: tx.all("SELECT DISTINCT state, blocks FROM injected"))
    assert kept is not None and [tuple(row) for row in kept] == [("recorded", "[]")]
