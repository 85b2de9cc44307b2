"""Runs in the ledger: one life of a group's sandbox each."""

from __future__ import annotations

from clawd.ledger.db import Row, Transaction
from clawd.model import Authority


def begin(
    tx: Transaction,
    run: str,
    group: str,
    *,
    backend: str,
    directory: str,
    uid: int | None,
    token_hash: str,
    authority: Authority,
    now: str,
) -> None:
    """A run is about to be started: known before there is anything to find."""
    tx.insert(
        "run",
        id=run,
        grp=group,
        backend=backend,
        directory=directory,
        uid=uid,
        token_hash=token_hash,
        state="starting",
        authority=authority.role,
        taint=authority.taint,
        since=now,
    )


def started(tx: Transaction, run: str, handle: str) -> None:
    """The sandbox exists, and its backend finds it by this handle."""
    tx.execute("UPDATE run SET sandbox = ? WHERE id = ?", handle, run)


def ready(tx: Transaction, run: str) -> None:
    """The runner said hello."""
    tx.move("run", run, "hello")


def ended(tx: Transaction, run: str) -> None:
    """The sandbox is known dead and its socket closed."""
    row = tx.one("SELECT state FROM run WHERE id = ?", run)
    if row is not None and row["state"] != "gone":
        tx.move("run", run, "end")


def alive(tx: Transaction) -> list[Row]:
    """Runs that the ledger has not seen end."""
    return tx.all("SELECT * FROM run WHERE state <> 'gone' ORDER BY since")
