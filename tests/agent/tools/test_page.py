"""HTML as text: what is kept, what is left out, and that no page is too broken."""

from __future__ import annotations

import html

import pytest
from agent.tools.page import Page
from hypothesis import given
from hypothesis import strategies as st


def text(page: str, *cuts: int) -> str:
    said: list[str] = []
    parser = Page(said.append, "https://shop.test/a/b")
    for begin, end in zip((0, *cuts), (*cuts, len(page)), strict=True):
        parser.feed(page[begin:end])
    parser.close()
    return "".join(said)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<title>T</title><body><h1> A\n b </h1><p>c<b>d</b> e<p>f", "T\n\n# A b\n\ncd e\n\nf"),
        ("a<script>if (a<b) {'<p>'}</script>b<style>p{}</style>c<!-- d -->e", "abce"),
        ("a<noscript><b>x</b></noscript><svg><title>x</title><svg></svg></svg>b<svg/>c", "abc"),
        ("<ul><li>a<li><p>b</p></li><li></li></ul>c", "- a\n- b\n\nc"),
        ("<table><tr><th>a<th>b<tr><td>1</td><td>2</td></table>", "| a | b\n| 1 | 2"),
        ("<pre>\n a\n\n  b\n</pre>c", "\n a\n\n  b\n\nc"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("x <a href='../c?d=1#e'>y</a> z", "x y (https://shop.test/c?d=1#e) z"),
        ("<a href='#top'>a</a> <a href='javascript:x'>b</a> <a>c</a> <a href='mailto:x@y'>d</a>", "a b c d"),
        ("<a href='https://x.test/'>https://x.test/</a> <a href='/y'><img alt='y'></a>", "https://x.test/ y (https://shop.test/y)"),
        ("<a href='http://[bad'>a</a> <a href='/p'>b<p>c", "a b (https://shop.test/p)\n\nc"),
        ("1 &lt; 2 &amp;&#33;&nbsp;x", "1 < 2 &! x"),
        ("</p></div></script></pre>a", "a"),
        ("a<script>never ended <p>b", "a"),
        ("a<![if x]>b<![ foo [c]]>d", "abd"),
    ],
)  # fmt: skip
def test_pages(page: str, said: str) -> None:
    assert text(page).lstrip("\n") == said.lstrip("\n")


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_what_is_written_is_read(words: str) -> None:
    written = html.escape(words.replace("\r", " "))
    assert text(f"<p>{written}</p><script>{words.replace('</', '')}</script>") == " ".join(
        html.unescape(written).split()
    )


TAGS = ["p", "/p", "pre", "/pre", "a href=/x", "/a", "script", "/script", "li", "svg", "/svg", "td", "br/", "!-- a --"]
WHOLE = [*(f"<{tag}>" for tag in TAGS), "&amp;", "&", "word", " ", "\n", "é", "a > b"]
BROKEN = ["<", "<!--", "-->", "<![CDATA[", "<![x[", "<!x", "<?", "<h2", "</", "&#", "&#x110000;"]


@given(st.lists(st.sampled_from(WHOLE), max_size=30), st.data())
def test_a_page_reads_the_same_however_it_comes(pieces: list[str], data: st.DataObject) -> None:
    page = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(page)), max_size=4)))
    assert text(page, *cuts) == text(page)


@given(st.lists(st.sampled_from(WHOLE + BROKEN), max_size=30), st.data())
def test_no_page_is_too_broken(pieces: list[str], data: st.DataObject) -> None:
    ends = "</svg>" * pieces.count("<svg>")
    page = "".join([*pieces, "<!---->-->]]>?></script>", ends, "<p>last"])
    said = text(page, *sorted(data.draw(st.lists(st.integers(0, len(page)), max_size=4))))
    assert said.endswith("last")
