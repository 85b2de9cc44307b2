"""The system calls that an agent may not make, as the BPF program that the kernel runs before each call.

bubblewrap brings no filter of its own. This one is a deny list: what opens new namespaces, mounts, looks into
other processes, or reaches parts of the kernel that are often broken into (bpf, io_uring, perf, keyrings). A
denied call fails with EPERM, so that programs carry on. Three calls are judged by an argument: `clone` by its
namespace flags, `ioctl` by what types into a terminal, `socket` by its family: AF_VSOCK, for one, knows no
network namespace and would reach the hypervisor. Numbers: arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h of Linux.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass

from clawd.errors import SandboxUnavailable

# The same number on every architecture (Linux 5.1 and later).
_COMMON = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
# name: (x86_64, aarch64)
_BY_MACHINE = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
}

# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
NAMESPACE_FLAGS = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000
TERMINAL_IOCTLS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
SOCKET_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data; argument n is at 16 + 8 n, low word first
_X32 = 0x4000_0000
_CLONE3 = 435


@dataclass(frozen=True, slots=True)
class Machine:
    """An architecture: AUDIT_ARCH, its column of the table, and the calls that are judged by an argument."""

    audit: int
    column: int
    clone: int
    ioctl: int
    socket: int


MACHINES = {
    "x86_64": Machine(0xC000_003E, 0, clone=56, ioctl=16, socket=41),
    "aarch64": Machine(0xC000_00B7, 1, clone=220, ioctl=29, socket=198),
}


def denied(machine: str) -> dict[str, int]:
    """The calls that always fail, with their numbers on `machine`."""
    column = MACHINES[machine].column
    calls = _COMMON | {name: numbers[column] for name, numbers in _BY_MACHINE.items()}
    return calls | ({"iopl": 172, "ioperm": 173} if machine == "x86_64" else {})


def program(machine: str) -> bytes:
    """The filter, an array of `struct sock_filter`. Raises SandboxUnavailable for an unknown machine."""
    if machine not in MACHINES:
        raise SandboxUnavailable(
            f"clawd has no system call filter for {machine} processors",
            hint="run clawd on another machine",
        )
    it = MACHINES[machine]
    code: list[tuple[int, int, str | int, str | int]] = [
        (_LOAD, _ARCHITECTURE, 0, 0),
        (_JUMP_EQUAL, it.audit, 0, "kill"),
        (_LOAD, _NUMBER, 0, 0),
        (_JUMP_EQUAL, _CLONE3, "missing", 0),  # its flags lie in memory: the C library falls back to clone
    ]
    if machine == "x86_64":
        code.append((_JUMP_GREATER_EQUAL, _X32, "deny", 0))
    code += [(_JUMP_EQUAL, number, "deny", 0) for number in sorted(denied(machine).values())]
    code += [(_JUMP_EQUAL, it.clone, "clone", 0), (_JUMP_EQUAL, it.ioctl, "ioctl", 0)]
    code += [(_JUMP_EQUAL, it.socket, "socket", "allow")]
    labels = {"clone": len(code)}
    code += [(_LOAD, 16, 0, 0), (_JUMP_SET, NAMESPACE_FLAGS, "deny", "allow")]
    labels["ioctl"] = len(code)
    code += [(_LOAD, 24, 0, 0), *((_JUMP_EQUAL, request, "deny", 0) for request in TERMINAL_IOCTLS)]
    code += [(_JUMP_GREATER_EQUAL, 0, "allow", "allow")]
    labels["socket"] = len(code)
    code += [(_LOAD, 16, 0, 0), *((_JUMP_EQUAL, family, "allow", 0) for family in SOCKET_FAMILIES)]
    ends = {
        "family": _ERRNO | errno.EAFNOSUPPORT,
        "allow": _ALLOW,
        "deny": _ERRNO | errno.EPERM,
        "missing": _ERRNO | errno.ENOSYS,
        "kill": _KILL_PROCESS,
    }
    for label, verdict in ends.items():
        labels[label] = len(code)
        code.append((_RETURN, verdict, 0, 0))

    def distance(target: str | int, here: int) -> int:
        return labels[target] - here - 1 if isinstance(target, str) else target

    return b"".join(
        struct.pack("=HBBI", operation, distance(yes, here), distance(no, here), value)
        for here, (operation, value, yes, no) in enumerate(code)
    )


def descriptor(machine: str) -> int:
    """A memory file that holds the filter, to be inherited by one bwrap; the caller closes it."""
    return sealed(program(machine), "seccomp")


def sealed(data: bytes, name: str) -> int:
    """A memory file with `data`, read from its start, that nobody can change; the caller closes it."""
    import fcntl

    file = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(file, data)
    os.lseek(file, 0, os.SEEK_SET)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return file
