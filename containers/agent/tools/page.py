"""HTML as text that a model can read: headings, lists, links and tables as Markdown has them, no scripts and styles."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urljoin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

_DROPPED = {"script", "style", "template", "noscript", "svg"}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "dd", "details", "div", "dl", "dt", "fieldset", "figure"),
    *("figcaption", "footer", "form", "head", "header", "hr", "html", "main", "nav", "ol", "p", "pre", "section"),
    *("summary", "table", "title", "tr", "ul", "li", "h1", "h2", "h3", "h4", "h5", "h6"),
}
_CLOSE = {"li", "tr", "dt", "dd"}  # no empty line around them


class Page(HTMLParser):
    """Feed it a page in pieces, then close it; `say` gets the text as it comes. `base` is the page's own address."""

    def __init__(self, say: Callable[[str], object], base: str) -> None:
        super().__init__(convert_charrefs=True)
        self._say = say
        self._base = base
        self._dropped: Optional[str] = None  # the element whose content is left out
        self._nested = 0
        self._breaks = 0  # lines to end before the next text
        self._space = False
        self._begun = False
        self._marker = ""  # before the next text
        self._preformatted = 0
        self._link: Optional[str] = None
        self._linked = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        if self._dropped:
            self._nested += tag == self._dropped
            return
        if tag in _DROPPED:
            self._dropped, self._nested = tag, 1
        elif tag in _BLOCKS:
            self._block(tag)
            if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
                self._marker = "#" * int(tag[1]) + " "
            elif tag == "li":
                self._marker = "- "
            self._preformatted += tag == "pre"
        elif tag == "br":
            self._breaks = max(self._breaks, 1)
        elif tag in ("td", "th"):
            self._space, self._marker = True, "| "
        elif tag == "a":
            self._end_link()
            self._link = dict(attrs).get("href")
        elif tag == "img" and (alt := dict(attrs).get("alt")):
            self.handle_data(f" {alt} ")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, Optional[str]]]) -> None:
        if tag not in _DROPPED:  # a browser takes no slash for an end, but then nothing of the page would be left
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._dropped:
            self._nested -= tag == self._dropped
            if not self._nested:
                self._dropped = None
        elif tag == "a":
            self._end_link()
        elif tag in _BLOCKS:
            self._marker = ""
            self._block(tag)
            if tag == "pre" and self._preformatted:
                self._preformatted -= 1

    def handle_data(self, data: str) -> None:
        if self._dropped:
            return
        if self._preformatted:
            for n, line in enumerate(data.split("\n")):
                self._breaks += n > 0
                if line:
                    self._text(line)
            return
        words = data.split()
        if not words:
            self._space = True
            return
        self._space = self._space or data[0].isspace()
        self._text(" ".join(words))
        self._space = data[-1].isspace()

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        return self.parse_bogus_comment(i, 0)  # as browsers do; the base class raises for some

    def close(self) -> None:
        super().close()
        self._end_link()

    def _block(self, tag: str) -> None:
        self._end_link()
        if tag in _CLOSE or not self._marker:
            self._breaks = max(self._breaks, 1 if tag in _CLOSE else 2)

    def _text(self, text: str) -> None:
        if self._begun:
            self._say("\n" * self._breaks or " " * self._space)
        self._say(self._marker + text)
        self._begun, self._breaks, self._space, self._marker = True, 0, False, ""
        if self._link is not None:
            self._linked += text

    def _end_link(self) -> None:
        """Say where the text that was linked leads to, unless it says so itself or leads into the page."""
        link, text = self._link, self._linked
        self._link, self._linked = None, ""
        if not link or not text or link.startswith("#"):
            return
        try:
            target = urljoin(self._base, link.strip())
        except ValueError:
            return
        if target.startswith(("http://", "https://")) and target != text and not any(map(str.isspace, target)):
            self._say(f" ({target})")
