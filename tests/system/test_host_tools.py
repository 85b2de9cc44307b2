"""Host tools through the whole daemon: a question and its answer, MCP from inside the sandbox, a daemon killed."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.system.conftest import Home, call, until

# A client as an agent would write one: it asks again as long as nobody answers.
CLIENT = """
import json, os, sys, time, urllib.request
def call(id, name, **arguments):
    body = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    headers = {"Authorization": "Bearer " + os.environ["CLAWD_TOKEN"], "Accept": "application/json, text/event-stream"}
    for _ in range(600):
        try:
            request = urllib.request.Request("http://127.0.0.1:8080/mcp", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)["result"]["content"][0]["text"]
        except OSError:
            time.sleep(0.05)
for text in sys.argv[1:]:
    print(call(1, "send_message", text=text))
"""


def client(home: Home, *texts: str) -> dict[str, Any]:
    """A step that sends these texts over MCP from a process of the sandbox."""
    (home.layout.group("main").work / "client.py").write_text(CLIENT)
    return call("bash", command=f"python3 client.py {' '.join(texts)}")


def question(**arguments: Any) -> tuple[dict[str, Any], ...]:
    """The steps of a turn that asks, and says nothing else."""
    return {**call("ask", **arguments), "text": ""}, {"text": ""}


def test_a_question_is_asked_answered_and_ended(home: Home) -> None:
    colours = {"question": "Which colour?", "choices": ["red", "light blue"], "note": "the door"}
    home.script(
        *question(**colours),
        {"text": "re {message}"},
        {"text": "re {message}"},
        *question(**colours),
    )
    home.start()

    def chat(text: str, *words: str) -> str:
        done = home.cli("chat", "-m", text, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    put = "The agent asks: Which colour?\n\n1. red\n2. light blue\n\nAnswer with a number or the words."
    assert chat("paint") == put
    assert chat("neither") == "re neither"
    assert chat("2") == "re 2"
    reminder = (
        'You asked: "Which colour?". The choices were "red", "light blue". Your note: "the door".'
        ' The answer is choice 2, "light blue".'
    )
    assert home.said()[-3:-1] == [("user", reminder), ("user", "2")]  # each voice by itself
    assert chat("again") == put
    assert "open question is withdrawn" in chat("/new")
    home.script({"text": "re {message}"}, *question(question="Still there?", expires_hours=0.0001), {"text": "gone on"})
    assert chat("1") == "re 1"  # a new conversation, and no answer
    segment = "terminal:main.2"
    assert chat("wait").startswith("The agent asks: Still there?")
    until(lambda: ("assistant", "gone on") in home.said(session=segment))
    assert "Nobody answered it in time." in home.said(session=segment)[-2][1]


def test_calls_over_mcp_are_counted_by_what_was_answered(home: Home) -> None:
    home.script({"text": "ready"})
    home.start()
    assert home.cli("chat", "-m", "hi").returncode == 0
    home.script(client(home, "twice", "twice", "once"), {"text": "done"})
    done = home.cli("chat", "-m", "go")
    assert (done.returncode, done.stdout) == (0, "twice\ntwice\nonce\ndone\n"), done.stderr


@pytest.mark.parametrize("backend", [pytest.param("docker", marks=pytest.mark.engine)], indirect=True)
def test_a_daemon_killed_between_effect_and_answer_does_it_once(home: Home) -> None:
    """The sandbox outlives it, and so does the client in it, which asks the next one."""
    home.script({"text": "ready"})
    home.start("kill@effect")
    assert home.cli("chat", "-m", "hi").returncode == 0
    home.script(client(home, "one", "two"), {"text": "done"})
    waiting = home.chat("-m", "go")
    assert home.wait() == -signal.SIGKILL
    home.start()
    said, told = waiting.communicate(timeout=60)
    assert (waiting.returncode, said) == (0, "one\ntwo\ndone\n"), told
    assert json.dumps(home.said()).count("queued") == 2
