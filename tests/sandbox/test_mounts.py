"""What the mount allowlist lets a group have: the decision by table, over real directories; and that both backends show
what was decided, and nothing that was put in its place."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from conftest import Ground, beside

from clawd import apart, faults
from clawd.apart import Apart
from clawd.config.group import Mount as Asked
from clawd.config.home import Home
from clawd.errors import SandboxUnavailable
from clawd.resources import shipped
from clawd.sandbox import recipe
from clawd.sandbox.mounts import Mounts, Verdict
from clawd.sandbox.probe import survey
from clawd.sandbox.protocol import Exchanged, Mount, RunSpec
from clawd.trust import Role

AGENT = 64_001
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")


@dataclass
class Machine:
    """A user's home with a home of clawd, an allowlist, and directories that it has."""

    root: Path
    asked: dict[str, list[Asked]] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home = Home(self.root / "me" / "clawd")
        self.home.create()
        self.file = self.root / "me" / ".config" / "clawd" / "mounts.toml"
        self.file.parent.mkdir(mode=0o700, parents=True)
        for name in ("code/app", "code/app/src", "code/tokenizer-docs", "data", "elsewhere"):
            (self.root / "me" / name).mkdir(parents=True)
        self.allow(("code", "rw"), ("data", "ro"))

    @property
    def mounts(self) -> Mounts:
        environment = {"HOME": str(self.root / "me"), "PATH": "/usr/bin:/bin", **self.more}
        return Mounts(self.home, environment, self.root / "run", lambda group: self.asked[group], lambda: self.asked)

    def path(self, name: str = "") -> Path:
        return self.root / "me" / name

    def allow(self, *roots: tuple[str, ...], text: str = "") -> None:
        for path, mode, *more in roots:
            at = path if path.startswith(("/", "~")) else self.path(path)
            text += f'[[roots]]\npath = "{at}"\nmode = "{mode}"\nwhy = "a test"\n{"".join(more)}\n'
        self.file.write_text(f"schema = 1\n{text}")
        self.file.chmod(0o600)

    def ask(self, group: str, *mounts: tuple[str, str] | tuple[str, str, bool]) -> None:
        """(path, mode, shared) each; the name is m0, m1 …"""
        self.asked[group] = [
            Asked(path=str(self.path(path)), name=f"m{n}", mode=mode, shared=bool(shared))  # type: ignore[arg-type]
            for n, (path, mode, *shared) in enumerate(mounts)
        ]

    def check(self, path: str | Path, writable: bool = False, **more: object) -> Verdict:
        return self.mounts.check(str(path), writable, **more)  # type: ignore[arg-type]

    def given(self, group: str = "main", role: Role = Role.OWNER) -> tuple[dict[str, str], str]:
        """Each target with its mode, and all that the person is told."""
        given = self.mounts.given(group, role, None)
        return {each.target: "rw" if each.writable else "ro" for each in given.mounts}, "\n".join(given.told)


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Away from the program, which nothing around it may be shown with."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Machine(Path(name))


def test_what_the_allowlist_has_is_allowed_and_nothing_else(machine: Machine) -> None:
    for path, writable, mode in (("code", False, "ro"), ("code/app", True, "rw"), ("code/tokenizer-docs", True, "rw")):
        verdict = machine.check(machine.path(path), writable)
        assert (verdict.allow, verdict.mode, verdict.rule) == (True, mode, "allowed"), verdict
        assert verdict.real == str(machine.path(path))
    forced = machine.check(machine.path("data"), True)
    assert (forced.allow, forced.mode, forced.rule) == (True, "ro", "read_only")
    for path in ("elsewhere", "", "code/none", "codex"):
        assert not machine.check(machine.path(path)).allow
    assert machine.check(machine.path("elsewhere")).rule == "not_allowed"
    assert machine.check(machine.path("code/none")).rule == "missing"
    machine.allow(("~/code", "rw"))
    assert machine.check("~/code/app").allow and not machine.check("~/data").allow


@pytest.mark.parametrize("written", ["{}/", "{}//", "/{}", "{}/.", "{}/./", "//{}/src/.//"])
def test_one_place_is_one_decision_however_it_is_written(machine: Machine, written: str) -> None:
    for path, allowed in ((machine.path("code/app"), True), (machine.path("elsewhere"), False)):
        (path / "src").mkdir(exist_ok=True)
        assert machine.check(written.format(path)).allow is allowed


