"""The chat commands. Each runs inside the transaction that answers it, so it is done once; `after` runs when that is
durable."""

from __future__ import annotations

from clawd.approvals.context import why_shut
from clawd.errors import UsageError
from clawd.intake import Command, CommandContext, Done, Filed
from clawd.ledger import contexts, ends, groups, handing, questions, turns
from clawd.ledger.db import Row, Transaction
from clawd.ledger.deliveries import Address
from clawd.trust import Role, at_least


def _help(tx: Transaction, context: CommandContext, row: Row, rest: str, now: str) -> Done:
    known = [(word, each) for word, each in COMMANDS.items() if each.help and at_least(Role(row["role"]), each.needs)]
    return Done("\n".join(f"/{word:<8} {command.help}" for word, command in known))


def _status(tx: Transaction, context: CommandContext, row: Row, rest: str, now: str) -> Done:
    shut = why_shut(contexts.find(tx, row["session"]))
    queued = len(turns.of_conversation(tx, row["session"], "queued", "held"))
    live = turns.of_conversation(tx, row["session"], "claimed")
    working = ", ".join(f"working on turn {turn['id']}, attempt {turn['attempt']}" for turn in live)
    said = f"session {row['session']}: {working or 'nothing is running'}, {queued} waiting"
    return Done("\n".join(filter(None, [said, context.state_of(row["grp"]), shut])))


def _stop(tx: Transaction, context: CommandContext, row: Row, rest: str, now: str) -> Done:
    role, here = Role(row["role"]), Address.of(row)
    live = ends.request_stop(tx, row["session"], role, here)
    there = turns.of_conversation(tx, row["session"], "claimed", "queued", "held")
    above = any(not at_least(role, Role(turn["authority"])) for turn in there)
    said = "Stopped." if live else "Nothing is running." if not above else "Nothing was stopped."
    said += " What somebody with more rights has begun, they stop themselves." if above else ""
    cleared: list[int] = []
    if rest == "all":
        cleared = ends.stop_waiting(tx, row["session"], now, role, here)
        said += f" {len(cleared)} waiting message{'s' if len(cleared) != 1 else ''} cleared."
        said += _withdrawn(tx, row)
    elif waiting := turns.of_conversation(tx, row["session"], "queued", "held"):
        said += f" {len(waiting)} still waiting; /stop all clears them."
    told = {address for turn in there if turn["id"] in cleared and (address := Address.of(turn)) != here}
    return Done(said, lambda: context.stopped(live, cleared, told))


def _new(tx: Transaction, context: CommandContext, row: Row, rest: str, now: str) -> Done:
    session = groups.session(tx, row["session"])
    base = session.base if session else row["session"]
    said = _withdrawn(tx, row)
    segment = groups.next_segment(tx, base, now)
    waited = 0
    if session is not None and why_shut(contexts.find(tx, session.id)) and not handing.is_at_work(tx, session.id):
        waited = handing.move(tx, session.id, segment.id)
    said += f" What waited ({waited}) is answered there." if waited else ""
    return Done(
        f"A new conversation begins: {segment.id}. The old one stays in its file.{said}",
        lambda: context.freed(row["grp"]),
    )


def _withdrawn(tx: Transaction, row: Row) -> str:
    return " The agent's open question is withdrawn." if questions.withdraw(tx, row["session"]) else ""


async def _model(context: CommandContext, row: Row, rest: str) -> str:
    return await context.model(row["grp"], rest)


async def _usage(context: CommandContext, row: Row, rest: str) -> str:
    return await context.usage(row["grp"], row["session"])


async def _context(context: CommandContext, row: Row, rest: str) -> str:
    return await context.context(row)


def _compact(tx: Transaction, context: CommandContext, row: Row, rest: str, now: str) -> Done:
    return Done(*context.compact(tx, row))


def _approve(tx: Transaction, context: CommandContext, row: Row, rest: str, now: str) -> Done:
    return Done(*context.decide(tx, row, "approve", rest))


def _deny(tx: Transaction, context: CommandContext, row: Row, rest: str, now: str) -> Done:
    return Done(*context.decide(tx, row, "deny", rest))


async def _approve_memory(context: CommandContext, row: Row, rest: str) -> str:
    return await context.decide_memory(row, "approve", rest)


async def _deny_memory(context: CommandContext, row: Row, rest: str) -> str:
    return await context.decide_memory(row, "deny", rest)


async def _memory(context: CommandContext, row: Row, rest: str) -> str | Filed:
    return await context.memory(row, rest)


async def _remember(context: CommandContext, row: Row, rest: str) -> str:
    return await context.remember(row, rest)


async def _skills(context: CommandContext, row: Row, rest: str) -> str:
    return await context.skills(row["grp"])


async def _pair(context: CommandContext, row: Row, rest: str) -> str:
    if rest:
        raise UsageError("A code does nothing here. Send it in a direct message, from the account to be paired.")
    if Role(row["role"]) is not Role.OWNER:
        raise UsageError("Only the owner makes codes: ask them for one.")
    if not row["direct"]:
        raise UsageError("Say it to me in a direct message: whoever has the code can become you.")
    return await context.pair(row["name"])


async def _schedule(context: CommandContext, row: Row, rest: str) -> str:
    if rest and Role(row["role"]) is not Role.OWNER:
        raise UsageError(
            "Only the owner makes schedules with /schedule. Ask the agent for one: it proposes it to them."
        )
    return await context.schedule(row, rest)


COMMANDS: dict[str, Command] = {
    "help": Command("what you can say to clawd itself", Role.MEMBER, _help),
    "status": Command("what is running and what waits", Role.MEMBER, _status),
    "stop": Command("stop what is running (/stop all: what waits, too)", Role.MEMBER, _stop),
    "new": Command("begin a new conversation", Role.MEMBER, _new),
    "model": Command(
        "which model answers; /model NAME, /model SERVICE/NAME, /model engine=E effort=L, /model reset",
        Role.OWNER,
        lambda *_: Done(""),
        _model,
    ),
    "usage": Command("what was used, and what is left", Role.MEMBER, lambda *_: Done(""), _usage),
    "context": Command("how much of the conversation is kept in view", Role.MEMBER, lambda *_: Done(""), _context),
    "compact": Command("have it hold less, without losing what matters", Role.ADMIN, _compact),
    "skills": Command("what the agent can use here", Role.MEMBER, lambda *_: Done(""), _skills),
    "pair": Command("pair another account of yours (the owner's)", Role.MEMBER, lambda *_: Done(""), _pair),
    "approve": Command("say yes to what you were asked; /approve NUMBER or ID", Role.OWNER, _approve, _approve_memory),
    "deny": Command("say no to it; /deny NUMBER or ID", Role.OWNER, _deny, _deny_memory),
    "schedule": Command(
        "what is scheduled here; /schedule every weekday at 9: say good morning",
        Role.MEMBER,
        lambda *_: Done(""),
        _schedule,
    ),
    "memory": Command(
        "what is remembered, and what waits for the owner; /memory search WORDS, /memory forget ID",
        Role.MEMBER,
        lambda *_: Done(""),
        _memory,
    ),
    "remember": Command("have something remembered; /remember TEXT", Role.MEMBER, lambda *_: Done(""), _remember),
}
