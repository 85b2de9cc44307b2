"""The nouns that travel between rooms, as frozen values. No behaviour, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from clawd.trust import Origin, Role

PartKind = Literal["typed", "quoted", "forwarded", "attachment"]
IncomingKind = Literal["message", "edit", "delete", "command", "button"]
DeliveryKind = Literal["stream", "text", "file", "notice", "reaction"]
SpanKind = Literal["bold", "italic", "underline", "strikethrough", "spoiler", "code", "pre", "blockquote", "text_link"]
EngineName = Literal["offline", "scripted", "messages", "chat", "claude-code", "exec"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a message with its own origin. `sender` names who is quoted; `name` the attached file."""

    kind: PartKind
    origin: Origin
    text: str
    sender: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What a message passes on of somebody else: `sender` is whose words they are, as the platform tells it."""

    kind: Literal["quoted", "forwarded"]
    text: str
    sender: str | None = None


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of a message that was not fetched yet. `handle` is what its adapter needs to fetch it, JSON-ready, also
    after a restart; `size` in bytes where the platform tells it; `voice`: a spoken note."""

    name: str
    handle: dict[str, Any]
    size: int | None = None
    mime: str = ""
    voice: bool = False


@dataclass(frozen=True, slots=True)
class Incoming:
    """What an adapter received, before anything was decided about it.

    `(channel, account, chat, thread, kind, platform_id, rev)` names it for ever: the same one twice is one message.
    `at` is when it happened, `sender` the account of the person (`telegram:7`, `slack:T012/U345`; at the terminal
    `owner`, `member:bob`). `texts` are what the sender typed, `said` what they pass on. An `edit` has the platform_id
    of the message, its new texts and a higher `rev`; a `delete` the platform_id alone (its sender may be empty).
    """

    channel: str
    chat: str
    platform_id: str
    sender: str
    texts: tuple[str, ...]
    at: datetime
    kind: IncomingKind = "message"
    account: str = ""
    thread: str = ""
    rev: int = 0
    session: str | None = None  # only the terminal may name a session
    said: tuple[Said, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    name: str = ""  # how the platform calls the sender: anybody's choice
    title: str = ""  # how it calls the chat
    direct: bool = False  # a chat of one person with us alone
    addressed: bool = False  # mentions us, replies to us, or is a command for us
    reply_to: str | None = None  # the platform's id of the message that it replies to
    album: str | None = None  # messages of one album have the same
    target: str | None = None  # of a button: the platform's id of the message that it is on
    value: str = ""  # of a button: what we gave it
    choice: dict[str, str] = field(default_factory=dict)  # engine, model, effort of its turn alone; the owner's word


@dataclass(frozen=True, slots=True)
class Receipt:
    """What intake did with an `Incoming`, once that is durable. `told` is a sentence for the sender, if any."""

    message: int | None
    state: str
    session: str | None
    turn: int | None
    told: str | None = None
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Span:
    """Formatting of a stretch of text: `offset` and `length` in UTF-16 units."""

    kind: SpanKind
    offset: int
    length: int
    url: str = ""
    language: str = ""


@dataclass(frozen=True, slots=True)
class Formatted:
    """A text in its platform's own form, with `spans` where the form is text and spans."""

    text: str
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Button:
    """`value` comes back with the press: at most 64 bytes of ASCII."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class Check:
    """One look at a channel's set-up; `hint` says what to do where it is not ok."""

    what: str
    ok: bool
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One row of the outbox on its way to a platform. Its text is frozen; `nonce` is the same on every attempt.

    `formatted` is the text in the platform's form, None where it goes as it stands. Nobody may be pinged by either.
    """

    delivery: int
    channel: str
    chat: str
    thread: str
    kind: DeliveryKind
    text: str
    nonce: str
    session: str = ""
    turn: int | None = None
    path: Path | None = None
    name: str | None = None
    repeat: bool = False  # a send whose first try may have arrived: say so
    target: str | None = None  # of a reaction: the platform's id of the message that it is put on
    account: str = ""
    formatted: Formatted | None = None
    reply_to: str | None = None  # the platform's id of the message that it answers; it may be gone
    edits: str | None = None  # the platform's id of the message that is to have this text
    buttons: tuple[Button, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one turn. `usd` is None when the price is unknown, never 0; `estimated`: nobody counted them. `window`
    is what its last call read and wrote, None where that is not known."""

    input: int = 0
    output: int = 0
    cached: int = 0
    usd: float | None = None
    estimated: bool = False
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """One message of a session, in the OpenAI shape that PythonClaw's files hold.

    `meta` is every key of the file's META object beyond role, ts and tool_call_id, kept as it was read.
    """

    role: str
    content: str
    at: datetime | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_call_id: str | None = None
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Authority:
    """For whom something acts, and the lowest trust of any byte that reached it."""

    role: Role
    taint: float = 1.0


@dataclass(frozen=True, slots=True)
class Lease:
    """The fence: who holds a turn. `worker` tells a frozen thread of the same run from the one that took over."""

    run: str
    turn: int
    attempt: int
    worker: int


@dataclass(frozen=True, slots=True)
class Effect:
    """What a call of a host tool gets. `id` is what was done, once; None when nothing was."""

    result: dict[str, Any]
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A claimed turn as the runner is handed it: JSON-ready values, no secret."""

    turn: int
    attempt: int
    steps: list[dict[str, Any]]
    wakes: list[dict[str, Any]]
    context: dict[str, Any]
    limits: dict[str, Any]


GIVEN_UP = "given_up"  # the stop reason of an error that another attempt would come to as well
OVERFLOW = "overflow"  # the same: for the conversation is longer than the model can read


@dataclass(frozen=True, slots=True)
class Final:
    """How a turn ended in the runner. `files` are names below /group/work. `error` is a sentence or None."""

    text: str
    files: list[str] = field(default_factory=list)
    usage: Usage | None = None
    stop_reason: str = "end"
    error: str | None = None
    shown: list[int] | None = None  # wakes that the model saw; None: all that were handed out
    model: str | None = None
    notes: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """What the runner is told about a live turn: `stop`, `shutdown`, or `steer` with the wakes that arrived."""

    turn: int | None
    action: str
    wakes: list[dict[str, Any]] = field(default_factory=list)