@pytest.mark.parametrize(
    "path",
    [
        "",
        "code",
        "./code",
        "../code",
        "~",
        "~root",
        "~other/code",
        "~~/x",
        "/a:ro",
        "/a,b",
        "/a\0b",
        "/a\nb",
        "/a\x7f",
        "/a\x1b[0m",
        "/a\u202eb",
        "/a\u2028b",
        "/tmp/..",
        "~/code/../data",
        "/..",
        "/proc/self/fd/../3",
        "/a\\b",
    ],
)
def test_a_path_that_is_not_plainly_one_is_refused(machine: Machine, path: str) -> None:
    assert machine.check(path).rule == "syntax"


def test_a_link_is_judged_by_where_it_leads(machine: Machine) -> None:
    inside, out = machine.path("code/link"), machine.path("code/out")
    inside.symlink_to(machine.path("code/app"))
    out.symlink_to(machine.path("elsewhere"))
    assert machine.check(inside).real == str(machine.path("code/app"))
    assert (machine.check(out).rule, machine.check(out / "x").rule) == ("not_allowed", "missing")
    machine.path("code/colon").symlink_to("a:b")
    machine.path("code/a:b").mkdir()
    assert machine.check(machine.path("code/colon")).rule == "syntax"
    machine.path("code/loop").symlink_to("loop")
    assert machine.check(machine.path("code/loop")).rule == "unreadable"
    machine.path("elsewhere/back").symlink_to(machine.path("code"))
    assert machine.check(machine.path("elsewhere/back/app")).allow


def test_a_link_that_an_agent_could_exchange_leads_nowhere(machine: Machine) -> None:
    """Neither where a group asks for it, nor where the allowlist has it for a root; where an agent is the daemon's own
    user, nothing but the mount that it can write to tells."""
    app, work = machine.path("code/app"), machine.home.group("main").work
    work.mkdir(parents=True)
    shutil.rmtree(app)
    app.symlink_to(machine.path("data"))
    machine.path("code/self").symlink_to(".")
    machine.path("code/over").symlink_to(machine.path("elsewhere/back"))
    machine.path("elsewhere/back").symlink_to(machine.path("code/app"))
    (work / "link").symlink_to(machine.path("data"))
    machine.ask("main", ("code", "rw"), ("code/app", "ro"), ("code/self", "ro"), ("elsewhere/back", "ro"))
    machine.ask("other", ("code/over", "ro"))
    shown, told = machine.given()
    assert shown == {"/mnt/m0": "rw"} and told.count(f"{machine.path('code')}, which this group can write to") == 3
    shown, told = machine.given("other")
    assert not shown and "which the group main can write to" in told
    assert machine.check(work / "link").rule == "forbidden"
    machine.ask("other")
    machine.ask("main", ("code/self", "rw"))
    assert "code/self lies in" in machine.given()[1]
    app.unlink()
    app.symlink_to(machine.path("elsewhere"))
    machine.allow(("code", "rw"), ("code/app", "rw"))
    machine.ask("main", ("code", "rw"), ("elsewhere", "rw"))
    assert machine.given()[0] == {"/mnt/m0": "rw"}
    machine.path("code").chmod(0o777)
    machine.allow(("code/app", "rw"))
    assert machine.check(machine.path("elsewhere")).rule == "open_path"
    machine.allow(("data", "ro"))
    machine.path("code/app").unlink()
    machine.path("code/app").symlink_to(machine.path("data"))
    assert machine.check(machine.path("code/app")).rule == "open_path"
    assert machine.check(machine.path("data")).allow


