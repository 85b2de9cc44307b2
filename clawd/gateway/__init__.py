"""The one road out of a sandbox: which request may go where, with whose key, and what is written down of it."""
