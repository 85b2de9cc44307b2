"""Who knows a secret, by the senders' own examples and second hands; and that nothing anybody sends is an exception."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slack_sdk.signature import SignatureVerifier

from clawd.wakes.signatures import Genuine, Header, Scheme, judge
from tests.wakes import signing
from tests.wakes.signing import SECRET

NOW = 1_780_000_000.0
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)


def headers(*given: tuple[str, str], **named: str) -> Header:
    pairs = [*given, *named.items()]
    return lambda name: [value for key, value in pairs if key.lower() == name.lower()]


def judged(scheme: Scheme, content: bytes, given: dict[str, str], *more: tuple[str, str], now: float = NOW) -> Any:
    return judge(scheme, SECRET.encode(), headers(*given.items(), *more), content, now)


def keys(scheme: Scheme, content: bytes, given: dict[str, str], *more: tuple[str, str]) -> Sequence[str]:
    found = judged(scheme, content, given, *more)
    assert isinstance(found, Genuine), found
    return found.keys


def sha(content: bytes) -> str:
    return f"body:{hashlib.sha256(content).hexdigest()}"


def test_the_examples_of_the_senders_own_documents() -> None:
    given = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    github = headers(("X-Hub-Signature-256", given))
    assert isinstance(judge("github", SECRET.encode(), github, b"Hello, World!", NOW), Genuine)
    content = (
        "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
        "&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
        "&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        "&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    slack = headers(
        ("X-Slack-Request-Timestamp", "1531420618"),
        ("X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
    )
    known = judge("slack", b"8f742231b10e8888abcd99yyyzzz85a5", slack, content.encode(), 1531420618.0)
    assert isinstance(known, Genuine) and not known.is_json and known.keys == (sha(content.encode()),)


@given(content=st.text(max_size=200), at=st.integers(0, 10**12 - 1))
def test_slacks_own_verifier_says_the_same(content: str, at: int) -> None:
    verifier = SignatureVerifier(SECRET, clock=type("At", (), {"now": lambda self: float(at)})())
    signature = verifier.generate_signature(timestamp=str(at), body=content)
    assert signature is not None
    given = {"X-Slack-Request-Timestamp": str(at), "X-Slack-Signature": signature}
    assert isinstance(judged("slack", content.encode(), given, now=float(at)), Genuine)
    assert not verifier.is_valid(content + "x", str(at), signature)
    assert judged("slack", content.encode() + b"x", given, now=float(at)) == "signature"


def test_how_a_request_is_known_again() -> None:
    push, event = signing.body(ref="main"), signing.body(id="evt_1", type="charge.failed")
    assert keys("github", push, signing.github(push, "d-1")) == (sha(push), "id:d-1")
    assert keys("github", push, signing.github(push, "d 1")) == (sha(push),)  # an id that is none is not needed
    said = signing.body(event_id="Ev1", event={"type": "app_mention"})
    assert keys("slack", said, signing.slack(said, NOW), ("X-Slack-Retry-Num", "1")) == ("id:Ev1",)
    assert keys("stripe", event, signing.stripe(event, NOW)) == ("id:evt_1",)
    later = signing.stripe(event, NOW + 200)
    assert keys("stripe", event, later) == ("id:evt_1",)  # a retry is signed anew
    for odd in ({"id": 7}, {"id": ""}, {"id": "\ud800"}, {"id": "x" * 201}, {}):
        content = signing.body(**odd)
        assert keys("stripe", content, signing.stripe(content, NOW)) == (sha(content),)
    assert keys("bearer", b"", signing.bearer()) == ()
    assert keys("bearer", b"", signing.bearer("k-1"), ("X-Request-Id", "r-1")) == ("id:k-1",)
    assert keys("bearer", b"", signing.bearer(), ("webhook-id", "msg_1"), ("X-Request-Id", "r")) == ("id:msg_1",)
    for more in ((("X-Request-Id", "a b"),), (("X-Request-Id", "é"),), (("X-Request-Id", "a"), ("x-request-id", "a"))):
        assert judged("bearer", b"", signing.bearer(), *more) == "id"


def test_what_the_agent_is_told_of_it_and_what_wakes_nobody() -> None:
    def found(scheme: Scheme, content: bytes, given: dict[str, str]) -> Genuine:
        verdict = judged(scheme, content, given)
        assert isinstance(verdict, Genuine)
        return verdict

    said = signing.body(type="event_callback", event={"type": "app_mention"})
    assert found("slack", said, signing.slack(said, NOW)).event == "app_mention"
    asked = signing.body(type="url_verification", challenge="3eZbrw")
    assert found("slack", asked, signing.slack(asked, NOW)).answer == {"challenge": "3eZbrw"}
    ping = signing.body(zen="Design for failure.", hook_id=1)
    assert found("github", ping, signing.github(ping, event="ping")).answer == {"ok": True}
    push = signing.body(ref="main")  # the header is not signed: it alone makes no ping
    pushed = found("github", push, signing.github(push, event="ping"))
    assert (pushed.event, pushed.answer, pushed.is_json) == ("ping", None, True)
    assert found("github", push, signing.github(push, event="a\x1b[2J")).event == ""
    for content in (b"\xff", b"{", b"[" * 100_000, b"1" * 5000):
        assert not found("github", content, signing.github(content)).is_json


def test_an_old_time_and_one_ahead_are_refused() -> None:
    for scheme, sign in (("slack", signing.slack), ("stripe", signing.stripe)):
        for away, verdict in ((299, None), (-299, None), (301, "timestamp"), (-301, "timestamp")):
            found = judged(scheme, b"{}", sign(b"{}", NOW - away))  # type: ignore[arg-type, operator]
            assert isinstance(found, Genuine) if verdict is None else found == verdict


@pytest.mark.parametrize("time", ["", "NaN", "inf", "-1", "+1", "1.5", " 1", "1e9", "9" * 13, "९", "0x1", "1_0"])
def test_a_time_that_is_none_is_refused(time: str) -> None:
    """Also where it is signed as it stands."""
    signed = signing._hex(SECRET, f"v0:{time}:", b"")
    given = {"X-Slack-Request-Timestamp": time, "X-Slack-Signature": f"v0={signed}"}
    assert judged("slack", b"", given, now=0.0) == "signature"
    signed = signing._hex(SECRET, f"{time}.", b"")
    assert judged("stripe", b"", {"Stripe-Signature": f"t={time},v1={signed}"}, now=0.0) == "signature"


def test_several_signatures_of_stripe() -> None:
    content, wrong = b"{}", f"v1={'0' * 64}"
    assert keys("stripe", content, signing.stripe(content, NOW, wrong, wrong)) == (sha(content),)
    right = signing.stripe(content, NOW)["Stripe-Signature"]
    for bad in (right.replace("v1=", "v0="), right.replace("t=", "t=1,t="), right.replace(",", ", "), "t", "", ",,,"):
        assert judged("stripe", content, {"Stripe-Signature": bad}) == "signature"


def signed(scheme: Scheme, content: bytes) -> dict[str, str]:
    return {
        "github": lambda: signing.github(content),
        "slack": lambda: signing.slack(content, NOW),
        "stripe": lambda: signing.stripe(content, NOW),
        "bearer": lambda: signing.bearer("k"),
    }[scheme]()


PROOF = {
    "github": "X-Hub-Signature-256",
    "slack": "X-Slack-Signature",
    "stripe": "Stripe-Signature",
    "bearer": "Authorization",
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_proves_nothing(scheme: Scheme) -> None:
    content, name = signing.body(id="evt_1"), PROOF[scheme]
    right = signed(scheme, content)
    assert isinstance(judged(scheme, content, right), Genuine)
    assert judged(scheme, content, right, (name, right[name])) == "signature"  # twice, even if both are right
    assert judged(scheme, content, {key: each for key, each in right.items() if key != name}) == "signature"
    for value in ("", " ", "é", "\udcff", right[name].upper(), right[name] + " ", right[name][:-1], f"{right[name]}0"):
        assert judged(scheme, content, right | {name: value}) == "signature", value
    if scheme != "bearer":
        assert judged(scheme, content + b" ", right) == "signature"
    other = headers(*right.items())
    for secret in (b"", b"  ", b"another", SECRET.encode() + b"\n"):
        assert judge(scheme, secret, other, content, NOW) == "signature"
    blank = {"Authorization": "Bearer "} if scheme == "bearer" else right
    assert judge(scheme, b"", headers(*blank.items()), content, NOW) == "signature"


@given(
    scheme=st.sampled_from(SCHEMES),
    content=st.binary(max_size=50),
    given=st.lists(
        st.tuples(st.sampled_from([*PROOF.values(), "X-Slack-Request-Timestamp", "X-GitHub-Delivery"]), st.text())
    ),
    now=st.floats(allow_nan=True),
)
def test_whatever_is_sent_is_an_answer(
    scheme: Scheme, content: bytes, given: list[tuple[str, str]], now: float
) -> None:
    assert judge(scheme, SECRET.encode(), headers(*given), content, now) == "signature"
