from __future__ import annotations

import pytest

from clawd.control.chat import same_session


@pytest.mark.parametrize(
    ("opened", "told", "same"),
    [
        ("terminal:main", "terminal:main", True),
        ("terminal:main", "terminal:main.2", True),
        ("terminal:main.2", "terminal:main.3", True),
        ("terminal:main.2", "terminal:main", True),
        ("terminal:main", "terminal:main2", False),
        ("terminal:main", "terminal:main.x", False),
        ("terminal:main", "terminal:other", False),
        ("terminal:main", "", False),
    ],
)
def test_news_of_the_next_segment_belongs_to_the_conversation(opened: str, told: str, same: bool) -> None:
    assert same_session(opened, told) is same
