"""Cutting Markdown so that each piece is a document of its own: what is open at a cut is closed and opened again.

Nothing of the source is left out or changed: the texts of all pieces, joined, are the source. Lines are read one after
another, as the piece that they are in is read, with what surrounds a fence (quotes, lists) and the table that they are
of; each has a cost, which no form of its channel exceeds. A cut is best before a block, then before an item of a list,
a line, a line of code, and within a line as `clawd.text` cuts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from clawd.channel import ChannelLimits
from clawd.markdown import table
from clawd.markdown.parser import CONTINUED
from clawd.markdown.slack import CALLS, LONGER
from clawd.text import cut as cut_text
from clawd.text import units

_QUOTE = re.compile(r" {0,3}> ?")
_EMPTY = re.compile(r"\n+")
_ITEM = re.compile(r"([-*+]|\d{1,9}[.)])(?=\s)[ \t]*")
_FENCE = re.compile(r"(`{3,})([^`\n]*)$|(~{3,})([^\n]*)$", re.MULTILINE)
_WHOLE = re.compile(
    r"(`{1,3})[^`\n]{1,300}\1|!?\[[^\[\]\n]{0,300}\]\([^()\s]{0,500}\)|https?://\S{1,500}"
    r"|\*\*[^*\n]{1,300}\*\*|\|\|[^|\n]{1,300}\|\||<[!@#][^<>\n]{1,100}>"
)
_NUMBER_GROWS = 4  # digits of an item's number that its list gives it
_TAB_GROWS = 3
_LONGEST_WHOLE = 800
_LONGEST_RULER = 1000  # beyond its head
_FENCED = 8  # a fence around a table, with its ends of lines
_BLOCK, _ITEM_OR_PARAGRAPH, _ROW, _LINE, _CODE, _WORST = 5, 4, 3, 2, 1, 0


class Piece(NamedTuple):
    """`text` is of the source; what was added before and after it is not."""

    opening: str
    text: str
    closing: str

    @property
    def whole(self) -> str:
        return self.opening + self.text + self.closing


class _Fence(NamedTuple):
    prefix: str
    mark: str
    info: str
    quotes: int  # how many it is in
    inside: int  # columns of the list that it is in

    def closes(self, line: str, flat: bool) -> bool:
        near = flat or _columns(line) - self.inside <= 3
        line = line.strip()
        return near and len(line) >= len(self.mark) and not line.strip(self.mark[0])


class _Table(NamedTuple):
    head: str
    width: int
    cost: int


class _State(NamedTuple):
    """What a line is in."""

    quotes: int = 0
    lists: tuple[int, ...] = ()  # columns at which the items' own text begins
    fence: _Fence | None = None
    table: _Table | None = None
    blank: bool = True  # the line before
    heading: bool = False  # the last line with text
    flat: bool = False  # nothing is code for its indent, as the piece is read
    lead: str = ""  # what must be thought before a line that was cut


@dataclass(frozen=True, slots=True)
class _Line:
    cost: int
    rank: int
    after: _State


def cut(text: str, limits: ChannelLimits) -> Iterator[Piece]:
    """The pieces, one after another, so that whoever has enough can stop."""
    at, state = 0, _State()
    while at < len(text):
        piece, at, state = _piece(text, at, state, limits)
        yield piece


def _piece(text: str, start: int, state: _State, limits: ChannelLimits) -> tuple[Piece, int, _State]:
    room = limits.text
    opening, used, state = _opened(state, room)
    state = state._replace(flat=CONTINUED.match(opening + text[start : start + room]) is not None)
    at, least, best = start, used + room // 3, (_WORST, start, state)
    while at < len(text):
        end = _end(text, at, room)
        line = _read(state, text, at, end, limits)
        if at > start and used >= least and line.rank >= best[0]:
            best = (line.rank, at, state)
        if used + line.cost + _closing(line.after) > room:
            break
        used, at, state = used + line.cost, end, line.after
    else:
        return Piece(opening, text[start:], _closed(text, at, state)), at, state
    if best[1] > start:
        _, at, state = best
        return Piece(opening, text[start:at], _closed(text, at, state)), at, state
    cost = _closing(line.after) if line.after.fence else _closing(state)
    at, state, closed = _within(text, at, end, state, line, limits, room - used - cost)
    return Piece(opening, text[start:at], closed), at, state


def _within(
    text: str, at: int, end: int, state: _State, line: _Line, limits: ChannelLimits, room: int
) -> tuple[int, _State, str]:
    """Cut a line of which no more than `room` fits. Gives where, what the rest of it is in, and what closes it here."""
    budget = room
    to = at
    while budget > 1:
        to = min(cut_text(text, at, budget), end)
        if state.fence is None:
            to = next(
                (m.start() for m in _WHOLE.finditer(text, at, end + _LONGEST_WHOLE) if at < m.start() < to < m.end()),
                to,
            )
        if _read(state, text, at, to, limits).cost <= room:
            break
        budget //= 2
    to = max(to, at + 1)
    after = line.after if state.fence and not line.after.fence else state
    if after.fence:
        lead = _quoted(text[at:end], after.fence.quotes)[2] + " " * after.fence.inside
    else:
        lead = _quoted(text[at:end])[2]
    closed = _closed(text, to, line.after if line.after.fence else state)
    return to, after._replace(lead=lead or state.lead, blank=False), closed


def _opened(state: _State, room: int) -> tuple[str, int, _State]:
    """What a piece begins with, what that costs, and what its first line is in, as the piece is read by itself."""
    lead = state.lead if len(state.lead) <= room // 8 else ""
    state = state._replace(lists=(), lead=lead, blank=True)
    if (fence := state.fence) is not None:
        head = f"{fence.prefix}{fence.mark}{fence.info}\n"
        if units(head) > room // 4:
            head = f"{fence.prefix}{fence.mark}\n"
        head += lead
        return head, units(head), state._replace(fence=fence._replace(inside=0))
    if state.table is not None and state.table.cost <= room // 4:
        return state.table.head + lead, state.table.cost + len(lead), state
    return lead, len(lead), state._replace(table=None)


def _closing(state: _State) -> int:
    return len(state.fence.prefix + state.fence.mark) + 1 if state.fence else 0


def _closed(text: str, at: int, state: _State) -> str:
    if state.fence is None:
        return ""
    return ("" if text[at - 1] == "\n" else "\n") + state.fence.prefix + state.fence.mark


def _read(state: _State, text: str, at: int, end: int, limits: ChannelLimits) -> _Line:
    """A line, or what is left of one."""
    line = state.lead + text[at:end]
    size = units(text[at:end])
    if (fence := state.fence) is not None:
        quotes, rest, _ = _quoted(line, fence.quotes)
        if quotes == fence.quotes and (not rest.strip() or _columns(rest) >= fence.inside):
            grows = line.count("```") if limits.markup == "discord" and fence.mark != "```" else 0
            grows += _TAB_GROWS * line.count("\t") if limits.markup == "spans" and (quotes or fence.inside) else 0
            open = None if fence.closes(rest, state.flat) else fence
            return _Line(size + grows, _CODE, state._replace(fence=open, lead="", blank=False, heading=False))
        state = state._replace(fence=None, blank=True)
    quotes, rest, prefix = _quoted(line)
    if not rest.strip():
        lists = state.lists if quotes == state.quotes else ()
        return _Line(size, _WORST, _State(quotes, lists, blank=True, heading=state.heading, flat=state.flat))
    return _read_text(state, text, end, line, quotes, rest, len(prefix), size, limits)


def _read_text(
    state: _State, text: str, end: int, line: str, quotes: int, rest: str, at: int, size: int, limits: ChannelLimits
) -> _Line:
    indent = _columns(rest)
    lists = state.lists if quotes == state.quotes else ()
    body = rest.lstrip(" \t")
    at += len(rest) - len(body)
    item = _ITEM.match(body)
    if state.blank or item or body[0] in "#`~":
        lists = tuple(each for each in lists if each <= indent)
    deep = not state.flat and indent - (lists[-1] if lists else 0) > 3
    numbers, new = 0, item is not None and not deep
    while item is not None and not deep:
        numbers += item[1][0].isdigit()
        indent += min(len(item[0]), len(item[1]) + 4)
        lists += (indent,)
        at, body = at + item.end(), body[item.end() :]
        item = _ITEM.match(body) if len(lists) < 20 else None
    after = _State(quotes, lists, blank=False, heading=body.startswith("#") and not deep, flat=state.flat)
    grows = _grows(line, numbers, limits)
    if state.table is not None:
        cost = max(size + 2 * line.count("|"), state.table.width) + grows
        return _Line(cost, _ROW, after._replace(table=state.table, heading=False))
    fence = None if deep else _FENCE.match(body.rstrip("\r\n"))
    if fence is not None:
        prefix = re.sub(r"[^>\s]", " ", line[:at])
        opened = _Fence(prefix, fence[1] or fence[3], fence[2] or fence[4] or "", quotes, lists[-1] if lists else 0)
        if len(prefix + opened.mark) <= limits.text // 4:
            return _Line(size + grows, _ITEM_OR_PARAGRAPH, after._replace(fence=opened))
    elif "|" in line and (columns := _columns_of_table(text, end, line)):
        width = min(table.total(columns), table.WIDEST, limits.text // 4)
        ruler = text[end : _end(text, end, limits.text)]
        cost = max(size + 2 * line.count("|"), width) + grows + (_FENCED if limits.markup == "discord" else 0)
        both = cost + max(units(ruler) + 2 * ruler.count("|"), width)
        kept = _Table("" if lists else line + ruler, width, limits.text if lists else both)
        return _Line(cost, _rank(state, after, new, indent, deep), after._replace(table=kept))
    return _Line(size + grows, _rank(state, after, new, indent, deep), after)


def _rank(before: _State, after: _State, item: bool, indent: int, deep: bool) -> int:
    """How good it is to cut before a line of text."""
    if before.heading and not after.heading:
        return _CODE
    if after.heading or (before.blank and not after.lists and not indent):
        return _BLOCK
    if item or (before.blank and not deep):
        return _ITEM_OR_PARAGRAPH
    return _WORST if deep else _LINE


def _grows(line: str, numbers: int, limits: ChannelLimits) -> int:
    """By how much a line that is no code may grow in the channel's form."""
    if limits.markup == "slack":
        return LONGER * len(CALLS.findall(line)) if "<" in line else 0
    if limits.markup == "discord":
        return line.count("```")
    return _NUMBER_GROWS * numbers + (_TAB_GROWS * line.count("\t") if "\t" in line else 0)


