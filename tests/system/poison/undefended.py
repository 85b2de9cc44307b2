"""The daemon without its defence of memory: whatever is written holds at once and is trusted as the owner's own, no
text is known again, nobody needs more trust to change a memory, and everything that is said may be cited. What the
attacks do to this one shows that they are some."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from clawd.cli.main import run
from clawd.memory import admission, citations, provenance
from clawd.memory.admission import Admission
from clawd.memory.record import Said
from tests.system.watched import watch


def lay_down(put: Callable[[Any, str, Any], None] = setattr) -> None:
    """Of this process."""
    put(admission, "admitted", lambda *words, **more: Admission(1.0, 1.0, "active"))
    put(admission, "may_change", lambda *words, **more: "")
    put(citations, "checked", lambda said, heard: Said(str(said.get("quote", ""))))
    stamp_of = provenance.stamp_of

    def forgetful(line: bytes) -> Any:
        stamp = stamp_of(line)
        gone = stamp is None or stamp.op in ("quarantine", "reject", "delete") or stamp.status == "quarantined"
        return None if gone else stamp

    put(provenance, "stamp_of", forgetful)


if __name__ == "__main__":
    lay_down()
    watch()
    sys.exit(run(sys.argv[1:]))
