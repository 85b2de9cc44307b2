"""Looks for a word in the name and in the content of everything that can be seen. Prints where it is."""

import contextlib
import os
import sys

WORD = "".join(sys.argv[1:])  # in pieces, so that this command line is no find
OF_A_PROCESS = ("cmdline", "comm", "environ", "mountinfo", "status")
for at, names, files in os.walk("/"):
    if at == "/":
        names.remove("usr")
    for name in names + files:
        if WORD in name:
            print("name", at, name)
    for name in files:
        path = os.path.join(at, name)
        if at.startswith("/proc") and name not in OF_A_PROCESS:
            continue
        with contextlib.suppress(OSError):
            if (at.startswith("/proc") or os.path.isfile(path)) and not os.path.islink(path):
                with open(path, "rb") as file:
                    if WORD.encode() in file.read(1 << 22):
                        print("content", path)
with open("/group/CLAUDE.md") as file:
    print("can be seen:", file.read())
