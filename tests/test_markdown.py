"""Markdown in pieces and in each platform's form: what fits, what is whole, what is valid."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.channel import ChannelLimits
from clawd.markdown import formatted, pieces
from clawd.markdown.cuts import cut
from clawd.markdown.parser import blocks
from clawd.model import Span
from clawd.text import units

TELEGRAM = ChannelLimits(text=4096, markup="spans")
DISCORD = ChannelLimits(text=2000, markup="discord")
SLACK = ChannelLimits(text=12_000, markup="slack")
FORMS = (TELEGRAM, DISCORD, SLACK)

LIMITS = st.builds(
    ChannelLimits,
    text=st.one_of(st.integers(64, 400), st.sampled_from([2000, 4096])),
    markup=st.sampled_from(["plain", "spans", "discord", "slack"]),
)


def bits() -> st.SearchStrategy[str]:
    parts = (
        "a", "word ", "two words", "*", "**", "_", "__", "~~", "`", "``", "```", "~~~", "````", "\n", "\n\n", "\n\n\n",
        "> ", "- ", "1. ", "10) ", "# ", "#### ", "    ", "\t", "[", "](", ")", "![", "[x](http://y.z/q)",
        "![i](http://y.z)", "<", ">", "<!channel>", "<@U1>", "&", "&amp;", "\\", "\r\n", "\n---\n", "\n===\n", "😀",
        "👨‍👩‍👧", "🇩🇪", "é", "漢字", "x" + " y" * 60, "|", "||", "\n|a|b|\n|-|-|\n|c|d|\n", "- [ ] ", "x" * 90,
    )  # fmt: skip
    return st.lists(st.one_of(st.sampled_from(parts), st.text(max_size=8)), max_size=60).map("".join)


WORDS = st.integers(1000, 9999).map(lambda n: f"w{n}")
LINE = st.lists(WORDS, min_size=1, max_size=30).map(" ".join)
CODE = st.lists(st.one_of(LINE, st.just(""), WORDS.map(lambda word: f"    if {word}:")), max_size=12)


@st.composite
def fences(draw: st.DrawFn) -> list[str]:
    mark = draw(st.sampled_from(["```", "~~~", "````", "~~~~~"]))
    body = draw(CODE) + draw(st.sampled_from([[], ["```"] if mark != "```" else []]))
    return [mark + draw(st.sampled_from(["", "py", "c++", "sh -x"])), *body, mark]


@st.composite
def tables(draw: st.DrawFn) -> list[str]:
    n = draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(LINE.map(lambda line: line[:40]), min_size=n, max_size=n), min_size=1, max_size=8))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * n, *lines[1:]]


def inside(lines: list[str], kind: str) -> list[str]:
    if kind == "quote":
        return [f"> {line}" for line in lines]
    mark = "- " if kind == "item" else "12. "
    return [(mark if n == 0 else " " * len(mark) if line else "") + line for n, line in enumerate(lines)]


BLOCKS: st.SearchStrategy[list[str]] = st.recursive(
    st.one_of(
        LINE.map(lambda line: [line]),
        LINE.map(lambda line: [f"## {line}"]),
        LINE.map(lambda line: [f"a **{line}** `{line}` [{line}](http://x.y/z)"]),
        fences(),
        tables(),
    ),
    lambda block: st.tuples(st.lists(block, min_size=1, max_size=3), st.sampled_from(["quote", "item", "number"])).map(
        lambda made: inside([line for each in made[0] for line in [*each, ""]][:-1], made[1])
    ),
    max_leaves=6,
)
DOCUMENTS = st.lists(BLOCKS, min_size=1, max_size=8).map(lambda made: "\n\n".join("\n".join(each) for each in made))


def stretch(text: str, span: Span) -> str:
    return text.encode("utf-16-le")[2 * span.offset : 2 * (span.offset + span.length)].decode("utf-16-le")


def check_spans(text: str, spans: tuple[Span, ...]) -> None:
    assert len(spans) <= 100
    for span in spans:
        shown = stretch(text, span)  # raises within a surrogate pair
        assert shown.strip() and span.offset >= 0 and span.offset + span.length <= units(text)
        assert span.kind in ("pre", "code", "blockquote") or shown == shown.strip()
        if span.kind == "text_link":
            assert re.match("(?:https?|mailto|tg):", span.url) and not span.url.startswith("tg://user")
    for a, b in pairwise(spans):
        assert (a.offset, -a.length) <= (b.offset, -b.length)
    for n, a in enumerate(spans):
        for b in spans[n + 1 :]:
            if b.offset >= a.offset + a.length:
                break
            assert b.offset + b.length <= a.offset + a.length, "they cross"
            assert a.kind not in ("pre", "code") and (b.kind not in ("pre", "code") or a.kind == "blockquote")
            assert a.kind != b.kind


@settings(max_examples=60, deadline=None)
@given(st.one_of(bits(), DOCUMENTS), LIMITS)
def test_pieces_fit_in_every_form_and_join_to_the_source(text: str, limits: ChannelLimits) -> None:
    if limits.markup != "plain":
        assert "".join(piece.text for piece in cut(text, limits)) == text
    made = pieces(text, limits)
    assert made and (limits.markup != "plain" or "".join(made) == text)
    for piece in made:
        assert units(piece) <= limits.text
        piece.encode("utf-16-le")
        assert piece.strip() or not text.strip()
        form = formatted(piece, limits)
        if form is not None:
            assert form.text.strip() and units(form.text) <= limits.text
            check_spans(form.text, form.spans)
            assert limits.markup != "slack" or not re.search(r"<(?:[@#]|![a-z]+[>|^])", form.text)


@settings(max_examples=40, deadline=None)
@given(DOCUMENTS, st.booleans(), LIMITS.filter(lambda limits: limits.markup != "plain" and limits.text >= 200))
def test_each_piece_is_a_document_of_its_own_and_nothing_is_lost(text: str, torn: bool, limits: ChannelLimits) -> None:
    if torn:  # a model that was cut off
        text = text[: 2 * len(text) // 3].rstrip("`~")
    shown = ""
    for piece in pieces(text, limits):
        tokens = blocks(piece + "\n\nEND")
        assert tokens is not None and tokens[-2].content == "END" and tokens[-2].level == 1, "a fence is open"
        form = formatted(piece, limits)
        shown += (form.text if form else piece) + "\n"
    assert set(re.findall(r"\bw\d{4}\b", text)) <= set(re.findall(r"\bw\d{4}\b", shown))


def test_a_fence_is_closed_and_opened_again_where_it_stands() -> None:
    limits = ChannelLimits(text=64, markup="discord")
    made = pieces("> ~~~~py x\n" + "> some code\n" * 8 + "> ~~~~\nafter", limits)
    assert len(made) > 1
    assert all(piece.startswith("> ~~~~py x\n> some") and piece.endswith("> ~~~~") for piece in made[:-1])
    assert made[-1].endswith("after")
    nested = pieces("1. one\n   - two\n\n     ```\n" + "     code code\n" * 8 + "     ```\n     more\n", limits)
    assert [piece.count("```") for piece in nested] == [2] * len(nested)
    assert pieces("```\nnot closed", limits) == ["```\nnot closed\n```"]


def test_a_cut_is_best_before_a_block_then_an_item_a_line_a_sentence_a_word() -> None:
    limits = ChannelLimits(text=64, markup="spans")
    assert pieces("one two three four five six seven\n\n" + "# Head\n" + "x " * 25, limits)[1].startswith("# Head")
    assert pieces("- one two three four five six\n- one two\n  three four\n- five six seven eight nine", limits) == [
        "- one two three four five six\n- one two\n  three four\n",
        "- five six seven eight nine",
    ]
    assert pieces("A first sentence that is here. A second one of them. And a third.", limits)[1] == "And a third."
    assert pieces("word " * 20, limits) == ["word " * 12, "word " * 8]
    assert pieces("one two three four five six seven eight nine ten `in line of code` x", limits)[1].startswith("`in")
    assert pieces("one two three four five six seven eight nine ten [link](http://x.y) x", limits)[1].startswith("[")
    assert [units(piece) for piece in pieces("😀" * 70, limits)] == [64, 64, 12]
    assert all(piece.startswith("👨") for piece in pieces("👨‍👩‍👧‍👦" * 10, limits))
    assert all(len(piece) % 2 == 0 for piece in pieces("🇩🇪" * 40, limits))


def test_a_table_that_is_cut_has_its_head_in_each_piece() -> None:
    rows = "".join(f"| {n} | row |\n" for n in range(30))
    made = pieces("| a | b |\n|---|---|\n" + rows, ChannelLimits(text=160, markup="spans"))
    assert len(made) > 2 and all(piece.startswith("| a | b |\n|---|---|\n") for piece in made)
    form = formatted(made[1], ChannelLimits(text=160, markup="spans"))
    assert form is not None and [span.kind for span in form.spans] == ["pre"] and form.text.startswith("a  | b\n")


SPANS = [
    ("# Title\ntext", "Title\ntext", [("bold", "Title")]),
    ("## a **b** `c` d", "a b c d", [("bold", "a b"), ("code", "c"), ("bold", "d")]),
    ("**b** *i* __b__ _i_ ~~s~~ ||x||", "b i b i s x",
     [("bold", "b"), ("italic", "i"), ("bold", "b"), ("italic", "i"), ("strikethrough", "s"), ("spoiler", "x")]),
    ("if (a || b) and (c || d)", "if (a || b) and (c || d)", []),
    ("||a **b** c|| ||||", "a b c ||||", [("spoiler", "a b c"), ("bold", "b")]),
    ("```py x\nif a:\n    b\n```", "if a:\n    b", [("pre", "if a:\n    b")]),
    ("    indented\n\nx", "indented\n\nx", [("pre", "indented")]),
    ("- a\n- b\n  - c\n\n3. d\n4. e", "• a\n• b\n  • c\n\n3. d\n4. e", []),
    ("- [ ] a\n- [x] **b**", "☐ a\n☑ b", [("bold", "b")]),
    ("> a\n> > b\n\nc", "a\nb\n\nc", [("blockquote", "a\nb")]),
    ("> ```\n> x\n> ```", "x", [("blockquote", "x"), ("pre", "x")]),
    ("[t](https://x.y) [u](tg://user?id=7) [v](/p) <https://a.b>", "t u (tg://user?id=7) v (/p) https://a.b",
     [("text_link", "t"), ("text_link", "https://a.b")]),
    ("[j](javascript:x) ![alt](http://i.j/k.png) ![](http://i.j)", "[j](javascript:x) alt http://i.j",
     [("text_link", "alt"), ("text_link", "http://i.j")]),
    ("<b>x</b> &lt;y&gt; <!-- z -->", "<b>x</b> <y> <!-- z -->", []),
    ("[x][1]\n\n[1]: http://y.z", "[x][1]\n\n[1]: http://y.z", []),
    ("| a | **b** |\n|--|--|\n| 漢 | `x\\|y` | [u](http://z) |", "a  | b\n---+-----+-------------\n漢 | x|y | u (http://z)",
     [("pre", "a  | b\n---+-----+-------------\n漢 | x|y | u (http://z)")]),
    ("😀 **x** 😀 `y`", "😀 x 😀 y", [("bold", "x"), ("code", "y")]),
    ("**a `b`**` `", "a b ", [("bold", "a"), ("code", "b")]),
    ("    - rest of a list\n\n      ```\n      x\n      ```", "• rest of a list\n\n  x", [("pre", "x")]),
    ("***", "———", []),
    ("-\n- a", "•\n• a", []),
]  # fmt: skip


@pytest.mark.parametrize(("source", "text", "spans"), SPANS)
def test_spans(source: str, text: str, spans: list[tuple[str, str]]) -> None:
    form = formatted(source, TELEGRAM)
    assert form is not None
    assert form.text == text.rstrip()
    assert [(span.kind, stretch(form.text, span)) for span in form.spans] == spans
    check_spans(form.text, form.spans)


def test_the_language_of_code_and_the_address_of_a_link_are_kept() -> None:
    form = formatted("```c++ x=1\ny\n```\n[l](<http://a b>)", TELEGRAM)
    assert form is not None and [(span.language, span.url) for span in form.spans] == [
        ("c++", ""),
        ("", "http://a%20b"),
    ]


def test_of_more_spans_than_are_honoured_the_most_important_stay_and_no_address_is_lost() -> None:
    form = formatted("*i* " * 80 + "**b** " * 60 + "`c` " * 30 + "[l](http://x.y) " * 20, TELEGRAM)
    assert form is not None and len(form.spans) == 100
    kinds = [span.kind for span in form.spans]
    assert (kinds.count("text_link"), kinds.count("code"), kinds.count("bold")) == (20, 30, 50)
    form = formatted("[l](http://x.y) " * 110, TELEGRAM)
    assert form is not None and form.text.count("(http://x.y)") == 10 and len(form.spans) == 100


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("### three\n#### **four** x\n# one", "### three\n**four x**\n# one"),
        (
            "![i](http://x.y) [l](http://x/__a__) __b__ `__c__` a__b__c",
            "[i](http://x.y) [l](http://x/__a__) **b** `__c__` a__b__c",
        ),
        ("- [ ] a\n- [x] b", "- ☐ a\n- ☑ b"),
        ("~~~py x\n```\n~~~\n", "```py\n`\u200b``\n```"),
        ("> ````\n> x\n> ````", "> ```\n> x\n> ```"),
        ("a\n\n| a | b |\n|--|--|\n| `c` | d |\n\nb", "a\n\n```\na | b\n--+--\nc | d\n```\n\nb"),
        ("```\n![i](u) __x__ - [ ] y\n```\n||s||", "```\n![i](u) __x__ - [ ] y\n```\n||s||"),
    ],
)
def test_discord(source: str, text: str) -> None:
    form = formatted(source, DISCORD)
    assert form is not None and form.text == text and not form.spans


def test_slack_calls_nobody() -> None:
    form = formatted("<!channel> <!here|x> <@U1> <#C1> <!subteam^S1> <!DOCTYPE html> a<b> & <@", SLACK)
    assert form is not None
    assert form.text == (
        "&lt;!channel&gt; &lt;!here|x&gt; &lt;@U1&gt; &lt;#C1&gt; &lt;!subteam^S1&gt; <!DOCTYPE html> a<b> & &lt;@"
    )


@pytest.mark.parametrize("limits", FORMS, ids=lambda limits: limits.markup)
def test_ten_kilobytes_of_marks_reach_each_form_whole(limits: ChannelLimits) -> None:
    text = "".join(f"n{n} <&>_*{'<>&_*[]()~`#+-=|{}.!'[n % 20]} " for n in range(1000))
    shown = ""
    for piece in pieces(text, limits):
        form = formatted(piece, limits)
        assert units(piece) <= limits.text and (form is None or units(form.text) <= limits.text)
        shown += (form.text if form else piece) + " "
    assert len(text) > 10_000 and re.findall(r"n\d+", shown) == [f"n{n}" for n in range(1000)]
    assert text.count("&") <= shown.count("&") and text.count("<") <= len(re.findall("<|&lt;", shown))


HOSTILE = [
    ">", "> ", "[", "![", "- ", "1. ", "> - ", "*a_ ", "**a", "`a", "``", "~~a", "_a__ *b** ", "[a](", "[a](b",
    "<a", "\\", "&", "||", "a|", "|-", "\n", "-\n", "```\n", "~~~~\n\n", "#\n", "<@U1>", "😀", "\u0301", "\u200d", " ",
    "\t", "x", "https://", "a\n|-\n", "\r",
]  # fmt: skip


@pytest.mark.parametrize("limits", FORMS, ids=lambda limits: limits.markup)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_made_to_hurt_goes_out_all_the_same(hostile: str, limits: ChannelLimits) -> None:
    text = (hostile * 24_000)[:24_000]
    made = pieces(text, limits)
    assert "".join(piece.text for piece in cut(text, limits)) == text
    for piece in made[:2]:
        form = formatted(piece, limits)
        assert units(piece) <= limits.text and (form is None or 0 < units(form.text) <= limits.text)


def test_what_is_nested_too_deep_goes_out_as_it_stands() -> None:
    assert formatted("> " * 100 + "x", TELEGRAM) is None
    assert formatted("- " * 100 + "x", DISCORD) is None
    assert formatted("[" * 4000, TELEGRAM) is None


def test_what_shows_nothing_is_said_to() -> None:
    assert pieces("", TELEGRAM) == [""]
    assert pieces(" \n" * 5000, TELEGRAM) == [(" \n" * 5000)[:2048]]
    assert all(formatted(text, limits) for text in ("", " \n\u200b") for limits in FORMS)
    assert pieces("a" + "\n" * 9000 + "b", TELEGRAM)[-1].strip() == "b"
    assert len(pieces("a" + "\n" * 9000 + "b", TELEGRAM)) == 2


def test_the_parser_is_loaded_when_it_is_needed() -> None:
    code = (
        "import sys, clawd.markdown as m; from clawd.channel import ChannelLimits as L;"
        "m.pieces('*a* ' * 999, L(text=99, markup='spans')); m.formatted('*a*', L());"
        "print('markdown_it' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
