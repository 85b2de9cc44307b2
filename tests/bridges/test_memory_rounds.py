"""MEMORY.md, daily logs and INDEX.md go to PythonClaw and come back, by its own code."""

from __future__ import annotations

import re
import tempfile
import time
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.errors import UsageError
from clawd.memory import daily, keyed
from clawd.memory.keyed import FACTS, INDEX, KeyedMemory, key_of, with_fact, without
from clawd.memory.reading import OWNER
from clawd.memory.record import settled
from clawd.memory.store import GroupMemory
from tests.bridges.real_pythonclaw import ESC, RAW, claw
from tests.memory.conftest import FAST, memory_at

steady = settings(deadline=None, max_examples=120)
NOW = datetime(2026, 11, 29, 12, 52, 5, tzinfo=UTC)
STRUCTURE = [
    "## a", "## ", "##", " ## a", "\\## b", "\\\\## b", "> Updated: x", "> Updated:", "\\> Updated: y", "# c",
    "### 10:00:00 — k", "---", "```", "<!-- msg:{} -->", "", " ", "\t", "\r", "\r\n", "\x00", "\x0c", "\x85",
    "\u2028## x", "\u202e", "\ufeff", "日本", "🦀", "- **k**: v", "plain",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(STRUCTURE) | st.text(max_size=6), max_size=5).map("\n".join)
HALVES = st.sampled_from(["\ud800", "a\udfff\n## x"])


@pytest.fixture
def memory(tmp_path: Path) -> GroupMemory:
    return memory_at(tmp_path)


def possible(key: str) -> bool:
    try:
        return key_of(key) == key
    except UsageError:
        return False


KEYS = st.sampled_from(["bot_name", "mmkr_agent-1_goal", "# h", "## g", "k: v", "a", "日本", "> Updated: k"]) | (
    st.text(max_size=5).filter(possible)
)  # fmt: skip


