"""`clawd context run`: the outer loop over any engine, from the command line.

Each step is one message of the owner's in a session of its own, and one turn; before the next one is sent, what the
life cycle decided about the last is done. A step's number makes it the same message however often it is sent, so that
a run that was killed anywhere goes on with `--resume` and does nothing twice. What is sent is the goal, then a fixed
sentence: an agent's own words never come back to it as the owner's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clawd.cli.companion import Companion, companion
from clawd.cli.link import Link
from clawd.cli.page import give, say
from clawd.config.home import Home
from clawd.control.client import ConnectionLost, ControlClient, NoDaemon
from clawd.errors import ClawdError, UsageError

GO_ON = "Go on. When nothing is left to do for the goal, end your answer with the line DONE."
DONE = "DONE"
STEPS = 20  # of one run, where nothing else is said
INTERRUPTED = 130
_DENIED, _AT_HARD = 2, "confirm_denied_at_hard"
_ACTIONS = ("compact", "handoff")
_WAITS = frozenset(("held", "stale", "withdrawn", "stopped"))  # how a step ends that a resumed run may take again


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run. `begin` are the parameters of `context.prepare`; `engine` answers, None: the group's own."""

    begin: dict[str, Any]
    engine: str | None = None
    most: int = STEPS
    yes: bool = False

    @property
    def session(self) -> str:
        return str(self.begin["session"])


@dataclass(slots=True)
class Account:
    """What became of a run. `stands` is the daemon's last word on the session."""

    stands: dict[str, Any]
    reason: str = "stopped"
    denied: int = 0
    asked: int = 0
    failed: str | None = None
    hint: str | None = None
    peak: int = 0
    recalls: list[float] = field(default_factory=list)

    @property
    def code(self) -> int:
        if self.reason == "failed" or self.failed is not None:
            return 1
        return _DENIED if self.denied else 0

    def shown(self) -> dict[str, Any]:
        stands = self.stands
        return {
            "session": stands["session"],
            "stopped_reason": self.reason,
            "steps": stands["step_index"],
            "compact_count": stands["compact_count"],
            "handoff_manifest": stands["handoff_manifest"],
            "tokens": stands["tokens"],
            "usd": stands["usd"],
        }


def run(options: Namespace, home: Home) -> int:
    """The face of it: what is run is said on standard error, a line a step, the result at the end."""
    plan = plan_of(options)
    with companion(home, say) as beside:
        loop = Loop(home, beside, plan, say)
        try:
            account = asyncio.run(loop.play())
        except KeyboardInterrupt:
            account = asyncio.run(loop.stop())
            say(f"clawd: stopped; go on with: clawd context run --resume {plan.session}")
            give(account.shown(), options.json)
            return INTERRUPTED
        give(account.shown(), options.json)
        if account.failed is not None:
            say(f"clawd: {account.failed}" + (f" ({account.hint})" if account.hint else ""))
        elif account.denied:
            say("clawd: what was asked first was not confirmed; --yes says yes to it")
        return account.code


def plan_of(options: Namespace) -> Plan:
    """Raises UsageError."""
    from clawd.commands import scripts

    if options.script is not None and options.agent not in (None, "scripted"):
        raise UsageError(
            f"a script is played by the engine scripted, and not by {options.agent}",
            hint="leave --script or --agent out",
        )
    if options.agent == "scripted" and options.script is None and options.resume is None:
        raise UsageError("the engine scripted needs --script FILE")
    if options.resume is None and not (options.goal or "").strip():
        raise UsageError("--goal is missing", hint='clawd context run --goal "what is to be done" --script FILE')
    if options.resume is not None and options.session_id not in (None, options.resume):
        raise UsageError("--resume names the session: leave --session-id out")
    begin: dict[str, Any] = {
        "session": options.resume or options.session_id or _new_id(),
        "resume": options.resume is not None,
        "goal": (options.goal or "").strip(),
        "group": options.group or "main",
        "profile": options.profile,
        "soft": options.soft_compact,
        "hard": options.hard_handoff,
        "agent_id": options.agent_id,
        "memory_namespace": options.memory_namespace,
    }
    if options.require_confirm is not None:
        begin["require_confirm"] = actions_of(options.require_confirm)
    if options.script is not None:
        begin["script"] = str(scripts.read(scripts.found(options.script)).path)
    return Plan(begin, options.agent, options.max_steps or STEPS, options.yes)


