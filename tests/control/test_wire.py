from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.control import wire
from clawd.errors import ClawdError, NotFound, UsageError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON))
def test_a_line_comes_back_as_it_went(message: dict[str, object]) -> None:
    line = wire.encode(message)
    assert line.count(b"\n") == 1 and wire.decode(line) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_usage_error(line: bytes) -> None:
    try:
        assert isinstance(wire.decode(line), dict)
    except UsageError as error:
        assert error.message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"7",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xff"}',
        b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}",
        b"[" * 500_000,
        b'{"a": ' + b"1" * 5000 + b"}",
    ],
)
def test_what_is_no_message_is_a_usage_error(line: bytes) -> None:
    with pytest.raises(UsageError):
        wire.decode(line)


def test_brackets_within_strings_are_not_depth() -> None:
    message = {"a": '[{"' * 200}
    assert wire.decode(json.dumps(message).encode()) == message


def test_depth_is_that_of_the_line() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a": ' * depth + b"[]" + b"}" * depth

    assert wire.decode(nested(wire.DEPTH - 1))
    for depth in (wire.DEPTH, 100_000):
        with pytest.raises(UsageError, match="nested deeper"):
            wire.decode(nested(depth))


def test_a_long_text_that_looks_like_json_takes_no_more_memory_than_another() -> None:
    line = wire.encode({"content": '{"a": [1]} \n' * (1 << 16)})
    tracemalloc.start()
    try:
        wire.decode(line)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(line)


def test_a_surrogate_does_not_stop_a_line() -> None:
    assert wire.decode(wire.encode({"a": "\udc80"})) == {"a": "?"}


@pytest.mark.parametrize("raised", [ClawdError("x"), UsageError("x", hint="y"), NotFound("z")])
def test_an_error_travels_with_its_code(raised: ClawdError) -> None:
    with pytest.raises(ClawdError) as caught:
        wire.raise_error(json.loads(json.dumps(wire.error_of(raised))))
    assert (type(caught.value), caught.value.message, caught.value.hint) == (
        type(raised),
        raised.message,
        raised.hint,
    )


@pytest.mark.anyio
async def test_a_line_that_is_too_long_is_skipped() -> None:
    reader = asyncio.StreamReader(limit=64)
    reader.feed_data(b"first\n" + b"x" * 1000 + b"\nlast\ntorn")
    reader.feed_eof()
    assert await wire.read_line(reader) == b"first\n"
    with pytest.raises(UsageError):
        await wire.read_line(reader)
    assert await wire.read_line(reader) == b"last\n"
    assert await wire.read_line(reader) is None


def test_the_socket_is_private_replaces_a_stale_one_and_takes_a_long_path(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100) / ("e" * 100)
    directory.mkdir(parents=True)
    with pytest.raises(OSError):
        wire.connect(directory)
    wire.listen(directory).close()
    with pytest.raises(ConnectionRefusedError):
        wire.connect(directory)
    with wire.listen(directory) as listener, wire.connect(directory) as client:
        assert [path.name for path in directory.iterdir()] == [wire.NAME]
        assert stat.S_IMODE((directory / wire.NAME).stat().st_mode) == 0o600
        listener.setblocking(True)
        peer, _ = listener.accept()
        with peer:
            client.sendall(b"hello")
            assert peer.recv(5) == b"hello"
            assert wire.is_own(peer)


@pytest.mark.parametrize("wrapper", [["unshare", "--pid", "--fork"], ["setpriv", "--reuid=65534", "--clear-groups"]])
def test_a_peer_of_another_namespace_or_user_is_not_our_own(wrapper: list[str]) -> None:
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"{wrapper[0]} is not possible here")
    name = f"\0clawd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        code = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(chr(0)+sys.argv[1]); s.recv(1)"
        with subprocess.Popen([*wrapper, sys.executable, "-c", code, name[1:]]) as process:
            peer, _ = listener.accept()
            with peer:
                assert not wire.is_own(peer)
            assert process.wait(10) == 0


def test_a_daemon_that_is_slow_to_accept_is_waited_for(tmp_path: Path) -> None:
    with wire.listen(tmp_path) as listener:
        listener.listen(0)
        with wire.connect(tmp_path):
            began = time.monotonic()
            with pytest.raises(BlockingIOError):
                wire.connect(tmp_path, timeout=0.2)
            assert time.monotonic() - began >= 0.2
            listener.accept()[0].close()
            wire.connect(tmp_path).close()
