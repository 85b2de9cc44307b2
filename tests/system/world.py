"""The world outside, as a test makes it: which addresses names have, and where an address leads. The daemon's own
guard judges the addresses, unchanged; only its lookups and the last step of a connection are the test's.

    world = World(directory)                    # CLAWD_TEST_WORLD = world.path, for tests/system/watched.py
    world.host("api.example.org", upstream.port)          # a public address of its own, port 443 leads to the upstream
    world.names["b.example.org"] = [["127.0.0.1"], ["93.184.215.9"]]     # the first lookup, and all after it
    world.save(); world.lookups; world.dialled

Nothing leaves the machine: an address that is neither loopback nor in the world cannot be reached.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import os
import socket
from asyncio.selector_events import BaseSelectorEventLoop
from collections import Counter
from pathlib import Path
from typing import Any

VARIABLE = "CLAWD_TEST_WORLD"
PUBLIC = "93.184.215.{}"  # nobody is asked there


class World:
    """A file that the daemon reads at each lookup and connection, and the journal that it writes."""

    def __init__(self, directory: Path) -> None:
        self.path, self._journal = directory / "world.json", directory / "world.journal"
        self.names: dict[str, list[list[str]]] = {}
        self.roads: dict[str, int] = {}
        self._journal.touch()
        self.save()

    def host(self, name: str, port: int, *, at: int = 443) -> str:
        """Give a name a public address, whose port `at` leads to `port` of this machine."""
        address = PUBLIC.format(len(self.roads) + 1)
        self.names[name] = [[address]]
        self.road(address, at, port)
        return address

    def road(self, address: str, at: int, port: int) -> None:
        self.roads[f"{address} {at}"] = port

    def save(self) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"names": self.names, "roads": self.roads}))
        new.replace(self.path)
        for file in (self.path, self._journal):
            file.chmod(0o666)

    @property
    def lookups(self) -> list[str]:
        """The names that were looked up."""
        return self._of("lookup")

    @property
    def dialled(self) -> list[str]:
        """`address port` of each connection that was tried."""
        return self._of("dial")

    def _of(self, what: str) -> list[str]:
        lines = (line.partition(" ") for line in self._journal.read_text().splitlines())
        return [rest for word, _, rest in lines if word == what]


def install() -> None:
    """In the daemon's process: have it live in the world that the environment names, if it names one."""
    if VARIABLE not in os.environ:
        return
    path = Path(os.environ[VARIABLE])
    asked: Counter[str] = Counter()

    def read() -> dict[str, Any]:
        return dict(json.loads(path.read_text()))

    def note(line: str) -> None:
        with path.with_name("world.journal").open("a") as journal:
            journal.write(f"{line}\n")

    async def lookup(name: str) -> list[str]:
        note(f"lookup {name}")
        answers = read()["names"].get(name)
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        asked[name] += 1
        return list(answers[min(asked[name], len(answers)) - 1])

    connect = BaseSelectorEventLoop.sock_connect

    async def sock_connect(self: BaseSelectorEventLoop, sock: socket.socket, address: Any) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            host, port, *_ = address
            note(f"dial {host} {port}")
            road = read()["roads"].get(f"{host} {port}")
            if road is not None:
                address = ("127.0.0.1" if sock.family == socket.AF_INET else "::ffff:127.0.0.1", road)
            elif not ipaddress.ip_address(host).is_loopback:
                raise OSError(errno.ENETUNREACH, "not in this world")
        await connect(self, sock, address)

    from clawd.gateway.gateway import Gateway

    made = Gateway.__init__

    def init(self: Gateway, *arguments: Any, **named: Any) -> None:
        made(self, *arguments[:4], **{**named, "lookup": lookup})

    Gateway.__init__ = init  # type: ignore[method-assign]
    asyncio.selector_events.BaseSelectorEventLoop.sock_connect = sock_connect  # type: ignore[method-assign]
