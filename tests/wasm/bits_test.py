# SPDX-License-Identifier: Apache-2.0
"""Every result of tests/support/golden_*.h has the bits of the native set generic, in node and in Chromium."""

import base64
import re

import pytest
from playwright.sync_api import sync_playwright

from wasm_module import BYTES_JS, CORE_JS, MODULES, Module, native_answers

CHROMIUM = "/usr/bin/chromium-headless-shell"
GOLDEN = {"do": "golden"}
PINNED = 1611


@pytest.fixture(scope="module")
def native():
    return lines_of(native_answers([GOLDEN])[0])


def lines_of(answer):
    lines = [line.split(" ") for line in answer.strip().split(";") if line]
    assert len(dict(lines)) == len(lines)
    return dict(lines)


def assert_same_bits(got, want):
    assert len(want) >= PINNED
    assert got.keys() == want.keys()
    assert {name: hash for name, hash in got.items() if hash != want[name]} == {}


def test_in_node(native):
    with Module("checks.wasm") as checks:
        assert_same_bits(lines_of(checks.ask(GOLDEN)), native)


def test_in_chromium_from_a_file(native, tmp_path):
    """In a worker, with the loader of live pages."""
    loader = "".join(re.sub(r"^export |^import .*", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE) for path in (BYTES_JS, CORE_JS))
    worker = loader + """
        self.onmessage = ({ data }) => {
          self.postMessage(make_core(new WebAssembly.Module(bytes_of(data))).call(request_text({ do: "golden" })));
        };"""
    module = base64.b64encode((MODULES / "checks.wasm").read_bytes()).decode()
    page_file = tmp_path / "page.html"
    page_file.write_text('<!doctype html><script id="worker" type="text/plain">' + worker +
                         f'</script><script id="module" type="text/plain">{module}</script>', encoding="utf-8")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = chromium.new_page()
        page.goto(page_file.as_uri())
        answer = page.evaluate("""() => new Promise((done, failed) => {
            const text = (name) => document.getElementById(name).textContent;
            const worker = new Worker(URL.createObjectURL(new Blob([text("worker")])));
            worker.onmessage = ({ data }) => done(data);
            worker.onerror = ({ message }) => failed(new Error(message));
            worker.postMessage(text("module"));
        })""")
        chromium.close()
    assert_same_bits(lines_of(answer), native)
