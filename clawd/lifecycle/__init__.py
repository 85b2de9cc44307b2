"""The context life cycle: what is decided about a session's window, what it holds on to, and the formats of all that.

Pure, but for what reads and writes files by the one way to do so. `turns/` has it happen.
"""
