"""Stores: what they keep is found, backed up and erased, and no link leads them astray."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clawd import stores
from clawd.config.home import Home
from clawd.config.load import ensure_group
from clawd.config.store import group_folder_store
from clawd.model import Block
from clawd.sessions.file import SessionFile
from clawd.sessions.store import session_store
from clawd.stores import FileStore, Scope


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stores, "_stores", {})
    yield


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    for folder, session in (("a", "telegram:1"), ("b", "slack:2")):
        ensure_group(home, folder)
        name = session.replace(":", "_")
        SessionFile(home.group(folder).sessions / f"{name}.md", session).append([Block("user", "hi")], 1)
        (home.group(folder).work / "note.txt").write_text("note")
    return home


def found(store: FileStore, home: Home, scope: Scope) -> set[str]:
    return {str(Path(path).relative_to(home.groups)) for path in store.locate(scope)}


def test_the_registry_keeps_one_of_each_name(registry: None, home: Home) -> None:
    assert stores.stores() == []
    stores.register(session_store(home))
    again = session_store(home)
    stores.register(again)
    folder = group_folder_store(home)
    stores.register(folder)
    assert stores.stores() == [again, folder]


def test_everything_of_a_group_is_found_once(home: Home) -> None:
    scope = Scope("group", "a")
    assert found(session_store(home), home, scope) == {"a/sessions/telegram_1.md"}
    assert found(group_folder_store(home), home, scope) == {"a/CLAUDE.md", "a/user_profile.md", "a/work/note.txt"}


def test_the_sessions_of_a_channel_are_found_in_every_group(home: Home) -> None:
    (home.group("a").sessions / "telegram_1.state.json").write_text("{}")
    waits = home.group("b").arrivals / "pythonclaw/sessions/telegram_9.md"  # brought in, and not accepted
    waits.parent.mkdir(parents=True)
    SessionFile(waits, "telegram:9").append([Block("user", "hi")], 1)
    (home.group("a").arrivals).symlink_to(home.group("b").arrivals)
    assert found(session_store(home), home, Scope("channel", "telegram")) == {
        "a/sessions/telegram_1.md",
        "a/sessions/telegram_1.state.json",
        "b/import/pythonclaw/sessions/telegram_9.md",
    }
    assert session_store(home).locate(Scope("channel", "tele")) == []


def test_what_was_made_of_a_channels_sessions_is_found_with_them(home: Home, tmp_path: Path) -> None:
    group, elsewhere = home.group("a"), tmp_path / "elsewhere"
    for name in ("exports/telegram_1/context.html", "exports/slack_1/context.html"):
        (group.root / name).parent.mkdir(parents=True)
        (group.root / name).write_text("x")
    group.manifests.mkdir()
    for name in ("20261201T090000Z_telegram_1.json", "20261201T090000Z_my_telegram_1.json", "telegram_1.json"):
        (group.manifests / name).write_text("{}")
    scope = Scope("channel", "telegram")
    assert found(session_store(home), home, scope) == {
        "a/sessions/telegram_1.md",
        "a/exports/telegram_1/context.html",
        "a/manifests/20261201T090000Z_telegram_1.json",
    }
    session_store(home).erase(scope)
    assert session_store(home).locate(scope) == [] and (group.exports / "slack_1/context.html").exists()
    session = home.group("b").sessions / "telegram_2.md"
    SessionFile(session, "telegram:2").append([Block("user", "hi")], 1)
    elsewhere.mkdir()
    (elsewhere / "telegram_2").mkdir()
    (elsewhere / "telegram_2/precious").write_text("x")
    home.group("b").exports.symlink_to(elsewhere)
    session_store(home).erase(scope)
    assert (elsewhere / "telegram_2/precious").exists() and not session.exists()


def test_backed_up_and_erased(home: Home, tmp_path: Path) -> None:
    scope, target = Scope("group", "a"), tmp_path / "backup"
    for store in (session_store(home), group_folder_store(home)):
        store.back_up(scope, target)
        store.erase(scope)
        store.erase(scope)
        assert store.locate(scope) == []
    assert (target / "groups/a/work/note.txt").read_text() == "note"
    assert (target / "groups/a/sessions/telegram_1.md").exists()
    assert (home.group("b").work / "note.txt").exists()


def test_links_are_not_followed(home: Home, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (home.group("a").work / "link").symlink_to(outside)
    (home.group("a").root / "top").symlink_to(outside)
    store, scope = group_folder_store(home), Scope("group", "a")
    assert not any("precious" in str(path) for path in store.locate(scope))
    store.back_up(scope, tmp_path / "backup")
    assert not list((tmp_path / "backup").rglob("precious"))
    store.erase(scope)
    assert (outside / "precious").exists()
