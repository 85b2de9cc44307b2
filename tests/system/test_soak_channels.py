"""A minute, with more ends of the daemon, of what `make soak` does on three channels for ten."""

from __future__ import annotations

import pytest

from tests.system.soak_channels import Chats, Plan

SECONDS = 60.0


@pytest.mark.timeout(900)
def test_a_minute_of_faults_loses_doubles_and_reorders_nothing() -> None:
    with Chats(Plan(SECONDS, ends=3)) as chats:
        report = chats.run(lambda line: None)
    assert not report.wrong, report
    assert report.messages > len(chats.places) and report.faults["kill"] and report.faults["restart"], report
