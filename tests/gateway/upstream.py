"""An upstream that records the exact bytes of what reached it, and answers as it was told: raw sockets in threads, no
HTTP library, so that nothing between a test and the wire is repaired.

    with Upstream(echo()) as upstream:                            # http://127.0.0.1:PORT
    with Upstream(answer(b"hi"), tls=authority.context("api.example.org")) as upstream:
    upstream.scripts["/v1/messages"] = sse(b"one", b"two")        # by path; else the first script
    upstream.requests[0].values("authorization"); upstream.received; upstream.connections

A script is `(request, wire) -> None`. `Authority` is the test's CA; its `pem` is what a service's `ca` names.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import gzip
import hashlib
import ipaddress
import json
import select
import socket
import ssl
import struct
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_KEPT = 8 << 20  # bytes of a body, and of a connection: the rest is only counted
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@dataclass
class Recorded:
    """One request, as it was on the wire. `head` is its exact bytes up to the empty line; `body` is de-chunked."""

    method: str
    target: str
    version: str
    headers: list[tuple[str, str]]
    head: bytes
    body: bytes = b""
    body_size: int = 0
    trailers: list[tuple[str, str]] = field(default_factory=list)
    chunked: bool = False
    extensions: bool = False  # a chunk carried an extension
    complete: bool = False  # the body ended as it had promised

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def values(self, name: str) -> list[str]:
        return [value for each, value in self.headers if each.lower() == name.lower()]


@dataclass
class Accepted:
    """One connection. `received` are all bytes that came after TLS; `sni` what the client named, `failed` why its
    handshake failed; `ended` is set when it is over."""

    received: bytearray = field(default_factory=bytearray)
    requests: list[Recorded] = field(default_factory=list)
    sni: str | None = None
    alpn: str | None = None
    failed: str | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class Gone(Exception):
    """The client has left."""


class Wire:
    """The upstream's end of a connection: every byte that is read is recorded."""

    def __init__(self, connection: socket.socket, accepted: Accepted) -> None:
        self._connection, self._accepted, self._buffer = connection, accepted, b""
        self.keep = True

    def send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise Gone from error

    def receive(self) -> bytes:
        """What came, at least a byte. Raises Gone at the end."""
        if self._buffer:
            data, self._buffer = self._buffer, b""
            return data
        try:
            data = self._connection.recv(1 << 18)
        except (OSError, ValueError) as error:
            raise Gone from error
        if not data:
            raise Gone
        if len(self._accepted.received) < MOST_KEPT:
            self._accepted.received += data
        return data

    def until(self, end: bytes) -> bytes:
        data = self.receive()
        while end not in data:
            data += self.receive()
        found, _, self._buffer = data.partition(end)
        return found

    def exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            data = self.receive()
            parts.append(data[:size])
            self._buffer = data[size:]
            size -= len(parts[-1])
        return b"".join(parts)

    def wait_gone(self, seconds: float) -> bool:
        """Whether the client leaves within so many seconds (what it sends meanwhile is read and recorded)."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not self._pending() and not select.select([self._connection], [], [], left)[0]:
                return False
            try:
                self.receive()
            except Gone:
                return True
        return False

    def _pending(self) -> bool:
        return bool(self._buffer) or (isinstance(self._connection, ssl.SSLSocket) and self._connection.pending() > 0)

    def cut(self) -> None:
        """End the connection hard, in the middle of whatever it was."""
        with contextlib.suppress(OSError):
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone


Script = Callable[[Recorded, Wire], None]
Headers = Iterable[tuple[str, str]]


def head(status: int = 200, headers: Headers = (), reason: str = "Scripted") -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 {status} {reason}\r\n{lines}\r\n".encode("latin-1")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


def answer(body: bytes = b"", status: int = 200, headers: Headers = ()) -> Script:
    """A fixed answer with its length."""

    def script(request: Recorded, wire: Wire) -> None:
        length = [] if status in (204, 304) else [("Content-Length", str(len(body)))]
        silent = request.method == "HEAD" or status in (204, 304)
        wire.send(head(status, [*length, *headers]) + (b"" if silent else body))

    return script


def redirect(location: str, status: int = 302) -> Script:
    return answer(b"moved", status, [("Location", location)])


def gzipped(body: bytes, headers: Headers = ()) -> Script:
    """Compressed, whatever was asked for."""
    return answer(gzip.compress(body), 200, [("Content-Encoding", "gzip"), *headers])


def raw(data: bytes, close: bool = True) -> Script:
    """These very bytes; with `close` the connection ends after them."""

    def script(request: Recorded, wire: Wire) -> None:
        wire.send(data)
        if close:
            raise Gone

    return script


def chunked(
    *pieces: bytes,
    headers: Headers = (),
    trailers: Headers = (),
    gate: threading.Semaphore | None = None,
    cut: bool = False,
) -> Script:
    """Each piece a chunk and a write of its own; with `gate`, each after the first waits until it is released. `cut`
    ends the connection instead of the body."""

    def script(request: Recorded, wire: Wire) -> None:
        names = [("Trailer", ", ".join(name for name, _ in trailers))] if trailers else []
        wire.send(head(200, [("Transfer-Encoding", "chunked"), *names, *headers]))
        for n, piece in enumerate(pieces):
            while gate is not None and n and not gate.acquire(timeout=0.02):
                if wire.wait_gone(0.001):
                    raise Gone
            wire.send(chunk(piece))
        if cut:
            wire.cut()
        wire.send(b"0\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in trailers) + b"\r\n")

    return script


def sse(*events: bytes, gate: threading.Semaphore | None = None, cut: bool = False) -> Script:
    """Server-sent events, one chunk each."""
    pieces = [b"data: " + event + b"\n\n" for event in events]
    return chunked(*pieces, headers=[("Content-Type", "text/event-stream")], gate=gate, cut=cut)


def endless(total: int, piece: bytes = b"x" * (64 << 10), headers: Headers = ()) -> Script:
    """So many bytes, with their length."""

    def script(request: Recorded, wire: Wire) -> None:
        wire.send(head(200, [("Content-Length", str(total)), *headers]))
        left = total
        while left > 0:
            wire.send(piece[:left])
            left -= len(piece)

    return script


def echo(headers: Headers = ()) -> Script:
    """The request in the answer: as JSON {method, target, headers, body}, and each header as X-Echo-<name>."""

    def script(request: Recorded, wire: Wire) -> None:
        body = request.body.decode("latin-1")
        said = {"method": request.method, "target": request.target, "headers": request.headers, "body": body}
        echoed = [(f"X-Echo-{name}", value) for name, value in request.headers]
        answer(json.dumps(said).encode(), 200, [("Content-Type", "application/json"), *headers, *echoed])(request, wire)

    return script


def silent(seconds: float = 60.0) -> Script:
    """Never answers; ends when the client leaves."""

    def script(request: Recorded, wire: Wire) -> None:
        wire.wait_gone(seconds)
        raise Gone

    return script


def frame(data: bytes, opcode: int = 1, fin: bool = True) -> bytes:
    """A WebSocket frame of a server."""
    size = len(data)
    if size < 126:
        length = bytes([size])
    else:
        length = b"\x7e" + struct.pack(">H", size) if size < 1 << 16 else b"\x7f" + struct.pack(">Q", size)
    return bytes([(0x80 if fin else 0) | opcode]) + length + data


def read_frame(wire: Wire) -> tuple[int, bytes]:
    """Opcode and unmasked payload of a client's frame."""
    first, second = wire.exactly(2)
    size = second & 0x7F
    if size == 126:
        size = struct.unpack(">H", wire.exactly(2))[0]
    elif size == 127:
        size = struct.unpack(">Q", wire.exactly(8))[0]
    mask = wire.exactly(4) if second & 0x80 else b"\0\0\0\0"
    data = wire.exactly(size)
    return first & 0x0F, bytes(byte ^ mask[n % 4] for n, byte in enumerate(data))


