"""Calls as a whole: what is told of the tools is what they take, a wrong call teaches, and what runs again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent import tools
from agent.tools import arguments

from clawd.context.tools import sandbox_tools

from .conftest import Bench

WORKING: dict[str, dict[str, Any]] = {
    "bash": {"command": "true", "timeout": 5, "background": False},
    "read": {"path": "a", "offset": 1, "limit": 1},
    "write": {"path": "b", "content": ""},
    "edit": {"path": "a", "old": "x", "new": "y", "all": True},
    "glob": {"pattern": "*", "path": "."},
    "grep": {"pattern": "x", "path": ".", "glob": "*", "ignore_case": True, "context": 1},
    "fetch": {"url": "http://127.0.0.1:1/", "method": "GET", "headers": {"A": "b"}, "body": "c"},
}
OTHER = {"string": 5, "number": "5", "integer": 1.5, "boolean": 1, "object": []}


def test_what_is_told_costs_little_and_is_all_there() -> None:
    told = [{key: tool[key] for key in ("name", "description", "parameters")} for tool in sandbox_tools()]
    assert len(json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()) < 1700
    assert {tool["name"] for tool in told} == WORKING.keys()
    for tool in told:
        assert arguments.schema(tool["name"]) == tool["parameters"]
        assert tool["parameters"]["properties"].keys() == WORKING[tool["name"]].keys()
        assert set(tool["parameters"]["required"]) <= WORKING[tool["name"]].keys()


@pytest.mark.parametrize("name", WORKING)
def test_every_argument_that_is_told_is_taken_and_no_other(bench: Bench, name: str) -> None:
    bench.file("a", "x\n")
    taught = f"[{name}: "
    assert not bench(name, **WORKING[name]).startswith(taught)
    bench.file("a", "x\n")
    takes = arguments.schema(name)
    assert takes is not None
    least = {argument: WORKING[name][argument] for argument in takes["required"]}
    assert not bench(name, **least).startswith(taught)
    for argument, kind in takes["properties"].items():
        wrong: list[object] = [None, OTHER[kind["type"]]]
        wrong += [kind["minimum"] - 1, float("nan"), float("inf"), True] if "minimum" in kind else []
        wrong += ["\ud800"] if kind["type"] == "string" else []
        for value in wrong:
            said = bench(name, **{**least, argument: value})
            assert said.startswith(f"{taught}'{argument}' ") and "For example: {" in said, (argument, value, said)
        rest = {key: value for key, value in least.items() if key != argument}
        assert bench(name, **rest).startswith(f"{taught}'{argument}' is missing.") == (argument in least)
    said = bench(name, **least, made_up=1)
    assert said.startswith(f"{taught}there is no 'made_up': it takes {next(iter(least))}")
    assert tools.run(bench.turn, name, ["x"], 0, False).startswith(f"{taught}the arguments are no object")  # type: ignore[arg-type]


def test_a_wrong_call_teaches_the_right_one(bench: Bench) -> None:
    assert bench("edit", path="a", old="b") == (
        '[edit: \'new\' is missing. For example: {"path": "text", "old": "text", "new": "text"}]'
    )
    assert (
        bench("read", path="a\0") == '[read: \'path\' holds a NUL or half a character. For example: {"path": "text"}]'
    )
    assert bench("read", path="a", offset=0).startswith("[read: 'offset' must be a whole number from 1 on.")


@pytest.mark.parametrize("seconds", [-1, "5", None, True, float("nan"), float("inf")])
def test_sleep_takes_a_number(bench: Bench, seconds: object) -> None:
    assert bench("sleep", seconds=seconds).startswith("[sleep: 'seconds' must be a number")


def test_sleep_ends_with_the_time_that_a_tool_has(bench: Bench) -> None:
    assert bench("sleep", seconds=0) == "slept 0 s"
    bench.limits["tool_s"] = 0.1
    assert bench("sleep", seconds=5) == "[The wait was ended after 0.1 s.]"
    assert bench("sleep", again=True, seconds=0) == tools.INTERRUPTED


def test_another_name_is_a_tool_of_the_daemon(bench: Bench) -> None:
    assert json.loads(bench("send_message", text="x")) == {"text": "x"}
    assert bench.posted.bodies[-1]["target"] == "/host/v1/tools/send_message"
    assert "bytes left out" in bench("send_message", text="x" * 10_000)


@pytest.mark.parametrize(
    ("name", "arguments", "reads"),
    [
        ("read", {}, True),
        ("grep", {}, True),
        ("glob", {}, True),
        ("fetch", {}, True),
        ("fetch", {"method": "head"}, True),
        ("fetch", {"method": "POST"}, False),
        ("fetch", {"method": None}, False),
        ("bash", {}, False),
        ("write", {}, False),
        ("send_message", {}, False),
    ],
)
def test_what_only_reads(name: str, arguments: dict[str, Any], reads: bool) -> None:
    assert tools.only_reads(name, arguments) == reads
