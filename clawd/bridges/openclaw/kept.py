"""Conversations and jobs of OpenClaw, in files of its older versions and in databases of its newer ones.

How they lie (repository openclaw/openclaw):
- `agents/<id>/sessions/sessions.json`, a table of session keys with their `sessionId`, and `<sessionId>.jsonl`, whose
  lines have a `type`: `session`, `message` with {role: user, assistant or toolResult, content: text or parts,
  timestamp, toolCallId}, `compaction` with a `summary`, and others (docs/reference/session-management-compaction.md;
  parts and fields are those of badlogic/pi-mono, packages/coding-agent/docs/session.md);
- later the same lines as `event_json` of `transcript_events(session_id, seq)`, and `session_nodes(session_key,
  current_session_id)`, in `agents/<id>/agent/openclaw-agent.sqlite` (src/state/openclaw-agent-schema.sql);
- `cron/jobs.json`: {jobs: [{id, or once jobId, agentId, name, enabled, schedule: {kind: at, every or cron, at, once
  atMs, everyMs, expr, tz}, sessionTarget, payload: {kind: systemEvent with text, or agentTurn with message}, delivery:
  {mode, channel, to}}]} (src/cron/types.ts, docs/automation/cron-jobs.md); since 2026.6.1 the table `cron_jobs` of
  `state/openclaw.sqlite` (src/state/openclaw-state-schema.sql).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from clawd.bridges import loose
from clawd.bridges.foreign import talks
from clawd.bridges.foreign.bringing import Bringing
from clawd.bridges.foreign.jobs import Job, delivered
from clawd.bridges.foreign.place import DATA, rows, table, text_of
from clawd.bridges.foreign.tables import cell, flag, opened
from clawd.model import Block

_OTHERS = (":group:", ":channel:", ":room:")  # in the key of a session in which others speak
_OF_SYSTEM = ("heartbeat", "wake", "skillCollectionReview")
_COLUMNS = (
    *("job_id", "agent_id", "name", "enabled", "session_target", "schedule_kind", "schedule_expr", "schedule_tz"),
    *("every_ms", "at", "trigger_script", "payload_kind", "payload_message", "delivery_mode", "delivery_channel"),
    "delivery_to",
)


def sessions(bringing: Bringing, group: str, agent: str) -> None:
    """The sessions of an agent, whose folder is `agent`."""
    place, seen = bringing.place, set[str]()
    database = f"{agent}/agent/openclaw-agent.sqlite"
    with opened(place, database) as tables:
        if tables is not None:
            keys = {
                cell(row, "current_session_id"): cell(row, "session_key")
                for row in tables.rows("session_nodes", ("session_key", "current_session_id"))
            }
            events = dict[str, list[tuple[float, str]]]()
            for row in tables.rows(
                "transcript_events", ("session_id", "seq", "event_json", "created_at"), newest="created_at"
            ):
                seq = row["seq"] if isinstance(row.get("seq"), int | float) else 0
                events.setdefault(cell(row, "session_id"), []).append((seq, cell(row, "event_json")))
            for id, lines in sorted(events.items()):
                seen.add(id)
                _session(bringing, group, f"{database}#{id}", keys.get(id, id), [line for _, line in sorted(lines)])
    folder = f"{agent}/sessions"
    index = table(place.json(f"{folder}/sessions.json"))
    keys = {text_of(table(entry).get("sessionId")): key for key, entry in index.items()}
    for path in place.files(folder, deepest=0):
        name = path.rpartition("/")[2]
        id = name.removesuffix(".jsonl")
        if name == "sessions.json" or id in seen:
            continue
        if id == name:
            place.leave(path, "it is put aside, or no conversation")
        elif (found := place.text(path, DATA)) is not None:
            _session(bringing, group, path, keys.get(id, id), found.text.split("\n"))


def _session(bringing: Bringing, group: str, source: str, key: str, lines: Iterable[str]) -> None:
    blocks, broken = list[Block](), 0
    for line in lines:
        if not line.strip():
            continue
        try:
            entry = loose.read(line)
        except loose.NotJson:
            entry = None
        if not isinstance(entry, dict):
            broken += 1
        elif (block := _block(entry, owner=not any(each in key for each in _OTHERS))) is not None:
            blocks.append(block)
    said = talks.unread(broken)
    bringing.talks.add(group, source, key, blocks, *said)


def _block(entry: dict[str, Any], *, owner: bool) -> Block | None:
    """What a line says; None for what is no message."""
    if entry.get("type") == "compaction" and text_of(entry.get("summary")):
        return talks.said(
            "system", f"[summary of what was before]\n\n{text_of(entry['summary'])}", entry.get("timestamp")
        )
    if entry.get("type") != "message":
        return None
    message = table(entry.get("message"))
    role, content = message.get("role"), message.get("content")
    at = message.get("timestamp") or entry.get("timestamp")
    if role == "toolResult":
        return talks.result(message.get("toolCallId"), talks.words(content), at)
    if role == "user":
        return talks.said("user", talks.words(content), at, owner=owner)
    if role != "assistant":
        return None
    calls = [
        talks.call(part.get("id"), part.get("name"), part.get("arguments", part.get("input", {})))
        for part in rows(content)
        if part.get("type") in ("toolCall", "tool_use")
    ]
    return talks.called(talks.words(content), at, calls) if calls else talks.said("assistant", talks.words(content), at)


def jobs(bringing: Bringing, agents: Mapping[str, str], main: str) -> None:
    """The jobs of all agents; those that the database has are newer than the file's."""
    path = "state/openclaw.sqlite"
    with opened(bringing.place, path) as tables:
        for row in tables.rows("cron_jobs", _COLUMNS) if tables is not None else []:
            _job(bringing, _of_row(row), path, agents, main)
    if bringing.place.kind("cron/jobs.json"):
        for job in rows(table(bringing.place.json("cron/jobs.json")).get("jobs")):
            _job(bringing, job, "cron/jobs.json", agents, main)


