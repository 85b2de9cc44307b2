"""This install's own certificate authority: what the sandboxes trust, so that their TLS can be looked into.

Its key never leaves `state/gateway/` (0600). Leaves live for days and only in memory.
"""

from __future__ import annotations

import ssl
from pathlib import Path


class Certificates:
    """The authority in `directory`, made with its first use. Raises StorageError when it cannot be kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def bundle(self) -> bytes:
        """PEM: the public roots of this machine and our own certificate, for the clients in a sandbox."""
        raise NotImplementedError

    def context(self, host: str) -> ssl.SSLContext:
        """What a tunnel to `host` is answered with: HTTP/1.1 alone, and only to who asks for this very name."""
        raise NotImplementedError
