"""Tries every way out: `bypass.py PLAN [ATTEMPT …]`, PLAN a JSON file (tests/system/test_bypass.py). Prints one line
for each attempt: its name, and `OUT` or what stopped it. What is sent carries the plan's mark and the attempt's name,
so that the host can tell what arrived, whatever this program believes. Run on the host, it is its own control."""

import ctypes
import json
import os
import shutil
import socket
import struct
import subprocess
import sys

with open(sys.argv[1]) as _file:
    PLAN = json.load(_file)
PORT, MARK, ABSTRACT = PLAN["port"], PLAN["mark"], PLAN["abstract"]
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
RTM_NEWLINK, CREATE = 16, 0x0001 | 0x0004 | 0x0400  # NLM_F_REQUEST, ACK, CREATE
ETHERTYPE, PROTOCOL = PLAN["ethertype"], PLAN["protocol"]  # experimental ones, which nobody else uses
SECONDS = 5.0
LIBC = ctypes.CDLL(None, use_errno=True)


def marked(name):
    return f"{MARK}<{name}>".encode()


def tcp(name, host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.settimeout(SECONDS)
        tried.connect((host, port))
        tried.sendall(b"GET / HTTP/1.0\r\n\r\n" + marked(name))
        tried.shutdown(socket.SHUT_WR)
        return PLAN["word"].encode() in tried.recv(1000)


def udp(name, host, port):
    """Nobody answers: the host knows whether it arrived."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as tried:
        tried.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        tried.sendto(dns(name), (host, port))


def dns(name):
    """A question whose name is the attempt's: what a resolver would carry outside."""
    labels = b"".join(bytes([len(each)]) + each for each in marked(name).replace(b".", b"_").split(b"-"))
    return struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0\0\x01\0\x01" + marked(name)


def icmp(name, host, kind):
    v6 = ":" in host
    data = struct.pack(">BBHHH", 128 if v6 else 8, 0, 0, os.getpid() & 0xFFFF, 1) + marked(name)
    if not v6:
        data = data[:2] + checksum(data) + data[4:]
    with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, kind, 58 if v6 else 1) as tried:
        tried.sendto(data, (host, 0))


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", ~total & 0xFFFF)


def raw(name, host):
    """An IP packet of a protocol of its own."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_RAW, PROTOCOL) as tried:
        tried.sendto(marked(name), (host, 0))


def packet(name, interface):
    """A frame past all of IP."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as tried:
        tried.bind((interface, 0))
        tried.send(b"\0" * 12 + struct.pack(">H", ETHERTYPE) + marked(name))


def family(_, number):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        try:
            socket.socket(number, kind, 0).close()
        except OSError as error:
            last = error
        else:
            return True
    raise last


def unix(_, path):
    with socket.socket(socket.AF_UNIX) as tried:
        tried.settimeout(SECONDS)
        tried.connect(path)
        return True


def device(_, path):
    os.close(os.open(path, os.O_RDWR))
    return True


def link(_, kind):
    """A network interface of our own making."""
    attribute = b"clawdtest0\0\0"
    kind = struct.pack("HH", 4 + len(kind), 1) + kind.encode() + b"\0" * (-len(kind) % 4)  # IFLA_INFO_KIND
    body = struct.pack("BBHiII", 0, 0, 0, 0, 0, 0) + struct.pack("HH", 4 + len(attribute), 3) + attribute
    body += struct.pack("HH", 4 + len(kind), 18) + kind  # IFLA_LINKINFO
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as tried:
        tried.settimeout(SECONDS)
        tried.bind((0, 0))
        tried.send(struct.pack("IHHII", 16 + len(body), RTM_NEWLINK, CREATE, 1, 0) + body)
        code = struct.unpack_from("i", tried.recv(4096), 16)[0]
    return done(code)