def test_what_is_forbidden_is_so_whatever_the_allowlist_says(machine: Machine) -> None:
    engine = machine.path("engine/sub/docker.sock")
    for each in (engine.parent, machine.path(".local/bin"), machine.path("tools")):
        each.mkdir(parents=True)
    machine.more = {"DOCKER_HOST": f"unix://{engine}", "PATH": f"/usr/bin:{machine.path('tools')}"}
    own = [machine.home.root, machine.home.state, machine.home.groups, machine.file.parent, machine.root / "me"]
    own += [machine.root / "run", machine.root, Path("/"), Path("/tmp"), machine.path(".local"), machine.path("tools")]
    own += [shipped("containers"), Path(os.__file__).parent, Path(pytest.__file__).parent, engine.parent.parent]
    system = (
        "/proc /proc/self /proc/self/root /sys /dev /dev/shm /boot /etc /etc/ssl /run /var/run /var /root /usr /bin"
    )
    own += [Path(each) for each in system.split()]
    (machine.root / "run").mkdir()
    # as if the allowlist let everything be shown: each is refused by what it is
    (machine.root / "lists").mkdir()
    machine.file = machine.root / "lists" / "mounts.toml"
    machine.more["CLAWD_MOUNTS"] = str(machine.file)
    roots = [(str(each.resolve()), "rw") for each in {*own, machine.path("code")} if each.exists()]
    roots = [each for each in roots if not machine.file.is_relative_to(each[0])]
    machine.allow(*roots)
    assert machine.check(machine.path("code")).allow
    for path in own:
        if path.exists():
            verdict = machine.check(path)
            assert not verdict.allow and verdict.rule in ("forbidden", "pseudo"), (path, verdict)
    assert machine.check(machine.home.groups / "main" / "work").allow is False


@pytest.mark.parametrize(
    "name",
    [
        ".ssh",
        ".SSH",
        ".\u017f\u017fh",
        ".gnupg",
        ".aws",
        ".azure",
        ".config/gcloud",
        ".kube",
        ".docker",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".git-credentials",
        ".env",
        ".env.local",
        ".ENV",
        "id_ed25519",
        "server.pem",
        "A.PEM",
        ".claude",
        ".codex",
        ".config/gh",
        "keys/x.key",
        ".ssh/deep/er",
    ],
)
def test_a_name_that_means_a_secret_is_refused_wherever_it_stands(machine: Machine, name: str) -> None:
    path = machine.path("code") / name
    path.mkdir(parents=True)
    assert machine.check(path).rule == "secret"
    assert machine.check(path / "..").rule == "syntax"
    machine.allow((str(path), "ro"))
    assert machine.check(path).rule == "secret"


@pytest.mark.parametrize("name", ["tokenizer-docs", "ssh", "environment", "my.ssh", "pem", "awsome", "docker", "kube"])
def test_a_name_that_only_resembles_one_is_not(machine: Machine, name: str) -> None:
    (machine.path("code") / name).mkdir(exist_ok=True)
    assert machine.check(machine.path("code") / name).allow


def test_a_file_is_shown_only_by_its_own_root_and_special_files_never(machine: Machine) -> None:
    file, pipe, sock = (machine.path("code/app") / name for name in ("file", "pipe", "sock"))
    file.write_text("text")
    os.mkfifo(pipe)
    assert machine.check(file).rule == "not_allowed"
    machine.allow((str(file), "rw"), (str(pipe), "rw"), (str(sock), "rw"), ("/dev/null", "rw"))
    verdict = machine.check(file, True)
    assert (verdict.allow, verdict.mode) == (True, "rw")
    assert machine.check(pipe).rule == "special"
    with socket.socket(socket.AF_UNIX) as listener:
        at = os.open(sock.parent, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{at}/sock")
        finally:
            os.close(at)
        assert machine.check(sock).rule == "special"
    assert not machine.check("/dev/null").allow


def test_a_directory_with_a_program_s_socket_is_refused(machine: Machine) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(machine.path("code/app/src/s")))
        assert machine.check(machine.path("code")).rule == "socket"
        assert machine.check(machine.path("code/tokenizer-docs")).allow
    machine.path("code/app/src/s").unlink()
    assert machine.check(machine.path("code")).allow


def test_what_others_could_exchange_is_refused(machine: Machine) -> None:
    machine.path("code/app").chmod(0o777)
    assert machine.check(machine.path("code/app/src")).rule == "open_path"
    assert machine.check(machine.path("code/app")).allow  # it itself stays where it is
    machine.path("code/app").chmod(0o1777)
    assert machine.check(machine.path("code/app/src")).allow  # nobody else may rename it there
    machine.path("code/app").chmod(0o775)
    assert machine.check(machine.path("code/app/src")).allow


