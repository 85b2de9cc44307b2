"""Looks for a word in the environment of every process but this one and its parent, and tries to read the memory of
all that run Python."""

import contextlib
import os

with open("/group/work/word") as file:
    WORD = file.read().strip().encode()
os.unlink("/group/work/word")
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) in (os.getpid(), os.getppid()):
        continue
    for name in ("environ", "cmdline"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
            if WORD in file.read():
                print(name, "of", pid)
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        if "python" in file.read():
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
            print("mem of", pid)
print("done")
