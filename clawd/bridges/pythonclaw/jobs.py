"""PythonClaw's cron jobs as our schedules, and ours as its. Pure.

    jobs.yaml          jobs: [{id, cron, prompt, deliver_to: telegram, chat_id, enabled: true}]
    dynamic_jobs.json  {id: {cron, prompt, deliver_to, chat_id}}

Its cron lines are APScheduler's: a day and a weekday must both match, a step behind a named weekday or month counts for
nothing, `*/2` of weekdays begins on Monday, there are only the machine's clock and no `@daily`. Numbers of weekdays
were a day late before 0.7 (0 was Monday).

Source: pythonclaw 0.7.2, scheduler/cron.py; apscheduler 3, triggers/cron.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clawd.bridges.pythonclaw.forms import quoted
from clawd.errors import ClawdError, UsageError
from clawd.ids import free
from clawd.schedules import times
from clawd.schedules.file import ID, ScheduleFile, parse_schedule
from clawd.schedules.making import name_of, written

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MOST = 1000  # jobs of one file
_NUMBERS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")  # a cron line's
_TERM = re.compile(r"(\*|\w+)(?:-(\w+))?(?:/(\d+))?", re.ASCII)
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12))
_TOLD = 80


@dataclass(frozen=True, slots=True)
class Job:
    """As PythonClaw has it, of any types; `where` says in which file and as which."""

    where: str
    fields: Mapping[str, Any]
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Schedule:
    id: str
    where: str
    text: str
    changed: tuple[str, ...] = ()


def of_yaml(data: bytes, where: str) -> list[Job]:
    """The jobs of jobs.yaml. Raises UsageError, whose message completes "…: "."""
    import yaml

    try:
        said = yaml.load(data.decode("utf-8", "replace"), Loader=_loader(yaml))
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError, TypeError, AttributeError) as error:
        mark = getattr(error, "problem_mark", None)
        raise UsageError(
            "it is no YAML that can be understood" + (f" (line {mark.line + 1})" if mark else "")
        ) from None
    jobs = said.get("jobs") if isinstance(said, dict) else None
    if not isinstance(jobs, list):
        if said is None or (isinstance(said, dict) and jobs is None):
            return []
        raise UsageError("it has no list of jobs")
    if len(jobs) > MOST:
        raise UsageError(f"it has more than {MOST:,} jobs")
    return [
        Job(f"{where}: {_word(each.get('id', f'job {n}'))}", each, bool(each.get("enabled", True)))
        if isinstance(each, dict) else Job(f"{where}: job {n}", {})
        for n, each in enumerate(jobs, 1)
    ]  # fmt: skip


def of_json(data: bytes, where: str) -> list[Job]:
    """The jobs of dynamic_jobs.json. Raises UsageError."""
    try:
        said = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise UsageError("it is no JSON") from None
    if not isinstance(said, dict):
        raise UsageError("it is no JSON object")
    if len(said) > MOST:
        raise UsageError(f"it has more than {MOST:,} jobs")
    return [
        Job(f"{where}: {_word(id)}", {**each, "id": id} if isinstance(each, dict) else {}) for id, each in said.items()
    ]


def schedule(job: Job, zone: str, taken: Collection[str] = ()) -> Schedule:
    """The same as a schedule of ours; `zone` is the machine's, the only one that PythonClaw knows. Raises UsageError
    with why there is none, as a sentence's end."""
    cron, prompt, said = job.fields.get("cron"), job.fields.get("prompt"), _text(job.fields.get("id"))
    if not isinstance(cron, str) or not isinstance(prompt, str) or not cron.strip() or not prompt.strip():
        raise UsageError("it has no cron line, or no prompt: PythonClaw passes it over, too")
    line, changed = translated(cron)
    id = free(_id(said, prompt), lambda each: each not in taken)
    if id != said:
        changed.append(f"it was called {said[:_TOLD]!a}")
    to, chat = job.fields.get("deliver_to"), job.fields.get("chat_id")
    if to:
        changed.append(
            f"its answers went to {_word(to)}, chat {_word(chat)}: here they go to the group's first chat "
            "unless its file says deliver_to"
        )
    changed.append(f"its times are read as the machine's, {zone}: PythonClaw knows no other zone")
    fields = {"cron": line, "tz": zone, "prompt": prompt, "session": "own", "catch_up": "skip"}
    try:
        text = written({**fields, "enabled": job.enabled})
        times.rule_of(parse_schedule(text, "the schedule"), zone)
    except ClawdError as error:
        raise UsageError(f"its cron line {cron[:_TOLD]!a} cannot be used: {error.message}") from None
    return Schedule(id, job.where, text, tuple(changed))


def translated(cron: str) -> tuple[str, list[str]]:
    """The line that is due when PythonClaw would run this one, and what is to be said of it. Raises UsageError with why
    there is none."""
    fields = cron.strip().lower().split()
    if len(fields) != 5:
        raise UsageError(f"its cron line {cron[:_TOLD]!a} has {len(fields)} fields, not five: PythonClaw refuses it")
    minute, hour, day, month, weekday = fields
    said = list[str]()
    if re.search(r"[a-z]/", f"{month} {weekday}") or re.search(r"\d(-\d+)?/", weekday):
        said.append("a step behind a weekday or a month by name counts for nothing in PythonClaw, and none is written")
    if re.search(r"(?<!/)\b\d", weekday):
        said.append(
            "numbers of weekdays are read as PythonClaw 0.7 has them (0 is Sunday); before, it ran them a day later"
        )
    days = _weekdays(weekday, said)
    month = re.sub(r"([a-z]{3}(?:-[a-z]{3})?)/\d+", r"\1", month)
    day = re.sub(r"\blast\b", "L", day)
    if day != "*" and days != "*" and not day.startswith("*"):
        raise UsageError("it is due where day and weekday both match, which a cron line cannot say")
    return " ".join((minute, hour, day, month, days)), said


