"""The error tree. Each error carries the sentence that the person reads and, where there is one, what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

_TOLD = 3  # findings of one sentence


class ClawdError(Exception):
    """Something that a person must be told. `code` is the exit code of a command that ends with it."""

    code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(ClawdError):
    """The command line, or a request, is not one that we understand."""

    code = 2


class HomeBusy(ClawdError):
    """Another daemon holds this home."""

    code = 3


class Refused(ClawdError):
    """A config or state file cannot be used as it stands: the file is kept, nothing is written."""

    code = 4


class ConfigError(Refused):
    """`config.toml`, `group.toml` or another file that a person writes is wrong. `errors` has one entry a finding."""

    def __init__(self, message: str, *, hint: str | None = None, errors: list[dict[str, str]] | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errors = errors or []


class LedgerCorrupt(Refused):
    """`state/ledger.db` is damaged."""


class LedgerNewer(Refused):
    """`state/ledger.db` was written by a newer program: there is nothing to mend."""


class NotFound(ClawdError):
    """What was asked for does not exist."""

    code = 5


class NotBuilt(ClawdError):
    """A command of the contract whose room is not built yet."""


class UnsafePath(ClawdError):
    """A path would leave its root, follow a link, or is not a regular file."""


class StorageError(ClawdError):
    """The disk is full, read-only or failing: nothing was accepted, nothing was lost."""


class DiskFull(StorageError):
    """It goes on by itself when there is space."""


class Ending(StorageError):
    """The daemon is on its way out and took nothing in: the next one does."""


class LeaseLost(ClawdError):
    """A step, tool call or final of an attempt that no longer holds its turn."""


class SandboxUnavailable(ClawdError):
    """No sandbox can be made now. The turn is held, and its chat is told `message` once."""


class IllegalMove(ClawdError):
    """A defect of ours: a state was asked to move where the table has no such move."""


def told(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The sentence for a person among what ended a group of tasks; the whole where there is none."""
    for each in failures.exceptions:
        found = told(each) if isinstance(each, BaseExceptionGroup) else each
        if isinstance(found, ClawdError):
            return found
    return failures


def findings(error: ValidationError, whole: str) -> str:
    """What is wrong with a value, which is called `whole`, in one line that repeats nothing of it."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    named = [f"{'.'.join(str(part)[:40] for part in each['loc']) or whole}: {each['msg']}" for each in found]
    more = f"; and {len(named) - _TOLD} more" if len(named) > _TOLD else ""
    return "; ".join(named[:_TOLD]) + more
