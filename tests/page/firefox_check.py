# SPDX-License-Identifier: Apache-2.0
"""A live page in Debian's Firefox (./check slow): it opens from a file, answers while one types, hides a word, and recomputes a
lesson. What it shows is what the program prints. Firefox is driven through Marionette, its own protocol: one JSON array a
message, preceded by its length."""

import json
import os
import socket
import subprocess
import time

import pytest

from live_numbers_test import check_steps, explained, exported
from live_page import write_live_page
from program import environment, succeed
from sentence_model import make_folder
from sentence_page_test import check_row

TEXT = "he sat on the bank of the river"
GENERIC = {**environment(), "REGARD_FORCE_ISA": "generic"}
PATIENCE = 20  # seconds
# Nothing is sent, asked or updated.
PREFERENCES = {"app.update.enabled": False, "browser.shell.checkDefaultBrowser": False, "browser.startup.page": 0,
               "datareporting.policy.dataSubmissionEnabled": False, "marionette.port": 0}
END = "\ue010"


class Firefox:
    """The part of a Playwright page that the checks need."""

    def __init__(self, folder):
        (folder / "user.js").write_text("".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
                                                for name, value in PREFERENCES.items()))
        # Its sandbox cannot be made in a container.
        self.process = subprocess.Popen(["firefox-esr", "--headless", "--marionette", "--no-remote", "--profile", folder],
                                        env={**os.environ, "HOME": str(folder), "MOZ_DISABLE_CONTENT_SANDBOX": "1"},
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.number = 0
        self.port = folder / "MarionetteActivePort"

    def connect(self):
        wait(lambda: self.port.exists() and self.port.read_text())
        self.socket = socket.create_connection(("127.0.0.1", int(self.port.read_text())), timeout=PATIENCE)
        self.stream = self.socket.makefile("rb")
        self.read()
        self.call("WebDriver:NewSession")

    def read(self):
        size = b""
        while (digit := self.stream.read(1)) != b":":
            assert digit, "Firefox has closed the connection"
            size += digit
        return json.loads(self.stream.read(int(size)))

    def call(self, name, **arguments):
        self.number += 1
        message = json.dumps([0, self.number, name, arguments]).encode()
        self.socket.sendall(b"%d:%s" % (len(message), message))
        _, number, error, result = self.read()
        assert number == self.number
        assert error is None, error
        return result

    def goto(self, address):
        self.call("WebDriver:Navigate", url=address)

    def evaluate(self, function, argument=None):
        return self.call("WebDriver:ExecuteScript", script=f"return ({function})(...arguments)", args=[argument])["value"]

    def wait_for(self, function, argument=None):
        wait(lambda: self.evaluate(function, argument))

    def type(self, selector, keys):
        element = self.call("WebDriver:FindElement", using="css selector", value=selector)["value"]
        self.call("WebDriver:ElementSendKeys", id=next(iter(element.values())), text=keys)

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


def wait(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(name="firefox", scope="module")
def fixture_firefox(tmp_path_factory):
    browser = Firefox(tmp_path_factory.mktemp("firefox"))
    try:
        browser.connect()
        yield browser
    finally:
        browser.close()


@pytest.fixture(name="model", scope="module")
def fixture_model(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(name="page")
def fixture_page(firefox, model, tmp_path):
    path = write_live_page(tmp_path / "live.html", model, TEXT, "--query", "bank")
    firefox.goto(path.as_uri() + "#step=mix")
    firefox.wait_for("() => document.querySelector('.typing[contenteditable]') !== null")
    return firefox


def check_shown(page, model, text, *arguments):
    layer, head = page.evaluate("""() => ['Layer', 'Head'].map(name =>
        document.querySelector(`[data-focus^="${name}"][aria-pressed=true]`).innerText)""")
    printed = succeed("explain", text, "--model", model, "--json", "--query", "bank", "--layer", layer, "--head", head, *arguments,
                      env=GENERIC)
    check_row(page, json.loads(printed))


def test_typing_and_hiding_show_what_the_program_prints(page, model):
    check_shown(page, model, TEXT)
    text = TEXT
    for letters in (" at", " dawn"):
        page.type(".typing", END + letters)
        text += letters
        page.wait_for("text => document.title === text", text)
        check_shown(page, model, text)
    page.evaluate("() => document.querySelector('[data-word=\"8\"]').focus()")
    page.type('[data-word="8"]', "x")
    page.wait_for("() => document.querySelector('[data-word=\"8\"] .share').textContent === 'hidden'")
    check_shown(page, model, text, "--hide", "river")
    assert "→ hidden" in page.evaluate("() => document.querySelector('.live-change').textContent")


def test_a_number_of_a_lesson_can_be_edited(page):
    page.goto(page.evaluate("() => location.href.split('#')[0]") + "#lesson=three-words&step=mix")
    page.call("WebDriver:Refresh")
    page.wait_for("() => document.querySelector('.given') && !document.querySelector('.waiting')")
    page.type(".given", "3\n")
    page.wait_for("() => document.querySelector('.changes').textContent.includes('1 number changed')")
    page.wait_for("() => !document.querySelector('main').hasAttribute('aria-busy')")
    lesson = exported("three-words")
    _, _, _, row, column, name = page.evaluate("() => document.querySelector('.given').dataset.focus").split()
    assert lesson[name][int(row)][int(column)] != 3
    lesson[name][int(row)][int(column)] = 3
    check_steps(page, explained(lesson))
