"""The control socket: how the command line, and nobody else, talks to the running daemon."""