def _of_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the file has it."""
    named = ("channel", "to", "mode")
    return {
        "id": cell(row, "job_id"),
        "agentId": cell(row, "agent_id"),
        "name": cell(row, "name"),
        "enabled": flag(row, "enabled"),
        "sessionTarget": cell(row, "session_target"),
        "script": cell(row, "trigger_script"),
        "schedule": {
            "kind": cell(row, "schedule_kind"),
            "expr": cell(row, "schedule_expr"),
            "tz": cell(row, "schedule_tz"),
            "everyMs": row.get("every_ms"),
            "at": cell(row, "at"),
        },
        "payload": {"kind": cell(row, "payload_kind"), "message": cell(row, "payload_message")},
        "delivery": {name: cell(row, f"delivery_{name}") for name in named},
    }


def _job(bringing: Bringing, job: dict[str, Any], path: str, agents: Mapping[str, str], main: str) -> None:
    id = text_of(job.get("id")) or text_of(job.get("jobId"))
    schedule, payload = table(job.get("schedule")), table(job.get("payload"))
    source, kind, does = f"{path}#{id}", text_of(schedule.get("kind")), text_of(payload.get("kind"))
    if does in _OF_SYSTEM:
        bringing.place.leave(source, "OpenClaw makes it by itself")
        return
    if does not in ("systemEvent", "agentTurn"):
        bringing.place.leave(source, "it runs a command, and asks no agent")
        return
    at = text_of(schedule.get("at")) or text_of(schedule.get("atMs"))
    value = {"cron": schedule.get("expr"), "every": schedule.get("everyMs"), "at": _utc(at)}
    if kind not in value:
        bringing.place.leave(source, "it is not due by a clock")
        return
    bringing.jobs.add(
        Job(
            id,
            source,
            agents.get(text_of(job.get("agentId")), main),
            kind,  # type: ignore[arg-type]
            value[kind],
            text_of(payload.get("message")) or text_of(payload.get("text")),
            text_of(job.get("name")),
            text_of(schedule.get("tz")) if kind == "cron" else "",
            job.get("enabled") is not False,
            own=job.get("sessionTarget") == "isolated",
            said=delivered(job.get("delivery") or payload),
            scripted=bool(job.get("script") or job.get("trigger")),
        )
    )


def _utc(at: str) -> str:
    """A moment without a zone is one of UTC there."""
    bare = re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+", at)
    return f"{at}Z" if bare else at
