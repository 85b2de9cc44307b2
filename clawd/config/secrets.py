"""Secrets by reference: `${env:NAME}`, `${file:PATH}`, `${cred:NAME}`. A value exists only where it is used.

Nothing that can be printed, dumped or raised holds a value. Every value that was ever revealed is known to
the redactor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawd.errors import ConfigError
from clawd.files import plain

_REFERENCE = re.compile(r"\$\{(env|file|cred):([^${}\x00-\x1f]+)\}")
_LIMIT = 16 << 10  # bytes of a secret's file: more fits into no header

_known: set[str] = set()


class NotAReference(ValueError):
    """A literal stands where a reference must. Its text is not repeated: it may be the secret itself."""

    def __init__(self) -> None:
        super().__init__("write a reference like ${env:NAME}, ${file:PATH} or ${cred:NAME}, never the secret itself")


class Secret:
    """A reference to a secret. `reveal` reads it, each time anew, so that a renewed secret needs no
    restart."""

    __slots__ = ("kind", "name")

    def __init__(self, reference: str) -> None:
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            raise NotAReference
        self.kind, self.name = match[1], match[2]
        if self.kind == "file" and not self.name.startswith(("/", "~/")):
            raise ValueError(f"{self} must be an absolute path, or begin with ~/")

    def reveal(self, environment: Mapping[str, str] | None = None) -> str:
        """The value, without the newline that ends a file. Raises ConfigError when there is none."""
        environment = os.environ if environment is None else environment
        value = self._read(environment).rstrip("\r\n")
        if not value or re.search(r"[\x00-\x1f\x7f]", value):
            raise ConfigError(f"the secret {self} is {'not one line of text' if value else 'empty'}")
        _known.add(value)
        return value

    def _read(self, environment: Mapping[str, str]) -> str:
        if self.kind == "env":
            if self.name not in environment:
                raise ConfigError(f"the environment variable {self.name} is not set", hint=f"it is needed by {self}")
            return environment[self.name]
        path = Path(self.name).expanduser()
        if self.kind == "cred":
            directory = environment.get("CREDENTIALS_DIRECTORY")
            if not directory:
                raise ConfigError(f"{self} needs systemd's LoadCredential=", hint="see clawd service print")
            if path.name != self.name:
                raise ConfigError(f"{self} must be the plain name of a credential")
            path = Path(directory) / self.name
        try:
            with open(path, "rb", opener=plain) as file:
                data = file.read(_LIMIT + 1)
            if len(data) > _LIMIT:
                raise ConfigError(f"the secret {self} is larger than {_LIMIT >> 10} KB")
            return data.decode()
        except OSError as error:
            raise ConfigError(f"the secret {self} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ConfigError(f"the secret {self} is not text") from None

    def present(self, environment: Mapping[str, str] | None = None) -> bool:
        """Whether there is a value now."""
        try:
            self.reveal(environment)
        except ConfigError:
            return False
        return True

    def __str__(self) -> str:
        return f"${{{self.kind}:{self.name}}}"

    def __repr__(self) -> str:
        return f"Secret({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def check(value: object) -> Secret:
            if isinstance(value, Secret):
                return value
            if not isinstance(value, str):
                raise NotAReference
            return cls(value)

        shown = core_schema.plain_serializer_function_ser_schema(str)
        return core_schema.no_info_plain_validator_function(check, serialization=shown)


def revealed(value: Any) -> Any:
    """The value of a reference; anything else as it is. Raises ConfigError."""
    if isinstance(value, str) and _REFERENCE.fullmatch(value):
        value = Secret(value)
    return value.reveal() if isinstance(value, Secret) else value


def known_secrets() -> frozenset[str]:
    """Every value that was revealed since the start: what the redactor must know."""
    return frozenset(_known)
