"""What we ask of Discord's API, and what its refusals mean."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from clawd.channel import FormatRefused, NotSent, SendRefused, Unsure
from clawd.model import Outgoing

if TYPE_CHECKING:
    import discord
    from discord.http import HTTPClient

AGAIN_S = 1.0  # after which what may not have arrived is sent again, under the same nonce
_HINTS = {
    10003: "the channel is gone, or the bot was removed from it",
    10008: "the message is gone",
    40005: "the file is larger than this server takes",
    50001: "the bot cannot see this channel: give it the permission View Channels there",
    50006: "there is nothing in the message",
    50007: "this person takes no direct messages from the bot",
    50013: "the bot may not do that here: give it Send Messages, Attach Files, Add Reactions, Read Message History",
    50083: "the thread is archived or locked: open it, or give the bot Manage Threads",
}


def refusal(status: int, code: int, text: str, form: bool = False) -> Exception:
    """What an answer of Discord's that is no success means for a send. `form`: it was in our form, not as it stands."""
    text = _HINTS.get(code) or ("the file is larger than this server takes" if status == 413 else text[:200])
    if status == 401:
        return NotSent("Discord does not take the token any more", 60.0)
    if status >= 500:
        return Unsure(f"Discord answered {status}")
    if code == 50035 and form:
        return FormatRefused(text)
    return SendRefused(f"Discord refuses: {text or status}")


def nonce_of(nonce: str) -> str:
    """Discord takes 25 characters."""
    return nonce if len(nonce) <= 25 else hashlib.sha256(nonce.encode()).hexdigest()[:25]


async def call(
    client_now: Callable[[], discord.Client | None],
    request: Callable[[HTTPClient], Awaitable[Any]],
    *,
    form: bool = False,
    reads: bool = False,
    seconds: float = 25.0,
) -> Any:
    """What Discord answers. Tried twice where the answer is lost: a nonce, or its nature, has it done once."""
    import aiohttp
    import discord

    doubt = False
    while True:
        if (client := client_now()) is None:
            why = "Discord is not connected"
            raise Unsure(why) if doubt else NotSent(why)
        try:
            with anyio.fail_after(seconds):
                return await request(client.http)
        except discord.RateLimited as error:
            found: Exception = NotSent("Discord asks for a pause", error.retry_after)
        except discord.HTTPException as error:
            if error.status == 429:
                pause = error.response.headers.get("Retry-After", "")
                found = NotSent("Discord asks for a pause", float(pause) if re.fullmatch(r"[\d.]+", pause) else 5.0)
            else:
                found = refusal(error.status, error.code, error.text, form)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            found = NotSent("Discord cannot be reached", 5.0)
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # RuntimeError: the session was closed
            found = Unsure(f"Discord's answer was lost ({kind(error)})")
        if reads and isinstance(found, Unsure):
            found = NotSent(str(found), 5.0)
        if doubt and isinstance(found, NotSent):
            found = Unsure(str(found))
        if doubt or not isinstance(found, Unsure):
            raise found from None
        doubt = True
        await anyio.sleep(AGAIN_S)


async def post(message: Outgoing, channel: str, text: str, nonce: str, http: HTTPClient) -> Any:
    import discord
    from discord.http import handle_message_parameters

    more: dict[str, Any] = {}
    if message.reply_to:
        more["message_reference"] = {"message_id": message.reply_to, "channel_id": channel, "fail_if_not_exists": False}
    if message.path:
        more["file"] = await anyio.to_thread.run_sync(partial(discord.File, message.path, filename=message.name))
    with handle_message_parameters(
        text,
        nonce=nonce,
        flags=discord.MessageFlags(suppress_embeds=True),
        allowed_mentions=discord.AllowedMentions.none(),
        **more,
    ) as params:
        if message.buttons and params.payload is not None:
            params.payload["components"] = _components(message)
        return await http.send_message(channel, params=params)


def edit(text: str, message: Outgoing) -> Any:
    """The parameters of an edit. Buttons that are not said again go."""
    import discord
    from discord.http import handle_message_parameters

    params = handle_message_parameters(
        text,
        flags=discord.MessageFlags(suppress_embeds=True),
        allowed_mentions=discord.AllowedMentions.none(),
    )
    assert params.payload is not None
    params.payload["components"] = _components(message)
    return params


def _components(message: Outgoing) -> list[dict[str, Any]]:
    """Rows of at most five buttons."""
    buttons = [{"type": 2, "style": 2, "label": each.label[:80], "custom_id": each.value} for each in message.buttons]
    return [{"type": 1, "components": buttons[at : at + 5]} for at in range(0, min(len(buttons), 25), 5)]


def command(word: str, help: str) -> dict[str, Any]:
    """A slash command with whatever is written behind it, in servers and in direct chats with us alone."""
    text = {"type": 3, "name": "text", "description": "what belongs to it", "required": False}
    return {
        "name": word,
        "description": help[:100] or word,
        "type": 1,
        "contexts": [0, 1],
        "integration_types": [0],
        "options": [text],
    }


def shape(command: Mapping[str, Any]) -> tuple[str, str, int]:
    return command["name"], command["description"], len(command.get("options") or ())


def kind(error: BaseException) -> str:
    """What went wrong, without an address."""
    return f"{type(error).__name__} {getattr(error, 'status', '')}".strip()
