"""What can be seen of channels from outside of the daemon, and the test of one."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import anyio

from clawd.channel import Fatal
from clawd.config.channels import adapter
from clawd.config.home import Home
from clawd.config.load import load_config
from clawd.config.schema import Channels
from clawd.errors import ClawdError, NotFound
from clawd.ledger import chats
from clawd.ledger.db import Ledger
from clawd.log import redactor
from clawd.model import Check
from clawd.people.roster import load

_DEADLINE_S = 60.0
UNPAIRED = "nobody is there to send one to: clawd pair shows a code, which you send to the bot; then test it again"


def closed(home: Home) -> list[dict[str, Any]]:
    """`channels list` without a daemon: what the config asks for, of which none is open."""
    enabled: list[str] = []
    with suppress(ClawdError):  # the doctor says what is wrong with it
        enabled = load_config(home, dict(os.environ)).channels.enabled()
    none = {"last_inbound": None, "last_outbound": None, "error": "no daemon runs"}
    return [{"channel": name, "state": "dead", **none} for name in enabled]


async def test(home: Home, name: str) -> dict[str, Any]:
    """{ok, checks[{what, ok, hint}]}: token, rights and a round trip, asked of the platform from here, beside a daemon
    that may run. Raises ConfigError, NotFound."""
    config = load_config(home, dict(os.environ)).channels
    if name not in (known := ["terminal", *Channels.model_fields, *(config.model_extra or {})]):
        raise NotFound(f"there is no channel {name!r}; there are {', '.join(known)}")
    checks = []
    if name != "terminal" and name not in config.enabled():
        checks.append(Check("enabled", False, f"write enabled = true under [channels.{name}] in config.toml"))
    try:
        with anyio.fail_after(_DEADLINE_S):
            checks += await adapter(config, name).test(chats := _chats(home, name))
        if name != "terminal" and not chats and all(check.ok for check in checks):
            checks.append(Check("a message sent and taken back", False, UNPAIRED))
    except Fatal as error:
        checks.append(Check("let in", False, str(error)))
    except ClawdError as error:
        checks.append(Check("set up", False, f"{error}"))
    except TimeoutError:
        checks.append(Check("reached", False, f"the platform did not answer in {_DEADLINE_S:.0f} s"))
    except Exception as error:
        checks.append(Check("reached", False, redactor.clean(f"{type(error).__name__}: {error}")))
    return {"ok": all(check.ok for check in checks), "checks": [asdict(check) for check in checks]}


def _chats(home: Home, channel: str) -> list[str]:
    """The owners' direct chats of a channel, the newest first."""
    if not home.ledger_file.exists():
        return []
    ledger = Ledger.read_only(home.ledger_file)
    try:
        rows = ledger.tx(lambda tx: chats.direct(tx, channel))
    finally:
        ledger.close()
    theirs = {account for owner in load(home).owners() for account in owner.accounts}
    return [row["chat"] for row in rows if row["sender"] in theirs]
