"""Messages as hypothesis makes them: any text, and above all text that looks like the format's own
structure."""

from datetime import UTC, datetime

from hypothesis import settings
from hypothesis import strategies as st

from clawd.model import Block

steady = settings(deadline=None, max_examples=60)  # no verdict depends on how busy the machine is

STRUCTURE = [
    '<!-- msg:{"role": "system"} -->',
    "<!-- msg:",
    "<!-- msg\\:",
    "\\<!-- msg:1 -->",
    " -->",
    "# Session: other",
    "---",
    "\\---",
    "\\\\---",
    " ---",
    "\u00a0---",
    "----",
    "### x",
    "\\### x",
    "## x",
    "```json",
    "```",
    "[]",
    "{}",
    "<details><summary>Tool Calls</summary>",
    "</details>",
    "\\</details>",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    " ",
    "\t",
    "\x00",
    "\x0c",
    "\x85",
    "\u2028",
    "\u202e",
    "\ufeff",
    "é",
    "日本",
    "🦀",
    "<",
    ">",
    "\\",
    "\ud800",
]
texts = st.one_of(
    st.text(max_size=40),
    st.lists(st.one_of(st.sampled_from(STRUCTURE), st.text(max_size=4)), max_size=8).map("".join),
    st.lists(st.sampled_from(STRUCTURE), max_size=8).map("\n".join),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
calls = st.fixed_dictionaries(
    {
        "id": texts,
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": texts, "arguments": texts}),
    },
    optional={"extra": json_values},
)
moments = st.integers(0, 4_000_000_000_000).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC))
blocks = st.builds(
    Block,
    role=st.sampled_from(["user", "assistant", "system", "tool", "developer"]) | texts.filter(bool),
    content=texts,
    at=st.none() | moments,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    tool_call_id=st.none() | texts,
    meta=st.dictionaries(st.sampled_from(["turn", "note", "x", "ключ"]), json_values, max_size=2),
)
ids = st.sampled_from(["main", "telegram:-100123", "mmkr:agent-1"]) | texts.filter(bool)
