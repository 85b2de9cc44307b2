"""`ask`: a question to the people of the chat. It returns at once; the answer is a wake of its own. It grants nothing,
and cannot look as if it did."""

from __future__ import annotations

import re
import unicodedata
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from clawd.errors import UsageError
from clawd.host.tools import Act, ToolContext
from clawd.ledger import questions
from clawd.model import Button

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction

NAME = "ask"
DESCRIPTION = "Ask the people of this chat, then end your turn; the answer comes as a message."
DECLARED = ("question", "choices")
HELP = (
    "Choices are numbered for them; without any, whatever is said next is the answer. `note` is for yourself and comes"
    " back with it. Somebody with at least the rights that this turn has can answer; when nobody does in"
    " `expires_hours` (24, at most 720), you are told. A new question takes the place of an open one. An answer is no"
    " approval: approving and denying cannot be offered."
)
MOST_CHOICES = 20


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    question: str = Field(max_length=4000)
    choices: list[Annotated[str, Field(max_length=200)]] = Field(default=[], max_length=MOST_CHOICES)
    note: str = Field(default="", max_length=8000, description="what you want to be reminded of")
    expires_hours: float = Field(default=24, gt=0, le=720, allow_inf_nan=False)


async def prepare(context: ToolContext, arguments: Arguments) -> Act:
    """Raises UsageError for a question or choices that cannot be put to a person."""
    question = arguments.question.strip()
    choices = [" ".join(each.split()) for each in arguments.choices]
    if not question:
        raise UsageError("a question needs some text")
    if len(choices) == 1 or not all(choices) or len({each.casefold() for each in choices}) < len(choices):
        raise UsageError("choices are two or more, each with words of its own; or none, for an open question")
    if offers_verdict(question, choices):
        raise UsageError(
            "nobody can approve or deny here: approvals come from clawd itself. Say what will be done instead"
        )
    expires = context.clock.now() + timedelta(hours=arguments.expires_hours)

    def act(tx: Transaction, effect_id: int) -> dict[str, Any]:
        id, earlier = questions.ask(tx, context.lease.turn, question, choices, arguments.note, expires)
        buttons = [Button(choice, f"answer:{id}:{n}") for n, choice in enumerate(choices, 1)]
        context.enqueue(tx, effect_id, kind="text", text=put(question, choices, bool(earlier)), buttons=buttons)
        withdrawn = {"withdrawn": "your earlier question"} if earlier else {}
        return {"asked": "end your turn now; the answer comes as a message", **withdrawn}

    return act


def put(question: str, choices: list[str], again: bool) -> str:
    """The question as the chat is shown it."""
    numbered = "\n".join(f"{number}. {choice}" for number, choice in enumerate(choices, 1))
    how = "Answer with a number or the words." if choices else "Your next message is the answer."
    instead = " This takes the place of its earlier question." if again else ""
    return "\n\n".join(filter(None, [f"The agent asks: {question}", numbered, f"{how}{instead}"]))


# What people read as these letters, or write in their place.
_ALIKE = {
    "a": "а4@αᴀ",
    "d": "ԁᴅ",
    "e": "е3εᴇ",
    "i": "і1!|ιɪ",
    "l": "ʟ",
    "n": "пηɴ",
    "o": "о0οσᴏ",
    "p": "рρᴘ",
    "r": "гʀ",
}
_ALIKE |= {"s": "ѕ5$", "v": "ѵνᴠ", "y": "уυʏ"}
_LETTERS = {ord(other): letter for letter, others in _ALIKE.items() for other in others}
_VERDICTS = {"approve": re.compile("ap+r+o+v"), "deny": re.compile("den+(y|i(ed|es|al|er))")}
_LISTED = re.compile(r"\s*(?:[-*•–]|\(?\w{1,2}[.):])\s")


def verdicts(text: str) -> set[str]:
    """Which of approve and deny a text says, in whatever spelling and among whatever other words."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold()).translate(_LETTERS)
    plain = "".join(letter for letter in plain if letter.isspace() or unicodedata.category(letter)[0] not in "MC")
    spelt = re.sub(r"(?<![a-z])([a-z])[^a-z]+(?=[a-z](?![a-z]))", r"\1", plain)  # a p p r o v e
    words = {*re.findall("[a-z]+", plain), *re.findall("[a-z]+", spelt)}
    words |= {re.sub("[^a-z]", "", word) for word in plain.split()}
    return {name for name, spelling in _VERDICTS.items() if any(map(spelling.search, words))}


def offers_verdict(question: str, choices: list[str]) -> bool:
    """Whether somebody could answer with approve or deny: by a choice, by a line that looks like one, or because the
    question names both."""
    listed = [line for line in question.splitlines() if _LISTED.match(line)]
    return any(map(verdicts, [*choices, *listed])) or len(verdicts(question)) == len(_VERDICTS)
