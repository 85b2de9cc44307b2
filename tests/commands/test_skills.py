"""`clawd skills …` and `/skills`, over a home's own files."""

from __future__ import annotations

import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from skills_ref.validator import validate

from clawd.bridges.mmkr import capability_to_skill_metadata
from clawd.commands import skills
from clawd.config.begin import ensure_group
from clawd.config.home import Home
from clawd.errors import ClawdError, NotFound, UsageError
from clawd.ledger import approvals
from clawd.ledger.db import Ledger
from clawd.ledger.deliveries import Address
from clawd.skills.catalogue import Catalogue
from tests.skills.folders import skill

NOW = datetime(2026, 12, 1, 9, tzinfo=UTC)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    for name in ("main", "family"):
        ensure_group(made, name)
    return made


def told(home: Home, group: str | None = None) -> list[tuple[str, str | None, bool, bool, bool]]:
    rows = skills.listed(home, group)
    return [(each["name"], each["group"], each["shadows"], each["proposed"], bool(each["errors"])) for each in rows]


def proposed(home: Home, group: str, name: str) -> int:
    """A proposal as an agent's tool makes it: the folder, and the question to the owner. Gives its number."""
    skill(home.group(group).skills / ".proposed", name)
    effect, at = {"name": name, "group": group, "sha256": "0" * 64}, Address("terminal", "", "main", "")
    ledger = Ledger.open(home.ledger_file)
    try:
        row = ledger.tx(
            lambda tx: approvals.add(
                tx, "skill", effect, "hash", subject=f"{group}/{name}", person="", at=at, group=group, turn=None,
                now=NOW, expires=NOW + timedelta(days=1),
            )
        )  # fmt: skip
        return int(row["number"])
    finally:
        ledger.close()


def test_the_list_hides_nothing(home: Home) -> None:
    assert told(home) == []
    skill(home.skills, "digest", "name: digest\ndescription: 'Use when: x'\nversion: 2\n")
    skill(home.group("family").skills, "digest")
    skill(home.group("main").skills, "Broken")
    proposed(home, "main", "new-one")
    everything = [
        ("digest", None, False, False, False),
        ("digest", "family", True, False, False),
        ("Broken", "main", False, False, True),
        ("new-one", "main", False, True, False),
    ]
    assert told(home) == everything and told(home, "family") == everything[:2]
    assert skills.listed(home)[0]["warnings"] == ["the format does not know version: nothing comes of it"]
    with pytest.raises(NotFound):
        skills.listed(home, "nobody")


def test_fitness_is_shown_and_outranks_nothing(home: Home) -> None:
    def fit(name: str, score: float) -> str:
        return f"name: {name}\ndescription: Sums up.\nmetadata:\n  fitness: {score}\n"

    bridged = capability_to_skill_metadata("cap_github_maintenance", 3.784).write(home.skills)
    skill(home.skills, "digest", fit("digest", 9))
    skill(home.group("main").skills, "digest", fit("digest", 1))
    skill(home.group("main").skills, "plain")
    proposed(home, "main", "new-one")
    rows = [(each["name"], each["scope"], each["proposed"], each["fitness"]) for each in skills.listed(home)]
    assert rows == [
        ("digest", "shared", False, 9.0),
        (bridged.name, "shared", False, 3.784),
        ("digest", "group", False, 1.0),
        ("plain", "group", False, None),
        ("new-one", "group", True, None),
    ]
    assert skills.shown(home, bridged.name, None)["fitness"] == 3.784
    # The group's own is used, however fit the shared one is; what is proposed is not, however fit it says it is.
    skill(home.group("main").skills / ".proposed", "fit", fit("fit", 1000))
    used = {each.name: (each.fitness, each.shared) for each in Catalogue(home).of("main")}
    assert used == {"digest": (1.0, False), bridged.name: (3.784, True), "plain": (None, False)}
    assert skills.listed(home)[-2]["name"] == "fit" and skills.listed(home)[-2]["fitness"] == 1000.0


def test_what_is_shown_is_the_one_that_counts(home: Home) -> None:
    skill(home.skills, "digest", scripts__run="#!")
    skill(home.group("family").skills, "digest", body="Ours.\n")
    for name in ("main", "family"):
        skill(home.group(name).skills, "own")
    shown = skills.shown(home, "digest", None)
    assert shown["scope"] == "shared" and [each["path"] for each in shown["files"]] == ["SKILL.md", "scripts/run"]
    assert (
        skills.shown(home, "digest", "family")["body"] == "Ours."
        and skills.shown(home, "digest", "main")["scope"] == "shared"
    )
    with pytest.raises(UsageError, match="family, main: say which"):
        skills.shown(home, "own", None)
    with pytest.raises(NotFound):
        skills.shown(home, "none", None)


