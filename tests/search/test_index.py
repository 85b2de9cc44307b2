"""The index: what is found, what is not, and what becomes of its file."""

from __future__ import annotations

import dataclasses
import os
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clawd.search.document import Document, Found, Where
from clawd.search.embedders import WordLlama
from clawd.search.index import Index, Method

NOW = 1_800_000_000.0
ALL = Where(floor=0.0, statuses=frozenset({"active", "proposed", "superseded"}))
METHODS: tuple[Method, ...] = ("file", "vector", "hybrid")


def doc(id: str, text: str, **fields: Any) -> Document:
    return Document(**{"id": id, "kind": "episode", "text": text, "at": NOW, "trust": 1.0, **fields})


def ids(found: Found) -> list[str]:
    return [hit.document.id for hit in found.hits]


def find(index: Index, query: str, where: Where = Where(), method: Method = "file", k: int = 10) -> list[str]:  # noqa: B008
    return ids(index.search(query, k, where, method=method, now=NOW))


@pytest.fixture(scope="module")
def llama() -> WordLlama:
    return WordLlama()


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path / "index.db")


# ── words ──


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The meetings were postponed", "meeting postponing"),
        ("Müller wohnt in der Größenstraße", "mueller muller"),
        ("Die Größe ist 42", "grosse größe"),
        ("Она любит чай", "чай"),
        ("Он приедет в субботу", "СУББОТУ"),
        ("صديقي مُحَمَّد يحب القهوة", "محمد"),
        ("हिन्दी में लिखा", "हिन्दी"),
        ("昨日、東京タワーに行った", "東京"),
        ("うちの猫は黒い", "猫が好き"),
        ("我喜欢喝乌龙茶", "乌龙茶"),
        ("ฉันชอบกินข้าวผัด", "ข้าวผัด"),
        ("ខ្ញុំចូលចិត្តកាហ្វេ", "កាហ្វេ"),
        ("Python大好き", "python"),
        ("naïve café", "naive cafe"),
        ("e\u0301clair", "éclair"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full"),
        ("it cost 3\x00000 francs", "francs"),
        ("broken \udc80 letter", "broken"),
    ],
)
def test_a_word_is_found(index: Index, text: str, query: str) -> None:
    index.put([doc("it", text), doc("other", "nothing of that, ничего, لا شيء, 無し")])
    assert find(index, query)[:1] == ["it"]


def test_names_and_days_are_words_too(index: Index) -> None:
    index.put([doc("fact:timezone", "Europe/Berlin", title="timezone", at=1_772_884_800.0), doc("b", "else", at=0.0)])
    for query in ("timezone", "2026-03-07", "7 March 2026", "last Saturday"):
        assert find(index, query) == ["fact:timezone"], query


def test_neighbours_lend_their_words_but_not_to_the_other_side(index: Index) -> None:
    thread = [
        doc("1", "where did you spend your holidays", at=NOW, thread="t"),
        doc("2", "in Lisbon", at=NOW + 1, thread="t"),
        doc("poison", "holidays holidays holidays", at=NOW + 2, thread="t", trust=0.2),
        doc("3", "nothing", at=NOW + 3, thread="t"),
        doc("private", "secret words", at=NOW + 4, thread="t", shown=False),
        doc("4", "nothing", at=NOW + 5, thread="t"),
        doc("5", "nothing", at=NOW + 5, thread="u"),
    ]
    for fill in (index.put, index.replace_all):
        fill(thread)
        assert find(index, "holidays") == ["1", "2"]
        assert find(index, "secret") == ["private"]
        assert find(index, "secret", Where(hidden=False)) == []
        assert find(index, "lisbon")[0] == "2" and set(find(index, "lisbon")) == {"1", "2", "3"}


def test_changes_reach_the_neighbours(index: Index) -> None:
    index.put([doc(str(n), f"word{n}", at=NOW + n, thread="t") for n in range(4)])
    index.remove(["1"])
    assert find(index, "word0") == ["0", "2"] and find(index, "word1") == []
    index.put([doc("2", "changed", at=NOW + 2, thread="t")])
    assert find(index, "changed") == ["2", "3", "0"] and find(index, "word2") == []
    index.put([doc("2", "changed", at=NOW + 9, thread="t")])  # moved to the end
    assert find(index, "word0") == ["0", "3"]


