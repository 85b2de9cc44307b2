"""What the files of groups say of schedules, against what is known of them: what to take up, and what is gone. Reads
alone, in any thread."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.config.load import machine_zone
from clawd.errors import ClawdError
from clawd.ledger.db import Row
from clawd.ledger.firings import HEARTBEAT, Taken
from clawd.schedules import store

_TIMING = ("cron", "every", "at", "tz", "enabled")  # what makes it due at other times
_SAYS = (b"timezone", b"heartbeat")  # tables and keys of a group.toml that schedules hang on


@dataclass(slots=True)
class Look:
    """What is to change of a group's schedules. `touched`: (id, stamp) of files that say what they said. `wrong`:
    sentences for its people, for each file that was not wrong before, or not so."""

    group: str
    taken: list[Taken] = field(default_factory=list)
    touched: list[tuple[str, str]] = field(default_factory=list)
    vanished: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def changes(self) -> bool:
        return bool(self.taken or self.touched or self.vanished)


class Files:
    """Of every group of a home."""

    def __init__(self, home: Home, config: LiveConfig, most: int = store.MOST) -> None:
        self._home, self._config, self._most = home, config, most

    def changes(self, groups: Sequence[tuple[str, Sequence[Row]]], now: str) -> list[Look]:
        """Of groups with the rows of their schedules: where something is to change."""
        return [look for group, known in groups if (look := self.look(group, known, now)).changes]

    def look(self, group: str, known: Sequence[Row], now: str) -> Look:
        """`known` are the rows of the group's schedules."""
        found, rows = Look(group), {row["id"]: row for row in known}
        folder = self._home.group(group)
        stamps = store.stamps(folder.schedules)
        zone, beat = self._settings(group) if stamps or (folder.config_file.exists()) else (None, None)
        self._heartbeat(found, rows.pop(HEARTBEAT, None), zone, beat, now)
        twins = store.twins(stamps, rows)
        over = set(sorted(stamps, key=lambda id: (id not in rows, id))[self._most :])
        found.vanished += [id for id in rows if id not in stamps]
        for id, stamp in stamps.items():
            row = rows.get(id)
            its = zone or (row and row["zone"]) or self._config.current.claw.timezone or machine_zone()
            moved = row is not None and row["zone"] not in (None, its) and row["own"] is None
            refused = id in twins or id in over
            if row is not None and stamp and row["stamp"] == stamp and not moved and not refused:
                continue
            shown = f"groups/{group}/schedules/{id}.toml"
            if id in twins:
                read = store.Read("", None, f"{shown}: its name and that of {twins[id]} differ in case alone")
            elif id in over:
                read = store.Read("", None, f"{shown}: a group may have {self._most} schedules")
            else:
                try:
                    read = store.read(folder.schedules, id, its, shown)
                except FileNotFoundError:
                    if row is not None:
                        found.vanished.append(id)
                    continue
            self._compare(found, row, id, "" if refused else stamp, read, moved, now)
        self._renamed(found, rows)
        return found

    def _compare(
        self, found: Look, row: Row | None, id: str, stamp: str, read: store.Read, moved: bool, now: str
    ) -> None:
        if (
            row is not None
            and read.error == row["error"]
            and (read.error is not None or (read.sha256 == row["sha256"] and not moved))
        ):
            if stamp != row["stamp"]:
                found.touched.append((id, stamp))
            return
        if read.error is not None:
            holds = "; what it said before still holds" if row is not None and row["facts"] else ""
            found.wrong.append(f"The schedule {found.group}/{id} is not taken up{holds}: {read.error}")
        since = now if row is None or moved or _is_due_otherwise(row["facts"], read.facts) else None
        found.taken.append(Taken(id, stamp, read.sha256, read.facts, read.error, since))

    def _renamed(self, found: Look, rows: Mapping[str, Row]) -> None:
        """A file that has another name now goes on as what it was."""
        gone = {rows[id]["sha256"]: id for id in found.vanished if id in rows and rows[id]["facts"]}
        for at, taken in enumerate(found.taken):
            if taken.id not in rows and taken.error is None and (before := gone.pop(taken.sha256, None)) is not None:
                found.taken[at] = Taken(taken.id, taken.stamp, taken.sha256, taken.facts, None, taken.since, before)

    def _settings(self, group: str) -> tuple[str | None, Mapping[str, Any] | None]:
        """(zone, heartbeat) of a group; None for what cannot be known just now. Most files say nothing of either, and
        are not parsed."""
        plain = self._config.current.claw.timezone or machine_zone()
        try:
            if not self._home.group(group).says(*_SAYS):
                return plain, {}
        except FileNotFoundError:
            return plain, {}
        except OSError:
            return None, None
        with suppress(ClawdError):
            settings = self._config.for_group(group)
            if self._config.problem_of(group) is None:
                return settings.timezone, settings.group.heartbeat.model_dump(mode="json")
        return None, None

    def _heartbeat(
        self, found: Look, row: Row | None, zone: str | None, beat: Mapping[str, Any] | None, now: str
    ) -> None:
        if beat is None and zone is None and self._home.group(found.group).config_file.exists():
            return  # nobody knows
        if not beat or beat["hours"] is None:
            found.vanished += [HEARTBEAT] if row is not None else []
            return
        stamp = json.dumps([beat, zone], sort_keys=True)
        if row is None or row["stamp"] != stamp:
            facts = {"heartbeat": dict(beat), "zone": zone, "said": f"{beat['hours']} every {beat['every']}"}
            sha256 = hashlib.sha256(stamp.encode()).hexdigest()
            found.taken.append(Taken(HEARTBEAT, stamp, sha256, facts, None, now))


def _is_due_otherwise(before: str | None, facts: Mapping[str, Any] | None) -> bool:
    """Whether what a file says of time is another than before: then what lay behind is not due by it."""
    if before is None or facts is None:
        return facts is not None
    old, new = json.loads(before)["file"], facts["file"]
    return any(old.get(name) != new.get(name) for name in _TIMING)
