"""Plays the runner on the sockets that are named, with every lease that it can guess. Prints each answer."""

import json
import socket
import sys

MESSAGE = {"schema": 1, "arguments": {"text": "FORGED"}, "nth": 0}
HELLO = {"schema": 1, "version": "1", "engine": "offline", "pid": 1}


def call(path, method, target, body=None):
    data = b"" if body is None else json.dumps(body).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(path)
        head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        said = b"".join(iter(lambda: connection.recv(65536), b""))
    status, answer = said.split(b" ")[1].decode(), said.partition(b"\r\n\r\n")[2]
    return f"{status} {json.loads(answer)['error']}"


def final(worker):
    body = {"schema": 1, "attempt": 1, "worker": worker, "text": "FORGED", "files": [], "usage": None}
    return {**body, "stop_reason": "end", "error": None, "shown": [], "model": None, "notes": None}


path = sys.argv[1]
if sys.argv[2:] == ["hello"]:
    print(call(path, "POST", "/host/v1/hello", HELLO))
    sys.exit()
print(call(path, "GET", "/host/v1/turn?wait=1&worker=0"))
print(call(path, "GET", "/host/v1/control?wait=1"))
print(*{call(path, "POST", f"/host/v1/turn/{turn}/final", final(w)) for turn in range(1, 150) for w in (0, 1)})
print(call(path, "POST", "/host/v1/tools/send_message", MESSAGE))
print(call(path, "GET", "/svc/anthropic/v1/models"))
