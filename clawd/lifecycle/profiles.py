"""Profiles: at how many tokens of its window a session is compacted, and at how many it is handed over.

A model that reads less than a profile thinks would never reach its limits: both lie below the model's window, with
room for an answer. Pure, but for the reading of a calibration that the config names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawd.config.group import Effective
from clawd.config.load import nearest
from clawd.config.schema import Config, Profile
from clawd.errors import ConfigError, UnsafePath, findings
from clawd.files import read_beneath
from clawd.lifecycle.deciding import Thresholds

BUILT_IN = {"coding": Profile(soft=250_000, hard=350_000), "chat": Profile(soft=60_000, hard=100_000)}
DEFAULT = "chat"
MARGIN = 13_000
"""Tokens that are left free besides the answer: what the next turn brings (the margin of a widely used agent)."""
SCHEMA = 1
"""Of a calibration's file."""
_BYTES = 64 << 10


class Calibration(BaseModel):
    """`state/calibrations/<profile>.json`: what `clawd context calibrate --write` found. `peak` is the 90th percentile
    of the sessions' largest windows; `compacts` and `handoffs` are how many of each the figures rest on."""

    model_config = ConfigDict(extra="ignore", frozen=True, hide_input_in_errors=True, strict=True)

    schema_: int = Field(alias="schema", ge=SCHEMA, le=SCHEMA)
    profile: str
    soft: int = Field(gt=0)
    hard: int = Field(gt=0)
    sessions: int = 0
    peak: int = 0
    compacts: int = 0
    handoffs: int = 0
    made: str = ""

    def data(self) -> bytes:
        return (json.dumps(self.model_dump(by_alias=True), indent=2) + "\n").encode()


def known(config: Config) -> dict[str, Profile]:
    """Every profile by its name: those that ship, and those of `[profiles]`, which go before them."""
    return BUILT_IN | config.profiles


def thresholds(
    config: Config,
    settings: Effective,
    profile: str | None = None,
    soft: int | None = None,
    hard: int | None = None,
    *,
    window: int | None = None,
    root: Path | None = None,
) -> Thresholds:
    """What holds for a session: `profile`, else the group's, else `chat`, with its own `soft` and `hard` laid over it,
    below the model's window: `[model] window`, else `window`, where either is known. `root` is the home's directory,
    which a calibration lies beneath. Raises ConfigError."""
    name = profile or settings.group.profile or DEFAULT
    chosen = known(config).get(name)
    if chosen is None:
        raise ConfigError(f"there is no profile {name!r}; there are {_listed(known(config))}", hint=_hint(name, config))
    table_soft, table_hard = chosen.soft, chosen.hard
    if chosen.calibration is not None and (soft is None or hard is None):
        calibration = calibrated(root, chosen.calibration)
        table_soft, table_hard = calibration.soft, calibration.hard
    soft, hard = soft if soft is not None else table_soft, hard if hard is not None else table_hard
    assert soft is not None and hard is not None  # a profile without them has a calibration
    if soft < 1 or soft >= hard:
        raise ConfigError(
            f"the profile {name} would compact at {soft} and hand over at {hard}: soft must be below hard"
        )
    return clamped(Thresholds(name, soft, hard), settings.model.window or window, settings.model.max_output)


def clamped(found: Thresholds, window: int | None, max_output: int) -> Thresholds:
    """The same, below what a model with this window can read; as they are where that is not known. Raises ConfigError
    when the window has no room for anything."""
    if window is None:
        return found
    hard = min(found.hard, room(window, max_output))
    soft = min(found.soft, hard * 3 // 4)
    if soft < 1:
        raise ConfigError(
            f"a window of {window} tokens has no room beside an answer of {max_output} and a margin of {MARGIN}",
            hint="max_output below [model] may be smaller; window says what the model can read",
        )
    return Thresholds(found.profile, soft, hard)


def room(window: int, max_output: int) -> int:
    """Tokens of a prompt with which an answer still fits into the window."""
    return window - max_output - MARGIN


def calibrated(root: Path | None, relative: str) -> Calibration:
    """A calibration file that the config names. Raises ConfigError with what is wrong with it."""
    again = "clawd context calibrate --write makes it; or take calibration away from the profile"
    if root is None:
        raise ConfigError(f"{relative} cannot be read here: there is no home", hint=again)
    try:
        data = read_beneath(root, relative, _BYTES + 1)
        if len(data) > _BYTES:
            raise ConfigError(f"{relative} is larger than {_BYTES >> 10} KB: it is no calibration", hint=again)
        found = Calibration.model_validate(_object(data))
    except FileNotFoundError:
        raise ConfigError(f"there is no calibration {relative}", hint=again) from None
    except ValidationError as error:
        raise ConfigError(f"{relative} is no calibration: {findings(error, 'it')}", hint=again) from None
    except (OSError, UnsafePath) as error:
        raise ConfigError(f"the calibration {relative} cannot be read: {error}", hint=again) from None
    except ValueError:
        raise ConfigError(f"{relative} is no calibration: it is not JSON", hint=again) from None
    if found.soft >= found.hard:
        raise ConfigError(f"{relative} has soft {found.soft}, hard {found.hard}: soft must be below hard", hint=again)
    return found


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError from None
    if not isinstance(found, dict):
        raise ValueError
    return found


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _hint(name: str, config: Config) -> str:
    return nearest(name, known(config)) or f"[profiles.{name}] soft = N, hard = N in config.toml makes it one"
