"""What became of a call that ended in an error of Telegram's library: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawd.channel import ChatMoved, FormatRefused, NotSent, SendRefused, Unsure

if TYPE_CHECKING:
    import telegram

WRONG = "Telegram does not know this token: @BotFather shows the right one (/mybots, then API Token)"


def outcome(error: telegram.error.TelegramError, words: str, formatted: bool) -> Exception:
    """What became of a call that ended in an error of the library: stored surely not, never, or nobody knows."""
    import httpx
    from telegram.error import BadRequest, ChatMigrated, Forbidden, InvalidToken, RetryAfter, TelegramError

    not_sent = (
        httpx.ConnectError,
        httpx.ConnectTimeout,
        httpx.PoolTimeout,
        httpx.ProxyError,
        httpx.UnsupportedProtocol,
    )
    cause, said = error.__cause__, str(error).lower()
    if isinstance(error, RetryAfter):
        return NotSent("Telegram asks for a pause", seconds(error))
    if isinstance(error, ChatMigrated):
        return ChatMoved(str(error.new_chat_id))
    if isinstance(cause, (*not_sent, RuntimeError)):  # the last one: the client was closed before
        return NotSent(words)
    if isinstance(cause, TelegramError):  # a page of somebody between us and Telegram
        return Unsure(words)
    if isinstance(error, InvalidToken):
        return NotSent(WRONG, 30.0)
    if isinstance(error, BadRequest):
        return FormatRefused(words) if formatted and "entit" in said else SendRefused(words)
    if isinstance(error, Forbidden) or "too large" in said:
        return SendRefused(words)
    return Unsure(words)


def seconds(error: telegram.error.RetryAfter) -> float:
    pause = error.retry_after
    return pause if isinstance(pause, int | float) else pause.total_seconds()


def is_wrong_token(error: BaseException | None) -> bool:
    """Whether Telegram itself says so, and no page of somebody between."""
    from telegram.error import InvalidToken

    while isinstance(error, InvalidToken) and error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, InvalidToken)
