"""What of the ledger goes into a group's backup, and how it is put back: its sessions with what is known of their
windows, what its agent wrote, how far all of it may be trusted. Messages, turns and deliveries stay the present
ledger's: what was answered is not answered again, whatever a backup knows.

Trust never rises: of what the backup and the present say, the lower holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from clawd.errors import Refused, UsageError
from clawd.ids import check_session_id, choose_stem, is_job
from clawd.ledger import contexts, groups
from clawd.ledger.db import Transaction
from clawd.trust import Origin, Role, lowest

Rows = dict[str, list[dict[str, Any]]]
Known = dict[str, Any]

# What a group's rows of a table are, in the order in which they can be put back.
TABLES = {
    "grp": "SELECT * FROM grp WHERE name = ?",
    "session": "SELECT * FROM session WHERE grp = ? AND stem <> '' ORDER BY base, segment",
    "context": "SELECT * FROM context WHERE grp = ?",
    "pinned": "SELECT p.* FROM pinned p JOIN session s ON s.id = p.session WHERE s.grp = ? ORDER BY p.id",
    "compaction": "SELECT c.* FROM compaction c JOIN session s ON s.id = c.session WHERE s.grp = ? ORDER BY c.id",
    "journal": "SELECT j.* FROM journal j JOIN session s ON s.id = j.session WHERE s.grp = ? ORDER BY j.id",
    "injected": "SELECT * FROM injected WHERE grp = ? ORDER BY id",
    "authored": "SELECT * FROM authored WHERE grp = ?",
    "schedule": "SELECT * FROM schedule WHERE grp = ?",
    "remembering": "SELECT * FROM remembering WHERE grp = ?",
}
MOST_LINE = 16 << 20
_PEOPLE = 10_000
_WHY = "it was open in the backup that was restored"


# ── out ──


def write(tx: Transaction, group: str, file: Path) -> None:
    """The group's rows as lines of JSON: {table, row}."""
    with file.open("x", encoding="ascii") as out:
        for table, sql in TABLES.items():
            for row in tx.execute(sql, group):
                out.write(json.dumps({"table": table, "row": dict(row)}) + "\n")


def people(tx: Transaction, group: str | None) -> tuple[str, ...] | None:
    """Whose messages the ledger has (`telegram:7`); None for too many."""
    rows = tx.all(
        "SELECT DISTINCT channel, sender FROM inbound WHERE ?1 IS NULL OR grp = ?1 ORDER BY 1, 2 LIMIT ?2",
        group,
        _PEOPLE + 1,
    )
    return None if len(rows) > _PEOPLE else tuple(f"{row['channel']}:{row['sender']}" for row in rows)


def version(tx: Transaction) -> int:
    row = tx.one("PRAGMA user_version")
    assert row is not None
    return int(row[0])


def known(tx: Transaction, group: str | None) -> bytes:
    """What is known of trust now, of all groups or one: {groups{name: {authority, taint}}, sessions{id: {taint, seq,
    measured}}, authored[], sequences{table: n}}. A turn that is not over has its own fall counted in already."""
    standing = {row["name"]: [row["authority"], row["taint"]] for row in tx.all("SELECT * FROM grp")}
    open_turns = "SELECT grp, authority, taint FROM turn WHERE recorded_at IS NULL"
    for row in tx.all(f"{open_turns} UNION ALL SELECT grp, authority, taint FROM run WHERE state <> 'gone'"):
        authority, taint = standing[row["grp"]]
        standing[row["grp"]] = [lowest([Role(authority), Role(row["authority"])]), min(taint, row["taint"])]
    sessions = tx.all(
        "SELECT s.id, s.taint, COALESCE(c.seq, 0) AS seq, COALESCE(c.measured, 0) AS measured"
        " FROM session s LEFT JOIN context c ON c.session = s.id"
        " WHERE s.stem <> '' AND (?1 IS NULL OR s.grp = ?1)",
        group,
    )
    authored = tx.all("SELECT * FROM authored WHERE ?1 IS NULL OR grp = ?1", group)
    said = {
        "groups": {
            name: {"authority": authority, "taint": taint}
            for name, (authority, taint) in standing.items()
            if group in (None, name)
        },
        "sessions": {row["id"]: {name: row[name] for name in ("taint", "seq", "measured")} for row in sessions},
        "authored": [dict(row) for row in authored],
        "sequences": {row["name"]: row["seq"] for row in tx.all("SELECT name, seq FROM sqlite_sequence")},
    }
    return json.dumps(said).encode()


