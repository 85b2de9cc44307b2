"""The gateway from inside real sandboxes: every case on the wire (tests/system/gateway_cases.py), played in one turn of
the owner with each backend, against upstreams that recorded what reached them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clawd.host.bodies import CONNECTIONS
from tests.canary import CANARY
from tests.engine import Engine
from tests.gateway.upstream import (
    Recorded,
    Wire,
    answer,
    chunk,
    chunked,
    echo,
    endless,
    gzipped,
    head,
    redirect,
    websocket,
)
from tests.system import gateway_cases
from tests.system.conftest import EACH, until
from tests.system.gateway_cases import UP, Case
from tests.system.outside import Outside, begun, outside

PLAY = Path(__file__).parent / "gateway" / "play.py"
HOSTILE = Path(__file__).parent / "hostile"
IN_A_TURN = [*gateway_cases.cases(), *gateway_cases.late()]
BESIDE = [*gateway_cases.beside()]
CASES = [*IN_A_TURN, *BESIDE]
FOLDED = 100  # refusals of one group and rule in a minute that have a line of their own
KEYED = {"api.anthropic.com", "api.openai.com", "tool.example.org", "limits.example.org", "ws.example.org"}
TOKEN = re.compile(rb"claw-[A-Za-z0-9_-]{43}")


def pieces(request: Recorded, wire: Wire) -> None:
    """The key that was sent, as server-sent events of five bytes."""
    said = b"data: " + "".join(request.values("authorization")).encode() + b"\n\n"
    wire.send(head(200, [("Transfer-Encoding", "chunked"), ("Content-Type", "text/event-stream")]))
    for at in range(0, len(said), 5):
        wire.send(chunk(said[at : at + 5]))
    wire.send(b"0\r\n\r\n")


SCRIPTS = {
    "/base/v1/away": redirect("https://evil.example.net/"),
    "/base/v1/beside": redirect("https://tool.example.org/base/admin"),
    "/base/v1/echo": echo(),
    "/base/v1/pieces": pieces,
    "/base/v1/trailer": chunked(b"well", trailers=[("X-Sum", f"Bearer {CANARY}")]),
    "/base/v1/gzip": gzipped(b"well"),
    "/base/v1/cookies": answer(b"well", 200, [("Set-Cookie", "session=theirs"), ("X-Other", "well")]),
    "/base/v1/endless": endless(1 << 30),
    "/base/v1/dies": chunked(b"well", cut=True),
    "/talk": websocket(),
    "/no": answer(b"a page", 404, [("X-Theirs", "theirs")]),
}


@dataclass
class Played:
    """All cases once, and what they were answered, by name."""

    home: Outside
    answers: dict[str, dict[str, Any]]
    audit: list[dict[str, Any]]
    run: str

    def end(self, case: str) -> dict[str, Any]:
        """The last answer of a case."""
        return dict(self.answers[case]["answers"][-1])


def play(home: Outside, cases: list[Case], *, turn: bool = True, **words: str) -> dict[str, dict[str, Any]]:
    """Play cases in a turn of the owner in `main`, or in a command beside its runner."""
    home.write("groups/main/inbox/play.py", PLAY.read_text(), 0o644)
    plan = {"words": words, "cases": [{k: getattr(c, k) for k in ("id", "steps", "via", "slow")} for c in cases]}
    home.write("groups/main/inbox/cases.json", json.dumps(plan), 0o644)
    command = ("python3", "/group/inbox/play.py", "/group/inbox/cases.json")
    said = home.sh(" ".join(command)) if turn else home.inside(*command)
    assert said.strip() == f"{len(cases)} played", said
    answers = json.loads((home.root / "groups/main/work/answers.json").read_text())
    return {each["id"]: each for each in answers}


def token_of(home: Outside, group: str) -> str:
    """The token of the group's living run; what a turn prints does not show it."""
    assert home.sh("echo $CLAWD_TOKEN >token; cat token", group) == "[token]"
    return (home.root / "groups" / group / "work/token").read_text().strip()


