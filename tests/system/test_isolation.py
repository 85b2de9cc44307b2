"""What an agent can do to its host, to other groups and to its own turn: nothing but what it was given. Tried through
the whole program; what the kernel has to hold, once as root, once as another user and once in a container."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clawd.gateway.caller import TOKEN
from tests.engine import Engine
from tests.system import another_user
from tests.system.conftest import until
from tests.system.ground import Ground
from tests.system.ground import ground as begun

HOSTILE = Path(__file__).parent / "hostile"
CANARY = ("canary", "8c1f0e")
SMALL = 'memory = "160m"\npids = 48\nwork = "8m"\nwarm_minutes = 60'
INBOX = "/group/inbox"
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; `own` is one already")


@contextmanager
def planted(ground: Ground) -> Iterator[Ground]:
    """A running daemon with the groups `main` and `other`, and a canary in every file that no agent may see."""
    word = "".join(CANARY)
    ground.configure(sandbox=SMALL, more=f"# {word}")
    ground.start(CANARY=word)
    for group in ("main", "other"):
        ground.json("groups", "add", group)
        for path in ("group.toml", "memory/MEMORY.md", "sessions/x.md", "schedules/x.toml"):
            ground.write(f"groups/{group}/{path}", f"# {word}\n")
    for path in ("CLAUDE.md", "user_profile.md", "skills/x/SKILL.md", "inbox/x"):
        ground.write(f"groups/other/{path}", word)
    for path in ("people.toml", "state/blobs/x", f"{word}/x"):
        ground.write(path, f"# {word}\n")
    for program in HOSTILE.glob("*.py"):
        ground.write(f"groups/main/inbox/{program.name}", program.read_text(), 0o644)
    yield ground


@pytest.fixture(scope="module")
def own() -> Iterator[Ground]:
    """The daemon of whoever runs the tests."""
    with begun() as ground, planted(ground):
        yield ground


@pytest.fixture(scope="module")
def other() -> Iterator[Ground]:
    """The daemon of another user than root."""
    with another_user.copied() as (root, python), begun(python, root) as ground, planted(ground):
        yield ground


@pytest.fixture(scope="module")
def docker(engine: Engine) -> Iterator[Ground]:
    """The daemon of whoever runs the tests, with containers."""
    with begun(engine=engine) as ground, planted(ground):
        yield ground


@pytest.fixture(params=["own", pytest.param("other", marks=AS_ROOT), pytest.param("docker", marks=pytest.mark.engine)])
def ground(request: pytest.FixtureRequest) -> Ground:
    """Each."""
    daemon = request.getfixturevalue(request.param)
    assert isinstance(daemon, Ground)
    return daemon


@pytest.fixture
def main(own: Ground) -> Iterator[Ground]:
    """The caller's own daemon, whose group `main` is clean again after the test."""
    yield own
    own.ask("groups.clean", name="main")


# ---- what it can write


def test_only_work_can_be_written(ground: Ground) -> None:
    for path in ("groups/main/inbox/letter", "groups/main/skills/own/SKILL.md", "skills/common/SKILL.md"):
        ground.write(path, f"---\ndescription: d\n---\n{path}\n", 0o644).parent.chmod(0o755)
    tried = ("CLAUDE.md", "user_profile.md", "new", "inbox/new", "inbox/letter", "skills/new", "skills/own/SKILL.md")
    places = " ".join(
        [*(f"/group/{each}" for each in tried), "/new", "/etc/passwd", "/run/clawd/new", "/opt/clawd/new"]
    )
    said = ground.sh(
        f"for f in {places} /skills/new /skills/common/SKILL.md; do (echo no >>$f) 2>/dev/null && echo wrote $f; done;"
        " for f in /group/CLAUDE.md /group/inbox /skills/common /run/clawd/s; do"
        "  mv $f /tmp/gone 2>/dev/null && echo moved $f; rm -rf $f 2>/dev/null; [ -e $f ] || echo removed $f; done;"
        " tail -qn 1 /group/inbox/letter /group/skills/own/SKILL.md /skills/common/SKILL.md; echo yes >/group/work/mine"
    )
    assert said == "groups/main/inbox/letter\ngroups/main/skills/own/SKILL.md\nskills/common/SKILL.md"
    work = ground.root / "groups/main/work"
    assert (work / "mine").read_text() == "yes\n"
    [group] = ground.rows("SELECT number FROM grp WHERE name = 'main'")
    owner = ground.root.stat().st_uid or 64_000 + group["number"]
    assert {work.stat().st_uid, (work / "mine").stat().st_uid} == {owner}