def loaded(data: bytes, version: str = ESC) -> dict[str, tuple[str, str]]:
    """Its facts of a file: key → (value, updated)."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        Path(folder, FACTS).write_bytes(data)
        return {key: (each["value"], each["updated"]) for key, each in claw(version).memory(Path(folder)).data.items()}


def ours(data: bytes) -> dict[str, tuple[str, str]]:
    """Ours, in its words."""
    return {
        key: (fact.value, fact.updated.astimezone().strftime("%Y-%m-%d %H:%M:%S") if fact.updated else "")
        for key, fact in keyed.parsed(data)[1].items()
    }


def saved(facts: dict[str, str], version: str = ESC) -> bytes:
    """MEMORY.md as its store writes it for these, set in this order."""
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        store = claw(version).memory(Path(folder))
        store.data = {key: {"value": value, "updated": "2026-03-07 10:00:00"} for key, value in facts.items()}
        store._save_memory_md()
        return Path(folder, FACTS).read_bytes()


# -- facts --


@steady
@given(st.lists(st.tuples(KEYS, st.none() | TEXTS | HALVES), max_size=6))
def test_it_knows_every_fact_that_we_wrote(changes: list[tuple[str, str | None]]) -> None:
    data, said = b"", dict[str, str]()
    for key, value in changes:
        data = without(data, key) if value is None else with_fact(data, key, value, NOW)
        said.pop(key, None) if value is None else said.__setitem__(key, settled(value))
    theirs = loaded(data)
    assert theirs == ours(data) and list(theirs) == list(said)
    for key, value in said.items():
        assert theirs[key][1] == NOW.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        # All that its format cannot keep is the backslash of a line that looks escaped.
        assert theirs[key][0] == re.sub(r"^\\(?=## |> Updated:)", "", value, flags=re.MULTILINE)


@steady
@given(st.dictionaries(KEYS, TEXTS.map(settled), max_size=5))
def test_we_write_what_it_writes(facts: dict[str, str]) -> None:
    data = b""
    for key, value in facts.items():
        data = with_fact(data, key, value, datetime(2026, 3, 7, 10).astimezone())
    assert (data or b"# Long-Term Memory\n") == saved(facts)


@pytest.mark.parametrize("version", [ESC, RAW])
@steady
@given(st.dictionaries(st.sampled_from(STRUCTURE) | st.text(max_size=6), TEXTS, max_size=5))
def test_we_know_every_fact_that_it_knows_of_what_it_wrote(version: str, facts: dict[str, str]) -> None:
    try:
        data = saved(facts, version)
    except UnicodeEncodeError:
        return
    assert_alike(data)


@steady
@given(
    st.lists(st.sampled_from(STRUCTURE) | st.text(st.characters(codec="utf-8"), max_size=6), max_size=9).map("\n".join)
)
def test_whatever_stands_in_the_file_we_know_what_it_knows(lines: list[str]) -> None:
    assert_alike("\n".join([keyed.PREAMBLE, *lines]).encode())


def assert_alike(data: bytes) -> None:
    """Both find the same, but for the key that is none."""
    theirs = {key: value for key, (value, _) in loaded(data).items() if key}
    assert theirs == {key: fact.value for key, fact in keyed.parsed(data)[1].items()}


def test_it_goes_on_with_our_file_and_we_with_its(tmp_path: Path) -> None:
    memory = KeyedMemory(tmp_path)
    memory.set("home_town", "Graz\n## not a key\n> Updated: never", NOW)
    theirs = claw().memory(tmp_path)
    theirs.set("car", "red\n\n## one more\n---")
    theirs.set("mmkr_agent-1_goal", "tests")
    memory.set("car", "blue", NOW)
    memory.delete("mmkr_agent-1_goal")
    assert claw().memory(tmp_path).list_all() == {"home_town": "Graz\n## not a key\n> Updated: never", "car": "blue"}
    assert claw().manager(tmp_path).recall("*") == "- home_town: Graz\n## not a key\n> Updated: never\n- car: blue"


def test_what_is_no_text_breaks_its_loader_and_not_ours(tmp_path: Path) -> None:
    data = b"# Long-Term Memory\n\n## a\n> Updated: x\n\nnot \xff text\n"
    (tmp_path / FACTS).write_bytes(data)
    with pytest.raises(UnicodeDecodeError):
        claw().memory(tmp_path)
    assert keyed.parsed(data)[1]["a"].value == "not \ufffd text"
    KeyedMemory(tmp_path).set("b", "c", NOW)
    assert (tmp_path / FACTS).read_bytes().startswith(data)  # whose bytes are a person's


def test_keys_that_make_two_of_one_there_are_none_here(tmp_path: Path) -> None:
    theirs = claw().memory(tmp_path)
    theirs.set(" padded ", "v")
    theirs.set("two\nlines", "w")
    assert set(claw().memory(tmp_path).list_all()) == {"padded", "two"} != set(theirs.list_all())  # phantoms
    (tmp_path / FACTS).unlink()
    memory = KeyedMemory(tmp_path)
    memory.set(" padded ", "v", NOW)
    with pytest.raises(UsageError):
        memory.set("two\nlines", "w", NOW)
    memory.set("padded", "again", NOW)
    assert claw().memory(tmp_path).list_all() == {"padded": "again"}


def test_a_key_of_an_other_process_is_not_lost_between_two_of_ours(tmp_path: Path) -> None:
    theirs = [claw().memory(tmp_path) for _ in range(2)]
    mine = [KeyedMemory(tmp_path / "ours") for _ in range(2)]
    for n in range(2):
        theirs[n].set(f"from{n}", "x")
        mine[n].set(f"from{n}", "x", NOW)
    assert list(claw().memory(tmp_path).list_all()) == ["from1"]  # it reads its file once, and writes it whole
    assert list(claw().memory(tmp_path / "ours").list_all()) == ["from0", "from1"]


# -- daily logs --


@steady
@given(st.lists(st.tuples(KEYS, TEXTS.map(settled)), min_size=1, max_size=4))
def test_a_log_is_what_it_would_have_written(entries: list[tuple[str, str]]) -> None:
    """But for what would be an entry of its own, which it does not escape."""
    with tempfile.TemporaryDirectory(dir=FAST) as ours, tempfile.TemporaryDirectory(dir=FAST) as its:
        theirs = claw().memory(Path(its))
        for key, value in entries:
            value = value.replace("### ", "#### ")
            name = daily.append(Path(ours), key, value, datetime.now().astimezone())
            theirs._append_daily_log(key, value)
        mine, other = Path(ours, name).read_text(), Path(its, name).read_text()
        assert theirs.list_memory_files() == [name]
        assert claw().memory(Path(ours)).read_recent_daily_logs(days=1) == mine.strip()
        assert mine.strip() in claw().manager(Path(ours)).boot_context(max_chars=1_000_000)
    times = re.compile(r"^### [0-9:]{8} — ", re.MULTILINE)
    assert times.sub("### — ", mine) == times.sub("### — ", other)
    pieces = daily.parsed(other.encode(), date.fromisoformat(name[:10]))
    assert [(piece.key, piece.text) for piece in pieces if piece.at] == [
        (key, value.replace("### ", "#### ")) for key, value in entries
    ]


def test_a_log_is_of_the_day_where_the_person_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """mmkr takes the day in London, and PythonClaw looks for the local one."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        name = daily.append(tmp_path, "k", "v", datetime(2026, 11, 29, 23, 30, tzinfo=UTC))
        today = daily.append(tmp_path, "k", "today", datetime.now(UTC))
        assert "today" in claw().memory(tmp_path).read_recent_daily_logs(days=1)
        assert today == f"{datetime.now():%Y-%m-%d}.md"
    time.tzset()
    assert name == "2026-11-30.md"


# -- INDEX.md --


@steady
@given(TEXTS)
def test_its_index_is_free_text_to_us(text: str) -> None:
    with tempfile.TemporaryDirectory(dir=FAST) as folder:
        theirs = claw().memory(Path(folder))
        try:
            theirs.write_index(text)
        except UnicodeEncodeError:
            return
        raw = Path(folder, INDEX).read_bytes()
        assert raw.decode() == text.strip() + "\n"
        assert claw().memory(Path(folder)).read_index() == settled(raw.decode())


# -- what recalling misses there --


@pytest.mark.parametrize(
    ("facts", "query", "expected"),
    [
        ({"home_town": "Graz"}, "Graz", "home_town"),  # its ranking knows no word of so few memories
        ({"home_town": "Graz", "car": "red"}, "red car", "car"),
        ({"tea": "我喜欢喝乌龙茶", "car": "红色的车"}, "乌龙茶", "tea"),
        ({"city: birth": "Linz", "car": "red"}, "birth", "city: birth"),
    ],
)
def test_few_facts_other_scripts_and_odd_keys_are_found(
    memory: GroupMemory, facts: dict[str, str], query: str, expected: str
) -> None:
    for key, value in facts.items():
        KeyedMemory(memory.root).set(key, value, NOW)
    memory.look()
    hits, _ = memory.find(query, OWNER)
    assert hits[0].record.key == expected and facts[expected] in hits[0].text
    theirs = claw().manager(memory.root)
    assert set(theirs.storage.list_all()) == set(facts)


def test_what_only_a_log_says_is_found(memory: GroupMemory) -> None:
    daily.append(memory.root, "walk", "along the Mur", NOW)
    memory.look()
    assert any("Mur" in hit.text for hit in memory.find("Mur", OWNER)[0])
    assert claw().manager(memory.root).recall("Mur") == "No memories found."
