"""Spoken notes: one POST to the service that the config names, by the gateway's rules; a refusal is a sentence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from clawd.config.schema import Config
from clawd.errors import ClawdError
from clawd.intake import speech
from clawd.intake.speech import Speech

pytestmark = pytest.mark.anyio


@dataclass
class Service:
    """Answers as it is told, and keeps what came."""

    status: int = 200
    body: bytes = b'{"text": " Hello there. "}'
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0

    async def answer(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, web.FileField)
        self.asked.append(
            {"path": request.path_qs, "model": form["model"], "name": file.filename, "mime": file.content_type}
            | {"content": file.file.read(), "key": request.headers.get("Authorization")}
        )
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@asynccontextmanager
async def served(service: Service) -> AsyncIterator[Service]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", service.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    service.port = runner.addresses[0][1]
    yield service
    await runner.cleanup()


def config(service: Service, path: str = "", table: dict[str, Any] | None = None, **own: Any) -> Config:
    stt = {"base_url": f"http://127.0.0.1:{service.port}{path}", "allow_private": True, **own}
    return Config.model_validate({"services": {"stt": stt}, "speech": {"service": "stt", **(table or {})}})


async def heard(tmp_path: Path, config: Config, content: bytes = b"ogg") -> str | None:
    note = tmp_path / "v.ogg"
    note.write_bytes(content)
    listens = Speech(lambda: config)
    try:
        return await listens.text(note, "audio/ogg")
    finally:
        await listens.close()


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("", "/v1/audio/transcriptions"),
        ("/openai/v1", "/openai/v1/audio/transcriptions"),
        ("/stt", "/stt/v1/audio/transcriptions"),
    ],
)
async def test_a_note_goes_to_the_service_with_its_key_and_comes_back_as_text(
    tmp_path: Path, path: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STT_KEY", "hush")
    async with served(Service()) as service:
        table = config(service, path, {"model": "small"}, credential="${env:STT_KEY}")
        assert await heard(tmp_path, table) == "Hello there."
    what = {"path": asked, "model": "small", "name": "v.ogg", "mime": "audio/ogg", "content": b"ogg"}
    assert service.asked == [what | {"key": "Bearer hush"}]


async def test_a_key_in_the_query_and_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STT_KEY", "hush")
    async with served(Service()) as service:
        await heard(tmp_path, config(service))
        await heard(tmp_path, config(service, credential="${env:STT_KEY}", inject={"query": "key"}))
    assert [each["path"].partition("?")[2] for each in service.asked] == ["", "key=hush"]
    assert [each["key"] for each in service.asked] == [None, None] and service.asked[0]["model"] == "whisper-1"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"status": 401, "body": b"Incorrect API key: hush"}, "stt answered 401"),
        ({"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}}, "stt answered 302"),
        ({"body": b"<html>"}, "something else than a text"),
        ({"body": b'{"text": 5}'}, "something else than a text"),
        ({"body": b'["text"]'}, "something else than a text"),
        ({"body": b'{"text": "%s"}' % (b"x" * (300 << 10))}, "more than the 256 KB"),
        ({"body": b"x" * (2 << 20)}, "the answer is larger than 1024 KiB"),
    ],
)
async def test_whatever_it_answers_nothing_but_text_is_passed_on(
    tmp_path: Path, answer: dict[str, Any], why: str
) -> None:
    async with served(Service(**answer)) as service:
        with pytest.raises(ClawdError, match=why) as caught:
            await heard(tmp_path, config(service))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"allow_private": False}, "leads to this machine or a private network"),
        ({"paths": ["/v1/models"]}, "does not take this path"),
        ({"methods": ["GET"]}, "does not take POST"),
        ({"credential": "${env:NOT_THERE}"}, "NOT_THERE is not set"),
        ({"base_url": "http://127.0.0.1:1"}, "was not reached"),
        ({"base_url": "http://169.254.169.254"}, "never dialled"),
    ],
)
async def test_the_gateways_rules_hold(tmp_path: Path, own: dict[str, Any], why: str) -> None:
    async with served(Service()) as service:
        with pytest.raises(ClawdError, match=why):
            await heard(tmp_path, config(service, **own))
    assert service.asked == []


async def test_what_is_too_large_or_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(Service()) as service:
        monkeypatch.setattr(speech, "FILE_BYTES", 2)
        with pytest.raises(ClawdError, match="more than"):
            await heard(tmp_path, config(service))
        monkeypatch.setattr(speech, "FILE_BYTES", 9)
        monkeypatch.setattr(speech, "TOTAL_S", 0.0)
        with pytest.raises(ClawdError, match="did not answer within"):
            await heard(tmp_path, config(service))
    assert service.asked == []


async def test_without_a_service_nothing_is_sent(tmp_path: Path) -> None:
    assert await heard(tmp_path, Config()) is None
    unknown = Config.model_validate({"speech": {"service": "nowhere"}})
    with pytest.raises(ClawdError, match="there is no service nowhere"):
        await heard(tmp_path, unknown)
