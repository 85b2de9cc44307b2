"""Memory: plain files that a person can open, what the daemon knows of their trust, and a search over both."""
