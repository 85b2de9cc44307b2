"""The manifests as a store: a group's, or those of a channel's sessions in every group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from clawd.config.home import Home
from clawd.lifecycle import manifest
from clawd.lifecycle.manifest import ManifestRefused
from clawd.stores import FileStore, Scope


def manifest_store(home: Home) -> FileStore:
    """One that cannot be read is found with its group alone."""

    def trees(scope: Scope) -> Iterator[Path]:
        if scope.kind == "group":
            yield home.group(scope.name).manifests
        elif scope.kind == "channel" and home.groups.is_dir():
            for group in sorted(home.groups.iterdir()):
                folder = home.group(group.name).manifests
                for path in [] if folder.is_symlink() else sorted(folder.glob("*.json")):
                    with suppress(ManifestRefused, OSError):
                        if manifest.read(path).session_id.startswith(f"{scope.name}:"):
                            yield path

    return FileStore("manifests", home.root, trees)
