"""Header fields on their way through: what leaves a sandbox, what is added on the way, what comes back.

Everything that could carry a credential or steer a hop is taken away, in any spelling; then the one credential is
added.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from urllib.parse import quote, unquote_plus

from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from clawd.config.schema import Inject
from clawd.gateway.refusal import Refusal
from clawd.gateway.scrub import Forms


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names without `-`, `_` and `.`: many servers read all three alike.
_CREDENTIALS = _names(
    "authorization proxyauthorization xauthorization authentication xauthentication cookie cookie2 setcookie apikey"
    " xapikey xgoogapikey xgoogiamauthorizationtoken privatetoken jobtoken deploytoken authtoken xauthtoken"
    " xaccesstoken accesstoken xapitoken apitoken token xtoken xgithubtoken xgitlabtoken xvaulttoken xamzsecuritytoken"
    " xauthkey xauthemail xsubscriptiontoken xcsrftoken xxsrftoken ocpapimsubscriptionkey"
)
_HOPS = _names(
    "connection keepalive proxyconnection proxyauthenticate te trailer trailers transferencoding upgrade http2settings"
    " host contentlength expect acceptencoding altsvc altused"
)
# They tell a server of another method, path, host or client than the one that was judged.
_STEERING = _names(
    "xhttpmethodoverride xhttpmethod xmethodoverride xoriginalurl xoriginalhost xoriginaluri xrewriteurl forwarded via"
    " xrealip xclientip trueclientip cfconnectingip maxforwards xhost xforwarded xoriginaluser"
)
_OURS = _names("xclawdsession xclawdrule")  # they tell us whose a request is, and a sandbox that it was us who refused
# With them an answer comes in pieces that no scrubber sees side by side.
_PIECES = _names("range ifrange requestrange xrange")
_FROM_UPSTREAM = _names(
    "connection keepalive proxyconnection te trailer trailers transferencoding upgrade http2settings contentlength"
    " setcookie setcookie2 altsvc altused"
)
_LARGEST = 64 << 10  # bytes of all fields of a head: every one of them is looked at
_FOLD = str.maketrans("", "", "-_.")


def fold(name: str) -> str:
    """A header's name as the laxest of servers reads it."""
    return name.translate(_FOLD).lower()


def carries_credential(folded: str) -> bool:
    return folded in _CREDENTIALS or folded.startswith("xapikey")


def named_by_connection(headers: CIMultiDictProxy[str]) -> set[str]:
    """Folded names that Connection makes hop-by-hop."""
    return {fold(name.strip()) for value in headers.getall("Connection", ()) for name in value.split(",")}


def outgoing(headers: CIMultiDictProxy[str], inject: Inject | None) -> CIMultiDict[str]:
    """What of a sandbox's headers an upstream sees. Raises Refusal for a value that could not be sent as it is."""
    kept: CIMultiDict[str] = CIMultiDict()
    named = named_by_connection(headers) if "Connection" in headers else ()
    own = {fold(inject.header)} if inject is not None and inject.header else set[str]()
    own |= _PIECES if inject is not None else set()
    for name, value in headers.items():
        folded = fold(name)
        if folded in _HOPS or folded in named or folded in own or carries_credential(folded) or folded in _STEERING:
            continue
        if folded in _OURS:
            continue
        if folded.startswith(("xforwarded", "proxy", "secwebsocket")):
            continue
        if not _sendable(value):
            raise Refusal("malformed", f"the value of the header {name} is not text", 400)
        kept.add(name, value)
    kept["Accept-Encoding"] = "identity"
    return kept


def _sendable(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def credential(inject: Inject | None, secret: str) -> tuple[str, str] | None:
    """The header that carries it; None when it goes into the query."""
    if inject is None or inject.bearer:
        return "Authorization", f"Bearer {secret}"
    if inject.header is not None:
        return inject.header, secret
    if inject.basic is not None:
        return "Authorization", "Basic " + base64.b64encode(f"{inject.basic}:{secret}".encode()).decode()
    return None


def with_parameter(query: str, name: str, secret: str) -> str:
    """The raw query with this parameter, and no other of its name."""
    kept = [part for part in query.split("&") if part and _parameter(part) != name.casefold()]
    return "&".join([*kept, f"{quote(name, safe='')}={quote(secret, safe='')}"])


def _parameter(part: str) -> str:
    return unquote_plus(part.partition("=")[0]).strip().casefold()


def incoming(headers: CIMultiDictProxy[str], forms: Forms | None) -> CIMultiDict[str]:
    """What of an upstream's headers the sandbox sees: nothing of the hop, no session, no credential."""
    kept: CIMultiDict[str] = CIMultiDict()
    named = named_by_connection(headers) if "Connection" in headers else ()
    for name, value in headers.items():
        folded = fold(name)
        if folded in _FROM_UPSTREAM or folded in _OURS or folded in named or folded.startswith("proxy"):
            continue
        if not _sendable(value):  # bytes of an older time; they stay readable
            value = value.encode("utf-8", "surrogateescape").decode("latin-1")
        if forms is not None:
            value = forms.clean_text(value)
            if forms.clean_text(name) != name:
                continue
        kept.add(name, value)
    return kept


def expects_continue(request: web.BaseRequest) -> bool:
    """Whether the client waits before it sends the body. Raises Refusal for any other expectation."""
    value = request.headers.get("Expect")
    if value is None or request.version < (1, 1):
        return False
    if value.strip().lower() != "100-continue":
        raise Refusal("malformed", "this expectation cannot be met", 400)
    return True


def framed(request: web.BaseRequest) -> None:
    """Raises Refusal for a body in any other coding than `chunked`: it would not arrive as it was sent."""
    codings = request.headers.getall("Transfer-Encoding", [])
    if codings and [coding.strip().lower() for coding in codings] != ["chunked"]:
        raise Refusal("malformed", "the only transfer coding is chunked", 400, close=True)


def too_large(fields: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a head has more than is looked at."""
    return sum(len(name) + len(value) for name, value in fields) > _LARGEST


def values(headers: CIMultiDictProxy[str], name: str) -> Iterable[str]:
    return (part.strip().lower() for value in headers.getall(name, ()) for part in value.split(","))
