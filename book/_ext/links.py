"""Every link of the built book: those inside lead to a file and an anchor that are there.

    python book/_ext/links.py HTML [--outside] [--ask]

Prints what was counted, and the dead ones. Of addresses of other sites the form is checked;
`--outside` lists them, `--ask` asks whether they answer. Ends with 1 when one is dead.
"""

import json
import sys
from html.parser import HTMLParser
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import Request, urlopen

# what a page names: other pages, and files
ATTRIBUTES = ("href", "src", "data", "poster")


class Page(HTMLParser):
    """What one page names, and what in it can be named."""

    def __init__(self, text):
        super().__init__()
        self.named, self.anchors, self.calls = set(), {"", "top"}, set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[key] for key in ("id", "name") if key in found}
        self.named |= {found[key] for key in ATTRIBUTES if found.get(key)}
        if "data-call" in found:
            self.calls.add(found["data-call"])


def read(html):
    "The pages of the book, by file; the notebooks' site and the theme's templates are no pages."
    apart = (html / "lite", html / "_static")
    found = sorted(p for p in html.rglob("*.html") if not any(map(p.is_relative_to, apart)))
    return {path: Page(path.read_text(encoding="utf-8")) for path in found}


def is_outside(link):
    return bool(urlsplit(link).scheme or urlsplit(link).netloc)


def wrong_inside(html, pages, path, link):
    "Why a link inside is dead; empty where it is alive."
    parts = urlsplit(link)
    target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    target = target / "index.html" if target.is_dir() else target
    if not target.is_relative_to(html):
        return "leaves the site"
    if not target.is_file():
        return "no such file"
    if target.is_relative_to(html / "lite"):
        notebook = parse_qs(parts.query).get("path", [""])[0]
        there = (html / "lite" / "files" / notebook).is_file()
        return "" if there else "no such notebook"
    anchor = unquote(parts.fragment)
    if target in pages and anchor not in pages[target].anchors:
        return "no such anchor"
    return ""


def wrong_outside(link):
    "What is wrong with the form of an address."
    parts = urlsplit(link)
    if parts.scheme in ("data", "mailto", "javascript"):
        return ""
    if parts.scheme not in ("https", "http"):
        return "is neither http nor https"
    host = parts.hostname or ""
    return "" if "." in host and not any(c.isspace() for c in link) else "has no host"


def wrong_call(call):
    "Whether a live example's function is where the page says."
    module, _, name = call.partition(":")
    try:
        return "" if callable(getattr(import_module(module), name, None)) else "no such function"
    except ImportError:
        return "no such module"


def check(html):
    "Counts, the dead links as (page, link, reason), and the addresses outside."
    html = Path(html).resolve()
    pages = read(html)
    dead, outside, inside, calls = [], set(), 0, 0
    for path, page in pages.items():
        where = path.relative_to(html).as_posix()
        for link in sorted(page.named):
            if is_outside(link):
                outside.add(link)
                why = wrong_outside(link)
            else:
                inside += 1
                why = wrong_inside(html, pages, path, link)
            dead += [(where, link, why)] if why else []
        for call in sorted(page.calls):
            calls += 1
            dead += [(where, call, wrong_call(call))] if wrong_call(call) else []
    config = json.loads((html / "_static" / "live.json").read_text(encoding="utf-8"))
    if not (html / "_static" / config["wheel"]).is_file():
        dead.append(("_static/live.json", config["wheel"], "no such file"))
    counted = {"pages": len(pages), "inside": inside, "live examples": calls}
    return counted | {"outside": len(outside)}, dead, sorted(outside)


def silent(link):
    "Why another site does not answer; empty where it does."
    asked = Request(link, headers={"User-Agent": "Mozilla/5.0 (links of a book)"})
    try:
        with urlopen(asked, timeout=20):
            return ""
    except (OSError, HTTPException) as error:
        return str(error)


def said(counted, dead):
    "The counts in a line."
    counts = ", ".join(f"{value:,} {name}" for name, value in counted.items())
    return f"links: {counts}; {len(dead)} dead"


def main(html, *options):
    counted, dead, outside = check(html)
    for where, link, why in dead:
        print(f"{where}: {link} ({why})")
    if "--outside" in options:
        print("\n".join(outside))
    if "--ask" in options:
        asked = [link for link in outside if link.startswith("http")]
        told = [(link, why) for link in asked if (why := silent(link))]
        print("\n".join(f"{link}: {why}" for link, why in told))
        print(f"outside: {len(asked)} asked, {len(told)} do not answer")
        return 1 if told else 0
    print(said(counted, dead))
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
