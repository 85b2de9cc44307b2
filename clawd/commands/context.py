"""`clawd context show`: what the next turn of a group would tell its model, by the function that tells it. A daemon is
not needed."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

from anyio import to_thread

from clawd.channel import ChannelLimits
from clawd.clock import SystemClock, rfc3339
from clawd.commands.limits import in_force
from clawd.commands.looking import check_group, session_place
from clawd.commands.memory import opened
from clawd.config.group import Effective
from clawd.config.home import Home, group_folders
from clawd.config.load import load_config, load_group, merged
from clawd.config.models import THINKING, models
from clawd.context.compose import Composer
from clawd.context.memories import Recalled, query
from clawd.context.skills import Listed, listed
from clawd.errors import ClawdError, ConfigError, NotFound
from clawd.host.tools import declarations
from clawd.ids import check_session_id
from clawd.ledger import authored, contexts, groups, recalled, turns
from clawd.ledger.contexts import AS_IT_IS
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.turns import Claim
from clawd.memory import across
from clawd.memory.protocol import MemoryHit
from clawd.memory.store import GroupMemory
from clawd.model import Authority
from clawd.skills.catalogue import Catalogue
from clawd.skills.shelf import acting, lying
from clawd.trust import Origin, Role
from clawd.turns.memory import recalled_of
from clawd.turns.spaces import MOST_BESIDE, Spaces


async def show(home: Home, group: str | None, session: str | None, wake: str) -> dict[str, Any]:
    """{parts[{name, bytes, tokens, text}], bytes, tokens, notes[]}: tokens are estimates, notes are sentences for the
    person. A session that is nowhere yet is a new one. Raises NotFound, ConfigError."""
    if session is not None:
        check_session_id(session)
    held = session_place(home, session) if session is not None else None
    if group is not None and held is not None and held[0] != group:
        raise NotFound(f"group {group} has no session {session!r}", hint=f"it is one of group {held[0]}")
    group = group or (held[0] if held is not None else "main")
    check_group(home, group)
    config = load_config(home, dict(os.environ))
    settings = merged(config, load_group(home, group))
    base = session or (settings.group.bindings[0] if settings.group.bindings else f"terminal:{group}")
    ledger = Ledger.read_only(home.ledger_file) if home.ledger_file.exists() else None
    try:
        composer = Composer(
            home,
            SystemClock(),
            lambda group: settings,
            config=lambda: config,
            hard=lambda group, own: in_force(home, config, settings, own.profile, own.soft, own.hard).hard,
            host_tools=lambda channel: declarations(ChannelLimits()),
            skills=lambda group: known,
            recall=lambda claim: _recalled(home, settings, claim, ledger),
        )
        id, turn, stem, others, forgot, standing = base, 1, None, False, None, AS_IT_IS
        if ledger is not None:
            id, turn = await ledger.do(lambda tx: _next(tx, base))
            stem, others = await ledger.do(lambda tx: turns.known(tx, group, id))
            forgot = await ledger.do(lambda tx: recalled.forgot(tx, group))
            standing = await ledger.do(lambda tx: contexts.standing(tx, id))
        stem = stem or (held[1] if held is not None else None)
        row = {"id": turn, "grp": group, "session": id, "choice": None, "retry_of": None, "channel": "terminal"}
        said = {"kind": "typed", "origin": Origin.OWNER, "text": wake}
        at = rfc3339(SystemClock().now())
        wakes = [
            {"id": 0, "kind": "message", "role": Role.OWNER, "sender": "owner", "at": at, "parts": [said], "joined": 0}
        ]
        known = await _skills(home, ledger, group)
        claim: Any = Claim(
            row,  # type: ignore[arg-type]
            *(0, Role.OWNER, 1.0, wakes, []),
            stem=stem,
            others=others,
            forgot=forgot,
            standing=standing,
        )
        told = await composer.told(claim, settings)
    finally:
        if ledger is not None:
            ledger.close()
    notes, dialect = [*known.refused, *told.refused], "messages"
    engine = settings.model.engine
    if engine not in THINKING:
        notes.append(f"the engine {engine} tells a model nothing; this is what one would be told")
    else:
        with suppress(IndexError):
            try:
                found, more = models(config, group, settings)
                notes += more
                dialect = found[0]["dialect"]
            except ConfigError as error:
                notes.append(f"a turn would fail: {error}")
    parts = told.parts(dialect)
    return {
        "parts": [{"name": part.name, "bytes": part.bytes, "tokens": part.tokens, "text": part.text} for part in parts],
        "bytes": sum(part.bytes for part in parts),
        "tokens": sum(part.tokens for part in parts),
        "notes": notes,
    }


async def _recalled(home: Home, settings: Effective, claim: Claim, ledger: Ledger | None) -> Recalled:
    """What memory would give it."""
    table, group = settings.memory, claim.turn["grp"]
    if not table.recall_k or not query(claim.wakes):
        return Recalled()
    spaces = Spaces(lambda name: load_group(home, name), groups=lambda: group_folders(home))
    space = await ledger.do(lambda tx: spaces.of(tx, claim.turn)) if ledger is not None else spaces.space(group)
    asked, k = query(claim.wakes), table.recall_k

    def recalled() -> Recalled:
        memory = GroupMemory(
            home.group(group).memory,
            home.state,
            group,
            SystemClock(),
            backend=table.backend,
            floor=table.floor,
            mem0=table.mem0,
        )
        with closing(memory):
            memory.look()
            own, hits = recalled_of(memory, claim, k, space), list[MemoryHit]()
        for other, of in spaces.beside(space.scopes)[:MOST_BESIDE]:
            with suppress(ClawdError), closing(opened(home, other)) as theirs:
                theirs.look()
                hits += across.find(theirs, asked, of, k=k, floor=table.floor, taint=claim.taint, lowering=False)
        return replace(own, hits=across.merged(own.hits, hits, k)) if hits else own

    return await to_thread.run_sync(recalled)


async def _skills(home: Home, ledger: Ledger | None, group: str) -> Listed:
    """What the owner's next turn would be told of skills."""
    versions, refused = lying(Catalogue(home), group)
    acts, by = Authority(Role.OWNER), dict[str, Authority]()
    if ledger is not None:
        row, by = await ledger.do(lambda tx: (groups.find(tx, group), authored.every(tx, "skill", group)))
        acts = row.authority if row else acts
    return listed(acting(versions, by), acts, refused)


def _next(tx: Transaction, base: str) -> tuple[str, int]:
    """The session's newest segment, and the number that its next turn would have."""
    row = groups.session(tx, base)
    last = tx.one("SELECT seq FROM sqlite_sequence WHERE name = 'turn'")
    return row.id if row else base, (last["seq"] if last else 0) + 1
