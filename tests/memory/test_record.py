"""The file of a memory: what the daemon writes, and what it makes of what a person wrote."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from clawd import frontmatter
from clawd.errors import Refused
from clawd.memory import record
from clawd.memory.record import FOLDERS, MemoryRecord, Said, read, settled, written
from clawd.trust import Origin

AT = datetime(2026, 11, 29, 13, 52, tzinfo=timezone(timedelta(hours=1)))
BOAT = MemoryRecord(
    "ep_0123456789", "episode", "Ada's boat is green.", AT, AT, AT, "telegram:7#12", Origin.OWNER, 1.0,
    tags=("boat",), said=Said("My boat is green.", 12),
)  # fmt: skip
FILE = """\
---
schema: 1
id: "ep_0123456789"
kind: "episode"
created: "2026-11-29T13:52:00+01:00"
updated: "2026-11-29T13:52:00+01:00"
event_time: "2026-11-29T13:52:00+01:00"
source: "telegram:7#12"
origin: "owner"
trust: 1.0
status: "active"
derived_from: []
supersedes: null
tags: ["boat"]
said: {"inbound": 12, "quote": "My boat is green."}
---
Ada's boat is green.
"""


def head_of(data: bytes) -> str:
    return data.decode().split("\n---\n")[0].removeprefix("---\n")


def test_the_bytes_of_a_file() -> None:
    assert written(BOAT) == FILE.encode()
    page = read(FILE.encode())
    assert (page.text, page.head, page.problems) == ("Ada's boat is green.", "", ())
    assert page.fields["event_time"] == AT and page.fields["tags"] == ("boat",)
    assert page.fields["said"] == {"inbound": 12, "quote": "My boat is green."}


def test_what_was_not_read_to_its_end_is_not_written() -> None:
    with pytest.raises(Refused, match="too large"):
        written(replace(BOAT, file="entities/large.md", whole=False))


TEXTS = st.one_of(
    st.text(),
    st.lists(st.sampled_from(["---", "--- ", "id: x", "trust: 1.0", "# a", "", "  code", "\r", "\ufeff", "..."]))
    .map("\n".join),
)  # fmt: skip
MOMENTS = st.datetimes(datetime(1970, 1, 3), datetime(9990, 1, 1), timezones=st.just(UTC)).map(
    lambda each: each.replace(microsecond=0)
)
WORDS = st.text(min_size=1).map(settled).filter(bool)
TAGS = st.lists(WORDS.filter(lambda tag: not tag.startswith("#"))).map(tuple)


@st.composite
def records(draw: st.DrawFn) -> MemoryRecord:
    said = st.none() | st.builds(Said, WORDS, st.none() | st.integers(0, 2**40))
    return MemoryRecord(
        draw(st.from_regex(r"(ep|en|pr|re)_[0-9a-z]{10}", fullmatch=True)), draw(st.sampled_from(list(FOLDERS))),  # type: ignore[arg-type]
        settled(draw(TEXTS)), draw(MOMENTS), draw(MOMENTS), draw(MOMENTS), draw(WORDS), draw(st.sampled_from(Origin)),
        draw(st.floats(0, 1)), "active", 1.0, draw(TAGS), draw(st.none() | WORDS), draw(TAGS), draw(said),
        key=draw(WORDS),
    )  # fmt: skip


@given(records())
def test_what_is_written_is_read_again_and_is_yaml(record: MemoryRecord) -> None:
    data = written(record)
    page = read(data)
    assert page.text == record.text and page.head == ""
    said = {"quote": record.said.quote, "inbound": record.said.inbound} if record.said else None
    for name in ("id", "kind", "created", "updated", "event_time", "source", "trust", "status", "derived_from",
                 "supersedes", "tags", "key"):  # fmt: skip
        assert page.fields.get(name) == getattr(record, name)
    assert page.fields["origin"] == record.origin and page.fields.get("said") == said
    for_others = yaml.safe_load(head_of(data))
    assert for_others["source"] == record.source and for_others["tags"] == list(record.tags)
    assert (for_others.get("said") or {}).get("quote") == (said or {}).get("quote")


@given(TEXTS)
def test_a_text_is_settled_once_and_for_all(text: str) -> None:
    assert settled(settled(text)) == settled(text)
    assert read(written(replace(BOAT, text=text))).text == settled(text)


@pytest.mark.parametrize(
    ("head", "field", "value"),
    [
        ("tags: [a, b]", "tags", ("a", "b")),
        ("tags: a", "tags", ("a",)),
        ("tags: '#a, #b'", "tags", ("a", "b")),
        ("tags:\n  - a\n  - b c", "tags", ("a", "b c")),
        ("tags:\n- 1\n- ~", "tags", ("1",)),
        ("tags:", "tags", None),
        ("event_time: 2026-11-29T13:52:00+01:00", "event_time", AT),
        ("event_time: 2026-11-29 12:52:00Z", "event_time", AT),
        ("date: 2026-11-29T13:52+01:00", "event_time", AT),
        ("date: 2026-11-29", "event_time", datetime(2026, 11, 29).astimezone()),
        ("event_time: tomorrow", "event_time", None),
        ("event_time: 99999-01-01", "event_time", None),
        ("event_time: [x]", "event_time", None),
        ("trust: .nan", "trust", None),
        ("trust: 0.4", "trust", 0.4),
        ("id: ep_0123456789", "id", "ep_0123456789"),
        ("id: 12", "id", "12"),
        ("said: {quote: yes, inbound: 3}", "said", {"quote": "yes", "inbound": 3}),
        ("said: {quote: yes, inbound: many}", "said", {"quote": "yes", "inbound": None}),
        ("said: yes", "said", None),
        ("supersedes:", "supersedes", None),
        ("title: Use when: x", "title", "Use when: x"),
        ("aliases: [x, y]", "aliases", ["x", "y"]),
    ],
)
def test_values_as_a_person_writes_them(head: str, field: str, value: Any) -> None:
    page = read(f"---\n{head}\n---\nbody\n".encode())
    assert page.fields.get(field) == value and page.text == "body" and page.head in ("", head)
    assert bool(page.problems) == ((value is None and head not in ("tags:", "supersedes:")) or head.endswith(": x"))


BARE = st.text("aZ09_.+/-: #~[", min_size=1) | st.sampled_from(["null", "Null", "true", "1e5"])


@given(st.dictionaries(st.sampled_from(["id", "kind", "source", "created", "trust", "tags"]), BARE))
def test_bare_words_are_what_yaml_says(fields: dict[str, str]) -> None:
    page = "---\n" + "\n".join(map(": ".join, fields.items())) + "\n---\nbody"
    try:
        known, _, problems = frontmatter.read(page, "it")
    except frontmatter.Unreadable:
        return
    assert read(page.encode()).fields == record._normal(known, "it", problems)


@pytest.mark.parametrize(
    "data", [b"---\n---\nbody", b"---\n# nothing yet\n---\nbody", b"\xef\xbb\xbf---\r\n---\r\nbody"]
)
def test_empty_frontmatter_is_no_text(data: bytes) -> None:
    assert read(data).text == "body" and not read(data).problems


BOMB = "\n".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]" for n in range(9))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("---\nid: x\nbody, and no end", "does not end"),
        ("---\nA line, and then a rule\n---\nmore", "is not made of lines like"),
        (f"---\na: &a [x]\n{BOMB}\n---\nbody", "an anchor or an alias"),
        ("---\na: &a {<<: *a}\n---\nbody", "an anchor or an alias"),
        ("---\na: !!python/object/apply:os.system ['true']\n---\nbody", "has a tag"),
        ("---\na: 1\na: 2\n---\nbody", "twice"),
        ('---\nid: "ep_0123456789"\nid: "ep_1123456789"\n---\nbody', "twice"),
        ("---\na: " + "[" * 60_000 + "\n---\nbody", "read as plain text"),
        ("---\n" + "- " * 30_000 + "x\n---\nbody", "no YAML"),
        ("---\n" + "".join(f"{' ' * n}a:\n" for n in range(300)) + "---\nbody", "nested too deep"),
        ("---\nid: " + "[" * 100_000 + "]" * 100_000 + "\n---\nbody", "longer than"),
        ("---\na: " + "x" * (10 << 20) + "\n---\nbody", "longer than"),
        ("---\na: 'open\n---\nbody", "no YAML"),
        ("---\na: \x00\n---\nbody", "characters that YAML does not take"),
        ("---\ntrust: " + "9" * 5000 + "\n---\nbody", "trust of the file is not understood"),
        ('---\ntags: ["a"\n---\nbody', "read as plain text"),
        ('---\nid: "a",\n---\nbody', "no YAML"),
    ],
)
def test_broken_frontmatter_is_text_and_said(text: str, words: str) -> None:
    page = read(text.encode())
    assert words in page.problems[0]
    if "not understood" in words or "plain text" in words:
        assert page.text == "body"
    else:
        assert page.text == text and page.head == ""
        assert read(written(replace(BOAT, text=page.text))).text == text


def test_who_it_is_survives_a_slip_in_an_editor() -> None:
    slip = FILE.replace('"active"', '"active').encode()
    page = read(slip, "memory/x.md")
    assert page.fields["id"] == BOAT.id and page.text == slip.decode().strip()
    assert page.problems[0].startswith("line 14 of memory/x.md is no YAML")


@given(st.one_of(st.binary(), TEXTS.map(lambda text: f"---\n{text}".encode("utf-8", "replace"))))
def test_any_bytes_are_read_and_no_text_is_lost(data: bytes) -> None:
    page = read(data)
    whole = settled(data.decode("utf-8-sig", "replace"))
    assert whole.endswith(page.text)
    if page.text != whole:
        assert whole.removesuffix(page.text).rstrip().endswith("---")


def test_what_is_no_utf8_is_read_and_said() -> None:
    page = read(b"caf\xe9 \x00 au lait")
    assert page.text == "caf\ufffd \x00 au lait" and "byte 3" in page.problems[0]


OBSIDIAN = """\
# where it came from
title: The boat   # as on its stern
id: ep_0123456789
kind: episode
created: 2026-11-29T13:52:00+01:00
rating: 5
tags:
  - boat
