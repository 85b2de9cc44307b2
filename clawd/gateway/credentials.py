"""Reads a credential for one request: anew each time, so that one that was replaced holds at once; never for long."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from clawd.apart import SECONDS, Apart
from clawd.config.secrets import Secret
from clawd.errors import ConfigError
from clawd.gateway.refusal import Refusal

# Reading a small file of these costs less than a thread does, and never waits for a network.
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "overlay"})


class Credentials:
    """One for an event loop."""

    def __init__(self) -> None:
        self._apart = Apart()
        self._local: dict[Secret, bool] = {}

    async def reveal(self, reference: Secret) -> str:
        """Raises Refusal when there is no value now."""
        try:
            if reference.kind != "file" or self._local.get(reference):
                return reference.reveal()
            value, self._local[reference] = await self._apart(reference, partial(_read, reference))
            return value
        except ConfigError as error:
            raise Refusal("no_credential", error.message, 503, hint=error.hint) from error
        except TimeoutError as error:
            message = f"the secret {reference} was not read within {SECONDS:.0f} s"
            raise Refusal("no_credential", message, 503, hint="is its file on a network that is down?") from error


def _read(reference: Secret) -> tuple[str, bool]:
    """The value, and whether its file is on a disk of this machine."""
    value = reference.reveal()
    try:
        device = Path(reference.name).expanduser().stat().st_dev
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return value, False
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = {fields[fields.index("-") + 1] for fields in mounts if fields[2] == number}
    return value, bool(kinds) and kinds <= _LOCAL
