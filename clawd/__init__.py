"""clawd: an always-on personal agent daemon. `docs/architecture.md` is the map."""

__version__ = "0.1.0"
