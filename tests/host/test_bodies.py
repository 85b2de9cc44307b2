"""The host's models say what the protocol's one definition says."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import pytest

from clawd.host import bodies
from clawd.model import GIVEN_UP
from clawd.resources import shipped


def definition() -> ModuleType:
    spec = importlib.util.spec_from_file_location("definition", shipped("containers") / "agent" / "protocol.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_paths_and_limits_are_those_of_the_protocol() -> None:
    protocol = definition()
    assert (bodies.HELLO, bodies.TURN, bodies.CONTROL) == (protocol.HELLO, protocol.TURN, protocol.CONTROL)
    assert bodies.TOOLS + "{name}" == protocol.TOOL
    assert (bodies.MCP, bodies.SESSION) == (protocol.MCP, protocol.SESSION)
    for path, verb in ((protocol.MORE, "more"), (protocol.STEP, "step"), (protocol.FINAL, "final")):
        assert path == f"{bodies.TURN}/{{turn}}/{verb}"
    for name in (
        "SCHEMA",
        "EVENTS_BYTES",
        "STEP_BYTES",
        "TOOL_BYTES",
        "FINAL_BYTES",
        "TEXT_BYTES",
        "JSON_DEPTH",
    ):
        assert getattr(bodies, name) == getattr(protocol, name)
    assert (bodies.CALLS_PER_SECOND, bodies.CONNECTIONS) == (protocol.CALLS_PER_SECOND, protocol.CONNECTIONS)


def test_fields_are_those_of_the_protocol() -> None:
    protocol = definition()
    models: dict[str, type[bodies.Body]] = {
        protocol.HELLO: bodies.Hello,
        protocol.STEP: bodies.Step,
        protocol.EVENTS: bodies.Events,
        protocol.FINAL: bodies.FinalBody,
        protocol.TOOL: bodies.ToolBody,
    }
    assert models.keys() == protocol.BODIES.keys()
    for path, model in models.items():
        fields = {field.alias or name for name, field in model.model_fields.items()}
        assert fields == set(protocol.BODIES[path])
    assert set(bodies.Event.model_fields) == set(protocol.EVENT)
    assert GIVEN_UP == protocol.GIVEN_UP
    assert bodies.Event.model_fields["type"].annotation.__args__ == protocol.EVENT_TYPES  # type: ignore[union-attr]


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize(("depth", "exceeds"), [(0, False), (31, False), (32, False), (33, True), (500, True)])
def test_depth(depth: int, exceeds: bool) -> None:
    assert bodies.depth_exceeds(nested(depth), 32) is exceeds


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1e999", "9" * 5000])
def test_a_number_that_json_cannot_say_again_is_malformed(number: str) -> None:
    body = f'{{"schema": 1, "attempt": 1, "worker": 0, "text": "", "notes": {{"x": {number}}}}}'
    with pytest.raises(bodies.Problem) as caught:
        bodies.decode(body.encode(), bodies.FinalBody)
    assert (caught.value.status, caught.value.code) == (400, "malformed")
