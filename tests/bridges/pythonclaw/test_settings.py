"""pythonclaw.json tells names, never a value that could be a key."""

from __future__ import annotations

import pytest

from clawd.bridges import loose
from clawd.bridges.pythonclaw.settings import Settings, of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"llm": {"claude": {"apiKey": "k"}}}', Settings(("llm.claude.apiKey",))),
        ('{"a": {"password": "p", "botToken": "t", "clientSecret": "s"}}',
         Settings(("a.password", "a.botToken", "a.clientSecret"))),
        ('{"a": {"apiKey": "", "token": "  "}}', Settings()),
        ('{// "apiKey": "x"\n"url": "http://x//y", "list": [1, 2,],}', Settings()),
        ('{"x": ",}", "apiKey": "// k"}', Settings(("apiKey",))),
        ('{"channels": {"telegram": {"allowedUsers": [7, "bob"]}}}',
         Settings((), ("channels.telegram.allowedUsers: 7, bob",),
                  ("telegram was set up there: here it needs its token anew",))),
        ('{"allowedUsers": ["two words", {"a": 1}]}',
         Settings((), ("allowedUsers has 2 that cannot be shown",))),
        ('{"isolation": {"perGroup": true}}',
         Settings((), (), ("each chat had a memory of its own there (isolation.perGroup)",))),
        ('{"sk-this is no name": {"apiKey": "k"}}', Settings(("….apiKey",))),
        ('{"mcp": [{"env": {"TAVILY": "k"}}]}', Settings(("mcp[0].env.TAVILY",))),
        ("{}", Settings()),
    ],
)  # fmt: skip
def test_what_is_told(text: str, expected: Settings) -> None:
    assert of(loose.read(text)) == expected


def test_many_are_counted() -> None:
    found = of({"allowedUsers": [*range(30)]})
    assert found.allowed[0].endswith("19 and 10 more")
