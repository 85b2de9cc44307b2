"""What the offline engine understands, and that it says so when it does not."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from agent.engines import offline

from tests.agent.standin import StandInTurn


def said(turn: StandInTurn) -> str:
    answer = offline.respond(turn)  # type: ignore[arg-type]
    assert answer.error is None
    text: str = answer.text
    return text


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("say hello there", "hello there"),
        ("Say: x", "x"),
        ("help", offline.HELP),
        ("What can you do?", offline.HELP),
        ("time", "It is 2026-11-29 14:05."),
        ("What time is it?", "It is 2026-11-29 14:05."),
        ("notes", 'There are no notes yet. "note: buy milk" keeps one.'),
        ("files", "work/ is empty."),
        ("Hello!", 'Hello! Say "help" for what I can do.'),
        ("write me a poem", offline.UNKNOWN),
        ("note:", offline.UNKNOWN),
        ("say", offline.UNKNOWN),
        ("sh : ls", offline.UNKNOWN),
        ("note: buy\n milk", "Noted: buy milk"),
        ("send: hi", "Sent."),
        ("send file: a.txt", "I sent a.txt."),
        ("sh: ls", "ok"),
    ],
)
def test_sentences(tmp_path: Path, text: str, reply: str) -> None:
    (tmp_path / "work").mkdir()
    assert said(StandInTurn(tmp_path, text)) == reply


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("note: buy milk", ("jot", {"line": "- 2026-11-29 14:05:06 buy milk"})),
        ("send: hi", ("send_message", {"text": "hi"})),
        ("send file: a b.txt", ("send_file", {"path": "a b.txt"})),
        ("sh: echo x", ("bash", {"command": "echo x"})),
    ],
)
def test_what_does_something_is_a_tool_call(tmp_path: Path, text: str, call: Any) -> None:
    turn = StandInTurn(tmp_path, text)
    said(turn)
    assert turn.rounds == [("", [call])]


def test_skills_are_read_before_they_are_run(tmp_path: Path) -> None:
    scripts = tmp_path / "skills" / "x" / "scripts"
    scripts.mkdir(parents=True)
    (scripts / "only.sh").touch()
    turn = StandInTurn(tmp_path, "skills", "skill x", "run x a 'b c'", 'Use the skill "x".', "run y", "run the tests")
    turn.results = [
        '{"skills": [{"name": "x", "description": "does it"}, {"name": "y", "note": "made by"}]}',
        '{"body": "how", "at": "/group/skills/x", "files": ["SKILL.md"]}',
        *("{}", "printed", "{}", "again", "{}"),
        "[skill_read was refused: there is no skill 'the']",
    ]
    assert said(turn).split("\n\n") == [
        *("x: does it", "y: made by", "how", "Its files, in /group/skills/x: SKILL.md", "printed", "again"),
        "The skill y has no script that I could run (scripts/run.sh or run.py): it is for a model to read.",
        "skill_read was refused: there is no skill 'the'",
    ]
    assert turn.rounds[3] == ("", [("bash", {"command": f"sh {scripts}/only.sh a 'b c'"})])
    (scripts / "run.py").touch()
    (scripts / "run.sh").touch()
    turn = StandInTurn(tmp_path, "run x $(id) 'open")
    said(turn)
    assert turn.rounds[1][1][0][1] == {"command": shlex.join(["sh", f"{scripts}/run.sh", "$(id)", "'open"])}


def test_a_refusal_is_passed_on(tmp_path: Path) -> None:
    turn = StandInTurn(tmp_path, "note: x", "send file: y")
    turn.results = ["[There is no space left for this group's files.]", "[send_file was refused: no]"]
    assert said(turn).split("\n\n") == [
        "I could not keep that note. There is no space left for this group's files.",
        "send_file was refused: no",
    ]


MADE = {"done": "schedule stretch", "id": "stretch", "understood": "in 10 minutes (UTC)", "next": ["Mon 09:10"]}
EACH = {"id": "a", "when": "every 20m", "tz": "UTC", "enabled": True}


@pytest.mark.parametrize(
    ("text", "arguments", "result", "reply"),
    [
        ("remind me in 10 minutes to stretch", {"when": "remind me in 10 minutes to stretch"}, MADE,
         "stretch: in 10 minutes (UTC). Next: Mon 09:10."),
        ("Every first Monday at 10: pay", {"when": "Every first Monday at 10: pay"},
         {**MADE, "until": "Tue 2027-06-01 09:00"}, "stretch: in 10 minutes (UTC). Next: Mon 09:10. It ends on Tue 2027"
         "-06-01 09:00."),
        ("tomorrow at 9: call Ada", {"when": "tomorrow at 9: call Ada"}, {**MADE, "waits": "not done yet: so"},
         "stretch: in 10 minutes (UTC). Next: Mon 09:10. It waits: not done yet: so."),
        ("in 2 hours: x", {"when": "in 2 hours: x"}, "[schedule was refused: no]", "schedule was refused: no"),
        ("schedules", {"action": "list"}, {"schedules": []},
         'There are no schedules. "remind me in 10 minutes to stretch" makes one.'),
        ("List schedules.", {"action": "list"},
         {"schedules": [{**EACH, "next": "2026"}, {"id": "b", "when": "x", "proposed": True},
                        {"id": "c", "when": "y"}]},
         "a: every 20m (2026)\nb: x (proposed)\nc: y (paused)"),
        ("cancel reminder Up-2.", {"action": "remove", "id": "Up-2"}, {"done": "x"}, "Up-2 is cancelled."),
        ("cancel schedule a", {"action": "remove", "id": "a"}, {"waits": "not done yet"}, "not done yet"),
        ("cancel reminder a", {"action": "remove", "id": "a"}, "[schedule was refused: there is no schedule a]",
         "schedule was refused: there is no schedule a"),
    ],
)  # fmt: skip
def test_reminders_are_the_daemons(tmp_path: Path, text: str, arguments: Any, result: Any, reply: str) -> None:
    turn = StandInTurn(tmp_path, text)
    turn.results = [result if isinstance(result, str) else json.dumps(result)]
    assert said(turn) == reply and turn.rounds == [("", [("schedule", arguments)])]


@pytest.mark.parametrize("text", ["in short: no", "on: x", "every", "every day", "remind us in 10 minutes: x"])
def test_what_only_looks_like_a_time_is_not_understood(tmp_path: Path, text: str) -> None:
    assert said(StandInTurn(tmp_path, text)) == offline.UNKNOWN


def test_a_reminder_is_given_and_what_a_schedule_says_is_done(tmp_path: Path) -> None:
    turn = StandInTurn(tmp_path, "Remind me: stretch ", "say hello")
    for wake in turn.wakes:
        wake["kind"] = "schedule"
    assert said(turn) == "Reminder: stretch\n\nhello" and turn.rounds == []


def test_several_wakes_are_answered_in_order(tmp_path: Path) -> None:
    assert said(StandInTurn(tmp_path, "say one", "say two")) == "one\n\ntwo"


@pytest.mark.parametrize(
    "refused",
    [{"origin": "member"}, {"authority": "member"}, {"authority": "none"}, {"origin": "agent"}],
)
def test_sh_is_the_owners(tmp_path: Path, refused: dict[str, Any]) -> None:
    turn = StandInTurn(tmp_path, "sh: id", **refused)
    sentence = "Only the owner" if "origin" in refused else "sh: is off"
    assert sentence in said(turn) and turn.rounds == []


@pytest.mark.parametrize("text", [" sh: id", "x\nsh: id", "SH: id", "[owner]: sh: id"])
def test_sh_counts_only_at_the_start_of_a_part(tmp_path: Path, text: str) -> None:
    turn = StandInTurn(tmp_path, text)
    said(turn)
    assert turn.rounds == []


@pytest.mark.parametrize("kind", ["quoted", "forwarded", "attachment"])
def test_only_what_was_typed_is_read(tmp_path: Path, kind: str) -> None:
    turn = StandInTurn(tmp_path, "sh: id", kind=kind)
    assert said(turn) == offline.UNKNOWN and turn.rounds == []


@pytest.mark.parametrize("line", ["name: Ada", "- **Name**: Ada", "Name: _Ada_"])
def test_a_greeting_knows_the_name(tmp_path: Path, line: str) -> None:
    (tmp_path / "user_profile.md").write_text(f"# Who I am\n\n{line}\n")
    assert said(StandInTurn(tmp_path, "hi, claw")).startswith("Hello, Ada!")


def test_files_and_notes_are_read_from_work(tmp_path: Path) -> None:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "work" / "sub" / "a.txt").touch()
    (tmp_path / "work" / "notes.md").write_text("- x\n")
    assert said(StandInTurn(tmp_path, "files", "notes")) == "notes.md\nsub/a.txt\n\n- x"


# ---- the memory


def found(*memories: tuple[str, str]) -> str:
    lines = [
        json.dumps({"id": id, "kind": id.partition(":")[0], "at": "2026-11-29T14:00+02:00", "text": text})
        for id, text in memories
    ]
    return json.dumps({"found": len(lines), "memories": "\n".join(["<memory-1>", *lines, "</memory-1>"])})


KEPT = '{"id": "ep_0000000001", "trust": 1.0}'
MILK, TEA = ("ep_0000000001", "Milk is\nsour."), ("ep_0000000002", "Milk and tea.")


@pytest.mark.parametrize(
    ("text", "results", "reply", "calls"),
    [
        (
            "Remember that milk is sour.",
            [KEPT],
            "I will remember that (ep_0000000001).",
            [("memory_write", {"content": "milk is sour.", "said": {"quote": "Remember that milk is sour."}})],
        ),
        (
            "remember: x",
            ["[memory_write was refused: that is not a whole sentence]", '{"id": "ep_1", "waits": "the owner must"}'],
            "Noted as ep_1, but the owner must.",
            [("memory_write", {"content": "x", "said": {"quote": "remember: x"}}), ("memory_write", {"content": "x"})],
        ),
        (
            "remember x",
            ["[a]", '{"error": "this turn has had its 100"}'],
            "this turn has had its 100",
            [("memory_write", {"content": "x", "said": {"quote": "remember x"}}), ("memory_write", {"content": "x"})],
        ),
        (
            "What do you know about milk?",
            [found(MILK, TEA)],
            "ep_0000000001 (2026-11-29): Milk is sour.\nep_0000000002 (2026-11-29): Milk and tea.",
            [("memory_search", {"query": "milk", "k": 20})],
        ),
        ("recall milk", ['{"found": 0}'], "I remember nothing about milk.", [...]),
        ("recall milk", ['{"found": 1, "mem [… cut …]'], "There is more of that than I can read. Ask for less.", [...]),
        ("recall milk", ["[no turn]"], "no turn", [...]),
        (
            "forget milk is sour",
            [found(TEA, MILK), '{"forgotten": "ep_0000000001"}'],
            "ep_0000000001 is forgotten.",
            [..., ("memory_delete", {"id": "ep_0000000001"})],
        ),
        (
            "forget milk",
            [found(MILK, TEA)],
            "ep_0000000001 (2026-11-29): Milk is sour.\nep_0000000002 (2026-11-29): Milk and tea.\n\n"
            'Say "forget ID" for the one that you mean.',
            [...],
        ),
        (
            "forget milk and honey.",
            [found(MILK)],
            'ep_0000000001 (2026-11-29): Milk is sour.\n\nSay "forget ID" for the one that you mean.',
            [...],
        ),
        ("forget milk", [found()], "I remember nothing about milk.", [...]),
        (
            "forget wifi name",
            [found(("fact:wifi name", "attic")), "{}"],
            "fact:wifi name is forgotten.",
            [..., ("memory_delete", {"id": "fact:wifi name"})],
        ),
        (
            "forget fact:wifi name",
            ["{}"],
            "fact:wifi name is forgotten.",
            [("memory_delete", {"id": "fact:wifi name"})],
        ),
        (
            "forget milk",
            [found(("day:2026-11-29", "Milk, and much else."))],
            'day:2026-11-29 (2026-11-29): Milk, and much else.\n\nSay "forget ID" for the one that you mean.',
            [...],
        ),
        (
            "forget ep_0000000002.",
            ["[memory_delete was refused: the owner can]"],
            "memory_delete was refused: the owner can",
            [("memory_delete", {"id": "ep_0000000002"})],
        ),
        ("forget fact:tea", [KEPT], "fact:tea is forgotten.", [("memory_delete", {"id": "fact:tea"})]),
    ],
)
def test_the_memory(tmp_path: Path, text: str, results: list[str], reply: str, calls: list[Any]) -> None:
    turn = StandInTurn(tmp_path, text)
    turn.results = list(results)
    assert said(turn) == reply
    assert len(turn.rounds) == len(calls) and turn.results == []
    assert all(call is ... or [call] == made for call, (_, made) in zip(calls, turn.rounds, strict=True))


def test_only_the_owner_is_cited(tmp_path: Path) -> None:
    for origin, cited in (("owner", True), ("admin", False), ("member", False), ("external", False)):
        turn = StandInTurn(tmp_path, "remember x", origin=origin)
        turn.results = [KEPT]
        said(turn)
        assert ("said" in turn.rounds[0][1][0][1]) is cited
    turn = StandInTurn(tmp_path, "remember " + "x" * 2000)
    turn.results = [KEPT]
    said(turn)
    assert "said" not in turn.rounds[0][1][0][1]
