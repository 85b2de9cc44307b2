"""Connections to upstreams: a client for each group and service (and scheme), so that nothing of one is ever used for
another.

No cookies, no proxies or credentials of this machine's environment, no redirects, nothing unpacked. A name is resolved
by the given function alone, which gives addresses that were checked, and those are dialled.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_middlewares import ClientHandlerType
from aiohttp.http_parser import HttpRequestParser, HttpRequestParserPy

from clawd.apart import Apart
from clawd.config import grammar
from clawd.config.grammar import Scheme
from clawd.files import plain
from clawd.gateway.policy import Destination, Granted
from clawd.gateway.refusal import Refusal

# Gives the addresses that a group may dial for a destination, at least one. Raises Refusal, and OSError.
Addresses = Callable[[str, Destination], Awaitable[list[str]]]

_CONNECT_S = 15.0
_CONNECTIONS = 256  # at a time, for one group and service
_CHECKED_S = 5.0  # the addresses of this host change seldom
_LARGEST_HEADERS = 32 << 10

if HttpRequestParser is HttpRequestParserPy:
    raise ImportError("aiohttp was installed without its C parser, which the gateway's strictness rests on")


class NotUpgraded(Exception):
    """An upstream did not switch to WebSocket; all that is told of its answer is the status."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


@dataclass(slots=True)
class Client:
    """A session with its connections. It is closed when it was replaced and the last request has left it."""

    service: Granted
    session: aiohttp.ClientSession
    checked: dict[str, float] = field(default_factory=dict)
    """Hosts that are addresses, and until when they need not be looked at again."""
    users: int = 0
    closing: asyncio.Task[None] | None = None
    replaced: bool = False

    def leave(self) -> None:
        self.users -= 1
        self.end()

    def end(self) -> None:
        if self.replaced and not self.users and self.closing is None:
            self.closing = asyncio.get_running_loop().create_task(self.session.close())


class Upstreams:
    """Clients by group and service. One whose service has changed is replaced; what it still does may end."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._clients: dict[tuple[str, str, Scheme], Client] = {}
        self._roots: dict[str | None, tuple[int, ssl.SSLContext]] = {}
        self._apart = Apart()

    async def client(self, group: str, destination: Destination) -> Client:
        """For one request, which leaves it. Raises Refusal when the service's `ca` cannot be read, or the destination
        is an address that may not be dialled."""
        service, key = destination.service, (group, destination.service.name, destination.scheme)
        client = self._clients.get(key)
        if client is None or not (client.service is service or client.service == service):
            context = await self._context(service)
            client = self._clients.get(key)  # another may have been here meanwhile
            if client is None or client.service != service:
                if client is not None:
                    client.replaced = True
                    client.end()
                client = self._clients[key] = Client(service, self._open(group, service, destination.scheme, context))
        client.users += 1
        try:
            await self._checked(group, client, destination)
        except BaseException:
            client.leave()
            raise
        return client

    async def _checked(self, group: str, client: Client, destination: Destination) -> None:
        """aiohttp resolves names alone: an address is looked at here."""
        host = destination.host
        if grammar.is_address(host) and client.checked.get(host, 0.0) < (now := time.monotonic()):
            await self._addresses(group, destination)
            client.checked[host] = now + _CHECKED_S

    def _open(self, group: str, service: Granted, scheme: Scheme, context: ssl.SSLContext) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            ssl=context,
            resolver=_Resolver(partial(self._addresses, group), service, scheme),
            use_dns_cache=False,
            limit=_CONNECTIONS,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("User-Agent", "Content-Type", "Accept", "Accept-Encoding"),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
            max_line_size=_LARGEST_HEADERS,
            max_field_size=_LARGEST_HEADERS,
            middlewares=(_only_upgraded,),  # for WebSockets; other requests give their own
        )

    async def _context(self, service: Granted) -> ssl.SSLContext:
        """What upstreams are verified with: the roots of this machine, and the service's own."""
        try:
            return await self._apart(service.ca, partial(self._verifying, service.ca))
        except (OSError, ssl.SSLError) as error:
            raise Refusal(
                "upstream_certificate",
                f"the certificates that {service.name} is verified with cannot be read",
                502,
                hint=f"mend [services.{service.name}] ca",
            ) from error

    def _verifying(self, ca: str | None) -> ssl.SSLContext:
        """Made anew when the file has changed. In a thread."""
        changed = Path(ca).expanduser().stat().st_mtime_ns if ca is not None else 0
        made, context = self._roots.get(ca, (None, None))
        if context is None or made != changed:
            context = _verifying(ca)
            self._roots[ca] = changed, context
        return context

    async def close(self) -> None:
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.session.close()


class _Resolver(AbstractResolver):
    def __init__(
        self, addresses: Callable[[Destination], Awaitable[list[str]]], service: Granted, scheme: Scheme
    ) -> None:
        self._addresses, self._service, self._scheme = addresses, service, scheme

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        destination = Destination(self._service, self._scheme, host, port, "", "")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in await self._addresses(destination)
        ]

    async def close(self) -> None:
        pass


def _verifying(ca: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if ca is not None:
        path = Path(ca).expanduser()
        os.close(plain(str(path), os.O_RDONLY))  # OpenSSL would wait at a pipe
        context.load_verify_locations(path)
    return context


async def _only_upgraded(request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
    """aiohttp follows redirects of a WebSocket's handshake, with all its headers: here they end."""
    response = await handler(request)
    if response.status != 101:
        response.close()
        raise NotUpgraded(response.status)
    return response