@AS_ROOT
def test_what_an_agent_could_exchange_is_refused(machine: Machine) -> None:
    app, inner = machine.path("code/app"), machine.path("code/app/src")
    os.chown(app, AGENT, AGENT)
    assert machine.check(inner).rule == "open_path"
    os.chown(app, 0, AGENT)
    app.chmod(0o775)
    assert machine.check(inner).rule == "open_path"
    app.chmod(0o1777)
    os.chown(app, 0, 0)
    os.chown(inner, 65_534, 65_534)
    assert machine.check(inner).rule == "open_path"  # its owner may rename it
    os.chown(inner, 0, 0)
    app.chmod(0o755)
    acl = b"\x02\0\0\0" + b"".join(
        tag.to_bytes(2, "little") + rights.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, rights, who in (
            (1, 7, 2**32 - 1),
            (2, 7, AGENT),
            (4, 5, 2**32 - 1),
            (16, 7, 2**32 - 1),
            (32, 5, 2**32 - 1),
        )
    )
    os.setxattr(app, "system.posix_acl_access", acl)
    assert machine.check(inner).rule == "open_path"


def test_the_deepest_root_decides_and_one_inside_is_not_written_from_outside(machine: Machine) -> None:
    machine.allow(("code", "rw", 'trust = "owner"'), ("code/app", "ro", 'trust = "owner"'), ("code/app/src", "rw"))
    modes = {path: machine.check(machine.path(path), True) for path in ("code", "code/app", "code/app/src")}
    assert {path: each.mode for path, each in modes.items()} == {"code": "ro", "code/app": "ro", "code/app/src": "rw"}
    assert {path: each.trust for path, each in modes.items()} == {"code": 0.2, "code/app": 0.2, "code/app/src": 0.2}
    assert machine.check(machine.path("code/tokenizer-docs"), True).trust == 1.0


def test_only_its_owner_s_turns_may_write(machine: Machine) -> None:
    machine.ask("main", ("code/app", "rw"))
    assert machine.given() == ({"/mnt/m0": "rw"}, "")
    for role in (Role.ADMIN, Role.MEMBER, Role.NONE):
        shown, told = machine.given(role=role)
        assert shown == {"/mnt/m0": "ro"} and "only the owner" in told


