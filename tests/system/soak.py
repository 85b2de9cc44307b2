"""`python -m tests.system.soak`: many groups talk for long, while what they stand on is killed at random; then people
on three channels, `soak_channels`.

Runners, containers, the daemon and the Docker Engine end in mid-turn; every other group asks at the gateway in each
turn. At the end nothing may be lost, doubled or left over, each request that left has its line in the audit, and the
memory and descriptors of the daemon may not have grown. Prints its figures as JSON; exit code 1 when something is
wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.dockerd import Dockerd
from tests.engine import Provider
from tests.gateway.upstream import Recorded, Upstream, Wire, answer, sse
from tests.system import soak_channels
from tests.system.conftest import Home, call, homes, until
from tests.system.talkers import Talker, talkers, unfinished

VICTIMS = {"runner": 10.0, "sandbox": 10.0, "daemon": 1.5, "engine": 0.3}  # how often each dies, beside each other
SETTLE_S = 300.0
# One that is allowed, one whose answer streams, one that is refused; where they are granted.
ASK = """test ! -e /group/inbox/asks || python3 - <<'E'
import http.client, os, uuid
for path in ("tool/once/", "tool/stream/", "none/"):
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
    fields = {"Authorization": "Bearer " + os.environ["CLAWD_TOKEN"]}
    connection.request("GET", f"/svc/{path}{uuid.uuid4()}", headers=fields)
    connection.getresponse().read()
E"""


@dataclass(frozen=True, slots=True)
class Plan:
    """`rate` is messages a second over all groups, `pause` the mean of seconds between two kills."""

    seconds: float
    groups: int = 20
    rate: float = 1.0
    pause: float = 12.0
    seed: int = 20261


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a daemon: which life of it, its resident memory in MB, its descriptors and threads."""

    life: int
    at: float
    rss: float
    descriptors: int
    threads: int


