"""One line for each request, however it ended; none is lost, none can be pushed out, and none says what passed."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clawd.config.home import Home
from clawd.errors import StorageError
from clawd.gateway import audit
from clawd.gateway.audit import Audit, Entry, read, since
from clawd.gateway.underway import SLOT
from clawd.log import redactor

from .conftest import Stage
from .upstream import Upstream

NAMES = "ts group run turn service method host path verdict rule status bytes_in bytes_out ms credential tokens usd"


def entry(rule: str = "granted", group: str = "main", path: str = "/v1") -> Entry:
    verdict = "allow" if rule == "granted" else "deny"
    return Entry(group, "r1", 3, "shop", "GET", "shop.test", path, verdict, rule, 200, 1, 2, 0.5, "${env:KEY}")


def test_a_line(tmp_path: Path) -> None:
    made = Audit(tmp_path / "audit", 30)
    secret = "sk-never-written-down-Q7"
    redactor.add(secret)
    made.write(entry(path=f"/v1/{secret}/claw-{'A' * 43}"))
    file = tmp_path / "audit" / "audit.jsonl"
    line = json.loads(file.read_text())
    assert list(line) == NAMES.split() and line["path"] == "/v1/[secret]/[secret]"
    assert abs(datetime.fromisoformat(line["ts"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert list(read(tmp_path / "audit", "main")) == [line] and list(read(tmp_path / "audit", "other")) == []


def test_repeated_refusals_are_counted_and_what_was_allowed_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 5, 5, tzinfo=UTC).timestamp()
    monkeypatch.setattr(audit.time, "time", lambda: now)
    made = Audit(tmp_path, 30)
    for _ in range(250):
        made.write(entry("path"))
        made.write(entry())
    made.write(entry("path", "other"))
    assert len(list(read(tmp_path, "other"))) == 1
    lines = list(read(tmp_path, "main"))
    refused = [line for line in lines if line["verdict"] == "deny"]
    assert len(lines) - len(refused) == 250 and len(refused) == 101 and "folded" in refused[-1]
    now += 61
    made.write(entry("path"))
    folded = [line for line in read(tmp_path, "main") if line.get("folded")]
    assert [(line["folded"], line["rule"], line["group"]) for line in folded] == [(149, "path", "main")]
    for _ in range(120):
        made.write(entry("path"))
    made.close()
    assert list(read(tmp_path, "main"))[-1]["folded"] == 20


def test_files_are_turned_each_day_and_kept_for_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = datetime(2026, 5, 5, 12, tzinfo=UTC).timestamp()
    now = start
    monkeypatch.setattr(audit.time, "time", lambda: now)
    made = Audit(tmp_path, 3)
    for day in range(6):
        now = start + day * 86400
        made.write(entry(path=f"/{day}"))
        os.utime(tmp_path / "audit.jsonl", (now, now))
    assert [line["path"] for line in read(tmp_path)] == ["/2", "/3", "/4", "/5"]
    assert len(audit.files(tmp_path)) == 4
    moment = datetime.fromtimestamp(start + 4 * 86400, UTC)
    assert [line["path"] for line in read(tmp_path, since=moment)] == ["/4", "/5"]


def test_a_full_file_is_turned_and_nothing_is_pushed_out_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES", 4000)
    monkeypatch.setattr(audit, "KEPT_BYTES", 40_000)
    made = Audit(tmp_path, 30)
    for n in range(60):
        made.write(entry(path=f"/{n}"))
    assert [line["path"] for line in read(tmp_path)] == [f"/{n}" for n in range(60)]
    assert len(audit.files(tmp_path)) > 3
    for n in range(400):
        made.write(entry(path=f"/{n}"))
    kept = [line["path"] for line in read(tmp_path)]
    assert kept == [f"/{n}" for n in range(400 - len(kept), 400)] and len(kept) > 80
    assert sum(path.stat().st_size for path in audit.files(tmp_path)) < 50_000


def test_a_full_disk_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = Audit(tmp_path, 30)
    made.write(entry(path="/before"))
    real = os.write

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    for writing in (full, lambda file, data: real(file, data[:20])):
        monkeypatch.setattr(audit.os, "write", writing)
        made.write(entry(path="/lost"))
        made.write(entry(path="/lost"))
    monkeypatch.setattr(audit.os, "write", real)
    made.write(entry(path="/after"))
    assert len(caplog.records) == 1 and caplog.records[0].levelname == "ERROR"
    assert [line["path"] for line in read(tmp_path)] == ["/before", "/after"]
    (tmp_path / "audit.jsonl").unlink()  # and one that was taken away begins anew
    made.write(entry(path="/anew"))
    assert [line["path"] for line in read(tmp_path)] == ["/anew"]


def test_lines_outlive_a_kill(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from clawd.gateway.audit import Audit, Entry\n"
        "made = Audit(Path(sys.argv[1]), 30); made.write(Entry('g', 'r', path='/kept'))\n"
        "print('written', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"written\n"
        child.send_signal(signal.SIGKILL)
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"ts": "2026-')  # what a kill in the middle leaves
    Audit(tmp_path, 30).write(entry(path="/next"))
    assert [line["path"] for line in read(tmp_path)] == ["/kept", "/next"]


def test_what_a_crash_cuts_off_has_its_line(tmp_path: Path) -> None:
    made = Audit(tmp_path, 30)
    first, second = entry(path="/first"), entry(path="/second")
    begun = made.begin(first), made.begin(second)
    assert [(line["path"], line["rule"]) for line in read(tmp_path)] == [
        ("/first", "under_way"),
        ("/second", "under_way"),
    ]
    made.write(second, begun[1])
    assert [(line["path"], line["rule"]) for line in read(tmp_path)] == [
        ("/second", "granted"),
        ("/first", "under_way"),
    ]
    after = Audit(tmp_path, 30)  # as if the first had been killed
    for name in ("/a", "/b"):
        after.write(entry(path=name), after.begin(entry(path=name)))
    lines = [(line["path"], line["rule"]) for line in read(tmp_path)]
    assert lines == [("/second", "granted"), ("/first", "interrupted"), ("/a", "granted"), ("/b", "granted")]
    slots = (tmp_path / "under-way").stat()
    assert slots.st_size == 2 * SLOT and stat.S_IMODE(slots.st_mode) == 0o600


def test_while_no_line_can_be_written_nothing_is_let_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Audit(tmp_path, 30)
    begun = made.begin(entry(path="/sent"))

    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(audit.os, "write", full)
        made.write(entry(path="/sent"), begun)
        with pytest.raises(StorageError, match="the gateway's audit cannot be written"):
            made.begin(entry())
        assert [(line["path"], line["rule"]) for line in read(tmp_path)] == [("/sent", "granted")]
        made.write(entry("unavailable"))
        assert [line["path"] for line in read(tmp_path)] == ["/sent"]
    made.write(entry("unavailable"))  # each refusal tries again
    made.write(entry(path="/next"), made.begin(entry(path="/next")))
    assert [(line["path"], line["rule"]) for line in read(tmp_path)] == [
        ("/v1", "unavailable"),
        ("/sent", "granted"),
        ("/next", "granted"),
    ]


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1d", 86400),
        ("2026-01-02T03:04:05+00:00", None),
        ("2026-01-02", None),
    ],
)
def test_since(text: str, ago: int | None) -> None:
    now = datetime(2026, 1, 10, tzinfo=UTC)
    moment = since(text, now)
    assert moment is not None and (ago is None or moment == now - timedelta(seconds=ago))


@pytest.mark.parametrize("text", ["", "x", "h", "-1h", "1w", "2026", "99999999999d"])
def test_no_moment(text: str) -> None:
    assert since(text, datetime.now(UTC)) is None


@pytest.mark.anyio
async def test_every_request_has_its_line(stage: Stage, upstream: Upstream) -> None:
    stage.serves("shop", f'base_url = "{upstream.url}"\nallow_private = true\npaths = ["/v1"]')
    asked = [
        ("/svc/shop/v1?secret=1", "allow", "granted", 200),
        ("/svc/shop/v2", "deny", "path", 403),
        ("/svc/none/v1?secret=1", "deny", "unknown_service", 403),
        ("/svc/shop/%2e%2e/v1?secret=1", "deny", "malformed", 400),
        ("http://evil.test/x?secret=1", "deny", "not_granted", 403),
        ("evil.test:443", "deny", "not_granted", 403),
    ]
    for n, (target, verdict, rule, status) in enumerate(asked, 1):
        method = "CONNECT" if target.endswith(":443") else "GET"
        host = ["Host: evil.test"] if "evil" in target else []
        got = await stage.ask(target, *host, method=method)
        line = await stage.entry(n)
        assert got.status == status
        assert (line["verdict"], line["rule"], line["status"], line["method"]) == (verdict, rule, status, method)
        assert (line["group"], line["run"], line["turn"]) == ("main", "run-a", 1) or rule == "malformed"
        assert line["ms"] >= 0 and "secret" not in json.dumps(line)
    assert [line["host"] for line in stage.entries()] == ["127.0.0.1", "", "", "", "evil.test", "evil.test"]
    assert len(stage.a.sentences) == 5 and "path" in stage.a.sentences[0] and stage.a.alarms == []


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from clawd.cli.main import run

    home = tmp_path / "home"
    assert run(["init", str(home)]) == 0
    made = Audit(Home(home).state / "audit", 30)
    made.write(entry(path="/one"))
    made.write(entry("path", "other", "/two"))
    capsys.readouterr()

    def shown(*options: str) -> list[dict[str, object]]:
        assert run(["gateway", "audit", "--home", str(home), "--json", *options]) == 0
        return list(json.loads(capsys.readouterr().out))

    assert [line["path"] for line in shown()] == ["/one", "/two"] and list(shown()[0]) == NAMES.split()
    assert [line["path"] for line in shown("--group", "other")] == ["/two"]
    assert [line["path"] for line in shown("--since", "1h")] == ["/one", "/two"]
    assert shown("--since", "2999-01-01T00:00:00Z") == []
    assert run(["gateway", "audit", "--home", str(home), "--group", "none"]) == 5
    assert run(["gateway", "audit", "--home", str(home), "--since", "soon"]) == 2
    assert run(["gateway", "audit", "--home", str(home)]) == 0
    assert "/two" in capsys.readouterr().out
