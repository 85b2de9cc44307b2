"""What stands between the two `---` that a Markdown file begins with: YAML of which only texts, lists and tables are
taken.

Every scalar is the text that stands there, as the format means it: no tag, anchor or alias, no key twice. What YAML
refuses and people write all the same, a colon in a line of plain text, is read as that text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from clawd.errors import ClawdError

MOST = 32 << 10  # characters of frontmatter
_DEEPEST = 8
_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
# `key: plain text to the end of the line`, at the top level, which is not quoted and no list, table or block.
_PLAIN = re.compile(r"^([A-Za-z][\w-]*):[ \t]+(?![\"'|>&!#]|\[.*\][ \t]*$|\{.*\}[ \t]*$)(\S.*?)[ \t]*$", re.MULTILINE)
_NOTHING = ("", "~", "null", "Null", "NULL")


class Unreadable(ClawdError):
    """A file that cannot be understood. `message` completes "it is not used: …"."""


def read(text: str, of: str) -> tuple[dict[str, Any], str, list[str]]:
    """Its fields, what follows, and what was put right. Lines of `text` end with a line feed. Raises Unreadable, which
    names the file as `of`."""
    head, body = parted(text, of)
    fields, notes = understood(head, of)
    return fields, body, notes


def parted(text: str, of: str) -> tuple[str, str]:
    """What stands between the fences, from the end of the first one on, and what follows. Raises Unreadable."""
    opened = _FENCE.match(text)
    if opened is None:
        raise Unreadable(f"{of} does not begin with a line ---, and its frontmatter after that")
    closed = _FENCE.search(text, opened.end())
    if closed is None:
        raise Unreadable(f"the frontmatter of {of} does not end: a line --- is missing")
    return text[opened.end() : closed.start()], text[closed.end() :]


def understood(head: str, of: str, most: int = MOST) -> tuple[dict[str, Any], list[str]]:
    """The fields of a head, and what was put right. Raises Unreadable."""
    if len(head) > most:
        raise Unreadable(f"the frontmatter of {of} is longer than {most:,} characters")
    notes = []
    try:
        value = _value(head, of)
    except _Grammar as error:
        try:
            value = _value(_PLAIN.sub(lambda line: f"{line[1]}: {json.dumps(line[2], ensure_ascii=False)}", head), of)
        except _Grammar:
            raise Unreadable(error.message) from None
        notes.append(f"{error.message}; it is read as plain text: put it in quotes")
    if not isinstance(value, dict):
        raise Unreadable(f"the frontmatter of {of} is not made of lines like `name: …`")
    return {key: each for key, each in value.items() if each != ""}, notes


class _Grammar(Unreadable):
    """YAML does not take it."""


def _value(head: str, of: str) -> Any:
    """Raises Unreadable, _Grammar among it."""
    import yaml

    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        events = iter(list(yaml.parse(head, Loader=loader)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1} of {of}" if mark else f"the frontmatter of {of}"
        raise _Grammar(f"{line} is no YAML ({error.problem})") from None
    except yaml.YAMLError:
        raise Unreadable(f"the frontmatter of {of} has characters that YAML does not take") from None
    except RecursionError:
        raise Unreadable(f"the frontmatter of {of} is nested too deep") from None
    value = _built(events, yaml, of, 0)
    if any(isinstance(event, yaml.DocumentStartEvent) for event in events):
        raise Unreadable(f"the frontmatter of {of} has more than one document")
    return value


def _built(events: Iterator[Any], yaml: Any, of: str, depth: int) -> Any:
    """The next value of the events: a text, a list or a table; None where something else ends there."""
    for event in events:
        line = f"line {event.start_mark.line + 1} of {of}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise Unreadable(f"{line} has an anchor or an alias (& or *), which the format does not have")
        if getattr(event, "tag", None) is not None:
            raise Unreadable(f"{line} has a tag (!), which the format does not have")
        if isinstance(event, yaml.ScalarEvent):
            return "" if not event.style and event.value in _NOTHING else event.value
        if depth > _DEEPEST:
            raise Unreadable(f"{line} is nested too deep")
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while (item := _built(events, yaml, of, depth + 1)) is not None:
                items.append(item)
            return items
        if isinstance(event, yaml.MappingStartEvent):
            return _table(events, yaml, of, depth, line)
        if isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent | yaml.DocumentEndEvent):
            return None
    return None


def _table(events: Iterator[Any], yaml: Any, of: str, depth: int, line: str) -> dict[str, Any]:
    table = dict[str, Any]()
    while (key := _built(events, yaml, of, depth + 1)) is not None:
        if not isinstance(key, str):
            raise Unreadable(f"{line} has a key that is no text")
        if key in table:
            raise Unreadable(f"{key[:64]!a} stands in the frontmatter of {of} twice")
        table[key] = _built(events, yaml, of, depth + 1)
    return table