def is_of(line: bytes, group: str) -> bool:
    """Whether a line of the trust ledger is of the group."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("group") == group


# ── in ──


def read(file: BinaryIO, group: str) -> Rows:
    """The rows out of their lines. Raises Refused for what is none."""
    rows: Rows = {table: [] for table in TABLES}
    for line in iter(lambda: file.readline(MOST_LINE), b""):
        try:
            said = json.loads(line)
            rows[said["table"]].append(_row(said["row"]))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Refused("the archive's rows of the ledger cannot be read") from None
    _check(rows, group)
    return rows


def known_of(data: bytes) -> Known:
    """What `known` gave. Raises Refused for what is none."""
    try:
        said = json.loads(data)
        return {
            "groups": {
                str(name): {"authority": Role(each["authority"]), "taint": _share(each["taint"])}
                for name, each in said.get("groups", {}).items()
            },
            "sessions": {
                str(id): {
                    "taint": _share(each["taint"]),
                    "seq": _count(each["seq"]),
                    "measured": _count(each["measured"]),
                }
                for id, each in said.get("sessions", {}).items()
            },
            "authored": [
                _row(each) | {"authority": Role(each["authority"]), "taint": _share(each["taint"])}
                for each in said.get("authored", ())
            ],
            "sequences": {str(name): _count(each) for name, each in said.get("sequences", {}).items()},
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Refused("what the archive knows of trust cannot be read") from None


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError
    return float(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= 1 << 53:
        raise ValueError
    return value


def _row(said: Any) -> dict[str, Any]:
    if not isinstance(said, dict) or not all(isinstance(value, str | int | float | None) for value in said.values()):
        raise ValueError
    return said


def of_ledger(tx: Transaction, group: str) -> Rows:
    """The same out of a home's ledger."""
    rows = {table: [dict(row) for row in tx.all(sql, group)] for table, sql in TABLES.items()}
    _check(rows, group)
    return rows


def _check(rows: Rows, group: str) -> None:
    """Nothing in it is another group's."""
    try:
        ids = {check_session_id(row["id"]) for row in rows["session"]}
        own = all(row["name"] == group for row in rows["grp"]) and all(
            row["grp"] == group
            for table in ("session", "context", "injected", "authored", "schedule", "remembering")
            for row in rows[table]
        )
        sound = all(row["session"] in ids for table in ("context", "pinned", "compaction", "journal")
                    for row in rows[table])  # fmt: skip
        stems = all(_is_stem(row["stem"]) and not is_job(row["id"]) for row in rows["session"])
        trust = all(Role(row["authority"]) and 0 <= row["taint"] <= 1 for row in (*rows["grp"], *rows["authored"]))
        trust = trust and all(0 <= row["taint"] <= 1 for row in rows["session"])
        sound = sound and _sound_windows(rows)
    except (KeyError, ValueError, TypeError, AttributeError, UsageError, RecursionError):
        own = sound = stems = trust = False
    if not (own and sound and stems and trust):
        raise Refused("the archive's rows of the ledger are not a group's own")


_COUNTS = (
    "window",
    "cumulative",
    "step_index",
    "compact_count",
    "fruitless",
    "failures",
    "going_on",
    "seq",
    "measured",
)
_JSON: dict[str, type] = {
    "require_confirm": list, "told": list, "declined": dict, "refused": dict, "manifest": dict, "seed": dict,
}  # fmt: skip
_STATUSES = ("running", "phase_boundary", "awaiting_confirm", "stopped", *contexts.ENDED)
_GATES, _WISHES = (None, "seed", "confirm", "paused"), (None, "compact", "handoff")
_CLASSES = ("goal", "verified", "constraints", "blockers", "decisions", "next_safe_action")
_STATES = ("begun", "asked", "ready", "written", "failed")


def _sound_windows(rows: Rows) -> bool:
    """Whether what is known of windows is what a ledger of ours can have: a session that has something else would be
    settled, and answered, no more. Raises what `_check` catches."""
    return (
        all(
            row["status"] in _STATUSES
            and row["gate"] in _GATES
            and row["wanted"] in _WISHES
            and 0 <= row["taint"] <= 1
            and all(_count(row[name]) >= 0 for name in _COUNTS if name in row)
            and all(isinstance(json.loads(row[name]), of) for name, of in _JSON.items() if row.get(name) is not None)
            and all(
                isinstance(json.loads(row[name])["window"], int) for name in ("declined", "refused") if row.get(name)
            )
            for row in rows["context"]
        )
        and all(
            row["class"] in _CLASSES and Origin(row["origin"]) and 0 <= row["trust"] <= 1 and len(row["text"]) <= 4000
            for row in rows["pinned"]
        )
        and all(row["state"] in _STATES and 0 <= row["trust"] <= 1 for row in rows["compaction"])
        and all(
            row["kind"] in ("decisions", "metrics") and isinstance(json.loads(row["line"]), dict)
            for row in rows["journal"]
        )
    )


