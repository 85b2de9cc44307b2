"""What came to webhooks: the same thing twice is one wake. A request's rows, its wake and its turn are one commit."""

from __future__ import annotations

from collections.abc import Sequence

from clawd.ledger import wakes
from clawd.ledger.db import Transaction
from clawd.ledger.deliveries import Address
from clawd.ledger.wakes import Woken
from clawd.model import Authority, Part
from clawd.trust import TRUST, Origin, Role

# A person wrote the rule on the host, and somebody else what came.
_ACTS = Authority(Role.OWNER, TRUST[Origin.EXTERNAL])


def is_known(tx: Transaction, group: str, name: str, keys: Sequence[str]) -> bool:
    """Whether a request with any of these keys was taken before."""
    row = "SELECT 1 FROM hook WHERE grp = ? AND name = ? AND key = ?"
    return any(tx.one(row, group, name, key) for key in keys)


def take(
    tx: Transaction,
    group: str,
    name: str,
    keys: Sequence[str],
    *,
    file: str,
    base: str,
    to: Address,
    parts: Sequence[Part],
    now: str,
) -> Woken | None:
    """Wake the group's conversation `base` for a request whose body is `file` in its inbox. None for one that is
    known."""
    if is_known(tx, group, name, keys):
        return None
    woken = wakes.put(
        tx, "webhook", f"hook:{group}/{name}:{keys[0]}", group=group, base=base, to=to, rule=f"webhook:{name}",
        acts=_ACTS, origin=Origin.EXTERNAL, parts=parts, now=now,
    )  # fmt: skip
    if woken is not None:
        for key in keys:
            tx.insert("hook", grp=group, name=name, key=key, at=now, file=file, wake=woken.wake)
    return woken


def groups(tx: Transaction) -> set[str]:
    """The groups that something came to."""
    return {row["grp"] for row in tx.all("SELECT DISTINCT grp FROM hook")}


def has_file(tx: Transaction, group: str, file: str) -> bool:
    """Whether a file of a group's inbox is the body of a request that was taken."""
    return tx.one("SELECT 1 FROM hook WHERE grp = ? AND file = ?", group, file) is not None
