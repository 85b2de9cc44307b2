"""The adapter of docs/channels.md, as somebody would install it: a package beside clawd, found by its entry point."""

from __future__ import annotations

import re
from pathlib import Path

from tests.system.conftest import ROOT, Home, until

PAGE = (ROOT / "docs/channels.md").read_text()


def test_the_adapter_of_the_page_works(home: Home, tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    [entry] = re.findall(r'^\[project.entry-points."(.*?)"\]\nfolder = "(.*?)"$', PAGE, re.M)
    (tmp_path / "clawd_folder.py").write_text(code)
    installed = tmp_path / "clawd_channel_folder-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: clawd-channel-folder\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[{entry[0]}]\nfolder = {entry[1]}\n")
    chats, answers, path = tmp_path / "in", tmp_path / "out", {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    home.configure(more=f'[channels.folder]\nenabled = true\npath = "{tmp_path}"')
    assert "mkdir -p" in home.cli("channels", "test", "folder", **path).stdout
    chats.mkdir()
    answers.mkdir()
    home.start(**path)

    def say(name: str, text: str) -> None:
        (tmp_path / name).write_text(text)
        (tmp_path / name).rename(chats / name)

    def said() -> str:
        return "\n".join(file.read_text() for file in sorted(answers.iterdir()))

    say("ada-1.txt", home.json("pair")["code"])
    until(lambda: "You are paired: the owner" in said())
    say("ada-2.txt", "say it works")
    until(lambda: said().endswith("it works"))
    assert home.json("channels", "test", "folder", **path)["ok"] and list(chats.iterdir()) == []
