"""Logs: JSON lines without secrets, rotated, private, and never in the way."""

import base64
import io
import json
import logging
import os
import re
import stat
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd import log
from clawd.config.secrets import Secret
from tests.sessions.strategies import steady

CANARY = 'sk-CANARY "9f8e7d"/é+ü'
logger = logging.getLogger("clawd.test")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    root = logging.getLogger()
    level, raising = root.level, logging.raiseExceptions
    log.setup(tmp_path / "logs" / "clawd.jsonl", "info")
    yield tmp_path / "logs" / "clawd.jsonl"
    log.setup(None)
    root.setLevel(level)
    logging.raiseExceptions = raising


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def test_a_line_is_one_json_object(file: Path) -> None:
    logger.warning("claimed %d\nnow", 3, extra={"group": "main", "turn": 3, "wake": 1, "run": "r"})
    logger.debug("not this")
    (line,) = lines(file)
    assert line.pop("ts")[10] == "T"
    assert line == {
        "level": "warning", "logger": "clawd.test", "msg": "claimed 3\nnow",
        "group": "main", "turn": 3, "wake": 1, "run": "r",
    }  # fmt: skip
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_no_form_of_a_secret_reaches_the_log(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", CANARY)
    value = Secret("${env:KEY}").reveal()
    basic = base64.b64encode(f"user:{value}".encode()).decode()
    logger.info("raw %s", value, extra={"run": value})
    logger.info(value)
    logger.info("url https://x/?k=%s", urllib.parse.quote(value, safe=""))
    logger.info("form %s", re.sub("%..", lambda match: match[0].lower(), urllib.parse.quote_plus(value)))
    logger.info("json %s", json.dumps({"k": value}))
    logger.info("basic %s", basic)
    logger.info("dict %r", {"k": [value]})
    try:
        raise ValueError(value)
    except ValueError:
        logger.exception("failed")
    text = file.read_text("utf-8")
    assert "9f8e7d" not in text
    assert basic[8:-4] not in text
    assert len(lines(file)) == 8 and text.count(log.HIDDEN) >= 8
    assert lines(file)[-1]["exc"].startswith("Traceback")


@steady
@given(st.text(st.characters(codec="utf-8"), min_size=6, max_size=30), st.binary(max_size=5), st.binary(max_size=5))
def test_base64_is_known_wherever_the_secret_lies_in_it(secret: str, before: bytes, after: bytes) -> None:
    encoded = base64.b64encode(before + secret.encode() + after).decode()
    redactor = log.Redactor()
    redactor.add(secret)
    assert log.HIDDEN in redactor.clean(encoded)
    assert log.HIDDEN in redactor.clean(encoded.replace("+", "-").replace("/", "_"))


def test_a_secret_added_later_is_known_at_once() -> None:
    redactor = log.Redactor()
    assert redactor.clean("token-of-a-run") == "token-of-a-run"
    redactor.add("token-of-a-run")
    assert redactor.clean("a token-of-a-run b") == f"a {log.HIDDEN} b"


def test_the_file_is_rotated_by_size(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "FILE_BYTES", 2000)
    log.setup(file, "info")
    for n in range(200):
        logger.info(f"line {n}")
    kept = sorted(path.name for path in file.parent.iterdir())
    assert kept == ["clawd.jsonl"] + [f"clawd.jsonl.{n}" for n in range(1, log.FILES + 1)]
    assert all(path.stat().st_size <= 2000 for path in file.parent.iterdir())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in file.parent.iterdir())
    assert lines(file)[-1]["msg"] == "line 199"


