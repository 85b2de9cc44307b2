"""people.toml: what it means, what is refused, and how it is edited."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.config.home import Home
from clawd.errors import ConfigError, NotFound, UsageError
from clawd.people.roster import LiveRoster, People, Person, free_name, granted, load, paired, revoked

ADA = Person(name="Ada", role="owner", accounts=("telegram:7", "slack:T012/U345"))
BOB = Person(name="bob", role="member", accounts=("telegram:8",))
TEXT = """\
# mine
schema = 1

[[people]]
name = "Ada"
role = "owner"      # that is me
accounts = [
  "telegram:7",  # the phone
  "slack:T012/U345",
]

# a friend
[[people]]
name = "bob"
role = "member"
accounts = ["telegram:8"]
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    (tmp_path / "people.toml").write_text(TEXT)
    return Home(tmp_path)


def test_one_person_has_several_accounts_and_an_account_is_known_as_it_is_written_alone(home: Home) -> None:
    roster = load(home)
    assert roster.people == (ADA, BOB) and roster.problem is None
    assert roster.by_account("telegram:7") == roster.by_account("slack:T012/U345") == ADA
    for other in ("", "telegram:07", "telegram:7 ", "Telegram:7", "telegram:７", "slack:T012/u345", "Ada", "owner"):
        assert roster.by_account(other) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "not TOML"),
        ("schema = 2", "newer"),
        ('[[people]]\nname = "x"\nrole = "boss"', "role"),
        ('[[people]]\nname = "x"\nrole = "stranger"', "role"),
        ('[[people]]\nrole = "owner"', "name is missing"),
        ('[[people]]\nname = "x"\nrole = "owner"\nacounts = []', "did you mean accounts"),
        ('[[people]]\nname = "x"\nrole = "owner"\naccounts = ["7"]', "like"),
        ('[[people]]\nname = "x"\nrole = "owner"\naccounts = ["telegram:7 "]', "like"),
        ('[[people]]\nname = " x"\nrole = "owner"', "blanks"),
        ('[[people]]\nname = "x\\u202ey"\nrole = "owner"', "can be seen"),
        (TEXT + '[[people]]\nname = "ADA"\nrole = "member"', "two people are called"),
        (
            TEXT + '[[people]]\nname = "eve"\nrole = "member"\naccounts = ["telegram:7"]',
            "telegram:7 is Ada's and eve's",
        ),
    ],
)
def test_a_list_that_is_not_valid_lets_nobody_speak_and_is_never_written_over(home: Home, text: str, says: str) -> None:
    home.people_file.write_text(text)
    roster = load(home)
    assert roster.people == () and says in str(roster.problem)
    with pytest.raises(ConfigError):
        LiveRoster(home).write(lambda people: granted(people, "eve", "owner"))
    assert home.people_file.read_text() == text


def _link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_link, "a link"),
        (lambda file: file.chmod(0o666), "others can write"),
        (lambda file: file.chmod(0o620), "others can write"),
        (lambda file: (file.unlink(), file.mkdir()), "not a regular file"),
        (lambda file: (file.unlink(), os.mkfifo(file)), "not a regular file"),
        (lambda file: file.write_bytes(b"\xff"), "UTF-8"),
    ],
)
def test_a_list_that_is_not_surely_the_owners_lets_nobody_speak(
    home: Home, spoil: Callable[[Path], object], says: str
) -> None:
    spoil(home.people_file)
    assert load(home).people == () and says in str(load(home).problem)
    with pytest.raises(ConfigError):
        LiveRoster(home).write(lambda people: granted(people, "eve", "owner"))


@pytest.mark.anyio
async def test_an_edit_holds_at_once_and_no_earlier_list_is_used_after_a_bad_one(home: Home) -> None:
    told: list[str] = []
    live = LiveRoster(home, told.append)
    assert len((await live.now()).people) == 2
    home.people_file.write_text("nonsense")
    for _ in range(2):
        assert (await live.now()).by_account("telegram:7") is None
    assert len(told) == 1 and "not TOML" in told[0]
    home.people_file.unlink()
    assert isinstance((await live.now()).problem, NotFound) and len(told) == 2
    home.people_file.write_text(TEXT)
    assert (await live.now()).by_account("telegram:7") == ADA
    home.people_file.chmod(0o666)
    assert (await live.now()).people == () and len(told) == 3


