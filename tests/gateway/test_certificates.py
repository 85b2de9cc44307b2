"""The certificate authority: kept, made once, made anew when it is no good, and believed by nobody but who asks for the
tunnel's own name."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from clawd.clock import TurnedClock
from clawd.errors import StorageError
from clawd.gateway import certificates
from clawd.gateway.certificates import FILE, MOST, Certificates

DAY = 86400.0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state" / "gateway"


def trusting(bundle: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=bundle.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python 3.13's default
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> ssl.SSLSocket:
    """The client's side of a whole handshake; raises what the client would see."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(ours, server_side=True) as wrapped:
                wrapped.recv(1)
        except OSError:
            ours.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        wrapped = client.wrap_socket(theirs, server_hostname=name)
    except BaseException:
        theirs.close()
        raise
    finally:
        if sys.exc_info()[0] is not None:
            thread.join(20)
    return wrapped


def own(bundle: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(bundle[bundle.rindex(b"-----BEGIN") :])


def test_it_is_made_once_and_survives(directory: Path) -> None:
    first = Certificates(directory)
    assert not directory.exists()
    with handshake(first.context("api.example.com"), trusting(first.bundle()), "api.example.com") as wrapped:
        assert wrapped.selected_alpn_protocol() == "http/1.1"
        assert wrapped.version() == "TLSv1.3"
    assert [path.name for path in directory.iterdir()] == [FILE]
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / FILE).stat().st_mode & 0o777 == 0o600
    second = Certificates(directory)
    assert second.bundle() == first.bundle()
    handshake(second.context("b.example.com"), trusting(first.bundle()), "b.example.com").close()
    assert b"PRIVATE" not in first.bundle()
    assert "key" not in repr(first._made)


@pytest.mark.parametrize(
    ("host", "name", "right"),
    [
        ("api.example.com", "api.example.com", True),
        ("api.example.com", "API.Example.com", True),
        ("API.example.com.", "api.example.com", True),
        ("api.example.com", "evil.com", False),
        ("api.example.com", "xapi.example.com", False),
        ("api.example.com", "example.com", False),
        ("api.example.com", "a.api.example.com", False),
        ("api.example.com", None, False),
        ("127.0.0.1", "127.0.0.1", True),  # Python checks the address and sends no name
        ("127.0.0.1", "api.example.com", False),
        ("::1", "::1", True),
    ],
)
def test_only_the_tunnels_own_name(directory: Path, host: str, name: str | None, right: bool) -> None:
    made = Certificates(directory)
    client = trusting(made.bundle())
    if not right:
        client.check_hostname = False
        with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
            handshake(made.context(host), client, name)
    else:
        handshake(made.context(host), client, name).close()


def test_a_name_with_a_trailing_dot_is_the_name(directory: Path) -> None:
    made = Certificates(directory)
    client = trusting(made.bundle())
    client.check_hostname = False  # Python compares the certificate's name with the dot
    handshake(made.context("api.example.com"), client, "api.example.com.").close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_old_tls_and_no_h2_alone(directory: Path) -> None:
    made = Certificates(directory)
    old = trusting(made.bundle())
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"):
        handshake(made.context("a.example"), old, "a.example")
    two = trusting(made.bundle())
    two.maximum_version = ssl.TLSVersion.TLSv1_2
    two.set_alpn_protocols(["h2"])
    with handshake(made.context("a.example"), two, "a.example") as wrapped:
        assert (wrapped.version(), wrapped.selected_alpn_protocol()) == ("TLSv1.2", None)


def test_leaves_are_renewed_and_few_are_kept(directory: Path) -> None:
    clock = TurnedClock(datetime.now(UTC))
    made = Certificates(directory, clock)
    first = made.context("a.example")
    clock.advance(5 * DAY)
    assert made.context("A.example.") is first
    clock.advance(1.1 * DAY)
    renewed = made.context("a.example")
    assert renewed is not first
    for n in range(MOST - 1):
        made.context(f"h{n}.example")
    assert made.context("a.example") is renewed  # and is now the last that was used
    made.context("one-more.example")
    assert made.context("a.example") is renewed
    assert len(made._contexts) == MOST
    assert "h0.example" not in made._contexts


