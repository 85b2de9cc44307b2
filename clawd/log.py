"""Logs: one JSON line an event, in a file that is rotated by size and age; a person's short lines on standard error.

Lines hold ids, sizes and rules, never content. Every line passes the redactor as a whole, so that no secret
that was ever revealed is in it, in any of the forms that it travels in. Repeats are folded, so that nobody can flood
the log; how many there were stands in it. Logging never raises, also not on a full disk.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal
from urllib.parse import quote, quote_plus

from clawd.clock import moment_of, rfc3339
from clawd.config.secrets import known_secrets

FILE_BYTES = 10 << 20
FILES = 5  # beside the one that is written
KEEP_DAYS = 30
REPEATS, REPEATS_S = 100, 60.0  # so many lines of one logger and template, and how long they are counted
MOST_COUNTED = 500  # loggers and templates at a time
LONGEST_TEXT = 16 << 10  # characters of a message, and of a traceback
HIDDEN = "[secret]"
_SHORTEST = 4  # hiding shorter ones would hide ordinary words, and say more than it keeps
# Beyond what a terminal may be sent: C0, C1, and characters that turn the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def forms(secret: str) -> set[str]:
    """How a secret may look in a line: raw, escaped in JSON, quoted in a URL, in base64 at any offset."""
    found = {secret, quote(secret, safe=""), quote(secret), quote_plus(secret)}
    found |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    found |= {re.sub("%..", lambda match: match[0].lower(), form) for form in list(found)}
    raw = secret.encode("utf-8", "surrogatepass")
    for offset in range(3):
        # Only the characters that all of the secret's bits decide: its neighbours share the others.
        whole = base64.b64encode(b"\0" * offset + raw).decode().rstrip("=")
        inner = whole[-(-offset * 8 // 6) : (offset + len(raw)) * 8 // 6]
        found |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {form for form in found if len(form) >= _SHORTEST}


class Redactor:
    """Replaces every form of every known secret in a text."""

    def __init__(self) -> None:
        self._added: set[str] = set()
        self._known: frozenset[str] = frozenset()
        self._forms: list[str] = []  # the longest first; no pattern: they change, and `re` keeps every one

    def add(self, secret: str) -> None:
        """Know a secret that is not in the config: a run's token."""
        self._added.add(secret)

    def clean(self, text: str) -> str:
        known = known_secrets() | self._added
        if known != self._known:
            self._forms = sorted({form for secret in known for form in forms(secret)}, key=len, reverse=True)
            self._known = known
        for form in self._forms:
            if form in text:
                text = text.replace(form, HIDDEN)
        return text


redactor = Redactor()


class JsonLine(logging.Formatter):
    """ts, level, logger, msg, what `extra` gave (group, turn, wake, run), and `exc` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": _cut(redactor.clean(_message(record))),  # before it is escaped once more
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD and key not in line}
        if record.exc_info:
            line["exc"] = _cut(redactor.clean(self.formatException(record.exc_info)))
        # Surrogates are escaped, so that any text can be written.
        return redactor.clean(json.dumps(line, default=str, ensure_ascii=True))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} [{len(text)} characters]"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as error:  # arguments that do not fit, or a str() that raises: the line is still wanted
        return f"{record.msg} [{type(error).__name__} in its arguments]"


class PlainLine(logging.Formatter):
    """For a person at a terminal: time, level and message; nothing in it can move the cursor."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        text = f"{moment} {record.levelname.lower()}: {_message(record)}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return _CONTROL.sub("\ufffd", redactor.clean(text))


