import pytest

from clawd.turns.leases import LiveTurn, next_look, verdict


def live(**more: object) -> LiveTurn:
    values: dict[str, object] = {"began": 0.0, "heard": 0.0, "handed": 0.0, "confirmed": True, **more}
    return LiveTurn(1, "s", 1, 0, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("turn", "now", "expected"),
    [
        (live(confirmed=False), 9.9, "ok"),
        (live(confirmed=False), 10.1, "unconfirmed"),
        (live(confirmed=False, handed=50.0), 59.0, "ok"),
        (live(confirmed=False, handed=59.0), 61.0, "lost"),
        (live(heard=50.0), 109.0, "ok"),
        (live(heard=50.0), 111.0, "lost"),
        (live(heard=900.0), 901.0, "late"),
        (live(heard=900.0, stopping=900.0), 901.0, "ok"),
        (live(heard=900.0, stopping=900.0), 906.0, "stuck"),
        (live(confirmed=False, stopping=1.0), 7.0, "stuck"),
    ],
)
def test_verdict(turn: LiveTurn, now: float, expected: str) -> None:
    assert verdict(turn, now) == expected


@pytest.mark.parametrize("turn", [live(), live(confirmed=False), live(stopping=3.0)])
@pytest.mark.parametrize("now", [0.0, 4.0, 500.0])
def test_a_look_comes_in_time_and_never_spins(turn: LiveTurn, now: float) -> None:
    assert 0.05 <= next_look(turn, now) <= 10.0
