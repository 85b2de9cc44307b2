"""Which call gets which result, and by which key a thing is known."""

from __future__ import annotations

from itertools import count, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.bridges.mmkr import messages
from clawd.bridges.mmkr.messages import NO_RESULT, Piece, Telling

steady = settings(deadline=None, max_examples=80)


def pieces(telling: Telling) -> list[Piece]:
    telling.close()
    return list(telling.ready())


def contents(made: list[Piece]) -> list[str]:
    return [block.content for piece in made for block in piece.blocks]


def test_results_find_their_calls_by_id_then_by_tool_then_in_order() -> None:
    telling = Telling()
    for tool, own in (("a", ""), ("b", "x"), ("a", ""), ("b", "y")):
        telling.call(1, None, tool, "{}", f"{tool}{own}", own_id=own)
    for tool, own, words in (("b", "y", "of y"), ("", "", "of a"), ("b", "", "of x"), ("a", "", "of a again")):
        telling.result(1, None, tool, words, own_id=own)
    assert contents(pieces(telling))[1:] == ["a", "of a", "bx", "of x", "a", "of a again", "by", "of y"]


def test_what_follows_an_open_call_waits_for_it() -> None:
    telling = Telling()
    telling.start(1, None, "begins")
    telling.call(1, None, "a", "{}")
    telling.note(1, None, "decision", "noted")
    assert contents(list(telling.ready())) == ["begins"]
    telling.result(1, None, "a", "there")
    assert contents(list(telling.ready())) == ["Calling a", "there", "noted"]


def test_a_new_tick_closes_the_calls_of_the_one_before() -> None:
    telling = Telling()
    telling.call(1, None, "a", "{}")
    telling.start(2, None, "begins")
    telling.result(2, None, "a", "of another")
    said = contents(pieces(telling))
    assert said[1:4] == ["Calling a", NO_RESULT, "begins"]
    assert said[4:] == ["[the call of a was not recorded]", "of another"]


def test_an_open_call_never_holds_back_more_than_so_many() -> None:
    telling = Telling()
    telling.call(1, None, "slow", "{}")
    for n in range(messages._WAITING + 1):
        telling.note(1, None, "decision", str(n))
    assert len(contents(list(telling.ready()))) == messages._WAITING + 2
    telling.result(1, None, "slow", "at last")
    assert contents(list(telling.ready())) == ["Calling slow", "at last"]


def test_keys_tell_equal_things_of_a_tick_apart_and_agents_that_begin_anew() -> None:
    def all_keys(telling: Telling) -> list[str]:
        for tick in (1, 2, 1, 2):
            telling.start(tick, None, "begins")
            for _ in range(2):
                telling.call(tick, None, "a", '{"x": 1}')
                telling.result(tick, None, "a", "r")
                telling.note(tick, None, "decision", "same")
            telling.end(tick, None, "done", "done")
        return [block.meta["key"] for piece in pieces(telling) for block in piece.blocks]

    keys = all_keys(Telling())
    assert len(keys) == len(set(keys)) and keys == all_keys(Telling())


def test_a_straggler_of_the_tick_before_is_no_new_beginning() -> None:
    telling = Telling()
    telling.start(1, None, "begins")
    telling.start(2, None, "begins")
    telling.note(1, None, "decision", "late")
    telling.note(2, None, "decision", "in time")
    assert contents(pieces(telling)) == ["begins", "begins", "late", "in time"] and telling.ticks == 2


def test_arguments_are_the_same_in_whatever_order() -> None:
    one, other = Telling(), Telling()
    first = one.call(1, None, "a", '{"x": 1, "y": 2}').tool_calls[0]["id"]
    assert first == other.call(1, None, "a", '{"y":2,"x":1}').tool_calls[0]["id"]


STEPS = st.lists(
    st.tuples(st.sampled_from(["start", "call", "result", "end", "note", "keep"]), st.integers(1, 3), st.booleans()),
    max_size=40,
)


@steady
@given(STEPS, st.sets(st.integers(0, 40)))
def test_every_call_is_followed_by_its_result_and_nothing_is_lost(
    steps: list[tuple[str, int, bool]], at: set[int]
) -> None:
    """Whatever the order, and whenever it is written out."""
    telling, made, kept, said = Telling(), list[Piece](), 0, list[str]()
    numbers = count()
    for n, (step, tick, other) in enumerate(steps):
        text = f"text {next(numbers)}"
        if step == "start":
            telling.start(tick, None, text)
        elif step == "call":
            telling.call(tick, None, "ab"[other], "{}", text)
        elif step == "result":
            telling.result(tick, None, "ab"[other], text)
        elif step == "end":
            telling.end(tick, None, text, text)
        elif step == "note":
            telling.note(tick, None, "decision", text, "user" if other else "assistant")
        else:
            telling.keep(tick, None, text, "general", 0.5)
            kept += 1
            continue
        said.append(text)
        if n in at:
            made += telling.ready()
    made += pieces(telling)
    blocks = [block for piece in made for block in piece.blocks]
    assert set(said) <= {block.content for block in blocks} and len(list(telling.kept())) == kept
    ids = [call["id"] for block in blocks for call in block.tool_calls]
    assert len(ids) == len(set(ids)) and len({block.meta["key"] for block in blocks}) == len(blocks)
    for before, block in pairwise(blocks):
        assert (block.role == "tool") == bool(before.tool_calls)
        assert block.role != "tool" or block.tool_call_id == before.tool_calls[0]["id"]
    assert not blocks or not blocks[-1].tool_calls
    assert telling.messages == len(blocks)
