"""Spoken notes as text, by the service that `[speech]` names: the only thing that the host itself calls.

The service's own rules hold, as they do for a sandbox (`gateway.own`). Nothing that it says but the text reaches
anybody.
"""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from clawd.config.presets import services, versioned
from clawd.config.schema import Config
from clawd.errors import Refused
from clawd.intake.decision import MAX_TEXT_UNITS
from clawd.text import units

if TYPE_CHECKING:
    from clawd.gateway.own import OwnCalls

log = logging.getLogger(__name__)

PATH = "/audio/transcriptions"
FILE_BYTES, ANSWER_BYTES = 25 << 20, 1 << 20
TOTAL_S = 120.0


class Speech:
    """Over the config as it is now. The gateway's client is imported with the first note."""

    def __init__(self, config: Callable[[], Config]) -> None:
        self._config = config
        self._calls: OwnCalls | None = None
        self._one = anyio.Lock()  # they are few, and their files are whole in memory

    async def text(self, path: Path, mime: str) -> str | None:
        """What is said in a file; None where no service is set up for it. Raises Refused with a sentence."""
        config = self._config()
        name, model = config.speech.service, config.speech.model
        if name is None:
            return None
        async with self._one:
            if self._calls is None:
                await anyio.to_thread.run_sync(importlib.import_module, "clawd.gateway.own")
                from clawd.gateway.own import OwnCalls

                self._calls = OwnCalls()
            from clawd.gateway.refusal import Refusal

            size = (await anyio.Path(path).stat()).st_size
            if size > FILE_BYTES:
                raise Refused(f"it has more than {FILE_BYTES >> 20} MB")
            content = await anyio.Path(path).read_bytes()
            file = (path.name, mime or "application/octet-stream", content)
            base = getattr(services(config).get(name), "base_url", None) or ""
            to = PATH if versioned(base) else f"/v1{PATH}"
            try:
                status, answer = await self._calls.post(
                    config, name, to, [("model", model)], file, ANSWER_BYTES, TOTAL_S
                )
            except Refusal as error:
                raise Refused(error.message, hint=error.hint) from error
        log.info("a spoken note was sent", extra={"service": name, "bytes": size, "status": status})
        if status != 200:
            raise Refused(f"{name} answered {status}")
        return _said(answer, name)

    async def close(self) -> None:
        if self._calls is not None:
            await self._calls.close()


def _said(answer: bytes, name: str) -> str:
    try:
        text = json.loads(answer)["text"]
    except (ValueError, KeyError, TypeError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise Refused(f"{name} answered something else than a text")
    if units(text) > MAX_TEXT_UNITS:
        raise Refused(f"{name} answered more than the {MAX_TEXT_UNITS >> 10} KB that a message may have")
    return text.encode("utf-8", "replace").decode().strip() or "(nothing)"
