"""Turns: the fair queue, runs and their leases, stop, retry, and the record in the session file."""
