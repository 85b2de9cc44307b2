"""Our own loop, for "messages" and "chat": ask the model, run the tools that it calls, ask again, until it answers.

Limits are checked before each call of the model. What fails in passing is tried again, what stays so goes to the next
of the turn's models. What a provider says about an error reaches no chat: a sentence of ours does, and a code."""

from __future__ import annotations

import os
import time
from contextlib import closing

from agent import protocol
from agent.engines import chat, messages
from agent.engines.conversation import conversation
from agent.engines.stream import Away, Failure, Reply, events
from agent.turn import Answer, GivenUp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agent.turn import Turn

BATCH_S = 0.1  # a host call for what was said, at most so often
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
_DIALECTS: dict[str, Any] = {"messages": messages, "chat": chat}
_BROKE = ("insufficient_quota", "billing", "credit balance")
_FULL = ("too long", "context length", "context_length", "context window")
_WORDS = (  # of the providers, and what they mean
    (_BROKE, "The account at {service} has no credit left"),
    (_FULL, "The conversation is longer than {model} can read; /new starts another"),
    (("support tools",), "{model} cannot use tools; choose another model"),
    (("max_tokens",), "{model} does not give answers as long as [model] max_output; lower it"),
)
_FAILED = {
    0: "The connection to {service} broke off again and again before {model} had answered",
    401: "{service} did not accept the credential that [services.{service}] in config.toml names",
    403: "{service} does not let this credential use {model}",
    404: "{service} does not know the model {model}",
    413: "The conversation is larger than {service} takes; /new starts another",
    429: "{service} is asked too much just now, and stayed so",
    529: "{service} is overloaded, and stayed so",
}
_ENDS = {
    "max_tokens": "[The answer was cut off: it may have {max_output} tokens ([model] max_output).]",
    "context": "[The answer was cut off: the conversation fills what {model} can read. /new starts another.]",
    "refusal": "[{model} declined to answer this (refusal).]",
}


def respond(turn: Turn) -> Answer:
    model = Model(turn)
    try:
        while turn.replaying():
            turn.round("", [])
        return converse(turn, model)
    except GivenUp as reason:
        return model.answer(error=str(reason), stop_reason=reason.stop_reason)


def converse(turn: Turn, model: Model) -> Answer:
    while True:
        turn.within_limits()
        reply = model.query()
        turn.showing()
        text = said(reply, model.current)
        if reply.calls and reply.stop != "refusal":
            turn.round(reply.text(), reply.asked(), streamed=True)
            turn.more()
        elif reply.stop != "refusal" and (turn.more() or (reply.stop == "pause" and text)):
            if text:  # an answer of its own, with which the final begins
                turn.round(text, [], streamed=True)
                turn.say("\n\n")
        else:
            replies = [step for step in turn.steps if step["role"] == "assistant" and not step.get("tool_calls")]
            text = "\n\n".join(filter(None, [*(step["content"] for step in replies), text]))
            return model.answer(text, stop_reason=reply.stop)


