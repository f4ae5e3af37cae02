"""The README's picture: the first screen of the built book, with its example moved.

    python book/_ext/picture.py [HTML [PNG]]

needs Chromium, and the book (`make book`); `make picture` does both.
"""

import shutil
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT = 1280, 720
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# a jump that lasts for six steps
JUMP, AT = '.live [name="length"]', "5"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def take(page, address, to):
    "Write the picture of a page at an address, once its example has answered."
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    page.emulate_media(color_scheme="light")
    page.goto(address)
    page.wait_for_selector(".live.on")
    page.locator(JUMP).first.fill(AT)
    page.wait_for_function("document.querySelector('.live-out').textContent.includes('6 steps')")
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=to)


def main(html=ROOT / "book/_build/html", to=ROOT / "book/_static/page.png"):
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if not chromium:
        sys.exit("make picture needs Chromium")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=html))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        address = f"http://127.0.0.1:{server.server_port}/book/index.html"
        take(browser.new_page(), address, to)
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:3])