@dataclass(slots=True)
class Report:
    """What a soak found. `wrong` holds a sentence for each thing that must not be."""

    seconds: float = 0.0
    messages: int = 0
    requests: int = 0
    killed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(VICTIMS, 0))
    rss: list[float] = field(default_factory=list)  # MB: mean of each quarter of the undisturbed life
    descriptors: list[float] = field(default_factory=list)
    threads: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Soak:
    """One soak of one home, whose containers are in this Engine."""

    def __init__(self, home: Home, plan: Plan, dockerd: Dockerd) -> None:
        self.home, self.plan, self._dockerd = home, plan, dockerd
        self.groups = [f"g{number}" for number in range(plan.groups)]
        self._chance = random.Random(plan.seed)
        self._said: dict[str, list[str]] = {group: [] for group in self.groups}
        self._samples: list[Sample] = []
        self._life = 0
        self._report = Report()

    def run(self, say: Callable[[str], None]) -> Report:
        with Upstream(answered) as self._upstream:
            return self._run(say)

    def _run(self, say: Callable[[str], None]) -> Report:
        began = time.monotonic()
        self.home.script(
            call("send_message", text="got {message}"),
            call("bash", command=ASK),
            {"text": "re {message}", "delay_s": 0.2},
            sandbox="max_live = 8\nwarm_minutes = 2",
            more=f'[services.tool]\nbase_url = "{self._upstream.url}"\nallow_private = true\n',
        )
        for group in self.groups:
            self.home.json("groups", "add", group)
        for n, group in enumerate(map(self.home.layout.group, self.groups)):
            group.config_file.write_text('followups = "queue"\n')  # a turn for each message
            if n % 2 == 0:
                group.inbox.mkdir(exist_ok=True)
                (group.inbox / "asks").touch()
                group.config_file.write_text('followups = "queue"\ngrants = ["tool"]\n')
        self.home.start()
        with talkers(self.home, self.groups) as talking:
            # The daemon and the Engine end in the first half alone: the second shows one long life.
            self._go(talking, self.plan.seconds / 2, [*VICTIMS], say)
            self._go(talking, self.plan.seconds / 2, ["runner", "sandbox"], say)
            self._report.seconds = time.monotonic() - began
            self._settle(talking)
            self._judge(talking)
        self._end()
        return self._report

    def _go(self, talking: dict[str, Talker], seconds: float, victims: list[str], say: Callable[[str], None]) -> None:
        chance, plan, now = self._chance, self.plan, time.monotonic()
        until_ = now + seconds
        next_message, next_kill, next_look, next_word = now, now + chance.expovariate(1 / plan.pause), now, now + 60
        while (now := time.monotonic()) < until_:
            if now >= next_message:
                group = chance.choice(self.groups)
                if len(self._said[group]) - len(talking[group].receipts) < 10:
                    self._say(talking, group)
                next_message = now + chance.expovariate(plan.rate)
            if now >= next_kill:
                unhurt = [each for each in victims if not self._report.killed[each]]
                victim = unhurt[0] if unhurt else chance.choices(victims, [VICTIMS[each] for each in victims])[0]
                self._report.killed[victim] += self._strike(victim)
                next_kill = time.monotonic() + chance.expovariate(1 / plan.pause)
            if now >= next_look:
                self._look()
                next_look = now + 1
            if now >= next_word:
                asked = len(self._upstream.requests)
                killed, rss = self._report.killed, self._samples[-1].rss
                say(f"{self._report.messages} messages, {asked} requests, killed {killed}, {rss} MB")
                next_word = now + 60
            time.sleep(0.02)

    def _say(self, talking: dict[str, Talker], group: str) -> None:
        text = f"m{self._report.messages}"
        self._report.messages += 1
        self._said[group].append(text)
        talking[group].say(text)

    def _strike(self, victim: str) -> bool:
        """Kill one; whether there was one. A turn bears three faults of its own: one that bore two is spared."""
        home, chance = self.home, self._chance
        if victim == "daemon":
            home.kill()
            self._life += 1
            home.start()
            return True
        if victim == "engine":
            self._dockerd.restart()
            return True
        with suppress(OSError):
            living = [row["group"] for row in home.ask("sandbox.list") if row["state"] in ("busy", "ready", "paused")]
            spared = {row["group"] for row in unfinished(home) if row["attempt"] > 2}
            if mortal := [group for group in living if group not in spared]:
                group = chance.choice(mortal)
                pid = home.runner(group) if victim == "runner" else chance.choice(home.sandbox_processes(group))
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def _look(self) -> None:
        assert self.home.daemon is not None
        proc = Path(f"/proc/{self.home.daemon.pid}")
        with suppress(OSError):
            status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
            rss, threads = int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"])
            descriptors = len(list((proc / "fd").iterdir()))
            self._samples.append(Sample(self._life, time.monotonic(), round(rss, 1), descriptors, threads))

    def _settle(self, talking: dict[str, Talker]) -> None:
        """Until everything that was said is answered and shown."""

        def settled() -> bool:
            taken = all(len(talking[group].receipts) == len(said) for group, said in self._said.items())
            return taken and not unfinished(self.home)

        def shown() -> bool:
            return all(len(replies(each)) >= 2 * len(each.receipts) for each in talking.values())

        for what, done in (("not every message came to its end", settled), ("not every reply was shown", shown)):
            with suppress(AssertionError):
                until(done, SETTLE_S, pause=0.2)
                continue
            self._report.wrong.append(f"{what} within {SETTLE_S:g} s: {unfinished(self.home)[:3]}")

    def _judge(self, talking: dict[str, Talker]) -> None:
        wrong = self._report.wrong
        for row in self.home.messages():
            if row["state"] != "recorded":
                wrong.append(f"message {row['id']} of {row['group']} is {row['state']}: {row['reason']}")
        for group, said in self._said.items():
            users = [text for role, text in self.home.said(group) if role == "user"]
            if users != said:
                wrong.append(f"{group}: said {len(said)}, in the session {len(users)}: {differing(said, users)}")
            shown = Counter(replies(talking[group]))
            expected = Counter(f"{word} {text}" for text in said for word in ("got", "re"))
            if shown != expected:
                wrong.append(f"{group}: lost {list(expected - shown)[:3]}, doubled {list(shown - expected)[:3]}")
        self._judge_requests()
        last = [sample for sample in self._samples if sample.life == self._life]
        quarter = max(1, len(last) // 4)
        for name in ("rss", "descriptors", "threads"):
            parts = [last[at : at + quarter] for at in range(0, 4 * quarter, quarter)]
            means = [round(statistics.fmean(getattr(each, name) for each in part), 1) for part in parts if part]
            setattr(self._report, name, means)

    def _judge_requests(self) -> None:
        """Each that arrived has one line, and what has a line without having arrived was cut off."""
        arrived = Counter(request.path for request in self._upstream.requests)
        lines = [line for line in self.home.json("gateway", "audit") if line["verdict"] == "allow"]
        allowed = Counter(line["path"] for line in lines)
        self._report.requests = arrived.total()
        if more := (arrived - allowed) + (allowed - Counter(set(allowed))):
            self._report.wrong.append(f"requests without a line, or with two: {list(more)[:3]}")
        if more := [line for line in lines if line["path"] not in arrived and line["rule"] == "granted"]:
            self._report.wrong.append(f"requests that never arrived: {more[:3]}")

    def _end(self) -> None:
        def swept() -> bool:
            """What could not be removed while the Engine was away goes within a minute, while anything lives."""
            runs = tuple(row["run"] for row in self.home.ask("sandbox.list"))
            return all(each.name.endswith(runs) for each in self.home.containers())

        with suppress(AssertionError):  # what is left then is told
            until(swept, SETTLE_S, pause=0.5)
        for row in self.home.ask("sandbox.list"):
            self.home.ask("sandbox.stop", group=row["group"])
        if (code := self.home.stop()) != 0:
            self._report.wrong.append(f"the daemon ended with {code}")
        if left := self.home.left_over():
            self._report.wrong.append(f"left over: {left}")


def answered(request: Recorded, wire: Wire) -> None:
    (sse(*[b"x" * 1000] * 20) if request.path.startswith("/stream/") else answer(b"ok"))(request, wire)


def replies(talker: Talker) -> list[str]:
    return [text for text in talker.shown.values() if text.startswith(("got ", "re "))]


def differing(said: list[str], users: list[str]) -> str:
    lost, more = Counter(said) - Counter(users), Counter(users) - Counter(said)
    return f"lost {list(lost)[:3]}, doubled {list(more)[:3]}"


def grown(means: list[float], percent: float) -> bool:
    """Whether the last quarter's mean lies more than `percent` above the second's."""
    return len(means) == 4 and means[3] > means[1] * (1 + percent / 100)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--channels-minutes", type=float, default=10)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20261)
    options = parser.parse_args(words)

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    found: dict[str, Report | soak_channels.Report] = {}
    if options.minutes:
        found["kills"] = kills(Plan(options.minutes * 60, options.groups, seed=options.seed), say)
    if seconds := options.channels_minutes * 60:
        with soak_channels.Chats(soak_channels.Plan(seconds, ends=int(seconds / 30), seed=options.seed)) as chats:
            found["channels"] = chats.run(say)
    sys.stdout.write(json.dumps({name: dataclasses.asdict(report) for name, report in found.items()}) + "\n")
    return 1 if any(report.wrong for report in found.values()) else 0


def kills(plan: Plan, say: Callable[[str], None]) -> Report:
    provider = Provider()
    try:
        engine, dockerd = provider.mine()
        with homes(engine) as make:
            home = make()
            home.may_block = True  # that is looked for elsewhere, where nothing is killed
            report = Soak(home, plan, dockerd).run(say)
    finally:
        provider.end()
    for name in ("rss", "descriptors"):
        if grown(getattr(report, name), 5):
            report.wrong.append(f"{name} grew: {getattr(report, name)}")
    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
