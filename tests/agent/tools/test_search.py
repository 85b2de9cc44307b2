"""glob and grep over a tree that has everything a tree can have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent.tools.search import named

from .conftest import TOKEN, Bench


@pytest.fixture
def tree(bench: Bench) -> Path:
    bench.file("a.py", "import os\nprint(1)\n# é TODO\n\nend\n")
    bench.file("src/b.py", "x = 1\ny = 2  # todo\nz = 3\n")
    bench.file("src/deep/c.txt", "TODO\r\nsecond\n")
    bench.file("src/latin", b"caf\xe9 TODO\n")
    bench.file("src/image.png", b"\x89PNG\0TODO")
    bench.file(".git/d.py", "TODO\n")
    bench.file(".hidden/e.py", "")
    bench.file("new\nline.py", "")
    (bench.work / "src/loop").symlink_to("..")
    (bench.work / "src/out").symlink_to("/etc")
    (bench.work / "src/link.py").symlink_to("b.py")
    os.mkfifo(bench.work / "src/fifo.py")
    (bench.work / "src/zero").symlink_to("/dev/zero")
    return bench.work


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"pattern": "**/*.py"}, "a.py new\\nline.py .hidden/e.py src/b.py src/fifo.py src/link.py"),
        ({"pattern": "*.py"}, "a.py new\\nline.py .hidden/e.py src/b.py src/fifo.py src/link.py"),
        ({"pattern": "src/*.py"}, "src/b.py src/fifo.py src/link.py"),
        ({"pattern": "*", "path": "src/deep"}, "src/deep/c.txt"),
        ({"pattern": "**/d.py", "path": ".git"}, ".git/d.py"),
        ({"pattern": "src/**"}, "src/b.py src/fifo.py src/image.png src/latin src/link.py src/loop src/out src/zero "
                                "src/deep/c.txt"),
        ({"pattern": "[ab].{py,txt}"}, "a.py src/b.py"),
        ({"pattern": "*.rs"}, "[no file has such a name]"),
        ({"pattern": "x", "path": "nowhere"}, "[nowhere cannot be searched: No such file or directory]"),
        ({"pattern": "[z-a]"}, "['[z-a]' is no pattern of file names]"),
    ],
)  # fmt: skip
def test_glob(bench: Bench, tree: Path, arguments: dict[str, Any], found: str) -> None:
    said = bench("glob", **arguments)
    assert said.splitlines() == (found.split() if not found.startswith("[") else [found])


def test_a_whole_path_may_be_a_pattern(bench: Bench, tree: Path) -> None:
    assert bench("glob", pattern=f"{tree}/src/deep/*") == f"{tree}/src/deep/c.txt"
    assert bench("glob", pattern=f"{tree}/src/*.txt") == "[no file has such a name]"


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a/b.py", True),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/c.py", "a/c.py", True),
        ("a/**/c.py", "a/b/b/c.py", True),
        ("a?c", "abc", True),
        ("a?/c", "a//c", False),
        ("[!a]b", "cb", True),
        ("[!a]b", "ab", False),
        ("[]]", "]", True),
        ("[\\w]", "\\", True),
        ("[", "[", True),
        ("{a,b{c,d}}", "bd", True),
        ("{a", "{a", True),
        ("a,b}", "a,b}", True),
        ("a.b", "axb", False),
        ("a\n*", "a\nb", True),
    ],
)
def test_names(pattern: str, path: str, matches: bool) -> None:
    assert bool(named(pattern).fullmatch(path)) == matches


def test_grep(bench: Bench, tree: Path) -> None:
    assert bench("grep", pattern=r"TODO").splitlines() == [
        "a.py:3:# é TODO",
        "src/latin:1:caf\\xe9 TODO",
        "src/deep/c.txt:1:TODO",
    ]
    assert bench("grep", pattern=r"\btodo$", ignore_case=True, glob="*.py").splitlines() == [
        "a.py:3:# é TODO",
        "src/b.py:2:y = 2  # todo",
    ]
    assert bench("grep", pattern="^(?:print|end)", context=1, path="a.py").splitlines() == [
        "a.py-1-import os",
        "a.py:2:print(1)",
        "a.py-3-# é TODO",
        "a.py-4-",
        "a.py:5:end",
    ]
    assert bench("grep", pattern="import|end", context=1).splitlines()[:4] == [
        "a.py:1:import os",
        "a.py-2-print(1)",
        "--",
        "a.py-4-",
    ]
    assert bench("grep", pattern="1", path="src/link.py") == "src/link.py:1:x = 1"  # what is named may be a link
    assert bench("grep", pattern="nowhere", path="src") == "[nothing found in 3 files, 1 binary left out]"
    assert bench("grep", pattern="x", path="src/fifo.py") == "[nothing found in 0 files]"
    said = bench("grep", pattern="f(", path="src")
    assert said.startswith("['f(' is no regular expression of Python: missing ), unterminated")
    assert said.endswith("As it stands it is found by 'f\\\\('.]")


def test_much_and_long_is_said_as_far_as_it_goes(bench: Bench) -> None:
    bench.file("huge", b"a" * (10_000_000) + b"NEEDLE" + b"b" * 1000)
    said = bench("grep", pattern="NEEDLE")
    assert said.startswith("huge:1:…a") and "NEEDLEb" in said and len(said) < 450
    bench.file("many", "match\n" * 100_000 + TOKEN)
    said = bench("grep", pattern="match")
    assert said.startswith("many:1:match\nmany:2:") and len(said) <= 4000
    assert said.endswith("\n[… there is more: narrow the pattern or the path …]")
    assert bench("grep", pattern="claw") == "many:100001:[token]"
    for n in range(700):
        bench.file(f"d/{n:04}", "")
    assert bench("glob", pattern="*").endswith("\n[… there is more: narrow the pattern or the path …]")


def test_an_endless_expression_ends_and_what_was_found_is_kept(bench: Bench) -> None:
    bench.file("a", "xy\n")
    bench.file("b", "x" * 4000)
    bench.limits["tool_s"] = 2
    assert bench("grep", pattern="(x+x+)+y|xy") == "a:1:xy\n[The command was ended after 2 s.]"


def test_a_tree_as_deep_as_a_path_may_be(bench: Bench) -> None:
    make = "for n in range(1100): os.mkdir('ddd'); os.chdir('ddd')\nopen('a.py', 'w')"
    subprocess.run([sys.executable, "-c", f"import os\n{make}"], cwd=bench.work, check=True, timeout=60)
    try:
        said = bench("glob", pattern="*.py")
    finally:
        subprocess.run(["rm", "-rf", bench.work / "ddd"], check=True, timeout=60)
    assert said == "[no file has such a name][1 files or directories could not be read]"