def namespace(_, flags):
    """A network namespace of our own, in a child: it could be given a way out later."""
    pid = os.fork()
    if not pid:
        os._exit(0 if LIBC.unshare(flags) == 0 else ctypes.get_errno())
    return done(-os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def enter(_, path):
    """The network namespace of another process."""
    descriptor = os.open(path, os.O_RDONLY)
    pid = os.fork()
    if not pid:
        os._exit(0 if LIBC.setns(descriptor, CLONE_NEWNET) == 0 else ctypes.get_errno())
    os.close(descriptor)
    return done(-os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def done(code):
    if code:
        raise OSError(-code, os.strerror(-code))
    return True


def inherited(_):
    """Sockets that somebody left open for us, beside the standard ones."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                where = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue
            if where.startswith("socket:"):
                return True
    raise OSError("none")


def resolve(_, host):
    return bool(socket.getaddrinfo(host, 80))


def curl(name, url, environment):
    """An ordinary client that is told to ask nobody for the way."""
    program = shutil.which("curl")
    assert program, "there is no curl in here"
    done = subprocess.run(
        [program, "-s", "--noproxy", "*", "--max-time", "5", "-A", marked(name).decode(), url],
        env=environment,
        stdout=subprocess.PIPE,
    )
    if done.returncode:
        raise OSError(f"curl {done.returncode}")
    return PLAN["word"].encode() in done.stdout


def attempts():
    """(name, what to call, with what): True is out, None is known to the host alone."""
    for host in [*PLAN["hosts"], *PLAN["far"]]:
        url = f"http://[{host}]:{PORT}/" if ":" in host else f"http://{host}:{PORT}/"
        yield f"tcp {host}", tcp, host, PORT
        yield f"udp {host}", udp, host, PORT
        yield f"icmp {host}", icmp, host, socket.SOCK_RAW
        yield f"ping {host}", icmp, host, socket.SOCK_DGRAM
        yield f"raw {host}", raw, host
        yield f"curl {host}", curl, url, dict(os.environ)
        yield f"bare curl {host}", curl, url, {}
    for host in [*PLAN["resolvers"], *PLAN["far"]]:
        yield f"dns {host}", udp, host, 53
    for interface in ("lo", "eth0"):
        yield f"packet {interface}", packet, interface
    for number in range(46):
        if number not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
            yield f"family {number}", family, number
    for name, path in PLAN["sockets"].items():
        yield f"socket {name}", unix, path
        yield f"socket {name} of process 1", unix, f"/proc/1/root{path}"
        yield f"socket {name} by ..", unix, f"/proc/self/cwd/../../../../..{path}"
    yield "abstract", unix, f"\0{ABSTRACT}"
    for path in ("/dev/net/tun", "/dev/vhost-vsock", "/dev/vsock"):
        yield f"device {path}", device, path
    for kind in ("dummy", "bridge", "veth", "ifb"):
        yield f"link {kind}", link, kind
    yield "namespace", namespace, CLONE_NEWNET
    yield "user namespace", namespace, CLONE_NEWUSER | CLONE_NEWNET
    for pid in ("1", str(PLAN["pid"])):
        yield f"netns of {pid}", enter, f"/proc/{pid}/ns/net"
    yield "inherited", inherited
    for host in PLAN["names"]:
        yield f"name {host}", resolve, host


def forwarder():
    """What must work: the forwarder, and the run's own socket."""
    for name, where in (("forwarder", ("127.0.0.1", 8080)), ("socket", "/run/clawd/s")):
        with socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET) as tried:
            tried.settimeout(60)
            tried.connect(where)
            tried.sendall(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
            yield name, tried.recv(100).split(b"\r\n")[0].decode()


def main():
    chosen = sys.argv[2:]
    for name, attempt, *arguments in attempts():
        if chosen and name not in chosen:
            continue
        try:
            said = {True: "OUT", False: "another answered", None: "sent"}[attempt(name, *arguments)]
        except OSError as error:
            said = error.strerror or str(error)
        print(f"{name}: {said}")
    if not chosen:
        for name, answer in forwarder() if os.path.exists("/run/clawd/s") else ():
            print(f"road {name}: {answer}")


main()