def test_a_clock_that_is_set_back_leaves_nothing_of_a_time_to_come(directory: Path) -> None:
    clock = TurnedClock(datetime.now(UTC) + timedelta(days=2))
    made = Certificates(directory, clock)
    made.context("a.example")
    clock.advance(-2 * DAY)
    for each in (made, Certificates(directory, clock)):
        client = trusting(each.bundle())
        handshake(each.context("a.example"), client, "a.example").close()


def kept(directory: Path) -> bytes:
    return (directory / FILE).read_bytes()


def test_what_is_no_good_is_made_anew_and_said(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = TurnedClock(datetime.now(UTC))
    bundle = Certificates(directory, clock).bundle()
    good, path = kept(directory), directory / FILE
    assert not caplog.records
    Certificates(directory.with_name("other"), clock).bundle()
    other = kept(directory.with_name("other"))
    certificate = good[good.index(b"-----BEGIN CERT") :]

    def spoil(data: bytes, mode: int = 0o600) -> None:
        path.unlink()
        path.write_bytes(data)
        path.chmod(mode)

    for data, mode in (
        (b"", 0o600),
        (b"nonsense", 0o600),
        (good[:100], 0o600),
        (certificate, 0o600),
        (other[: other.index(b"-----BEGIN CERT")] + certificate, 0o600),
        (good, 0o644),
    ):
        spoil(data, mode)
        caplog.clear()
        anew = Certificates(directory, clock)
        assert anew.bundle() != bundle
        assert "made anew" in caplog.text
        assert "PRIVATE" not in caplog.text and good.split(b"\n")[1].decode() not in caplog.text
        handshake(anew.context("a.example"), trusting(anew.bundle()), "a.example").close()
        assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.symlink_to(directory.with_name("other") / FILE)
    caplog.clear()
    Certificates(directory, clock).bundle()
    assert "made anew" in caplog.text and not path.is_symlink()
    assert kept(directory.with_name("other")) == other


def test_an_authority_that_ends_is_made_anew_while_it_serves(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = TurnedClock(datetime.now(UTC))
    made = Certificates(directory, clock)
    bundle = made.bundle()
    clock.advance(3600 * DAY)
    assert made.bundle() == bundle
    clock.advance(21 * DAY)
    made.context("a.example")
    assert made.bundle() != bundle
    assert "expired" in caplog.text
    ends = own(made.bundle()).not_valid_after_utc
    assert ends > clock.now() + timedelta(days=3000)


def test_several_at_once_have_the_same(directory: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from clawd.gateway.certificates import Certificates;"
        "sys.stdout.buffer.write(Certificates(Path(sys.argv[1])).bundle())"
    )
    command = [sys.executable, "-c", code, str(directory)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    try:
        bundles = {process.communicate(timeout=100)[0] for process in processes}
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert len(bundles) == 1
    data = kept(directory)
    key = serialization.load_pem_private_key(data, None)
    assert key.public_key() == own(next(iter(bundles))).public_key()
    made = Certificates(directory)
    with ThreadPoolExecutor(8) as pool:
        contexts = list(pool.map(lambda _: made.context("a.example"), range(32)))
    assert len(set(map(id, contexts))) == 1


def test_the_bundle_is_public(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Certificates(directory)
    mine = made.bundle()[-len(certificates._pem(own(made.bundle()))) :]
    public = Certificates(directory.with_name("root"))
    public.bundle()
    roots = tmp_path / "roots.pem"
    roots.write_bytes(b"# a comment\n" + kept(directory.with_name("root")) + b"more\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(roots))
    bundle = made.bundle()
    assert bundle.endswith(mine) and len(re.findall(b"BEGIN", bundle)) == 2
    assert b"PRIVATE" not in bundle and b"comment" not in bundle
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(certificates, "_ROOTS", ())
    assert made.bundle() == mine


def test_a_disk_that_takes_nothing_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no directory")
    with pytest.raises(StorageError, match="cannot be kept"):
        Certificates(tmp_path / "state" / "gateway").bundle()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_is_left_open(directory: Path) -> None:
    made = Certificates(directory)
    made.context("a.example")
    before = descriptors()
    for n in range(20):
        made.context(f"{n}.example")
    assert descriptors() == before
