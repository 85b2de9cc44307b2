"""The command's entry. `clawd --version` is answered before anything else is imported."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process; gives the exit code."""
    if sys.argv[1:] == ["--version"]:
        from clawd import __version__

        sys.stdout.write(f"clawd {__version__}\n")
        return 0
    from clawd.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
