"""Calls the host tool `send_message` through the forwarder: `call.py TEXT [TOKEN]`. Prints the answer's status."""

import json
import os
import sys
import urllib.error
import urllib.request

body = json.dumps({"schema": 1, "arguments": {"text": sys.argv[1]}, "nth": 0}).encode()
request = urllib.request.Request("http://127.0.0.1:8080/host/v1/tools/send_message", body)
if token := (sys.argv[2:] or [os.environ.get("CLAWD_TOKEN")])[0]:
    request.add_header("Authorization", f"Bearer {token}")
try:
    with urllib.request.urlopen(request) as answer:
        print(answer.status)
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)["error"])
