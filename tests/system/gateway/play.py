"""Plays cases on the wire: `play.py CASES`, a JSON file (tests/system/test_gateway.py), answers in work/answers.json.

A case is {id, via: "tcp"|"unix", steps: [{send}|{tls}|{read}|{frame}|{shut}|{until}|{drop}], slow}. `send` is text as
Latin-1, in which {token}, {basic} and the file's own words are filled in; `tls` {sni, alpn, unchecked} begins TLS;
`read` takes one answer to a request of that method, `frame` so many bytes; `until` tells the host that it came so far,
and waits for its word. What comes after the last step is read to the end, unless that was `drop`. Slow cases are played
beside the others, which go one by one."""

import base64
import json
import os
import socket
import ssl
import sys
import threading
import time

SECONDS = {True: 60.0, False: 20.0}  # of a slow case, and of another, for one step
TOKEN = os.environ.get("CLAWD_TOKEN", "")


class Player:
    def __init__(self, case, words):
        self.case, self.words = case, words
        self.answers, self.told, self.buffer, self.dropped = [], {}, b"", False

    def play(self):
        began = time.monotonic()
        try:
            unix = self.case.get("via") == "unix"
            self.socket = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
            self.socket.settimeout(SECONDS[bool(self.case.get("slow"))])
            self.socket.connect("/run/clawd/s" if unix else ("127.0.0.1", 8080))
            for step in self.case["steps"]:
                [(verb, value)] = step.items()
                getattr(self, verb)(value)
            while not self.dropped and self.more():
                pass
        except (OSError, ValueError, EOFError) as error:
            self.told["error"] = f"{type(error).__name__}: {error}"
        finally:
            self.socket.close()
        rest = self.buffer.decode("latin-1")
        seconds = time.monotonic() - began
        return {"id": self.case["id"], "answers": self.answers, "rest": rest, "seconds": seconds, **self.told}

    def send(self, text):
        for word, value in self.words.items():
            text = text.replace("{" + word + "}", value)
        self.socket.sendall(text.encode("latin-1"))

    def tls(self, options):
        context = ssl.create_default_context(cafile="/run/clawd/ca.pem")
        if options.get("unchecked"):
            context.check_hostname = False
        if options.get("alpn"):
            context.set_alpn_protocols(options["alpn"])
        self.socket = context.wrap_socket(self.socket, server_hostname=options.get("sni"))
        self.told["tls"] = self.socket.version()
        self.told["alpn"] = self.socket.selected_alpn_protocol()

    def shut(self, _):
        self.socket.shutdown(socket.SHUT_WR)

    def frame(self, size):
        self.told["frame"] = self.exactly(size).decode("latin-1")

    def drop(self, _):
        self.dropped = True

    def until(self, name):
        """The host waits for `name` to appear in work/, and makes it go away."""
        path = f"/group/work/{name}"
        with open(path, "w"):
            pass
        end = time.monotonic() + 60
        while os.path.exists(path):
            if time.monotonic() > end:
                raise TimeoutError(name)
            time.sleep(0.01)

    def more(self):
        data = self.socket.recv(1 << 16)
        self.buffer += data
        return bool(data)

    def line(self, end):
        while end not in self.buffer:
            if not self.more():
                raise EOFError
        found, _, self.buffer = self.buffer.partition(end)
        return found

    def exactly(self, size):
        while len(self.buffer) < size:
            if not self.more():
                raise EOFError
        found, self.buffer = self.buffer[:size], self.buffer[size:]
        return found

    def read(self, method):
        """One answer, whole, or as far as it came."""
        answer = {"status": 0, "headers": [], "body": "", "whole": False}
        try:
            first, *lines = self.line(b"\r\n\r\n").decode("latin-1").split("\r\n")
            answer["status"] = int(first.split(" ")[1])
            answer["headers"] = [[each.partition(":")[0].lower(), each.partition(":")[2].strip()] for each in lines]
            self.answers.append(answer)
            named, body = dict(answer["headers"]), b""
            connected = method == "CONNECT" and answer["status"] == 200
            if method == "HEAD" or connected or answer["status"] in (101, 204, 304):
                pass
            elif named.get("transfer-encoding", "") == "chunked":
                while size := int(self.line(b"\r\n").split(b";")[0], 16):
                    body += self.exactly(size)
                    answer["body"] = body.decode("latin-1")
                    self.exactly(2)
                while trailer := self.line(b"\r\n"):
                    answer.setdefault("trailers", []).append(trailer.decode("latin-1"))
            elif "content-length" in named:
                body = self.exactly(int(named["content-length"]))
            else:
                while self.more():
                    pass
                body, self.buffer = self.buffer, b""
            answer["body"], answer["whole"] = body.decode("latin-1"), True
        except EOFError:
            self.told["cut"] = True


def main():
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    basic = base64.b64encode(f"claw:{TOKEN}".encode()).decode()
    words = {"token": TOKEN, "basic": basic, **plan["words"]}
    said = []
    slow = [
        threading.Thread(target=lambda case=case: said.append(Player(case, words).play()))
        for case in plan["cases"]
        if case.get("slow")
    ]
    for thread in slow:
        thread.start()
    said += [Player(case, words).play() for case in plan["cases"] if not case.get("slow")]
    for thread in slow:
        thread.join()
    with open("/group/work/answers.json", "w") as file:
        json.dump(said, file)
    print(len(said), "played")


main()
