"""No way leads out of a sandbox but its run's socket. One program tries them all, inside with each backend, from a turn
and beside the runner; listeners on the host tell what arrived. The same program run on the host itself reaches them, so
that each attempt is known to be able to succeed."""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine import Engine
from tests.system.conftest import EACH, until
from tests.system.ground import Ground, ground

PROGRAM = Path(__file__).parent / "gateway" / "bypass.py"
ROOT = os.geteuid() == 0
ETHERTYPE, PROTOCOL = 0x88B5, 253  # for experiments alone
FAR = ["192.0.2.77", "198.51.100.7", "169.254.169.254", "2001:db8::7", "fe80::7"]
NAMES = ["host.docker.internal", "gateway.docker.internal", "kubernetes.default", "example.com"]
# What cannot be shown from here: it would leave the machine, or needs what this one may not have.
UNSHOWN = "|".join(
    [
        rf".* ({'|'.join(map(re.escape, FAR))})$",
        ".*( of process 1| by \\.\\.)$",
        "(name|family|device|ping|link|road) |inherited$|user namespace$|packet eth0$|netns of 1$",
    ]
)
ROOTS = "(icmp|raw|packet|dns|netns of) |namespace$"
NETWORK = ("tcp", "udp", "icmp", "raw", "dns", "packet", "curl", "bare curl")


def addresses() -> list[str]:
    """Every address of this host, and one more of its loopback: bridges of an Engine among them."""
    trie = Path("/proc/net/fib_trie").read_text()
    four = re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", trie)
    lines = [line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines()]
    six = [socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line[0])) for line in lines if line[3] != "20"]
    return list(dict.fromkeys([*four, "127.53.53.53", *six]))


class Listeners:
    """Everything that an attempt could arrive at. `seen` are the names of those that did."""

    def __init__(self, directory: Path) -> None:
        self.mark, self.word = f"CLAWD-{uuid.uuid4().hex}", uuid.uuid4().hex
        self.abstract, self.path = f"clawd-{uuid.uuid4().hex}", directory / "docker.sock"
        self._selector, self._seen, self._lock = selectors.DefaultSelector(), set[str](), threading.Lock()
        self._fences = 0
        tcp = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=100)
        self.port = int(tcp.getsockname()[1])
        self.hosts, self.resolvers = addresses(), list[str]()
        datagrams = [(host, self.port) for host in self.hosts]
        datagrams += [(host, 53) for host in self.hosts] if ROOT else []
        for host, port in datagrams:
            each = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
            try:
                each.bind((host, port))
            except OSError:  # somebody's own resolver
                each.close()
                continue
            self._watch(each)
            if port == 53:
                self.resolvers.append(host)
        if ROOT:
            for family, protocols in ((socket.AF_INET, (1, PROTOCOL)), (socket.AF_INET6, (58, PROTOCOL))):
                for protocol in protocols:
                    self._watch(socket.socket(family, socket.SOCK_RAW, protocol))
            self._watch(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE)))
        self._watch(tcp, listens=True)
        for name in (f"\0{self.abstract}", str(self.path)):
            unix = socket.socket(socket.AF_UNIX)
            unix.bind(name)
            unix.listen(100)
            self._watch(unix, listens=True)
        self._ours, self._wake = socket.socketpair()
        self._watch(self._ours)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _watch(self, each: socket.socket, *, listens: bool = False) -> None:
        self._selector.register(each, selectors.EVENT_READ, listens)

    def _listen(self) -> None:
        while True:
            for key, _ in self._selector.select():
                each = key.fileobj
                assert isinstance(each, socket.socket)
                if key.data:
                    connection, _ = each.accept()
                    self._selector.register(connection, selectors.EVENT_READ, None)
                    continue
                data = each.recv(65535)
                names = re.findall(rf"{self.mark}<([^>]*)>".encode(), data)
                with self._lock:
                    self._seen.update(name.decode() for name in names)
                if each is self._ours:
                    if not data:
                        return
                    self._fences += len(data)
                elif key.data is None:
                    if b"\r\n\r\n" in data:
                        answer = f"HTTP/1.0 200 OK\r\nContent-Length: {len(self.word)}\r\n\r\n{self.word}"
                        each.sendall(answer.encode())
                    self._selector.unregister(each)
                    each.close()

    def seen(self) -> set[str]:
        """What arrived so far. What the kernel has of earlier ones is read first: the second round begins after it."""
        for _ in range(2):
            before = self._fences
            self._wake.send(b"x")
            until(lambda before=before: self._fences > before)
        with self._lock:
            return set(self._seen)

    def close(self) -> None:
        self._wake.close()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def plan(self, sockets: dict[str, str]) -> dict[str, Any]:
        return {
            **{"mark": self.mark, "word": self.word, "abstract": self.abstract, "port": self.port},
            **{"hosts": self.hosts, "resolvers": self.resolvers, "far": FAR, "names": NAMES, "sockets": sockets},
            **{"ethertype": ETHERTYPE, "protocol": PROTOCOL, "pid": os.getpid()},
        }


