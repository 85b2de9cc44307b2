"""Text and spans, as Telegram takes them: nothing is parsed there, so nothing can be refused for its syntax.

Spans are in the order of their offsets, lie within each other or apart, never around code, and hold no empty one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from clawd.markdown import table
from clawd.markdown.parser import blocks, parser
from clawd.model import Formatted, Span, SpanKind

if TYPE_CHECKING:
    from markdown_it.token import Token

MOST = 100  # spans of a message that Telegram honours
_KEPT: tuple[SpanKind, ...] = (
    "spoiler", "text_link", "pre", "code", "blockquote", "bold", "strikethrough", "italic", "underline",
)  # fmt: skip
_INLINE: dict[str, SpanKind] = {"strong": "bold", "em": "italic", "s": "strikethrough"}
_REACHABLE = re.compile(r"(?:https?://|mailto:|tg://(?!user\b))\S", re.IGNORECASE)
_TASK = re.compile(r"\[([ xX])\] ")
_SPOILER = re.compile(r"\|\|")
_BULLET, _OPEN, _DONE, _RULE = "• ", "☐ ", "☑ ", "———"
_INDENT = "  "


def spans(text: str) -> Formatted | None:
    tokens = blocks(text)
    if tokens is None:
        return None
    return _Writer(text).document(tokens)


class _Mark(NamedTuple):
    """A span in characters."""

    kind: SpanKind
    start: int
    end: int
    url: str = ""
    language: str = ""


class _Writer:
    def __init__(self, source: str, links: int = 0) -> None:
        self._lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._parts: list[str] = []
        self._at = 0
        self._marks: list[_Mark] = []
        self._open: list[tuple[SpanKind, int, str]] = []
        self._links = links
        self._line = self._item_line = 0  # where the last block ended, and the last item began, in the source
        self._items: list[str | None] = []  # of each list item that we are in, its marker until it is written
        self._numbers: list[int | None] = []  # of each list, its next number

    def document(self, tokens: Sequence[Token]) -> Formatted:
        skipping = False
        for n, token in enumerate(tokens):
            kind = token.type
            if skipping:
                skipping = kind != "table_close"
            elif kind == "inline":
                self.inline(token.children or ())
            elif kind in ("paragraph_open", "heading_open"):
                self._begin(token, tokens[n + 1].content)
                if kind == "heading_open":
                    self._push("bold")
            elif kind == "heading_close":
                self._pop()
            elif kind in ("fence", "code_block"):
                self._begin(token)
                start = self._at
                self._write(token.content.rstrip("\n"))
                self._mark("pre", start, language=re.split(r"\s", token.info.strip(), maxsplit=1)[0])
            elif kind == "hr":
                self._begin(token)
                self._write(_RULE)
            elif kind == "table_open":
                self._table(token)
                skipping = True
            else:
                self._container(token)
        return self._finished()

    def _container(self, token: Token) -> None:
        kind = token.type
        if kind == "blockquote_open":
            self._push("blockquote")
        elif kind == "blockquote_close":
            self._pop()
        elif kind in ("ordered_list_open", "bullet_list_open"):
            start = token.attrGet("start")
            self._numbers.append(None if kind[0] == "b" else 1 if start is None else int(start))
        elif kind in ("ordered_list_close", "bullet_list_close"):
            self._numbers.pop()
        elif kind == "list_item_open":
            number, self._item_line = self._numbers[-1], (token.map or (0,))[0]
            self._items.append(_BULLET if number is None else f"{number}{token.markup} ")
            if number is not None:
                self._numbers[-1] = number + 1
        elif kind == "list_item_close":
            if self._items[-1] is not None:
                self._begin()
            self._items.pop()

    def _begin(self, token: Token | None = None, content: str = "") -> None:
        """A block begins, or an item without one: as far below the last one as in the source, or an empty line."""
        first, last = token.map if token and token.map else (self._item_line, self._item_line + 1)
        if self._at:
            self._write("\n\n" if first > self._line else "\n")
        self._line = last
        for start in (n for n, (kind, at, _) in enumerate(self._open) if kind == "blockquote" and at < 0):
            self._open[start] = ("blockquote", self._at, "")
        for n, marker in enumerate(self._items):
            if marker is not None and n == len(self._items) - 1 and marker == _BULLET and _TASK.match(content):
                marker = ""
            self._write(_INDENT if marker is None else marker if token else marker.rstrip())
            self._items[n] = None

    # ── inline ──

    def inline(self, children: Sequence[Token]) -> str:
        """Write what stands in a block, or by itself. Gives all text so far."""
        hidden = _spoilers(children)
        if children and children[0].type == "text" and (task := _TASK.match(children[0].content)) and self._items:
            self._write(_OPEN if task[1] == " " else _DONE)
        else:
            task = None
        for n, child in enumerate(children):
            name = child.type.removesuffix("_open").removesuffix("_close")
            if child.type == "text":
                self._text(child.content, hidden.get(n, ()), task.end() if task and n == 0 else 0)
            elif child.type in ("softbreak", "hardbreak"):
                self._write("\n")
            elif child.type == "code_inline":
                start = self._at
                self._write(child.content)
                if child.content.strip() and not any(kind == "text_link" for kind, _, _ in self._open):
                    self._mark("code", start)
            elif child.type == "image":
                self._link(str(child.attrGet("src") or ""), child.content)
            elif child.type == "link_open":
                self._open.append(("text_link", self._at, str(child.attrGet("href") or "")))
            elif child.type == "link_close":
                self._end_link(child)
            elif name in _INLINE and child.nesting == 1:
                self._push(_INLINE[name])
            elif name in _INLINE:
                self._pop()
            else:
                self._write(child.content)
        return "".join(self._parts)

    def _text(self, content: str, hidden: Sequence[int], at: int) -> None:
        for place in hidden:
            self._write(content[at:place])
            at = place + 2
            if self._open and self._open[-1][0] == "spoiler":
                self._pop()
            else:
                self._push("spoiler")
        self._write(content[at:])

    def _link(self, url: str, label: str) -> None:
        self._open.append(("text_link", self._at, url))
        self._write(label)
        self._end_link(None)

    def _end_link(self, token: Token | None) -> None:
        """A link that cannot be followed, or is one too many, shows where it leads."""
        _, start, url = self._open.pop()
        shown = "".join(self._parts)[start:] if self._at > start else ""
        if not shown.strip():
            self._write(url)
        elif token is not None and token.info == "auto":
            pass
        elif not _REACHABLE.match(url) or self._links >= MOST:
            self._write(f" ({url})" if url else "")
            return
        if _REACHABLE.match(url) and self._links < MOST:
            self._links += 1
            self._mark("text_link", start, url=url.replace(" ", "%20"))

    # ── tables ──

    def _table(self, token: Token) -> None:
        self._begin(token)
        first, last = token.map or (0, 0)
        source = [line for n, line in enumerate(self._lines[first:last]) if n != 1]
        start = self._at
        self._write(laid_out(source))
        self._mark("pre", start)

    # ── marks ──

    def _write(self, text: str) -> None:
        if text:
            self._parts.append(text)
            self._at += len(text)

    def _push(self, kind: SpanKind) -> None:
        self._open.append((kind, -1 if kind == "blockquote" else self._at, ""))

    def _pop(self) -> None:
        kind, start, _ = self._open.pop()
        if start >= 0 and not any(each == kind and at >= 0 for each, at, _ in self._open):  # not within its like
            self._mark(kind, start)

    def _mark(self, kind: SpanKind, start: int, **more: str) -> None:
        self._marks.append(_Mark(kind, start, self._at, **more))

    def _finished(self) -> Formatted:
        whole = "".join(self._parts)
        text = whole.rstrip()
        begin = min([len(text), *(mark.start for mark in self._marks if mark.kind in ("pre", "code"))])
        begin -= len(whole[:begin].lstrip())
        astral = [n for n, character in enumerate(text) if character > "\uffff"]
        made = []
        for mark in _apart(self._marks):
            start, end = max(mark.start, begin), min(mark.end, len(text))
            if mark.kind not in ("pre", "code", "blockquote"):
                inner = text[start:end]
                start, end = start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
            if start < end and text[start:end].strip():
                offset, past = (at + bisect_left(astral, at) - begin for at in (start, end))
                made.append(Span(mark.kind, offset, past - offset, mark.url, mark.language))
        kept = sorted(made, key=lambda span: _KEPT.index(span.kind))[:MOST]
        return Formatted(text[begin:], tuple(sorted(kept, key=_place)))


def _place(span: Span) -> tuple[int, int, bool, bool]:
    """What is around another one comes first."""
    return span.offset, -span.length, span.kind != "blockquote", span.kind in ("pre", "code")


def _apart(marks: Sequence[_Mark]) -> Iterator[_Mark]:
    """The same marks, cut where there is code in them."""
    code = sorted((mark for mark in marks if mark.kind in ("pre", "code")), key=lambda mark: mark.start)
    starts = [mark.start for mark in code]
    for mark in marks:
        if mark.kind in ("pre", "code", "blockquote", "text_link"):
            yield mark
            continue
        at = mark.start
        for hole in code[bisect_left(starts, mark.start) :]:
            if hole.start >= mark.end:
                break
            yield mark._replace(start=at, end=hole.start)
            at = hole.end
        yield mark._replace(start=at)


def _spoilers(children: Sequence[Token]) -> dict[int, list[int]]:
    """Where `||` begins or ends a spoiler: the token, and the places in it. A pair has the same tokens around it."""
    found: dict[int, list[int]] = {}
    around: list[int] = []
    waiting: dict[tuple[int, ...], tuple[int, int]] = {}
    for n, child in enumerate(children):
        if child.nesting == 1:
            around.append(n)
        elif child.nesting == -1:
            around.pop()
        elif child.type == "text":
            for mark in _SPOILER.finditer(child.content):
                path, at = tuple(around), mark.start()
                before, after = child.content[:at][-1:], child.content[at + 2 :][:1]
                opener = waiting.get(path)
                if opener is not None and not before.isspace() and opener != (n, at - 2):
                    found.setdefault(opener[0], []).append(opener[1])
                    found.setdefault(n, []).append(at)
                    del waiting[path]
                elif not after.isspace() and after != "|":
                    waiting[path] = (n, at)
    return found


def laid_out(source: Sequence[str]) -> str:
    """The rows of a table as they stand, its ruler left out, as text of fixed width without marks."""
    rows = [[_bare(cell) for cell in table.cells(line, first=n == 0)] for n, line in enumerate(source)]
    return table.laid_out(rows)


def _bare(cell: str) -> str:
    """What a cell shows."""
    cell = cell.replace("\\|", "|")
    if not re.search(r"[`*_~\[\]\\&!<]", cell):
        return cell
    return _Writer("", links=MOST).inline(parser(code=True).parseInline(cell)[0].children or ())
