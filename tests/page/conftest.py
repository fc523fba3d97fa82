# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for the tests of the page (./check page), and pages made by the program (REGARD_PROGRAM).

Every page is watched while a test holds it: a message on the console, an error, or a request to anything but the file
itself fails the test.
"""

import json

import pytest
from playwright.sync_api import sync_playwright

from program import succeed

CHROMIUM = "/usr/bin/chromium-headless-shell"
WHOLE_ROW = "#step=mix"  # a page opens at the first step of its row; here all are taken


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        # Chromium does not run its sandbox as root, and a container may have a tiny /dev/shm.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


class Pages:
    """Creates pages and their --json, each once, and opens them."""

    def __init__(self, browser, folder):
        self.browser = browser
        self.folder = folder
        self.made = {}
        self.contexts = []
        self.complaints = []

    def make(self, *arguments, stdin=b""):
        """The page's path and the --json output of the same command."""
        key = (arguments, stdin)
        if key not in Pages.cache:
            path = self.folder / f"page{len(Pages.cache)}.html"
            data = json.loads(succeed(*arguments, "--html", path, "--json", stdin=stdin))
            Pages.cache[key] = (path, data)
        return Pages.cache[key]

    cache = {}

    def open(self, path, address="", width=1280, height=800, **options):
        context = self.browser.new_context(viewport={"width": width, "height": height}, **options)
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requested(request.url, path))
        page.goto(path.as_uri() + address)
        return page

    def requested(self, url, path):
        if url.split("#")[0] != path.as_uri() and not url.startswith(("data:", "blob:")):
            self.complaints.append(f"request: {url}")

    def close(self):
        for context in self.contexts:
            context.close()
        assert not self.complaints


def go(page, address):
    """Goes to another address of the page and waits until it is drawn: the page's listener was registered first."""
    page.evaluate("""address => new Promise(done => {
        if (location.hash === address) return done();
        addEventListener('hashchange', () => done(), { once: true });
        location.hash = address;
    })""", address)


@pytest.fixture
def pages(browser, folder):
    opened = Pages(browser, folder)
    yield opened
    opened.close()


@pytest.fixture
def lesson(pages):
    """Opens a lesson's page at an address, by default with its whole row: (page, data of --json)."""

    def open_lesson(name, address=WHOLE_ROW, **options):
        path, data = pages.make("lesson", name)
        return pages.open(path, address, **options), data

    return open_lesson


@pytest.fixture
def arrays(pages):
    """Opens the page of an input of `regard explain`, likewise: (page, data of --json)."""

    def open_arrays(matrices, address=WHOLE_ROW, arguments=(), **options):
        path, data = pages.make("explain", "--input", "-", *arguments, stdin=json.dumps(matrices).encode())
        return pages.open(path, address, **options), data

    return open_arrays
