"""Sandboxes: one protocol, its backends, what an agent is shown (the view), its limits and its seccomp
filter."""
