# SPDX-License-Identifier: Apache-2.0
"""Nothing in a token, name, title or note can become a tag, a script or a request; the policy blocks foreign content;
output files are written completely or not at all."""

import json
import re

import pytest

from lessons import LESSONS
from program import environment, fail, run, succeed

UNTRUSTED = ["</script><img src=x onerror=alert(1)>", "\x1b]0;title\x07", "\u202eevil", "\\input{x}", "=1+1", "a\x00b", "<!--", "\u2028\u2029",
           "&lt;b&gt;", "'\"`${x}", "x" * 300, "", "שלום", "日本語", "👩‍👩‍👧", "__proto__"]


def untrusted_input():
    n = len(UNTRUSTED)
    return {"title": UNTRUSTED[0], "citation": UNTRUSTED[2] + UNTRUSTED[0], "tokens": UNTRUSTED, "X": [[i % 3, 1, i % 2] for i in range(n)],
            "W_query": [[1, 0], [0, 1], [1, 1]], "W_key": [[1, 0], [0, 1], [1, 1]], "W_value": [[1, 2], [0, 1], [1, 1]], "query": "@0",
            "names": {"context": UNTRUSTED[0]}, "notes": {"weights": [UNTRUSTED[0] + UNTRUSTED[2]]}, "errata": [UNTRUSTED[0]]}


def test_untrusted_words_are_shown_as_text(arrays):
    page, data = arrays(untrusted_input())
    assert data["tokens"] == UNTRUSTED
    assert page.evaluate("document.querySelectorAll('img, iframe, object, embed, link[rel=stylesheet], script[src]').length") == 0
    assert page.evaluate("document.scripts.length") == 3
    text = page.evaluate("document.body.innerText")
    for sign in "\x1b\x00\x07\u202e\u2028\u2029":
        assert sign not in text
    assert "\\u{202e}evil" in text and "\\u{1b}]0;title\\u{7}" in text and "a\\u{0}b" in text
    assert "</script><img src=x onerror=alert(1)>" in text and "&lt;b&gt;" in text
    words = page.locator(".sentence .word").all_inner_texts()
    assert words[12:15] == ["שלום", "日本語", "👩‍👩‍👧"] and words[11] == "∅"
    assert all(tag == "BDI" for tag in page.evaluate("[...document.querySelectorAll('.word')].map(w => w.tagName)"))
    assert page.evaluate("getComputedStyle(document.querySelector('.word')).unicodeBidi") == "isolate"
    for i in range(len(UNTRUSTED)):
        page.locator(f'[data-focus="word {i}"]').click()
        assert page.locator(".map tr.chosen").count() == 1
    page.locator('[data-cell="row 0 weights"]').click()
    page.locator('[data-cell="queries 0 0 0"]').click()
    assert page.evaluate("document.querySelectorAll('img').length") == 0


def test_the_file_escapes_everything_that_html_could_read_as_a_tag(pages):
    path, _ = pages.make("explain", "--input", "-", stdin=json.dumps(untrusted_input()).encode())
    html = path.read_text(encoding="utf-8")
    for name in ("explanation", "page"):
        data = re.search(f'<script type="application/json" id="{name}">(.*?)</script>', html, re.DOTALL)[1]
        assert not re.search("[<>&\u2028\u2029\u202e\x00-\x08\x1b]", data)
        json.loads(data)
    assert html.count("<script") == 3 and html.count("</script>") == 3
    assert re.search("<title>(.*)</title>", html)[1].startswith("&lt;/script&gt;&lt;img")


def test_the_policy_blocks_foreign_scripts_and_requests(lesson, pages):
    page, _ = lesson("three-words")
    policy = page.evaluate("document.querySelector('meta[http-equiv=Content-Security-Policy]').content")
    assert re.fullmatch(r"default-src 'none'; script-src 'sha256-[A-Za-z0-9+/]{43}='; style-src 'sha256-[A-Za-z0-9+/]{43}='; img-src data:; "
                        r"base-uri 'none'; form-action 'none'", policy)
    page.evaluate("""() => {
        const script = document.createElement('script'); script.textContent = 'window.intruder = 1'; document.head.append(script);
        const style = document.createElement('style'); style.textContent = 'body { color: rgb(1, 2, 3) !important }'; document.head.append(style);
        document.body.setAttribute('onclick', 'window.intruder = 1'); document.body.click(); }""")
    assert page.evaluate("window.intruder") is None
    assert page.evaluate("getComputedStyle(document.body).color") != "rgb(1, 2, 3)"
    assert len(pages.complaints) >= 2 and all("Content Security Policy" in text for text in pages.complaints)
    pages.complaints.clear()


@pytest.mark.parametrize("name", LESSONS)
def test_no_request_is_made(lesson, name):
    page, _ = lesson(name)
    page.wait_for_timeout(200)
    html = page.content()
    assert "http://" not in re.sub(r'"http://www\.w3\.org/2000/svg"', "", html)
    assert not re.search(r"https://(?!arxiv)", html)


def test_a_page_is_written_completely_or_not_at_all(tmp_path):
    succeed("lesson", "three-words", "--html", "page.html", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    before = (tmp_path / "page.html").read_bytes()
    assert before.startswith(b"<!doctype html>") and before.endswith(b"</html>\n")
    (tmp_path / "folder").mkdir()
    fail(1, "folder", "lesson", "three-words", "--html", "folder", cwd=tmp_path)
    fail(1, "missing", "lesson", "three-words", "--html", "missing/page.html", cwd=tmp_path)
    fail(2, "--html", "lesson", "three-words", "--html", "new.html", "--step", "weights", cwd=tmp_path)
    fail(2, "--html", "lesson", "three-words", "--html", "new.html", "--cell", "0,0", cwd=tmp_path)
    fail(2, ["--html", "--json"], "lesson", "three-words", "--html", "-", "--json", cwd=tmp_path)
    assert (tmp_path / "page.html").read_bytes() == before
    assert succeed("lesson", "three-words", "--html", "-", cwd=tmp_path).startswith(b"<!doctype html>")
    full = run("lesson", "three-words", "--html", "/dev/full", cwd=tmp_path, env=environment())
    assert full.returncode == 1 and full.stderr.count(b"\n") == 1


def test_a_page_states_its_provenance(lesson):
    page, data = lesson("three-words")
    foot = page.locator("footer").inner_text()
    for text in (data["command"], data["version"], data["instruction_set"], *data["settings"]):
        assert text in foot
