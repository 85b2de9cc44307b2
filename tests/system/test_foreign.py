"""Engines of other vendors, for real: Claude Code and codex, unmodified, in sandboxes of both kinds, against a model
server that has the real key. It sees the key; no sandbox does."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawd.commands import looking
from tests import agents
from tests.canary import CANARY, Hunt
from tests.engine import Engine
from tests.standin import Recorded, Reply, Standin
from tests.system.conftest import until
from tests.system.ground import Ground, ground


class Foreign:
    """A daemon whose groups work with foreign engines against `model`."""

    def __init__(self, made: Ground, model: Standin) -> None:
        self.home, self.model = made, model
        self.responses: list[dict[str, Any]] = []
        model.others["/v1/responses"] = self.respond
        self.key = made.root.parent / "key"
        self.key.write_text(CANARY)
        self.key.chmod(0o600)
        claude, codex = (shown(program, made.root.parent) for program in (agents.claude(), agents.codex()))
        allowed = made.root.parent / "mounts.toml"
        roots = "".join(
            f'[[roots]]\npath = "{path.parent}"\nmode = "ro"\nwhy = "the tests"\ntrust = "owner"\n'
            for path in (claude, codex)
        )
        allowed.write_text(f"schema = 1\n{roots}")
        allowed.chmod(0o600)
        made.more = {"CLAWD_MOUNTS": str(allowed)}
        service = f'base_url = "{model.url}"\nallow_private = true\ncredential = "${{file:{self.key}}}"'
        made.configure(
            more=f"[services.anthropic]\n{service}\n[services.openai]\n{service}\n"
            '[engines.claude-code]\ncommand = ["/mnt/claude/claude"]\n'
            '[engines.codex]\ncommand = ["/mnt/codex/codex"]\n',
            sandbox="warm_minutes = 60",
        )
        made.start()
        for group, engine, path in (
            ("main", '"claude-code"\nmodel = "standin-1"', claude),
            ("other", '"exec"\nagent = "codex"\nmodel = "standin-1"', codex),
        ):
            made.json("groups", "add", group)
            name = path.name
            made.write(
                f"groups/{group}/group.toml",
                f'schema = 1\ngrants = ["anthropic", "openai"]\n[[mounts]]\nname = "{name}"\npath = "{path.parent}"\n'
                f"[model]\nengine = {engine}\n",
            )

    def claude(self) -> list[int]:
        """The pids of the CLI's processes."""
        found = []
        for pid in self.home.sandboxed():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                found += [pid] if words[0].endswith(b"/claude") and b"--mcp-config" in words else []
        return found

    def hunt(self) -> Hunt:
        """Look for the key where sandboxes could have left or seen it."""
        hunt = Hunt([self.key])
        hunt.tree(self.home.root)
        hunt.processes(self.home.sandboxed())
        return hunt

    def respond(self, request: Recorded) -> Reply:
        """As much of the Responses API as codex needs: a command and a tool of ours, then words."""
        body = json.loads(request.raw)
        self.responses.append(body)
        count = len(self.responses)
        said = [{"type": "output_text", "text": f"codex says {count}"}]
        items: list[dict[str, Any]] = [{"type": "message", "id": f"m{count}", "role": "assistant", "content": said}]
        if count == 1:
            items = [
                {"type": "function_call", "id": f"f{name}", "call_id": f"c{name}", "arguments": json.dumps(arguments)}
                | {"name": name, **more}
                for name, arguments, more in (
                    ("exec_command", {"cmd": "echo from codex"}, {}),
                    ("send_message", {"text": "on the way"}, {"namespace": "mcp__clawd"}),
                )
            ]
        usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
        events = [
            {"type": "response.created", "response": {"id": f"r{count}"}},
            *({"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)),
            {"type": "response.completed", "response": {"id": f"r{count}", "usage": usage}},
        ]
        raw = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        return Reply(raw=raw.encode(), headers={"content-type": "text/event-stream"})


def shown(program: Path, beside: Path) -> Path:
    """The same program where it can be mounted from: nothing of the repository can."""
    to = beside / "programs" / program.name / program.name
    to.parent.mkdir(parents=True)
    try:
        to.hardlink_to(program)
    except OSError:  # another file system
        shutil.copy2(program, to)
    return to


@contextlib.contextmanager
def begun(engine: Engine | None) -> Iterator[Foreign]:
    with Standin(key=CANARY, alternate=False) as model, ground(engine=engine) as made:
        yield Foreign(made, model)


@pytest.fixture(scope="module")
def own() -> Iterator[Foreign]:
    with begun(None) as made:
        yield made


@pytest.fixture(scope="module")
def docker(engine: Engine) -> Iterator[Foreign]:
    with begun(engine) as made:
        yield made


@pytest.fixture(params=("own", pytest.param("docker", marks=pytest.mark.engine)))
def foreign(request: pytest.FixtureRequest) -> Foreign:
    made = request.getfixturevalue(request.param)
    assert isinstance(made, Foreign)
    return made


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "Bash", {"command": command}


def talk(request: Recorded) -> str:
    """All that a request tells of the conversation."""
    return json.dumps(request.body["messages"], ensure_ascii=False)


def test_claude_code_works_in_a_sandbox(foreign: Foreign) -> None:
    """A turn with tools, and a second one in the same process; nothing that it started is left, and no key was seen."""
    home, model = foreign.home, foreign.model
    home.write("groups/main/CLAUDE.md", "Speak like MARK-ONE.\n", 0o644)
    home.write("groups/main/user_profile.md", "PROFILE-MARK\n", 0o644)
    asked = len(model.requests)
    model.say("looking", calls=[bash("setsid sleep 611 & env > /tmp/env; pwd; echo written > /group/work/seen")])
    model.say("and more", calls=[("mcp__clawd__send_message", {"text": "on the way"}), ("Read", {"file_path": "seen"})])
    model.say("Done.", usage={"cache_read_input_tokens": 5})
    said = home.answer("please look", "--group", "main")
    assert (said["reply"], said["error"], said["model"]) == ("on the way\n\nDone.", None, "standin-1"), said
    assert said["usage"]["output"] > 0
    process = foreign.claude()
    assert len(process) == 1 and home.named("sleep 611") == []

    first, *_, last = model.requests[asked:]
    assert "Speak like MARK-ONE." in talk(first) and "please look" in talk(first)
    assert "PROFILE-MARK" in json.dumps(first.body["system"]) and "MARK-ONE" not in json.dumps(first.body["system"])
    assert {"Bash", "mcp__clawd__send_message"} <= {tool["name"] for tool in first.body["tools"]}
    assert first.body["max_tokens"] == 8192 and "x-clawd-session" not in first.headers
    assert "/group" in talk(last)
    roles = [(role, text) for role, text in home.said("main") if role != "system"]
    assert [role for role, _ in roles] == ["user", "assistant", "tool", "assistant", "tool", "tool", "assistant"]
    assert any("on the way" in row["text"] for row in home.rows("SELECT text FROM delivery"))

    model.say("Second.")
    assert home.reply("again", "--group", "main") == "Second."
    assert foreign.claude() == process
    assert talk(model.requests[-1]).count("please look") == 1
    assert model.problems == []
    assert all(request.headers["x-api-key"] == CANARY for request in model.requests)
    assert not foreign.hunt().found


def test_codex_works_through_exec(foreign: Foreign) -> None:
    home = foreign.home
    said = home.answer("please look", "--group", "other")
    assert (said["reply"], said["error"], said["engine"]) == ("on the way\n\ncodex says 2", None, "exec"), said
    roles = [role for role, _ in home.said("other") if role != "system"]
    assert sorted(roles[1:-1]) == ["assistant"] * 2 + ["tool"] * 2 and (roles[0], roles[-1]) == ("user", "assistant")
    results = {text for role, text in home.said("other") if role == "tool"}
    assert results == {"from codex\n", '{"queued":"message"}'}
    assert home.reply("again", "--group", "other") == "codex says 3"
    inputs = json.dumps(foreign.responses[-1]["input"])
    asked = home.json("gateway", "audit", "--group", "other")
    assert {row["verdict"] for row in asked} == {"allow"}, "it asks for nothing that its person would hear of"
    assert inputs.count("please look") == 1 and "codex says 2" in inputs  # its own session, resumed


class TestUnderBubblewrap:
    """What does not depend on what makes the sandbox."""

    def test_the_persons_edits_win(self, own: Foreign) -> None:
        home, model = own.home, own.model
        model.say("It is blue.")
        home.reply("what colour?", "--group", "main")
        process = own.claude()
        home.write("groups/main/CLAUDE.md", "Speak like MARK-TWO.\n", 0o644)
        model.say("Yes.")
        home.reply("sure?", "--group", "main")
        assert own.claude() != process
        assert "MARK-TWO" in talk(model.requests[-1]) and "It is blue." in talk(model.requests[-1])
        session = model.requests[-1].headers["x-claude-code-session-id"]
        assert session == model.requests[-2].headers["x-claude-code-session-id"]  # resumed

        file = looking.session_file(home.layout, "terminal:main")
        file.write_text(file.read_text().replace("It is blue.", "It is green."))
        model.say("Green it is.")
        home.reply("and now?", "--group", "main")
        assert "It is green." in talk(model.requests[-1]) and "It is blue." not in talk(model.requests[-1])
        assert session != model.requests[-1].headers["x-claude-code-session-id"]
        assert model.problems == []

    def test_a_restart_resumes_its_session_and_what_an_agent_wrote_is_not_believed(self, own: Foreign) -> None:
        home, model = own.home, own.model
        model.say("Remembered.")
        home.reply("the word is KESTREL", "--group", "main")
        session = model.requests[-1].headers["x-claude-code-session-id"]
        assert home.stop() == 0
        assert own.claude() == []
        home.start()
        model.say("KESTREL.")
        home.reply("which word?", "--group", "main")
        assert session == model.requests[-1].headers["x-claude-code-session-id"]
        assert talk(model.requests[-1]).count("the word is KESTREL") == 1

        assert home.stop() == 0
        state = home.layout.group("main").work / ".claude-state"
        (state / "projects" / "-group" / f"{session}.jsonl").write_text("garbage")
        for name in ("CLAUDE.md", "settings.json"):
            (state / name).write_text('{"hooks": "EVIL-MARK"}')
        (home.layout.group("main").work / "CLAUDE.md").write_text("EVIL-MARK")
        home.start("kill@effect")
        model.say("looking", calls=[("Write", {"file_path": "/group/work/a", "content": "a"})])
        model.say("Still.")
        assert home.reply("and now?", "--group", "main") == "Still."
        assert talk(model.requests[-1]).count("the word is KESTREL") == 1
        assert "EVIL-MARK" not in json.dumps(model.requests[-1].body)

        # The daemon and the sandbox end between a message that was sent and the word of it.
        model.say("telling", calls=[("mcp__clawd__send_message", {"text": "Halfway."}), bash("true")])
        home.say("keep me posted")
        assert home.wait() == -signal.SIGKILL
        until(lambda: not own.claude())
        model.say("There.", calls=[bash("echo and more")])
        model.say("Done.")
        home.start()
        until(lambda: home.said("main")[-1:] == [("assistant", "Done.")])
        told = ("tool", '{"queued": "message"}')
        assert told in home.said("main")[-7:] and json.dumps(told[1])[1:-1] in talk(model.requests[-1])
        assert [role for role, text in home.said("main")[-7:] if "Whether it was done is not known" in text] == ["tool"]
        assert "Halfway." in talk(model.requests[-1]).partition("are not to be done again")[2]
        assert model.problems == []

    def test_stop_ends_it_in_mid_tool_and_the_next_turn_goes_on(self, own: Foreign) -> None:
        home, model = own.home, own.model
        model.say("sleeping", calls=[bash("sleep 612")])
        home.say("sleep please")
        until(lambda: home.named("sleep 612"))
        began = time.monotonic()
        home.say("/stop")
        until(lambda: not home.named("sleep 612") and not own.claude(), 10)
        assert time.monotonic() - began < 10
        model.say("Here again.")
        assert home.reply("are you there?", "--group", "main") == "Here again."
        assert "sleep please" in talk(model.requests[-1])
        assert model.problems == []

    def test_what_it_may_not_do_itself(self, own: Foreign) -> None:
        home, model = own.home, own.model
        ask = {"question": "Which?", "header": "h", "multiSelect": False}
        ask["options"] = [{"label": each, "description": each} for each in "ab"]
        model.say(
            calls=[
                ("WebFetch", {"url": "http://example.org", "prompt": "x"}),
                ("AskUserQuestion", {"questions": [ask]}),
            ]
        )
        model.say("I see.")
        assert home.reply("fetch and ask", "--group", "main") == "I see."
        results = [text for role, text in home.said("main") if role == "tool"][-2:]
        assert "Use Bash with curl" in results[0] and "mcp__clawd__ask" in results[1]

    def test_a_token_that_a_tool_showed_does_not_end_the_turn(self, own: Foreign) -> None:
        home, model = own.home, own.model
        model.say(calls=[bash("env")])
        model.decide = lambda request: Reply("Seen: [token]" if "[token]" in talk(request) else "Nothing.")
        try:
            assert home.reply("show the environment", "--group", "main") == "Seen: [token]"
        finally:
            model.decide = None

    def test_the_group_folder_is_a_project_that_a_person_opens_by_hand(self, own: Foreign, tmp_path: Path) -> None:
        home, model = own.home, own.model
        home.write("groups/main/CLAUDE.md", "Speak like MARK-HAND.\n", 0o644)
        model.say("By hand.")
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ANTHROPIC_API_KEY": CANARY}
        environment |= {"ANTHROPIC_BASE_URL": model.url, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        command, folder = [str(agents.claude()), "-p", "hello"], home.layout.group("main").root
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.stdout == "By hand.\n", done
        assert "Speak like MARK-HAND." in talk(model.requests[-1])

    def test_a_refusal_is_a_sentence_soon(self, own: Foreign) -> None:
        home, model = own.home, own.model
        model.decide = lambda request: Reply("not for you", status=401, error="authentication_error")
        began = time.monotonic()
        try:
            said = home.answer("hello", "--group", "main", code=1)
        finally:
            model.decide = None
        assert "Claude Code could not answer" in said["error"] and "API Error: 401" in said["error"]
        assert "not for you" not in said["error"]  # a provider's words reach no chat
        assert time.monotonic() - began < 100
