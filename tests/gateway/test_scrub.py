"""No form of a credential comes through, however a stream is cut; what is none comes through as it was."""

from __future__ import annotations

import base64
import json
import random
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.gateway.scrub import REDACTED, Forms, Messages, Stream, forms_of

from .conftest import CANARY, Stage
from .upstream import Upstream, chunked, sse

SECRET = "sk-a/b+c=d\"e&f'é-0123456789"
FORMS = Forms(forms_of(SECRET, "user"))

_KINDS = st.sampled_from(
    [
        SECRET,
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        quote(SECRET, safe="").lower(),
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        SECRET.replace("/", "\\/"),
        base64.b64encode(f"user:{SECRET}".encode()).decode(),
        *(base64.b64encode(b"x" * n + SECRET.encode() + b"yz").decode() for n in range(3)),
        *(base64.urlsafe_b64encode(b"x" * n + SECRET.encode() + b"yz").decode() for n in range(3)),
    ]
).map(str.encode)
# Innocent text, and beginnings of secrets that are none.
_NOISE = st.one_of(
    st.binary(max_size=30), st.sampled_from([b"sk-", b"sk-a/", b"dXNlcjpzay1h", b"s", b"\n\n", SECRET.encode()[:-1]])
)


@st.composite
def cut(draw: st.DrawFn, parts: st.SearchStrategy[list[bytes]]) -> tuple[bytes, list[bytes]]:
    whole = b"".join(draw(parts))
    ends = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    return whole, [whole[a:b] for a, b in zip([0, *ends], [*ends, len(whole)], strict=True)]


def through(chunks: list[bytes]) -> bytes:
    stream = Stream(FORMS)
    return b"".join([*map(stream.feed, chunks), stream.end()])


def hidden(data: bytes) -> bool:
    return any(needle in data for needle in FORMS.needles)


@given(cut(st.lists(st.one_of(_NOISE, _KINDS), max_size=6)))
def test_no_chunking_lets_a_form_through(given: tuple[bytes, list[bytes]]) -> None:
    whole, chunks = given
    clean = through(chunks)
    assert not hidden(clean)
    assert (REDACTED in clean) == (hidden(whole) or REDACTED in whole)


@given(cut(st.lists(_NOISE, max_size=6)))
def test_what_is_no_secret_comes_out_unchanged(given: tuple[bytes, list[bytes]]) -> None:
    whole, chunks = given
    if not hidden(whole):
        assert through(chunks) == whole


@given(st.lists(_KINDS, min_size=1, max_size=3), st.binary(max_size=9))
def test_around_a_secret_all_stays(secrets: list[bytes], between: bytes) -> None:
    data = b"<" + (b"|" + between + b"|").join(secrets) + b">"
    clean = through([data[n : n + 7] for n in range(0, len(data), 7)])
    assert clean.startswith(b"<") and clean.endswith(b">") and clean.count(b"|" + between + b"|") >= len(secrets) - 1


def test_only_what_could_be_a_beginning_is_held_back() -> None:
    stream = Stream(FORMS)
    assert stream.feed(b"data: hello\n\n") == b"data: hello\n\n"
    assert stream.feed(b"data: sk-a") == b"data: "
    assert stream.feed(b"x") == b"sk-ax"
    assert stream.feed(SECRET.encode()[:9]) == b""
    assert stream.feed(SECRET.encode()[9:]) == REDACTED
    assert stream.end() == b""


@given(cut(st.lists(st.one_of(_NOISE, _KINDS), max_size=6)))
def test_messages_put_together_hold_no_form(given: tuple[bytes, list[bytes]]) -> None:
    _, chunks = given
    messages = Messages(FORMS)
    assert not hidden(b"".join(map(messages.clean, chunks)))


def test_messages_of_single_bytes_say_little() -> None:
    messages = Messages(FORMS)
    passed = b"".join(messages.clean(SECRET.encode()[n : n + 1]) for n in range(len(SECRET.encode())))
    assert passed.startswith(SECRET.encode()[:7]) and SECRET.encode()[:8] not in passed
    assert messages.clean(b"and on") == b"and on"
    assert messages.clean(b"") == b""


@pytest.mark.anyio
@pytest.mark.parametrize("pieces", [2, 3, 5])
async def test_an_echo_in_pieces(stage: Stage, upstream: Upstream, pieces: int) -> None:
    stage.serves(
        "shop",
        f'base_url = "{upstream.url}"\nallow_private = true\ncredential = "${{env:CANARY}}"\ninject = {{basic = "u"}}',
    )
    basic = base64.b64encode(f"u:{CANARY}".encode()).decode()
    for form in (CANARY, basic, quote(CANARY, safe=""), json.dumps({"key": CANARY})):
        text = f"before {form} after".encode()
        ends = sorted(random.Random(pieces).sample(range(1, len(text)), pieces - 1))
        cuts = [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
        for script in (chunked, sse):
            upstream.script = script(*cuts)
            got = await stage.ask("/svc/shop/v1")
            joined = got.body.replace(b"\n\ndata: ", b"")
            assert b"before" in joined and b"after" in joined
            if script is chunked:
                assert b"[redacted]" in joined and not any(each in joined for each in forms_of(CANARY, "u"))
    headers = [("X-Raw", CANARY), ("X-Basic", basic), (f"X-{CANARY[:9]}", "kept"), ("X-Fine", "fine")]
    upstream.script = chunked(b"x", headers=headers)
    got = await stage.ask("/svc/shop/v1")
    assert got.values("x-raw") == ["[redacted]"] == got.values("x-basic") and got.values("x-fine") == ["fine"]
