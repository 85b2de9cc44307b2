"""This install's own certificate authority: what the sandboxes trust, so that their TLS can be looked into.

Its key never leaves `state/gateway/` (0600), where key and certificate are one file: they cannot come apart. Leaves
live for days and only in memory, and have one key in common. Everything here may be called from any thread, and blocks:
its first use imports cryptography and writes to the disk, a name's first use signs.
"""

from __future__ import annotations

import fcntl
import ipaddress
import logging
import os
import re
import ssl
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from clawd.clock import Clock, SystemClock
from clawd.errors import StorageError
from clawd.files import open_beneath, write_atomic

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

FILE = "authority.pem"
MOST = 256  # contexts that are kept
_AUTHORITY = timedelta(days=3650)
_AUTHORITY_LEFT = timedelta(days=30)  # less is as good as expired: the leaves of a long turn must fit in
_LEAF = timedelta(days=7)
_LEAF_LEFT = timedelta(days=1)
_SKEW = timedelta(hours=1)
_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
# Where systems keep the public roots in one file (Debian, Fedora, SUSE, others), if Python does not know.
_ROOTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class _Authority:
    key: EllipticCurvePrivateKey
    certificate: x509.Certificate
    leaf_key: EllipticCurvePrivateKey


class Certificates:
    """The authority in `directory`, made with its first use. Raises StorageError when it cannot be kept."""

    def __init__(self, directory: Path, clock: Clock | None = None) -> None:
        self._directory = directory
        self._clock = clock or SystemClock()
        self._made: _Authority | None = None
        self._contexts: OrderedDict[str, tuple[ssl.SSLContext, x509.Certificate]] = OrderedDict()
        self._lock = threading.Lock()

    def bundle(self) -> bytes:
        """PEM: the public roots of this machine and our own certificate, for the clients in a sandbox."""
        with self._lock:
            own = _pem(self._authority().certificate)
        return b"".join(block + b"\n" for block in public_roots()) + own

    def context(self, host: str) -> ssl.SSLContext:
        """What a tunnel to `host` is answered with: HTTP/1.1 alone, and only to who asks for this very name."""
        host = normal(host)
        with self._lock:
            known = self._contexts.pop(host, None)
            if known is None or not _good(known[1], self._clock.now(), _LEAF_LEFT):
                known = self._answer(host)
            self._contexts[host] = known
            if len(self._contexts) > MOST:
                self._contexts.popitem(last=False)
            return known[0]

    # ---- leaves

    def _answer(self, host: str) -> tuple[ssl.SSLContext, x509.Certificate]:
        authority = self._authority()
        leaf = _leaf(authority, host, self._clock.now())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        # Each handshake shows its name anew, and a client that only writes finds nothing unread.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.sni_callback = cast(Any, _only(host))  # the stubs know neither a missing name nor the third argument
        with self._file(_private(authority.leaf_key) + _pem(leaf)) as path:
            context.load_cert_chain(path)
        return context, leaf

    @contextmanager
    def _file(self, content: bytes) -> Iterator[str]:
        """OpenSSL takes a key from a file alone: one in memory, where there are such."""
        if sys.platform == "linux":
            descriptor = os.memfd_create("leaf", os.MFD_CLOEXEC)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                yield f"/proc/self/fd/{descriptor}"
        else:
            with tempfile.NamedTemporaryFile(dir=self._directory) as file:
                file.write(content)
                file.flush()
                yield file.name

    # ---- the authority

    def _authority(self) -> _Authority:
        if self._made is None or not _good(self._made.certificate, self._clock.now()):
            from cryptography.hazmat.primitives.asymmetric import ec

            try:
                with self._alone():
                    key, certificate = self._kept() or self._new()
            except OSError as error:
                raise StorageError(
                    f"the gateway's certificate authority cannot be kept in {self._directory}: {error.strerror}",
                    hint="see that the disk has room and that the directory is yours",
                ) from error
            self._contexts.clear()
            self._made = _Authority(key, certificate, ec.generate_private_key(ec.SECP256R1()))
        return self._made

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Of several processes one makes the authority, and the others take it."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        at = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(at, 0o700)
            fcntl.flock(at, fcntl.LOCK_EX)
            yield
        finally:
            os.close(at)

    def _kept(self) -> tuple[EllipticCurvePrivateKey, x509.Certificate] | None:
        """What an earlier process made, None when there is none that is any good, which is told to the log."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            with os.fdopen(open_beneath(self._directory, FILE), "rb") as file:
                mode, data = os.fstat(file.fileno()).st_mode, file.read(64 << 10)
            if mode & 0o077:
                raise ValueError("others may have read it")
            key = serialization.load_pem_private_key(data, password=None)
            certificate = x509.load_pem_x509_certificate(data)
            if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
                raise ValueError("its key is not that of its certificate")
            if not _good(certificate, self._clock.now()):
                raise ValueError("it has expired, or is of a time to come")
        except FileNotFoundError:
            return None
        except Exception as error:  # whatever is wrong with it, it is of no more use
            reason = error if type(error) is ValueError and len(str(error)) < 50 else type(error).__name__
            log.warning(
                "the gateway's certificate authority is made anew (%s); sandboxes that live now do not trust it", reason
            )
            return None
        return key, certificate

    def _new(self) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        key, now = ec.generate_private_key(ec.SECP256R1()), self._clock.now()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clawd gateway of this install")])
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _AUTHORITY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        for left in self._directory.glob(f".{FILE}.*"):  # a crash in the middle of an earlier one
            left.unlink()
        write_atomic(self._directory / FILE, _private(key) + _pem(certificate))
        return key, certificate


def normal(host: str) -> str:
    """Lower case, without one trailing dot: how two spellings of a name are compared."""
    return host.lower().removesuffix(".")


def public_roots() -> list[bytes]:
    """The PEM blocks of the first file of public roots on this machine; nothing else that may stand in it."""
    for path in (ssl.get_default_verify_paths().cafile, *_ROOTS):
        try:
            if path and (blocks := _BLOCK.findall(Path(path).read_bytes())):
                return blocks
        except OSError:
            continue
    return []


def _only(host: str) -> Callable[[ssl.SSLObject, str | None, ssl.SSLContext], int | None]:
    """Ends a handshake that asks for another name with an alert. An address has no name to ask for."""
    nameless = _address(host) is not None

    def check(_: ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int | None:
        if (nameless and name is None) or (name is not None and normal(name) == host):
            return None
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    return check


def _leaf(authority: _Authority, host: str, now: datetime) -> x509.Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    address = _address(host)
    name = x509.DNSName(host) if address is None else x509.IPAddress(address)
    issuer, public = authority.certificate, authority.leaf_key.public_key()
    return (
        x509.CertificateBuilder(issuer.subject, None, public, x509.random_serial_number())
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clawd gateway")]))
        .not_valid_before(now - _SKEW)
        .not_valid_after(min(now + _LEAF, issuer.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
        **dict.fromkeys(unused, False),
    )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _good(certificate: x509.Certificate, now: datetime, left: timedelta = _AUTHORITY_LEFT) -> bool:
    """Whether it is valid, and for so long to come. The clock may have been set back since it was made."""
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc - left


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _private(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
