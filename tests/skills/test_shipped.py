"""The skills that ship: sound by every check, and their scripts do what they say, without a sandbox too."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.resources import shipped
from clawd.skills.catalogue import Catalogue
from clawd.skills.skill import load
from tests.skills.making import skill

NAMES = ["daily-digest", "reminder", "skill-writer", "web-watch"]
ROOT = shipped("skills")


def run(name: str, *words: str, cwd: Path, **env: str) -> tuple[int, list[str]]:
    kept = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    done = subprocess.run(
        [sys.executable, "-I", str(ROOT / name / "scripts/run.py"), *words],
        cwd=cwd, env=kept | env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_each_is_sound(name: str, tmp_path: Path) -> None:
    from skills_ref.validator import validate  # type: ignore[import-untyped]

    assert validate(ROOT / name) == []
    made = load(ROOT / name, shared=True)
    assert made.errors == made.warnings == () and made.license == "MIT" and made.triggers
    assert len(made.body.splitlines()) < 60 and made.allowed_tools is None
    assert run("skill-writer", str(ROOT / name), cwd=tmp_path) == (
        0,
        ["It is sound. Propose it with skill_propose."],
    )


def test_a_new_home_has_them_and_keeps_a_persons_own(tmp_path: Path) -> None:
    home = Home(tmp_path / "h")
    home.create()
    mine = skill(home.skills, "reminder", "Mine.")
    made = init_home(home, user="Ada")
    assert [each.name for each in Catalogue(home).of("main")] == NAMES and not Catalogue(home).refused("main")
    assert "Mine." in (mine / "SKILL.md").read_text()
    assert home.skills / "web-watch/scripts/run.py" in made and init_home(home, user="Ada") == []


def test_a_digest_has_notes_open_points_and_changes(tmp_path: Path) -> None:
    assert run("daily-digest", cwd=tmp_path) == (0, ["There is nothing: no notes, nothing open, nothing changed."])
    today = time.strftime("%Y-%m-%d")
    (tmp_path / "notes.md").write_text(f"- {today} 09:00:05 second\n- {today} 08:00 first\n- 2020-01-01 08:00 old\n")
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/plan.md").write_text("# Plan\n- [ ] paint\n- [x] buy paint\n")
    (tmp_path / "old.md").write_text("* [ ] ask\n")
    os.utime(tmp_path / "old.md", (0, 0))
    (tmp_path / "link.md").symlink_to("/etc/hostname")
    code, lines = run("daily-digest", "1", cwd=tmp_path)
    assert code == 0 and [line for line in lines if line] == [
        f"## Notes of {today}", "- 08:00 first", "- 09:00 second",
        "## Still open", "- paint (memory/plan.md)", "- ask (old.md)",
        "## Changed files", "- memory/plan.md",
    ]  # fmt: skip
    assert "old" in " ".join(run("daily-digest", "3000", cwd=tmp_path)[1])
    assert run("daily-digest", "soon", cwd=tmp_path)[0] == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no frontmatter", "does not begin"),
        ("---\nname: y\ndescription: Use it when.\n---\nb", "must be the folder's name"),
        ("---\nname: x\ndescription: a: b\n---\nb", "put it in quotes"),
        ("---\nname: x\ndescription:\n---\nb", "description is missing"),
        ("---\nname: x\ndescription: Use it when.\n---\n\n", "nothing below"),
        (f"---\nname: x\ndescription: {'x' * 1025}\n---\nb", "1025 characters"),
    ],
)
def test_a_bad_skill_is_found_out(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x/SKILL.md").write_text(text)
    code, lines = run("skill-writer", "x", cwd=tmp_path)
    assert code == 1 and found in "\n".join(lines) and lines[-1] == "This must be mended first."


class Page(http.server.BaseHTTPRequestHandler):
    text = ""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def page() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_page_is_compared_with_its_last_look(tmp_path: Path, page: str) -> None:
    def look(*words: str, url: str = page) -> tuple[int, list[str], bool]:
        code, lines = run("web-watch", url, *words, cwd=tmp_path)
        return code, lines[:-1], json.loads(lines[-1])["wake"]

    Page.text = "<head><title>t</title></head><p>Price:  10\n€</p><script>1</script><p>in stock</p>"
    assert look() == (0, [f"Watching {page} from now on: 2 lines."], False)
    assert look("price|sold") == (0, [f"Watching {page} from now on: 1 lines."], False)
    Page.text = Page.text.replace("<script>1", "<script>2").replace("in stock", "sold out")
    assert look() == (0, [f"Changed: {page}", "-in stock", "+sold out"], True)
    assert look() == (0, [f"No change: {page}"], False)
    assert look("price|sold") == (0, [f"Changed: {page}", "+sold out"], True)
    assert look(url=f"{page}missing") == (1, ["The page answers 404 Not Found."], False)
    assert look(url="http://127.0.0.1:1/")[1] == [
        "The network is not granted: this group has no services. The owner can grant one."
    ]
    assert sorted(each.suffix for each in (tmp_path / "web-watch").iterdir()) == [".json", ".json"]
