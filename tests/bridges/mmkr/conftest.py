"""Homes to record into."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawd.config.begin import init_home
from clawd.config.home import Home
from clawd.ledger.db import Ledger


@pytest.fixture
def clawd_home(tmp_path: Path) -> Home:
    """One whose group main takes what mmkr's agents say."""
    home = Home(tmp_path / "clawd")
    init_home(home)
    Ledger.open(home.ledger_file).close()  # its migrations take a while
    group = home.group("main").config_file
    group.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    group.write_text('schema = 1\nexternal = ["mmkr:*"]\n')
    return home