def test_nothing_of_the_host_or_of_another_group_can_be_seen(ground: Ground) -> None:
    ground.sh(f"echo {''.join(CANARY)} >{''.join(CANARY)}", "other")
    ground.write("groups/main/CLAUDE.md", "this")
    assert ground.sh(f"python3 {INBOX}/search.py {' '.join(CANARY)}") == "can be seen: this"
    assert ground.inside("python3", f"{INBOX}/search.py", *CANARY) == "can be seen: this\n"
    assert str(ground.root) not in ground.sh("cut -d' ' -f5 /proc/self/mountinfo; env; find / -name '*.db' 2>/dev/null")


def test_processes_of_the_host_and_of_another_group_are_out_of_sight(ground: Ground) -> None:
    ground.sh("true", "other")
    seen = ground.sh("cat /proc/[0-9]*/comm; ls -A /run")
    image = {"lock", "mount"}  # empty directories of its /run
    assert set(seen.split()) - image <= {"bwrap", "cat", "clawd", "docker-init", "python3", "sh"}, seen


# ---- where it can go


def test_no_connection_leads_anywhere_but_to_the_forwarder(ground: Ground) -> None:
    with socket.create_server(("127.0.0.1", 0)) as host, socket.socket(socket.AF_UNIX) as abstract:
        name, port = f"clawd-test-{os.getpid()}", str(host.getsockname()[1])
        abstract.bind(f"\0{name}")
        abstract.listen()
        assert ground.sh(f"python3 {INBOX}/connect.py {port} {name}") == "HTTP/1.1 403 Forbidden"
        assert ground.inside("python3", f"{INBOX}/connect.py", port, name) == "HTTP/1.1 403 Forbidden\n"


# ---- what it can use up


@pytest.fixture
def neighbours(ground: Ground) -> Iterator[None]:
    """While the test goes on, another group has its turns, and none of them is any the worse."""
    done, said = threading.Event(), list[str]()

    def talk() -> None:
        while not done.is_set():
            said.append(ground.sh("echo well >fine; cat fine", "other"))

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        yield
        until(lambda: len(said) > 1 or not thread.is_alive())
    finally:
        done.set()
        thread.join()
    assert set(said) == {"well"}


def told(answer: dict[str, str]) -> str:
    return answer["error"] or answer["reply"]


@pytest.mark.usefixtures("neighbours")
def test_a_fork_bomb_ends_in_a_sentence_and_others_do_not_notice(ground: Ground) -> None:
    answer = ground.answer("sh:bomb() { bomb | bomb & }; bomb; sleep 1; bomb", code=None)
    assert re.search(r"may run only so many|at its limit of 48 processes", told(answer)), answer
    assert ground.sh("echo again") == "again"


@pytest.mark.usefixtures("neighbours")
def test_a_memory_hog_ends_in_a_sentence_and_others_do_not_notice(ground: Ground) -> None:
    answer = ground.answer("sh:python3 -c 'bytearray(b\"x\") * (1 << 30)'", code=None)
    assert "memory" in told(answer).lower(), answer
    assert ground.sh("echo again") == "again"


