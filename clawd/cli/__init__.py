"""The command line: a thin face. A command's module is imported when it is called, and no sooner."""
