"""What a conversation looks like: streamed text, a spinner while the agent works, and lines that never tear
the input.

Used from two threads: the person's, which reads lines, and the link's, which hears events. Everything that is
shown passes the cleaner.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from typing import TYPE_CHECKING, Any

from clawd.cli.clean import clean

if TYPE_CHECKING:
    from rich.status import Status

PROMPT = "you › "


class Screen:
    """A terminal, or a pipe, which gets whole messages and nothing else."""

    def __init__(self) -> None:
        self.live = sys.stdin.isatty() and sys.stdout.isatty()
        self._colour = self.live and not os.environ.get("NO_COLOR")
        self._lock = threading.RLock()
        self._prompting = self._busy = False
        self._status: Status | None = None
        self._turn: int | None = None
        self._streamed = ""  # what is on the screen of the message that is being written
        self._torn: int | None = None  # the turn whose message something else came into: it is shown when it is whole
        if self.live:
            import readline

            readline.parse_and_bind("set enable-bracketed-paste on")  # pasted lines are one message
            self._readline = readline

    def ask(self) -> str | None:
        """The person's next line, None at the end."""
        if not self.live:
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        prompt = f"\x01\x1b[1;36m\x02{PROMPT}\x01\x1b[0m\x02" if self._colour else PROMPT
        with self._lock:
            self._prompting = True
        try:
            return input(prompt)
        except EOFError:
            sys.stdout.write("\n")
            return None
        except KeyboardInterrupt:
            sys.stdout.write("\n")
            raise
        finally:
            with self._lock:
                self._prompting = False

    def working(self, what: str | None) -> None:
        """Show that something is going on from now on, or, with None, that nothing is."""
        with self._lock:
            self._busy = what is not None
            self._spin(what)

    def _spin(self, what: str | None) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if what is not None and self.live and self._busy and not self._prompting:
            from clawd.cli.page import console

            self._status = console().status(clean(what))
            self._status.start()

    def delta(self, data: dict[str, Any]) -> None:
        """A piece of the agent's text, as it comes."""
        with self._lock:
            if not self.live or self._prompting or data.get("turn") == self._torn:
                return
            if data.get("turn") != self._turn:
                self._break(data.get("turn"))
            self._spin(None)
            self._streamed += data["text"]
            self._write(data["text"])

    def tool(self, data: dict[str, Any]) -> None:
        """The agent uses a tool: what it wrote so far stands as it is."""
        with self._lock:
            if self._prompting:
                return
            self._break(data.get("turn"))
            self._torn = None
            running = data.get("phase") in ("start", "begin", "running")
            self._spin(f"{data.get('name', 'tool')} …" if running else "thinking …")

    def turn(self, data: dict[str, Any]) -> None:
        """A turn moved; one that starts anew writes anew."""
        with self._lock:
            if data.get("state") in ("queued", "claimed") and not self._prompting:
                self._break(data.get("turn"))
                self._torn = None
                self._spin("thinking …")

    def message(self, data: dict[str, Any]) -> None:
        """A delivery: its text unless it was streamed, its file."""
        with self._lock:
            if data["kind"] == "file":
                self.line(f"[file] {data['name'] or ''}  {data['path'] or ''}\n{data['text'] or ''}".rstrip())
            elif data["kind"] == "notice":
                self.line(data["text"], style="33")
            else:
                text, have = data["text"].strip(), self._streamed.strip()
                if data["turn"] == self._turn and have and (have.endswith(text) or text.startswith(have)):
                    self._write(text[len(have) :] if text.startswith(have) else "")
                    self._break(self._turn)
                else:
                    self.line(text)

    def line(self, text: str, style: str = "") -> None:
        """A whole line of its own, also while the person is typing."""
        text = clean(text)
        if style and self._colour:
            text = f"\x1b[{style}m{text}\x1b[0m"
        with self._lock:
            status = self._status
            if status is not None:
                status.stop()
            if self._streamed:
                self._torn = self._turn
                self._break(self._turn)
            if self._prompting:
                typed = self._readline.get_line_buffer()
                columns = max(1, shutil.get_terminal_size().columns)
                rows = sum(len(each) // columns + 1 for each in f"{PROMPT}{typed}".split("\n")) - 1
                up = f"\x1b[{rows}A" if rows else ""
                prompt = f"\x1b[1;36m{PROMPT}\x1b[0m" if self._colour else PROMPT
                sys.stdout.write(f"{up}\r\x1b[J{text}\n{prompt}{typed}")
            else:
                sys.stdout.write(text + "\n")
            sys.stdout.flush()
            if status is not None:
                status.start()

    def _write(self, text: str) -> None:
        sys.stdout.write(clean(text))
        sys.stdout.flush()

    def _break(self, turn: int | None) -> None:
        """End the message that is being written."""
        if self._streamed and not self._streamed.endswith("\n"):
            self._write("\n")
        self._turn, self._streamed = turn, ""