def test_an_id_has_the_pieces_of_its_last_put(index: Index) -> None:
    index.put([doc("day", "first", piece=0), doc("day", "second", piece=1)])
    assert find(index, "second") == ["day"]
    index.put([doc("day", "first again", piece=0)])
    assert find(index, "second") == [] and index.count() == 1


# ── what may be found ──


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Where(), {"plain", "fact", "old", "private", "tainted"}),
        (Where(kinds=frozenset({"fact"})), {"fact"}),
        (Where(statuses=frozenset({"active", "proposed"})), {"plain", "fact", "old", "private", "tainted", "proposed"}),
        (Where(floor=0.0), {"plain", "fact", "old", "private", "tainted", "low"}),
        (Where(floor=0.95), {"plain", "fact", "old", "private"}),
        (Where(taint=0.5), {"plain", "fact", "old", "private"}),
        (Where(hidden=False), {"plain", "fact", "old", "tainted"}),
        (Where(since=NOW), {"plain", "fact", "private", "tainted"}),
        (Where(until=NOW - 1), {"old"}),
        (Where(statuses=frozenset()), set()),
    ],
)
def test_one_filter_for_every_method(
    tmp_path: Path, llama: WordLlama, method: Method, where: Where, expected: set[str]
) -> None:
    index = Index(tmp_path / "index.db", llama)
    index.put([
        doc("plain", "green tea"), doc("fact", "green tea", kind="fact"), doc("old", "green tea", at=NOW - 10),
        doc("private", "green tea", shown=False), doc("tainted", "green tea", taint=0.2, trust=0.9),
        doc("low", "green tea", trust=0.2), doc("proposed", "green tea", status="proposed"),
        doc("nothing", "quarterly report about taxes", trust=0.1, status="quarantined"),
    ])  # fmt: skip
    assert set(find(index, "green tea", where, method)) == expected


def test_a_flood_neither_appears_nor_moves_anything(tmp_path: Path, llama: WordLlama) -> None:
    index, asked = Index(tmp_path / "index.db", llama), "tax deadline year1"
    good = [doc(f"good{n}", f"the tax deadline of year{n} is in may", at=NOW - n, thread="t") for n in range(3)]
    index.put(good)
    before = {method: index.search(asked, 5, Where(), method=method, now=NOW).hits for method in METHODS}
    flood = [doc(f"bad{n}", "tax deadline year1 " * 3, trust=0.2, thread="t") for n in range(10_000)]
    index.replace_all([*good, *flood])
    for method in METHODS:
        assert index.search(asked, 5, Where(), method=method, now=NOW).hits == before[method]
        assert {hit.document.id for hit in before[method]} == {"good0", "good1", "good2"}
    trusted = [dataclasses.replace(each, trust=0.9, kind="procedure", status="proposed") for each in flood]
    index.replace_all([*good, *trusted])  # now only the filter keeps them out
    for method in METHODS:
        assert set(find(index, asked, method=method)) == {"good0", "good1", "good2"}
        assert find(index, asked, Where(kinds=frozenset({"fact"})), method) == []


def test_what_only_a_common_word_finds_is_found(index: Index) -> None:
    index.replace_all([*(doc(f"{n}", f"common filler{n}", trust=0.9) for n in range(5000)), doc("it", "uncommon")])
    assert len(find(index, "common filler7", k=50)) == 50
    assert find(index, "common uncommon filler7")[:2] == ["it", "7"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(st.text(), st.text(alphabet='"*^:(){}-+\x00 ORANDTNE猫東 '), st.lists(st.text()).map(" ".join)))
def test_no_query_is_an_error(index: Index, query: str) -> None:
    index.put([doc("it", "text"), doc("low", "text", trust=0.1)])
    index.search(query, 3, ALL, now=NOW)


# ── meaning ──