def _is_stem(stem: str) -> bool:
    return bool(stem) and "/" not in stem and "\0" not in stem and not stem.startswith(".")


def check(tx: Transaction, group: str, rows: Rows) -> None:
    """Raises Refused where an id of the backup is another group's now: an id belongs to one group for ever."""
    for row in rows["session"]:
        other = tx.one(
            "SELECT id, grp FROM session WHERE (id = ?1 OR base = ?2) AND grp <> ?3", row["id"], row["base"], group
        )
        if other is not None:
            raise Refused(
                f"session {row['id']!a} of the backup belongs to group {other['grp']!r} now, and an id belongs to one"
                " group for ever; nothing was changed",
                hint="restore into a home of its own: clawd init DIR, then clawd --home DIR backup restore",
            )


def put(tx: Transaction, group: str, rows: Rows, known: Known, now: str) -> list[str]:
    """Take the rows in. Done twice it changes nothing more. Gives sentences of what is not as it was."""
    check(tx, group, rows)
    tx.execute("PRAGMA defer_foreign_keys = ON")
    groups.add(tx, group, now)
    _stand(tx, group, rows, known)
    ids = {row["id"] for row in rows["session"]}
    notes = _set_aside(tx, group, rows, ids)
    for row in rows["session"]:
        _session(tx, row, known)
    _windows(tx, rows, ids, known)
    settle_windows(tx, now, group)
    for each in rows["injected"]:
        of = each.get("joined")  # whose blocks have what it brought
        row = {name: value for name, value in each.items() if name != "id"} | {"joined": None}
        row["state"] = "recorded" if row["state"] == "recorded" or of is not None else "whole"
        _insert(tx, "injected", row, "OR IGNORE")
    for row in (*rows["authored"], *(each for each in known.get("authored", ()) if each.get("grp") == group)):
        authored(tx, row)
    for row in rows["schedule"]:
        if tx.one("SELECT 1 FROM schedule WHERE grp = ? AND id = ?", group, row["id"]) is None:
            _insert(tx, "schedule", row | {"last_due": now, "next": None}, "OR IGNORE")
    for row in rows["remembering"]:
        _insert(tx, "remembering", row, "OR IGNORE")
        later = "NULLIF(MAX(COALESCE(forgot, ''), COALESCE(?, '')), '')"
        tx.execute(f"UPDATE remembering SET forgot = {later} WHERE grp = ?", row["forgot"], group)
    for table in ("seen", "changed", "watching"):  # they lie there anew: nobody is told of each file
        tx.execute(f"DELETE FROM {table} WHERE grp = ?", group)
    for table in ("turn", "compaction"):  # numbers that stand in its files
        raise_sequence(tx, table, known.get("sequences", {}).get(table, 0))
    return notes


def _stand(tx: Transaction, group: str, rows: Rows, known: Known) -> None:
    """What its work tree has fallen to: the lowest that anybody says."""
    for row in (*rows["grp"], known.get("groups", {}).get(group)):
        if row is not None:
            groups.fall(tx, group, Role(row["authority"]), row["taint"])
    if any(row.get("others") for row in rows["grp"]):
        tx.execute("UPDATE grp SET others = 1 WHERE name = ?", group)


def _set_aside(tx: Transaction, group: str, rows: Rows, ids: set[str]) -> list[str]:
    """Sessions that began after the backup: their files are gone with the folder that was replaced, their ids stay. A
    conversation goes on with the newest segment that was restored."""
    bases, stems = {row["base"] for row in rows["session"]}, {row["stem"] for row in rows["session"]}
    newer = tx.all("SELECT * FROM session WHERE grp = ? AND stem <> ''", group)
    aside = [row for row in newer if row["id"] not in ids]
    tx.execute("UPDATE context SET parent = NULL, successor = NULL WHERE grp = ?", group)
    for row in aside:
        for table in ("journal", "pinned", "compaction", "context"):
            tx.execute(f"DELETE FROM {table} WHERE session = ?", row["id"])
        stem = choose_stem(row["id"], stems) if row["stem"] in stems else row["stem"]
        stems.add(stem)
        base, segment = (row["id"], 1) if row["base"] in bases else (row["base"], row["segment"])
        tx.execute("UPDATE session SET base = ?, segment = ?, stem = ? WHERE id = ?", base, segment, stem, row["id"])
    if not aside:
        return []
    return [f"{len(aside)} sessions began after the backup: they are empty now, their files lie in what was replaced"]