def _weekdays(field: str, said: list[str]) -> str:
    """The weekdays by name, Monday first; `*` for all. Raises UsageError."""
    if field == "*":
        return "*"
    found = set[int]()
    for term in field.split(","):
        match = _TERM.fullmatch(term)
        if match is None:
            raise UsageError(f"its weekdays {field[:_TOLD]!a} cannot be read")
        first, last, step = match.groups()
        if first == "*":
            found |= {*range(0, 7, max(1, int(step or 1)))}
            continue
        start, end = _day(first), _day(last or first)
        if start > end:
            said.append("PythonClaw refuses a range of weekdays that goes beyond Sunday: it is read as it was meant")
        found |= {each % 7 for each in range(start, end + 1 if start <= end else end + 8)}
    return "*" if len(found) == 7 else ",".join(DAYS[each] for each in sorted(found))


def _day(word: str) -> int:
    """Monday is 0."""
    name = _NUMBERS[int(word) % 7] if word.isdigit() and len(word) == 1 and word < "8" else word
    if name not in DAYS:
        raise UsageError(f"its cron line names the weekday {word[:_TOLD]!a}, which there is not")
    return DAYS.index(name)


def _id(said: str, prompt: str) -> str:
    id = re.sub(r"[^A-Za-z0-9_-]+", "-", said).strip("-_")[:60]
    return id if re.fullmatch(ID, id) else name_of(prompt)


def _word(value: Any) -> str:
    return ascii(_text(value)[:_TOLD])[1:-1]


def _text(value: Any) -> str:
    """A scalar as text: a list of lists of aliases would be one without end."""
    try:
        return str(value) if isinstance(value, str | int | float) else ""
    except ValueError:  # more digits than Python shows
        return ""


def _loader(yaml: Any) -> Any:
    return yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


# ── ours, for PythonClaw ──


def job(id: str, file: ScheduleFile, zone: str, machine: str) -> tuple[dict[str, Any], list[str]]:
    """One as PythonClaw's cron has it, and what of it is lost. Raises UsageError with why it can have none."""
    rule = times.rule_of(file, zone)
    if rule.cron is None:
        raise UsageError("PythonClaw's cron knows no spans, and nothing that is due once")
    if rule.zone != machine:
        raise UsageError(
            f"PythonClaw knows the machine's clock alone ({machine}), and it is due by that of {rule.zone}"
        )
    if rule.until is not None:
        raise UsageError("it ends, and PythonClaw's cron has no end")
    if file.check:
        raise UsageError("it runs a command first, which PythonClaw's cron cannot")
    lost = [
        f"{name} has no counterpart there"
        for name in ("deliver_to", "budget")
        if getattr(file, name) is not None
    ]  # fmt: skip
    if file.jitter not in ("0s", "0"):
        lost.append("jitter has no counterpart there")
    if file.catch_up != "skip":
        lost.append("a run that is missed is not made up for there")
    prompt = file.prompt
    if not prompt.strip():
        prompt = f"Use the skill {file.skill}."
    return {"id": id, "cron": its_line(rule.cron), "prompt": prompt, "enabled": file.enabled}, lost


def its_line(cron: str) -> str:
    """A line for PythonClaw that is due when ours is. Raises UsageError with why there is none."""
    fields = times.fields_of(cron)
    walls = times.line(cron)
    if not (fields[2].startswith("*") or fields[4].startswith("*")):
        raise UsageError("it is due where day or weekday matches, and in PythonClaw both must")
    if any(isinstance(each, tuple) for each in walls.weekdays) or "W" in fields[2].upper():
        raise UsageError("PythonClaw's cron cannot say its weekdays")
    weekdays = {(each - 1) % 7 for each in walls.weekdays if isinstance(each, int)}
    names = "*" if len(weekdays) == 7 else ",".join(DAYS[each] for each in sorted(weekdays))
    sets: tuple[Iterable[int], ...] = (walls.minutes, walls.hours, walls.days, walls.months)
    plain = [_numbers(place, fields[place], sets[place]) for place in range(4)]
    return " ".join((*plain, names))


def _numbers(place: int, field: str, values: Iterable[int]) -> str:
    """The field as it stands where both read it alike, else its values."""
    low, high = _RANGES[place]
    if field.upper() == "L":
        return "last"
    step = re.fullmatch(r"\*/(\d+)", field)
    if field == "*" or re.fullmatch(r"\d+(?:-\d+)?", field) or (step and 0 < int(step[1]) <= high - low):
        return field
    if any(each < low for each in values):
        raise UsageError("PythonClaw's cron cannot say its days")
    return ",".join(map(str, sorted(values)))


def yaml_bytes(jobs: Iterable[Mapping[str, Any]]) -> bytes:
    """jobs.yaml: each value is JSON, which is YAML."""
    lines = ["jobs:"] if (jobs := list(jobs)) else ["jobs: []"]
    for each in jobs:
        pairs = [f"{key}: {quoted(value)}" for key, value in each.items()]
        lines += [f"  - {pairs[0]}", *(f"    {pair}" for pair in pairs[1:])]
    return ("\n".join(lines) + "\n").encode()


def json_bytes(jobs: Iterable[Mapping[str, Any]]) -> bytes:
    """dynamic_jobs.json, as PythonClaw writes it."""
    said = {
        each["id"]: {"cron": each["cron"], "prompt": each["prompt"], "deliver_to": None, "chat_id": None}
        for each in jobs
    }
    return json.dumps(said, indent=2, ensure_ascii=False).encode()
