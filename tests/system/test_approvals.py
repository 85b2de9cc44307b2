"""Approvals through the whole daemon: what the owner says yes to is done once, whoever is killed on the way."""

from __future__ import annotations

import asyncio
import json
import signal

from clawd.commands import looking
from clawd.config.load import load_group
from clawd.ledger.db import Ledger
from tests.approvals.conftest import World
from tests.system.conftest import DEADLINE, Home, call, until


def killed(home: Home, fault: str) -> None:
    """A life of the daemon that ends at a point of its start."""
    assert home.spawn("run", module=home.program, CLAWD_FAULT=f"kill@{fault}").wait(DEADLINE) == -signal.SIGKILL


def test_a_member_s_send_waits_for_the_owner_and_leaves_once(home: Home) -> None:
    folder = home.layout.group("main")
    folder.root.mkdir(parents=True)
    folder.config_file.write_text('schema = 1\nbindings = ["terminal:main", "terminal:elsewhere"]\n')
    home.script(call("send_message", text="hello", to="terminal:elsewhere"), {"text": "asked"}, {"text": "heard"})
    home.start("kill@approved")
    done = home.cli("chat", "-m", "one", "--as", "member:bob")
    assert (done.returncode, done.stdout) == (0, "asked\n"), done.stderr
    [open_] = home.json("approvals", "list")
    assert (open_["kind"], open_["state"], open_["what"]) == ("send", "open", "send this message to terminal:elsewhere")
    number = str(open_["id"])
    shown = looking.approval(home.layout, open_["id"])
    assert shown["words"].endswith("> From terminal:main:\n> hello") and shown["effect"]["text"].endswith("hello")
    assert home.cli("approvals", "approve", "1").returncode == 5
    forged = home.cli("chat", "-m", f"/approve {number}", "--as", "member:bob")
    assert "for the owner alone" in forged.stdout
    home.cli("approvals", "approve", number)  # nobody is left to answer
    assert home.wait() == -signal.SIGKILL and not home.deliveries(chat="elsewhere")
    killed(home, "executed")
    home.start()
    again = home.cli("approvals", "approve", number)
    assert again.returncode == 1 and "approved already" in again.stderr
    home.settled(2)  # the message and the forged command
    until(lambda: home.said()[-1] == ("assistant", "heard"))
    assert [row["state"] for row in home.deliveries(chat="elsewhere")] == ["sent"]
    assert "The owner was asked. Done: it is on its way to terminal:elsewhere." in json.dumps(home.said())
    assert looking.approval(home.layout, int(number))["state"] == "done"


def test_files_are_edited_once_after_any_crash_and_without_a_daemon_it_is_only_decided(home: Home) -> None:
    ledger = Ledger.open(home.layout.ledger_file)
    world = World(home.layout, ledger)
    number = str(asyncio.run(world.ask("person")))
    denied = str(asyncio.run(world.ask("group", binding="telegram:-300", group="other")))
    ledger.close()
    assert home.json("approvals", "deny", denied)["state"] == "denied"
    done = home.cli("approvals", "approve", number)
    assert done.returncode == 0 and "carried out when a daemon runs" in done.stderr
    for point in ("replacing-people.toml", "edited"):
        killed(home, point)
    home.start()
    until(lambda: looking.approval(home.layout, int(number))["state"] == "done")
    assert load_group(home.layout, "dan").bindings == ["telegram:99"]
    assert home.layout.people_file.read_text().count("telegram:99") == 1
    names = [row["group"] for row in home.json("groups", "list")]
    assert names.count("dan") == 1 and "other" not in names