def actions_of(said: str) -> list[str]:
    """`compact,handoff` as a list. Raises UsageError."""
    actions = [each.strip() for each in said.split(",") if each.strip()]
    if wrong := [each for each in actions if each not in _ACTIONS]:
        raise UsageError(f"nothing asks before {wrong[0]!a}", hint=f"--require-confirm {','.join(_ACTIONS)}")
    return actions


def _new_id() -> str:
    return f"run-{datetime.now():%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


class Loop:
    """One run. `note` hears a line a step; `confirm` is asked before an action, None: nobody can be."""

    def __init__(
        self,
        home: Home,
        beside: Companion,
        plan: Plan,
        note: Callable[[str], None],
        confirm: Callable[[str], bool] | None = None,
    ) -> None:
        self._home, self._beside, self._plan, self._note = home, beside, plan, note
        self._confirm = confirm if confirm is not None else (_asked if _at_terminal() else None)
        self._account: Account | None = None
        self._link: Link | None = None

    async def play(self) -> Account:
        """Until it is through, handed over, or may not go on. Raises ClawdError where it cannot begin."""
        plan = self._plan
        begun = await self._ask("context.prepare", **plan.begin)
        account = self._account = Account(begun)
        turns = begun["turns"]
        engine = "scripted" if turns is not None else plan.engine
        if plan.begin["resume"] and plan.begin["goal"]:
            self._note("the goal of a session that goes on stays what it was")
        opening = {"group": begun["group"], "session": plan.session, "as": "owner", "replay": False}
        if engine is not None:
            opening["choice"] = {"engine": engine}
        link = self._link = Link(self._home, self._beside, opening, self._hear)
        running = asyncio.create_task(link.run())
        try:
            await self._settle()
            for _ in range(plan.most):
                step = account.stands["step_index"]
                if turns is not None and step >= turns:
                    return await self._finish("completed", "completed")
                if self._over():
                    break
                outcome = await self._say(running, link, self._account.stands, step)
                await self._settle()
                if account.stands["step_index"] > step:
                    self._tell(step)
                if self._over():
                    break
                if outcome["state"] == "failed":
                    account.failed = outcome["error"] or "the turn failed"
                    return await self._finish("failed", "failed")
                if outcome["state"] in _WAITS:
                    account.failed = outcome["error"] or f"the step was {outcome['state']}"
                    account.hint = f"go on with: clawd context run --resume {plan.session}"
                    return await self._finish("stopped", "stopped")
                if turns is None and _is_done(outcome["reply"]):
                    return await self._finish("completed", "completed")
            else:
                through = turns is not None and account.stands["step_index"] >= turns
                return await self._finish(
                    "completed" if through else "stopped", "completed" if through else "max_steps"
                )
            account.reason = account.stands["stopped_reason"] or account.stands["status"]
            if account.stands["status"] == "handoff":
                account.reason = "handoff"
            return account
        finally:
            await link.settle()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def stop(self) -> Account:
        """The person left: nothing more is sent; a turn that is at work ends by itself."""
        if self._account is None:  # it had not begun
            raise KeyboardInterrupt
        self._account.stands = await self._ask(
            "context.finish", session=self._plan.session, status="stopped", reason="stopped", wait=False
        )
        self._account.reason = "stopped"
        return self._account

    def _over(self) -> bool:
        """Whether the life cycle ended the session, or holds it."""
        assert self._account is not None
        stands = self._account.stands
        if stands["status"] == "stopped" and stands["stopped_reason"] == _AT_HARD:
            self._account.denied = max(1, self._account.denied)
            return True
        return stands["status"] in ("handoff", "completed", "failed")

    async def _finish(self, status: str, reason: str) -> Account:
        account = self._account
        assert account is not None
        account.stands = await self._ask("context.finish", session=self._plan.session, status=status, reason=reason)
        account.reason = reason
        return account

    async def _say(self, running: asyncio.Task[None], link: Link, stands: dict[str, Any], step: int) -> dict[str, Any]:
        """Send a step and wait for its end."""
        text = stands["goal"] if step == 0 else GO_ON
        saying = asyncio.ensure_future(link.say(text, f"context run {self._plan.session} {step}"))
        await asyncio.wait({running, saying}, return_when="FIRST_COMPLETED")
        if not saying.done():
            saying.cancel()
            running.result()  # raises
        receipt, outcome = saying.result()
        if outcome is None:
            return {
                "state": "withdrawn",
                "error": receipt["told"] or f"the message was {receipt['state']}",
                "reply": None,
            }
        return outcome

    async def _settle(self) -> None:
        """Wait until what was decided about the last step is done, asking whoever must say yes to it."""
        account = self._account
        assert account is not None
        before, answered = account.stands["compact_count"], list[int]()
        while True:
            stands = await self._ask("context.settled", session=self._plan.session, answered=answered)
            if (approval := stands["pending_confirm"]) is not None and approval not in answered:
                answered.append(approval)
                account.asked += 1
                await self._answer(approval, stands)
            elif stands["settled"]:
                break
        decision = stands["decision"] or {}
        account.peak = max(account.peak, stands["tokens"]["window"], int(decision.get("total_tokens") or 0))
        if stands["compact_count"] > before and stands["last_recall"] is not None:
            account.recalls.append(stands["last_recall"])
        account.stands = stands

    async def _answer(self, approval: int, stands: dict[str, Any]) -> None:
        """The word on what asks first: --yes, the person's at the terminal, else no."""
        what = stands["confirm_action"] or "what the approval says"
        asked = f"{what} of session {self._plan.session} at {stands['tokens']['window']:,} tokens"
        granted = self._plan.yes or (self._confirm is not None and await _apart(self._confirm, asked))
        assert self._account is not None
        self._account.denied += not granted
        self._note(f"asked first: {asked}: {'yes' if granted else 'no'}")
        with contextlib.suppress(ClawdError) if not granted else contextlib.nullcontext():
            await self._ask(f"approvals.{'approve' if granted else 'deny'}", id=approval)

    def _tell(self, step: int) -> None:
        """A line on a step: what was decided, and why."""
        assert self._account is not None
        stands = self._account.stands
        decision = stands["decision"] or {}
        action, trigger = decision.get("action") or "continue", decision.get("trigger") or "none"
        why = f" ({trigger})" if trigger != "none" else ""
        at = int(decision.get("total_tokens") or stands["tokens"]["window"])
        after = stands["tokens"]["window"]
        window = f"{at:,} tokens" if at == after or action == "handoff" else f"{at:,} tokens, now {after:,}"
        self._note(f"step {step + 1}: {action}{why}, window {window}")

    async def _ask(self, op: str, **params: Any) -> Any:
        """An operation, by whichever daemon answers; each may be asked again."""
        while True:
            await self._beside.ensure()
            try:
                async with ControlClient(self._home.state) as client:
                    return await client.call(op, **params)
            except (NoDaemon, ConnectionLost):
                continue

    def _hear(self, kind: str, data: dict[str, Any]) -> None:
        """What is delivered to the session's thread is in its file: it is not to come up again in a chat."""
        if kind == "message":
            if data["kind"] == "notice" and data["text"]:
                self._note(data["text"])
            if self._link is not None:
                self._link.acknowledge([data["delivery"]])


def _is_done(reply: str | None) -> bool:
    lines = (reply or "").strip().splitlines()
    return bool(lines) and lines[-1].strip().strip("*_`.") == DONE


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _asked(what: str) -> bool:
    sys.stderr.write(f"{what}: do it? [y/N] ")
    sys.stderr.flush()
    line = os.read(sys.stdin.fileno(), 1024)  # sys.stdin has a lock, which a thread that is left behind would hold
    return line.strip().lower() in (b"y", b"yes")


async def _apart(confirm: Callable[[str], bool], what: str) -> bool:
    """Ask in a thread that nobody waits for when the person leaves."""
    loop = asyncio.get_running_loop()
    said: asyncio.Future[bool] = loop.create_future()

    def ask() -> None:
        try:
            granted = confirm(what)
        except OSError:
            granted = False
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, granted)

    def tell(granted: bool) -> None:
        if not said.done():
            said.set_result(granted)

    threading.Thread(target=ask, name="confirm", daemon=True).start()
    return await said
