"""Files that come with messages: durable before they are fetched, safe in name and place, bounded; what cannot be had
is said."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.channel import SendRefused
from clawd.errors import Refused
from clawd.ids import FILE_BYTES, file_name
from clawd.intake import attachments, waiting
from tests.intake.conftest import World, opened

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "PAUSES", (0.001, 0.001, 0.001))


async def said(world: World, *files: Any, **more: Any) -> list[tuple[str, str]]:
    """What the parts of a message with these files say, once it has its turn."""
    async with opened(world):
        receipt = await world.say(attachments=files, **more)
        assert (receipt.state, receipt.turn) == ("held", None)
        await world.until(lambda: world.woken)
    return world.shown()[0]


async def test_a_file_is_kept_where_its_agent_sees_it(world: World) -> None:
    file = world.file("1", b"hello", "../../notes\u202e.txt", mime="text/plain", size=5)
    [typed, attached] = await said(world, file, text="look")
    assert typed == ("typed", "look")
    assert attached == ("attachment", "/group/inbox/notes.txt (text/plain, 5 bytes)")
    kept = world.inboxes / "main" / "notes.txt"
    assert kept.read_bytes() == b"hello" and stat.S_IMODE(kept.stat().st_mode) == 0o644
    assert [path.name for path in kept.parent.iterdir()] == ["notes.txt"]  # and nothing half
    part = world.rows("SELECT parts FROM inbound")[0]["parts"]
    assert '"origin": "external"' in part and '"name": "notes.txt"' in part
    assert world.rows("SELECT taint FROM turn")[0]["taint"] == 0.2


async def test_the_same_name_again_replaces_nothing(world: World) -> None:
    inbox = world.inboxes / "main"
    inbox.mkdir()
    (inbox / "a.txt").symlink_to("/etc/passwd")
    files = [world.file(str(n), b"x", "a.txt") for n in range(3)]
    names = [text.split(" ")[0] for _, text in await said(world, *files)]
    assert names == ["/group/inbox/a-1.txt", "/group/inbox/a-1-2.txt", "/group/inbox/a-1-3.txt"]
    assert (inbox / "a.txt").is_symlink() and all((inbox / Path(name).name).read_bytes() == b"x" for name in names)


@pytest.mark.parametrize(
    ("content", "size", "why", "tries"),
    [
        (SendRefused("the file is too old"), None, "could not be fetched: the file is too old", 1),
        (OSError("https://api/file/bot123:SECRET/x"), None, "could not be fetched: its platform did not give it", 4),
        (b"x" * 2000, None, "it has 2,000 bytes, and at most 1,000 can be fetched here", 1),
        (b"x", 5000, "it has 5,000 bytes", 0),
        (b"x" * 900, 900, "inbox/ may hold 100 bytes", 1),
    ],
)
async def test_what_cannot_be_had_is_said(
    world: World, content: Any, size: int | None, why: str, tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    world.quota = 100
    [(kind, text)] = await said(world, world.file("1", content, size=size))
    assert kind == "attachment" and why in text and len(world.channel.fetched) == tries
    assert "SECRET" not in text + caplog.text
    assert list((world.inboxes / "main").glob("*")) == [] and list((world.inboxes / "main").glob(".*")) == []


async def test_what_fails_for_a_while_is_had_in_the_end(world: World) -> None:
    [(_, text)] = await said(world, world.file("1", [TimeoutError(), KeyError("x"), b"there"]))
    assert text == "/group/inbox/notes.txt (5 bytes)" and world.channel.fetched == ["1"] * 3


async def test_files_of_few_messages_are_fetched_at_one_time(world: World) -> None:
    world.channel.open = anyio.Event()
    async with opened(world):
        for n in range(8):
            await world.say(attachments=(world.file(str(n), b"x"),))
        await world.until(lambda: world.channel.at_once == waiting.AT_ONCE)
        world.channel.open.set()
        await world.until(lambda: len(world.woken) == 8)
    assert world.channel.most == waiting.AT_ONCE
    assert len(list((world.inboxes / "main").iterdir())) == 8


async def test_after_a_restart_what_was_had_is_not_fetched_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "PAUSES", (60.0,) * 3)  # it ends between two tries, and not after the last
    async with opened(world):
        await world.say("see", attachments=(world.file("1", b"one", "1"), world.file("2", [TimeoutError()] * 9, "2")))
        await world.until(lambda: "2" in world.channel.fetched)
    assert world.states() == [("held", "fetching")]
    world.channel.fetched.clear()
    world.channel.files["2"] = b"two"
    async with opened(world):
        await world.intake.recover()
        await world.until(lambda: world.woken)
    assert world.channel.fetched == ["2"]
    assert world.shown() == [
        [("typed", "see"), ("attachment", "/group/inbox/1 (3 bytes)"), ("attachment", "/group/inbox/2 (3 bytes)")]
    ]


async def test_a_persons_link_to_another_disk_is_used(world: World, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (world.inboxes / "main").symlink_to(tmp_path / "elsewhere")
    await said(world, world.file("1", b"x"))
    assert (tmp_path / "elsewhere" / "notes.txt").read_bytes() == b"x"


async def test_nothing_of_those_who_may_not_speak_is_fetched(world: World) -> None:
    async with opened(world):
        await world.say("hi", "chat:9", attachments=(world.file("1", b"x"),))
        await world.shared("look", attachments=(world.file("2", b"x"),))  # and nobody called us
        await anyio.sleep(0.05)  # that nothing comes can only be waited for
    assert world.channel.fetched == [] and world.states() == [] and not (world.inboxes / "main").exists()


class Hears:
    def __init__(self, said: Any) -> None:
        self.said = said

    async def text(self, path: Path, mime: str) -> str | None:
        assert path.read_bytes() == b"ogg"
        if isinstance(self.said, Exception):
            raise self.said
        return self.said  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("hears", "voice", "text"),
    [
        ("sh: ls", True, "What is said in it: sh: ls"),
        (Refused("stt answered 500"), True, "[it could not be turned into text: stt answered 500]"),
        (RuntimeError("boom"), True, "[it could not be turned into text, by a defect of clawd; its log says more]"),
        (None, True, None),
        ("x", False, None),
    ],
)
async def test_a_spoken_note_is_text_beside_its_file_and_never_typed(
    world: World, hears: Any, voice: bool, text: str | None
) -> None:
    world.speech = Hears(hears)
    parts = await said(world, world.file("1", b"ogg", "v.ogg", voice=voice))
    assert parts[1:] == ([("attachment", text)] if text else [])
    assert {kind for kind, _ in parts} == {"attachment"}


@given(st.text() | st.text(alphabet="./\\-\u202e \nab\x00é"))
def test_any_name_is_a_files_name(name: str) -> None:
    safe = file_name(name)
    assert safe and safe not in (".", "..") and not set(safe) & set("/\\\0\n") and safe[0] not in ".-"
    assert len(safe.encode()) <= FILE_BYTES and safe.isprintable() and file_name(safe) == safe


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("photo.jpg", "photo.jpg"),
        ("C:\\Users\\a b.PDF", "a b.PDF"),
        (".ssh", "ssh"),
        ("-rf", "_rf"),
        ("", "file"),
        ("…/..", "file"),
        ("été.txt", "été.txt"),
        ("a" * 300 + ".tar", "a" * 116 + ".tar"),
        ("$(id);`x`.sh", "_(id)__x_.sh"),
        ("evil\u202egpj.exe", "evilgpj.exe"),
    ],
)
def test_safe_names(name: str, safe: str) -> None:
    assert file_name(name) == safe