# ── what may change ──


@pytest.mark.parametrize(
    ("change", "becomes"),
    [
        (lambda people: paired(people, "Ada", "owner", "discord:9"), {"Ada": ("owner", 3), "bob": ("member", 1)}),
        (lambda people: paired(people, "ada", "owner", "telegram:7"), {"Ada": ("owner", 2), "bob": ("member", 1)}),
        (
            lambda people: paired(people, "eve", "member", "discord:9"),
            {"Ada": ("owner", 2), "bob": ("member", 1), "eve": ("member", 1)},
        ),
        (lambda people: paired(people, "Ada", "owner", "telegram:8"), UsageError),  # bob's
        (lambda people: paired(people, "bob", "owner", "discord:9"), UsageError),  # he is a member
        (lambda people: granted(people, "BOB", "admin"), {"Ada": ("owner", 2), "bob": ("admin", 1)}),
        (
            lambda people: granted(people, "eve", "member"),
            {"Ada": ("owner", 2), "bob": ("member", 1), "eve": ("member", 0)},
        ),
        (lambda people: granted(people, "Ada", "admin"), UsageError),  # the last owner
        (lambda people: granted(people, "a\nb", "admin"), UsageError),
        (lambda people: granted(people, "", "admin"), UsageError),
        (lambda people: revoked(people, "bob"), {"Ada": ("owner", 2)}),
        (lambda people: revoked(people, "Ada"), UsageError),  # the last owner
        (lambda people: revoked(people, "eve"), NotFound),
    ],
)
def test_what_may_change(home: Home, change: Callable[[People], People], becomes: Any) -> None:
    live = LiveRoster(home)
    if isinstance(becomes, type):
        with pytest.raises(becomes):
            live.write(change)
        assert home.people_file.read_text() == TEXT
        return
    live.write(change)
    assert {each.name: (each.role, len(each.accounts)) for each in load(home).people} == becomes
    text = home.people_file.read_text()
    assert text.startswith("# mine\nschema = 1\n") and "# that is me" in text and "# the phone" in text
    assert text == TEXT or home.people_file.stat().st_mode & 0o777 == 0o600


def test_with_another_owner_the_first_may_go(home: Home) -> None:
    live = LiveRoster(home)
    live.write(lambda people: granted(people, "bob", "owner"))
    live.write(lambda people: revoked(people, "Ada"))
    assert [each.name for each in load(home).people] == ["bob"]


@pytest.mark.parametrize("text", [None, "", "# nobody yet\nschema = 1\n", "schema = 1\npeople = []\n"])
def test_the_first_one_is_written_into_whatever_is_there(home: Home, text: str | None) -> None:
    home.people_file.unlink()
    if text is not None:
        home.people_file.write_text(text)
    live = LiveRoster(home)
    live.write(lambda people: paired(people, "owner", "owner", "telegram:7"))
    live.write(lambda people: paired(people, "owner", "owner", "discord:9"))
    live.write(lambda people: granted(people, "eve", "member"))
    assert [(each.name, each.accounts) for each in load(home).people] == [
        ("owner", ("telegram:7", "discord:9")),
        ("eve", ()),
    ]
    assert home.people_file.read_text().startswith(text or "schema = 1\n") or text == "schema = 1\npeople = []\n"


@given(st.text(max_size=100))
def test_whatever_a_stranger_calls_themselves_they_get_a_name_that_is_free_and_no_role(wish: str) -> None:
    name = free_name((ADA, BOB), wish)
    people = paired((ADA, BOB), name, "member", "discord:9")
    assert len(people) == 3 and name.casefold() not in ("ada", "bob", "owner", "admin", "member", "stranger", "none")


@pytest.mark.parametrize(
    ("wish", "name"),
    [
        ("Owner", "Owner 2"),
        ("ADA", "ADA 2"),
        ("Eve\u202e\n", "Eve"),
        ("ｏｗｎｅｒ", "owner 2"),
        ("🙂", "guest"),
        ("[[x]]", "x"),
    ],
)
def test_a_name_of_somebody_else_or_of_a_role_is_not_taken_over(wish: str, name: str) -> None:
    assert free_name((ADA, BOB), wish) == name
