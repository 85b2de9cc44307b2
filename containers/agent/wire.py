"""HTTP for calls of a model, over the run's socket: a connection that is kept for the next call, and an answer that is
read as it comes. Of our own, as `protocol.Client` is: `http.client` would cost a sandbox's first turn 20 ms."""

from __future__ import annotations

import socket
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = 1 << 16


class Connections:
    """Those that no call uses now, for all workers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: list[socket.socket] = []

    def take(self) -> socket.socket:
        """Raises OSError when nobody takes connections."""
        while True:
            try:
                kept = self._idle.pop()
            except IndexError:
                break
            with suppress(ConnectionError):
                try:
                    kept.settimeout(0)
                    kept.recv(1, socket.MSG_PEEK)
                except BlockingIOError:  # nothing has come, not even its end
                    return kept
            kept.close()
        made = socket.socket(socket.AF_UNIX)
        try:
            made.connect(self._path)
        except OSError:
            made.close()
            raise
        return made

    def keep(self, connection: socket.socket) -> None:
        self._idle.append(connection)


def post(connection: socket.socket, path: str, fields: dict[str, str], body: bytes) -> Answer:
    """Ask, and read the answer's head. Raises as Answer does."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    head = f"POST {path} HTTP/1.1\r\nhost: clawd\r\n{lines}content-length: {len(body)}\r\n\r\n"
    with suppress(BrokenPipeError, ConnectionResetError):  # it may have been answered before it was read
        connection.sendall(head.encode("utf-8", "replace") + body)
    return Answer(connection)


class Answer:
    """`headers` by their names in small letters; `whole` once all of it was read, and its connection may be used again.
    Raises OSError and ValueError for what breaks off, or is no HTTP."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._rest = connection, b""
        self.whole = False
        while (end := self._rest.find(b"\r\n\r\n")) < 0:
            if len(self._rest) > _HEAD:
                raise ValueError("an answer with an endless head")
            self._rest += self._received()
        first, *lines = self._rest[:end].decode("latin-1").split("\r\n")
        self._rest = self._rest[end + 4 :]
        version, code, *_ = f"{first} ".split(" ")
        if version != "HTTP/1.1":
            raise ValueError("not an HTTP/1.1 answer")
        self.status = int(code)
        fields = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in fields}

    def pieces(self) -> Iterator[bytes]:
        """The body. None is empty."""
        if "chunked" in self.headers.get("transfer-encoding", ""):
            while size := int(self._line().partition(b";")[0], 16):
                yield from self._next(size)
                self._line()
            while self._line():
                pass
        elif length := self.headers.get("content-length"):
            yield from self._next(int(length))
        else:  # all that comes until the end
            while data := self._rest or self._connection.recv(_HEAD):
                self._rest = b""
                yield data
            return
        self.whole = not self._rest and self.headers.get("connection", "").lower() != "close"

    def start(self, most: int) -> bytes:
        """At least so many bytes of the body, or all of it."""
        data = b""
        for piece in self.pieces():
            data += piece
            if len(data) >= most:
                break
        return data

    def _next(self, size: int) -> Iterator[bytes]:
        while size:
            data, self._rest = self._rest[:size] or self._received(), self._rest[size:]
            if len(data) > size:
                data, self._rest = data[:size], data[size:]
            size -= len(data)
            yield data

    def _line(self) -> bytes:
        while (end := self._rest.find(b"\r\n")) < 0:
            if len(self._rest) > _HEAD:
                raise ValueError("an answer with an endless line")
            self._rest += self._received()
        line, self._rest = self._rest[:end], self._rest[end + 2 :]
        return line

    def _received(self) -> bytes:
        data = self._connection.recv(_HEAD)
        if not data:
            raise ConnectionResetError("the answer was cut off")
        return data
