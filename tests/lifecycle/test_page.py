"""The page of a session's context: what is in it, and that a real browser shows it without asking anybody anything."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from clawd.lifecycle.exporting import Lines, files_of, flattened, json_of, word
from clawd.lifecycle.stylesheet import STYLE
from clawd.text import made_visible
from tests.browser import chromium, opened, proxy
from tests.lifecycle import accounts
from tests.lifecycle.accounts import account

VOID = {"meta", "link", "br", "line", "path", "circle", "rect"}


class Shown(HTMLParser):
    """What a page says: the cells of its tables by caption, its texts, its elements with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")
        if tag == "caption":
            self._rows = []
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")
        if tag in ("data", "time"):
            self._rows and self._rows[-1] and self._take(dict(attrs))

    def _take(self, attributes: dict[str, str | None]) -> None:
        if "td" in self._open:
            self._rows[-1][-1] = f"\0{attributes.get('value') or attributes.get('datetime')}"

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.tables[self.texts["caption"][-1].split()[0]] = self._rows
        if self._open and tag not in VOID:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for tag in self._open:
            self.texts[tag][-1] += data
        if self._open and {"td", "th"} & set(self._open) and not self._rows[-1][-1].startswith("\0"):
            self._rows[-1][-1] += data

    def table(self, name: str) -> list[dict[str, str]]:
        head, *rows = self.tables[name]
        return [dict(zip(head, (cell.lstrip("\0") for cell in row), strict=True)) for row in rows]


def test_the_page_loads_nothing_runs_nothing_and_says_so_itself() -> None:
    page = files_of(account(), "html")["context.html"].decode()
    shown = Shown(page)
    tags = {tag for tag, _ in shown.elements}
    assert not tags & {"script", "img", "iframe", "object", "embed", "form", "base", "use", "image", "foreignobject"}
    names = {name for _, attributes in shown.elements for name in attributes}
    assert not {name for name in names if name.startswith("on")} and not names & {"src", "srcset", "style", "action"}
    assert [each["href"] for _, each in shown.elements if "href" in each] == ["data:,"]
    policies = [each["content"] for _, each in shown.elements if each.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    assert policies == [
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    ]
    assert "url(" not in STYLE and "@import" not in STYLE and f"<style>{STYLE}</style>" in page


def test_whoever_does_not_see_it_is_told() -> None:
    shown = Shown(files_of(account(), "html")["context.html"].decode())
    plots = [attributes for tag, attributes in shown.elements if tag == "svg"]
    ids = {attributes["id"] for _, attributes in shown.elements if "id" in attributes}
    assert len(plots) == 4
    for plot in plots:
        assert plot["role"] == "img" and set((plot["aria-labelledby"] or "").split()) <= ids
    assert all(shown.texts["desc"]) and len(shown.texts["caption"]) == 2
    assert [attributes.get("scope") for tag, attributes in shown.elements if tag == "th"] == ["col"] * len(
        shown.texts["th"]
    )
    assert ("html", {"lang": "en"}) in shown.elements


def test_what_does_not_show_is_made_visible() -> None:
    page = files_of(account(session="a\u202eb\x00c\ud800"), "html")["context.html"].decode()
    assert "a⟨U+202E⟩b⟨U+0000⟩c⟨U+D800⟩" in page


def test_columns_in_which_nothing_stands_are_left_out_but_for_the_price() -> None:
    rows = Lines([{**accounts.METRICS[2], "memory_namespace": None}])
    shown = Shown(files_of(account(metrics=rows), "html")["context.html"].decode())
    [row] = shown.table("Steps")
    assert "Memory" not in row and "Cost in" not in row and row["Cost"] == "–"


COLUMNS = {
    "Steps": {"Step": "step_index", "In": "prompt_tokens", "Out": "completion_tokens", "Window": "window_tokens",
              "Tokens in all": "total_tokens", "Cost": "total_cost_usd", "Time": "ts", "What": "event"},
    "Decisions": {"No.": "seq", "Decision": "action", "Why": "trigger", "Window": "total_tokens", "Soft": "soft",
                  "Hard": "hard", "Recall": "recall", "By": "confirm_by", "Reason": "reason"},
}  # fmt: skip


def test_a_real_browser_shows_what_the_json_says_and_asks_nobody(tmp_path: Path) -> None:
    program = chromium()
    told: dict[str, Any] = json.loads(json_of(account()))
    page, other = tmp_path / "context.html", tmp_path / "other.html"
    page.write_bytes(files_of(account(), "html")["context.html"])
    other.write_text('<img src="http://nobody.example/seen.png"><p id="p">no</p><script>p.textContent = 1</script>')
    with proxy() as asked:
        dom = opened(program, page, asked, tmp_path / "one")
        assert asked.of_pages == [] and "google" not in page.read_text()
        loads = opened(program, other, asked, tmp_path / "two")  # what would be noticed
    assert "GET http://nobody.example/seen.png HTTP/1.1" in asked.of_pages and '<p id="p">1</p>' in loads
    shown = Shown(dom)
    assert "script" not in shown.texts
    assert made_visible(told["state"]["ledger"]["goal"]) in shown.texts["p"]
    assert shown.texts["h1"] == [told["session"]]
    for name, key in (("Steps", "metrics"), ("Decisions", "decisions")):
        rows = shown.table(name)
        assert len(rows) == len(told[key])
        for row, line in zip(rows, told[key], strict=True):
            for head, column in COLUMNS[name].items():
                value = flattened(line).get(column)
                assert row[head] == ("–" if value is None else word(value)), (head, value)
    listed = [text for name in ("verified", "constraints", "blockers") for text in told["state"]["ledger"][name]]
    assert set(listed) <= set(shown.texts["li"])
    values = {attributes["value"] for tag, attributes in shown.elements if tag == "data"}
    assert {word(told["state"][name]) for name in ("window_tokens", "soft", "hard", "cumulative_tokens")} <= values
    marks = re.findall(r'<g class="mark (\w+)"><title>step (\d+)', dom)
    wanted = [(each["action"], str(each["step_index"])) for each in told["decisions"] if each["action"] != "continue"]
    assert marks == wanted