@pytest.fixture(scope="module", params=EACH)
def played(request: pytest.FixtureRequest) -> Iterator[Played]:
    """Everything at once, with each backend."""
    engine = request.getfixturevalue("engine") if request.param == "docker" else None
    assert engine is None or isinstance(engine, Engine)
    with outside(engine) as home:
        home.tls.scripts |= SCRIPTS
        public = home.world.names["one.example.com"][0]
        home.world.names |= {
            "mixed.example.org": [["10.0.0.1", "127.0.0.1", *public]],
            "rebind.example.org": [public, ["127.0.0.1"]],
            "private.example.org": [["127.0.0.1", "10.0.0.1", "::1", "::ffff:169.254.169.254"]],
        }
        home.world.save()
        begun(home)
        dead = home.inside("sh", "-c", "echo $CLAWD_TOKEN").strip()
        foreign = token_of(home, "bare")
        assert TOKEN.fullmatch(dead.encode()) and TOKEN.fullmatch(foreign.encode())
        own = gateway_cases.own_address()
        words = {"dead": dead, "foreign": foreign, "short": foreign[:-1], "own": own}
        answers = play(home, IN_A_TURN, **words) | play(home, BESIDE, turn=False, **words)
        [run] = [each["run"] for each in home.json("sandbox", "list") if each["group"] == "main"]
        yield Played(home, answers, home.audit("main"), run)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(played: Played, case: Case) -> None:
    said = played.answers[case.id]
    if case.ends:
        got = [(each["status"], rule_of(each)) for each in said["answers"]]
        assert got == list(case.ends), said
    assert bool(case.tls_fails) == ("SSL" in said.get("error", "")), said
    arrived = played.home.arrived(case.id)
    assert len(arrived) == case.arrives, [request.head for request in arrived]
    for request in arrived:
        sent = [name.lower() for name, _ in request.headers]
        assert not {"proxy-authorization", "cookie", "x_api_key", "api-key", "api_key", "upgrade-insecure"} & {*sent}
        assert request.head.count(CANARY.encode()) <= 1


def rule_of(said: dict[str, Any]) -> str:
    """The rule of a refusal, whose body must be whole."""
    if ["x-theirs", "theirs"] in said["headers"]:
        return "theirs"
    try:
        body = json.loads(said["body"])
        assert body["schema"] == 1 and body["error"] == body["rule"] and body["message"] and "hint" in body
        return str(body["rule"])
    except (ValueError, KeyError, TypeError):
        return UP


def test_every_request_has_its_line_in_the_audit(played: Played) -> None:
    expected = Counter(line for case in CASES for line in case.audited)
    lines = Counter((line["verdict"], line["rule"], line["status"]) for line in played.audit)
    for line, count in list(expected.items()):
        if line[0] == "deny" and count > FOLDED:
            expected[line] = FOLDED + 1
    assert lines == expected, {line: (lines[line], expected[line]) for line in lines | expected}
    assert {line["group"] for line in played.audit} == {"main"} and {line["run"] for line in played.audit} == {
        played.run
    }
    assert len({line["turn"] for line in played.audit} - {None}) == 1
    assert not any("?" in line["path"] or TOKEN.search(line["path"].encode()) for line in played.audit if line["path"])


def test_upstreams_saw_what_was_granted_and_nothing_else(played: Played) -> None:
    home = played.home
    assert home.evil.connections == []
    allowed = {case.id for case in CASES if case.arrives}
    seen = [request for upstream in home.upstreams for request in upstream.requests]
    assert {case for request in seen for case in request.values("x-case")} <= allowed
    assert all(len(request.values("x-case")) == 1 for request in seen)
    assert [upstream.received for upstream in home.broken.values()] == [b""] * len(home.broken)
    looked_up = set(home.world.lookups)
    assert not {name for name in looked_up if "evil" in name or name in ("xapi.anthropic.com", "openrouter.ai")}
    assert not any(line.startswith(("10.", "127.0.0.1 443", "169.", "::")) for line in home.world.dialled)


def test_the_key_goes_out_once_and_no_token_ever(played: Played) -> None:
    for upstream in played.home.upstreams:
        assert not TOKEN.search(upstream.received)
        for request in upstream.requests:
            if KEYED & {*request.values("host")} or "local" in request.values("x-case")[0]:
                assert request.head.count(CANARY.encode()) == 1, request.head
            else:
                assert CANARY.encode() not in request.head, request.head