def test_meaning_finds_other_words(tmp_path: Path, llama: WordLlama) -> None:
    index = Index(tmp_path / "index.db", llama)
    index.put([doc("pet", "my dog is called Rex"), doc("tax", "the invoice is due"), doc("pan", "we baked bread")])
    assert find(index, "puppy", method="file") == []
    found = index.search("puppy", 3, Where(), method="hybrid", now=NOW)
    assert ids(found)[0] == "pet" and found.lanes == ["vector: wordllama", "lexical"]
    assert set(found.hits[0].parts) == {"dense", "recency", "trust"}
    assert find(index, "puppy", method="vector")[0] == "pet"


def test_vectors_follow_what_another_does(tmp_path: Path, llama: WordLlama) -> None:
    one, other = (Index(tmp_path / "index.db", llama) for _ in range(2))
    one.put([doc("pet", "my dog is called Rex", thread="t"), doc("tax", "the invoice is due", thread="t", at=NOW + 1)])
    assert find(other, "puppy", method="vector")[0] == "pet"
    one.remove(["pet"])
    assert find(other, "puppy", method="vector") == ["tax"]
    other.put([doc("cat", "her kitten sleeps", thread="t")])
    assert find(one, "puppy", method="vector")[0] == "cat"
    one.replace_all([doc("new", "a dog", thread="t")])
    assert find(other, "puppy", method="vector") == ["new"]


def test_without_an_embedder_words_are_searched_and_it_says_so(tmp_path: Path, llama: WordLlama) -> None:
    plain = Index(tmp_path / "index.db")
    plain.put([doc("pet", "my dog is called Rex")])
    found = plain.search("dog", 3, Where(), method="vector", now=NOW)
    assert ids(found) == ["pet"] and found.lanes == ["vector: not installed", "lexical", "rebuilt: it was missing"]
    meant = Index(tmp_path / "index.db", llama)  # what has no vector yet gets one
    assert find(meant, "puppy", method="vector") == ["pet"] and meant.amiss == ""


class Counting:
    """Vectors that say how often they were made."""

    def __init__(self, name: str) -> None:
        self.name, self.dimensions, self.batch, self.made = name, 2, 8, 0

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        self.made += len(texts)
        return np.array([[1.0, 0.0]] * len(texts), dtype=np.float32)


def test_the_vector_of_a_text_is_made_once(tmp_path: Path) -> None:
    embedder = Counting("one")
    index = Index(tmp_path / "index.db", embedder)
    index.put([doc("a", "text"), doc("b", "text")])
    index.put([doc("a", "text", trust=0.2)])
    index.replace_all([doc("a", "text"), doc("b", "other")])
    assert embedder.made == 3


# ── the file ──


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100 : len(data)] = os.urandom(len(data) - 100)
    path.write_bytes(data)


def _other_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET value = 'older' WHERE name = 'schema'")


@pytest.mark.parametrize(
    ("amiss", "spoil", "open_"),
    [
        ("it was missing", Path.unlink, False),
        ("it was missing", Path.unlink, True),
        ("it was damaged", _damage, False),
        ("it was damaged", _damage, True),
        ("it was damaged", lambda path: path.write_bytes(b"no database at all" * 100), False),
        ("it was empty", lambda path: path.write_bytes(b""), False),
        ("it was of another version", _other_schema, False),
    ],
)
def test_a_file_that_is_not_right_is_made_anew_and_says_so(tmp_path: Path, amiss: str, spoil: Any, open_: bool) -> None:
    path = tmp_path / "index.db"
    index = Index(path)
    index.put([doc(str(n), f"text {n}") for n in range(50)])
    index.search("text", 1, Where(), now=NOW)
    if open_:
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    else:
        index.close()
        index = Index(path)
    spoil(path)
    assert index.count() == 0
    assert index.amiss == amiss
    index.put([doc("a", "text")])
    found = index.search("text", 1, Where(), now=NOW)
    assert ids(found) == ["a"] and found.lanes == ["lexical", f"rebuilt: {amiss}"] and index.amiss == ""
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_embedder_has_other_vectors(tmp_path: Path) -> None:
    index = Index(tmp_path / "index.db", Counting("one"))
    index.put([doc("a", "text")])
    index.close()
    assert Index(tmp_path / "index.db").count() == 1
    other = Index(tmp_path / "index.db", Counting("two"))
    assert other.count() == 0 and other.amiss == "its vectors were of another model"


