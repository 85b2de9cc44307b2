"""What a turn is handed, from the files as they stand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from clawd.channel import ChannelLimits
from clawd.clock import TurnedClock
from clawd.config.begin import ensure_group
from clawd.config.home import Home
from clawd.config.load import load_config, load_group, merged
from clawd.context import compose
from clawd.context.compose import Composer
from clawd.context.memories import FORGOTTEN, Recalled, query
from clawd.context.parts import Part, declared, prompt
from clawd.context.tools import sandbox_tools
from clawd.errors import ConfigError, StorageError
from clawd.host.tools import declarations
from clawd.ledger import groups, inbound, turns
from clawd.ledger.db import Ledger, Transaction
from clawd.ledger.turns import Claim
from clawd.model import Block, Incoming, Offer
from clawd.model import Part as Said
from clawd.sessions.file import SessionFile
from clawd.trust import Role, origin_of
from tests.context.test_memories import hit

pytestmark = pytest.mark.anyio

NOW = datetime(2026, 12, 1, 8, tzinfo=UTC)
AT = "2026-12-01T08:00:00.000+00:00"
MODEL = '[model]\nengine = "messages"\nmodel = "m"\nfallbacks = ["ollama/o"]\n[limits]\nsteps = 7\nwall_minutes = 0.5\n'
GROUP = 'grants = ["anthropic", "openai"]\ntimezone = "Europe/Berlin"\n'


class Ground:
    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.home.create()
        ensure_group(self.home, "main")
        self.group = self.home.group("main")
        self.ledger = Ledger.open(self.home.ledger_file)
        self.ledger.tx(lambda tx: groups.add(tx, "main", AT))
        self.settle()
        self.composer = Composer(
            self.home,
            TurnedClock(NOW),
            lambda group: merged(self.config(), load_group(self.home, group)),
            config=self.config,
            host_tools=lambda channel: declarations(ChannelLimits()),
        )

    def config(self) -> Any:
        return load_config(self.home, {})

    def settle(self, model: str = MODEL, group: str = GROUP) -> None:
        self.home.config_file.write_text(f"schema = 1\n{model}")
        self.group.config_file.write_text(group)

    def say(self, text: str = "hi", role: Role = Role.OWNER, **choice: str) -> Claim:
        sender = "owner" if role is Role.OWNER else f"{role}:bob"

        def work(tx: Transaction) -> Claim:
            groups.open_session(tx, "terminal:main", "main", AT)
            incoming = Incoming("terminal", "main", text, sender, (text,), NOW, choice=choice, direct=True)
            parts = [Said("typed", origin_of(role), text)]
            said = inbound.accept(tx, incoming, group="main", session="terminal:main", role=role, parts=parts, now=AT)
            assert said.turn is not None
            row = turns.get(tx, said.turn)
            stem, others = turns.known(tx, "main", "terminal:main")
            return Claim(row, 0, role, 1.0, turns.wakes(tx, said.turn), [], stem=stem, others=others)

        return self.ledger.tx(work)

    async def offer(self, claim: Claim | None = None) -> tuple[Offer, list[str]]:
        return await self.composer.offer(claim or self.say())

    async def system(self) -> dict[str, str]:
        offer, _ = await self.offer(self.say(str(id(object()))))
        return {part["name"]: part["text"] for part in offer.context["system"]}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path)
    yield ground
    ground.ledger.close()


async def test_everything_that_a_model_needs(ground: Ground) -> None:
    block = Block("user", "before", NOW)
    SessionFile(ground.group.sessions / "terminal_main.md", "terminal:main").append([block], 99)
    offer, told = await ground.offer(ground.say("hello"))
    context, [wake] = offer.context, offer.wakes
    assert told == ["The fallback ollama/o is not used: the service ollama is not granted to group main: add "
                    '"ollama" in grants at the top of groups/main/group.toml']  # fmt: skip
    assert (await ground.offer(ground.say("again")))[1] == []  # once
    assert offer.limits == {
        "steps": 7,
        "wall_s": 30.0,
        "tool_s": 120,
        "output_bytes": 30_000,
        "final_bytes": 262_144,
        "retries": 5,
    }
    assert context["models"][0]["path"] == "/svc/anthropic/v1/messages" and len(context["models"]) == 1
    assert [part["name"] for part in context["system"]] == ["identity", "CLAUDE.md", "user_profile.md"]
    assert {tool["where"] for tool in context["tools"]} == {"sandbox", "host"}
    assert (context["exec"], context["job"], wake["joined"]) == (None, None, 0)
    assert wake["text"].startswith(f"<{context['fence']}>\n") and wake["text"].endswith(f"\n</{context['fence']}>")
    assert '"from":"owner","at":"2026-12-01T09:00:00+01:00","text":"hello"' in wake["text"]
    assert '"text":"before"' in context["history"][0]["content"]
    assert json.dumps(context)


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf# Me\r\n\r\n  kind \t\r", b"x" * (1 << 20), "é\u2028日本".encode()])
async def test_claude_md_goes_as_it_is(ground: Ground, data: bytes) -> None:
    ground.group.claude_md.write_bytes(data)
    assert (await ground.system())["CLAUDE.md"].encode() == data


async def test_files_are_read_fresh_and_what_is_wrong_is_told_once(ground: Ground) -> None:
    ground.settle('[model]\nengine = "messages"\nmodel = "m"\n')
    ground.group.claude_md.write_bytes(b"caf\xe9 @notes.md @work/evil.md")
    (ground.group.root / "notes.md").write_text("first")
    ground.group.work.joinpath("evil.md").write_text("obey")
    ground.group.user_profile.chmod(0o666)
    offer, told = await ground.offer(ground.say("1"))
    system = {part["name"]: part["text"] for part in offer.context["system"]}
    assert system["import notes.md"] == "notes.md, imported:\n\nfirst"
    assert "others can write" in system["user_profile.md"] and "work/evil.md" in system["imports"]
    assert len(told) == 2 and "byte 3 is not UTF-8" in told[0] and "@work/evil.md in CLAUDE.md" in told[1]
    assert (await ground.offer(ground.say("2")))[1] == []
    ground.group.claude_md.write_text("")
    (ground.group.root / "notes.md").write_text("second")
    ground.group.user_profile.unlink()
    offer, told = await ground.offer(ground.say("3"))
    assert [part["name"] for part in offer.context["system"]] == ["identity"] and told == []
    ground.group.claude_md.write_text("@notes.md @work/evil.md")
    offer, told = await ground.offer(ground.say("4"))
    assert offer.context["system"][2]["text"].endswith("second") and len(told) == 1  # it was mended meanwhile


async def test_the_profile_is_the_owner_s_alone_once_others_are_there(ground: Ground) -> None:
    ground.group.user_profile.write_text("secret @about.md")
    (ground.group.root / "about.md").write_text("about me")
    assert {"user_profile.md", "import about.md"} <= set(await ground.system())
    ground.say("hello", Role.MEMBER)
    ground.ledger.tx(lambda tx: tx.execute("DELETE FROM turn_wake"))
    ground.ledger.tx(lambda tx: tx.execute("DELETE FROM wake"))
    ground.ledger.tx(lambda tx: tx.execute("DELETE FROM inbound"))  # forgotten: they may read along all the same
    assert not {"user_profile.md", "import about.md"} & set(await ground.system())
    ground.group.claude_md.write_text("@user_profile.md")
    assert "secret" not in json.dumps(await ground.system())
    ground.settle(group='grants = ["anthropic"]\nshare_profile = true\n')
    assert {"user_profile.md", "import about.md"} <= set(await ground.system())


async def test_foreign_engines_have_what_they_do_not_read_themselves(ground: Ground) -> None:
    ground.group.claude_md.write_text("be kind @notes.md")
    (ground.group.root / "notes.md").write_text("notes")
    ground.settle('[model]\nengine = "claude-code"\n')
    offer, _ = await ground.offer(ground.say("1"))
    assert [part["name"] for part in offer.context["system"]] == ["identity", "user_profile.md", "import notes.md"]
    assert {tool["where"] for tool in offer.context["tools"]} == {"host"}
    assert offer.context["exec"]["command"] == ["claude"]
    ground.settle('[model]\nengine = "exec"\nagent = "codex"\nmodel = "m"\n')
    offer, _ = await ground.offer(ground.say("2"))
    assert (offer.context["exec"]["name"], offer.context["models"][0]["service"]) == ("codex", "openai")
    assert "CLAUDE.md" in [part["name"] for part in offer.context["system"]]


async def test_a_turn_has_its_own_choice(ground: Ground) -> None:
    claim = ground.say("hi", model="openai/gpt", effort="low")
    offer, _ = await ground.offer(claim)
    first = offer.context["models"][0]
    assert (first["service"], first["model"], first["effort"], first["dialect"]) == ("openai", "gpt", "low", "chat")
    assert (await ground.offer(ground.say("no", Role.ADMIN, engine="chat")))[0].context["engine"] == "messages"
    with pytest.raises(ConfigError, match="needs a model"):
        await ground.offer(ground.say("ho", engine="chat"))


async def test_a_job_is_told_nothing_but_its_task(ground: Ground) -> None:
    from dataclasses import replace

    job = {"prompt": "count", "schema": {"type": "integer"}}
    offer, _ = await ground.offer(replace(ground.say(), job=job))
    context = offer.context
    assert (context["tools"], context["history"], context["job"]) == ([], [], {"schema": {"type": "integer"}})
    assert [part["name"] for part in context["system"]] == ["job"]
    assert [wake["text"] for wake in offer.wakes] == ["count"]


async def test_a_turn_that_is_tried_again_is_not_told_twice(ground: Ground) -> None:
    claim = ground.say("hi")
    id = claim.turn["id"]
    SessionFile(ground.group.sessions / "terminal_main.md", "terminal:main").append([Block("user", "hi", NOW)], id)
    again = ground.say("ho")
    ground.ledger.tx(lambda tx: tx.execute("UPDATE turn SET retry_of = ? WHERE id = ?", id, again.turn["id"]))
    row = ground.ledger.tx(lambda tx: turns.get(tx, again.turn["id"]))
    offer, _ = await ground.offer(replace(again, turn=row))
    assert offer.context["history"] == []


async def test_what_an_engine_lacks_is_said(ground: Ground) -> None:
    for model, says in (
        ('[model]\nengine = "messages"\n', "needs a model"),
        ('[model]\nengine = "exec"\n', "needs agent"),
        ('[model]\nengine = "scripted"\n', "needs \\[model\\] script"),
        ('[model]\nengine = "chat"\nmodel = "m"\nservice = "zz"\n', "no service 'zz'"),
    ):
        ground.settle(model)
        with pytest.raises(ConfigError, match=says):
            await ground.offer(ground.say(model))


@pytest.mark.parametrize("dialect", ["messages", "chat"])
def test_the_fixed_part_is_small(dialect: str) -> None:
    tools = [*sandbox_tools(), *declarations(ChannelLimits(reactions=True))]
    assert Part("identity", prompt("identity")).bytes + Part("tools", declared(tools, dialect)).bytes <= 6100


class Memory:
    """What a turn is given of memory, and which of it is noted."""

    def __init__(self, ground: Ground) -> None:
        self.found: Recalled | Exception | None = None
        self.noted: list[tuple[int, list[str]]] = []
        self.asked: list[str] = []
        ground.composer = Composer(
            ground.home,
            TurnedClock(NOW),
            lambda group: merged(ground.config(), load_group(ground.home, group)),
            config=ground.config,
            recall=self.recall,
            given=self.given,
        )

    async def recall(self, claim: Claim) -> Recalled:
        self.asked.append(query(claim.wakes))
        if self.found is None:
            await anyio.sleep_forever()
        if isinstance(self.found, Exception):
            raise self.found
        assert isinstance(self.found, Recalled)
        return self.found

    async def given(self, turn: int, memories: Sequence[str]) -> None:
        self.noted.append((turn, list(memories)))


async def test_what_memory_gives_is_before_the_first_wake_alone(ground: Ground) -> None:
    memory = Memory(ground)
    memory.found = Recalled()
    claim = ground.say("what tea?")
    bare, _ = await ground.offer(claim)
    memory.found = Recalled([hit("The owner likes tea."), hit("x" * 9000, id="ep_2"), hit("no", id="ep_3")], 2)
    offer, told = await ground.offer(claim)
    assert offer.context["system"] == bare.context["system"] and told == []  # what a provider keeps stays of use
    assert offer.wakes[0]["text"] == f"{offer.context['memories']}\n\n{bare.wakes[0]['text']}"
    assert (bare.context["memories"], memory.asked) == ("", ["what tea?", "what tea?"])
    assert memory.noted[-1] == (claim.turn["id"], ["ep_1", "ep_2", "ep_3"])
    assert (await ground.offer(claim))[0].wakes == offer.wakes  # the same turn has the same bytes
    shown = await ground.composer.told(claim, ground.composer.chosen("main", None))
    assert [part.name for part in shown.parts("messages")][-2:] == ["memories", "wake"]
    assert "likes tea" not in str(ground.composer.shown(claim.turn, claim.wakes))  # of what joins a live turn

    two = ground.say("again")
    offer, _ = await ground.offer(replace(claim, wakes=[*claim.wakes, *two.wakes]))
    assert [wake["text"].count("<memory-") for wake in offer.wakes] == [1, 0]


async def test_memory_fails_no_turn(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory(ground)
    monkeypatch.setattr(compose, "RECALL_S", 0.05)
    ground.settle('[model]\nengine = "messages"\nmodel = "m"\n')
    for wrong, why in ((None, "within 0.05 s"), (StorageError("the disk is full"), "disk is full"),
                       (ValueError("a secret"), "ValueError")):  # fmt: skip
        memory.found = wrong
        offer, told = await ground.offer(ground.say(f"1 {why}"))
        assert len(told) == 1 and why in told[0] and "secret" not in told[0]
        assert "memory-" not in offer.wakes[0]["text"]
        assert (await ground.offer(ground.say(f"2 {why}")))[1] == []  # told once


async def test_a_job_and_an_engine_without_a_model_are_given_nothing(ground: Ground) -> None:
    memory = Memory(ground)
    memory.found = Recalled([hit("The owner likes tea.")])
    claim = ground.say()
    offer, _ = await ground.offer(replace(claim, job={"prompt": "Sum up.", "schema": {}}))
    assert offer.wakes[0]["text"] == "Sum up." and memory.asked == []
    ground.settle('[model]\nengine = "offline"\n')
    await ground.offer(claim)
    assert memory.asked == [] and memory.noted == []


async def test_steps_of_an_earlier_attempt_lack_what_was_forgotten_since(ground: Ground) -> None:
    steps = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": {"name": "memory_read"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "the secret", "at": AT},
    ]
    claim = replace(ground.say(), steps=steps)
    assert (await ground.offer(claim))[0].steps == steps
    offer, _ = await ground.offer(replace(claim, forgot=AT))
    assert [step["content"] for step in offer.steps] == ["", FORGOTTEN] and offer.context["forgot"] == AT
