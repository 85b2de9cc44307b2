"""What is granted now: the files as they stand at each request, and nothing while one cannot be understood."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawd.clock import SystemClock
from clawd.config.begin import ensure_group
from clawd.config.home import Home
from clawd.config.live import LiveConfig
from clawd.errors import ConfigError, StorageError
from clawd.host.gate import Gate

pytestmark = pytest.mark.anyio

CONFIG = 'schema = 1\n[claw]\nname = "t"\n'


class Ground:
    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home")
        self.home.create()
        self.home.config_file.write_text(CONFIG)
        ensure_group(self.home, "main")
        self.file = self.home.group("main").config_file
        self.config = LiveConfig(self.home, {})
        self.gate = Gate(self.home, self.config, SystemClock(), self.renew)

    def renew(self) -> None:
        if self.config.changed():
            self.config.reload()

    def granted(self) -> set[str]:
        return set(self.gate.grants("main").granted)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_an_edit_of_either_file_holds_from_the_next_request(ground: Ground) -> None:
    assert ground.granted() == set()
    ground.file.write_text('grants = ["anthropic", "own"]\n')
    assert ground.granted() == {"anthropic"}
    ground.home.config_file.write_text(f'{CONFIG}[services.own]\nbase_url = "https://own.example/api"\n')
    assert ground.granted() == {"anthropic", "own"}
    assert ground.gate.grants("main") is ground.gate.grants("main")  # and costs two looks while nothing changes
    ground.home.config_file.write_text(f'{CONFIG}[services.own]\nbase_url = "https://new.example/api"\n')
    base = ground.gate.grants("main").granted["own"].base
    assert base is not None and base[1] == "new.example"
    ground.file.write_text('grants = ["own"]\n')
    assert ground.granted() == {"own"}
    before = ground.file.stat()
    ground.file.write_text('grants = ["not"]\n')
    os.utime(ground.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ground.granted() == set()
    ground.file.write_text("")
    assert ground.granted() == set() and ground.gate.environment("main") == {}


def test_a_group_s_file_that_cannot_be_understood_grants_nothing_until_it_can(ground: Ground) -> None:
    ground.file.write_text('grants = ["anthropic"]\n')
    assert ground.granted() == {"anthropic"}
    for bad in ("grants = [", "grants = [7]\n", 'grant = ["anthropic"]\n', "\udce9"):
        ground.file.write_bytes(bad.encode("utf-8", "surrogateescape"))
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"groups/main/group\.toml cannot be used, and grants nothing"):
                ground.gate.grants("main")
        assert ground.gate.environment("main") == {}
    ground.file.write_text('grants = ["github"]\n')
    assert ground.granted() == {"github"}
    ground.file.unlink()
    assert ground.granted() == set()


async def test_certificates_are_for_groups_that_have_a_use_for_them(ground: Ground) -> None:
    assert await ground.gate.bundle("main") is None
    assert not (ground.home.state / "gateway").exists()
    ground.file.write_text('grants = ["anthropic"]\n')
    bundle = await ground.gate.bundle("main")
    assert bundle is not None and b"-----BEGIN CERTIFICATE-----" in bundle and b"PRIVATE" not in bundle
    assert await ground.gate.bundle("main") == bundle
    await ground.gate.close()


async def test_certificates_that_cannot_be_kept_are_told(ground: Ground) -> None:
    ground.file.write_text('grants = ["anthropic"]\n')
    (ground.home.state / "gateway").write_text("in the way")
    with pytest.raises(StorageError):
        await ground.gate.bundle("main")


def test_what_comes_with_its_first_use_is_not_there_before() -> None:
    heavy = {
        *("aiohttp", "cryptography", "docker", "tarfile", "difflib", "clawd.gateway.gateway", "clawd.gateway.metering"),
        *("clawd.context.history", "clawd.context.imports", "clawd.commands.model", "clawd.host.tools"),
    }
    code = f"import sys, clawd.daemon; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
