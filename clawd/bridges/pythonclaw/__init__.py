"""PythonClaw's home, read and written by its own file formats (0.7.2; older dialects are read)."""
