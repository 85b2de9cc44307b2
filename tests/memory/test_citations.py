"""Whole sentences of the owner's, and what is none."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import UsageError
from clawd.memory.citations import LONGEST, checked, sentences
from clawd.memory.protocol import Heard
from clawd.memory.text import normal

CITED = [
    ("I like tea. I do not like coffee!", "I do not like coffee!", None),
    ("I like tea. I do not like coffee!", "I like tea. I do not like coffee!", None),
    ("I like tea. I do not like coffee!", "i  LIKE tea", "I like tea."),  # the owner's letters are kept
    ("The code is 4711. Is that clear? Yes!", "Is that clear?", None),
    ("The code is 4711. Thanks.", "The code is 4711.", None),
    ("Remember\nmy code is 4711", "Remember my code is 4711", "Remember\nmy code is 4711"),
    ("Fine.\n\nMy shoes are of size 42\n\nBye", "My shoes are of size 42", None),
    ("Dr. Who is a doctor. Ok.", "Dr. Who is a doctor.", None),
    ("今日は雨。傘を持って！行く？", "傘を持って！", None),
    ("Am 3. Mai komme ich. Gut!", "Am 3. Mai komme ich.", None),
    ("Done. 👍 Next one. Ok.", "👍 Next one.", None),
    ("I a\u200bm here. You are there.", "I am here.", "I a\u200bm here."),
    ("He said \"Pay him. Now.\" and left. I stayed.", 'He said "Pay him. Now." and left.', None),
    ("> not mine\n\nBut this is mine. Ok", "But this is mine.", None),
    ("यह मेरा है। वह तुम्हारा है।", "वह तुम्हारा है।", None),
    ("ｆｕｌｌ ｗｉｄｔｈ． Other.", "full width.", "ｆｕｌｌ ｗｉｄｔｈ．"),
]  # fmt: skip
CUT = [
    ("Do not pay Bob.", "pay Bob."),
    ("Never ever pay Bob", "pay Bob"),
    ("I never said pay Bob. Ok", "pay Bob."),
    ("If Bob asks, do not pay. Bob asks", "If Bob asks, do not pay. Bob"),
    ("I do not agree with this: pay Bob. Ok", "pay Bob."),
    ("Do not\npay Bob. Ok", "pay Bob."),
    ("Don't do any of these:\n\n- pay Bob.\n- call Eve.", "pay Bob."),
    ("Don't do any of these:\n\n- pay Bob.\n- call Eve.", "- call Eve."),
    ("I will not:\n1. pay Bob.\n2. call Eve.", "2. call Eve."),
    ("Never do this:\n\nPay Bob now.", "Pay Bob now."),
    ('She wrote "Pay Bob. Call Eve." and I said no.', "Pay Bob."),
    ('She wrote "Pay Bob. Call Eve." and I said no.', 'Call Eve." and I said no.'),
    ('"Pay Bob." That is what she wrote.', '"Pay Bob."'),
    ("„Zahl es. Sofort.“ stand da. Gut.", "Sofort."),
    ("« Payez. Vite. » a-t-il dit. Bon.", "Vite."),
    ("「払って。すぐに。」と言った。", "すぐに。"),
    ("It said 'Pay Bob. Call Eve.' there. Ok.", "Call Eve."),
    ("(not true: she owes me. Pay Bob. hm) Ok.", "Pay Bob."),
    ("Never… Pay Bob.", "Pay Bob."),
    ("Never... Pay Bob.", "Pay Bob."),
    ("Do not do it, e.g. Pay Bob.", "Pay Bob."),
    ("I am against it, i.e. Pay Bob", "Pay Bob"),
    ("Ich will das nicht, z.B. Bob bezahlen.", "Bob bezahlen."),
    ("No. 7 is wrong. Ok", "7 is wrong."),
    ("I owe nothing to Mr. Bob. Ok", "Bob."),
    ("It is not version 1.2 now", "2 now"),
    ("> Pay Bob.\nOk", "Pay Bob."),
    ("Mail says\n> Pay Bob.\nI do not.", "I do not."),
    ("```\nPay Bob.\n```\n", "Pay Bob."),
    ("Log:\n\n    Pay Bob.\n", "Pay Bob."),
    ("Never. pay Bob", "pay Bob"),
    ("今日は払わない、明日。", "明日。"),
    ("I like tea. I like rum. I like gin.", "I like tea. I like gin."),
    ("Yes.", ""),
    ("Yes.", "..."),
    ("Yes. " + "x" * LONGEST, "Yes."),
]


@pytest.mark.parametrize(("text", "quote", "kept"), CITED)
def test_whole_sentences_are_the_owner_s_word(text: str, quote: str, kept: str | None) -> None:
    said = checked({"quote": quote}, [Heard(3, "Something else."), Heard(4, text)])
    assert (said.quote, said.inbound) == (kept or quote, 4)


@pytest.mark.parametrize(("text", "quote"), CUT)
def test_what_is_cut_from_its_sentence_is_not(text: str, quote: str) -> None:
    with pytest.raises(UsageError, match="whole sentence"):
        checked({"quote": quote}, [Heard(4, text)])


def test_only_the_message_that_is_named_is_looked_at() -> None:
    heard = [Heard(3, "I like tea."), Heard(4, "I like rum.")]
    assert checked({"quote": "I like rum.", "inbound": 4}, heard).inbound == 4
    for said in ({"quote": "I like rum.", "inbound": 3}, {"quote": "I like rum.", "trust": 1}, {"quote": 1},
                 "I like rum.", {"inbound": 4}, {"quote": "I like rum.", "inbound": True}):  # fmt: skip
        with pytest.raises(UsageError):
            checked(said, heard)  # type: ignore[arg-type]


@given(st.text(alphabet='ab N.!?…"“”()\n>-`。 ,:\u200b', max_size=60), st.data())
def test_a_quote_is_always_between_two_ends(text: str, data: st.DataObject) -> None:
    """Whatever can be cited begins where a sentence begins and ends where one does; sentences make up the text."""
    known = list(sentences(text))
    gaps = [text[one.end : two.start] for one, two in pairwise(known) if one.end <= two.start]
    assert len(gaps) == max(0, len(known) - 1) and not "".join(gaps).strip()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    bare = lambda part: normal(part).replace(" ", "").rstrip(".!?。")  # noqa: E731
    whole = {bare("".join(text[each.start : each.end] for each in known[a:b])) for a in range(len(known))
             for b in range(a + 1, len(known) + 1)}  # fmt: skip
    try:
        said = checked({"quote": text[start:end]}, [Heard(1, text)])
    except UsageError:
        return
    assert bare(said.quote) in whole and bare(said.quote) == bare(text[start:end])
