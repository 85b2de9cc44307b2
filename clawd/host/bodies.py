"""What a sandbox may send over the run's socket, checked before anything else sees it.

The names and figures are those of `containers/agent/protocol.py`, which is the protocol's one definition; a
test holds this module to it. Every byte here comes from a sandbox: models are strict, unknown fields are
refused, and no field says who the sender is."""

from __future__ import annotations

import json
import math
import re
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from clawd.errors import findings

SCHEMA = 1
HELLO = "/host/v1/hello"
TURN = "/host/v1/turn"
CONTROL = "/host/v1/control"
TOOLS = "/host/v1/tools/"
MCP = "/mcp"
SESSION = "X-Clawd-Session"

EVENTS_BYTES = 64 << 10
STEP_BYTES = 1 << 20
TOOL_BYTES = 1 << 20
FINAL_BYTES = 2 << 20
TEXT_BYTES = 256 << 10
JSON_DEPTH = 32
CALLS_PER_SECOND = 20
CONNECTIONS = 64
LONGEST_POLL = 3600.0

Count = Annotated[int, Field(ge=0, le=2**53)]
Short = Annotated[str, Field(max_length=200)]
_SUSPECT = re.compile(rb"\\u(?:[dD][89a-fA-F]|0000)")


class Problem(Exception):
    """An answer that is no success: status, code, and a sentence. `close` ends the connection with it."""

    def __init__(self, status: int, code: str, message: str, *, close: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.close = close


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


T = TypeVar("T", bound=Body)


class Hello(Body):
    schema_: int = Field(alias="schema")
    version: Short
    engine: Short
    pid: Count = 0  # for people who read logs; who the runner is, the kernel says


class Fenced(Body):
    schema_: int = Field(alias="schema")
    attempt: Count
    worker: Count


class Function(Body):
    name: Short
    arguments: str


class ToolCall(Body):
    id: Short
    type: Literal["function"]
    function: Function


class Message(Body):
    """An assistant message with its tool calls, or the result of one: the OpenAI shape of session files."""

    role: Literal["assistant", "tool"]
    content: str
    at: Short
    tool_calls: list[ToolCall] | None = None
    tool_call_id: Short | None = None

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Message:
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise ValueError("a result, and nothing else, names its call")
        return self


class Step(Fenced):
    n: Annotated[int, Field(ge=0, le=100_000)]
    message: Message
    shown: list[Count] = Field(default=[], max_length=10_000)
    notes: dict[str, Any] | None = None


class Event(Body):
    """`delta`: `text` of the answer; `tool`: the tool `name` begins or has ended."""

    type: Literal["delta", "tool"]
    text: str = ""
    name: Short = ""
    phase: Literal["start", "end"] | None = None


class Events(Fenced):
    events: list[Event] = Field(max_length=1000)


class UsageBody(Body):
    """Of a turn; `window` is what the last call read and wrote: about what the next one will read."""

    input: Count = 0
    output: Count = 0
    cached: Count = 0
    usd: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    estimated: bool = False
    window: Count | None = None


class FinalBody(Fenced):
    text: str
    files: list[str] = Field(default=[], max_length=100)
    usage: UsageBody | None = None
    stop_reason: Short = "end"
    error: Annotated[str, Field(max_length=4000)] | None = None
    shown: list[Count] | None = Field(default=None, max_length=10_000)
    model: Short | None = None
    notes: dict[str, Any] | None = None


class ToolBody(Body):
    """A call of a host tool. Only the runner knows `attempt` and `worker`; other processes of the sandbox
    name the turn, or its session in a header, or nothing when only one is live. Without `nth` equal calls are counted
    by what was surely answered."""

    schema_: int = Field(alias="schema")
    turn: Count | None = None
    attempt: Count | None = None
    worker: Count | None = None
    arguments: dict[str, Any] = Field(default={})
    nth: Count | None = None


def parse(data: bytes) -> Any:
    """Any JSON that can be used and kept. Raises Problem 400."""
    try:
        value = json.loads(data.decode(), parse_constant=_no_constant, parse_float=finite)
    except (ValueError, RecursionError):
        raise Problem(400, "malformed", "the body is not JSON") from None
    if depth_exceeds(value, JSON_DEPTH):
        raise Problem(400, "malformed", f"the body is nested deeper than {JSON_DEPTH}")
    if _SUSPECT.search(data) and not all(map(storable, texts(value))):
        raise Problem(400, "malformed", "a text holds NUL or half a character")
    return value


def decode(data: bytes, model: type[T]) -> T:
    """Check a body. Raises Problem: 400 for what is malformed, 409 for another schema."""
    value = parse(data)
    if not isinstance(value, dict):
        raise Problem(400, "malformed", "the body is not a JSON object")
    if type(value.get("schema")) is not int or value["schema"] != SCHEMA:
        raise Problem(409, "proto", f"this daemon speaks schema {SCHEMA} of the run's protocol")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise Problem(400, "malformed", findings(error, "the body")) from None


def _no_constant(name: str) -> float:
    raise ValueError(name)


def finite(number: str) -> float:
    """A float that can be written as JSON again: `1e999` reads as infinity."""
    value = float(number)
    if math.isinf(value):
        raise ValueError(number)
    return value


def depth_exceeds(value: Any, limit: int) -> bool:
    """Whether JSON is nested in more than `limit` objects and arrays."""
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return any(isinstance(item, dict | list) for item in level)


def storable(text: str) -> bool:
    """Whether a text is free of NUL and of halves of characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def texts(value: Any) -> list[str]:
    """Every text in a JSON value, keys too."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return []


def query_of(raw: str, *names: str) -> dict[str, float]:
    """The numbers of a query, all of `names` and no other. Raises Problem 400."""
    try:
        pairs = parse_qsl(raw, keep_blank_values=True, strict_parsing=True, max_num_fields=8) if raw else []
        values = {name: float(value) for name, value in pairs}
    except ValueError:
        raise Problem(400, "malformed", "the query cannot be read") from None
    if len(pairs) != len(names) or set(values) != set(names):
        raise Problem(400, "malformed", f"the query must hold {' and '.join(names)}")
    if not all(math.isfinite(value) and 0 <= value <= 2**53 for value in values.values()):
        raise Problem(400, "malformed", "a number of the query is out of range")
    return values