class Model:
    """The turn's models: which one is asked now, what was used, and what was given up."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._left: list[dict[str, Any]] = list(turn.context["models"])
        self.current = self._left.pop(0)
        self._without: set[str] = set()  # parameters that this model does not know
        self._said = ""  # of the reply that is coming
        self._fallbacks: list[dict[str, str]] = []
        self._usage = [0, 0, 0]
        self._window = 0  # what the last call read and wrote

    def answer(self, text: str = "", error: str | None = None, stop_reason: str = "end") -> Answer:
        used = dict(zip(("input", "output", "cached"), self._usage))
        usage = {**used, "window": self._window or None} if any(self._usage) else None
        notes = {"fallback": self._fallbacks} if self._fallbacks else None
        return Answer(text, error, stop_reason, usage=usage, model=self.current["model"], notes=notes)

    def query(self) -> Reply:
        """One whole reply. Raises GivenUp when no model gives one."""
        self._said = ""
        while True:
            try:
                return self._ask()
            except Failure as failure:
                error = sentence(failure, self.current)
                if not self._left or not (passing(failure) or exhausted(failure)):
                    full = failure.status == 413 or any(word in failure.message for word in _FULL)
                    raise GivenUp(error, protocol.OVERFLOW if full else protocol.GIVEN_UP) from failure
                before, self.current, self._without = self.current["model"], self._left.pop(0), set()
                self._fallbacks.append({"from": before, "to": self.current["model"], "why": str(failure)})

    def _ask(self) -> Reply:
        """A reply of the current model, asked again while there is hope. Raises Failure."""
        tried = 0
        while True:
            self._turn.within_limits()
            try:
                return self._once()
            except Away:
                self._turn.renew()
                self._turn.pause(0.05)
            except Failure as failure:
                self._turn.check()
                if self._learned(failure):
                    continue
                wait, longest = pause_before(tried, failure.after), min(LONGEST_PAUSE_S, self._turn.left())
                hopeless = exhausted(failure) or not passing(failure) or (failure.after or wait) > longest
                if hopeless or tried >= self._turn.limits["retries"]:
                    raise
                tried += 1
                self._turn.renew()  # also for a daemon that has just come back
                self._turn.pause(wait)

    def _learned(self, failure: Failure) -> bool:
        """Whether a refusal names a parameter that the model can be asked without."""
        for name, words in _DIALECTS[self.current["dialect"]].OPTIONAL.items():
            if failure.status == 400 and name not in self._without and any(word in failure.message for word in words):
                self._without.add(name)
                return True
        return False

    def _once(self) -> Reply:
        turn, dialect = self._turn, _DIALECTS[self.current["dialect"]]
        body = dialect.request(self.current, turn.context, conversation(turn), self._without)
        data = protocol.packed(body)
        reply, last = dialect.Answer(), time.monotonic()
        try:
            with closing(events(turn, self.current["path"], dialect.HEADERS, data)) as coming:
                for event in coming:
                    try:
                        reply.take(event)
                    except (AttributeError, TypeError, ValueError, LookupError) as error:  # one of another shape
                        raise Failure(0, "malformed") from error
                    if len(reply.calls) > 500:  # nobody means that many
                        raise Failure(500, "too_many_calls")
                    if time.monotonic() - last >= BATCH_S:
                        self._say(reply.text())
                        turn.flush()
                        last = time.monotonic()
            if not reply.whole:
                raise Failure(0, "cut")
        except Failure:
            if not reply.whole:  # else only what comes after the answer is missing
                raise
        finally:
            used = reply.usage()
            self._usage = [sum(pair) for pair in zip(self._usage, used)]
            self._window = used[0] + used[1] or self._window
        self._say(reply.text())
        return reply

    def _say(self, text: str) -> None:
        """Show what is new. A reply that is asked for again is not shown twice; where it differs from what was shown,
        the final text decides."""
        if len(text) > len(self._said) and text.startswith(self._said):
            self._turn.say(text[len(self._said) :])
            self._said = text


def passing(failure: Failure) -> bool:
    """Whether the same call may succeed later."""
    by_status = failure.status in (0, 408, 429) or failure.status >= 500
    return failure.rule in protocol.PASSING if failure.rule else by_status


def exhausted(failure: Failure) -> bool:
    """Whether this model will not answer for long, but another one may."""
    return failure.rule == "budget" or any(word in failure.message for word in _BROKE)


def pause_before(tried: int, after: float | None) -> float:
    """Seconds until the next try, with jitter, so that many who were refused at once do not come back at once."""
    chance = os.urandom(1)[0] / 255
    if after is not None:
        return after * (1 + chance / 4)
    return FIRST_PAUSE_S * 2**tried * (1 + chance) / 2


def said(reply: Reply, model: dict[str, Any]) -> str:
    """A reply's text, with what the person must know about how it ended."""
    remark = _ENDS.get(reply.stop, "").format(**model)
    return "\n\n".join(filter(str.strip, (reply.text(), remark)))


def sentence(failure: Failure, model: dict[str, Any]) -> str:
    """What went wrong, for the person."""
    if failure.rule:
        return failure.message
    code = f" ({' '.join(filter(None, (str(failure.status), failure.kind)))})" if failure.status else ""
    words = _WORDS if failure.status == 400 else _WORDS[:1]
    found = next((said for named, said in words if any(word in failure.message for word in named)), None)
    general = "{service} failed, and stayed so" if failure.status >= 500 else "{service} refused the request"
    return (found or _FAILED.get(failure.status, general)).format(**model) + code + "."
