"""A request that is not let through, as an exception and as the answer that the sandbox gets."""

from __future__ import annotations

import json

from aiohttp import web

MARK = "X-Clawd-Rule"  # a header of every refusal, and of no upstream's answer: what is in the body anybody could say
# What is said to the owner, not only to the person whose turn it is: no honest program does it.
ALARMING = frozenset({"cross_group_token", "placeholder_misuse"})
# What nobody is told of here: there is no turn, or it is told by how the turn ends.
QUIET = frozenset({"no_turn", "budget"})


class Refusal(Exception):
    """`rule` is a word for the audit and for programs, `message` a sentence, `hint` what the person can do.
    `retry_after` is in seconds; `close` ends the connection, whose next bytes could be read in two ways."""

    def __init__(
        self,
        rule: str,
        message: str,
        status: int = 403,
        *,
        hint: str | None = None,
        retry_after: int | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.rule, self.message, self.status, self.hint = rule, message, status, hint
        self.retry_after, self.close = retry_after, close

    def response(self) -> web.Response:
        body = {"schema": 1, "error": self.rule, "rule": self.rule, "message": self.message, "hint": self.hint}
        response = web.Response(
            body=json.dumps(body, separators=(",", ":")).encode(), status=self.status, content_type="application/json"
        )
        response.headers[MARK] = self.rule
        if self.retry_after is not None:
            response.headers["Retry-After"] = str(self.retry_after)
        if self.close:
            response.force_close()
        return response


class Aborted(Exception):
    """The sandbox broke off: nobody is left to answer."""
