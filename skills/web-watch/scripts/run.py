"""Say what changed on a page since the last look: run.py URL [WORDS]. The last line is JSON with `wake`. What was seen
is kept below ./web-watch. Requests go the way that the environment's proxy variables say."""

import difflib
import hashlib
import html.parser
import json
import os
import sys
import urllib.error
import urllib.request

MOST_BYTES, MOST_SHOWN, SECONDS = 2_000_000, 40, 60
DIRECTORY = "web-watch"
QUIET = {"script", "style", "noscript", "template", "svg", "head"}
BLOCKS = {"p", "div", "li", "tr", "br", "h1", "h2", "h3", "h4", "h5", "h6", "section", "article", "td", "th", "pre"}


class Text(html.parser.HTMLParser):
    """The lines of a page that a person would read."""

    def __init__(self):
        super().__init__()
        self.said, self.quiet = [], 0

    def handle_starttag(self, tag, attrs):
        self.quiet += tag in QUIET
        self.said += ["\n"] if tag in BLOCKS else []

    def handle_endtag(self, tag):
        self.quiet = max(0, self.quiet - (tag in QUIET))
        self.said += ["\n"] if tag in BLOCKS else []

    def handle_data(self, data):
        self.said += [" ".join(data.split("\n"))] if not self.quiet else []


class Away(Exception):
    """The page cannot be had; a sentence says why."""


def page(url):
    """Its text. Raises Away."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "web-watch"})
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            data, kind = answer.read(MOST_BYTES), answer.headers.get_content_type()
            text = data.decode(answer.headers.get_content_charset() or "utf-8", "replace")
    except urllib.error.HTTPError as error:
        if error.headers.get("X-Clawd-Rule"):
            raise Away(f"The network is not granted for this: {refusal(error)}") from None
        raise Away(f"The page answers {error.code} {error.reason}.") from None
    except (OSError, ValueError) as error:
        if "Tunnel connection failed: 403" in str(error):
            raise Away("The network is not granted for this host. The owner can grant it in group.toml.") from None
        if not os.environ.get("HTTPS_PROXY"):
            raise Away("The network is not granted: this group has no services. The owner can grant one.") from None
        raise Away("The page cannot be reached: {}".format(getattr(error, "reason", error))) from None
    if kind != "text/html":
        return text
    parser = Text()
    parser.feed(text)
    return "".join(parser.said)


def refusal(error):
    try:
        said = json.loads(error.read(10_000))
        return " ".join(filter(None, (str(said["message"]), said.get("hint"))))
    except (ValueError, KeyError, TypeError):
        return str(error.code)


def watched(text, words):
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line and (not words or any(word in line.casefold() for word in words))]


def compare(url, words):
    """(sentences, whether to wake)."""
    now = watched(page(url), words)
    os.makedirs(DIRECTORY, exist_ok=True)
    key = hashlib.sha256(" ".join([url, *words]).encode()).hexdigest()[:16]
    path = os.path.join(DIRECTORY, key + ".json")
    try:
        with open(path, encoding="utf-8") as file:
            before = json.load(file)["lines"]
    except (OSError, ValueError, KeyError, TypeError):
        before = None
    if now != before:
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({"url": url, "words": words, "lines": now}, file, ensure_ascii=False)
        os.replace(path + ".new", path)
    if before is None:
        return [f"Watching {url} from now on: {len(now)} lines."], False
    changes = [
        line for line in difflib.unified_diff(before, now, n=0, lineterm="") if line[:3] not in ("---", "+++", "@@ ")
    ]
    more = [f"… and {len(changes) - MOST_SHOWN} more lines"] if len(changes) > MOST_SHOWN else []
    said = [f"Changed: {url}", *changes[:MOST_SHOWN], *more] if changes else [f"No change: {url}"]
    return said, bool(changes)


def main():
    if len(sys.argv) < 2 or not sys.argv[1].startswith(("http://", "https://")):
        return 'Say which page: run.py https://example.org/ ["word|other word"]'
    words = [word.strip().casefold() for word in " ".join(sys.argv[2:]).split("|") if word.strip()]
    try:
        said, wake = compare(sys.argv[1], words)
        code = 0
    except Away as reason:
        said, wake, code = [str(reason)], False, 1
    print("\n".join(said))
    print(json.dumps({"wake": wake, "summary": said[0]}, ensure_ascii=False))
    return code


if __name__ == "__main__":
    sys.exit(main())
