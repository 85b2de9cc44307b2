from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clawd.arrivals.items import Item
from clawd.bridges.foreign.place import Place
from clawd.bridges.foreign.skills import Skills
from clawd.skills import skill
from tests.bridges.homes import SECRET, files, told

LINES = st.sampled_from(
    [
        *(
            "---",
            "name: X y",
            "name: ok",
            "description: a: b",
            "description: >",
            "  more",
            "metadata: {a: [1}",
            "&a: *a",
        ),
        *("name: ok", "triggers: [a, b]", "# Title", "", "words", "!!python/object: x", "\u202eevil: 1", "a\x07: b"),
        *(
            "description: |",
            "name: '",
            "\t- x",
            "metadata:",
            "  openclaw: {requires: {env: [GH]}}",
            "---  ",
            "\ufeff---",
        ),
    ]
)


def brought(root: Path, tree: dict[str, str | bytes], into: str = "skills") -> tuple[Place, list[Item]]:
    place = Place(files(root, {f"{into}/{path}": content for path, content in tree.items()}), "openclaw")
    skills = Skills(place)
    skills.folder("main", into)
    place.brought.items = skills.items()
    return place, skills.items()


def loaded(root: Path, item: Item) -> skill.Skill:
    folder = root / item.to.rpartition("/")[2]
    files(folder, item.files)
    return skill.load(folder, shared=False)


@pytest.mark.parametrize(
    ("folder", "text", "name", "description", "changed"),
    [
        ("ok", "---\nname: ok\ndescription: Does it.\n---\nGo.\n", "ok", "Does it.", 0),
        ("ok", "---\r\nname: ok\r\ndescription: Does it.\r\n---\r\nGo.\r\n", "ok", "Does it.", 0),
        (
            "ok",
            "---\nname: ok\ndescription: Use it: always.\nhomepage: https://x\n---\nGo.\n",
            "ok",
            "Use it: always.",
            0,
        ),
        ("Ok_One", "---\nname: Ok One\ndescription: d\n---\nGo.\n", "ok-one", "d", 1),
        ("dir", "---\nname: other\ndescription: d\n---\nGo.\n", "other", "d", 0),
        ("ok", "---\nname: ok\n---\n\n# Head\n\nFirst words\nof it.\n", "ok", "First words", 1),
        ("ok", "# Only a heading\n", "ok", "Only a heading", 3),
        ("ok", "---\nname: ok\ndescription: [a, b]\n---\nGo.\n", "ok", "Go.", 1),
        ("ok", "---\nname: ok\nname: ok\ndescription: d\n---\nGo.\n", "ok", "d", 1),
        ("ok", "---\nname: &x ok\ndescription: 'd'\n---\nGo.\n", "ok", "d", 2),
        ("ok", "---\nname: ok\ndescription: d\n", "ok", "name: ok", 3),
        ("con", "---\nname: con\ndescription: d\n---\nGo.\n", "con-skill", "d", 1),
        ("ok", "---\nname: ok\ndescription: d\nbig: " + "x" * 40_000 + "\n---\nGo.\n", "ok", "d", 1),
    ],
)
def test_a_skill_is_made_acceptable(
    tmp_path: Path, folder: str, text: str, name: str, description: str, changed: int
) -> None:
    _, (item,) = brought(tmp_path / "home", {f"{folder}/SKILL.md": text})

    found = loaded(tmp_path, item)
    assert (found.errors, found.name, found.description) == ((), name, description)
    assert len(item.changed) == changed, item.changed
    if not changed:
        assert item.files["SKILL.md"] == text.encode()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(LINES | st.text(max_size=12), max_size=14),
    st.text(st.characters(exclude_characters="/\0.", codec="utf-8"), min_size=1, max_size=12),
)
@example(["---", "name: ok", "description: " + '"' * 20_000, "---"], "x")
def test_whatever_stands_in_it_it_loads(lines: list[str], folder: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        text = "\n".join(lines)
        place, items = brought(Path(name) / "home", {f"{folder}/SKILL.md": text.encode("utf-8", "replace")})
        if not items:
            assert "\0" in text and [left.why for left in place.brought.left] == ["it is no text"]
            return
        found = loaded(Path(name), items[0])
        assert (found.errors, found.name) == ((), items[0].to.removeprefix("skills/"))


def test_files_for_keys_and_what_cannot_be_shown_are_left(tmp_path: Path) -> None:
    tree: dict[str, str | bytes] = {
        "SKILL.md": "---\nname: ok\ndescription: d\n---\nGo.\n",
        "scripts/a.py": "print()",
        ".env.local": f"A_KEY={SECRET}",
        "id_rsa": SECRET,
        "secrets.yaml": SECRET,
        "certs/x.pem": SECRET,
        "settings.yml": f"api_key: {SECRET}\nname: x\n",
        "conf.json5": f"{{nested: {{clientSecret: '{SECRET}'}}}}",
        "data.json": '{"name": "x"}',
        "broken.json": "{",
        "a\nb.txt": "x",
        "y" * 240: "x",
        "DATA.json": "{}",
        "node_modules/x.js": "x",
    }
    (tmp_path / "skills/ok").mkdir(parents=True)
    (tmp_path / "skills/ok/link").symlink_to("/etc/passwd")
    place, (item,) = brought(tmp_path, {f"ok/{path}": content for path, content in tree.items()})

    assert sorted(item.files) == ["DATA.json", "SKILL.md", "broken.json", "scripts/a.py"]
    assert {*place.brought.keys} == {
        "A_KEY (skills/ok/.env.local)",
        "a credential (skills/ok/id_rsa)",
        "a credential (skills/ok/secrets.yaml)",
        "a credential (skills/ok/certs/x.pem)",
        "nested.clientSecret (skills/ok/conf.json5)",
        "api_key (skills/ok/settings.yml)",
    }
    left = {each.source.removeprefix("skills/ok/"): each.why for each in place.brought.left}
    assert {name: left[name] for name in ("link", "id_rsa", "a\\nb.txt", "data.json", "settings.yml")} == {
        "link": "it is a link",
        "id_rsa": "it holds keys: enter them anew",
        "a\\nb.txt": "nobody could read its name",
        "data.json": "another file's name differs from it in case or composition alone",
        "settings.yml": "it holds keys: enter them anew",
    }
    assert SECRET not in told(place.brought)


def test_two_of_one_name_get_two_names_and_the_same_twice_is_one(tmp_path: Path) -> None:
    text = "---\nname: ok\ndescription: {}\n---\nGo.\n"
    tree: dict[str, str | bytes] = {f"{name}/SKILL.md": text.format(name[0]) for name in ("a", "a2", "b")}
    place, items = brought(tmp_path / "home", tree)

    assert [(item.to, item.source) for item in items] == [("skills/ok", "skills/a"), ("skills/ok-2", "skills/b")]
    assert [(left.source, left.why) for left in place.brought.left] == [("skills/a2", "it is the same as skills/a")]
    assert loaded(tmp_path, items[1]).errors == ()
    assert items[1].changed == ("there is another ok: it is called ok-2",)


def test_one_that_is_too_large_is_left(tmp_path: Path) -> None:
    big = {f"ok/{n}.bin": b"\0" * (7 << 20) for n in range(8)}
    place, items = brought(tmp_path, {"ok/SKILL.md": "---\nname: ok\ndescription: d\n---\nx", **big})

    assert items == []
    assert "it is larger than the 50 MB that a skill may have" in [left.why for left in place.brought.left]
