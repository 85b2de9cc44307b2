"""The streams of a command in a container, carried between the Engine and the caller.

`hijack` starts the command and gives its connection. The copying is a process of its own (`python attach.py FD`), whose
standard streams are the caller's: one that nobody reads holds up nothing else, and it ends by one kill.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading

BROKEN = 141  # nobody reads its output any more: what a shell says of SIGPIPE
LOST = 125  # the Engine went away in the middle
_HEAD_BYTES = 16 << 10


def hijack(path: str, execution: str, seconds: float) -> socket.socket:
    """Start an exec of the Engine at `path`; its streams are the socket from here on, byte for byte (the SDK may keep
    the first of them in a buffer). Raises OSError, with the Engine's own words when it refuses."""
    body = b'{"Detach": false, "Tty": false}'
    head = f"POST /exec/{execution}/start HTTP/1.1\r\nHost: docker\r\nContent-Type: application/json\r\n"
    head += f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(seconds)
        connection.connect(path)
        connection.sendall(head.encode() + body)
        answer = b""
        while not answer.endswith(b"\r\n\r\n") and len(answer) < _HEAD_BYTES:
            byte = connection.recv(1)  # not one more than the head: what follows are the streams
            if not byte:
                raise ConnectionResetError("the Engine closed the connection")
            answer += byte
        if answer.split(b" ", 2)[1:2] not in ([b"101"], [b"200"]):
            raise OSError(connection.recv(4096).decode("utf-8", "replace").strip())
        connection.settimeout(None)
        return connection
    except BaseException:
        connection.close()
        raise


def _send(connection: socket.socket) -> None:
    """Our standard input to the command, its end included."""
    try:
        while data := os.read(0, 64 << 10):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the command is gone, or our terminal


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _write(stream: int, data: bytes) -> None:
    while data:
        data = data[os.write(stream, data) :]


def main(descriptor: int) -> int:
    """Copy until the command's output has ended."""
    connection = socket.socket(fileno=descriptor)
    threading.Thread(target=_send, args=(connection,), daemon=True).start()
    try:
        while first := connection.recv(1):
            stream, size = struct.unpack(">BxxxL", first + _exactly(connection, 7))
            while size:
                data = connection.recv(min(size, 64 << 10))
                if not data:
                    raise EOFError
                size -= len(data)
                _write(2 if stream == 2 else 1, data)
    except BrokenPipeError:
        return BROKEN
    except (EOFError, ConnectionError):
        return LOST
    return 0


if __name__ == "__main__":
    os._exit(main(int(sys.argv[1])))  # at once: a thread may still wait for input