def test_what_is_forgotten_leaves_no_byte(tmp_path: Path, llama: WordLlama) -> None:
    index = Index(tmp_path / "index.db", llama)
    reader = Index(tmp_path / "index.db", llama)
    others = [doc(f"n{n}", f"filler number{n} " * 20, thread="t", at=NOW + n) for n in range(300)]
    index.replace_all([*others, doc("it", "the xylophonist hides beneath 東京塔", thread="t", at=NOW + 50.5)])
    index.put([doc("n9", "filler again", thread="t", at=NOW + 50.7)])
    assert find(reader, "xylophonist", method="hybrid")[0] == "it"
    vector = llama.embed(["the xylophonist hides beneath 東京塔"])[0].tobytes()
    index.forget(["it"])
    left = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    for trace in ("xylophon", "東京", "塔"):
        assert trace.encode() not in left
    assert vector not in left
    assert find(reader, "filler number7", method="hybrid")[0] == "n7" and reader.count() == 300


def _write(path: Path, name: str) -> None:
    index = Index(path)
    for n in range(40):
        index.put([doc(f"{name}{n}", f"text of {name}", thread="t", at=NOW + n)])


def test_processes_and_threads_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    processes = [get_context("spawn").Process(target=_write, args=(path, name)) for name in ("a", "b")]
    for each in processes:
        each.start()
    index = Index(path)
    threads = [threading.Thread(target=_write, args=(path, "c")) for _ in range(2)]
    threads += [threading.Thread(target=lambda: [find(index, "text") for _ in range(50)])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for each in processes:
        each.join(60)
        assert each.exitcode == 0
    assert index.count() == 120 and len(find(index, "text", k=200)) == 120


# ── whatever happens ──

IDS = st.sampled_from("abcdef")
FIELDS = st.fixed_dictionaries({
    "text": st.sampled_from(["tea", "tea cake", "cake", "bread"]), "trust": st.sampled_from([0.2, 0.6, 1.0]),
    "thread": st.sampled_from(["", "t", "u"]), "shown": st.booleans(), "at": st.sampled_from([NOW, NOW + 1, NOW + 2]),
})  # fmt: skip


class Same(RuleBasedStateMachine):
    """An index that was changed step by step finds what one that is filled at once finds."""

    folder: Path
    llama: WordLlama

    def __init__(self) -> None:
        super().__init__()
        path = self.folder / f"{os.urandom(8).hex()}.db"
        self.index, self.fresh = Index(path, self.llama), Index(path.with_suffix(".fresh"), self.llama)
        self.documents: dict[str, Document] = {}

    @rule(id=IDS, fields=FIELDS)
    def put(self, id: str, fields: dict[str, Any]) -> None:
        self.documents[id] = doc(id, **fields)
        self.index.put([self.documents[id]])

    @rule(ids=st.sets(IDS))
    def remove(self, ids: set[str]) -> None:
        self.index.remove(ids)
        self.documents = {id: each for id, each in self.documents.items() if id not in ids}

    @rule()
    def replace_all(self) -> None:
        self.index.replace_all(self.documents.values())

    @invariant()
    def same(self) -> None:
        self.fresh.replace_all(self.documents.values())
        for method in METHODS:
            found, expected = (
                {hit.document: hit.score for hit in each.search("tea", 10, ALL, method=method, now=NOW).hits}
                for each in (self.index, self.fresh)
            )
            for document in {*found, *expected}:
                assert found.get(document, 0) == pytest.approx(expected.get(document, 0), abs=1e-5)

    def teardown(self) -> None:
        self.index.close()
        self.fresh.close()


def test_step_by_step_is_as_good_as_at_once(tmp_path: Path, llama: WordLlama) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    class Here(Same):
        pass

    Here.folder, Here.llama = tmp_path, llama
    run_state_machine_as_test(
        Here, settings=settings(max_examples=12, stateful_step_count=8, deadline=None, phases=[Phase.generate])
    )