def websocket(talk: Callable[[Wire], None] | None = None, headers: Headers = ()) -> Script:
    """101, then `talk`; without one every message comes back as it was."""

    def script(request: Recorded, wire: Wire) -> None:
        key = request.values("sec-websocket-key")[0].encode()
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
        upgrade = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)]
        wire.send(head(101, [*upgrade, *headers]))
        if talk is not None:
            talk(wire)
            raise Gone
        while True:
            opcode, data = read_frame(wire)
            wire.send(frame(data, opcode))
            if opcode == 8:
                raise Gone

    return script


class Upstream:
    """Listens from its making to `close`. Answers with `scripts[path]`, else with `script`; may be changed any time.
    A script whose `early` is true is called before the body is read."""

    def __init__(
        self, script: Script | None = None, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self.script: Script = script or answer(b"ok")
        self.scripts: dict[str, Script] = {}
        self.connections: list[Accepted] = []
        self._tls, self._local, self._sockets = tls, threading.local(), set[socket.socket]()
        if tls is not None:
            tls.sni_callback = self._named
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind((host, port))
        self._listener.listen(128)
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self._closing = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def requests(self) -> list[Recorded]:
        """Every request whose head arrived, in the order of the connections."""
        return [request for connection in self.connections for request in connection.requests]

    @property
    def received(self) -> bytes:
        """Every byte that arrived."""
        return b"\n".join(bytes(connection.received) for connection in self.connections)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def close(self) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Upstream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _named(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:
        self._local.sni = name

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            accepted = Accepted()
            self.connections.append(accepted)
            thread = threading.Thread(target=self._serve, args=(connection, accepted), daemon=True)
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()

    def _serve(self, connection: socket.socket, accepted: Accepted) -> None:
        self._sockets.add(connection)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                plain = connection
                try:
                    connection = self._tls.wrap_socket(connection, server_side=True)
                except OSError as error:
                    accepted.failed = str(error)
                    return
                finally:
                    accepted.sni = getattr(self._local, "sni", None)
                    self._sockets.discard(plain)
                accepted.alpn = connection.selected_alpn_protocol()
                self._sockets.add(connection)
            wire = Wire(connection, accepted)
            while not self._closing:
                self._one(wire, accepted)
        except Gone:
            pass
        finally:
            self._sockets.discard(connection)
            connection.close()
            accepted.ended.set()

    def _one(self, wire: Wire, accepted: Accepted) -> None:
        lines = wire.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        method, target, version = [*lines[0].split(" "), "", ""][:3]
        fields = [line.partition(":") for line in lines[1:]]
        headers = [(name, value.strip()) for name, _, value in fields]
        request = Recorded(method, target, version, headers, "\r\n".join(lines).encode("latin-1"))
        accepted.requests.append(request)
        script = self.scripts.get(request.path, self.script)
        if request.values("expect"):
            wire.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        if not getattr(script, "early", False):
            read_body(request, wire)
        script(request, wire)


def read_body(request: Recorded, wire: Wire) -> None:
    """Read and record the body of a request whose head was read; what came of one that is broken off, too."""
    kept = bytearray()

    def take(size: int) -> None:
        while size > 0:
            data = wire.exactly(min(size, 1 << 16))
            request.body_size += len(data)
            kept.extend(data[: max(0, MOST_KEPT - len(kept))])
            size -= len(data)

    try:
        if "chunked" in ",".join(request.values("transfer-encoding")).lower():
            request.chunked = True
            while True:
                size, extension, _ = wire.until(b"\r\n").partition(b";")
                request.extensions = request.extensions or bool(extension)
                if int(size, 16) == 0:
                    break
                take(int(size, 16))
                wire.until(b"\r\n")
            while line := wire.until(b"\r\n").decode("latin-1"):
                name, _, value = line.partition(":")
                request.trailers.append((name, value.strip()))
        else:
            take(int((request.values("content-length") or ["0"])[0]))
        request.complete = True
    finally:
        request.body = bytes(kept)


class Authority:
    """The test's own CA. `pem` is a file with its certificate; `context` what a server of these names answers with."""

    def __init__(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        self._directory = tempfile.TemporaryDirectory(prefix="authority-")
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clawd test authority")])
        self._certificate = self._sign(self._name, self._key, [], authority=True)
        self.pem = Path(self._directory.name, "ca.pem")
        self.pem.write_bytes(self._pem(self._certificate))

    def context(
        self,
        *names: str,
        expired: bool = False,
        oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
        newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> ssl.SSLContext:
        """A server's context for these names or addresses. A wrong name is one that is not among them; `newest =
        TLSVersion.TLSv1_1` (with `oldest = TLSv1`) speaks old TLS alone."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:60])])
        certificate = self._sign(subject, key, names, expired=expired)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = Path(self._directory.name, f"{certificate.serial_number:x}.pem")
        file.write_bytes(self._pem(certificate) + self._pem(self._certificate) + secret)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if newest < ssl.TLSVersion.TLSv1_2:
            context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            context.minimum_version, context.maximum_version = oldest, newest
        context.load_cert_chain(file)
        return context

    def _sign(
        self, subject: Any, key: Any, names: Iterable[str], authority: bool = False, expired: bool = False
    ) -> Any:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.datetime.now(datetime.UTC)
        end = now - datetime.timedelta(days=1) if expired else now + datetime.timedelta(days=30)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=30))
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if authority:
            usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
            builder = builder.add_extension(usage, critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), False)
        return builder.sign(self._key, hashes.SHA256())

    @staticmethod
    def _pem(certificate: Any) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding

        return bytes(certificate.public_bytes(Encoding.PEM))


def _general(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
