"""The Markdown parser, as we want it: no text of a document is ever left out."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_DEEPEST = 60
_TANGLED = 400  # brackets that nothing closes: each is looked for to the end
# The rest of a list that was cut within it begins as code would.
CONTINUED = re.compile(r"(?:[ \t\r]*\n)*(?: {4}|\t)[ \t]*(?:[-*+][ \t]|\d{1,9}[.)][ \t]|```|~~~)")


@functools.cache
def parser(code: bool) -> MarkdownIt:
    """HTML is text, and so is the definition of a reference: it may be used in another piece."""
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
    made.disable(["reference", "html_block", "html_inline"] + ([] if code else ["code"]))
    made.normalizeLink = lambda url: url  # type: ignore[method-assign]
    made.normalizeLinkText = lambda link: link  # type: ignore[method-assign]
    return made


def blocks(text: str) -> list[Token] | None:
    """The document as tokens; None for one that is nested or tangled beyond reading."""
    if text.count("[") - text.count("]") > _TANGLED:
        return None
    tokens = parser(code=CONTINUED.match(text) is None).parse(text)
    return None if any(each.level >= _DEEPEST - 2 for each in tokens) else tokens