def test_old_logs_are_dropped(file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    for n, age in ((1, 29), (2, 31)):
        rotated = file.with_name(f"{file.name}.{n}")
        rotated.write_text("{}\n")
        os.utime(rotated, (1e9 - age * 86400,) * 2)
    log.drop_old(file, 30, now=1e9)
    assert sorted(path.name for path in file.parent.iterdir()) == ["clawd.jsonl.1"]


class Later:
    """The time that lines get, seconds on from now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        made = logging.getLogRecordFactory()

        def make(*arguments: Any, **more: Any) -> logging.LogRecord:
            record = made(*arguments, **more)
            record.created += self.seconds
            return record

        monkeypatch.setattr(logging, "_logRecordFactory", make)


def test_no_line_is_kept_longer_than_it_may_be(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few there are, and whatever restarts come in between."""
    later = Later(monkeypatch)
    for day in range(60):
        later.seconds = day * 86400.0
        if day % 7 == 0:
            log.setup(file, "info", days=30)
        logger.info("day %d", day)
        kept = [json.loads(line)["msg"] for path in file.parent.iterdir() for line in path.read_text().splitlines()]
        assert f"day {day - 31}" not in kept
    assert f"day {59 - 20}" in kept


def test_a_flood_is_folded_and_counted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = Later(monkeypatch)
    for minute in range(3):
        later.seconds = minute * 61.0
        for n in range(1000):
            logger.warning("process %d was refused", n)
        logger.warning("something else")
    log.setup(None)
    texts = [line["msg"] for line in lines(file)]
    assert texts.count("something else") == 3
    assert sum(text.startswith("process") for text in texts) == 3 * log.REPEATS
    assert texts.count("repeated 900 times: process %d was refused") == 3
    assert texts[log.REPEATS].startswith("repeated more than 100 times") and len(texts) == 3 * (log.REPEATS + 3)


def test_what_is_counted_is_bounded_and_nothing_of_it_is_lost(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the clock is set back meanwhile."""
    later = Later(monkeypatch)
    for _ in range(log.REPEATS + 5):
        logger.info("first")
    for n in range(2 * log.MOST_COUNTED):
        logger.info(f"template {n}")
    (folded,) = [each for each in logging.getLogger().handlers if isinstance(each, log.Folded)]
    assert len(folded._repeats) <= log.MOST_COUNTED
    for _ in range(log.REPEATS + 7):
        logger.info("second")
    later.seconds = -7200.0
    logger.info("last")
    texts = [line["msg"] for line in lines(file)]
    assert "repeated 5 times: first" in texts and "repeated 7 times: second" in texts and texts[-1] == "last"


def test_a_line_has_an_end(file: Path) -> None:
    logger.info("%s", "x" * (1 << 20))
    assert len(lines(file)[0]["msg"]) < 2 * log.LONGEST_TEXT


def test_a_log_that_was_moved_away_is_made_again(file: Path) -> None:
    logger.info("one")
    file.rename(file.with_suffix(".old"))
    logger.info("two")
    assert [line["msg"] for line in lines(file)] == ["two"]


def test_what_does_not_fit_is_logged_all_the_same(file: Path) -> None:
    logger.info("%d %d", "x")
    logger.info("lone \ud800 surrogate, NUL \x00", extra={"odd": object()})
    assert lines(file)[0]["msg"].startswith("%d %d [")
    assert lines(file)[1]["msg"] == "lone \ud800 surrogate, NUL \x00"


def test_a_full_disk_never_raises(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        "import logging, resource, signal, sys; from pathlib import Path; from clawd import log\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "log.setup(Path(sys.argv[1]), 'info')\n"
        "logging.info('fits')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))\n"
        "for n in range(20): logging.info('x' * 100)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "logging.info('fits again')\n"
    )
    target = file.with_name("full.jsonl")
    done = subprocess.run([sys.executable, "-c", program, str(target)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    written = target.read_text().splitlines()
    assert json.loads(written[0])["msg"] == "fits" and "fits again" in written[-1]


def test_a_directory_that_cannot_be_written_never_raises(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where the directory should be")
    log.setup(tmp_path / "logs" / "clawd.jsonl")
    try:
        logger.warning("lost")
    finally:
        log.setup(None)


def test_a_person_gets_plain_lines(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    log.setup(file, "info", stderr="text")
    log.redactor.add("hidden-token")
    logger.error("\x1b[2Jgone \u202e hidden-token")
    logger.debug("not this")
    assert stream.getvalue()[9:] == f"error: \ufffd[2Jgone \ufffd {log.HIDDEN}\n"
    assert len(lines(file)) == 1
    stream.truncate(stream.seek(0))
    log.setup(file, "info", stderr="json")
    logger.error("the same")
    assert json.loads(stream.getvalue()) == lines(file)[1]