def _session(tx: Transaction, row: Mapping[str, Any], known: Known) -> None:
    taint = min(row["taint"], known.get("sessions", {}).get(row["id"], {}).get("taint", 1.0))
    old = tx.one("SELECT * FROM session WHERE id = ?", row["id"])
    if old is None:
        _insert(tx, "session", {**row, "taint": taint})
        return
    tx.execute(
        "UPDATE session SET base = ?, segment = ?, stem = ?, turns = MAX(turns, ?), taint = MIN(taint, ?) WHERE id = ?",
        *(row["base"], row["segment"], row["stem"], row["turns"], taint, row["id"]),
    )


def _windows(tx: Transaction, rows: Rows, ids: set[str], known: Known) -> None:
    """What was known of the sessions' windows. A compaction keeps its number where nobody else has it: it stands in the
    session's file."""
    for id in ids:
        for table in ("journal", "pinned", "compaction", "context"):
            tx.execute(f"DELETE FROM {table} WHERE session = ?", id)
    for row in rows["context"]:
        said = known.get("sessions", {}).get(row["session"], {})
        last = {name: max(row.get(name, 0), said.get(name, 0)) for name in ("seq", "measured")}  # in its files, perhaps
        linked = {name: row.get(name) if row.get(name) in ids else None for name in ("parent", "successor")}
        _insert(tx, "context", {**row, **linked, **last, "dirty": 1})
    for table in ("pinned", "compaction", "journal"):
        for row in rows[table]:
            free = tx.one(f"SELECT 1 FROM {table} WHERE id = ?", row["id"]) is None
            _insert(tx, table, {name: value for name, value in row.items() if free or name != "id"})


def settle_windows(tx: Transaction, now: str, group: str | None = None) -> None:
    """Nobody works on a compaction any more, and nobody is asked about one; of all groups, or of one."""
    of = "(SELECT id FROM session WHERE ?1 IS NULL OR grp = ?1)"
    tx.execute(
        "UPDATE compaction SET state = 'failed', job = NULL, error = ?2, ended = ?3"
        f" WHERE state IN ('begun', 'asked') AND session IN {of}",
        *(group, _WHY, now),
    )
    tx.execute(f"UPDATE context SET confirm = NULL, dirty = 1 WHERE confirm IS NOT NULL AND session IN {of}", group)
    tx.execute(
        "UPDATE context SET gate = NULL, dirty = 1, status = CASE status WHEN 'awaiting_confirm' THEN 'running' ELSE"
        f" status END WHERE (gate = 'confirm' OR status = 'awaiting_confirm') AND session IN {of}",
        group,
    )


def authored(tx: Transaction, row: Mapping[str, Any]) -> None:
    """What an agent wrote stays that agent's."""
    old = tx.one("SELECT * FROM authored WHERE kind = ? AND grp = ? AND sha256 = ?", row["kind"], row["grp"],
                 row["sha256"])  # fmt: skip
    if old is None:
        _insert(tx, "authored", row)
        return
    tx.execute(
        "UPDATE authored SET authority = ?, taint = ? WHERE kind = ? AND grp = ? AND sha256 = ?",
        lowest([Role(old["authority"]), Role(row["authority"])]),
        min(old["taint"], row["taint"]),
        *(row["kind"], row["grp"], row["sha256"]),
    )


def raise_sequence(tx: Transaction, table: str, least: int) -> None:
    """No number up to this one is given again."""
    old = tx.one("SELECT seq FROM sqlite_sequence WHERE name = ?", table)
    if old is None:
        tx.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", table, least)
    elif old["seq"] < least:
        tx.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", least, table)


def _insert(tx: Transaction, table: str, row: Mapping[str, Any], how: str = "") -> None:
    """A row of this schema or an earlier one: what a column did not have then is its default."""
    columns = [each["name"] for each in tx.all(f"PRAGMA table_info({table})") if each["name"] in row]
    marks = ", ".join("?" * len(columns))
    tx.execute(f"INSERT {how} INTO {table} ({', '.join(columns)}) VALUES ({marks})", *(row[name] for name in columns))
