"""A capability of mmkr as a skill: for clawd's loader, for the format's own validator, for PythonClaw's parser of
lines, and as YAML, whatever it is called and whatever is said of it."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from skills_ref.validator import validate

from clawd.bridges.mmkr import capability_to_skill_metadata
from clawd.bridges.mmkr.skills import SkillMetadata
from clawd.errors import UsageError
from clawd.skills.skill import load
from tests.bridges.real_pythonclaw import ESC, RAW, claw

Parsed = tuple[dict[str, str], str]
TOOLS = ["scan_all_my_issues", "post_issue_comment", "check_issue_responses"]
HOSTILE = [
    "",
    "cap_",
    "_",
    "cap_cap_",
    "---",
    "a --- b",
    "name: x\n---\nbody",
    "x: y # z",
    "a ::: b :",
    "[a, b]",
    "{a: b}",
    "&a *b !c",
    "'\"`\\",
    "null",
    "\0\x1b[31m\x7f\x85\u2028\u202e\ufeff\ufffe\ud800",
    "日本語 👩\u200d💻",
    "\U0001f600 emoji",
    "!`touch /tmp/x`",
    "<!-- msg:{} --> </details>",
    "../../etc/passwd",
    "x" * 5_000,
    " ".join(["word"] * 500),
    "- [ ] # heading",
    "1.0",
    "CON",
]
text = st.text(max_size=80) | st.sampled_from(HOSTILE)


def lines_read(content: str) -> Parsed:
    """As PythonClaw 0.7.2 reads it: the first two `---` wherever they stand, `key: value` with the quotes kept,
    indented lines in addition, an empty key left out."""
    _, head, body = content.split("---", 2)
    found, key = dict[str, list[str]](), ""
    for line in head.strip().splitlines():
        if line[:1] in (" ", "\t"):
            found[key].append(line.strip())
        elif ":" in line:
            key, _, value = line.strip().partition(":")
            found[key] = [value.strip()] if value.strip() else []
    return {key: "\n".join(value) for key, value in found.items() if value}, body.strip()


def test_it_is_what_mmkr_makes_of_it() -> None:
    found = capability_to_skill_metadata("cap_github_maintenance", fitness_score=3.784, tools=TOOLS)
    assert (found.name, found.description) == ("mmkr.cap_github_maintenance", "mmkr capability: github maintenance")
    assert found.triggers == ["github maintenance", "mmkr github"] and found.capabilities == TOOLS
    assert (found.version, found.author, found.fitness_score) == ("1.0.0", "mmkr/botbotfromuk", 3.784)
    with pytest.raises(FrozenInstanceError):
        found.name = "other"  # type: ignore[misc]
    assert capability_to_skill_metadata("cap_post_a_gist").triggers == ["post a gist", "post a", "mmkr post"]
    assert capability_to_skill_metadata("search").triggers == ["search", "mmkr search"]
    assert capability_to_skill_metadata("search", description="Finds: it").description == "Finds: it"


def test_yaml_has_the_names_of_the_first_bridge() -> None:
    made = capability_to_skill_metadata("cap_github_maintenance", 3.784, tools=TOOLS).to_skill_yaml()
    assert made.startswith("name: mmkr.cap_github_maintenance\n") and "\nfitness_score: 3.784\n" in made
    assert "\ntriggers: [github maintenance, mmkr github]\n" in made
    assert yaml.safe_load(made) == {
        "name": "mmkr.cap_github_maintenance",
        "version": "1.0.0",
        "description": "mmkr capability: github maintenance",
        "author": "mmkr/botbotfromuk",
        "fitness_score": 3.784,
        "triggers": ["github maintenance", "mmkr github"],
        "capabilities": TOOLS,
    }


@pytest.mark.parametrize(
    ("score", "kept"),
    [
        (0, 0.0),
        (3, 3.0),
        (0.00001, 0.00001),
        (1e-9, 0.0),
        (12345.678901234, 12345.678901),
        (1e9, 1e6),
        (-1, 0.0),
        (math.nan, 0.0),
        (math.inf, 0.0),
        (-math.inf, 0.0),
        (True, 0.0),
        ("9", 0.0),
        (None, 0.0),
    ],
)
def test_a_fitness_is_a_number_wherever_it_is_read(tmp_path: Path, score: float, kept: float) -> None:
    made = capability_to_skill_metadata("cap_x", score)
    assert type(yaml.safe_load(made.to_skill_yaml())["fitness_score"]) is float
    assert yaml.safe_load(made.to_skill_yaml())["fitness_score"] == kept
    found = load(made.write(tmp_path), shared=True)
    assert found.fitness == kept and found.warnings == ()


def test_a_page_is_a_skill_for_everybody(tmp_path: Path) -> None:
    made = capability_to_skill_metadata("cap_github_maintenance", 3.784, "GitHub: scan issues --- and comment", TOOLS)
    folder = made.write(tmp_path)
    found = load(folder, shared=True)
    assert folder.name == found.name == "mmkr-cap-github-maintenance" and validate(folder) == []
    assert (found.errors, found.warnings, found.allowed_tools) == ((), (), None)
    assert found.triggers == ("github maintenance", "mmkr github") and found.fitness == 3.784
    assert found.metadata["source"] == "mmkr" and found.metadata["capability"] == "mmkr.cap_github_maintenance"
    assert all(f"- `{tool}`" in found.body for tool in TOOLS) and "> GitHub: scan issues --- and comment" in found.body
    head, body = lines_read((folder / "SKILL.md").read_text())
    assert head["name"] == found.name and head["description"] == found.description
    assert all(trigger in head["description"][:60] for trigger in made.triggers)
    assert body == found.body


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(name=text, description=st.none() | text, tools=st.lists(text, max_size=3))
@example(name="cap_", description="", tools=[])
@example(name="", description=": ---\n---\n", tools=["`---\n---`"])
def test_no_text_breaks_it(
    tmp_path_factory: pytest.TempPathFactory, name: str, description: str | None, tools: list[str]
) -> None:
    made = capability_to_skill_metadata(name, 1.5, description, tools)
    told = yaml.safe_load(made.to_skill_yaml())
    shown = {key: value for key, value in told.items() if key != "fitness_score"}
    assert shown == {
        "name": clean(made.name),
        "version": "1.0.0",
        "description": clean(made.description),
        "author": made.author,
        "triggers": made.triggers,
        "capabilities": list(map(clean, tools)),
    }
    folder = made.write(tmp_path_factory.mktemp("skills"))
    found = load(folder, shared=True)
    assert (found.errors, found.warnings) == ((), ()) and validate(folder) == []
    assert found.triggers == tuple(trigger.casefold() for trigger in made.triggers) and found.fitness == 1.5
    content = (folder / "SKILL.md").read_text()
    head, body = lines_read(content)
    assert (head["name"], head["description"]) == (found.name, found.description) and body == found.body
    assert any(trigger in head["description"][:60] for trigger in made.triggers) and "!`" not in body


def clean(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= each <= "\udfff" else each for each in text)


@pytest.mark.parametrize("version", [ESC, RAW])
def test_pythonclaw_itself_finds_it(tmp_path: Path, version: str) -> None:
    skills = tmp_path / "skills"
    said = [*HOSTILE[1:], None]
    made = [capability_to_skill_metadata(name, 2.5, said[n], [name]) for n, name in enumerate(HOSTILE)]
    made.append(capability_to_skill_metadata("cap_github_maintenance", 3.784, tools=TOOLS))
    folders = {each.write(skills / "mmkr").name: each for each in made}
    registry = claw(version).skills(skills)
    found = {each.name: each for each in registry.discover()}
    assert set(found) == set(folders) and {each.category for each in found.values()} == {"mmkr"}
    for name, each in folders.items():
        head, body = lines_read((skills / "mmkr" / name / "SKILL.md").read_text())
        assert found[name].description == head["description"] and found[name].dependencies == []
        assert any(trigger in found[name].description[:60] for trigger in each.triggers)
        assert registry.load_skill(name).instructions == body and registry.list_resources(name) == ["skill.yaml"]


@pytest.mark.parametrize("name", HOSTILE)
def test_odd_names_have_a_name_of_their_own(name: str) -> None:
    names = {capability_to_skill_metadata(each).skill_name for each in HOSTILE}
    assert len(names) == len(HOSTILE)
    found = capability_to_skill_metadata(name).skill_name
    assert found.startswith("mmkr-") and len(found) <= 64 and found.isascii() and found == found.lower()


def test_names_that_look_alike_are_two_skills() -> None:
    alike = ["cap_a_b", "cap_a-b", "cap_A_b", "cap_a__b", "cap_a.b", "a_b", "cap a b"]
    assert len({capability_to_skill_metadata(name).skill_name for name in alike}) == len(alike)


def test_what_it_wrote_is_renewed(tmp_path: Path) -> None:
    def made(score: float) -> SkillMetadata:
        return capability_to_skill_metadata("cap_x", score)

    folder = made(1).write(tmp_path / "new" / "skills")
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert made(2).write(folder.parent) == folder and load(folder, shared=True).fitness == 2.0
    assert sorted(before) == ["SKILL.md", "skill.yaml"] == sorted(path.name for path in folder.iterdir())
    (folder / "skill.yaml").unlink()  # it was stopped between the two
    assert made(2).write(folder.parent) == folder
    with pytest.raises(UsageError):
        (folder / "skill.yaml").unlink()
        made(3).write(folder.parent)


@pytest.mark.parametrize("spoil", ["edited", "beside", "other", "link", "file"])
def test_what_is_a_persons_is_left(tmp_path: Path, spoil: str) -> None:
    made = capability_to_skill_metadata("cap_x", 1)
    folder = tmp_path / made.skill_name
    if spoil == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    elif spoil == "file":
        folder.write_text("mine")
    elif spoil == "other":
        folder.mkdir()
        (folder / "SKILL.md").write_text("---\nname: mine\ndescription: x\n---\n")
    else:
        made.write(tmp_path)
        (folder / ("SKILL.md" if spoil == "edited" else "notes.md")).open("a").write("mine\n")
    before = sorted((path.as_posix(), path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(UsageError, match="is another skill, or was changed by hand"):
        capability_to_skill_metadata("cap_x", 2).write(tmp_path)
    assert sorted((path.as_posix(), path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()) == before