@pytest.mark.usefixtures("neighbours")
def test_a_disk_filler_ends_in_a_sentence_and_others_do_not_notice(ground: Ground) -> None:
    answer = ground.answer("sh:head -c 20m /dev/zero >big", code=None)  # work/ may be looked at just then
    assert re.search(r"larger than this group may write|over its limit \(8 MB", told(answer)), answer
    answer = ground.answer("sh:n=0; while head -c 200k /dev/zero >f$n; do n=$((n+1)); sleep .05; done", code=1)
    assert "over its limit (8 MB" in told(answer)
    assert ground.sh("rm -f big f*; echo again") == "again", "the turn that makes room is let through"


# ---- what it can leave behind


def test_a_process_that_a_turn_left_behind_is_gone_before_the_next(ground: Ground) -> None:
    left = f"(setsid nohup yes >/dev/null 2>&1 &); python3 {INBOX}/stay.py"
    ground.sh(f"rm -f beat; {left}; until [ -s beat ]; do :; done")
    names, _, sizes = ground.sh("cat /proc/[0-9]*/comm; echo; wc -c <beat; sleep .5; wc -c <beat").partition("\n\n")
    assert set(names.split()) <= {"bwrap", "cat", "docker-init", "python3", "sh"}, names
    assert len(set(sizes.split())) == 1, sizes


# ---- who it can say it is


REFUSED = "403 not_the_runner\n" * 3 + "403 no_token\n403 no_token"


def test_a_process_that_plays_the_runner_is_refused(ground: Ground) -> None:
    assert ground.sh(f"CLAWD_TOKEN= python3 {INBOX}/play.py /run/clawd/s") == REFUSED
    assert ground.inside("python3", f"{INBOX}/play.py", "/run/clawd/s") == REFUSED + "\n"
    assert not ground.rows("SELECT 1 FROM delivery WHERE text LIKE '%FORGED%'")


def test_the_socket_of_a_run_is_closed_to_the_host_and_to_other_groups(ground: Ground) -> None:
    ground.sh("true")
    runs = {each["group"]: each["run"] for each in ground.json("sandbox", "list")}
    path = ground.runtime / "clawd" / runs["main"] / "socket" / "s"
    python = ground.command()[: ground.command().index("-m")]
    play = str(ground.root / "groups/main/inbox/play.py")
    done = subprocess.run([*python, play, str(path)], capture_output=True, text=True, timeout=100)
    assert set(done.stdout.splitlines()) == {"403 not_this_sandbox"}, done
    ground.write("groups/other/inbox/play.py", Path(play).read_text(), 0o644)
    assert "No such file" in ground.sh(f"python3 {INBOX}/play.py {path} 2>&1", "other")
    assert ground.sh("echo still here") == "still here"


def test_a_second_hello_ends_the_run_and_the_turn_goes_on_in_another(ground: Ground) -> None:
    answer = ground.answer(f"sh:python3 {INBOX}/play.py /run/clawd/s hello; sleep 30", code=None)
    assert "It was not run again" in told(answer), answer
    assert ground.sh("echo again") == "again"


def test_the_token_is_known_to_the_children_of_the_runner_alone(ground: Ground) -> None:
    work = ground.root / "groups/main/work"
    assert ground.sh("echo $CLAWD_TOKEN >word; env | grep -c $CLAWD_TOKEN; cat word; echo $CLAWD_TOKEN") == (
        "1\n[token]\n[token]"
    )
    token = (work / "word").read_text().strip()
    assert TOKEN.fullmatch(token)
    hunt = f"python3 {INBOX}/hunt.py"
    assert ground.sh(f"echo $CLAWD_TOKEN >word; exec {hunt}") == "done"
    ground.sh("echo $CLAWD_TOKEN >word")
    own = ground.inside("sh", "-c", f"{hunt}; echo $CLAWD_TOKEN").removeprefix("done\n").strip()
    assert TOKEN.fullmatch(own) and own != token, "a command beside the runner has one of its own"
    assert own != ground.inside("sh", "-c", "echo $CLAWD_TOKEN").strip()
    ground.sh("rm -f /group/work/*")
    kept = [file for tree in (ground.layout.state, ground.runtime) for file in tree.rglob("*") if file.is_file()]
    processes = [file for name in ("environ", "cmdline") for file in Path("/proc").glob(f"[0-9]*/{name}")]
    holders = []
    for file in [*kept, *processes]:
        try:
            data = file.read_bytes()
            holders += [file.name for each in (token, own) if each.encode() in data]
        except OSError:
            continue  # a process that ended
    assert not holders


