"""Jobs: what a room of the daemon asks a model for. The answer is checked against the room's schema, and what the room
does with it is committed together with the end of the job's turn; a job that fails for good is told to its room.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from clawd.clock import Clock, rfc3339
from clawd.errors import ClawdError, NotFound, findings
from clawd.ledger import jobs
from clawd.ledger.db import Ledger, Row, Transaction
from clawd.ledger.turns import Claim
from clawd.model import Authority
from clawd.trust import Role

log = logging.getLogger(__name__)

Answer = TypeVar("Answer", bound=BaseModel)

_FENCED = re.compile(r"^```[a-z]*[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_UNFIT = "the answer did not fit: "


@dataclass(frozen=True, slots=True)
class Job:
    """What was asked. `authority` is for whom its turn acted, and the trust of what it was asked with."""

    id: int
    group: str
    kind: str
    key: str
    authority: Authority


@dataclass(frozen=True, slots=True)
class Kind(Generic[Answer]):
    """What a room asks for. `done` runs in the transaction that ends the turn, and may refuse the answer by a
    ClawdError, whose sentence the next attempt is told; `failed` hears why there will be none. `after` hears that one
    of them is durable, unless a crash comes between."""

    schema: type[Answer]
    done: Callable[[Transaction, Job, Answer], None]
    failed: Callable[[Transaction, Job, str], None]
    after: Callable[[Job], None] = lambda job: None


class Jobs:
    """The jobs of all rooms. `engine` is what answers a group's turns, `wake` has a group's next turn claimed."""

    def __init__(
        self, ledger: Ledger, clock: Clock, engine: Callable[[str], str | None], wake: Callable[[str], None]
    ) -> None:
        self._ledger, self._clock, self._engine, self._wake = ledger, clock, engine, wake
        self._kinds: dict[str, Kind[Any]] = {}

    def register(self, name: str, kind: Kind[Any]) -> None:
        self._kinds[name] = kind

    async def ask(self, kind: str, group: str, key: str, prompt: str, authority: Role, taint: float) -> int:
        """Have a model of the group asked; gives the job's id. The same `key` again is the same job, whatever became of
        it. Raises ClawdError when the group's engine has no model, NotFound when there is no such group."""
        self._check(kind, group)
        now, acts = rfc3339(self._clock.now()), Authority(authority, taint)
        id = await self._ledger.do(lambda tx: jobs.put(tx, kind, group, key, prompt, acts, now))
        self._wake(group)
        return id

    def _check(self, kind: str, group: str) -> Kind[Any]:
        if kind not in self._kinds:
            raise NotFound(f"nobody asks for jobs of the kind {kind!r} any more")
        if self._engine(group) == "offline":
            raise ClawdError(
                f"group {group} has no model that could do this (its engine is offline)",
                hint=f"clawd groups set {group} model.engine messages",
            )
        return self._kinds[kind]

    async def described(self, claim: Claim) -> Claim:
        """A claimed job as its engine is given it: {prompt, schema}, with what was wrong with the last answer. Raises
        ClawdError when it cannot be done here."""
        row = await self._ledger.do(lambda tx: jobs.of(tx, claim.turn["id"]))
        schema = self._check(row["kind"], row["grp"]).schema.model_json_schema()
        prompt = f"{row['prompt']}\n\nAnswer with one JSON value of this schema and nothing else:\n{json.dumps(schema)}"
        if (row["error"] or "").startswith(_UNFIT):
            prompt += f"\n\nYou were asked before, and {row['error']}"
        parts = [{"kind": "typed", "origin": "system", "text": prompt}]
        wakes = [{**wake, "parts": parts} for wake in claim.wakes]
        return replace(claim, wakes=wakes, job={"prompt": prompt, "schema": schema})

    def take(self, tx: Transaction, turn: int, text: str) -> str | None:
        """Give the answer of a job's turn to its room; or give what is wrong with it, and nothing was changed."""
        row = jobs.of(tx, turn)
        kind = self._kinds[row["kind"]]  # it was there when the turn was handed out
        tx.execute("SAVEPOINT room")
        why = None
        try:
            answer = kind.schema.model_validate_json(json_of(text))
            jobs.answered(tx, row["id"], answer.model_dump_json())
            kind.done(tx, _job(row), answer)
        except ValidationError as error:
            why = findings(error, "the answer")
        except ClawdError as error:
            why = error.message
        except sqlite3.Error:
            raise
        except Exception as error:
            log.exception("the answer of job %s was not taken", row["id"])
            why = f"it could not be taken ({type(error).__name__}); this is a defect of clawd"
        if why is not None:
            tx.execute("ROLLBACK TO room")
        tx.execute("RELEASE room")
        return why and f"{_UNFIT}{why}"

    def over(self, row: Row) -> None:
        """The end of a job is durable."""
        if (kind := self._kinds.get(row["kind"])) is not None:
            kind.after(_job(row))

    def ended(self, tx: Transaction, turn: int) -> str | None:
        """A job's turn ended: its room hears of it when that brought nothing. Gives the sentence for the owner then."""
        row = jobs.of(tx, turn)
        if row["state"] == "answered":
            return None
        why = row["error"] or "it was stopped"
        if (kind := self._kinds.get(row["kind"])) is not None:
            kind.failed(tx, _job(row), why)
        return f"group {row['grp']}: the job {row['kind']!r} came to nothing: {why}"


def _job(row: Row) -> Job:
    acts = Authority(Role(row["authority"]), row["taint"])
    return Job(row["id"], row["grp"], row["kind"], row["key"], acts)


def json_of(text: str) -> str:
    """The JSON of an answer: what its first fence holds, or all of it."""
    fenced = _FENCED.search(text)
    return (fenced[1] if fenced else text).strip()
