"""Slack's web API and its files: one client, one pool of connections, and what became of each request.

The library's own repeating of requests is off: it would send a message twice. The bot's token goes to Slack's own hosts
alone, and never along a redirect. Nothing that an exception of the libraries says is passed on: it may hold an address
that is a key.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient
from yarl import URL

from channels.slack import refusals
from clawd.channel import Fatal, NotSent, SendRefused, Unsure
from clawd.model import Attachment

# Of the libraries nothing is logged: what matters is raised.
SILENT = logging.Logger("slack_sdk", logging.CRITICAL + 1)
_REQUEST_S, _CONNECT_S, _FILE_S = 30.0, 10.0, 300.0
_CLOSING_S = 5.0
_PIECE = 256 << 10


class Web:
    def __init__(self, client: AsyncWebClient, session: aiohttp.ClientSession) -> None:
        self.client, self._session = client, session
        self.fatal: Fatal | None = None  # the bot's token has stopped to be good

    async def call(
        self, method: str, *, formed: bool = False, safe: bool = False, token: str = "", **params: Any
    ) -> dict[str, Any]:
        """What Slack answers, with the token's rights as `scopes`. Raises NotSent, Unsure (never if `safe`: it may be
        done twice), SendRefused, FormatRefused (only if `formed`), and Fatal where `token` is being tried."""
        try:
            answer = await getattr(self.client, method)(**params)
        except SlackApiError as error:
            response = error.response
            data = getattr(response, "data", None)
            data = data if isinstance(data, dict) else {}
            status = response.status_code if hasattr(response, "status_code") else response.status
            wrong = refusals.fatal(token or "bot_token", data)
            if wrong and token:
                raise wrong from None
            if data.get("error") in refusals.TOKEN:
                self.fatal = wrong
            after = response.headers.get("Retry-After", "")
            raise refusals.refusal(status, data, after, formed=formed, safe=safe) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent(
                f"Slack cannot be reached ({type(error).__name__}): look at the network and api_base"
            ) from None
        except (aiohttp.ClientError, SlackClientError, OSError, ValueError, RuntimeError, AttributeError) as error:
            why = f"Slack's answer was lost: {type(error).__name__}"
            raise (NotSent(why) if safe else Unsure(why)) from None
        return {**answer.data, "scopes": answer.headers.get("x-oauth-scopes", "").replace(" ", "").split(",")}

    async def put(self, address: str, path: Path) -> None:
        """Hand a file over, which shows it to nobody yet. Raises NotSent."""
        timeout = aiohttp.ClientTimeout(total=_FILE_S, sock_connect=_CONNECT_S)
        try:
            with path.open("rb") as file:
                async with self._session.post(
                    address, data=file, allow_redirects=False, timeout=timeout, proxy=self.client.proxy
                ) as answer:
                    status = answer.status
        except (aiohttp.ClientError, OSError) as error:
            raise NotSent(f"the file could not be handed to Slack: {type(error).__name__}") from None
        if status != 200:
            raise NotSent(f"Slack did not take the file: HTTP {status}")

    async def get(self, address: str, attachment: Attachment, to: Path, limit: int) -> None:
        """Write a file of theirs. Raises SendRefused, NotSent."""
        name, url = attachment.name, URL(address)
        if not _is_slacks(url, URL(self.client.base_url)):
            raise SendRefused(f"{name} is not to be had from Slack itself; send it as a file")
        headers, timeout = {"Authorization": f"Bearer {self.client.token}"}, aiohttp.ClientTimeout(total=_FILE_S)
        try:
            async with self._session.get(
                url, headers=headers, allow_redirects=False, timeout=timeout, proxy=self.client.proxy
            ) as answer:
                if answer.status == 429 or answer.status >= 500:
                    raise NotSent(f"Slack answered {answer.status}")
                if answer.status in (404, 410):
                    raise SendRefused(f"{name} is gone from Slack")
                page = answer.content_type == "text/html"  # where to log in, with 200
                meant = "html" in attachment.mime and answer.content_length == attachment.size
                if answer.status != 200 or (page and not meant):
                    raise SendRefused(f"Slack lets the app read no files, its right files:read: {refusals.REINSTALL}")
                size = 0
                async with await anyio.open_file(to, "wb") as file:
                    async for piece in answer.content.iter_chunked(_PIECE):
                        size += len(piece)
                        if size > limit:
                            raise SendRefused(f"{name} is larger than {limit >> 20} MB")
                        await file.write(piece)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NotSent(f"{name} could not be fetched: {type(error).__name__}") from None


@asynccontextmanager
async def opened(bot_token: str, base: str) -> AsyncIterator[Web]:
    session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_REQUEST_S, sock_connect=_CONNECT_S))
    try:
        client = AsyncWebClient(bot_token, base_url=f"{base}/api/", session=session, logger=SILENT, retry_handlers=[])
        yield Web(client, session)
    finally:
        with anyio.move_on_after(_CLOSING_S, shield=True):
            await session.close()


def _is_slacks(url: URL, base: URL) -> bool:
    """Whether the token may go there."""
    if not url.absolute or url.origin() == base.origin():
        return url.absolute
    hosts = (".slack.com", f".{base.host}")
    return url.scheme == "https" and url.port == 443 and (url.host or "").endswith(hosts)
