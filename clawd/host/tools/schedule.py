"""`schedule`: wakes that the group has later. What a turn makes acts as that turn for ever, and where that is not the
owner's own it is proposed to them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field

from clawd.clock import rfc3339
from clawd.config.load import load_group
from clawd.errors import NotFound, UsageError
from clawd.host.changes import is_own
from clawd.host.tools import Act, ToolContext
from clawd.ids import free
from clawd.ledger import authored, turns
from clawd.ledger.db import peek
from clawd.ledger.deliveries import Address, binding_of
from clawd.schedules import edits, listing, making, store

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction

NAME = "schedule"
DESCRIPTION = "Be woken with a prompt later or regularly; tool_help has more."
DECLARED = ("action", "when", "prompt")
HELP = (
    'action "add" (the default): `when` is words ("in 10 minutes", "every weekday at 9", "every first Monday at 10"), a'
    ' cron line, "every 20m" or "at 2026-12-01T09:00", in the group\'s time zone; `prompt` is what you are told then'
    ' ("Remind me: X" for a reminder), or `skill` the skill to use. Tell the person what was understood, with the next'
    " times. Runs are at least 15 minutes apart, and end after 180 days unless `until` says when. The answer goes to"
    " this chat, or to `deliver_to`, another one of this group; say NOTHING where there is nothing to tell. `session`"
    ' "own" keeps the runs out of the conversation. `check` is a command that is run in the sandbox first: the last'
    ' line that it prints is JSON, {"wake": true} or false. `jitter` ("10m") spreads runs; `catch_up` is what becomes'
    " of missed ones. Unless this turn is the owner's and nothing from outside has reached it, the owner is asked"
    " first: `waits`. Each run has the rights of this turn, never more.\n"
    'actions "list"; "remove", "pause", "resume" with `id`. A group has at most 50, and a turn changes 5.'
)


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    action: Literal["add", "list", "remove", "pause", "resume"] = "add"
    when: str = Field(default="", max_length=1000)
    prompt: str = Field(default="", max_length=20_000)
    skill: str = Field(default="", max_length=64)
    id: str = Field(default="", max_length=140, description="of what there is; with add a name for it")
    tz: str = Field(default="", max_length=64)
    session: Literal["", "group", "own"] = ""
    deliver_to: str = Field(default="", max_length=300, description="a binding, like telegram:-100123")
    check: str = Field(default="", max_length=4000)
    until: str = Field(default="", max_length=40, description="like 2027-01-31T18:00")
    jitter: str = Field(default="", max_length=20)
    catch_up: Literal["", "once", "skip", "all"] = ""
    catch_up_within: str = Field(default="", max_length=20)


async def prepare(context: ToolContext, arguments: Arguments) -> Act | dict[str, Any]:
    """Raises UsageError for what is not understood or may not be, NotFound."""
    if arguments.action == "list":
        return {"schedules": await to_thread.run_sync(_listed, context)}
    if arguments.action == "add":
        return await to_thread.run_sync(_adding, context, arguments)
    return await to_thread.run_sync(_changing, context, arguments)


def _adding(context: ToolContext, arguments: Arguments) -> Act:
    if not arguments.when.strip():
        raise UsageError('say when, as in "every weekday at 9"')
    name = edits.check_id(arguments.id) if arguments.id else ""
    more = arguments.model_dump(exclude={"action", "when", "id"})
    draft = making.drafted(arguments.when, more, context.zone, context.clock.now(), by_agent=True)
    group, others = context.group, load_group(context.home, context.group).bindings[1:]

    def add(tx: Transaction, effect_id: int) -> dict[str, Any]:
        row, fields = turns.get(tx, context.lease.turn), dict(draft.fields)
        if (here := binding_of(Address.of(row))) in others:  # to the first binding it goes by itself
            fields.setdefault("deliver_to", here)
        text = making.written(fields)
        open_ = {each["id"]: making.body(each["text"]) for each in listing.proposed(tx, group)}
        known = [id for id, proposed in open_.items() if proposed == text]  # it was proposed by an earlier turn
        there = {*store.stamps(_directory(context)), *open_}
        id = name or next(iter(known), "") or free(draft.id, lambda each: each not in there)
        trust = f", and is trusted at {row['taint']:g}" if row["taint"] < 1 else ""
        head = f"Made by the agent in turn {row['id']}, which acts for {row['authority']}{trust}."
        text = making.written(fields, head)
        sha256 = edits.digest(text)
        authored.note(tx, "schedule", group, id, sha256, row["id"], rfc3339(context.clock.now()))
        effect = {"group": group, "id": id, "action": "add", "text": text, "sha256": sha256}
        told = context.change(tx, "schedule", effect, f"schedule {id}")
        ends = {"until": listing.local(draft.until, draft.zone)} if draft.until is not None else {}
        dues = [listing.local(due, draft.zone) for due in draft.next]
        return {**told, "id": id, "understood": draft.said, "next": dues, **ends}

    return add


def _changing(context: ToolContext, arguments: Arguments) -> Act:
    group, action, now = context.group, arguments.action, rfc3339(context.clock.now())
    id = edits.check_id(arguments.id.removeprefix(f"{group}/"))
    text = edits.read(_directory(context), id)
    if text is None:
        waits = any(row["id"] == id for row in _listed(context))
        raise NotFound(f"there is no schedule {id}{'; it is only proposed, and the owner decides' if waits else ''}")
    sha256 = edits.digest(text)
    after = "" if action == "remove" else edits.switched(text, action == "resume", f"schedules/{id}.toml")

    def change(tx: Transaction, effect_id: int) -> dict[str, Any]:
        own = is_own(authored.of_agent(tx, "schedule", group, sha256), turns.get(tx, context.lease.turn))
        if after:
            authored.carry(tx, "schedule", group, sha256, edits.digest(after), now)
        effect = {"group": group, "id": id, "action": action, "text": text, "sha256": sha256}
        # What was put out of force may not come back without whoever may make it.
        return context.change(tx, "schedule", effect, f"{action} schedule {id}", own=own and action != "resume")

    return change


def _directory(context: ToolContext) -> Path:
    return context.home.group(context.group).schedules


def _listed(context: ToolContext) -> list[dict[str, Any]]:
    def read(tx: Transaction) -> list[dict[str, Any]]:
        return listing.of_group(tx, context.home, context.group, context.zone, context.clock.now())

    kept = ("tz", "next", "enabled", "proposed", "error")
    return [
        {"id": row["id"].rpartition("/")[2], "when": row["expr"], **{name: row[name] for name in kept if row[name]}}
        for row in peek(context.home.ledger_file, read) or []
    ]
