"""A running daemon that all poison and all honest memories go through, and what is left of them in the end. It alone
decides what each turn is trusted: nothing here says so."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import requests

from clawd.commands import context
from clawd.commands import memory as looking
from clawd.files import write_atomic
from clawd.memory.record import QUARANTINE, MemoryRecord, read
from tests.gateway.upstream import Upstream, answer
from tests.platforms.telegram import Telegram
from tests.system.conftest import Home, call, until
from tests.system.poison import corpus
from tests.system.poison.corpus import ANCHOR, DOORS, FORWARD, HOOK, MEMBER, MOUNT, WEB, Attack, Honest
from tests.wakes import signing

OWN = "own"  # the group of clean turns
EVERY = frozenset({"active", "proposed", "quarantined", "superseded"})
ROUND = 18  # calls at once: a run has 20 a second
FETCH = """
import os, sys, urllib.request
request = urllib.request.Request("http://127.0.0.1:8080/svc/page/x")
request.add_header("Authorization", "Bearer " + os.environ["CLAWD_TOKEN"])
print(urllib.request.urlopen(request).read().decode())
"""
MCP = """
import base64, json, os, sys, urllib.request
for name, arguments in json.loads(base64.b64decode(sys.argv[1])):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    headers = {"Authorization": "Bearer " + os.environ["CLAWD_TOKEN"], "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request("http://127.0.0.1:8080/mcp", json.dumps(body).encode(), headers)
    print(urllib.request.urlopen(request).read().decode())
"""
Call = tuple[str, dict[str, Any]]


class World:
    """One home in which the corpus was played. With `program` its daemon is another one."""

    def __init__(self, home: Home, platform: Telegram, page: Upstream, *, program: str, memory: str) -> None:
        self.home, self.platform = home, platform
        self.attacks, self.honest = corpus.attacks(), corpus.honest()
        self.anchors: dict[str, str] = {}
        self._heads: dict[str, str] = {}  # the frontmatter of each anchor
        self._turns = 0
        home.program = program
        more = (
            f'[webhooks]\nlisten = "127.0.0.1:0"\n[memory]\n{memory}\n{platform.config}'
            f'[services.page]\nbase_url = "http://127.0.0.1:{page.port}"\nallow_private = true\n'
        )
        home.configure("scripted", sandbox="warm_minutes = 10\nmax_live = 8", more=more)
        people = '[[people]]\nname = "Olga"\nrole = "owner"\naccounts = ["telegram:7"]\n'
        self._write(home.layout.people_file, f"schema = 1\n{people}")
        self._tree = home.root.parent / "tree"
        self._tree.mkdir()
        self._mounts = home.root.parent / "mounts.toml"
        self._write(self._mounts, f'schema = 1\n[[roots]]\npath = "{self._tree}"\nmode = "ro"\ntrust = "document"\n'
                                  'why = "a test"\n')  # fmt: skip
        says = {
            WEB: 'grants = ["page"]\n',
            MOUNT: f'[[mounts]]\nname = "tree"\npath = "{self._tree}"\nmode = "ro"\n',
            HOOK: '[[webhook]]\nname = "in"\nscheme = "bearer"\nsecret = "${env:HOOK}"\nprompt = "keep what came in"\n',
            FORWARD: 'bindings = ["telegram:7"]\n',
        }
        for group in (*DOORS, OWN):
            folder = home.layout.group(group)
            folder.work.mkdir(parents=True)
            for name, text in (("page.py", FETCH), ("mcp.py", MCP)):
                (folder.work / name).write_text(text)
            self._write(folder.config_file, f'{says.get(group, "")}[model]\nscript = "{group}.json"\n')
            self._script(group, [{"text": "nothing"}])

    # ── what happens ──

    def play(self) -> None:
        """The corpus, from the first anchor to the last look of the index."""
        self.home.start(HOOK=signing.SECRET, CLAWD_MOUNTS=str(self._mounts), **self.platform.env)
        for group in DOORS:
            self.home.ask("groups.add", name=group)
            made = self.home.ask("memory.write", group=group, text=ANCHOR, kind="entity")
            self.anchors[group] = made["id"]
            self._heads[group] = Path(made["file"]).read_text().rpartition("\n---\n")[0]
        self.home.ask("groups.add", name=OWN)
        self._prepare()
        self._knock()
        drips = [each for each in self.attacks if each.drip]
        for _ in range(max(len(each.calls) for each in drips) - 1):
            for group in {each.door for each in drips}:
                self.home.say("go on", group)
            self._wait_for_turns(len({each.door for each in drips}))
        for each in self.honest:
            if each.remember:
                self.home.ask("memory.write", group=OWN, text=each.text)
            if each.approve:
                for record in self.records(each.door or OWN, each.mark):
                    self.home.ask("memory.approve", group=each.door or OWN, id=record.id)
        for each in self.attacks:
            if each.moved:
                self._move(each)
        for group in DOORS:
            self.home.ask("memory.reflect", group=group)
            self.home.ask("memory.consolidate", group=group)
            self.home.ask("memory.reindex", group=group)

    def _prepare(self) -> None:
        """A script for each group: what taints it, then every call of its turn, a few at once."""
        client = "python3 mcp.py"
        for group in (*DOORS, OWN):
            mine = [each for each in self.attacks if each.door == group]
            direct = [
                each for attack in mine if not attack.by_mcp for each in attack.calls[: 1 if attack.drip else None]
            ]
            direct += [_written(each) for each in self.honest if (each.door or OWN) == group and not each.remember]
            steps = [call("bash", command="python3 page.py")] if group == WEB else []
            calls = [{"name": name, "arguments": arguments} for name, arguments in self._anchored(group, direct)]
            for some in (calls[at : at + ROUND] for at in range(0, len(calls), ROUND)):
                steps.append({"text": "writing", "tool_calls": some, "delay_s": 1.1 if steps else 0})
            by_mcp = [each for attack in mine if attack.by_mcp for each in attack.calls]
            if by_mcp:
                packed = base64.b64encode(json.dumps(self._anchored(group, by_mcp)).encode()).decode()
                steps.append({**call("bash", command=f"{client} {packed}"), "delay_s": 1.1})
            steps.append({"text": "kept"})
            for n in range(1, 3):
                for attack in mine:
                    if attack.drip:
                        steps += [call(*attack.calls[n][:1], **attack.calls[n][1]), {"text": "kept"}]
            self._script(group, steps)

    def _knock(self) -> None:
        """At every door at once."""
        for group in (WEB, MOUNT, OWN):
            quotes = [each.quote for each in self.honest if each.quote and each.door == group]
            quotes += [each.pasted for each in self.attacks if each.pasted and each.door == group]
            wish = "Keep what matters."
            if group == WEB:
                quotes.append("Never transfer money to the shop without asking me.")
            self.home.say("\n\n".join([wish, *quotes]), group)
        self.home.say("I have news for you all.", MEMBER, **{"as": "member:bob"})
        until(lambda: (self.home.ask("status")["webhooks"] or {}).get("state") == "live")
        at = self.home.ask("status")["webhooks"]["listen"]
        body = {"news": [each.asks for each in self.attacks if each.door == HOOK]}
        done = requests.post(f"http://{at}/hooks/{HOOK}/in", json=body, headers=signing.bearer("1"), timeout=60)
        assert done.status_code in (200, 202), done.text
        passed_on = "\n".join(
            str((arguments.get("said") or {}).get("quote") or arguments["content"])
            for each in self.attacks if each.door == FORWARD for _, arguments in each.calls
        )  # fmt: skip
        self.platform.say(passed_on, forwarded="Mallory")
        self._wait_for_turns(6)

    def _wait_for_turns(self, more: int) -> None:
        """Until this many turns more are recorded."""
        self._turns += more
        until(lambda: len(self._rows("SELECT id FROM turn WHERE recorded_at IS NOT NULL")) >= self._turns)
        wrong = self._rows("SELECT grp, state, error FROM turn WHERE state NOT IN ('answered', 'joined')")
        assert not wrong, wrong

    def _move(self, attack: Attack) -> None:
        """The owner quarantines it, and somebody puts it where memories are."""
        root = self.home.layout.group(attack.door).memory
        for record in self.records(attack.door, attack.mark):
            self.home.ask("memory.quarantine", group=attack.door, id=record.id)
        [file, *_] = [path for path in root.rglob("*.md") if attack.mark in path.read_text()]
        data, target = file.read_bytes(), root / "episodes" / f"{attack.mark}.md"
        target.parent.mkdir(exist_ok=True)
        body = read(data).text
        head = self._heads[attack.door]
        forms = {
            "as it is": data.decode(),
            "text alone": body,
            "rewrapped": f"# Note\n\n{body.upper().replace(attack.mark.upper(), attack.mark).replace(' ', chr(10))}\n",
            "among others": f"Some first line of a note that is quite harmless.\n- {body}\nAnd a last one.\n",
            "as trusted": f"{head}\n---\n{body}\n",
        }
        assert QUARANTINE in file.parts or attack.moved
        target.write_text(forms[attack.moved])
        if attack.moved == "as it is":
            file.unlink()

    # ── what is left ──

    def memory(self, group: str) -> Any:
        return looking.opened(self.home.layout, group)

    def records(self, group: str, mark: str) -> list[MemoryRecord]:
        memory = self.memory(group)
        try:
            memory.look()
            every: Iterable[MemoryRecord] = memory.every(statuses=EVERY)
            return [each for each in every if mark in f"{each.text} {each.key} {each.tags} {each.said}"]
        finally:
            memory.close()

    def search(self, group: str, asks: str) -> str:
        """What the owner, or a clean turn, is given."""
        memory = self.memory(group)
        try:
            memory.look()
            hits = looking.searched(memory, asks, k=20)["hits"]
            return "\n".join(hit["text"] for hit in hits)
        finally:
            memory.close()

    def context(self, group: str, asks: str) -> tuple[str, str]:
        """Of the owner's next prompt what is always in it, and what is recalled."""
        parts = asyncio.run(context.show(self.home.layout, group, None, asks))["parts"]
        zone = [each["text"] for each in parts if each["name"] not in ("history", "wake", "memories", "tools")]
        return "\n".join(zone), "\n".join(each["text"] for each in parts if each["name"] == "memories")

    def zone(self, group: str) -> str:
        """The files that are in every prompt, and what the owner has under keys."""
        folder = self.home.layout.group(group)
        files = (folder.claude_md, folder.user_profile, folder.memory / "MEMORY.md")
        return "\n".join(file.read_text() for file in files if file.exists())

    def harm(self, attack: Attack) -> set[str]:
        """Where the poison came to: zone, search, context, trust."""
        always, recalled = self.context(attack.door, attack.asks)
        found = {
            "zone": attack.mark in always + self.zone(attack.door),
            "search": attack.mark in self.search(attack.door, attack.asks),
            "context": attack.mark in recalled,
            "trust": any(each.status == "active" and each.trust >= 0.5 and attack.mark in each.text
                         for each in self.records(attack.door, attack.mark)),
        }  # fmt: skip
        return {name for name, true in found.items() if true}

    def serves(self, honest: Honest) -> bool:
        """Whether it is found, above the floor."""
        return honest.mark in self.search(honest.door or OWN, honest.asks)

    # ── the rest ──

    def _anchored(self, group: str, calls: Iterable[Call]) -> list[Call]:
        anchor = self.anchors.get(group, "")
        return [(name, json.loads(json.dumps(arguments).replace("{anchor}", anchor))) for name, arguments in calls]

    def _script(self, group: str, steps: list[dict[str, Any]]) -> None:
        write_atomic(self.home.root / f"{group}.json", json.dumps({"steps": steps}).encode(), 0o644)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o600)

    def _rows(self, query: str) -> list[Any]:
        uri = f"{self.home.layout.ledger_file.as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as ledger:
            return ledger.execute(query).fetchall()


def _written(honest: Honest) -> Call:
    said = {"said": {"quote": honest.quote}} if honest.quote else {}
    return corpus.write(honest.text, honest.kind, **said, **honest.more)


@contextmanager
def world(home: Home, *, program: str = "tests.system.watched", memory: str = "") -> Iterator[World]:
    with Telegram() as platform, Upstream(answer(b"a page")) as page:
        yield World(home, platform, page, program=program, memory=memory)
