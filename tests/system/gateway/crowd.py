"""Three hundred clients of one group that take up room: `crowd.py`. Idle tunnels, heads that do not end, answers that
nobody reads. Tells the host with work/crowded, stays until work/enough, and prints how many were let in."""

import base64
import os
import socket
import ssl
import time

SECONDS = 100.0
BASIC = base64.b64encode(f"claw:{os.environ['CLAWD_TOKEN']}".encode()).decode()
TUNNEL = "CONNECT api.anthropic.com:443 HTTP/1.1\r\nHost: api.anthropic.com\r\nX-Case: crowd\r\n"
HEAD = "GET /svc/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Slow: "
UNREAD = "GET /svc/tool/v1/endless HTTP/1.1\r\nHost: x\r\nX-Case: crowd\r\n"
CONTEXT = ssl.create_default_context(cafile="/run/clawd/ca.pem")


def connected(n):
    """Through the forwarder, or past it."""
    if n % 2:
        made = socket.create_connection(("127.0.0.1", 8080), SECONDS)
    else:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(SECONDS)
        made.connect("/run/clawd/s")
    return made


def one(kind, n):
    """A connection that stays, or None."""
    try:
        client = connected(n)
        if kind == "tunnel":
            client.sendall(f"{TUNNEL}Proxy-Authorization: Basic {BASIC}\r\n\r\n".encode())
            if b" 200 " in client.recv(1000):
                return CONTEXT.wrap_socket(client, server_hostname="api.anthropic.com")
        elif kind == "head":
            client.sendall(HEAD.encode())
            return client
        else:
            client.sendall(f"{UNREAD}Authorization: Basic {BASIC}\r\n\r\n".encode())
            if b" 200 " in client.recv(1000):
                return client
    except (OSError, ValueError):
        pass
    return None


def main():
    held = {"tunnel": [], "head": [], "unread": []}
    for n in range(300):
        kind = ("tunnel", "head", "unread")[n % 3]
        client = one(kind, n)
        if client is not None:
            held[kind].append(client)
    with open("/group/work/crowded", "w"):
        pass
    end = time.monotonic() + SECONDS
    while not os.path.exists("/group/work/enough") and time.monotonic() < end:
        time.sleep(0.05)
    print("tunnels:", len(held["tunnel"]), "unread answers:", len(held["unread"]))


main()
