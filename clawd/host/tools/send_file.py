"""`send_file`: a file of `work/` to the turn's chat. What is sent is the copy made now, whatever the agent
does next."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field

from clawd.errors import StorageError, UnsafePath
from clawd.host.tools import Act, ToolContext

if TYPE_CHECKING:
    from clawd.ledger.db import Transaction

NAME = "send_file"
DESCRIPTION = "Send a file of /group/work to this chat now."
DECLARED = ("path",)
HELP = (
    "What is sent is a copy made now, with a `caption` if you like. `to` is as in send_message. A turn has 10 files,"
    " which count as sends."
)
WORK = PurePosixPath("/group/work")


class Arguments(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    path: str = Field(max_length=4096)
    caption: str = Field(default="", max_length=4096)
    to: str = Field(default="", max_length=300, description="another chat of this group; empty: this one")


def beneath_work(path: str) -> str:
    """The path below `work/` that an agent means by `notes.md`, `./notes.md` or `/group/work/notes.md`.
    Raises UnsafePath for one that lies elsewhere."""
    pure = PurePosixPath(path)
    if not pure.is_absolute():
        return path
    if not pure.is_relative_to(WORK):
        raise UnsafePath(f"only files below {WORK} can be sent")
    return str(pure.relative_to(WORK))


def shown_name(path: str) -> str:
    """The file's name as a person may be shown it: one line, nothing that moves a cursor."""
    return "".join(letter if letter.isprintable() else "_" for letter in PurePosixPath(path).name)[:255]


async def prepare(context: ToolContext, arguments: Arguments) -> Act:
    """Raises UnsafePath for what is no file of `work/`, or too large, StorageError when it cannot be
    copied."""
    path = beneath_work(arguments.path)
    try:
        blob, size = await to_thread.run_sync(context.blobs.keep, context.work, path, context.max_file_bytes)
    except (FileNotFoundError, IsADirectoryError):
        raise UnsafePath(f"there is no file {path!r} in work/") from None
    except PermissionError:
        raise UnsafePath(f"{path!r} cannot be read") from None
    except OSError as error:
        raise StorageError(f"{path!r} could not be copied: {error.strerror}") from error
    name = shown_name(path)

    def act(tx: Transaction, effect_id: int) -> dict[str, Any]:
        text, to = arguments.caption, arguments.to
        waits = context.enqueue(tx, effect_id, kind="file", text=text, blob=blob, name=name, to=to)
        return waits or {"queued": "file", "name": name, "bytes": size}

    return act
