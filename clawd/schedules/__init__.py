"""Schedules as people write them, a TOML file each, and when they are due. Knows no ledger and no clock of its own."""
