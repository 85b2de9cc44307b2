"""Model calls, before they are sent: which requests are some, and what one can take at most. Pure.

A token is at least a byte of text; an image or a document counts as a fixed number of them instead of its bytes, where
its provider reads it as one. What cannot be read as a request counts by its size, for a model that nobody knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from clawd.config import grammar

# What a path ends with, by the dialect that it speaks; of `embeddings` nothing is written. One word alone stands behind
# a version or a deployment: others call their letters messages, too.
Dialect = Literal["messages", "openai", "ollama", "embeddings"]
_CALLS: dict[str, Dialect] = {
    "chat/completions": "openai",
    "api/chat": "ollama",
    "api/generate": "ollama",
    "api/embed": "embeddings",
    "api/embeddings": "embeddings",
}
_WORDS: dict[str, Dialect] = {
    "messages": "messages",
    "complete": "messages",
    "completions": "openai",
    "responses": "openai",
    "embeddings": "embeddings",
}
_VERSION = re.compile(r"v\d[a-z0-9]*|openai")
# Ends, or what a path has in it, of what is billed too and cannot be counted: by the piece, by the minute, or later.
_ELSE = ("batches", "images", "videos", "audio", "realtime", "fine_tuning", "runs", "compact")
_METHODS = ("generatecontent", "streamgeneratecontent", "rawpredict", "streamrawpredict", "invoke", "converse")
_FREE = ("count_tokens", "input_tokens", "tokenize", "files", "uploads", "models", "moderations", "show", "cancel")

MOST_OUTPUT = 128_000  # tokens of an answer whose request and model do not say it
MOST_TOKENS = 10**9  # of all answers of a call: nothing writes more, whatever is asked for
IMAGE, DOCUMENT = 5_000, 100_000
MOST_VALUES = 500_000  # of a request that is read: each takes memory of its own
_DEEPEST = 6  # content in content
# One of these is in a body that has an image or a document: any other is not searched for them.
_NAMED = re.compile(rb'"(?:image|document"|file"|input_[ifa])|\\u|\0')

# Keys that bring in what a provider keeps, each as much as a document.
_KEPT = ("previous_response_id", "conversation")
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample")
_LISTED = (None, "auto", "default", "standard", "standard_only", "flex", "batch")
# With these a provider answers later, or searches, runs and reads things by itself, which is billed beside the tokens
# that were sent; so it is with tools that it runs: those that are not the client's own.
_BESIDE = ("background", "deferred", "mcp_servers", "web_search_options", "search_parameters", "plugins")
_CLIENTS = re.compile(
    r"function|custom|namespace|tool_search.*|(bash|text_editor|computer|memory)_.*|computer|local_shell|apply_patch"
)


@dataclass(frozen=True, slots=True)
class Bound:
    """What a call can take at most, in tokens. `text` are its bytes without images and documents, `fixed` the tokens
    that those count as; `output` is None where neither the request nor its dialect says it. `beside` names what in
    it is billed in a way that is not counted."""

    model: str
    text: int
    fixed: int
    output: int | None
    answers: int = 1
    hour: bool = False
    listed: bool = True
    beside: str | None = None


def dialect(path: str, *, own: bool) -> Dialect | None:
    """What a POST to the path speaks; None when it calls no model. `own`: its service is known for its models."""
    words = ["", "", *_words(path)]
    if (found := _CALLS.get("/".join(words[-2:]))) is not None:
        return found
    behind = own or _VERSION.fullmatch(words[-2]) is not None or words[-3] == "deployments"
    return _WORDS.get(words[-1]) if behind else None


def is_uncounted(path: str) -> bool:
    """Whether a POST to the path makes a model work in a way that is not counted."""
    words = _words(path)
    return any(word in _ELSE or word.rpartition(":")[2] in _METHODS for word in words)


def is_free(path: str) -> bool:
    """Whether what a model's service is asked for there is known to cost nothing."""
    return not is_uncounted(path) and any(word in _FREE for word in _words(path))


def _words(path: str) -> list[str]:
    """The path's segments, as a server may read them."""
    return [grammar.decoded(word).lower().partition(";")[0] for word in path.split("/") if word]


