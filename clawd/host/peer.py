"""Who is at the other end of a run's socket: the kernel's word, never the payload's."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Peer:
    """A process as this host sees it. `started` (clock ticks since boot) tells it from a later one of the
    same pid."""

    pid: int
    uid: int
    started: int


def peer_of(connection: socket.socket) -> Peer | None:
    """The process that made a connection, or None when it is already gone or out of sight."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if pid <= 0:
        return None
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return Peer(pid, uid, int(fields[19]))