aliases:
- green boat

cssclasses: [wide,
  dark]
note: |
  id: not this

  trust: nor this
trust: 0.2"""


def test_what_a_person_added_to_the_frontmatter_stays() -> None:
    page = read(f"---\n{OBSIDIAN}\n---\nSee [[The boat]] and ![[deck.png]].\n".encode())
    assert page.head == OBSIDIAN and page.fields["rating"] == "5" and page.fields["tags"] == ("boat",)
    again = written(replace(BOAT, text=page.text, tags=("boat", "green"), head=page.head))
    assert head_of(again) == (
        OBSIDIAN.replace("id: ep_0123456789", 'id: "ep_0123456789"', 1)
        .replace("kind: episode", 'kind: "episode"')
        .replace("created: 2026-11-29T13:52:00+01:00", 'created: "2026-11-29T13:52:00+01:00"')
        .replace("tags:\n  - boat", 'tags: ["boat", "green"]')
        .replace("trust: 0.2", "trust: 1.0")
        + '\nschema: 1\nupdated: "2026-11-29T13:52:00+01:00"\nevent_time: "2026-11-29T13:52:00+01:00"'
        + '\nsource: "telegram:7#12"\norigin: "owner"\nstatus: "active"\nderived_from: []\nsupersedes: null'
        + '\nsaid: {"inbound": 12, "quote": "My boat is green."}'
    )
    page = read(again)
    assert page.text == "See [[The boat]] and ![[deck.png]]." and page.fields["note"].startswith("id: not this")
    assert written(replace(BOAT, text=page.text, tags=("boat", "green"), head=page.head)) == again


KEYS = st.from_regex(r"[a-zA-Z][\w -]{0,8}[a-z]", fullmatch=True) | st.text(min_size=1, max_size=6)
VALUES = st.recursive(
    st.text(max_size=80) | st.integers() | st.booleans() | st.dates(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(KEYS, each, max_size=3),
    max_leaves=5,
)
OWN = st.fixed_dictionaries(
    {"id": st.just("ep_9999999999")}, optional={"tags": st.lists(WORDS, max_size=3), "trust": st.just(0.1),
     "said": st.fixed_dictionaries({"quote": WORDS})}
)  # fmt: skip


@given(st.dictionaries(KEYS, VALUES, max_size=4), OWN, st.sampled_from([None, True, False]), st.sampled_from("'\"|>"))
def test_no_property_that_a_person_has_is_lost(
    others: dict[str, Any], own: dict[str, Any], flow: bool | None, style: str
) -> None:
    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    fields = {**others, **own}
    head = yaml.dump(fields, Dumper=Plain, default_flow_style=flow, default_style=style, allow_unicode=True, width=20)
    page = read(f"---\n{head}---\nbody".encode())
    if page.text != "body":  # YAML that is not ours to understand, like a long key
        assert page.problems
        return
    again = read(written(replace(BOAT, text="body", head=page.head)))
    ours = {"schema", "kind", "created", "updated", "event_time", "source", "origin", "trust", "status", "derived_from",
            "supersedes", "tags", "said", "id", "date"}  # fmt: skip
    kept = {name: value for name, value in page.fields.items() if name not in ours}
    assert {name: value for name, value in again.fields.items() if name not in ours} == kept
    assert (again.text, again.fields["id"], again.fields["tags"]) == ("body", BOAT.id, BOAT.tags)
    assert read(written(replace(BOAT, text="body", head=again.head))) == again