def test_a_disk_that_does_not_answer_holds_up_nobody(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    app, heals, looks = machine.path("code/app"), threading.Event(), list[Hashable]()

    class Slow(Apart):
        def answers(self, thing: Hashable, look: Callable[[], object]) -> bool:
            return super().answers(thing, look if thing != app else lambda: looks.append(thing) or heals.wait(60))

    monkeypatch.setattr(apart, "ANSWER_SECONDS", 0.1)
    machine.allow(("code", "ro"), ("code/app", "ro"), ("data", "ro"))
    machine.ask("main", ("code/app", "ro"), ("data", "ro"))
    mounts = machine.mounts
    mounts.apart = Slow()
    try:
        for _ in range(3):
            given = mounts.given("main", Role.OWNER, None)
            [told] = given.told
            assert [each.target for each in given.mounts] == ["/mnt/m1"] and "does not answer" in told
        assert len(looks) == 1
    finally:
        heals.set()
    until = time.monotonic() + 60
    while len(mounts.given("main", Role.OWNER, None).mounts) != 2:
        assert time.monotonic() < until, "it is asked again"


# ── the file ──


def broken(file: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    text = file.read_text()
    yield "no mount allowlist", file.unlink
    yield "not TOML", lambda: file.write_text("schema = 1\n[[roots")
    yield "mode", lambda: file.write_text(text.replace('"rw"', '"rwx"'))
    yield "colour", lambda: file.write_text(text.replace("why", "colour = 1\nwhy", 1))
    yield "colour", lambda: file.write_text(text.replace("[[roots]]", "colour = 1\n[[roots]]", 1))
    yield "schema", lambda: file.write_text(text.replace("schema = 1", "schema = 2"))
    yield "schema", lambda: file.write_text(text.replace("schema = 1", ""))
    yield "why", lambda: file.write_text(text.replace('"a test"', '" "'))
    yield "UTF-8", lambda: file.write_bytes(b"schema = 1 # \xff")
    yield "larger", lambda: file.write_text(text + "#" * (1 << 20))
    yield "others can write", lambda: file.chmod(0o602)
    yield "others can write", lambda: file.chmod(0o620)
    yield "others can write", lambda: file.parent.chmod(0o777)
    yield "link", lambda: (file.rename(file.with_name("other")), file.symlink_to("other"))
    yield "a directory", lambda: (file.unlink(), file.mkdir())
    yield "plain file", lambda: (file.unlink(), os.mkfifo(file))
    if os.geteuid() == 0:
        yield "another user", lambda: os.chown(file, AGENT, AGENT)
        yield "others can write", lambda: os.chown(file.parent, AGENT, AGENT)


def test_a_file_that_is_not_surely_the_owner_s_allows_nothing(machine: Machine) -> None:
    machine.ask("main", ("code", "rw"))
    mounts, directory = machine.mounts, machine.file.parent  # one that lives on, as a daemon's does
    for what, spoil in list(broken(machine.file)):
        assert len(mounts.given("main", Role.OWNER, None).mounts) == 1
        spoil()
        given = mounts.given("main", Role.OWNER, None)
        assert not given.mounts and what.lower() in str(given.problem).lower(), (what, given)
        assert what.lower() in given.told[0].lower()
        assert mounts.check(str(machine.path("code")), False).rule in ("allowlist", "no_allowlist")
        shutil.rmtree(directory)
        directory.mkdir(mode=0o700)
        machine.allow(("code", "rw"), ("data", "ro"))


def test_where_it_lies(machine: Machine) -> None:
    elsewhere = machine.root / "lists"
    elsewhere.mkdir()
    machine.path("code/app/link").symlink_to(elsewhere)
    text = machine.file.read_text()
    for place, what in (
        (machine.home.root / "mounts.toml", "in a home"),
        (machine.home.group("main").root / "mounts.toml", "in a home"),
        (machine.path("code/app/mounts.toml"), "in its root"),
        (machine.path("code/app/link/mounts.toml"), "in its root"),
        (elsewhere / "mounts.toml", None),
        (Path("mounts.toml"), "absolute"),
    ):
        machine.more = {"CLAWD_MOUNTS": str(place)}
        if place.is_absolute():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            place.chmod(0o600)
        problem = machine.mounts.problem()
        assert (problem is None) == (what is None) and (what or "") in str(problem), (place, problem)
    elsewhere.chmod(0o1777)
    machine.more = {"CLAWD_MOUNTS": str(elsewhere / "mounts.toml")}
    assert "others can write" in str(machine.mounts.problem())
    machine.more = {"XDG_CONFIG_HOME": str(machine.root / "xdg")}
    assert "no mount allowlist" in str(machine.mounts.problem())


def test_a_root_that_can_mean_nothing_takes_every_mount_away(machine: Machine) -> None:
    """It may have been the read-only one inside."""
    code = machine.path("code")
    for path in ("code/app", f"{code}/../code/app", f"{code}:app", "~other/app"):
        machine.allow(("code", "rw"), text=f'[[roots]]\npath = "{path}"\nmode = "ro"\nwhy = "a test"\n')
        verdict = machine.check(code, True)
        assert (verdict.allow, verdict.rule) == (False, "allowlist") and path in verdict.reason
    machine.allow(("code", "rw"), ("code/not-yet", "ro"))  # nothing is there to be kept
    assert machine.check(code, True).mode == "rw"


def test_an_unknown_key_of_a_root_names_those_that_are_known(machine: Machine) -> None:
    machine.allow(("code", "rw", "zzz = 1"))
    problem = machine.mounts.problem()
    assert problem is not None and problem.hint == "known here: mode, path, trust, why"


# ── beside each other ──


@pytest.mark.parametrize(
    ("one", "other", "shown", "word"),
    [
        (("code/app", "ro"), ("code/app", "ro"), True, ""),
        (("code/app", "ro"), ("code/app", "rw"), False, "shared = true"),
        (("code/app", "rw"), ("code/app", "ro"), False, "shared = true"),
        (("code/app", "rw", True), ("code/app", "ro"), False, "shared = true"),
        (("code/app", "rw", True), ("code/app", "ro", True), True, ""),
        (("code", "ro"), ("code/app", "rw"), False, "shared = true"),
        (("code", "ro", True), ("code/app", "rw", True), True, ""),
        (("code/app", "ro", True), ("code", "rw", True), False, "lies in"),
        (("code/app", "rw", True), ("code", "rw", True), False, "lies in"),
        (("code/app", "rw"), ("code/tokenizer-docs", "rw"), True, ""),
        (("data", "ro"), ("data", "rw"), True, ""),  # nobody writes there: its root is read-only
    ],
)
def test_what_one_group_writes_another_sees_only_if_both_say_so(
    machine: Machine, one: tuple[str, str], other: tuple[str, str], shown: bool, word: str
) -> None:
    machine.allow(("code", "rw", 'trust = "owner"'), ("data", "ro"))
    machine.ask("main", one)
    machine.ask("other", other)
    got, told = machine.given()
    assert (bool(got), word in told) == (shown, True), told
    verdict = machine.check(machine.path(one[0]), one[1] == "rw", group="main")
    assert verdict.allow is (shown or (len(one) == 3 and word == "shared = true" and False))
    trusts = {each.trust for each in machine.mounts.given("main", Role.OWNER, None).mounts}
    together = len(one) == 3 and len(other) == 3
    assert trusts <= ({0.2} if together or one[0] == "data" else {1.0})


def test_a_second_name_and_a_nested_mount_are_refused(machine: Machine) -> None:
    machine.ask("main", ("code", "rw"), ("code/app", "ro"), ("data", "ro"))
    assert machine.given()[0] == {"/mnt/m0": "rw", "/mnt/m2": "ro"}
    machine.asked["main"] = [each.model_copy(update={"name": "x"}) for each in machine.asked["main"][1:]]
    shown, told = machine.given()
    assert shown == {} and told.count("two mounts of the group are called x") == 2


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "../run", "a\n", "a:b", "-a", ".git", "a" * 65, "a\0b"])
def test_a_name_can_lead_nowhere_but_beneath_mnt(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        Asked(path="/x", name=name)


def test_what_a_living_sandbox_of_another_group_still_writes_waits(machine: Machine) -> None:
    machine.ask("main", ("code/app", "ro"))
    machine.ask("other")
    mounts = machine.mounts
    status = machine.path("code").stat()
    mounts.living["run"] = "other", (Mount(machine.path("code"), "/mnt/x", True, status.st_dev, status.st_ino),)
    given = mounts.given("main", Role.OWNER, None)
    assert not given.mounts and "still has" in given.told[0]
    del mounts.living["run"]
    assert mounts.given("main", Role.OWNER, None).mounts


# ── what a person's own git would run ──


def test_of_a_repository_hooks_and_config_stay_shut(machine: Machine) -> None:
    app = machine.path("code/app")
    machine.ask("main", ("code/app", "rw"))
    subprocess.run(["git", "init", "-q", str(app)], check=True, timeout=60)
    (app / ".git/hooks").mkdir(exist_ok=True)
    modes = {"": "rw", "/.git": "rw", "/.git/hooks": "ro", "/.git/config": "ro"}
    assert machine.given()[0] == {f"/mnt/m0{path}": mode for path, mode in modes.items()}
    shutil.rmtree(app / ".git/hooks")
    whole = {"/mnt/m0": "rw", "/mnt/m0/.git": "ro"}
    assert machine.given()[0] == whole, "nothing is made on the host to be shut"
    (app / ".git/hooks").symlink_to("/tmp")
    assert machine.given()[0] == whole
    shutil.rmtree(app / ".git")
    (app / ".git").write_text("gitdir: /elsewhere\n")
    assert machine.given()[0] == {"/mnt/m0": "rw", "/mnt/m0/.git": "ro"}
    (app / ".git").unlink()
    (app / ".git").symlink_to("src")
    shown, told = machine.given()
    assert shown == {"/mnt/m0": "ro"} and "git" in told
    bare = machine.path("code/bare.git")
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True, timeout=60)
    (bare / "hooks").mkdir(exist_ok=True)
    machine.ask("main", ("code/bare.git", "rw"))
    assert machine.given()[0] == {"/mnt/m0": "rw", "/mnt/m0/hooks": "ro", "/mnt/m0/config": "ro"}
    subprocess.run(["git", "init", "-q", str(machine.path("code/more"))], check=True, timeout=60)
    machine.ask("main", ("code/more/.git", "rw"))
    assert machine.given()[0] == {"/mnt/m0": "ro"}


