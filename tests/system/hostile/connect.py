"""Tries to reach the host and the world: `connect.py PORT ABSTRACT_NAME`. Prints what did not fail at once."""

import contextlib
import socket
import sys
import time

PORTS = (int(sys.argv[1]), 22, 80, 443)
HOSTS = ("127.0.0.1", "1.1.1.1", "10.0.0.1", "172.17.0.1", "192.168.1.1", "169.254.169.254")
HOSTS6 = ("::1", "fe80::1", "2606:4700:4700::1111")
FAR = [
    *((socket.AF_INET, socket.SOCK_STREAM, (host, port)) for port in PORTS for host in HOSTS),
    *((socket.AF_INET6, socket.SOCK_STREAM, (host, port)) for port in PORTS for host in HOSTS6),
    *((socket.AF_INET, socket.SOCK_DGRAM, (host, 53)) for host in ("1.1.1.1", "10.0.0.1", "224.0.0.251")),
    *((socket.AF_INET6, socket.SOCK_DGRAM, (host, 53)) for host in HOSTS6[1:]),
    (socket.AF_UNIX, socket.SOCK_STREAM, "\0" + sys.argv[2]),
]
for family, kind, address in FAR:
    began = time.monotonic()
    with socket.socket(family, kind) as tried, contextlib.suppress(OSError):
        tried.settimeout(30)
        tried.connect(address)
        if kind == socket.SOCK_STREAM or tried.send(b"x"):
            print("reached", address)
    if time.monotonic() - began > 10:
        print("hung", address)
with contextlib.suppress(OSError):
    print("resolved", socket.getaddrinfo("example.com", 80))
with contextlib.suppress(OSError), socket.socket(socket.AF_PACKET, socket.SOCK_RAW):
    print("raw packets")
with socket.create_connection(("127.0.0.1", 8080), 30) as forwarder:
    forwarder.sendall(b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
    print(forwarder.recv(100).split(b"\r\n")[0].decode())
