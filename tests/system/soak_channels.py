"""Twenty chats on three channels at once, with faults from a seed: of sends, of polls and gateways, of whole platforms,
and ends of the daemon itself. At the end nothing may be lost or doubled, and the order of each chat is kept.

    with Chats(Plan(seconds=60)) as chats:
        report = chats.run(print)
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from clawd.ledger.deliveries import REPEAT
from tests.canary import CANARY
from tests.platforms import Platform, Sent
from tests.platforms.discord import Discord
from tests.platforms.slack import Slack
from tests.platforms.telegram import Telegram
from tests.standin import Recorded, Reply, Standin
from tests.system.conftest import until
from tests.system.ground import Ground, ground

SHARED, THREADED = 5, 2  # shared chats of a platform, and how many of them have threads
BACKLOG = 5  # messages of a chat that nobody has answered yet
OUTAGE_S = 4.0  # the longest that a platform is away or silent
SETTLE_S = 240.0
WORD = re.compile(r"w\d{5}")
END = "That is all."
CONFIG = """schema = 1
[claw]
name = "clawd"
[model]
engine = "messages"
service = "anthropic"
model = "first"
[sandbox]
backend = "bubblewrap"
max_live = 20
[services.anthropic]
base_url = "{url}"
allow_private = true
credential = "${{file:{key}}}"
"""
GROUP = """schema = 1
followups = "queue"
grants = [{{service = "anthropic", for = "member"}}]
bindings = [{bindings}]
answer = "{answer}"
sessions = "{sessions}"
"""
PERSON = '[[people]]\nname = "{name}"\nrole = "{role}"\naccounts = [{accounts}]\n'


@dataclass(frozen=True, slots=True)
class Plan:
    """What is done: for how long, messages a second, mean seconds between two faults, ends of the daemon."""

    seconds: float
    rate: float = 1.0
    pause: float = 1.2
    ends: int = 4
    seed: int = 20261


@dataclass
class Report:
    """What was done, and everything that must not be. `grown`: messages that were seen to grow; `begun`: those of them
    whose answer came as another one; `repeats`: answers that may be one, and say so; `slowest`: seconds."""

    seconds: float = 0.0
    messages: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    grown: int = 0
    begun: int = 0
    repeats: int = 0
    slowest: float = 0.0
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """Where somebody speaks. `thread` is one that was there from the beginning."""

    platform: Platform
    chat: str
    senders: tuple[str, ...]
    mention: bool = False
    thread: str = ""

    def __str__(self) -> str:
        return f"{self.platform.name}:{self.chat}:{self.thread}"


@dataclass(frozen=True, slots=True)
class Said:
    word: str
    place: Place
    sender: str
    id: str
    at: float


class Chats:
    """A daemon, its platforms and its model, from entering to leaving."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.report = plan, Report()
        self._chance, self._stack = random.Random(plan.seed), ExitStack()
        self._said: list[Said] = []
        self._over: list[tuple[float, Callable[[], None]]] = []  # when an outage ends, and how
        self._away: set[str] = set()  # platforms that are not there, or are silent
        self._seen: dict[str, int] = {}  # messages of ours that were looked at, by platform
        self._answered: dict[str, float] = {}  # words, and when their answer was first seen
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> Chats:
        enter = self._stack.enter_context
        self.model = enter(Standin(key=CANARY, alternate=False))
        self.model.decide = self._reply
        self.telegram, self.slack, self.discord = enter(Telegram()), enter(Slack(resend_s=5.0)), enter(Discord())
        self.platforms: list[Platform] = [self.telegram, self.slack, self.discord]
        self.home: Ground = enter(ground())
        self.home.may_block = True  # that is looked for elsewhere, where nothing is killed
        self.places = self._write()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _write(self) -> list[Place]:
        home, platforms, places = self.home, self.platforms, []
        config = CONFIG.format(url=self.model.url, key=home.write("key", f"{CANARY}\n"))
        home.write("config.toml", config + "".join(each.config for each in platforms))

        def people(of: Callable[[Platform], str], name: str, role: str) -> str:
            accounts = ", ".join(f'"{each.account(of(each))}"' for each in platforms)
            return PERSON.format(name=name, role=role, accounts=accounts)

        owner = people(lambda each: each.owner, "anna", "owner")
        home.write("people.toml", f"schema = 1\n{owner}{people(lambda each: each.member, 'bob', 'member')}")
        for group, who in (("main", "owner"), ("bob", "member")):  # one conversation, on three channels
            direct = [(each, getattr(each, who)) for each in platforms]
            self._group(group, *(each.binding(each.direct(user)) for each, user in direct))
            places += [Place(each, each.direct(user), (user,)) for each, user in direct]
        for each in platforms:
            chats = each.chats()
            for n in range(SHARED):
                chat, both = next(chats), (each.owner, each.member)
                threaded, mention = n < THREADED, n % 2 == 1
                how = {"sessions": "thread" if n == 0 else "group", "answer": "mention" if mention else "always"}
                self._group(f"{each.name}{n}", each.binding(chat), **how)
                threads = ["", each.thread(chat), each.thread(chat)] if threaded else [""]
                places += [Place(each, chat, both, mention, thread) for thread in threads]
        return places

    def _group(self, name: str, *bindings: str, answer: str = "always", sessions: str = "group") -> None:
        bound = ", ".join(f'"{each}"' for each in bindings)
        self.home.write(f"groups/{name}/group.toml", GROUP.format(bindings=bound, answer=answer, sessions=sessions))

    def _reply(self, request: Recorded) -> Reply:
        """The answer to a message; one in four is so slow that it is seen to grow."""
        word = WORD.findall(request.said)[-1]
        slow = int(word[1:]) % 4 == 0
        return Reply(f"re **{word}**, in `full`. " + "More words. " * 5 * slow + END, delay=0.3 if slow else 0.0)

    # ---- what happens

    def run(self, say: Callable[[str], None]) -> Report:
        self._start()
        until(lambda: all(each.live for each in self.platforms), pause=0.1)
        for place in self.places:
            if place.platform is self.discord or len(place.senders) == 1:
                self._speak(place)  # Discord tells of what was missed in channels that we know
        until(lambda: not self._open(), SETTLE_S, pause=0.1)
        began = time.monotonic()
        self._go(began + self.plan.seconds, say)
        self._heal()
        self.report.seconds = time.monotonic() - began
        self._settle()
        self._judge()
        self._end()
        self.report.messages, self.report.faults = len(self._said), dict(sorted(self._counts.items()))
        return self.report

    def _start(self) -> None:
        self.home.start(**{name: value for each in self.platforms for name, value in each.env.items()})

    def _go(self, end: float, say: Callable[[str], None]) -> None:
        plan, chance, now = self.plan, self._chance, time.monotonic()
        every = plan.seconds / (plan.ends + 1)
        next_message, next_fault, next_end, next_word = now, now, now + every, now + 30
        kinds = self._kinds()
        queue = chance.sample([*kinds], len(kinds))  # each of them once, then by chance
        while (now := time.monotonic()) < end:
            for outage in [each for each in self._over if each[0] <= now]:
                self._over.remove(outage)
                outage[1]()
            if now >= next_message:
                self._burst()
                next_message = now + chance.expovariate(plan.rate / 1.5)
            if now >= next_fault:
                kind = queue.pop() if queue else chance.choice([*kinds])
                self._counts[kind] += kinds[kind]()
                next_fault = time.monotonic() + chance.expovariate(1 / plan.pause)
            if now >= next_end and self._is_sure():
                self._end_daemon(killed=self._counts["kill"] <= self._counts["restart"])
                next_end = time.monotonic() + every
            if now >= next_word:
                say(f"{len(self._said)} messages, {len(self._open())} of them open, {self._counts.total()} faults")
                next_word = now + 30
            time.sleep(0.02)

    def _burst(self) -> None:
        """Somebody says something, at times several things in a row."""
        place = self._chance.choice(self.places)
        waiting = Counter(each.place for each in self._open())
        for _ in range(self._chance.choice((1, 1, 1, 3))):
            if waiting[place] < BACKLOG:
                self._speak(place)
                waiting[place] += 1

    def _speak(self, place: Place) -> None:
        word, sender = f"w{len(self._said):05}", self._chance.choice(place.senders)
        more: dict[str, Any] = {"thread": place.thread, "mention": place.mention}
        id = place.platform.say(f"say {word}", place.chat, sender, **more)
        self._said.append(Said(word, place, sender, id, time.monotonic()))

    def _open(self) -> list[Said]:
        """What nobody has seen an answer to."""
        now = time.monotonic()
        for platform in self.platforms:
            start = self._seen.get(platform.name, 0)
            new = platform.sent[start:]
            self._seen[platform.name] = start + len(new)
            for word in (word for each in new for word in WORD.findall(each.text)):
                self._answered.setdefault(word, now)
        return [each for each in self._said if each.word not in self._answered]

    # ---- faults: each gives whether it was done

    def _kinds(self) -> dict[str, Callable[[], bool]]:
        telegram, slack, discord = self.telegram, self.slack, self.discord
        kinds: dict[str, Callable[[], bool]] = {
            "slack stale ticket": lambda: self._failing(slack, what="socket") and self._quick(slack.drop),
            "slack refresh": lambda: self._if_there(slack, lambda: slack.disconnect("refresh_requested")),
            "discord invalid session": lambda: self._quick(self._invalid),
            "discord reconnect": lambda: self._quick(lambda: discord.frame(7)),
            "discord refused handshake": lambda: self._quick(self._refuse),
            "telegram conflict": lambda: self._failing(telegram, status=409, what="poll"),
            "telegram poll 502": lambda: self._failing(telegram, status=502, what="poll"),
            "telegram poll lost": lambda: self._failing(telegram, status=200, after=True, what="poll"),
            "slack no ticket": lambda: self._failing(slack, status=502, what="poll") and self._quick(slack.drop),
        }
        for each in self.platforms:
            kinds |= self._kinds_of(each)
        return kinds

    def _kinds_of(self, each: Platform) -> dict[str, Callable[[], bool]]:
        chance = self._chance
        return {
            f"{each.name} 429": lambda: self._failing(each, status=429, retry_after=chance.choice((1, 2, 3))),
            f"{each.name} 500": lambda: self._doubt(each, status=500),
            f"{each.name} lost answer": lambda: self._doubt(each, status=200, after=True),
            f"{each.name} slow": lambda: self._failing(each, status=200, after=True, hang=2.0, what="other"),
            f"{each.name} other 500": lambda: self._failing(each, status=500, what="other"),
            f"{each.name} form": lambda: self._form(each),
            f"{each.name} drop": lambda: self._quick(each.drop),
            f"{each.name} again": lambda: self._quick(each.again),
            f"{each.name} freeze": lambda: self._outage(each, each.freeze, each.thaw),
            f"{each.name} down": lambda: self._outage(each, each.down, each.up),
        }

    def _failing(self, platform: Platform, **fault: Any) -> bool:
        platform.fail(**fault)
        return True

    def _quick(self, work: Callable[[], None]) -> bool:
        work()
        return True

    def _if_there(self, platform: Platform, work: Callable[[], None]) -> bool:
        if there := platform.name not in self._away:
            work()
        return there

    def _invalid(self) -> None:
        self.discord.sessions = {}  # what was not delivered is to be had from the history alone
        self.discord.frame(9, False)

    def _refuse(self) -> None:
        self.discord.refuse += 1
        self.discord.drop()

    def _form(self, platform: Platform) -> bool:
        """A form that is refused: of a message that has one, not of the same one as it stands."""
        return self._is_first_try(platform) and self._failing(platform, status=400, text=platform.form_refusal)

    def _doubt(self, platform: Platform, **fault: Any) -> bool:
        """Sends of which nobody knows what became. Telegram cannot tell either: it is sent the same once more, and of
        that something must be known."""
        if platform is self.telegram:
            return self._is_first_try(platform) and self._failing(platform, **fault)
        return self._failing(platform, times=self._chance.choice((1, 2, 3)), **fault)

    def _is_first_try(self, platform: Platform) -> bool:
        """Whether the next message to this platform is in its form, and goes out for the first time."""
        again = self.home.rows(
            "SELECT 1 FROM delivery WHERE channel = ? AND state IN ('pending', 'sending', 'unknown')"
            " AND (attempts > 0 OR kind NOT IN ('text', 'stream'))",
            platform.name,
        )
        return not again and not any(each.what == "send" for each in platform.faults)

    def _is_sure(self) -> bool:
        """Whether nothing is being repeated to Telegram, or will be in a moment: what breaks then stays in doubt."""
        doubts = "SELECT 1 FROM delivery WHERE channel = 'telegram' AND state = 'unknown'"
        if "telegram" in self._away or self.home.rows(doubts):
            return False
        self.telegram.faults.clear()
        time.sleep(0.3)  # for what is on its way
        return not self.home.rows(doubts)

    def _outage(self, platform: Platform, begin: Callable[[], None], end: Callable[[], None]) -> bool:
        if platform.name in self._away or (platform is self.telegram and not self._is_sure()):
            return False

        def over() -> None:
            end()
            self._away.discard(platform.name)

        self._away.add(platform.name)
        begin()
        self._over.append((time.monotonic() + self._chance.uniform(0.5, OUTAGE_S), over))
        return True

    def _end_daemon(self, killed: bool) -> None:
        if killed:
            self.home.kill()
        elif (code := self.home.stop()) != 0:
            self.report.wrong.append(f"the daemon ended with {code}")
        self._counts["kill" if killed else "restart"] += 1
        time.sleep(self._chance.uniform(0.0, 1.0))
        self._start()

    def _heal(self) -> None:
        for _, over in self._over:
            over()
        for each in self.platforms:
            each.faults.clear()
        self.discord.refuse = 0

    # ---- what came of it

    def _settle(self) -> None:
        def settled() -> bool:
            rows = self.home.rows("SELECT state FROM delivery") + self.home.rows("SELECT state FROM inbound")
            return {row["state"] for row in rows} <= {"sent", "resent", "failed", "cancelled", "recorded"}

        def live() -> bool:
            states = {row["channel"]: row["state"] for row in self.home.ask("channels.list")}
            return all(states[each.name] == "live" for each in self.platforms)

        for what, done in (
            ("not every message was answered", lambda: not self._open()),
            ("not everything came to its end", settled),
            ("not every channel is live", live),
        ):
            with suppress(AssertionError):
                until(done, SETTLE_S, pause=0.2)
                continue
            self.report.wrong.append(f"{what} within {SETTLE_S:g} s: {[each.word for each in self._open()][:5]}")

    def _judge(self) -> None:
        wrong = self.report.wrong
        rows = self.home.rows("SELECT * FROM inbound WHERE kind = 'message' ORDER BY seq")
        by_word = {word: row for row in rows for word in WORD.findall(row["parts"])}
        for row in rows:
            if row["state"] != "recorded" or row["reason"]:
                wrong.append(f"message {row['seq']} of {row['grp']} is {row['state']}: {row['reason']}")
        for row in self.home.rows("SELECT * FROM delivery WHERE state = 'failed' AND kind <> 'stream'"):
            wrong.append(f"delivery {row['id']} to {row['channel']}:{row['chat']} failed: {row['error']}")
        turns = Counter(row["turn"] for row in rows)
        self._differ("messages of the ledger", Counter(word for row in rows for word in WORD.findall(row["parts"])))
        self._differ("messages of the sessions", self._spoken())
        if more := [turn for turn, n in turns.items() if turn is None or n > 1]:
            wrong.append(f"turns of several messages, or none: {more[:5]}")
        shown = {each.name: self._shown(each) for each in self.platforms}
        for each in self._said:
            self._judge_answers(each, shown[each.place.platform.name].pop(each.word, []))
        wrong += [f"{name}: an answer to nothing: {words}" for name, more in shown.items() if (words := [*more])]
        self._judge_order(by_word)
        wrong += [f"{each.name}: {problem}" for each in self.platforms for problem in set(each.problems)]
        wrong += [f"the model: {problem}" for problem in set(self.model.problems)]
        wrong += [f"Slack gave up {len(self.slack.lost)} envelopes"] if self.slack.lost else []

    def _differ(self, what: str, found: Counter[str]) -> None:
        expected = Counter(each.word for each in self._said)
        if found != expected:
            lost, more = [*(expected - found)], [*(found - expected)]
            self.report.wrong.append(f"{what}: lost {lost[:5]}, doubled {more[:5]}")

    def _spoken(self) -> Counter[str]:
        """The words that people say in the sessions' files."""
        sessions = self.home.rows("SELECT DISTINCT grp, session FROM inbound")
        said = [each for row in sessions for each in self.home.said(row["grp"], row["session"])]
        return Counter(word for role, text in said if role == "user" for word in WORD.findall(text))

    def _shown(self, platform: Platform) -> dict[str, list[Sent]]:
        """The messages of ours that a person sees now, by the word that they answer."""
        found: dict[str, list[Sent]] = {}
        for each in platform.sent:
            for word in set(WORD.findall(each.text)) if not each.deleted else ():
                found.setdefault(word, []).append(each)
        return found

    def _judge_answers(self, said: Said, answers: list[Sent]) -> None:
        mark = REPEAT.strip()
        whole = [each for each in answers if END in each.text]
        self.report.grown += sum(len(each.history) > 1 for each in answers)
        self.report.begun += len(answers) - len(whole)
        self.report.repeats += sum(mark in each.text for each in whole)
        self.report.slowest = max(self.report.slowest, round(self._answered.get(said.word, 0.0) - said.at, 1))
        first, *more = whole or [None]
        stray = [each for each in answers if each.chat != said.place.chat]
        stray += [each for each in answers if said.place.thread and each.thread != said.place.thread]
        if said.place.platform is not self.telegram:  # the others tell which message it is that began to grow
            stray += [each for each in answers if each not in whole]
        if first is None or stray or len(more) > 1 or not all(mark in each.text for each in more):
            seen = [(each.chat, each.thread, each.text) for each in answers]
            self.report.wrong.append(f"{said.word} of {said.sender} in {said.place} is answered by {seen}")

    def _judge_order(self, by_word: dict[str, Any]) -> None:
        """Of what one person says in one thread: it is taken in as it was said, and answered as it was taken in. Only
        Slack itself may turn that round, by what it sends once more."""
        lines: dict[tuple[Place, str], list[str]] = {}
        for each in self._said:
            lines.setdefault((each.place, each.sender), []).append(each.word)
        for (place, sender), words in lines.items():
            words = [word for word in words if word in by_word]
            taken = sorted(words, key=lambda word: by_word[word]["seq"])
            if taken != words and place.platform is not self.slack:
                self.report.wrong.append(f"{place}: {sender} said {words}, taken in was {taken}")
            shown = [word for each in place.platform.sent for word in WORD.findall(each.text)]
            seen = [word for word in dict.fromkeys(shown) if word in words]
            if seen != [word for word in taken if word in seen]:
                self.report.wrong.append(f"{place}: taken in from {sender} was {taken}, answered {seen}")

    def _end(self) -> None:
        if (code := self.home.stop()) != 0:
            self.report.wrong.append(f"the daemon ended with {code}")
        for each in self.platforms:
            with suppress(AssertionError):
                until(lambda each=each: not each.live, 20)  # type: ignore[misc]
                continue
            self.report.wrong.append(f"{each.live} connections to {each.name} are left")
        if left := self.home.left_over():
            self.report.wrong.append(f"left over: {left}")
