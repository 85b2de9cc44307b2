"""From words to a command, and from an error to a sentence and an exit code. No traceback ever reaches a
person.

Only what the chosen command needs is imported.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from clawd import __version__
from clawd.cli.catalogue import COMMANDS, Command
from clawd.cli.clean import clean
from clawd.errors import ClawdError, NotBuilt, UsageError

INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """argparse with errors of ours."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} --help")


def run(argv: list[str]) -> int:
    """Do what the command line says; gives the exit code."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="replace")
    command: Command | None = None
    as_json = "--json" in argv[: argv.index("--")] if "--" in argv else "--json" in argv
    try:
        command, arguments = parse(argv)
        code = _do(command, arguments) if command else 0
        sys.stdout.flush()
        return code
    except ClawdError as error:
        _tell(error, as_json)
        return command.failure if command and command.failure is not None else error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough. The interpreter flushes once more at its end: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:
        if os.environ.get("CLAWD_DEBUG"):
            raise
        _record(argv, error)
        what = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else "a defect"
        _tell(ClawdError(f"the command failed ({what})", hint="CLAWD_DEBUG=1 shows where"), as_json)
        return command.failure if command and command.failure is not None else 1


def parse(argv: list[str]) -> tuple[Command | None, list[str]]:
    """The command that `argv` names and the arguments that are left for it, `--home` and `--json` among them.

    None when help or the version was asked for, and printed. Raises UsageError.
    """
    rest, words, shared = list(argv), list[str](), list[str]()
    while rest and tuple(words) not in COMMANDS:
        word = rest.pop(0)
        if word == "--home" and rest:
            shared += [word, rest.pop(0)]
        elif word == "--json" or word.startswith("--home="):
            shared.append(word)
        elif word in ("-h", "--help", "help"):
            print_help(words)
            return None, []
        elif word in ("-V", "--version") and not words:
            sys.stdout.write(f'{{"version": "{__version__}"}}\n' if "--json" in argv else f"clawd {__version__}\n")
            return None, []
        elif word.startswith("-"):
            raise UsageError(f"clawd knows no option {word}", hint=_nearest(word, ("--home", "--json", "--version")))
        else:
            known = {each[len(words)] for each in COMMANDS if list(each[: len(words)]) == words}
            if word not in known:
                raise UsageError(f"there is no command `clawd {' '.join([*words, word])}`", hint=_nearest(word, known))
            words.append(word)
    command = COMMANDS.get(tuple(words))
    if command is None:
        said = " ".join(("clawd", *words))
        verbs = ", ".join(dict.fromkeys(each[len(words)] for each in COMMANDS if list(each[: len(words)]) == words))
        raise UsageError(f"{said} needs one of: {verbs}" if words else "say what to do", hint=f"{said} --help")
    return command, [*shared, *rest]


def _do(command: Command, arguments: list[str]) -> int:
    name = " ".join(("clawd", *command.words))
    if not command.does:
        raise NotBuilt(f"{name} is not built yet")
    parser = Parser(prog=name, description=command.help, allow_abbrev=False)
    parser.add_argument(
        "--home", metavar="DIR", help="the home (default: CLAWD_HOME, this directory if it is one, ~/clawd)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    for argument in command.arguments:
        parser.add_argument(*argument.names, **argument.settings)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        flags = [flag for each in command.arguments for flag in each.names if flag.startswith("-")]
        raise UsageError(
            f"{name} does not take {unknown[0]}", hint=_nearest(unknown[0], ["--home", "--json", *flags], name)
        )

    from clawd.config.home import find_home, require_home

    try:
        current = Path.cwd()
    except FileNotFoundError:  # it was removed under us
        current = Path("/")
    home = find_home(options.home, dict(os.environ), current)
    passed_over = None if options.home or os.environ.get("CLAWD_HOME") else current
    module, _, function = command.does.partition(":")
    if command.home and (require_home(home, passed_over).state / "restoring.json").exists():
        from clawd.backups.restoring import finish_alone

        finish_alone(home)
    code: int = getattr(import_module(f"clawd.cli.{module}"), function)(options, home)
    return code


def print_help(words: list[str]) -> None:
    """All commands, or those that begin with `words`."""
    lines = ["usage: clawd [--home DIR] [--json] COMMAND …   (clawd COMMAND --help tells more)", ""]
    for each, command in COMMANDS.items():
        if list(each[: len(words)]) == words and (command.does or words):
            name = f"  {' '.join(each)}"
            lines += [f"{name:<20} {command.help}"] if len(name) <= 20 else [name, f"{'':<20} {command.help}"]
    sys.stdout.write("\n".join(lines) + "\n")


def _nearest(word: str, known: Iterable[str], command: str = "clawd") -> str:
    near = difflib.get_close_matches(word.partition("=")[0], sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else f"{command} --help"


def _tell(error: ClawdError, as_json: bool) -> None:
    import json

    if as_json:
        sys.stdout.write(json.dumps({"error": error.message, "hint": error.hint}) + "\n")
        sys.stdout.flush()
    sys.stderr.write(clean(f"clawd: {error}\n"))


def _record(argv: list[str], error: Exception) -> None:
    """Keep where an unexpected error happened, never what it said: that may be content."""
    import json
    import traceback

    from clawd.clock import SystemClock, rfc3339
    from clawd.config.home import find_home

    homes = [argv[i + 1] for i, word in enumerate(argv[:-1]) if word == "--home"]
    file = find_home(homes[0] if homes else None, dict(os.environ), Path("/")).log_file
    where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    line = {
        "ts": rfc3339(SystemClock().now()),
        "level": "error",
        "logger": "clawd.cli",
        "error": type(error).__name__,
    }
    try:
        with file.open("a", encoding="utf-8") as log:
            log.write(json.dumps({**line, "message": "a command failed", "where": where}) + "\n")
    except OSError as unwritable:
        sys.stderr.write(clean(f"clawd: the log takes nothing: {unwritable}\n"))
