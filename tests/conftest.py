"""What several test files share: the built book, served on this machine, and a Chromium."""

import shutil
import signal
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import hypothesis
import pytest

from tests.long import cases
from tests.tree import ROOT, alone, make

# In the background of a shell Ctrl-C is ignored, and so it would be by all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Two workers share the cores with a browser: a slow example is not a failure.
hypothesis.settings.register_profile("serving_or", deadline=None, max_examples=cases(2000, 100))
hypothesis.settings.load_profile("serving_or")


@pytest.fixture(scope="session")
def book():
    """The folder of the built pages, brought up to date by the first who asks."""
    with alone("book"):
        code, said = make("book")
    assert code == 0, said[-4000:]
    return ROOT / "book" / "_build" / "html"


class Quiet(SimpleHTTPRequestHandler):
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def site(book):
    """The address of the book on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=book))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, driven by Playwright."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if not chromium:
        pytest.skip("skipped: no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox", *quiet])
        yield browser
        browser.close()


def pytest_terminal_summary(terminalreporter):
    """How many calls the fuzz tests have made."""
    reports = [r for some in terminalreporter.stats.values() for r in some]
    calls = [r for r in reports if getattr(r, "when", None) == "call"]
    for name, what in TOLD.items():
        told = [value for r in calls for key, value in r.user_properties if key == name]
        if told:
            terminalreporter.write_line(what.format(sum(told)))


# what tests count, by the name under which they record it
TOLD = {
    "calls": "front doors: {:,} calls with bad or extreme input",
    "cases": "files and command lines: {:,} cases of spoiled or hostile input",
}