# ── rights ──


def test_a_user_without_the_rights_is_told_how_to_have_them(machine: Machine) -> None:
    app = machine.path("code/app")
    machine.ask("main", ("code/app", "rw"))

    def told(mode: int) -> str:
        app.chmod(mode)
        return "\n".join(machine.mounts.given("main", Role.OWNER, AGENT).told)

    assert "cannot read" in told(0o700) and f"setfacl -R -m u:{AGENT}:rwX {app}" in told(0o700)
    assert "cannot write to" in told(0o755)
    assert told(0o777) == ""
    assert stat.S_IMODE(app.stat().st_mode) == 0o777


# ── both backends show what was decided ──

LISTEN = """
import os, time
open("up", "w").close()
time.sleep(600)
"""


def shown(path: Path, name: str, writable: bool = False) -> Mount:
    status = path.lstat()
    return Mount(path, f"/mnt/{name}", writable, status.st_dev, status.st_ino)


@pytest.fixture
def tree(ground: Ground) -> Path:
    """A directory with a repository, which every user may write to."""
    root = ground.root / "tree"
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=60)
    (root / ".git/hooks").mkdir(exist_ok=True)
    (root / "file").write_text("text")
    for each in (root, *root.rglob("*")):
        each.chmod(0o777)
    return root


