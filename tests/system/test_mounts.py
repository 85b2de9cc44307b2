"""The host's directories in a sandbox, through the whole program: what the allowlist lets a group have is there, what
it does not is told, and every edit holds at the next turn. Once for each backend."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine import Engine
from tests.system.conftest import until
from tests.system.ground import Ground
from tests.system.ground import ground as begun

pytestmark = pytest.mark.timeout(300)


class Lent:
    """A daemon, an allowlist, and a directory `code` that it allows."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self.root = ground, ground.root.parent
        self.file = self.root / "lists" / "mounts.toml"
        self.file.parent.mkdir(mode=0o700)
        (self.root / "me").mkdir()
        ground.more = {"CLAWD_MOUNTS": str(self.file), "HOME": str(self.root / "me")}
        self.number = 0

    def allow(self, *roots: tuple[Path, str], trust: str = "owner") -> None:
        text = "".join(
            f'[[roots]]\npath = "{path}"\nmode = "{mode}"\ntrust = "{trust}"\nwhy = "a test"\n' for path, mode in roots
        )
        self.file.write_text(f"schema = 1\n{text}")
        self.file.chmod(0o600)

    def tree(self, mode: int = 0o777) -> Path:
        """A directory with a file, that every agent may write to."""
        self.number += 1
        made = self.root / f"tree{self.number}"
        made.mkdir()
        made.chmod(mode)
        (made / "file").write_text("text")
        return made

    def ask(self, *mounts: tuple[str, Path | str, str], group: str = "main", shared: bool = False) -> None:
        more = "shared = true\n" if shared else ""
        self.ground.write(
            f"groups/{group}/group.toml",
            "".join(
                f'[[mounts]]\nname = "{name}"\npath = "{path}"\nmode = "{mode}"\n{more}' for name, path, mode in mounts
            ),
        )

    def notices(self) -> list[str]:
        return [row["text"] for row in self.ground.rows("SELECT text FROM delivery WHERE kind = 'notice' ORDER BY id")]

    def check(self, *words: str) -> tuple[int, dict[str, str]]:
        done = self.ground.done("mounts", "check", *words, "--json", code=None)
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def own() -> Iterator[Lent]:
    with begun() as ground:
        yield began(ground)


@pytest.fixture(scope="module")
def docker(engine: Engine) -> Iterator[Lent]:
    with begun(engine=engine) as ground:
        yield began(ground)


def began(ground: Ground) -> Lent:
    lent = Lent(ground)
    ground.configure(sandbox="warm_minutes = 60")
    ground.start()
    for group in ("main", "other"):
        ground.json("groups", "add", group)
    return lent


@pytest.fixture(params=["own", pytest.param("docker", marks=pytest.mark.engine)])
def lent(request: pytest.FixtureRequest) -> Iterator[Lent]:
    """Each backend's, in which nothing is asked for yet."""
    made: Lent = request.getfixturevalue(request.param)
    for group in ("main", "other"):
        made.ask(group=group)
        made.ground.ask("groups.trust", name=group)
    yield made


LOOK = (
    "for f in /mnt/*/file; do cat $f; done;"
    " for d in /mnt/*; do (echo x >$d/new) 2>/dev/null && echo wrote $d; done; true"
)


def test_what_is_allowed_is_there_and_only_what_may_be_written_is(lent: Lent) -> None:
    ground, one, two = lent.ground, lent.tree(), lent.tree()
    lent.allow((one, "rw"), (two, "ro"))
    assert "No such file" in ground.sh("ls /mnt/one 2>&1")
    lent.ask(("one", one, "rw"), ("two", two, "rw"), ("three", one, "ro"))
    assert ground.sh(f"{LOOK}; stat -c %u /mnt/one/new").startswith("texttexttextwrote /mnt/one")
    assert (one / "new").exists() and not (two / "new").exists()
    assert any(f"The mount two ({two}) is read-only: the mount allowlist has" in each for each in lent.notices())
    assert "wrote /mnt/one\n" in ground.inside("sh", "-c", LOOK)
    assert lent.check(str(one), "--rw") == (0, {**lent.check(str(one), "--rw")[1], "mode": "rw", "rule": "allowed"})
    assert lent.check(str(two), "--rw")[1]["mode"] == "ro"
    assert lent.check(str(lent.root))[0] == 1
    assert lent.check(f"{one}/../{two.name}")[1]["rule"] == "syntax"
    assert [row["taint"] for row in ground.rows("SELECT taint FROM grp WHERE name = 'main'")] == [1.0]


