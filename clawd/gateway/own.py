"""A call of the daemon's own, by the rules that hold for a sandbox's: the service's addresses, methods, paths, limits,
certificates and credential. No redirect, no cookie; the answer is bounded, and only its caller sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp
from yarl import URL

from clawd.config.presets import services
from clawd.config.schema import Config
from clawd.gateway import address, headers
from clawd.gateway.credentials import Credentials
from clawd.gateway.policy import Destination, decide, own_call
from clawd.gateway.refusal import Refusal
from clawd.gateway.target import Target
from clawd.gateway.upstream import Upstreams
from clawd.trust import Role

_GROUP = ""  # of connections that are no group's
File = tuple[str, str, bytes]


class OwnCalls:
    """One for the daemon."""

    def __init__(self) -> None:
        self._lookup, self._credentials = address.SystemLookup(), Credentials()
        self._upstreams = Upstreams(self._addresses)

    async def post(
        self,
        config: Config,
        name: str,
        path: str,
        fields: Sequence[tuple[str, str]],
        file: File,
        most: int,
        seconds: float,
    ) -> tuple[int, bytes]:
        """POST a form with fields and one File (name, content type, content), to a path counted from the service's
        address. Gives the status and at most `most` bytes of the answer. Raises Refusal with the rule that forbids it,
        or that the service was not reached."""
        service = services(config).get(name)
        if service is None:
            raise Refusal("unknown_service", f"there is no service {name}", hint=f"[services.{name}] in config.toml")
        verdict = decide("POST", Target("route", service=name, path=path), own_call(name, service), Role.OWNER)
        if verdict.destination is None:
            raise Refusal(verdict.rule, verdict.reason, verdict.status, hint=verdict.hint)
        try:
            async with asyncio.timeout(seconds):
                return await self._post(verdict.destination, fields, file, most)
        except TimeoutError as error:
            raise Refusal("slow", f"{name} did not answer within {seconds:.0f} s", 504) from error
        except (aiohttp.ClientError, OSError) as error:  # whose text is the network's
            raise Refusal("upstream", f"{name} was not reached ({type(error).__name__})", 502) from error

    async def _post(
        self, to: Destination, fields: Sequence[tuple[str, str]], file: File, most: int
    ) -> tuple[int, bytes]:
        form = aiohttp.FormData(default_to_multipart=True)
        for each in fields:
            form.add_field(*each)
        named, kind, content = file
        form.add_field("file", content, filename=named, content_type=kind)
        body, query = form(), to.query
        sent = {"Content-Type": str(body.content_type), "Accept": "application/json", "Accept-Encoding": "identity"}
        if to.service.credential is not None:
            secret, inject = await self._credentials.reveal(to.service.credential), to.service.inject
            if header := headers.credential(inject, secret):
                sent[header[0]] = header[1]
            elif inject is not None and inject.query:
                query = headers.with_parameter(query, inject.query, secret)
        url = URL.build(scheme=to.scheme, host=to.host, port=to.port, path=to.path, query_string=query, encoded=True)
        client = await self._upstreams.client(_GROUP, to)
        try:
            asking = client.session.post(url, data=body, headers=sent, allow_redirects=False, middlewares=())
            async with asking as response:
                return response.status, await _bounded(response, most)
        finally:
            client.leave()

    async def _addresses(self, group: str, to: Destination) -> list[str]:
        try:
            return await address.check(to.host, to.port, to, self._lookup)
        except address.Refused as error:
            raise Refusal(error.rule, error.message, hint=error.hint) from error

    async def close(self) -> None:
        await self._upstreams.close()


async def _bounded(response: aiohttp.ClientResponse, most: int) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > most:
            raise Refusal("too_large", f"the answer is larger than {most >> 10} KiB", 502)
    return bytes(data)
