"""Discord's own Markdown: what it lacks is put in what it has, the rest stays as the model wrote it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clawd.markdown.parser import blocks
from clawd.markdown.spans import laid_out
from clawd.model import Formatted

if TYPE_CHECKING:
    from markdown_it.token import Token

_FENCE, _DEFUSED = "```", "`\u200b``"
_MARGIN = re.compile(r"[ \t>]*")
_LANGUAGE = re.compile(r"[\w+#.-]*")
_TASK = re.compile(r"^([ \t>]*[-*+] )\[([ xX])\](?= )", re.MULTILINE)
_INLINE = re.compile(
    r"(?P<kept>\\.|(?P<code>`+)(?!`)[^\n]{1,1000}?(?<!`)(?P=code)(?!`)|\]\([^()\s]{1,500}\)|https?://\S{1,500})"
    r"|!(?=\[[^\[\]\n]{0,300}\]\()"
    r"|(?<!\w)__(?=\S)(?P<bold>[^\n]{1,500}?)(?<=\S)__(?!\w)"
)


def discord(text: str) -> Formatted | None:
    """Tables in a block of code, headings below the third in bold, images as links, one kind of fence, boxes of tasks,
    and `__bold__`, which would be underlined, as `**bold**`."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    tokens = blocks(text)
    if tokens is None:
        return None
    lines: list[str] = text.split("\n")
    for n, token in reversed([*enumerate(tokens)]):  # from the end: a block may get more lines than it had
        if token.map is None:
            continue
        first, last = token.map
        if token.type == "fence":
            lines[first:last] = _fence(token, lines[first:last])
        elif token.type == "table_open":
            margin = _margin(lines[first + 1])
            rows = laid_out([line for row, line in enumerate(lines[first:last]) if row != 1])
            lines[first:last] = _fenced(margin, "", rows.split("\n"))
        elif token.type == "heading_open" and token.markup.startswith("####") and tokens[n + 1].content:
            title = tokens[n + 1].content.replace("**", "").replace("__", "")
            lines[first] = f"{lines[first][: lines[first].index(token.markup)]}**{title}**"
        elif token.type == "paragraph_open":
            lines[first:last] = _inline("\n".join(lines[first:last])).split("\n")
    return Formatted("\n".join(lines).rstrip())


def _fence(token: Token, lines: list[str]) -> list[str]:
    closed = len(lines) > 1 and set(lines[-1].strip(" \t>")) == {token.markup[0]}
    body = lines[1 : len(lines) - closed]
    before = lines[0][: lines[0].index(token.markup)]
    language = _LANGUAGE.match(token.info.strip())
    made = _fenced(_margin(lines[-1]) if closed else re.sub(r"[^>\s]", " ", before), "", body)
    return [before + _FENCE + (language[0] if language else ""), *made[1:]]


def _fenced(margin: str, language: str, lines: list[str]) -> list[str]:
    return [margin + _FENCE + language, *(_margined(margin, line) for line in lines), margin + _FENCE]


def _margined(margin: str, line: str) -> str:
    line = line.replace(_FENCE, _DEFUSED)
    return line if line.startswith(margin) else margin + line


def _margin(line: str) -> str:
    found = _MARGIN.match(line)
    return found[0] if found else ""


def _inline(text: str) -> str:
    def changed(found: re.Match[str]) -> str:
        if found["kept"]:
            return found[0]
        return f"**{found['bold']}**" if found["bold"] else ""

    text = _TASK.sub(lambda found: found[1] + ("☐" if found[2] == " " else "☑"), text)
    return _INLINE.sub(changed, text)