def test_what_is_not_the_owner_s_own_taints(lent: Lent) -> None:
    tree = lent.tree()
    lent.allow((tree, "ro"), trust="document")
    lent.ask(("tree", tree, "ro"))
    assert lent.ground.sh("cat /mnt/tree/file") == "text"
    turn, tree_row = (
        f"SELECT taint FROM {table} WHERE {of}" for table, of in (("turn", "grp = 'main'"), ("grp", "name = 'main'"))
    )
    assert lent.ground.rows(f"{turn} ORDER BY id DESC LIMIT 1")[0]["taint"] == 0.2
    until(lambda: lent.ground.rows(tree_row)[0]["taint"] == 0.2)


def test_a_refused_mount_is_told_once_and_the_turn_goes_on(lent: Lent) -> None:
    ground, good, bad = lent.ground, lent.tree(), lent.tree()
    lent.allow((good, "ro"))
    lent.ask(("good", good, "ro"), ("bad", bad, "ro"))
    before = len(lent.notices())
    for _ in range(2):
        assert ground.sh("cat /mnt/good/file; ls /mnt") == "textgood"
    [told] = lent.notices()[before:]
    assert f"The mount bad ({bad}) is not shown: no root of the mount allowlist covers it" in told
    lent.allow((good, "ro"), (bad, "ro"))
    assert ground.sh("ls /mnt") == "bad\ngood"
    shutil.rmtree(good)
    assert ground.sh("ls /mnt") == "bad"
    assert "it does not exist" in lent.notices()[-1]
    ground.write("groups/main/group.toml", "[[mounts")
    assert ground.sh("ls /mnt 2>/dev/null; echo done") == "done"
    assert "grants and mounts" in lent.notices()[-1]


def test_an_allowlist_that_others_can_write_to_gives_nothing_and_is_told(lent: Lent) -> None:
    ground, tree = lent.ground, lent.tree()
    lent.allow((tree, "ro"))
    lent.ask(("tree", tree, "ro"))
    assert ground.sh("cat /mnt/tree/file") == "text"
    lent.file.chmod(0o666)
    assert ground.sh("ls /mnt 2>/dev/null; echo done") == "done"
    assert any("others can write" in each and "no group has a mount" in each for each in until(lent.notices))
    assert "others can write" in ground.logged()
    doctor = ground.done("doctor", "--json", code=None).stdout
    assert "others can write" in doctor
    assert lent.check(str(tree))[1]["rule"] == "allowlist"
    lent.file.chmod(0o600)
    assert ground.sh("cat /mnt/tree/file") == "text"


def test_what_was_exchanged_is_gone_at_the_next_turn(lent: Lent) -> None:
    ground, tree = lent.ground, lent.tree()
    lent.allow((tree, "ro"))
    lent.ask(("tree", tree, "ro"))
    assert ground.sh("cat /mnt/tree/file") == "text"
    secret = lent.root / "me"
    (secret / "file").write_text("secret")
    tree.rename(lent.root / f"{tree.name}.old")
    tree.symlink_to(secret)
    assert ground.sh("cat /mnt/tree/file 2>/dev/null; echo done") == "done"
    assert "secret" not in ground.inside("sh", "-c", "cat /mnt/*/file; true")
    tree.unlink()
    tree.mkdir()
    (tree / "file").write_text("another")
    assert ground.sh("cat /mnt/tree/file") == "another"


def test_only_the_owner_s_turns_write(lent: Lent) -> None:
    ground, tree = lent.ground, lent.tree()
    lent.allow((tree, "rw"))
    lent.ask(("tree", tree, "rw"))
    assert "wrote" in ground.sh(LOOK)
    before = len(lent.notices())
    ground.answer("hello", "--as", "member:Eve")
    assert "only the owner" in lent.notices()[before], "it had a sandbox of its own"
    assert ground.inside("sh", "-c", LOOK) == "text", "the work tree has fallen with the member's turn"
    ground.ask("groups.trust", name="main")
    assert "wrote" in ground.sh(LOOK)


def test_what_one_group_writes_another_sees_only_if_both_say_so(lent: Lent) -> None:
    ground, tree = lent.ground, lent.tree()
    lent.allow((tree, "rw"))
    lent.ask(("tree", tree, "rw"))
    assert "wrote" in ground.sh(LOOK)
    lent.ask(("tree", tree, "ro"), group="other")
    assert ground.sh("ls /mnt 2>/dev/null; echo done", "other") == "done"
    assert "shared = true" in lent.notices()[-1]
    assert lent.check(str(tree), "--group", "other")[1]["rule"] == "shared"
    for group, mode in (("main", "rw"), ("other", "ro")):
        lent.ask(("tree", tree, mode), group=group, shared=True)
    assert ground.sh("cat /mnt/tree/file", "other") == "text"
    assert ground.rows("SELECT taint FROM turn WHERE grp = 'other' ORDER BY id DESC LIMIT 1")[0]["taint"] == 0.2
