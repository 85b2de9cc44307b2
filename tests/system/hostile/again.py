"""`again.py KIND` asks at the gateway until it was answered, and prints `KIND ok`. Each kind but `get` stands still
until there is a file of its name. What is cut off or refused is begun again, under a path of its own."""

import base64
import http.client
import os
import select
import socket
import ssl
import sys
import time
import uuid

TOKEN = os.environ["CLAWD_TOKEN"]
TARGET = os.environ["SECURE"]


def connected():
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
    connection.connect()
    return connection


def hold(kind, sock):
    while not os.path.exists(kind):
        if select.select([sock], [], [], 0.05)[0]:
            raise OSError("cut")


def plain(kind, path):
    connection = connected()
    connection.request("GET", "/svc/tool" + path, headers={"Authorization": "Bearer " + TOKEN})
    answer = connection.getresponse()
    return answer.status, answer.read()


def upload(kind, path):
    connection = connected()
    connection.putrequest("POST", "/svc/tool" + path)
    connection.putheader("Authorization", "Bearer " + TOKEN)
    connection.putheader("Content-Length", "300000")
    connection.endheaders(bytes(150000))
    hold(kind, connection.sock)
    connection.send(bytes(150000))
    answer = connection.getresponse()
    return answer.status, answer.read()


def tunnel(kind, path):
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
    basic = base64.b64encode(("claw:" + TOKEN).encode()).decode()
    connection.set_tunnel(TARGET, headers={"Proxy-Authorization": "Basic " + basic})
    connection.connect()
    context = ssl.create_default_context(cafile="/run/clawd/ca.pem")
    connection.sock = context.wrap_socket(connection.sock, server_hostname=TARGET.partition(":")[0])
    connection.request("GET", path)
    answer = connection.getresponse()
    told = answer.status, answer.read()
    if kind == "idle":
        hold(kind, connection.sock)
    return told


def talk(kind, path):
    sock = socket.create_connection(("127.0.0.1", 8080), timeout=60)
    head = (
        "GET /svc/tool{} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nAuthorization: Bearer {}"
    )
    key = "\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    sock.sendall((head.format(path, TOKEN) + key).encode())
    told = b""
    while b"\r\n\r\n" not in told:
        data = sock.recv(1000)
        if not data:
            raise OSError("cut")
        told += data
    status = int(told.split()[1])
    if status == 101:
        hold(kind, sock)
        sock.sendall(b"\x81\x82\0\0\0\0ok")
        return 200, sock.recv(100)[2:]
    return status, told


KINDS = {"get": plain, "stream": plain, "upload": upload, "idle": tunnel, "busy": tunnel, "talk": talk}

kind = sys.argv[1]
while True:
    try:
        status, data = KINDS[kind](kind, f"/{kind}/{uuid.uuid4()}")
    except (OSError, http.client.HTTPException):
        status, data = 0, b""
    if (status, data) == (200, b"ok"):
        break
    time.sleep(0.05)
print(kind, "ok")
