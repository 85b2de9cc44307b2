"""The ledger: one SQLite file, one writer, every change of state one transaction. `moves` is the law, `db` the file."""
