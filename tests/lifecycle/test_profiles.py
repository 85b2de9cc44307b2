"""Where a session's limits come from, and that they lie below its model's window."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.config.group import GroupConfig
from clawd.config.load import merged, parse, parse_group
from clawd.config.schema import Config
from clawd.errors import ConfigError
from clawd.lifecycle.deciding import Thresholds
from clawd.lifecycle.profiles import MARGIN, clamped, thresholds
from clawd.usage.prices import window_of

OWN = "[profiles.own]\nsoft = 1000\nhard = 2000\n[profiles.coding]\nsoft = 3000\nhard = 4000\n"


def of(config: str = "", group: str = "", **more: Any) -> Thresholds:
    read = parse(Config, config, "config.toml")
    return thresholds(read, merged(read, parse_group(group)), **more)


@pytest.mark.parametrize(
    ("config", "group", "more", "found"),
    [
        ("", "", {}, ("chat", 60_000, 100_000)),
        ("", 'profile = "coding"', {}, ("coding", 250_000, 350_000)),
        ("", 'profile = "coding"', {"profile": "chat"}, ("chat", 60_000, 100_000)),
        (OWN, 'profile = "own"', {}, ("own", 1000, 2000)),
        (OWN, "", {"profile": "coding"}, ("coding", 3000, 4000)),
        ("", "", {"profile": "coding", "soft": 1000, "hard": 500_000}, ("coding", 1000, 500_000)),
        ("", "", {"profile": "coding", "soft": 500_000, "hard": 600_000}, ("coding", 500_000, 600_000)),
        ("", "", {"profile": "coding", "hard": 300_000}, ("coding", 250_000, 300_000)),
        # a model of 200,000 tokens would never reach 250,000: 200000 - 8192 - 13000 = 178808, 3/4 of it 134106
        ("", "", {"profile": "coding", "window": 200_000}, ("coding", 134_106, 178_808)),
        ("[model]\nmax_output = 64000\n", "", {"profile": "coding", "window": 200_000}, ("coding", 92_250, 123_000)),
        ("[model]\nwindow = 200000\n", "", {"profile": "coding"}, ("coding", 134_106, 178_808)),
        ("[model]\nwindow = 200000\n", "", {"profile": "coding", "window": 10**6}, ("coding", 134_106, 178_808)),
        ("", "[model]\nwindow = 200000\n", {"profile": "coding"}, ("coding", 134_106, 178_808)),
        ("", "", {"profile": "coding", "window": 1_000_000}, ("coding", 250_000, 350_000)),
        ("", "", {"window": 200_000}, ("chat", 60_000, 100_000)),
    ],
)
def test_what_holds(config: str, group: str, more: dict[str, Any], found: tuple[str, int, int]) -> None:
    assert of(config, group, **more) == Thresholds(*found)


@pytest.mark.parametrize(
    ("config", "group", "more", "says"),
    [
        ("", "", {"profile": "codign"}, "did you mean coding?"),
        ("", 'profile = "nosuch"', {}, "chat, coding"),
        ("", "", {"profile": "coding", "soft": 350_000}, "soft must be below hard"),
        ("", "", {"profile": "coding", "soft": 0}, "soft must be below hard"),
        ("", "", {"hard": 60_000}, "soft must be below hard"),
        ("", "", {"window": 20_000}, "no room"),
        ("", "", {"window": 8192 + MARGIN + 1}, "no room"),
    ],
)
def test_what_cannot_hold_is_a_sentence(config: str, group: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        of(config, group, **more)
    assert says in str(raised.value) and raised.value.code == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[profiles.x]\nsoft = 2\nhard = 2\n", "soft must be below hard"),
        ("[profiles.x]\nsoft = 2\n", "soft and hard, or a calibration"),
        ("[profiles.x]\n", "soft and hard, or a calibration"),
        ('[profiles.x]\ncalibration = "/etc/passwd"\n', "state/calibrations/coding.json"),
        ('[profiles.x]\ncalibration = "state/calibrations/../../x.json"\n', "state/calibrations/coding.json"),
        ('[profiles."a/b"]\nsoft = 1\nhard = 2\n', "letters, digits"),
    ],
)
def test_a_profile_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(Config, text, "config.toml")


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 2 * 10**6), st.integers(1, 128_000))
def test_below_a_window_there_is_always_room_for_an_answer(soft: int, more: int, window: int, output: int) -> None:
    try:
        found = clamped(Thresholds("p", soft, soft + more), window, output)
    except ConfigError:
        assert window - output - MARGIN < 2
        return
    assert 0 < found.soft < found.hard and found.hard + output + MARGIN <= window
    assert found.soft <= soft and found.hard <= soft + more and found.soft <= 0.75 * found.hard


FILE = "state/calibrations/own.json"
CALIBRATED = f'[profiles.own]\nsoft = 1\nhard = 2\ncalibration = "{FILE}"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "state" / "calibrations").mkdir(parents=True)
    return tmp_path


def test_the_figures_of_a_calibration_hold(root: Path) -> None:
    said = {"schema": 1, "profile": "own", "soft": 90_000, "hard": 140_000, "sessions": 7, "later": "unknown"}
    (root / FILE).write_text(json.dumps(said))
    assert of(CALIBRATED, "", profile="own", root=root) == Thresholds("own", 90_000, 140_000)
    without = f'[profiles.own]\ncalibration = "{FILE}"\n'
    assert of(without, "", profile="own", root=root, hard=120_000) == Thresholds("own", 90_000, 120_000)
    assert of(without, "", profile="own", root=root, window=100_000).hard == 100_000 - 8192 - MARGIN
    assert of(without, "", profile="own", soft=5, hard=6) == Thresholds("own", 5, 6)  # nothing of it is needed


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no calibration"),
        ("", "not JSON"),
        ("[1]", "not JSON"),
        ("[" * 100_000, "larger than"),
        ("[" * 50_000, "not JSON"),
        ("\xff", "not JSON"),
        ('{"schema": 1, "profile": "own", "soft": 5}', "hard"),
        ('{"schema": 2, "profile": "own", "soft": 5, "hard": 6}', "schema"),
        ('{"schema": 1, "profile": "own", "soft": "5", "hard": 6}', "soft"),
        ('{"schema": 1, "profile": "own", "soft": 6, "hard": 6}', "soft must be below hard"),
        ('{"schema": 1, "profile": "own", "soft": 0, "hard": 6}', "soft"),
    ],
)
def test_a_calibration_that_is_none_is_a_sentence(root: Path, content: str | None, says: str) -> None:
    if content is not None:
        (root / FILE).write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError) as raised:
        of(CALIBRATED, "", profile="own", root=root)
    assert says in str(raised.value) and "clawd context calibrate" in str(raised.value)


def test_a_calibration_is_no_link(root: Path) -> None:
    (root / "elsewhere").write_text('{"schema": 1, "profile": "own", "soft": 5, "hard": 6}')
    (root / FILE).symlink_to(root / "elsewhere")
    with pytest.raises(ConfigError, match="link"):
        of(CALIBRATED, "", profile="own", root=root)


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("claude-sonnet-4-5-20250929", 200_000),
        ("anthropic/claude-opus-4.6", 1_000_000),
        ("gpt-4.1", 1_047_576),
        ("gpt-5-2025-08-07", 272_000),
        ("claude-mythos-5", None),
        ("nobody-knows", None),
        ("", None),
        (None, None),
    ],
)
def test_the_windows_that_are_known(model: str | None, window: int | None) -> None:
    assert window_of(model) == window


def test_a_group_says_nothing_by_itself() -> None:
    assert GroupConfig().profile is None and GroupConfig().context.policies == []