def test_a_new_skill_is_one(home: Home) -> None:
    made = skills.made(home, "my-skill", None)
    assert skills.checked(Path(made["path"])) == {"ok": True, "name": "my-skill", "errors": [], "warnings": []}
    assert validate(Path(made["path"])) == [] and told(home)[0][0] == "my-skill"
    with pytest.raises(UsageError, match="already"):
        skills.made(home, "my-skill", None)
    with pytest.raises(UsageError, match="lower case"):
        skills.made(home, "MySkill", None)
    assert skills.made(home, "my-skill", "family")["scope"] == "group"


def test_what_is_added_says_what_it_brings(home: Home, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "digest.skill", "w") as archive:
        archive.writestr("digest/SKILL.md", "---\nname: digest\ndescription: x\n---\nDo it.\n")
        archive.writestr("digest/scripts/run.py", "#!")
    found = skills.added(home, tmp_path / "digest.skill", None, force=False)
    assert (
        found["files"] == 2
        and found["scripts"] == ["scripts/run.py"]
        and (found["kept"], found["shadows"]) == (None, False)
    )
    assert skills.added(home, tmp_path / "digest.skill", "main", force=False)["shadows"] is True
    assert skills.added(home, tmp_path / "digest.skill", None, force=True)["kept"] is not None
    assert told(home) == [("digest", None, False, False, False), ("digest", "main", True, False, False)]


def test_what_an_agent_can_write_is_not_added(home: Home, tmp_path: Path) -> None:
    work = home.group("main").work
    skill(work, "mine")
    work_before = work.with_name("work.20261201-090000.abcd")
    skill(work_before, "mine")
    (tmp_path / "here").symlink_to(work / "mine")
    for source in (work / "mine", work_before / "mine", tmp_path / "here"):
        with pytest.raises(ClawdError, match="where the agent of main can write"):
            skills.added(home, source, None, force=False)
    assert told(home) == []


def test_what_is_removed_is_kept(home: Home) -> None:
    skill(home.skills, "digest")
    skill(home.group("family").skills, "digest", body="Ours.\n")
    with pytest.raises(UsageError, match="a skill of all groups"):
        skills.removed(home, "digest", "main")
    kept = skills.removed(home, "digest", "family")["kept"]
    assert "Ours." in Path(kept, "SKILL.md").read_text() and told(home) == [("digest", None, False, False, False)]
    skills.removed(home, "digest", None)
    assert told(home) == []


def test_proposals_are_called_by_their_names(home: Home) -> None:
    assert skills.pending(home) == []
    number = proposed(home, "main", "new-one")
    [row] = skills.pending(home)
    assert (row["id"], row["name"], row["group"]) == (number, "new-one", "main") and Path(row["path"]).is_dir()
    assert skills.proposal(home, "new-one", None) == number == skills.proposal(home, "new-one", "main")
    with pytest.raises(NotFound):
        skills.proposal(home, "new-one", "family")
    proposed(home, "family", "new-one")
    with pytest.raises(UsageError, match=r"is proposed in .*: say which, with --group"):
        skills.proposal(home, "new-one", None)
    with pytest.raises(UsageError, match="clawd skills reject"):
        skills.removed(home, "new-one", "main")
    left = skill(home.group("main").skills / ".proposed", "left")
    assert Path(skills.removed(home, "left", "main")["kept"]).is_dir() and not left.exists(), "nobody is asked about it"


def test_the_chat_is_told_what_it_can_use(home: Home) -> None:
    assert "no skills" in skills.said(home, "main")
    skill(home.skills, "digest")
    skill(home.group("main").skills, "Broken")
    proposed(home, "main", "new-one")
    assert skills.said(home, "main").splitlines() == [
        "digest: Sums up a day. Use it for digests.",
        "Proposed, and not used until the owner says yes: new-one.",
        "Broken is not used: the folder 'Broken' cannot be a skill's name: it must be lower case",
    ]
    assert skills.said(home, "family") == "digest: Sums up a day. Use it for digests."
