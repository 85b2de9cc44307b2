"""The filter, decided call by call by a small BPF machine, for both architectures."""

from __future__ import annotations

import errno
import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import SandboxUnavailable
from clawd.sandbox import seccomp

ALLOW, KILL = 0x7FFF_0000, 0x8000_0000
machines = st.sampled_from(sorted(seccomp.MACHINES))
words = st.integers(0, 2**64 - 1)


def refused(number: int) -> int:
    return 0x0005_0000 | number


def verdict(machine: str, call: int, arguments: tuple[int, ...] = (), audit: int | None = None) -> int:
    """Run the program over one `struct seccomp_data`, as the kernel does."""
    it = seccomp.MACHINES[machine]
    data = struct.pack("=IIQ6Q", call, it.audit if audit is None else audit, 0, *(*arguments, *[0] * 6)[:6])
    code = list(struct.iter_unpack("=HBBI", seccomp.program(machine)))
    at, accumulator = 0, 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x15:
                at += yes if accumulator == value else no
            case 0x35:
                at += yes if accumulator >= value else no
            case 0x45:
                at += yes if accumulator & value else no
            case 0x06:
                return value
            case _:
                raise AssertionError(f"unknown operation {operation:#x}")


@given(machines, st.integers(0, 600), words, words)
def test_what_is_not_denied_is_allowed(machine: str, call: int, first: int, second: int) -> None:
    it = seccomp.MACHINES[machine]
    got = verdict(machine, call, (first, second))
    if call in seccomp.denied(machine).values():
        assert got == refused(errno.EPERM)
    elif call == 435:
        assert got == refused(errno.ENOSYS)
    elif call == it.clone:
        assert got == (refused(errno.EPERM) if first & seccomp.NAMESPACE_FLAGS else ALLOW)
    elif call == it.ioctl:
        low = second & 0xFFFF_FFFF
        assert got == (refused(errno.EPERM) if low in seccomp.TERMINAL_IOCTLS else ALLOW)
    elif call == it.socket:
        low = first & 0xFFFF_FFFF
        assert got == (ALLOW if low in seccomp.SOCKET_FAMILIES else refused(errno.EAFNOSUPPORT))
    else:
        assert got == ALLOW


@pytest.mark.parametrize("machine", sorted(seccomp.MACHINES))
def test_the_calls_judged_by_an_argument(machine: str) -> None:
    it = seccomp.MACHINES[machine]
    assert verdict(machine, it.clone, (0x3D0F00,)) == ALLOW  # what pthread_create asks for
    assert verdict(machine, it.clone, (0x1000_0000 | 17,)) == refused(errno.EPERM)
    assert verdict(machine, it.ioctl, (0, 0x5412)) == refused(errno.EPERM)
    assert verdict(machine, it.ioctl, (0, 0xFFFF_FFFF_0000_5412)) == refused(errno.EPERM)
    assert verdict(machine, it.ioctl, (0, 0x5413)) == ALLOW
    assert verdict(machine, it.socket, (1,)) == verdict(machine, it.socket, (2,)) == ALLOW
    assert verdict(machine, it.socket, (40,)) == refused(errno.EAFNOSUPPORT)


@given(machines, st.integers(0, 2**32 - 1), st.integers(0, 600))
def test_calls_of_another_architecture_kill(machine: str, audit: int, call: int) -> None:
    if audit != seccomp.MACHINES[machine].audit:
        assert verdict(machine, call, audit=audit) == KILL


@given(st.integers(0, 600))
def test_the_x32_numbers_are_refused(call: int) -> None:
    assert verdict("x86_64", 0x4000_0000 | call) == refused(errno.EPERM)


def test_no_number_is_listed_twice() -> None:
    for machine in seccomp.MACHINES:
        numbers = list(seccomp.denied(machine).values())
        assert len(numbers) == len(set(numbers))


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        seccomp.program("riscv64")


def test_the_file_holds_the_program_from_its_start_and_cannot_change() -> None:
    file = seccomp.descriptor("x86_64")
    try:
        assert os.read(file, 1 << 16) == seccomp.program("x86_64")
        with pytest.raises(PermissionError):
            os.write(file, b"x")
    finally:
        os.close(file)
