"""A run as this daemon holds it: one life of a group's sandbox, its live turns, and who waits for one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import anyio

from clawd.sandbox.protocol import Exchanged, RunSpec, Sandbox
from clawd.trust import Role
from clawd.turns.desk import Control
from clawd.turns.leases import LiveTurn


@dataclass(slots=True)
class Command:
    """One of the owner's, beside the runner: for whom it acts, and the lowest trust of what came to it."""

    role: Role
    taint: float = 1.0
    alarms: int = 0


@dataclass(slots=True)
class Run:
    """`ready` is set by hello, `gone` when it is over here and its turns are given back, if it is known `dead`."""

    id: str
    group: str
    began: str
    token_hash: str = ""  # of the token that the runner was given at its hello; nobody here knows more of it
    backend: str = ""  # known when it is about to be made
    spec: RunSpec = field(init=False)  # from when the ledger knows it
    sandbox: Sandbox | None = None
    runner: tuple[int, int] | None = None  # pid and start time, of one that an earlier daemon knew
    due_back: float | None = None  # until when such a runner must have spoken
    parallel: int = 0  # workers that the runner has; 0 before its hello
    live: dict[int, LiveTurn] = field(default_factory=dict)
    asking: int = 0  # claims that are being made
    waiters: deque[anyio.Event] = field(default_factory=deque)
    maybe: bool = True  # there may be a turn to claim: nobody looks before that is so
    woken: int = 0  # how often a turn of its group was queued
    blocked: bool = False  # a turn of another authority waits until no turn is live
    wanted: bool = True  # nobody has looked since it was woken
    polls: dict[int, object] = field(default_factory=dict)  # each worker's newest
    control_news: anyio.Event = field(default_factory=anyio.Event)
    watch_news: anyio.Event = field(default_factory=anyio.Event)
    resting: bool = False  # its watch sleeps until it has been idle for long
    gate: anyio.Lock = field(default_factory=anyio.Lock)  # one freezes or thaws it at a time
    paused: bool = False  # it is frozen, or may be
    parked_at: float = 0.0  # when its last worker came to wait
    ready: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)
    given_up: anyio.Event = field(default_factory=anyio.Event)  # it was killed and does not end, or is `left`
    last_worked: float = 0.0
    handed_out: int = 0
    ending: bool = False
    killed: bool = False  # its processes die just now, one by one: what they still say of each other is not true
    left: bool = False  # it goes on without this daemon, for the next one
    dead: bool = False  # known, and its socket closed
    exec_count: int = 0
    commands: dict[str, Command] = field(default_factory=dict)  # those of `exec` that run, by the hash of their token
    tainting: anyio.Lock = field(default_factory=anyio.Lock)
    refused: tuple[str, ...] = ()  # files of the group that are not shown, and why
    untrusted: tuple[str, ...] = ()  # why its clients have no certificates to trust
    left_out: tuple[str, ...] = ()  # directories of the host that its group asks for and does not have, and why
    lost: tuple[Exchanged, ...] = ()  # those that were exchanged while it was made
    work: str | None = None  # which directory `work/` was when it was mounted
    trusts: bool = False  # it was given the certificates for what it reaches through the gateway
    shown: tuple[object, ...] | None = None  # the stamps of the files that the view was made from

    @property
    def busy(self) -> bool:
        """Whether it has a turn, or may have one in a moment."""
        return bool(self.live or self.asking)

    @property
    def acting(self) -> list[LiveTurn | Command]:
        """All that its road is open for."""
        return [*self.live.values(), *self.commands.values()]

    @property
    def used(self) -> bool:
        """Whether somebody has a use for it, or may have one in a moment."""
        return bool(self.busy or self.wanted or self.exec_count)

    def knows(self, hashed: str) -> bool:
        """Whether this is the hash of a token that is good: the runner's, or a running command's."""
        return not self.killed and (hashed == self.token_hash or hashed in self.commands)

    @property
    def parked(self) -> bool:
        """Whether every worker waits and nothing else is wanted of it: then it may be frozen."""
        at_rest = not (self.used or self.maybe or self.ending or self.paused) and self.parallel > 0
        return at_rest and len(self.waiters) >= self.parallel and self.sandbox is not None and self.sandbox.pausable

    @property
    def stays(self) -> bool:
        """Whether the next daemon can go on with it."""
        return self.sandbox is not None and self.sandbox.pausable and self.ready.is_set() and not self.ending

    def listed(self) -> dict[str, Any]:
        """Under the contract's names."""
        idle = "paused" if self.paused and not self.gate.locked() else "ready"
        state = "busy" if self.live else idle if self.ready.is_set() else "starting"
        return {
            "group": self.group,
            "run": self.id,
            "backend": self.backend,
            "state": "draining" if self.ending else state,
            "id": self.sandbox.id if self.sandbox else "",
            "limits": self.sandbox.limits if self.sandbox else "rlimit",
            "since": self.began,
        }

    def nudge(self) -> None:
        """There may be a turn: wake one worker that waits."""
        self.maybe = True
        if self.waiters:
            self.waiters.popleft().set()

    def controls(self) -> list[Control]:
        """What live turns must be told: for as long as they live, so that a lost answer loses nothing."""
        return [Control(live.turn, "stop") for live in self.live.values() if live.stopping is not None]

    def ask_to_stop(self, live: LiveTurn, now: float, why: str | None) -> None:
        """A live turn is to end: for `why`, or because somebody asked for it."""
        live.stopping, live.why = now, why
        self.control_news.set()
        self.look_again()

    def look_again(self) -> None:
        """Something changed that the run's watch should not sleep through."""
        self.watch_news.set()
