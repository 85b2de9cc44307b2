"""Money in a whole daemon: a real loop in a real sandbox, through the real gateway, with a model on loopback."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.canary import CANARY
from tests.standin import Standin
from tests.system.conftest import until
from tests.system.ground import Ground, ground

CONFIG = """schema = 1
[claw]
timezone = "Europe/Berlin"
[model]
engine = "messages"
service = "anthropic"
model = "standin-1"
max_output = 1000
[sandbox]
backend = "bubblewrap"
[services.anthropic]
base_url = "{url}"
allow_private = true
credential = "${{file:{key}}}"
[budget]
usd_per_day = 100.0
"""
PRICE = '[prices."standin-1"]\ninput = 1000.0\noutput = 5000.0\n'
USAGE = {"input_tokens": 2000, "output_tokens": 100}  # $2.50


@pytest.fixture
def model() -> Iterator[Standin]:
    with Standin(key=CANARY) as standin:
        yield standin
    assert standin.problems == []


@pytest.fixture
def home(model: Standin) -> Iterator[Ground]:
    with ground() as made:
        made.write("key", f"{CANARY}\n")
        made.write("config.toml", CONFIG.format(url=model.url, key=made.root / "key"))
        made.write("groups/main/group.toml", 'schema = 1\ngrants = ["anthropic"]\n')
        yield made


def configured(home: Ground, old: str, new: str) -> None:
    text = (home.root / "config.toml").read_text()
    assert old in text
    home.write("config.toml", text.replace(old, new))


@pytest.mark.timeout(200)
def test_a_budget_from_its_first_dollar_to_a_raise(home: Ground, model: Standin) -> None:
    # A price that nobody knows: refused, told with what to write, and not held.
    home.start("kill@reserved:3")
    said = home.answer("hello", code=1)
    assert "standin-1" in said["error"] and model.requests == [], said
    [finding] = [each for each in home.json("doctor") if each["check"] == "budgets"]
    assert finding["level"] == "warn" and '[prices."standin-1"]' in finding["command"]

    # A turn with a tool: two calls, and what they took.
    home.write("config.toml", (home.root / "config.toml").read_text() + PRICE)
    home.ask("groups.set", name="main", key="timezone", value="Europe/Berlin")
    model.say("look", calls=[("bash", {"command": "true"})], usage=USAGE)
    model.say("seen", usage=USAGE)
    said = home.answer("look around")
    assert said["reply"] == "seen" and said["usage"] == {"input": 4000, "output": 200, "cached": 0, "usd": 5.0}
    [line] = home.json("usage", "--by", "session")
    assert line == {"key": "terminal:main", "turns": 1, "usd": 5.0, "known_usd": 5.0, **_sums(4000, 200)}
    [row] = home.json("budget", "show")
    assert (row["group"], row["period"], row["unit"]) == ("main", "day", "usd")
    assert (row["limit"], row["spent"], row["reserved"], row["opens"]) == (100.0, 5.0, 0.0, None)

    # A crash between reserve and settle: what was reserved counts, and the turn goes on.
    model.say("after all", usage=USAGE)
    home.say("and now?")
    assert home.wait() == -signal.SIGKILL
    configured(home, "usd_per_day = 100.0", "usd_per_day = 1000.0")
    home.start()
    until(lambda: len(home.messages(state="recorded")) == 2)
    states = [row["state"] for row in home.rows("SELECT state FROM reservation ORDER BY id")]
    assert states == ["settled", "settled", "assumed", "settled"]
    spent = home.json("budget", "show")[0]["spent"]
    assert spent == sum(row["nanos"] for row in home.rows("SELECT nanos FROM reservation")) / 1e9

    # It is spent: held, told once with when it opens; commands work; nothing is asked of the model.
    configured(home, "usd_per_day = 1000.0", f"usd_per_day = {spent + 1:.6f}")
    asked = len(model.requests)
    said = home.answer("one more", code=1)
    assert "the budget of group main is spent" in said["error"] and "it opens again at 20" in said["error"]
    home.say("and another")
    until(lambda: len(home.messages(state="held")) == 2)
    assert len(model.requests) == asked
    told = [row["text"] for row in home.rows("SELECT text FROM delivery WHERE kind = 'notice' ORDER BY id")]
    assert sum("is kept" in text for text in told) == 2, told
    assert home.json("budget", "show")[0]["opens"] in said["error"]
    shown = home.answer("/usage")["reply"]
    assert "this session: " in shown and "left today: $1.00 of " in shown, shown
    assert "2 waiting" in home.answer("/status")["reply"]

    # A restart changes nothing; a raise does.
    assert home.stop() == 0
    home.start()
    assert len(home.messages(state="held")) == 2
    assert home.cli("budget", "raise", "main", "--tokens", "5", "--for", "day").returncode == 1
    assert home.cli("budget", "raise", "main", "--usd", "5", "--for", "2020-01-01").returncode == 2
    raised = home.json("budget", "raise", "main", "--usd", "500", "--for", "DAY")
    assert raised["usd"] == 500.0
    until(lambda: sum(row["turn"] is not None for row in home.messages(state="recorded")) == 4)
    assert len(model.requests) == asked + 2 and home.messages(state="held") == []
    [row] = home.json("budget", "show")
    assert row["limit"] == pytest.approx(spent + 501)
    assert all(row["attempt"] == 1 for row in home.messages(state="recorded") if row["turn"] is not None)
    assert home.stop() == 0


def _sums(input: int, output: int) -> dict[str, int]:
    return {"input": input, "output": output, "cached": 0}