def test_what_comes_back_has_no_key_and_no_session(played: Played) -> None:
    for case in ("10 echo", "10 echo in pieces"):
        assert played.end(case)["body"].count("Bearer [redacted]") == 1
    assert "trailers" not in played.end("10 echo in a trailer")
    assert ["x-echo-authorization", "Bearer [redacted]"] in played.end("10 echo")["headers"]
    names = [name for name, _ in played.end("29 cookies")["headers"]]
    assert "x-other" in names and "set-cookie" not in names
    assert ["location", "https://evil.example.net/"] in played.end("1 a redirect elsewhere")["headers"]
    assert played.end("22 refused by the upstream")["body"] == ""
    assert played.answers["22 allowed"]["frame"] == "\x81\x05hello"
    assert played.answers["21 h2 in a tunnel"]["alpn"] == "http/1.1"
    assert not played.end("25 an upstream that dies")["whole"], "what was cut off must not look whole"
    assert int(dict(played.end("30 rate 4")["headers"])["retry-after"]) > 0


def test_what_was_asked_is_what_arrives(played: Played) -> None:
    targets = {case: played.home.arrived(case)[0].target for case in ("query", "19 v1/x%20y", "19 v1/a;b=c")}
    assert targets == {
        "query": "/v1/messages?beta=true&x=%20y",
        "19 v1/x%20y": "/base/v1/x%20y",
        "19 v1/a;b=c": "/base/v1/a;b=c",
    }
    [request] = played.home.arrived("key in the query")
    assert request.target == f"/query/x?a=b&c=d&key={CANARY}"
    [request] = played.home.arrived("chunked body")
    assert request.body == b"abcd"
    assert played.home.world.lookups.count("rebind.example.org") == 1


def test_people_are_told_of_misuse_and_once_a_turn_of_refusals(played: Played) -> None:
    told = [row["text"] for row in played.home.rows("SELECT text FROM delivery WHERE kind = 'notice'")]
    alarms = [text for text in told if text.startswith("run ")]
    [refusal] = [text for text in told if text not in alarms]
    assert "(no_token)" in refusal and "clawd gateway audit --group main" in refusal
    assert 1 <= len(alarms) <= 2 and all("cross_group_token" in text for text in alarms), "a turn's, and a command's"
    assert not any(TOKEN.search(text.encode()) for text in told)


def test_a_crowd_of_one_group_does_not_keep_another_out(played: Played) -> None:
    """23: three hundred idle tunnels, slow heads and unread answers."""
    home, work = played.home, played.home.root / "groups/main/work"
    home.write("groups/main/inbox/crowd.py", (PLAY.parent / "crowd.py").read_text(), 0o644)
    crowd = home.chat("-m", "sh:python3 /group/inbox/crowd.py", "--group", "main")
    until(lambda: (work / "crowded").exists(), 100)
    ask = "curl -sS $ANTHROPIC_BASE_URL/v1/messages; curl -sS https://api.anthropic.com/v1/messages"
    assert home.sh(ask, "other") == home.inside("sh", "-c", ask, group="other") == "okok"
    (work / "enough").touch()
    said, _ = crowd.communicate(timeout=100)
    tunnels, unread = map(int, re.findall(r"\d+", said))
    assert tunnels > 5 and unread > 5 and tunnels + unread <= CONNECTIONS, said
    assert home.sh(ask) == "okok", "and its own group has its road again"


def test_the_canary_is_found_nowhere(played: Played) -> None:
    """In nothing that the home has, is or said, and in nothing that can be seen from inside."""
    hunt = played.home.hunt()
    hunt.data("what the sandbox was answered", json.dumps(played.answers).encode())
    assert hunt.found == [] and hunt.looked > 50
    played.home.write("groups/main/inbox/search.py", (HOSTILE / "search.py").read_text(), 0o644)
    seen = played.home.inside("python3", "/group/inbox/search.py", CANARY[:10], CANARY[10:])
    assert seen.startswith("can be seen: "), seen
    assert CANARY in played.home.tls.received.decode("latin-1"), "and it was used"