def bound(body: bytes | bytearray, speaks: Dialect) -> Bound:
    """What the request with this body can take."""
    request = _read(body)
    if request is None:
        return Bound("", len(body), 0, 0 if speaks == "embeddings" else None, hour=True)
    model = request.get("model")
    kept = [*(request.get(key) for key in _KEPT), isinstance(request.get("prompt"), dict)]
    binary, fixed = 0, sum(DOCUMENT for each in kept if each)
    for size, tokens in _media(request) if _NAMED.search(body) else ():
        binary, fixed = binary + size, fixed + tokens
    return Bound(
        model if isinstance(model, str) else "",
        len(body) - binary,
        fixed,
        0 if speaks == "embeddings" else _output(request, speaks),
        max(1, *(_count(request.get(key)) or 1 for key in ("n", "best_of"))),
        hour=b"1h" in body or b"\\u" in body,
        listed=_is_listed(request),
        beside=next(_beside(request), None),
    )


def _read(body: bytes | bytearray) -> dict[str, Any] | None:
    """The request, its own names in lower case, as some servers read them. One that says something twice is none: one
    server takes the first, another the last."""
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > MOST_VALUES:
        return None
    try:
        request = json.loads(body, object_pairs_hook=_once)
        return _once((key.casefold(), value) for key, value in request.items()) if isinstance(request, dict) else None
    except (ValueError, RecursionError):
        return None


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found = list(pairs)
    made = dict(found)
    if len(made) < len(found):
        raise ValueError("a name stands twice in an object")
    return made


def _is_listed(request: dict[str, Any]) -> bool:
    """Whether it is billed as the price lists say: by the usual tier, at the model that it names and no other one."""
    tier, speed, where = (request.get(key) for key in ("service_tier", "speed", "inference_geo"))
    usual = tier in _LISTED and speed in (None, "standard") and where in (None, "global")
    return usual and not request.get("models")


def _beside(request: dict[str, Any]) -> Iterator[str]:
    yield from (key for key in _BESIDE if request.get(key) not in (None, False))
    for tool in _dicts(request.get("tools")):
        kind = tool.get("type")
        if kind is not None and not (isinstance(kind, str) and _CLIENTS.fullmatch(kind)):
            yield str(kind)[:40]


def _output(request: dict[str, Any], speaks: Dialect) -> int | None:
    """Tokens of one answer, as far as the request limits it: the largest of what it says."""
    said = [request.get(key) for key in _LIMITS]
    if speaks == "ollama":
        options = request.get("options")
        said = [options.get("num_predict")] if isinstance(options, dict) else []
    return max((count for each in said if (count := _count(each))), default=None)


def _count(value: Any) -> int | None:
    """A positive whole number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _media(request: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """(bytes in the body, tokens) of each image and document. Only what a provider would read as one: anything else is
    text, whatever it looks like."""
    for key in ("messages", "input", "system"):
        for item in _dicts(request.get(key)):
            images = item.get("images")  # Ollama's
            if isinstance(images, list):
                yield from ((len(image), IMAGE) for image in images if isinstance(image, str))
            yield from _blocks(item, 0)


def _blocks(block: dict[str, Any], depth: int) -> Iterator[tuple[int, int]]:
    kind, source = block.get("type"), block.get("source")
    if kind in ("image", "document") and isinstance(source, dict) and source.get("type") != "text":
        data = source.get("data") if source.get("type") == "base64" else None
        yield len(data) if isinstance(data, str) else 0, IMAGE if kind == "image" else DOCUMENT
    elif kind in ("image_url", "input_image"):
        image = block.get("image_url")
        url = image.get("url") if isinstance(image, dict) else image
        yield len(url) if isinstance(url, str) and url.startswith("data:image/") else 0, IMAGE
    elif kind in ("file", "input_file"):
        file = block.get("file") if kind == "file" else block
        data = file.get("file_data") if isinstance(file, dict) else None
        yield len(data) if isinstance(data, str) and data.startswith("data:application/pdf;") else 0, DOCUMENT
    elif kind == "input_audio":
        yield 0, DOCUMENT
    elif depth < _DEEPEST:
        for inner in ("content", "output"):
            for each in _dicts(block.get(inner)):
                yield from _blocks(each, depth + 1)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
