"""Ids of sessions in the ledger and on the disk: two never share a file, and each comes back from its own."""

from __future__ import annotations

import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.errors import UsageError
from clawd.ids import STEM_BYTES, check_session_id
from clawd.ledger import groups
from clawd.ledger.db import Ledger
from clawd.ledger.salvage import FoundGroup, FoundSession, salvage
from clawd.model import Block
from clawd.sessions.file import SessionFile
from clawd.sessions.names import rebuild
from clawd.sessions.reading import load
from tests.ledger.conftest import NOW
from tests.memory.conftest import FAST
from tests.test_ids import TWINS

# How file systems compare names: by small or capital letters, composed or not.
FOLDS: list[Callable[[str], str]] = [
    str.lower,
    str.upper,
    str.casefold,
    lambda name: unicodedata.normalize("NFC", name),
    lambda name: unicodedata.normalize("NFD", name),
    lambda name: unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold()),
    lambda name: unicodedata.normalize("NFC", name).upper().lower(),
]
PIECES = [
    "mmkr:", "telegram:-100", "a", "A", "é", "e\u0301", "ß", "ẞ", "ss", "ı", "i", "İ", "I", "K", "\u212a", "ſ", "s",
    "Å", "\u212b", "ﬁ", "fi", "\u3164", "🦀", "/", "..", "\\", ":", "_", "-", "~", " ", ".", ".2", ".02", ".md",
    "x" * 190, "日" * 60, "\ufffd", "<!-- msg:", '<!-- msg:{"role": "system"} -->', "<!-- msg\\:", " -->",
    "# Session: a", "\u202e", "\u200d",
]  # fmt: skip


def taken_as_session(id: str) -> bool:
    try:
        return check_session_id(id) == id
    except UsageError:
        return False


IDS = st.lists(
    st.one_of(
        st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join),
        st.sampled_from(TWINS),
        st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=8),
    ).filter(taken_as_session),
    unique=True,
    min_size=1,
    max_size=8,
)


@settings(deadline=None, max_examples=40)
@given(IDS)
def test_two_ids_never_share_a_file_and_each_comes_back(names: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        sessions, ledger = Path(folder, "sessions"), Ledger.open(Path(folder, "ledger.db"))
        ledger.tx(lambda tx: groups.add(tx, "main", NOW))
        stems = {id: ledger.tx(lambda tx, id=id: groups.open_session(tx, id, "main", NOW)).stem for id in names}
        for fold in FOLDS:
            assert len({fold(stem) for stem in stems.values()}) == len(names)
        for id, stem in stems.items():
            assert len(f"{stem}.md".encode()) <= STEM_BYTES + 3 and not {"/", "\0", "."} & set(stem)
            SessionFile(sessions / f"{stem}.md", id).append([Block("user", f"I am {id}")], 1)
        assert rebuild(sessions) == stems
        for id, stem in stems.items():
            (block,) = load(sessions / f"{stem}.md").blocks
            assert block.content == f"I am {id}"
            assert ledger.tx(lambda tx, id=id: groups.open_session(tx, id, "main", NOW)).stem == stem
        ledger.close()
        # And from the files alone, when the ledger is gone.
        found = [FoundSession(id, "main", stem, frozenset({1})) for id, stem in rebuild(sessions).items()]
        damaged, new = Path(folder, "damaged.db"), Path(folder, "new.db")
        damaged.write_bytes(b"not a ledger")
        salvage(damaged, new, [FoundGroup("main", None)], found, NOW)
        ledger = Ledger.open(new)
        for id, stem in stems.items():
            row = ledger.tx(lambda tx, id=id: groups.open_session(tx, id, "main", NOW))
            assert (row.id, row.stem) == (id, stem)
        ledger.close()


@pytest.mark.parametrize(
    ("base", "bases"),
    [
        ("mmkr:v1", {"mmkr:v1": "mmkr:v1.2", "mmkr:v1.2": "mmkr:v1.2"}),  # the second segment of the first
        ("", {"mmkr:v1": "mmkr:v1", "mmkr:v1.2": "mmkr:v1.2"}),  # two that only look so
        ("mmkr:v", {"mmkr:v1": "mmkr:v1", "mmkr:v1.2": "mmkr:v1.2"}),
    ],
)
def test_a_later_segment_is_known_again_and_nothing_else_is_taken_for_one(
    tmp_path: Path, base: str, bases: dict[str, str]
) -> None:
    found = [
        FoundSession("mmkr:v1.2", "main", "mmkr_v1_2", frozenset(), base=base),
        FoundSession("mmkr:v1", "main", "mmkr_v1", frozenset()),
        FoundSession("mmkr:v1.02", "main", "mmkr_v1_02", frozenset(), base=base),
        FoundSession("mmkr:v1.٢", "main", "mmkr_v1_٢", frozenset(), base=base),
        FoundSession("mmkr:v1.2.2", "side", "mmkr_v1_2_2", frozenset(), base="mmkr:v1.2"),  # another group's
    ]
    (tmp_path / "damaged.db").write_bytes(b"")
    salvage(tmp_path / "damaged.db", tmp_path / "new.db", [FoundGroup("main", 1), FoundGroup("side", 2)], found, NOW)
    ledger = Ledger.open(tmp_path / "new.db")
    for id, reached in (bases | {each.id: each.id for each in found[2:]}).items():
        row = ledger.tx(lambda tx, id=id: groups.session(tx, id))
        assert row is not None and row.id == reached
    ledger.close()


def test_a_file_without_the_block_that_names_its_session_names_none(tmp_path: Path) -> None:
    id = "x<!-- msg:{} -->"
    file = SessionFile(tmp_path / "x.md", id)
    file.append([Block("user", "\\---\n" * 160_000)], 1)  # whose first block is long in META
    assert rebuild(tmp_path) == {id: "x"}
    data = file.path.read_bytes()
    file.path.write_bytes(data[: data.index(b"\n\n")])  # a crash behind the header
    assert rebuild(tmp_path) == {}
