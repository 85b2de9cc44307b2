"""LoCoMo: what share of the turns that answer a question is among the first 5 and 10 found in its conversation.

`python -m benchmarks locomo PATH` reads `locomo10.json` of LoCoMo (CC BY-NC: it is not part of this project). Without
a path a set of the same shape is made up: it shows that the benchmark works, and its figures say nothing of LoCoMo.
Figures for choosing constants may be read from the conversations of even number; those of odd number have the goals.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.figures import Share, share
from clawd.search.document import Document, Where
from clawd.search.embedders import WordLlama
from clawd.search.index import Index, Method

_METHODS: tuple[Method, ...] = ("file", "hybrid")
_GOALS = {("file", 5): 0.65, ("file", 10): 0.75, ("hybrid", 5): 0.68, ("hybrid", 10): 0.77}
_WHEN = "%I:%M %p on %d %B, %Y"  # 1:56 pm on 8 May, 2023


def locomo(path: Path | None = None) -> Iterator[Share]:
    """Raises OSError and ValueError for a path that has no such data."""
    conversations = json.loads(path.read_text(encoding="utf-8")) if path is not None else made_up()
    of = path.name if path is not None else "made-up conversations, not LoCoMo"
    llama = WordLlama()
    for method in _METHODS:
        recalls: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        for number, conversation in enumerate(conversations):
            half = "odd" if number % 2 else "even"
            for category, k, recall in _asked(conversation, method, llama):
                recalls[half, "all", k].append(recall)
                recalls[half, f"category {category}", k].append(recall)
        for (half, category, k), values in sorted(recalls.items()):
            goal = _GOALS[method, k] if (half, category, path is None) == ("odd", "all", False) else None
            yield share(f"{of}: recall@{k}, {method}, {half} conversations, {category}", values, goal)


def _asked(conversation: dict[str, Any], method: Method, llama: WordLlama) -> Iterator[tuple[int, int, float]]:
    """(category, k, recall) of each question with evidence that is there."""
    documents = _turns(conversation["conversation"])
    there = {each.id for each in documents}
    now = max(each.at for each in documents)
    with tempfile.TemporaryDirectory(prefix="clawd-bench-") as directory:
        index = Index(Path(directory) / "index.db", llama if method == "hybrid" else None)
        index.replace_all(documents)
        for question in conversation["qa"]:
            evidence = {f"D{int(session)}:{int(turn)}"
                        for each in question.get("evidence", ())
                        for session, turn in re.findall(r"D(\d+):(\d+)", each)} & there  # fmt: skip
            if evidence:
                found = index.search(question["question"], 10, Where(), method=method, now=now)
                ids = [hit.document.id for hit in found.hits]
                for k in (5, 10):
                    yield question["category"], k, len(evidence & set(ids[:k])) / len(evidence)
        index.close()


def _turns(conversation: dict[str, Any]) -> list[Document]:
    documents = []
    for name, turns in conversation.items():
        if (match := re.fullmatch(r"session_(\d+)", name)) is None:
            continue
        began = datetime.strptime(conversation[f"{name}_date_time"], _WHEN).timestamp()
        for n, turn in enumerate(turns):
            session, number = re.findall(r"\d+", turn["dia_id"])
            text = f"{turn['text']} {turn.get('blip_caption', '')}".strip()
            documents.append(Document(f"D{int(session)}:{int(number)}", "episode", text, began + n, 1.0,
                                      thread=match[1], title=turn["speaker"]))  # fmt: skip
    return documents


# ── made up ──

_DEEDS = [line.split("|") for line in """
bought a bicycle|purchase a bike
adopted a puppy|get a dog
moved to a new apartment|change homes
quit my job at the bank|leave the employer
learned to bake sourdough|make bread
broke my wrist skiing|get hurt on the slopes
painted a picture of the sea|finish artwork of the ocean
ran a marathon|take part in a long race
planted tomatoes on the balcony|grow vegetables
joined a choir|start singing
sold my car|get rid of the vehicle
visited my grandmother|see a relative
read a novel about pirates|enjoy a book on sailors
repaired the washing machine|fix an appliance
went to the dentist|have teeth checked
started learning Portuguese|study a foreign language
took the kids to the museum|bring children to an exhibition
cooked ramen for friends|prepare noodle soup
got promoted to team lead|advance at work
camped beside the lake|sleep in a tent
""".strip().splitlines()]  # fmt: skip
_PLACES = ["Lisbon", "Oslo", "Kyoto", "Bergen", "Quito", "Tallinn", "Porto", "Hanoi", "Cork", "Malta", "Graz", "Lima"]
_SMALL = [
    "How have you been?",
    "It has been a while, good to hear from you.",
    "Work keeps me busy these days.",
    "That sounds fun!",
    "I know what you mean.",
    "We should meet soon.",
    "Take care, talk to you later.",
    "The weather was awful this week.",
]
_NAMES = [("Ann", "Ben"), ("Cleo", "Dan"), ("Eva", "Finn"), ("Gil", "Hana")]


def made_up() -> list[dict[str, Any]]:
    """Four conversations of two people in twelve sessions, the same each time. Categories: 1 what was said at two
    times, 2 on a day, 3 in other words, 4 in the same words, 5 as an answer to the turn before."""
    chance = random.Random(8)
    return [_conversation(chance, names) for names in _NAMES]


def _conversation(chance: random.Random, names: tuple[str, str]) -> dict[str, Any]:
    conversation: dict[str, Any] = {"speaker_a": names[0], "speaker_b": names[1]}
    qa: list[dict[str, Any]] = []
    said: dict[tuple[str, str], list[str]] = defaultdict(list)
    day = datetime(2023, 1, 7, 13, 56)
    for session in range(1, 13):
        day += timedelta(days=chance.randint(5, 20))
        turns: list[dict[str, str]] = []

        def say(speaker: str, text: str, session: int = session, turns: list[dict[str, str]] = turns) -> str:
            turns.append({"speaker": speaker, "dia_id": f"D{session}:{len(turns) + 1}", "text": text})
            return turns[-1]["dia_id"]

        for deed, meaning in chance.sample(_DEEDS, 6):
            speaker, other = chance.sample(names, 2)
            place = chance.choice(_PLACES)
            told = say(speaker, f"I {deed} when I was in {place}. {chance.choice(_SMALL)}")
            said[speaker, meaning].append(told)
            say(other, f"{chance.choice(_SMALL)} What did {chance.choice(_PLACES)} think of it?")
            say(other, f"And who was there when you {deed.replace(' my ', ' your ')}?")
            answer = say(speaker, f"My {chance.choice(['sister', 'neighbour', 'boss', 'uncle'])}, we laughed a lot.")
            say(other, chance.choice(_SMALL))
            asked = [
                (f"What did {speaker} do on {day.day} {day:%B} {day.year} in {place}?", told),
                (f"When did {speaker} {meaning} in {place}?", told),
                (f"Where was {speaker} who {deed}, {place}?", f"{told}; D99:1"),
                (f"Who was with {speaker} who {deed} in {day:%B}?", answer),
            ]
            qa += [{"question": question, "evidence": [evidence], "category": category}
                   for category, (question, evidence) in enumerate(asked, 2)]  # fmt: skip
        conversation[f"session_{session}"] = turns
        conversation[f"session_{session}_date_time"] = day.strftime(_WHEN)
    qa += [{"question": f"How often did {speaker} {meaning}?", "evidence": told, "category": 1}
           for (speaker, meaning), told in said.items() if len(told) == 2]  # fmt: skip
    return {"conversation": conversation, "qa": qa}


if __name__ == "__main__":  # python -m benchmarks.locomo PATH
    from benchmarks.__main__ import main

    sys.exit(main(["locomo", *sys.argv[1:]]))
