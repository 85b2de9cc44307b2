"""Which addresses may be dialled. A name is looked up once, each answer is judged in every form that it could have been
wrapped in, and what is left is dialled as it is: nothing is looked up again.

The networks are written out here, for Python's own lists differ from version to version.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path

import anyio
import anyio.to_thread

from clawd.config import grammar
from clawd.gateway.policy import Destination

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Lookup = Callable[[str], Awaitable[list[str]]]

_LOOKUPS = 8  # at one time, of one group: who asks a resolver that hangs waits alone


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(map(ip_network, text.split()))


# Never dialled, whatever a service says: they name nobody, many, or what hands out a machine's credentials.
_NEVER = _networks(
    "0.0.0.0/8 224.0.0.0/4 240.0.0.0/4 169.254.169.0/24 169.254.170.0/24 169.254.42.42 100.100.100.200 168.63.129.16"
    " 192.0.0.192 ::/128 ff00::/8 fd00:ec2::/32 fd20:ce::/32 fd00:42::42 fe80::a9fe:a9fe"
)
# Dialled for a service with allow_private. Of IPv6 that is also all outside 2000::/3.
_PRIVATE = _networks(
    "10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24"
    " 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 2001::/23 2001:db8::/32 3fff::/20"
)
_GLOBAL = IPv6Network("2000::/3")
_MAPPED, _TRANSLATED, _COMPATIBLE, _NAT64 = 0xFFFF, 0xFFFF0000, 0, 0x64FF9B << 64  # of 96 bits


class Refused(Exception):
    """No address of a host may be dialled: 403. The message names none, for they may be of a network of ours."""

    rule = "address_not_allowed"

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def forms(address: Address) -> Iterator[Address]:
    """The address, and every IPv4 address that some translator would take out of it: mapped, compatible, SIIT, NAT64
    (with each length of RFC 6052), 6to4, Teredo, ISATAP."""
    yield address
    if address.version == 4:
        return
    n = int(address)
    if n < 2:  # :: and ::1 wrap nothing
        return
    if n >> 32 in (_MAPPED, _TRANSLATED, _COMPATIBLE, _NAT64) or (n >> 32) & 0xFDFFFFFF == 0x5EFE:
        yield IPv4Address(n & 0xFFFFFFFF)
    if n >> 112 == 0x2002:
        yield IPv4Address(n >> 80 & 0xFFFFFFFF)
    if n >> 96 == 0x20010000:
        yield from (IPv4Address(~n & 0xFFFFFFFF), IPv4Address(n >> 64 & 0xFFFFFFFF))
    if n >> 80 == 0x64FF9B0001:
        yield IPv4Address(n & 0xFFFFFFFF)
        yield IPv4Address((n >> 64 & 0xFFFF) << 16 | n >> 40 & 0xFFFF)
        yield IPv4Address((n >> 64 & 0xFF) << 24 | n >> 32 & 0xFFFFFF)
        yield IPv4Address(n >> 24 & 0xFFFFFFFF)


def private(address: Address, own: Iterable[Network]) -> bool:
    """Whether it leads into a network of ours, or to this host."""
    for form in forms(address):
        if any(form in network for network in (*_PRIVATE, *own)):
            return True
        wraps = form.version == 6 and int(form) >> 32 in (_MAPPED, _NAT64)
        if form.version == 6 and form not in _GLOBAL and not wraps:
            return True
    return False


def refused(answer: str, allow_private: bool, own: Iterable[Network]) -> str | None:
    """Why this address may not be dialled, None when it may."""
    try:
        address = ip_address(answer.partition("%")[0])
    except ValueError:
        return "is no address"
    if any(form in network for form in forms(address) for network in _NEVER):
        return "leads to an address that is never dialled"
    if not allow_private and private(address, own):
        return "leads to this machine or a private network"
    return None


async def check(host: str, port: int, destination: Destination, lookup: Lookup) -> list[str]:
    """The addresses that may be dialled for a destination that was allowed: one lookup, its bad answers dropped. Raises
    Refused when none is left, OSError when there is no answer."""
    if (host, port) != (destination.host, destination.port):
        raise Refused(f"{host}:{port} is not where this request goes")
    service = destination.service
    answers = [host] if grammar.is_address(host) else await lookup(host)
    if not answers:
        raise OSError(f"{host} has no address")
    own = await anyio.to_thread.run_sync(own_addresses)
    reasons = {answer: refused(answer, service.allow_private, own) for answer in answers}
    allowed = [answer for answer, reason in reasons.items() if reason is None]
    if not allowed:
        reason = next(filter(None, reasons.values()))
        hint = f"allow_private = true in [services.{service.name}] in config.toml" if "private" in reason else None
        raise Refused(f"{host} {reason}", hint)
    if destination.scheme == "http" and service.credential is not None:
        allowed = [answer for answer in allowed if private(ip_address(answer.partition("%")[0]), own)]
        if not allowed:
            raise Refused(f"{host} leads to a public address, and a credential never goes there over http://")
    return allowed


class SystemLookup:
    """The system's own resolver, so that what a person wrote in /etc/hosts counts. One for a group."""

    def __init__(self) -> None:
        # Nothing ends a look-up that hangs: its thread counts until it is over, whoever went away meanwhile.
        self._threads = ThreadPoolExecutor(_LOOKUPS, "lookup")

    async def __call__(self, host: str) -> list[str]:
        """Raises OSError."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, _addresses, host)


def _addresses(host: str) -> list[str]:
    return list(dict.fromkeys(str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)))


def own_addresses() -> tuple[Network, ...]:
    """What this host answers to at this moment."""
    if sys.platform != "linux":
        with suppress(OSError):
            return _networks(" ".join(_addresses(socket.gethostname())))
        return ()
    found: set[Network] = set()
    address = ""
    for word in _lines("fib_trie"):
        if word.startswith("|--"):
            address = word[4:]
        elif word.endswith("host LOCAL"):
            found.add(ip_network(address + word.split()[0]))
    for line in _lines("if_inet6"):
        found.add(IPv6Network(int(line.split()[0], 16)))
    return tuple(found)


def _lines(name: str) -> list[str]:
    """Of a table of the kernel's; a machine without IPv6 lacks one."""
    try:
        return [line.strip() for line in Path("/proc/net", name).read_text().splitlines()]
    except FileNotFoundError:
        return []
