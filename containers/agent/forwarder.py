"""127.0.0.1:8080 → the run's socket, for clients that know only TCP. A process of its own, and a plain byte
copier.

It is no guard: the daemon tells the runner by its process and takes the turn protocol from nobody else. That
calls of the turn protocol are refused here already is a courtesy, so that a mistaken `curl` does not end the
run.

`forwarder.py` forwards until it is ended; `forwarder.py --exec -- COMMAND …` forwards beside a command, which
it becomes."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from agent import protocol  # noqa: E402

BUFFER = 64 << 10
CLIENTS = protocol.CONNECTIONS - 16  # the runner's own connections must find room
HEAD = 8192


class Pipe:
    """One direction of a connection: what was read from `source` and not yet written to `sink`."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source = source
        self.sink = sink
        self.waiting = bytearray()
        self.ended = False  # the source has no more
        self.shut = False  # and the sink was told

    def fill(self) -> None:
        data = self.source.recv(BUFFER)
        self.waiting += data
        self.ended = not data

    def drain(self) -> None:
        if self.waiting:
            del self.waiting[: self.sink.send(self.waiting)]
        if self.ended and not self.waiting and not self.shut:
            self.sink.shutdown(socket.SHUT_WR)
            self.shut = True


class Link:
    """A client, and the connection to the socket that is made for it once its request line is known."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.server: socket.socket | None = None
        self.head = bytearray()
        self.pipes: list[Pipe] = []

    def sockets(self) -> list[socket.socket]:
        return [self.client, self.server] if self.server else [self.client]


class Forwarder:
    def __init__(self, listener: socket.socket, path: str) -> None:
        self._path = path
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._links: set[Link] = set()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)

    def run(self) -> None:
        while True:
            for key, mask in self._selector.select():
                if key.data is None:
                    self._accept()
                elif key.data in self._links:
                    self._serve(key.data, key.fileobj, mask)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        client.setblocking(False)
        if len(self._links) >= CLIENTS:
            client.close()
            return
        link = Link(client)
        self._links.add(link)
        self._selector.register(client, selectors.EVENT_READ, link)

    def _serve(self, link: Link, ready: object, mask: int) -> None:
        try:
            if link.server is None:
                self._begin(link)
            else:
                for pipe in link.pipes:
                    if pipe.source is ready and mask & selectors.EVENT_READ:
                        pipe.fill()
                    if pipe.waiting or pipe.ended:
                        pipe.drain()
            if all(pipe.shut for pipe in link.pipes) and link.server is not None:
                self._end(link)
            else:
                self._watch(link)
        except BlockingIOError:
            self._watch(link)
        except OSError:
            self._end(link)

    def _begin(self, link: Link) -> None:
        """Read the request line; refuse it, or connect."""
        data = link.client.recv(BUFFER)
        link.head += data
        if not data:
            raise ConnectionResetError
        if b"\n" not in link.head and len(link.head) < HEAD:
            return
        target = bytes(link.head).split(b"\n", 1)[0].split(b" ")[1:2]
        if target and is_turn_call(target[0]):
            link.client.send(answer(403, "not_the_runner", "the turn protocol belongs to the runner"))
            raise ConnectionAbortedError
        link.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.server.connect(self._path)
        except OSError:
            link.client.send(answer(502, "no_daemon", "the daemon does not answer; try again in a moment"))
            raise
        link.server.setblocking(False)
        link.pipes = [Pipe(link.client, link.server), Pipe(link.server, link.client)]
        link.pipes[0].waiting = link.head
        link.pipes[0].drain()

    def _watch(self, link: Link) -> None:
        """Ask for reads where there is room, and for writes where something waits."""
        wanted = dict.fromkeys(link.sockets(), 0)
        if link.server is None:
            wanted[link.client] = selectors.EVENT_READ
        for pipe in link.pipes:
            if not pipe.ended and len(pipe.waiting) < BUFFER:
                wanted[pipe.source] |= selectors.EVENT_READ
            if pipe.waiting:
                wanted[pipe.sink] |= selectors.EVENT_WRITE
        known = self._selector.get_map()
        for sock, mask in wanted.items():
            if sock in known:
                if not mask:
                    self._selector.unregister(sock)
                elif known[sock].events != mask:
                    self._selector.modify(sock, mask, link)
            elif mask:
                self._selector.register(sock, mask, link)

    def _end(self, link: Link) -> None:
        self._links.discard(link)
        known = self._selector.get_map()
        for sock in link.sockets():
            if sock in known:
                self._selector.unregister(sock)
            sock.close()


def is_turn_call(target: bytes) -> bool:
    path = target.partition(b"?")[0]
    turn = protocol.TURN.encode()
    fixed = (protocol.HELLO.encode(), protocol.CONTROL.encode(), turn)
    return path in fixed or path.startswith(turn + b"/")


def answer(status: int, code: str, message: str) -> bytes:
    body = f'{{"schema":{protocol.SCHEMA},"error":"{code}","message":"{message}"}}'.encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


def listen(port: int) -> socket.socket:
    """Raises OSError when the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def fork(listener: socket.socket, path: str) -> int:
    """Forward in a child process that ends with this one; gives its pid. Call it before any thread is
    started."""
    from agent import kernel

    parent = os.getpid()
    pid = os.fork()
    if pid:
        listener.close()
        return pid
    try:
        kernel.hide()
        kernel.end_with_parent(parent)
        Forwarder(listener, path).run()
    finally:
        os._exit(1)


def execute(argv: list[str]) -> None:
    """Become a command; where that cannot be, end as a shell does: with a sentence, and 127 or 126."""
    try:
        os.execvp(argv[0], argv)
    except FileNotFoundError:
        sys.stderr.write(f"{argv[0]}: there is no such command in the sandbox\n")
        sys.exit(127)
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.exit(126)


def main(arguments: list[str]) -> None:
    if arguments[:2] == ["--exec", "--"] and len(arguments) > 2:
        try:
            fork(listen(protocol.FORWARDED_PORT), protocol.SOCKET)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:  # in the runner's own network, whose forwarder it is then
                raise
        execute(arguments[2:])
    Forwarder(listen(protocol.FORWARDED_PORT), protocol.SOCKET).run()


if __name__ == "__main__":
    main(sys.argv[1:])
