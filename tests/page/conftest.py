# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for the tests of the page (./check page), and pages made by the program (REGARD_PROGRAM).

Every page is watched while a test holds it: a message on the console, an error, or a request to anything but the file
itself fails the test.
"""

import functools
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


@pytest.fixture(scope="session")
def idle_tabs():
    """Tabs without a page. A new tab costs a renderer process, so that tests hand theirs on."""
    return []


class Tab:
    """A tab of the browser: what its page writes to the console, its errors and its requests are complaints."""

    def __init__(self, context):
        self.page = context.new_page()
        self.page.set_default_timeout(10_000)
        # On a timer: the default, each frame, makes the page draw frames while it works.
        self.page.wait_for_function = functools.partial(self.page.wait_for_function, polling=50)
        self.path = None
        self.complaints = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requested(request.url))

    def requested(self, url):
        if url.split("#")[0] not in (self.path.as_uri(), "about:blank") and not url.startswith(("data:", "blob:")):
            self.complaints.append(f"request: {url}")


class Pages:
    """Creates pages and their --json, each once, and opens them."""

    def __init__(self, browser, folder, idle_tabs):
        self.browser = browser
        self.folder = folder
        self.idle_tabs = idle_tabs
        self.tabs = []
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

    def open(self, path, address="", width=1280, height=800, color_scheme="light", reduced_motion="no-preference", **options):
        if options:
            tab = Tab(self.browser.new_context(**options))
            self.contexts.append(tab.page.context)
        else:
            tab = self.idle_tabs.pop() if self.idle_tabs else Tab(self.browser.new_context())
            self.tabs.append(tab)
        tab.path, tab.complaints = path, self.complaints
        tab.page.set_viewport_size({"width": width, "height": height})
        tab.page.emulate_media(media="null", color_scheme=color_scheme, reduced_motion=reduced_motion)
        tab.page.goto(path.as_uri() + address)
        return tab.page

    def hand_back(self, page):
        """Another page can be opened in the tab of this one."""
        tab = next(tab for tab in self.tabs if tab.page is page)
        page.goto("about:blank")
        page.mouse.move(0, 0)
        self.tabs.remove(tab)
        self.idle_tabs.append(tab)

    def close(self, failed):
        """After a failure no tab is used again."""
        for tab in list(self.tabs):
            if failed:
                tab.page.context.close()
            else:
                self.hand_back(tab.page)
        for context in self.contexts:
            context.close()
        assert not self.complaints


# Goes to another address of the page and waits until it is drawn: the page's listener was registered first.
GO = """address => new Promise(done => {
    if (location.hash === address) return done();
    addEventListener('hashchange', () => done(), { once: true });
    location.hash = address;
})"""


def go(page, address):
    page.evaluate(GO, address)


@pytest.fixture
def pages(browser, folder, idle_tabs, request):
    failures = request.session.testsfailed
    opened = Pages(browser, folder, idle_tabs)
    yield opened
    opened.close(request.session.testsfailed > failures)


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
