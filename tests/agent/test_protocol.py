"""The runner's small HTTP client, against servers that break in every way that a daemon may."""

from __future__ import annotations

import ast
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent import protocol
from agent.turn import cut_text, offset_of, rfc3339
from hypothesis import example, given
from hypothesis import strategies as st

from clawd.resources import shipped

OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n{"schema":1}'


@pytest.fixture
def path() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="clawd-") as directory:
        yield f"{directory}/s"


def serve(path: str, *answers: bytes | None) -> list[bytes]:
    """Answer one request a connection: with bytes, or by closing it. Gives the requests that came."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    requests: list[bytes] = []

    def run() -> None:
        with listener:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    requests.append(connection.recv(65536))
                    for at in range(0, len(answer or b""), 5):
                        connection.sendall((answer or b"")[at : at + 5])

    threading.Thread(target=run, daemon=True).start()
    return requests


def test_a_call_is_made_again_when_its_connection_breaks(path: str) -> None:
    requests = serve(path, None, OK[:20], b"nonsense\r\n\r\n", OK)
    returns: list[int] = []
    client = protocol.Client(path, "t", on_return=lambda: returns.append(1))
    assert client.call("POST", "/x", {"schema": 1, "a": "é\0"}) == {"schema": 1}
    assert len(requests) == 4 and len(set(requests)) == 1 and len(returns) == 3
    assert b"Authorization: Bearer t\r\n" in requests[0] and '"a":"é\\\\x00"'.encode() in requests[0]
    client.close()


def test_a_daemon_that_cannot_keep_anything_is_asked_again(path: str) -> None:
    busy = OK.replace(b"200 OK", b"503 Busy").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    serve(path, busy, OK)
    assert protocol.Client(path).call("GET", "/") == {"schema": 1}


def test_nobody_for_too_long_is_an_error(path: str) -> None:
    with pytest.raises(protocol.NoDaemon):
        protocol.Client(path, patience=0.2).call("GET", "/")


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        ("409 Conflict", b'{"schema":1,"error":"lease_lost"}', protocol.LeaseLost),
        ("409 Conflict", b'{"schema":1,"error":"proto"}', protocol.Refused),
        ("403 No", b'{"schema":1,"error":"no_token","message":"m"}', protocol.Refused),
        ("200 OK", b'{"schema":2}', protocol.Refused),
    ],
)
def test_refusals(path: str, status: str, body: bytes, error: type[Exception]) -> None:
    serve(path, f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    with pytest.raises(error):
        protocol.Client(path).call("GET", "/")


@pytest.mark.parametrize(
    ("head", "parsed"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5", (200, 5, False)),
        (b"HTTP/1.1 204 No Content", (204, 0, False)),
        (b"HTTP/1.1 403 X\r\ncontent-length:0\r\nConnection: close", (403, 0, True)),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5", None),
        (b"HTTP/1.1 200 OK", None),
        (b"HTTP/1.1 2000 OK\r\nContent-Length: 5", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length : 5", None),
        (b"", None),
    ],
)
def test_heads(head: bytes, parsed: tuple[int, int, bool] | None) -> None:
    if parsed is None:
        with pytest.raises(ConnectionError):
            protocol.parse_head(head)
    else:
        assert protocol.parse_head(head) == parsed


@given(st.binary() | st.binary().map(lambda tail: b"HTTP/1.1 200 OK\r\n" + tail))
def test_any_head_is_parsed_or_refused(head: bytes) -> None:
    try:
        status, length, _ = protocol.parse_head(head)
    except ConnectionError:
        return
    assert 0 <= status < 1000 and length >= 0


@given(st.text(st.characters(exclude_categories=()), max_size=20))
@example(f"a {'claw-' + 'x' * 43}")
@example("\0")
def test_clean_text_can_be_stored(text: str) -> None:
    cleaned = protocol.clean({text: [text]})
    ((key, (value,)),) = cleaned.items()
    assert key == value and "\0" not in value and value.encode().decode() == value
    assert protocol.clean(value) == value
    assert json.loads(protocol.packed({text: [text]})) == cleaned


def test_a_long_text_is_cut_in_whole_characters() -> None:
    text = cut_text("é" * protocol.TEXT_BYTES)
    assert len(text.encode()) <= protocol.TEXT_BYTES and text.endswith("…]") and "�" not in text
    assert cut_text("short") == "short"


@pytest.mark.parametrize(
    ("clock", "offset"),
    [
        ("2026-11-29T14:00:00.000+02:00", 7200),
        ("2026-11-29T14:00:00-03:30", -12600),
        ("2026-11-29T14:00:00Z", 0),
        ("nonsense", 0),
        ("", 0),
    ],
)
def test_the_daemons_offset(clock: str, offset: int) -> None:
    assert offset_of(clock) == offset


@pytest.mark.parametrize(
    ("at", "offset", "text"),
    [
        (0.0, 0, "1970-01-01T00:00:00.000+00:00"),
        (1.25, 7200, "1970-01-01T02:00:01.250+02:00"),
        (86400.0, -12600, "1970-01-01T20:30:00.000-03:30"),
    ],
)
def test_rfc3339(at: float, offset: int, text: str) -> None:
    assert rfc3339(at, offset) == text


def test_the_agent_is_python_3_9_and_the_standard_library_alone() -> None:
    import sys

    for file in sorted((shipped("containers") / "agent").rglob("*.py")):
        tree = ast.parse(Path(file).read_text("utf-8"), feature_version=(3, 9))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.partition(".")[0] in {*sys.stdlib_module_names, "agent"}, f"{file}: {name}"
