"""Changed files that wake a group: which `[[watch]]` rules there are, and who looks after each.

A rule is known by its paths and globs: an edit of anything else keeps what it has seen. Groups without one cost a look
for the table's name in their file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from anyio import Semaphore, to_thread

from clawd.channel import ChannelLimits
from clawd.clock import Clock, rfc3339
from clawd.config.group import Mount, Watch
from clawd.config.home import Home, group_folders
from clawd.config.live import LiveConfig
from clawd.errors import ConfigError
from clawd.ledger import deliveries, seen
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.deliveries import Address, address_of
from clawd.locks import KeyedLocks
from clawd.signals import Watches
from clawd.tasks import Tasks
from clawd.wakes.folders import Judge
from clawd.wakes.settling import rule_id
from clawd.wakes.watching import Watching

LOOKS = 8  # at one time: each has a descriptor, and one more for each level of its tree


class Files:
    """`base` gives the plain id of a group's own conversation, `judge` decides about a mount of a group's,
    `commands` says when commands beside its runner began and ended, `wake` has its turns claimed, `deliver` a chat's
    messages sent."""

    def __init__(
        self,
        home: Home,
        config: LiveConfig,
        ledger: Ledger,
        clock: Clock,
        tasks: Tasks,
        watcher: Watches,
        *,
        judge: Judge,
        commands: Callable[[str], Sequence[tuple[str, str | None]]],
        base: Callable[[str], Awaitable[str]],
        wake: Callable[[str], None],
        deliver: Callable[[Address], None],
        limits: Callable[[str], ChannelLimits],
    ) -> None:
        self.home, self.ledger, self.clock, self.watcher = home, ledger, clock, watcher
        self.judge, self.commands, self.base, self.wake = judge, commands, base, wake
        self._config, self._tasks, self._deliver, self._limits = config, tasks, deliver, limits
        self.looks = Semaphore(LOOKS)
        self._rules: dict[str, dict[str, Watching]] = {}
        self._one = KeyedLocks()

    async def start(self) -> None:
        """Take up the rules of all groups, and forget those that are gone."""
        folders = await to_thread.run_sync(lambda: [each for each in group_folders(self.home) if self._names(each)])
        for group in folders:
            await self._renew(group)
        for group in {group for group, _ in await self.ledger.do(seen.rules)} - {*folders}:
            await self._renew(group)

    def renew(self, group: str) -> None:
        """A group's file, or what it may see, may say something else now. In the event loop."""
        self._tasks.start_soon(self._renew, group)

    async def _renew(self, group: str) -> None:
        async with self._one.hold(group):
            try:
                watches = await to_thread.run_sync(lambda: list(self._config.group(group).watch))
            except ConfigError:
                return  # it never was understood: what is known of its rules stays
            wanted = _by_id(watches)
            running = self._rules.setdefault(group, {})
            for id in [id for id in running if id not in wanted]:
                running[id].stop()
                await running.pop(id).ended.wait()
            for rule in await self.ledger.do(seen.rules):
                while rule[0] == group and rule[1] not in wanted:
                    if await self.ledger.do(lambda tx, rule=rule: seen.forget(tx, rule)):  # type: ignore[misc]
                        break
            for id, watch in wanted.items():
                if id in running:
                    running[id].watch = watch
                    running[id].nudge()
                else:
                    running[id] = Watching(self, group, id, watch)
                    self._tasks.start_soon(running[id].attend, name=f"watch {group}")

    def _names(self, group: str) -> bool:
        """Whether its file can have a rule."""
        try:
            return self.home.group(group).says(b"watch")
        except OSError:
            return False

    # ── what a rule at work asks ──

    def mounts(self, group: str) -> Sequence[Mount]:
        return self._config.mounts(group)

    def address(self, group: str) -> Address:
        """Where a group is answered that nobody asked from."""
        return address_of(self._config.first_binding(group))

    def say(self, tx: Transaction, group: str, base: str, text: str) -> None:
        """Tell a group something; `said` once that is durable."""
        to = self.address(group)
        deliveries.enqueue(
            tx, to, session=base, kind="notice", text=text, now=rfc3339(self.clock.now()),
            limits=self._limits(to.channel),
        )  # fmt: skip

    def said(self, group: str) -> None:
        self._deliver(self.address(group))


def _by_id(watches: Sequence[Watch]) -> dict[str, Watch]:
    found: dict[str, Watch] = {}
    for watch in watches:
        n = 0
        while (id := rule_id(watch, n)) in found:
            n += 1
        found[id] = watch
    return found
