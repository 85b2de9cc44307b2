"""Every kind that ships."""

from __future__ import annotations

from collections.abc import Callable

from clawd.approvals.budget import Budget
from clawd.approvals.chats import Bind, Group, Person
from clawd.approvals.context import Context
from clawd.approvals.kind import Kind
from clawd.approvals.schedule import Schedule
from clawd.approvals.send import Send
from clawd.approvals.skill import Skill
from clawd.approvals.watch import Watch
from clawd.channel import ChannelLimits
from clawd.clock import Clock
from clawd.config.home import Home
from clawd.ledger.deliveries import Address
from clawd.people.bindings import Bindings
from clawd.people.roster import LiveRoster


def kinds(
    home: Home,
    clock: Clock,
    bindings: Bindings,
    roster: LiveRoster,
    *,
    limits: Callable[[str], ChannelLimits | None],
    deliver: Callable[[Address], None],
    raised: Callable[[], None],
    scheduled: Callable[[str], None],
    watched: Callable[[str], None],
    context: Context | None = None,
) -> dict[str, Kind]:
    """`limits` are those of a channel that is there; `raised` is told that a budget was, `scheduled` and `watched`
    which group has other schedules and watches."""
    chat = (home, bindings, limits, deliver)
    every: list[Kind] = [
        Person(*chat, roster),
        Group(*chat),
        Bind(*chat),
        Budget(home, clock, raised),
        Send(home, limits, deliver),
        Schedule(home, clock, scheduled),
        Skill(home),
        Watch(home, watched),
    ]
    every += [context] if context is not None else []
    return {kind.name: kind for kind in every}