TRIES = """
for f in ro/new ro/file rw/.git/hooks/post-commit rw/.git/config one rw/new rw/.git/new; do
  (echo no >>/mnt/$f) 2>/dev/null && echo wrote $f; done
for f in ro/file rw/.git rw/.git/hooks rw/.git/config; do mv /mnt/$f /mnt/rw/moved 2>/dev/null && echo moved $f; done
for f in ro/file rw/.git/hooks rw/.git/config; do rm -rf /mnt/$f 2>/dev/null; [ -e /mnt/$f ] || echo removed $f; done
mkdir /mnt/new 2>/dev/null && echo made
mount --bind /mnt/rw /mnt/ro 2>/dev/null && echo mounted
cat /mnt/ro/file; cat /mnt/one
grep " /mnt/" /proc/self/mountinfo | cut -d " " -f 5-
"""


@pytest.mark.anyio
async def test_mounts_are_what_they_were_decided_to_be(ground: Ground, tree: Path) -> None:
    one = ground.root / "one"
    one.write_text("single")
    one.chmod(0o666)
    laid = [(tree, "rw", True), (tree / ".git", "rw/.git", True), (tree / ".git/hooks", "rw/.git/hooks", False)]
    laid += [(tree / ".git/config", "rw/.git/config", False), (tree, "ro", False), (one, "one", False)]
    spec = replace(ground.spec(), mounts=tuple(shown(*each) for each in laid))
    before = {path.name for path in Path("/mnt").iterdir()}
    sandbox = await ground.start(LISTEN, spec)
    for _ in range(2):  # a second command, for it is mounted anew under bubblewrap
        done = await beside(sandbox, ["sh", "-c", TRIES])
        said, table = done.stdout.decode().split("textsingle")
        assert said.split() == ["wrote", "rw/new", "wrote", "rw/.git/new"], done
    assert [
        line.split()[1].split(",")[0]
        for line in table.splitlines()
        if line.split()[0] in ("/mnt/ro", "/mnt/one", "/mnt/rw/.git/hooks", "/mnt/rw/.git/config")
    ] == ["ro"] * 4
    assert "shared:" not in table and "master:" not in table, table
    assert ground.image or all("nosuid" in line for line in table.splitlines()[1:]), table
    assert {path.name for path in Path("/mnt").iterdir()} == before
    assert (tree / "new").stat().st_uid == (ground.uid or os.geteuid())


@pytest.fixture
def exchange(ground: Ground, tree: Path) -> Callable[[], None]:
    """Puts a link to a secret in the place of `tree`."""
    secret = ground.root / "secret"
    secret.mkdir()
    (secret / "file").write_text("the secret")

    def exchange() -> None:
        tree.rename(ground.root / "aside")
        tree.symlink_to(secret)

    return exchange


