"""Leaves a process behind that has a session of its own, no parent, no open pipe and no environment."""

import os

if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.closerange(0, 3)
os.execve("/bin/sh", ["sh", "-c", "while :; do echo x >>/group/work/beat; sleep .05; done"], {})
