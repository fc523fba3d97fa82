# SPDX-License-Identifier: Apache-2.0
"""Notebook representations of explanations, sentences and comparisons (tables without scripts) and of training runs.

    Explanation         the finding; the weights, with queries down and keys across
    SentenceAnalysis    the findings; one row for each word: q·k, scaled score, weight with its bar, contribution
    Comparison          the findings; one row for each pair of sentences and one for the floor: cosine, layer by layer
    Training            the page of the run, and the findings

Below each table, the page of the result is collapsed in a separate frame. The page makes no network requests, and its
script is confined to the frame, so that a notebook can show several results. Read next: figure.py,
docs/reference/page.md.
"""

from __future__ import annotations

import html
import json

from .figure import _STYLE, Figure, _short, _signed, _visible

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_MAX_PAGE = 4 << 20  # maximum length of a page that is embedded in a notebook, in characters
_MAX_TEXT = 20_000   # maximum length of the text that is shown instead of a table, in characters

_MORE_STYLE = """<style>
.regard-figure .regard-lines td { background: none; min-width: 4em; }
.regard-figure .regard-lines .regard-bar { min-width: 14em; text-align: left; }
.regard-figure .regard-bar i { display: inline-block; height: .8em; background: var(--regard-map); }
.regard-figure .regard-chosen { font-weight: bold; }
.regard-figure summary { cursor: pointer; opacity: .75; }
.regard-figure iframe { width: 100%; height: 640px; border: 0; }
.regard-figure pre { font-size: .9em; line-height: 1.3; }
</style>"""


def in_notebook(result: Any) -> dict[str, str]:
    """The representations of a result that has text(), json() and html()."""
    text, page, found = result.text(), result.html(), json.loads(result.json())
    picture = _sentence(found) if "chosen" in found else _comparison(found) if "pairs" in found else _explanation(found)
    if not picture:
        picture = f"<pre>{_words(text[:_MAX_TEXT])}{' …' if len(text) > _MAX_TEXT else ''}</pre>"
    if len(page) <= _MAX_PAGE:
        picture += (f'<details><summary>step by step</summary><iframe title="Regard" srcdoc="{html.escape(page)}" '
                    'sandbox="allow-scripts"></iframe></details>')
    return {"text/plain": text, "text/html": f'{_STYLE}{_MORE_STYLE}<div class="regard-figure">{picture}</div>'}


def training_in_notebook(training: Any) -> dict[str, str]:
    """The representations of a training run: its page in a separate frame, and its findings as a fallback."""
    page = training.html()
    picture = f'<p class="regard-note">{_words(". ".join(training.findings))}.</p>'
    if len(page) <= _MAX_PAGE:
        picture = (f'<iframe title="Regard: every head at every snapshot" srcdoc="{html.escape(page)}" '
                   f'sandbox="allow-scripts" style="height: 860px"></iframe>{picture}')
    return {"text/plain": training.text(), "text/html": f'{_STYLE}{_MORE_STYLE}<div class="regard-figure">{picture}</div>'}


def _number(value: float, digits: int) -> str:
    """A number in the form that the terminal prints: 0.71, \u22120.44, <0.01."""
    text = f"{value:.{digits}f}"
    if value != 0 and not text.strip("-0."):
        text = f"{'>' if value < 0 else '<'}{text[:-1]}1"
    return _signed(text)


def _words(text: str) -> str:
    return html.escape("\n".join(map(_visible, text.split("\n"))))


def _paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{_words(sentence)}</p>" for sentence in sentences if sentence)


def _table(head: list[str], lines: Iterable[tuple[str, list[str], str]]) -> str:
    """An HTML table. Each element of `lines` contains the text of the row header, the cells and the class attribute."""
    rows = [f'<tr{chosen}><th scope="row"><bdi>{_words(word)}</bdi></th>{"".join(cells)}</tr>' for word, cells, chosen in lines]
    columns = "".join(f'<th scope="col">{_words(word)}</th>' for word in head)
    return f'<table class="regard-lines"><thead><tr>{columns}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _mark(word: dict[str, Any]) -> str:
    return " †" if word["unknown"] else " ‡" if len(word["tokens"]) > 1 and not word["special"] else ""