@pytest.fixture(scope="module", params=EACH)
def home(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """A daemon with a sandbox of each of two groups, for each backend."""
    engine = request.getfixturevalue("engine") if request.param == "docker" else None
    assert engine is None or isinstance(engine, Engine)
    with ground(engine=engine) as made:
        made.configure(sandbox="warm_minutes = 60")
        made.start()
        for group in ("main", "other"):
            made.json("groups", "add", group)
            made.sh("true", group)
        yield made


@pytest.fixture
def listeners(home: Ground) -> Iterator[Listeners]:
    made = Listeners(home.runtime)
    try:
        yield made
    finally:
        made.close()


def said(text: str) -> dict[str, str]:
    return dict(line.rsplit(": ", 1) for line in text.splitlines())  # type: ignore[misc]


def test_nothing_gets_out_of_a_sandbox(home: Ground, listeners: Listeners) -> None:
    [other] = [each["run"] for each in home.json("sandbox", "list") if each["group"] == "other"]
    sockets = {
        "of the Engine": home.engine.host.removeprefix("unix://") if home.engine else str(listeners.path),
        "like an Engine's": str(listeners.path),
        "of control": str(home.layout.state / "control.sock"),
        "of another run": str(home.runtime / "clawd" / other / "socket" / "s"),
    }
    plan = home.write("groups/main/inbox/plan.json", json.dumps(listeners.plan(sockets)), 0o644)
    program = home.write("groups/main/inbox/bypass.py", PROGRAM.read_text(), 0o644)
    inside = ("/group/inbox/bypass.py", "/group/inbox/plan.json")

    tried = {
        "exec": said(home.inside("python3", *inside)),
        "turn": said(home.sh(f"python3 {' '.join(inside)}")),
        "bare turn": said(home.sh(f"env -i /usr/bin/python3 {' '.join(inside)}")),
    }
    assert listeners.seen() == set()
    for which, lines in tried.items():
        assert len(lines) > 100, (which, lines)
        assert {name for name, end in lines.items() if end == "OUT"} == set(), which
        roads = {end for name, end in lines.items() if name.startswith("road ")}
        assert roads == {"HTTP/1.1 403 Forbidden"}, (which, lines)

    # The same attempts from the host: each can succeed.
    hidden = "|".join([UNSHOWN, *(() if ROOT else (ROOTS,))])
    shown = [name for name in tried["turn"] if not re.match(hidden, name)]
    there = run(program, plan, *shown)
    assert sorted(there) == sorted(shown)
    arrived = listeners.seen()
    for name, end in there.items():
        assert name in arrived if name.startswith(NETWORK) else end == "OUT", (name, end)
    if ROOT:  # in a network of its own: what it makes there is gone with it
        more = [name for name in tried["turn"] if name.startswith("link ") or name == "family 17"]
        made = run(program, plan, *more, before=("unshare", "--net"))
        assert made.pop("family 17") == "OUT" and "OUT" in made.values(), made


def run(program: Path, plan: Path, *attempts: str, before: tuple[str, ...] = ()) -> dict[str, str]:
    """What the program says on the host."""
    command = [*before, sys.executable, str(program), str(plan), *attempts]
    return said(subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout)
