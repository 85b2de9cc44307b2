"""Chromium without a screen, as Debian packages it, for the tests of pages that people open. It is installed where it
is missing and that is allowed; before the tests, `python -m tests.browser` does so.

Whatever a page loads goes to a proxy of the test's, loopback too: it answers nothing and remembers what was asked.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.dockerd import CACHE, Unavailable
from tests.packages import install

NEEDED = "CLAWD_TESTS_NEED_ENGINE"  # also of a browser: CI has both
_MAKERS = re.compile(r"^(?:https?://)?(?:[\w-]+\.)+(?:google|googleapis|gvt1|gstatic)\.com[:/]")
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ALONE = (
    *("--headless", "--disable-gpu", "--no-first-run", "--no-default-browser-check", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-default-apps"),
    *("--disable-dev-shm-usage", "--proxy-bypass-list=<-loopback>", "--disable-domain-reliability"),
    "--disable-features=NetworkTimeServiceQuerying,OptimizationHints,MediaRouter",
)


def chromium() -> str:
    """Its program; a test that needs it fails in CI where there is none, and is skipped elsewhere."""
    try:
        return _found()
    except (Unavailable, OSError, subprocess.SubprocessError) as error:
        (pytest.fail if os.environ.get(NEEDED) == "1" else pytest.skip)(f"no Chromium: {error}")


def _found() -> str:
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with CACHE.with_name("browser.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not any(map(shutil.which, _NAMES)):
            install(["chromium"], lambda line: None)
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        raise Unavailable("the package chromium brings no program of that name")
    return found


@dataclass(slots=True)
class Proxy:
    """`asked` has the first line of each request that came."""

    port: int
    asked: list[str] = field(default_factory=list)

    @property
    def of_pages(self) -> list[str]:
        """Those of pages: what the browser asks its makers, of its own accord, is left out."""
        return [line for line in self.asked if not _MAKERS.search(line.split(" ")[1])]


@contextmanager
def proxy() -> Iterator[Proxy]:
    listening = socket.create_server(("127.0.0.1", 0))
    found = Proxy(listening.getsockname()[1])

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError):
                    connection.settimeout(5)
                    found.asked.append(connection.recv(4096).split(b"\r\n")[0].decode("latin-1"))
                    connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    thread = threading.Thread(target=serve, name="proxy", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(5)


def opened(program: str, page: Path, proxy: Proxy, directory: Path) -> str:
    """The page as the browser has it once it is loaded, as HTML."""
    mine = ("--no-sandbox",) if os.geteuid() == 0 else ()
    line = [program, *_ALONE, *mine, f"--proxy-server=http://127.0.0.1:{proxy.port}", f"--user-data-dir={directory}"]
    done = subprocess.run(
        [*line, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"HOME": str(directory), "DBUS_SESSION_BUS_ADDRESS": "disabled:"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


if __name__ == "__main__":
    _found()
