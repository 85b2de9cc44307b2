"""The view: what an agent is shown of its group's own files, copied by the daemon and read-only inside.

An edit on the host is the owner's word, so a source counts only if it surely is (`files.read_owned`). One that is not
is refused aloud, and what was shown of it before stays.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from clawd.config.home import GroupHome
from clawd.errors import Refused, UnsafePath
from clawd.files import read_owned, write_atomic
from clawd.sandbox.directories import MOUNT_POINTS


@dataclass(frozen=True, slots=True)
class Rendered:
    """`changed`: whether a file in the view was renewed. `refused`: a sentence for the person for each bad
    source."""

    changed: bool
    refused: tuple[str, ...] = ()


def render(view: Path, group: GroupHome) -> Rendered:
    """Bring the view up to date. Each file is replaced whole, and only when its source differs from what is
    shown."""
    for directory in (view, *(view / name for name in MOUNT_POINTS)):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
    changed, refused = False, []
    for source in (group.claude_md, group.user_profile):
        shown = view / source.name
        before = None
        with contextlib.suppress(FileNotFoundError):
            before = shown.read_bytes()
        try:
            now = read(source)
        except FileNotFoundError:
            shown.unlink(missing_ok=True)
            changed |= before is not None
        except Refused as error:
            refused.append(error.message)
        else:
            if now != before:
                write_atomic(shown, now, 0o644)
                changed = True
    return Rendered(changed, tuple(refused))


def read(source: Path) -> bytes:
    """What the owner wrote. Raises FileNotFoundError, Refused with a sentence for the person."""
    try:
        return read_owned(source.parent, source.name)
    except FileNotFoundError:
        raise
    except (UnsafePath, OSError) as error:
        why = error.message if isinstance(error, UnsafePath) else f"it cannot be read: {error.strerror}"
        raise Refused(f"{source} is not used: {why}") from error
