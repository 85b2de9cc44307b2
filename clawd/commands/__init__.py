"""Commands: what a person asks of the daemon itself, the same words on every channel, and what is behind the faces."""
