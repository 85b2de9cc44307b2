"""What Slack's refusals mean: which error code is whose fault, and what a person can do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clawd.channel import Fatal, FormatRefused, NotSent, SendRefused, Unsure

WHERE = "at https://api.slack.com/apps, docs/slack.md says how"
REINSTALL = "add it under OAuth & Permissions, install the app again and put the new token into config.toml"

# The token itself is wrong: nothing will work before a person mends it.
TOKEN = {
    "invalid_auth": "Slack does not know it",
    "not_authed": "it is empty",
    "token_revoked": "it was revoked",
    "token_expired": "it has expired; clawd wants tokens without rotation",
    "account_inactive": "the app was removed from the workspace, or the workspace is gone",
    "not_allowed_token_type": "it is of the other kind: bot_token begins with xoxb-, app_token with xapp-",
    "team_access_not_granted": "the app is not installed in the workspace",
    "user_removed_from_team": "the app's bot was removed from the workspace",
    "invalid_app": "its app was deleted",
}
_FORM = {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long", "markdown_text_conflict"}
_BUSY = {"ratelimited", "rate_limited", "service_unavailable", "request_timeout", "team_added_to_org"}
# Slack says of these that some of it may have been done.
_DOUBT = {"internal_error", "fatal_error"}
_WORDS = {
    "channel_not_found": "Slack shows this chat to no app that is not in it: invite the bot there (/invite @its-name)",
    "not_in_channel": "the bot is not in this channel: invite it there (/invite @its-name)",
    "is_archived": "the channel is archived",
    "message_not_found": "the message is gone",
    "cant_update_message": "the message is not one of ours",
    "cant_delete_message": "the message is not one of ours, or the workspace does not let it be taken back",
    "edit_window_closed": "the workspace lets nobody edit a message this late",
    "messages_tab_disabled": f"direct messages to the app are off: allow them under App Home ({WHERE})",
    "invalid_name": "Slack does not know this emoji",
    "file_not_found": "the file is gone",
    "file_deleted": "the file was deleted",
    "no_text": "there is no text in it",
}


class Refused(SendRefused):
    """With Slack's own `code`."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


def fatal(token: str, answer: Mapping[str, Any]) -> Fatal | None:
    """What it means when a token is tried for the first time; None if it may be well later."""
    error, needed = answer.get("error"), answer.get("needed")
    if error == "missing_scope":
        how = "make one with it" if token == "app_token" else REINSTALL
        return Fatal(f"Slack's {token} lacks the right {needed or 'that it needs'}: {how} ({WHERE})")
    if error in TOKEN:
        return Fatal(f"Slack refuses {token} of [channels.slack]: {TOKEN[error]}. Make a new one {WHERE}")
    return None


def refusal(
    status: int, answer: Mapping[str, Any], retry_after: str = "", *, formed: bool = False, safe: bool = False
) -> Exception:
    """What to raise for a call that Slack did not do. `formed`: it was given blocks, so its form may be at fault.
    `safe`: a call that may be made twice."""
    error = str(answer.get("error") or "")
    if status == 429 or error in _BUSY:
        seconds = float(retry_after) if retry_after.replace(".", "", 1).isdigit() else 5.0
        return NotSent(f"Slack takes no more just now ({error or status})", seconds)
    if status >= 500 or error in _DOUBT or (not error and status < 400):
        why = f"Slack answered {error or status}"
        return NotSent(why) if safe else Unsure(why)
    if not error:
        return NotSent(f"Slack answered {status} without a word: is api_base right?", 30.0)
    if error in TOKEN:
        return NotSent(f"Slack refuses bot_token: {TOKEN[error]}", 60.0)
    if formed and error in _FORM:
        return FormatRefused(f"Slack does not take the message's form: {error}")
    if error == "missing_scope":
        words = f"the Slack app lacks the right {answer.get('needed') or '(unnamed)'}: {REINSTALL}"
    elif error.startswith("restricted_action"):
        words = f"the workspace or channel does not let the bot do this ({error}): ask who administers it"
    else:
        words = _WORDS.get(error, f"Slack refused it: {error}")
    return Refused(error, words)
