"""Asks the gateway over one connection: `ask.py TARGET…`, or a target a line of its input. Prints each answer's status
and rule, or its text. `ask.py --until FILE TARGET` asks once, and again when there is such a file."""

import http.client
import json
import os
import sys
import time

connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
token = os.environ.get("TOKEN") or os.environ.get("CLAWD_TOKEN", "")


def ask(target):
    key = {"x-api-key": os.environ.get("ANTHROPIC_API_KEY", token)} if "/anthropic/" in target else {}
    connection.request("GET", target, headers=key or {"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    data = answer.read()
    try:
        said = json.loads(data)["error"]
    except ValueError:
        said = data.decode()
    return f"{answer.status} {said}"


if sys.argv[1:2] == ["--until"]:
    print(ask(sys.argv[3]))
    seen = []
    while not os.path.exists(sys.argv[2]):  # what changes meanwhile is kept in `seen`
        time.sleep(0.05)
        connection.close()
        try:
            now = ask("/svc/nothing/at/all")
        except (OSError, http.client.HTTPException):
            now = "cut"
        seen += [now] if seen[-1:] != [now] else []
        with open("seen", "w") as file:
            file.write("\n".join(seen))
    print(ask(sys.argv[3]))
else:
    for line in sys.argv[1:] or sys.stdin:
        print(ask(line.strip()), flush=True)