@pytest.mark.anyio
async def test_what_is_exchanged_between_check_and_start_is_never_seen(
    ground: Ground, tree: Path, exchange: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = "created" if ground.image else "checked"
    spec = replace(ground.spec(), mounts=(shown(tree, "tree"),))
    monkeypatch.setattr(faults, "passing", lambda point: exchange() if point == moment else None)
    agent = ground.agent("", spec.run)
    looks = "open('/group/work/got', 'w').write(open('/mnt/tree/file').read())"
    # It stays: a sandbox that ends before it is looked at is refused for that alone.
    (agent / "runner.py").write_text(f"import time\ntry:\n    {looks}\nfinally:\n    time.sleep(60)\n")
    monkeypatch.setattr(ground, "agent", lambda *_: agent)
    with pytest.raises(Exchanged) as raised:
        await ground.start("", spec)
    assert raised.value.mount.target == "/mnt/tree" and tree.is_symlink()
    if not ground.image:  # a container's runner is ours, and waits for its hello
        assert not (spec.work / "got").exists()


@pytest.mark.anyio
async def test_what_is_exchanged_before_a_command_is_never_seen(
    ground: Ground, tree: Path, exchange: Callable[[], None]
) -> None:
    sandbox = await ground.start(LISTEN, replace(ground.spec(), mounts=(shown(tree, "tree"),)))
    exchange()
    if ground.image:  # it goes into the very same container
        assert (await beside(sandbox, ["cat", "/mnt/tree/file"])).stdout == b"text"
    else:
        with pytest.raises(Exchanged):
            await beside(sandbox, ["sh", "-c", "cat /mnt/tree/file >/group/work/got"])
        assert not (ground.spec().work / "got").exists()


def test_what_is_mounted_later_does_not_show_inside(tmp_path: Path) -> None:
    """Where the host's mounts are shared, as systemd makes them."""
    host = survey("test", shipped("containers/agent"))
    assert host.private, "unshare is part of util-linux, as prlimit is"
    look = ["grep", "-c", "shared:\\|master:", "/proc/self/mountinfo"]
    line = ["unshare", "--mount", "--propagation", "shared", *host.private, *look]
    if os.geteuid():
        line = ["unshare", "--user", "--map-root-user", *line[1:]]
    assert subprocess.run(line, capture_output=True, text=True, timeout=60, check=False).stdout == "0\n"
    spec = RunSpec("r", "main", None, *([tmp_path] * 5), mounts=(shown(tmp_path, "x"),))
    assert recipe.command(spec, host, ["x"], 3, 4, None)[: len(host.private)] == list(host.private)


@AS_ROOT
def test_a_second_mount_of_a_place_is_still_that_place(machine: Machine) -> None:
    """In a mount namespace of its own: names that lead elsewhere than they say."""
    for name in ("home", "keys", "inner", "kernel", "app/src", "above/clawd"):
        machine.path(f"code/{name}").mkdir(parents=True, exist_ok=True)
    (machine.path("code/.ssh")).mkdir()
    me = machine.root / "me"
    binds = f"mount --bind {machine.home.groups} {me}/code/home && mount --bind {me}/code/.ssh {me}/code/keys"
    binds += f" && mount --bind {me}/code/tokenizer-docs {me}/code/inner && mount -t proc proc {me}/code/kernel"
    binds += f" && mount -t tmpfs tmpfs {me}/code/app/src && mount --bind {me}/code/above/clawd {machine.home.root}"
    wanted = {"home": "forbidden", "keys": "secret", "inner": "allowed", "kernel": "pseudo"}
    wanted |= {"app": "submount", "app/src": "allowed", ".": "forbidden", "tokenizer-docs": "allowed"}
    wanted |= {"above": "forbidden", "above/clawd": "forbidden"}
    ask = "from clawd.cli.main import run; import sys; home, *paths = sys.argv[1:]\n"
    ask += "for path in paths: run(['--home', home, 'mounts', 'check', '--json', path]); print(flush=True)"
    line = ["unshare", "--mount", "sh", "-c", f'{binds} && "$@"', "sh", sys.executable, "-c", ask]
    done = subprocess.run(
        [*line, str(machine.home.root), *(f"{me}/code/{name}" for name in wanted)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "HOME": str(me), "XDG_RUNTIME_DIR": str(machine.root / "run")},
        cwd=shipped("containers").parent,
    )
    assert not done.stderr, done
    rules = [json.loads(each)["rule"] for each in done.stdout.split("\n\n") if each.strip()]
    assert dict(zip(wanted, rules, strict=True)) == wanted, done


@pytest.mark.anyio
async def test_what_vanished_is_not_made_on_the_host(
    ground: Ground, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = "created" if ground.image else "checked"
    spec = replace(ground.spec(), mounts=(shown(tree, "tree"),))
    aside = ground.root / "aside"
    monkeypatch.setattr(faults, "passing", lambda point: tree.rename(aside) if point == moment else None)
    with pytest.raises(SandboxUnavailable):
        await ground.start(LISTEN, spec)
    assert not tree.exists()
    monkeypatch.undo()
    with pytest.raises(Exchanged):
        await ground.start(LISTEN, spec)
    assert not tree.exists()
