"""Say what is wrong with a skill, before it is proposed: run.py FOLDER. Exits with 1 where something must be mended."""

import os
import re
import sys

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
KEYS = {"name", "description", "license", "compatibility", "allowed-tools", "metadata"}
MOST_FILES, MOST_BYTES, MOST_LINES = 200, 5 << 20, 500


def frontmatter(text):
    """({key: value}, body) of a SKILL.md, keys of the first level alone; None where it has no frontmatter."""
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != "---" or "---" not in [line.rstrip() for line in lines[1:]]:
        return None, text
    end = [line.rstrip() for line in lines].index("---", 1)
    pairs = [line.partition(":") for line in lines[1:end] if line and line[0] not in " \t#-"]
    return {key.strip(): value.strip() for key, _, value in pairs}, "\n".join(lines[end + 1 :])


def faults(folder):
    """(what must be mended, what could be better)."""
    name, wrong, weak = os.path.basename(os.path.abspath(folder)), [], []
    try:
        with open(os.path.join(folder, "SKILL.md"), encoding="utf-8") as file:
            fields, body = frontmatter(file.read(256 << 10))
    except (OSError, UnicodeDecodeError) as error:
        return [f"SKILL.md cannot be read: {error}"], []
    if fields is None:
        return ["SKILL.md does not begin with --- and a block that ends with ---"], []
    weak += [f"{key} is no key of the format; put it below metadata" for key in sorted(set(fields) - KEYS)]
    if not NAME.fullmatch(name) or len(name) > 64:
        wrong.append(f"the folder's name {name!r}: lower-case letters, digits and single hyphens, at most 64")
    if fields.get("name", "").strip("'\"") != name:
        wrong.append("name is {!r}, and must be the folder's name, {!r}".format(fields.get("name", ""), name))
    said = fields.get("description", "")
    plain = said.strip("'\"")
    if not plain:
        wrong.append("description is missing, or not on one line")
    elif len(plain) > 1024:
        wrong.append(f"description has {len(plain)} characters; at most 1,024")
    elif ": " in said and said[0] not in "'\"":
        wrong.append("description holds a colon: put it in quotes")
    elif not re.search(r"\b(use|when|if)\b", plain, re.I):
        weak.append("description does not say when to use it")
    if not body.strip():
        wrong.append("there is nothing below the frontmatter")
    if len(body.splitlines()) > MOST_LINES:
        weak.append(f"the body has {len(body.splitlines())} lines; move what is long to references/")
    return wrong + files(folder), weak


def files(folder):
    count, size, wrong = 0, 0, []
    for directory, below, names in os.walk(folder):
        for each in [*below, *names]:
            path = os.path.join(directory, each)
            if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path)):
                wrong.append(f"{os.path.relpath(path, folder)} is a link or a special file")
        count += len(names)
        size += sum(os.lstat(os.path.join(directory, each)).st_size for each in names)
    if count > MOST_FILES or size > MOST_BYTES:
        wrong.append(f"{count} files with {size} bytes; at most {MOST_FILES} and {MOST_BYTES}")
    return wrong


def main():
    if len(sys.argv) != 2:
        return "Say which folder: run.py my-skill"
    wrong, weak = faults(sys.argv[1])
    for line in [*("wrong: " + each for each in wrong), *("could be better: " + each for each in weak)]:
        print(line)
    print("This must be mended first." if wrong else "It is sound. Propose it with skill_propose.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
