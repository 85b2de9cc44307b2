"""Authority and trust only fall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.trust import TRUST, Origin, Role, at_least, lowest, origin_of
from tests.sessions.strategies import steady

ORDER = [Role.NONE, Role.STRANGER, Role.MEMBER, Role.ADMIN, Role.OWNER]


@pytest.mark.parametrize("low", range(len(ORDER)))
@pytest.mark.parametrize("high", range(len(ORDER)))
def test_the_order_of_roles(low: int, high: int) -> None:
    same = {ORDER[low], ORDER[high]} == {Role.NONE, Role.STRANGER}
    if not same:
        assert at_least(ORDER[high], ORDER[low]) == (high >= low)


@steady
@given(st.lists(st.sampled_from(ORDER[1:])))
def test_the_lowest_role_speaks_for_all(roles: list[Role]) -> None:
    found = lowest(roles)
    assert found == (min(roles, key=ORDER.index) if roles else Role.NONE)
    assert all(at_least(role, found) for role in roles)


def test_nobody_has_no_authority() -> None:
    assert lowest([]) is Role.NONE
    assert not at_least(Role.NONE, Role.MEMBER)
    assert lowest([Role.OWNER, Role.NONE]) is Role.NONE


def test_trust_is_as_decided() -> None:
    assert {origin.value: trust for origin, trust in TRUST.items()} == {
        "owner": 1.0, "admin": 0.9, "agent": 0.7, "hand": 0.6, "tool": 0.6, "member": 0.4, "document": 0.2,
        "external": 0.2, "system": 1.0,
    }  # fmt: skip
    assert set(TRUST) == set(Origin)


def test_the_origin_of_what_a_person_typed() -> None:
    assert [origin_of(role) for role in (Role.OWNER, Role.ADMIN, Role.MEMBER)] == [
        Origin.OWNER, Origin.ADMIN, Origin.MEMBER,
    ]  # fmt: skip
    assert origin_of(Role.STRANGER) is origin_of(Role.NONE) is Origin.EXTERNAL
