"""Headers by table: what leaves, what is added, what comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy

from clawd.config.schema import Inject
from clawd.gateway import headers
from clawd.gateway.refusal import Refusal

LEAVE_NOT = """
Authorization proxy-authorization X-Api-Key x_api_key X.API.KEY XAPIKEY api-key apikey X-Goog-Api-Key Cookie COOKIE2
Private-Token PRIVATE_TOKEN Job-Token X-Auth-Token X-Amz-Security-Token Own-Key own_key Host Content-Length
Transfer-Encoding TE Trailer Upgrade Connection Keep-Alive Proxy-Connection Proxy-Foo Expect HTTP2-Settings
X-HTTP-Method-Override X_HTTP_Method X-Forwarded-For X_Forwarded_Host Forwarded Via X-Real-IP X-Rewrite-Url
Sec-WebSocket-Key X-Named
"""
RETURN_NOT = """
Set-Cookie Set-Cookie2 Alt-Svc Connection Keep-Alive Proxy-Authenticate Transfer-Encoding X-Hop Trailer
X-Clawd-Rule x_clawd_rule
"""


def fields(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


@pytest.mark.parametrize("name", LEAVE_NOT.split())
def test_what_does_not_leave(name: str) -> None:
    given = fields((name, "mine"), ("Connection", "x_named, close"), ("X-Fine", "1"), ("Accept", "*/*"))
    kept = headers.outgoing(given, Inject(header="Own-Key"))
    assert sorted(kept.items()) == [("Accept", "*/*"), ("Accept-Encoding", "identity"), ("X-Fine", "1")]


def test_where_a_key_goes_along_no_answer_is_asked_for_in_pieces() -> None:
    """A scrubber sees one answer, and a piece of a credential is none."""
    given = fields(("Range", "bytes=0-9"), ("If-Range", "x"))
    assert dict(headers.outgoing(given, Inject(bearer=True))) == {"Accept-Encoding": "identity"}
    assert headers.outgoing(given, None)["Range"] == "bytes=0-9"


@given(st.sampled_from(["authorization", "xapikey", "cookie", "proxyauthorization"]), st.data())
def test_no_spelling_of_a_credential_leaves(name: str, data: st.DataObject) -> None:
    spelled = "".join(
        (letter.upper() if data.draw(st.booleans()) else letter) + data.draw(st.sampled_from(["", "-", "_", ".", "-_"]))
        for letter in name
    )
    assert list(headers.outgoing(fields((spelled, "x")), None)) == ["Accept-Encoding"]


def test_a_value_that_would_change_on_its_way_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        headers.outgoing(fields(("X", "caf\udce9")), None)
    assert refused.value.status == 400
    assert headers.outgoing(fields(("X", "café")), None)["X"] == "café"
    assert headers.incoming(fields(("X", "caf\udce9")), None)["X"] == "café"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "key=s%2F%26"),
        ("a=1", "a=1&key=s%2F%26"),
        ("key=x&a=%41&Key=y&k%65y&key=&%20key=z", "a=%41&key=s%2F%26"),
        ("keys=1&akey=2", "keys=1&akey=2&key=s%2F%26"),
    ],
)
def test_a_parameter_replaces_all_of_its_name(query: str, expected: str) -> None:
    assert headers.with_parameter(query, "key", "s/&") == expected


@pytest.mark.parametrize("name", RETURN_NOT.split())
def test_what_does_not_come_back(name: str) -> None:
    back = headers.incoming(fields((name, "x"), ("Connection", "X-Hop"), ("X-Fine", "1"), ("X-Fine", "2")), None)
    assert list(back.items()) == [("X-Fine", "1"), ("X-Fine", "2")]
