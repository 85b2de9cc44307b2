"""Logs: one JSON line an event, in a file that is rotated by size; a person's short lines on standard error.

Lines hold ids, sizes and rules, never content. Every line passes the redactor as a whole, so that no secret
that was ever revealed is in it, in any of the forms that it travels in. Logging never raises, also not on a
full disk.
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
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from urllib.parse import quote, quote_plus

from clawd.clock import rfc3339
from clawd.config.secrets import known_secrets

FILE_BYTES = 10 << 20
FILES = 5
KEEP_DAYS = 30
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
        self._pattern: re.Pattern[str] | None = None

    def add(self, secret: str) -> None:
        """Know a secret that is not in the config: a run's token."""
        self._added.add(secret)
        self._known = frozenset()

    def clean(self, text: str) -> str:
        known = known_secrets() | self._added
        if known != self._known:
            every = sorted({form for secret in known for form in forms(secret)}, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, every))) if every else None
            self._known = known
        return self._pattern.sub(HIDDEN, text) if self._pattern else text


redactor = Redactor()


class JsonLine(logging.Formatter):
    """ts, level, logger, msg, what `extra` gave (group, turn, wake, run), and `exc` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": redactor.clean(_message(record)),  # before it is escaped once more
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD and key not in line}
        if record.exc_info:
            line["exc"] = redactor.clean(self.formatException(record.exc_info))
        # Surrogates are escaped, so that any text can be written.
        return redactor.clean(json.dumps(line, default=str, ensure_ascii=True))


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
    """The daemon's log: 0600, rotated by size, opened again when someone moved it away, silent when it cannot
    write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=FILES, encoding="utf-8", delay=True)

    def _open(self) -> TextIOWrapper:
        Path(self.baseFilename).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None and not self._still_there(self.stream):
            self.close()
        super().emit(record)

    def _still_there(self, stream: TextIOWrapper) -> bool:
        try:
            return os.path.samestat(os.fstat(stream.fileno()), Path(self.baseFilename).stat())
        except (OSError, ValueError):
            return False

    def doRollover(self) -> None:
        super().doRollover()
        drop_old(Path(self.baseFilename))

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk must not break what was being logged. What the buffer holds is lost with its line."""
        with contextlib.suppress(OSError, ValueError):
            self.close()


def drop_old(path: Path, now: float | None = None) -> None:
    """Remove rotated logs whose last line is older than 30 days."""
    oldest = (time.time() if now is None else now) - KEEP_DAYS * 86400
    for rotated in path.parent.glob(f"{path.name}.*"):
        with contextlib.suppress(OSError):
            if rotated.stat().st_mtime < oldest:
                rotated.unlink()


def setup(log_file: Path | None, level: str = "info", stderr: bool = False) -> None:
    """Log to `log_file` and, with `stderr`, to standard error. A second call takes the place of the first."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if getattr(handler, "_clawd", False):
            root.removeHandler(handler)
            handler.close()
    handlers: list[logging.Handler] = []
    if log_file is not None:
        drop_old(log_file)
        handlers.append(LogFile(log_file))
        handlers[-1].setFormatter(JsonLine())
    if stderr:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[-1].setFormatter(PlainLine())
    for handler in handlers:
        handler._clawd = True  # type: ignore[attr-defined]
        root.addHandler(handler)
    root.setLevel(level.upper())
    logging.raiseExceptions = False  # what cannot be logged is not printed either: it may hold a secret
