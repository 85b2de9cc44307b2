"""Whatever is killed on the way, every message gets one reply."""

from __future__ import annotations

from tests.system.conftest import Home, call


def test_smoke(home: Home) -> None:
    home.script(call("send_message", text="half of {message}"), {"text": "re {message}"})
    home.start()
    print(home.json("chat", "-m", "one"))
    print(home.said(), home.deliveries(), home.messages())
    print(home.runner(), home.first(), home.sandboxed())
    assert home.stop() == 0
    assert not home.left_over()