class LogFile(RotatingFileHandler):
    """The daemon's log: 0600, rotated by size and by age, so that no line is kept for more than `days`; opened again
    when someone moved it away, silent when it cannot write."""

    def __init__(self, path: Path, days: int) -> None:
        self._days = days
        self._begun: float | None = None  # when the first line of the file was written, once that is known
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=FILES, encoding="utf-8", delay=True)
        drop_old(path, days)

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.baseFilename, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._begun = _first_line(descriptor)
        return os.fdopen(descriptor, "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None and not self._still_there(self.stream):
            self.close()
        super().emit(record)
        if self._begun is None:
            self._begun = record.created

    def _still_there(self, stream: TextIOWrapper) -> bool:
        try:
            return os.path.samestat(os.fstat(stream.fileno()), Path(self.baseFilename).stat())
        except (OSError, ValueError):
            return False

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        too_large = super().shouldRollover(record)
        return bool(too_large) or record.created - (self._begun or record.created) > self._days * 86400 / (FILES + 2)

    def doRollover(self) -> None:
        super().doRollover()
        drop_old(Path(self.baseFilename), self._days)

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk must not break what was being logged. What the buffer holds is lost with its line."""
        with contextlib.suppress(OSError, ValueError):
            self.close()


def _first_line(descriptor: int) -> float | None:
    """When the first line of a log was written; None when it has none that tells."""
    begins = re.match(rb'{"ts": "([^"]+)"', os.pread(descriptor, 64, 0))
    moment = moment_of(begins[1].decode("ascii", "replace")) if begins else None
    return moment.timestamp() if moment else None


def drop_old(path: Path, days: int, now: float | None = None) -> None:
    """Remove rotated logs whose last line is older than so many days."""
    oldest = (time.time() if now is None else now) - days * 86400
    for rotated in path.parent.glob(f"{path.name}.*"):
        with contextlib.suppress(OSError):
            if rotated.stat().st_mtime < oldest:
                rotated.unlink()


@dataclass(slots=True)
class _Repeats:
    """Lines of one logger and template since `begun`."""

    begun: float
    count: int = 0


class Folded(logging.Handler):
    """Hands lines on to other handlers. Of one logger and template only the first hundred of a minute; that more of
    them come is said at once, how many there were with the first line after that minute."""

    def __init__(self, handlers: Sequence[logging.Handler]) -> None:
        super().__init__()
        self._handlers = handlers
        self._repeats: dict[tuple[str, int, str], _Repeats] = {}  # the oldest first

    def emit(self, record: logging.LogRecord) -> None:
        self._settle(record.created)
        key = (record.name, record.levelno, str(record.msg))
        repeats = self._repeats.setdefault(key, _Repeats(record.created))
        repeats.count += 1
        if repeats.count <= REPEATS:
            self._hand_on(record)
        elif repeats.count == REPEATS + 1:
            self._say(
                key, record.created, "repeated more than %d times in a minute, from now on only counted: %s", REPEATS
            )

    def _settle(self, now: float | None) -> None:
        """Say what was folded in minutes that are over, all of it when there is no `now`."""
        while self._repeats:
            key, oldest = next(iter(self._repeats.items()))
            # A clock that was set back must not stop this.
            if now is not None and len(self._repeats) < MOST_COUNTED and abs(now - oldest.begun) < REPEATS_S:
                return
            del self._repeats[key]
            if oldest.count > REPEATS:
                self._say(key, time.time() if now is None else now, "repeated %d times: %s", oldest.count - REPEATS)

    def _say(self, key: tuple[str, int, str], now: float, text: str, count: int) -> None:
        name, level, template = key
        line = {"name": name, "levelno": level, "levelname": logging.getLevelName(level), "created": now}
        self._hand_on(logging.makeLogRecord({**line, "msg": text, "args": (count, template)}))

    def _hand_on(self, record: logging.LogRecord) -> None:
        for handler in self._handlers:
            handler.handle(record)

    def close(self) -> None:
        with self.lock or contextlib.nullcontext():
            self._settle(None)
            for handler in self._handlers:
                handler.close()
        super().close()


def setup(
    log_file: Path | None, level: str = "info", stderr: Literal["json", "text"] | None = None, days: int = KEEP_DAYS
) -> None:
    """Log to `log_file`, which keeps `days`, and in the form `stderr` to standard error. A second call takes the place
    of the first."""
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, Folded)]:
        root.removeHandler(handler)
        handler.close()
    handlers: list[logging.Handler] = []
    if log_file is not None:
        handlers.append(LogFile(log_file, days))
        handlers[-1].setFormatter(JsonLine())
    if stderr:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[-1].setFormatter(JsonLine() if stderr == "json" else PlainLine())
    if handlers:
        root.addHandler(Folded(handlers))
    root.setLevel(level.upper())
    logging.raiseExceptions = False  # what cannot be logged is not printed either: it may hold a secret