def _end(text: str, at: int, room: int) -> int:
    """Where a line ends, or a run of empty ones; one that no piece has room for, a little later than a piece would."""
    if text[at : at + 1] == "\n" and (run := _EMPTY.match(text, at, at + room + 1)):
        return run.end()
    return text.find("\n", at, at + room) + 1 or min(len(text), at + room + 1)


def _columns_of_table(text: str, end: int, head: str) -> list[int] | None:
    """The widths of the table that this line heads, as it stands; None if the next line does not make it one."""
    at = text.find("\n", end) + 1 or len(text)
    if text[end - 1] != "\n" or not table.is_ruler(text[end : min(at, end + len(head) + _LONGEST_RULER)]):
        return None
    rows = [table.cells(head)]
    while at < len(text) and (row := text[at : (to := text.find("\n", at) + 1 or len(text))]).strip(" \t\r\n>"):
        rows.append(table.cells(row))
        at = to
    return table.widths(rows)


def _quoted(line: str, most: int = 100) -> tuple[int, str, str]:
    """How many quotes a line is in, at most, what is left of it, and what was before that."""
    count = at = 0
    while count < most and (mark := _QUOTE.match(line, at)) is not None:
        count, at = count + 1, mark.end()
    return count, line[at:], line[:at]


def _columns(line: str) -> int:
    """How far a line is indented."""
    margin = line[: len(line) - len(line.lstrip(" \t"))]
    return len(margin.expandtabs(4)) if "\t" in margin else len(margin)
