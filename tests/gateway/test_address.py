"""Addresses: unwrapped, judged, and dialled as they were judged."""

import socket
import threading
from ipaddress import IPv4Address, IPv6Address, ip_network

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.gateway.address import Refused, SystemLookup, check, own_addresses, refused
from clawd.gateway.policy import Destination
from clawd.gateway.target import parse
from tests.gateway.granting import granting

pytestmark = pytest.mark.anyio
GOOD = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
CLOSED = """
10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 127.0.0.1 127.255.0.1 169.254.1.1 100.64.0.1 192.0.0.8 192.0.2.1
198.18.0.1 198.51.100.1 203.0.113.9 192.88.99.1 ::1 fe80::1 fe80::1%eth0 fc00::1 fd12::1 fec0::1 2001:db8::1 2001:2::1
::ffff:127.0.0.1 ::ffff:10.0.0.1 ::7f00:1 ::ffff:0:7f00:1 64:ff9b::7f00:1 64:ff9b::a00:1 2002:7f00:1:: 2002:c0a8:101::5
2001:0:808:808::80ff:fffe 2606::5efe:127.0.0.1 2606::200:5efe:10.0.0.1 4000::1 3fff::1 5f00::1 100::1
""".split()  # noqa: SIM905
NEVER = """
0.0.0.0 0.1.2.3 224.0.0.1 239.255.255.250 255.255.255.255 240.0.0.1 169.254.169.254 169.254.170.2 169.254.169.123
100.100.100.200 168.63.129.16 192.0.0.192 :: ff02::1 fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fe80::a9fe:a9fe
::ffff:169.254.169.254 ::a9fe:a9fe ::ffff:0:a9fe:a9fe 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe:: 2001:0:808:808::5601:5601
2001:0:a9fe:a9fe::1 64:ff9b:1::a9fe:a9fe 64:ff9b:1:a9fe:a9:fe00:: 64:ff9b:1:a9:fe:a9fe:: 64:ff9b:1:0:a9:fea9:fe00:0
2606::5efe:169.254.169.254 ::ffff:0.0.0.0 64:ff9b::e000:1 64:ff9b:1::808:808
evil 127.1
""".split()  # noqa: SIM905


@pytest.mark.parametrize("answer", [*GOOD, *CLOSED, *NEVER])
def test_each_answer_is_judged_in_every_form(answer: str) -> None:
    assert (refused(answer, False, ()) is None) == (answer in GOOD)
    assert (refused(answer, True, ()) is None) == (answer not in NEVER)


@given(st.ip_addresses(v=4))
def test_no_wrapping_lets_an_address_through(address: IPv4Address) -> None:
    n = int(address)
    for wrapped in (
        *(IPv6Address(prefix << 32 | n) for prefix in (0xFFFF, 0x64FF9B << 64, 0xFFFF0000, 0x2606 << 80 | 0x5EFE)),
        IPv6Address(0x2002 << 112 | n << 80),
        IPv6Address(0x20010000 << 96 | 0x8080808 << 64 | (~n & 0xFFFFFFFF)),
    ):
        for allow_private in (False, True):
            if refused(str(address), allow_private, ()) is not None:
                assert refused(str(wrapped), allow_private, ()) is not None, wrapped


def test_this_hosts_own_addresses_are_closed_however_public_they_are() -> None:
    own = (ip_network("8.8.8.8"), ip_network("2606:4700::/64"))
    for answer in ("8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700::5"):
        assert refused(answer, False, own) is not None and refused(answer, True, own) is None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("127.0.0.9", 9))
        here = IPv4Address(probe.getsockname()[0])
    assert any(here in network for network in own_addresses())


def to(config: str, connect: str = "a.example.org:443", raw: str = "") -> Destination:
    granted = granting('grants = ["x"]', f"[services.x]\n{config}").granted["x"]
    if granted.base is not None:
        return Destination(granted, *granted.base[:3], "/", "")
    target = parse("CONNECT", connect)
    return Destination(granted, target.scheme, target.host, target.port, "/", "")


class Answers:
    def __init__(self, *rounds: list[str]) -> None:
        self.rounds, self.asked = list(rounds), list[str]()

    async def __call__(self, host: str) -> list[str]:
        self.asked.append(host)
        return self.rounds.pop(0)


async def test_a_name_is_looked_up_once_and_its_bad_answers_are_dropped() -> None:
    there = to('hosts = ["*.example.org"]')
    answers = Answers(["127.0.0.1", "8.8.8.8", "169.254.169.254", "::1"], ["127.0.0.1"])
    assert await check("a.example.org", 443, there, answers) == ["8.8.8.8"]
    assert answers.asked == ["a.example.org"]
    with pytest.raises(Refused) as caught:
        await check("a.example.org", 443, there, answers)
    assert caught.value.rule == "address_not_allowed"
    assert "[services.x]" in str(caught.value.hint) and "127" not in caught.value.message
    with pytest.raises(OSError, match="no address"):
        await check("a.example.org", 443, there, Answers([]))


async def test_an_address_is_judged_without_a_look_up() -> None:
    nobody = Answers()
    open_, closed = 'base_url = "https://127.0.0.1:1"\nallow_private = true', 'base_url = "https://127.0.0.1:1"'
    assert await check("127.0.0.1", 1, to(open_), nobody) == ["127.0.0.1"]
    with pytest.raises(Refused):
        await check("127.0.0.1", 1, to(closed), nobody)
    with pytest.raises(Refused):
        await check("169.254.169.254", 1, to(open_.replace("127.0.0.1", "169.254.169.254")), nobody)


async def test_nothing_but_the_destination_is_looked_up() -> None:
    there, nobody = to('base_url = "https://a.example.org"'), Answers()
    for host, port in (("b.example.org", 443), ("a.example.org", 444)):
        with pytest.raises(Refused):
            await check(host, port, there, nobody)


async def test_a_credential_over_http_goes_to_private_addresses_alone() -> None:
    config = 'base_url = "http://nas.example.org"\nallow_private = true\n'
    both = ["8.8.8.8", "192.168.1.2", "::ffff:10.0.0.1"]
    keyed = to(f'{config}credential = "${{env:K}}"')
    assert await check("nas.example.org", 80, keyed, Answers(both)) == both[1:]
    assert await check("nas.example.org", 80, to(config), Answers(both)) == both
    with pytest.raises(Refused, match="credential"):
        await check("nas.example.org", 80, keyed, Answers(["8.8.8.8"]))


async def test_a_look_up_that_hangs_counts_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), list[str]()

    def hangs(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        over.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    lookup = SystemLookup()
    try:
        for n in range(30):  # who asked goes away
            with anyio.move_on_after(0.02):
                await lookup(f"n{n}.example.org")
        assert len(asked) <= 8
    finally:
        over.set()
    assert await lookup("late.example.org") == [] and asked[-1] == "late.example.org"


async def test_the_systems_own_names_count() -> None:
    assert "127.0.0.1" in await SystemLookup()("localhost")
