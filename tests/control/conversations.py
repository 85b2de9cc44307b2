"""A stand-in for the daemon behind the real control socket and the real terminal channel: it keeps its
messages in one JSON file, so that it can be killed and started again, and answers by what a message says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio

from channels.terminal import Terminal
from clawd.errors import ClawdError, NotFound
from clawd.faults import passing
from clawd.model import Incoming, Outgoing, Receipt
from clawd.signals import News, Signals

SESSION = "terminal:main"


class StandIn:
    """A ChatHost. `echo …` is answered, `fail` fails, `hold` is held, `slow` is never answered, `/help` is
    told."""

    def __init__(self, file: Path) -> None:
        self.signals = Signals()
        self.terminal = Terminal({})
        self.file = file
        self.rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []

    def keep(self) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(self.rows))
        fresh.rename(self.file)  # tests look at it meanwhile

    async def run(self) -> None:
        """Answer what is open; call it in a task of its own."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.terminal.run, self)
            self.tasks = tasks
            for row in self.rows:
                if row["outcome"] is None:
                    tasks.start_soon(self.answer, row)
            await anyio.sleep_forever()

    async def open(self, group: str, session: str | None) -> tuple[str, str]:
        if group != "main":
            raise NotFound(f"there is no group {group}", hint="clawd groups list")
        return group, session or SESSION

    def heard(self) -> None:
        pass

    async def receive(self, incoming: Incoming) -> Receipt:
        text = incoming.texts[0]
        if text == "refuse":
            raise ClawdError("not you", hint="ask the owner")
        if text == "/help":
            return Receipt(None, "recorded", None, None, told="help yourself")
        for row in self.rows:
            if row["platform_id"] == incoming.platform_id:
                return Receipt(row["id"], "received", SESSION, row["id"], fresh=False)
        row = {
            "id": len(self.rows) + 1,
            "platform_id": incoming.platform_id,
            "text": text,
            "chat": incoming.chat,
            "thread": incoming.thread,
            "sender": incoming.sender,
            "outcome": None,
            "seen": False,
        }
        self.rows.append(row)
        self.keep()
        passing("received")
        self.tasks.start_soon(self.answer, row)
        return Receipt(row["id"], "received", SESSION, row["id"])

    async def answer(self, row: dict[str, Any]) -> None:
        turn, word = row["id"], row["text"].split()[0]
        session = row["thread"] or SESSION
        state = "recorded"
        reply: str | None = f"you said {row['text']}"
        error: str | None = None
        if word == "slow":
            return
        if word == "/stop":
            reply = "stopped"
        if word == "hold":
            state, reply, error = "held", None, "no sandbox can be made"
        if word == "fail":
            state, reply, error = "failed", None, "the engine broke"
        self.signals.emit(News("turn", "main", session, {"turn": turn, "state": "claimed"}))
        if reply:
            for piece in (reply[:4], reply[4:]):
                self.signals.emit(News("delta", "main", session, {"turn": turn, "text": piece}))
        row["outcome"] = {
            "state": state,
            "turn": turn,
            "session": session,
            "group": "main",
            "reply": reply,
            "files": ["milk.txt"] if word == "file" else [],
            "engine": "scripted",
            "model": None,
            "backend": "bubblewrap",
            "attempt": 1,
            "ms": 3,
            "usage": None,
            "error": error,
        }
        self.keep()
        passing("sending")
        for message in self.outgoing(row):
            await self.terminal.send(message)
        self.signals.emit(News("turn", "main", session, {"turn": turn, "state": state}))

    def outgoing(self, row: dict[str, Any]) -> list[Outgoing]:
        outcome, first = row["outcome"], row["id"] * 10
        common: dict[str, Any] = {"channel": "terminal", "chat": row["chat"], "thread": row["thread"]}
        common |= {"turn": row["id"], "nonce": f"n{first}"}
        sent = [Outgoing(delivery=first, kind="text", text=outcome["reply"], **common)]
        if not outcome["reply"]:
            sent = [Outgoing(delivery=first, kind="notice", text=outcome["error"], **common)]
        for name in outcome["files"]:
            path = self.file.parent / "blobs" / "abc"
            sent.append(Outgoing(delivery=first + 1, kind="file", text="", path=path, name=name, **common))
        return sent

    async def outcome(self, message: int) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.rows[message - 1]["outcome"]
        return found

    async def unseen(self, chat: str, thread: str) -> list[Outgoing]:
        mine = [row for row in self.rows if (row["chat"], row["thread"]) == (chat, thread)]
        return [each for row in mine if row["outcome"] and not row["seen"] for each in self.outgoing(row)]

    async def seen(self, deliveries: list[int]) -> None:
        for delivery in deliveries:
            self.rows[delivery // 10 - 1]["seen"] = True
        self.keep()