def _sentence(found: dict[str, Any]) -> str:
    chosen, words, row = found["chosen"], found["words"], found["row"]
    findings = found["findings"]

    def name(word: dict[str, Any]) -> str:
        text: str = word["name"]
        return text + _mark(word)

    # q·k is shown only for words with one piece, because a word with several pieces has several values.
    alone = len(row["queries"]) == 1

    def number(values: list[list[float]], word: dict[str, Any], digits: int) -> str:
        pieces: list[int] = words[word["word"]]["tokens"]
        return f"<td>{html.escape(_number(values[0][pieces[0]], digits))}</td>" if alone and len(pieces) == 1 else "<td></td>"

    def line(word: dict[str, Any]) -> tuple[str, list[str], str]:
        weight = float(word["weight"])
        text = name(words[word["word"]]) + (" *" if word["special"] else "") + (" (hidden)" if word["hidden"] else "")
        cells = [number(row["q_dot_k"], word, 2), number(row["scores"], word, 2),
                 f'<td title="{_signed(f"{weight:.6g}")}">{html.escape(_short(weight))}</td>',
                 f'<td class="regard-bar"><i style="width: {14 * weight:.2f}em"></i></td>', f"<td>{html.escape(_number(word['contribution'], 2))}</td>"]
        return text, cells, ' class="regard-chosen"' if word["word"] == chosen["target"] else ""

    query = f"query {name(words[chosen['word']])}"
    table = _table([query, "q·k", f"÷√{found['model']['head_size']}", "weight", "", "contribution"], map(line, row["words"]))
    said = [_visible(found["text"]), found.get("warning", ""), f"{findings['finding']} {findings['selection']}", findings["evidence"]]
    return (f"{_paragraphs(said)}{table}"
            '<p class="regard-note">* special token; † not in the vocabulary: the model sees [UNK]; ‡ split into pieces; '
            f"contribution: L2 norm, after W_output. {_words(findings['association'])}</p>")


def _comparison(found: dict[str, Any]) -> str:
    def cells(values: list[float]) -> list[str]:
        return [f'<td title="{_signed(f"{float(value):.6g}")}">{html.escape(_number(float(value), 3))}</td>' for value in values]

    def text(sentence: dict[str, Any]) -> str:
        marked = [word["text"] + _mark(word) for word in sentence["words"] if not word["special"]]
        return _words(f"{sentence['name']}: {' '.join(marked)}")

    names = [sentence["name"] for sentence in found["sentences"]]
    lines = []
    for pair in found["pairs"]:
        between = " and ".join(names[one] if isinstance(one, int) else one for one in pair["sentences"])
        lines.append((between, cells(pair["cosine"]), ' class="regard-chosen"'))
        lines += [(f"“{control['word']}”, control", cells(control["cosine"]), "") for control in pair["controls"]]
    lines.append(("other words, floor", cells(found["floor"]), ""))
    sentences = "<br>".join(map(text, found["sentences"]))
    marks = {_mark(word) for sentence in found["sentences"] for word in sentence["words"] if not word["special"]}
    warnings = [f"Note: {one['name']}: {one['warning']}" for one in found["sentences"] if "warning" in one]
    return (f"{_paragraphs(found['findings'])}<p>{sentences}</p>{_table([found['word'], *found['stages']], lines)}"
            '<p class="regard-note">cosine similarity between the vectors of the word in two sentences: 1 means the same direction'
            f"{'; † not in the vocabulary: the model sees [UNK]' * (' †' in marks)}"
            f"{'; ‡ split into pieces: its vector is their mean' * (' ‡' in marks)}</p>{_paragraphs(warnings)}")


def _explanation(found: dict[str, Any]) -> str:
    step = next((step for step in found["steps"] if step["name"] == "weights" and "result" in step), None)
    if step is None:
        return ""
    heads = step["result"] if len(step["shape"]) == 3 else [step["result"]]
    numbers = [[[float(one) for one in row] for row in head] for head in heads]
    labels = [axis.get("labels") or list(map(str, range(axis["count"]))) for axis in (step["rows"], step["columns"])]
    figure = Figure(numbers, labels[0], labels[1], None, (step["rows"]["name"], step["columns"]["name"]))
    return f"{_paragraphs([found.get('title', ''), found.get('finding', '')])}{figure.body()}"
