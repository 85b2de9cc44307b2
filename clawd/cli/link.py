"""A conversation that outlives its daemon: it connects again, sends again under the same id, and shows
nothing twice.

What was sent is settled by its receipt and its outcome, both of which the daemon gives again to the same
platform id. A delivery is acknowledged after it was shown, and known by its id from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from clawd.cli.companion import Companion
from clawd.config.home import Home
from clawd.control.client import ConnectionLost, ControlClient, NoDaemon
from clawd.errors import ClawdError

# Receipt states after which nothing more comes for a message that was answered by its receipt alone (a
# command).
_OVER = frozenset(("delivered", "recorded", "failed", "stopped", "stale", "withdrawn"))


@dataclass(slots=True)
class Sent:
    """One message of ours. `receipt` is a Receipt's fields; `outcome` how it ended, or that it is held."""

    text: str
    platform_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    receipt: asyncio.Future[dict[str, Any]] = field(default_factory=asyncio.Future)
    outcome: asyncio.Future[dict[str, Any]] = field(default_factory=asyncio.Future)


class Link:
    """`run` keeps the conversation up; `on_event(kind, data)` hears everything but outcomes, in order, first
    that it is opened, and each receipt once."""

    def __init__(
        self,
        home: Home,
        companion: Companion,
        opening: dict[str, Any],
        on_event: Callable[[str, dict[str, Any]], None],
    ) -> None:
        self._home = home
        self._companion = companion
        self._opening = opening
        self._on_event = on_event
        self._open: list[Sent] = []
        self._ended: dict[int, dict[str, Any]] = {}  # outcomes, by message, that nobody has taken yet
        self._shown: set[int] = set()
        self._client: ControlClient | None = None
        self._acknowledging: set[asyncio.Task[None]] = set()
        self.opened: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Until cancelled. Raises ClawdError when the conversation cannot be opened or the daemon cannot be
        had."""
        while True:
            await self._companion.ensure()
            try:
                async with ControlClient(self._home.state) as client:
                    group = await client.call("chat.open", **self._opening)
                    self._opening["replay"] = True  # from the second time on, whatever was asked for the first
                    self._client = client
                    for sent in self._open:
                        await self._send(client, sent)
                    if not self.opened.done():
                        self._on_event("opened", group)
                        self.opened.set_result(group)
                    async for kind, data in client.events():
                        self._hear(kind, data)
            except (NoDaemon, ConnectionLost):
                continue
            finally:
                self._client = None

    def known(self) -> dict[str, Any]:
        """Where what was said belongs, as far as the daemon has told: group, session, turn."""
        told = [each.receipt.result() for each in self._open if each.receipt.done()]
        opened = self.opened.result() if self.opened.done() else {}
        return opened | ({key: told[0][key] for key in ("session", "turn")} if told else {})

    async def say(self, text: str, platform_id: str = "") -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Send and wait for the end, through any number of daemons: (receipt, outcome). No outcome when the
        receipt is the answer. What was sent under a `platform_id` before is not sent again: its end is given. Raises
        ClawdError when the daemon refuses the message."""
        sent = Sent(text, platform_id) if platform_id else Sent(text)
        self._open.append(sent)
        try:
            if self._client is not None:
                await self._send(self._client, sent)
            receipt = await sent.receipt
            if receipt["message"] is None or (receipt["told"] and receipt["state"] in _OVER):
                return receipt, None
            return receipt, await sent.outcome
        finally:
            self._open.remove(sent)

    async def _send(self, client: ControlClient, sent: Sent) -> None:
        try:
            receipt = await client.call("chat.send", text=sent.text, platform_id=sent.platform_id)
        except ConnectionLost:
            return  # `run` sends it again
        except ClawdError as error:
            if not sent.receipt.done():
                sent.receipt.set_exception(error)
            return
        if not sent.receipt.done():
            sent.receipt.set_result(receipt)
            self._on_event("receipt", receipt)
        early = self._ended.pop(receipt["message"] or 0, None)
        if early is not None and not sent.outcome.done():
            sent.outcome.set_result(early)

    def _hear(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "outcome":
            for sent in self._open:
                if sent.receipt.done() and sent.receipt.result()["message"] == data["message"]:
                    if not sent.outcome.done():
                        sent.outcome.set_result(data)
                    return
            self._ended[data["message"]] = data
        elif kind == "message" and data["delivery"] in self._shown:
            self.acknowledge([data["delivery"]])
        else:
            self._on_event(kind, data)

    def acknowledge(self, deliveries: Iterable[int]) -> None:
        """These were shown. When the daemon does not hear it, it tells them again, and we acknowledge
        again."""
        shown = list(deliveries)
        self._shown.update(shown)
        if shown and self._client is not None:
            task = asyncio.ensure_future(self._acknowledge(self._client, shown))
            self._acknowledging.add(task)
            task.add_done_callback(self._acknowledging.discard)

    async def _acknowledge(self, client: ControlClient, shown: list[int]) -> None:
        with contextlib.suppress(ConnectionLost):
            await client.call("chat.seen", deliveries=shown)

    async def settle(self) -> None:
        """Wait, not for long, until what was acknowledged has been heard."""
        if self._acknowledging:
            await asyncio.wait(self._acknowledging, timeout=2)
