"""Which file holds which session, found out from the files alone."""

from pathlib import Path

from clawd.ids import choose_stem
from clawd.model import Block
from clawd.sessions.file import SessionFile
from clawd.sessions.names import rebuild

HI = [Block("user", "hi")]


def test_the_mapping_is_rebuilt_from_the_files(tmp_path: Path) -> None:
    held: dict[str, str] = {}
    for id in (
        "mmkr:agent-1",
        "mmkr/agent-1",
        "MMKR_agent-1",
        "日本",
        "x" * 300,
        "a\x00b",
        "x<!-- msg:{} -->",
    ):
        held[id] = choose_stem(id, held.values())
        SessionFile(tmp_path / f"{held[id]}.md", id).append(HI, 1)
    assert held["mmkr:agent-1"] == "mmkr_agent-1"
    assert held["mmkr/agent-1"].startswith("mmkr_agent-1~")
    assert rebuild(tmp_path) == held


def test_copies_links_and_other_files_do_not_confuse_it(tmp_path: Path) -> None:
    file = tmp_path / "main.md"
    SessionFile(file, "main").append(HI, 1)
    (tmp_path / "a copy.md").write_bytes(file.read_bytes())
    (tmp_path / "notes.md").write_text("no header")
    (tmp_path / "link.md").symlink_to(file)
    (tmp_path / "directory.md").mkdir()
    assert rebuild(tmp_path) == {"main": "main"}
    assert rebuild(tmp_path / "nowhere") == {}