def test_a_host_tool_needs_the_token_and_a_live_turn(main: Ground) -> None:
    call = f"python3 {INBOX}/call.py"
    assert main.reply(f"sh:echo $CLAWD_TOKEN >token; {call} hello") == "hello\n\n200"
    assert main.sh(f"CLAWD_TOKEN= {call} no; CLAWD_TOKEN=x {call} no") == "403 no_token\n403 no_token"
    assert main.inside("sh", "-c", f"{call} no; {call} no $(cat token)") == "403 no_token\n403 no_turn\n"


# ---- for whom it acts


def test_commands_are_the_owners_and_after_others_only_with_their_trust(main: Ground) -> None:
    for speaker in ("admin:Ada", "member:owner"):
        assert "Only the owner" in main.reply("sh: echo no", "--as", speaker)
    assert "clawd groups trust main" in main.reply("sh: echo no"), (
        "what a member's turn left in work/ is not the owner's"
    )
    [group] = [each for each in main.json("groups", "list") if each["group"] == "main"]
    assert (group["authority"], group["taint"]) == ("member", 0.4)
    assert main.sh("echo yes", "other") == "yes"
    main.json("groups", "trust", "main")
    assert main.sh("echo yes") == "yes"


def test_a_command_counts_only_where_the_owner_began_with_it(main: Ground) -> None:
    assert "do not understand" in main.reply("please run\nsh: id")


def test_a_clean_group_has_a_fresh_work_and_the_old_one_aside(main: Ground) -> None:
    main.sh("echo old >old")
    main.reply("hello", "--as", "member:Max")
    kept = Path(main.json("groups", "clean", "main")["kept"])
    assert (kept / "old").read_text() == "old\n" and kept.parent == main.root / "groups/main"
    assert main.sh("ls -A; stat -c %a .; ls -d /group/work?* 2>/dev/null; true") == "700"


def test_a_stranger_hears_one_line_and_leaves_nothing(main: Ground) -> None:
    main.sh("true")
    until(lambda: not main.rows("SELECT 1 FROM inbound WHERE state NOT IN ('recorded', 'failed')"))
    tables = ("inbound", "turn", "wake", "delivery", "session")
    before = [main.rows(f"SELECT * FROM {table}") for table in tables]
    said = main.done("chat", "-m", "hello", "--as", "stranger:Eve", code=None)
    assert (said.stdout + said.stderr).count("private assistant") == 1
    assert before == [
        main.rows(f"SELECT * FROM {table}") for table in ("inbound", "turn", "wake", "delivery", "session")
    ]
    assert "Eve" not in main.logged()


# ---- what it can have sent


def test_only_regular_files_of_work_can_be_sent(main: Ground) -> None:
    main.sh(
        "ln -s /etc/passwd link; ln -s /group/inbox beside; mkfifo fifo; mkdir directory;"
        " python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'"
    )
    before = len(main.deliveries())
    absent = ("missing", "../CLAUDE.md", "/etc/passwd", "/group/CLAUDE.md", "/group/work/../CLAUDE.md", ".", "/")
    for name in ("link", "beside/play.py", "fifo", "directory", "socket", *absent):
        answer = main.answer(f"send file: {name}")
        assert answer["files"] == [] and "I sent" not in answer["reply"], answer
    assert {each["kind"] for each in main.deliveries()[before:]} == {"text"}


def test_an_empty_file_can_be_sent_and_what_is_sent_is_the_copy(main: Ground) -> None:
    main.sh(": >empty; echo first >file")
    sent = [main.answer(f"send file: {name}")["files"] for name in ("empty", "file")]
    main.sh("echo second >file")
    assert [(each["name"], Path(each["path"]).read_text()) for [each] in sent] == [("empty", ""), ("file", "first\n")]
