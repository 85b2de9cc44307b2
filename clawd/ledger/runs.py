"""Runs in the ledger: one life of a group's sandbox each."""

from __future__ import annotations

from clawd.channel import ChannelLimits
from clawd.ledger import deliveries
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
    authority: Authority,
    now: str,
    home: str | None = None,
) -> None:
    """A run is about to be started: known before there is anything to find. It has no token before its hello."""
    tx.insert(
        "run",
        id=run,
        grp=group,
        backend=backend,
        directory=directory,
        uid=uid,
        token_hash="",
        state="starting",
        authority=authority.role,
        taint=authority.taint,
        since=now,
        home=home,
    )


def started(tx: Transaction, run: str, handle: str, work: str) -> None:
    """The sandbox exists, its backend finds it by this handle, and `work` is the directory that it works in. From now
    on a later daemon can go on with it."""
    tx.execute("UPDATE run SET sandbox = ?, work = ? WHERE id = ?", handle, work, run)


def ready(tx: Transaction, run: str, *, token_hash: str, pid: int, start: int, parallel: int) -> None:
    """The runner said hello, and is known from now on; once more when it did not hear the answer."""
    if _state(tx, run) == "starting":
        tx.move("run", run, "hello")
    tx.execute(
        "UPDATE run SET token_hash = ?, runner_pid = ?, runner_start = ?, parallel = ? WHERE id = ?",
        token_hash,
        pid,
        start,
        parallel,
        run,
    )


def paused(tx: Transaction, run: str) -> None:
    """Its sandbox is frozen."""
    if _state(tx, run) == "ready":
        tx.move("run", run, "pause")


def unpaused(tx: Transaction, run: str) -> None:
    """Its sandbox goes on."""
    if _state(tx, run) == "paused":
        tx.move("run", run, "unpause")


def ended(tx: Transaction, run: str) -> None:
    """The sandbox is known dead and its socket closed."""
    if _state(tx, run) not in (None, "gone"):
        tx.move("run", run, "end")


def disown(tx: Transaction, home: str | None) -> list[str]:
    """Runs of another home, whose ledger was copied to be this one's, are over here, whatever they do there. Gives
    their ids."""
    others = [row["id"] for row in alive(tx) if row["home"] not in (None, home)]
    for run in others:
        ended(tx, run)
    return others


def alive(tx: Transaction) -> list[Row]:
    """Runs that the ledger has not seen end."""
    return tx.all("SELECT * FROM run WHERE state <> 'gone' ORDER BY since")


def tell_unknown(
    tx: Transaction, group: str, reason: str, now: str, *, limits: ChannelLimits
) -> list[tuple[Row, list[int]]]:
    """Nobody can say whether the group's sandbox lives: the chats of the turns that it has are told why they wait,
    once a message. One that was asked to stop needs no word. Gives the turns with the notices that were made."""
    told = []
    for row in tx.all(
        "SELECT * FROM turn WHERE grp = ? AND state = 'claimed' AND NOT stop_requested ORDER BY id", group
    ):
        if tx.one("SELECT 1 FROM inbound WHERE turn = ? AND told = 0", row["id"]) is None:
            continue
        tx.execute("UPDATE inbound SET told = 1 WHERE turn = ?", row["id"])
        to = deliveries.Address.of(row)
        text = f"Your message is kept and will be answered as soon as that is possible: {reason}"
        more = {"session": row["session"], "turn": row["id"], "now": now, "limits": limits}
        told.append((row, deliveries.enqueue(tx, to, kind="notice", text=text, **more)))
    return told


def _state(tx: Transaction, run: str) -> str | None:
    row = tx.one("SELECT state FROM run WHERE id = ?", run)
    return row["state"] if row else None
