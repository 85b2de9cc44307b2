"""The values that tables of TOML hold, and what a table is. Sizes are bytes, written as numbers or "512m", "1g"; money
is US dollars."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

RoleName = Literal["owner", "admin", "member"]
Mode = Literal["ro", "rw"]
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def written(pattern: str, sentence: str) -> AfterValidator:
    """The same text, if all of it is like `pattern`; else the sentence says to a person how it is written."""

    def same(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(sentence)
        return value

    return AfterValidator(same)


def _size(value: object) -> object:
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([kmgt]?)(?:i?b)?\s*", value.lower())
        if match is None:
            raise ValueError('a size is a number of bytes, or like "512m" or "1g"')
        return int(float(match[1]) * _UNITS[match[2]])
    return value


@lru_cache(maxsize=256)
def check_zone(name: str) -> str:
    """The same name. Raises ValueError when it is no time zone."""
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f'{name!r} is no time zone; write one like "Europe/Berlin" or "UTC"') from None
    return name


def _zone_name(value: object) -> object:
    return check_zone(value) if isinstance(value, str) else value


def _binding(value: str) -> str:
    channel, colon, chat = value.partition(":")
    if not (channel and colon and chat) or any(character.isspace() for character in value):
        raise ValueError('a binding is "<channel>:<chat>", like "telegram:-100123"')
    return value


# apt-get takes a trailing - for "remove": that ends no package's name.
Package = Annotated[str, written(r"[a-z0-9][a-z0-9+.-]{0,98}[a-z0-9+]", 'a package has its name in Debian, like "jq"')]
# Docker's names of images: nothing else that its API's paths would take.
Image = Annotated[
    str,
    Field(max_length=300),
    written(r"[A-Za-z0-9]+((\.|/|:|@|__?|-+)[A-Za-z0-9]+)*", 'an image is called like "clawd-agent" or "name:tag"'),
]
Size = Annotated[int, BeforeValidator(_size), Field(gt=0, le=1 << 60)]
Days = Annotated[int, Field(ge=0, le=36_500)]
Zone = Annotated[str, BeforeValidator(_zone_name)]
Binding = Annotated[str, BeforeValidator(lambda value: _binding(value) if isinstance(value, str) else value)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Table(BaseModel):
    """A table of TOML: known keys only, and no value of it in an error."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        coerce_numbers_to_str=True,
        populate_by_name=True,
    )
