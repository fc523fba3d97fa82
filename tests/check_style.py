# SPDX-License-Identifier: Apache-2.0
"""Style rules that no compiler checks, one per test.

    --list               prints the rules
    RULE                 runs one: prints every violation, with exit status 1
    program PROGRAM      the program's version agrees with the sources
    pkg-config FILE      likewise for a pkg-config file
"""

import importlib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE = (".h", ".cpp", ".c")
SCRIPTS = (".py", ".sh", ".cmake")
MAX_LINES = 800
MAX_README_LINES = 120
MAX_WASM_LINES = 250


def listed():
    """Every file that git would commit."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    return [pathlib.PurePosixPath(name) for name in names if name and (ROOT / name).is_file()]


def text_of(path):
    try:
        return (ROOT / path).read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None


def lines_matching(pattern, paths):
    for path in paths:
        for number, line in enumerate((text_of(path) or "").splitlines(), start=1):
            match = pattern.search(line)
            if match:
                yield f"{path}:{number}: {match.group()}"


def spdx(files):
    """Every source file names the license in its first lines."""
    for path in files:
        if path.suffix in CODE + SCRIPTS or path.name in ("demo", "check", "run"):
            if "SPDX-License-Identifier: Apache-2.0" not in "\n".join((text_of(path) or "").splitlines()[:3]):
                yield f"{path}: no SPDX line"


def promises(files):
    """No comment postpones work."""
    pattern = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
    yield from lines_matching(pattern, [path for path in files if path.suffix not in (".npy", ".png")])


# Phrases that are not standard English in this field, and their replacements.
PHRASES = {
    r"numbers? of (two|four|eight|sixteen) bytes": "16-bit types, 32-bit elements",
    r"(lie|lies|lying|stand|stands) side by side": "contiguous",
    r"mov(e|es|ed|ing) (no|a) bit|chang(e|es|ed|ing) no bit|no bit (moves|changes)": "give identical bits",
    r"there is no use for": "unexpected",
    r"whoever": "the thread, caller or worker that",
    r"telling heads?": "informative head",
    r"yardsticks?": "reference",
    r"rivals?": "competitors, other libraries",
    r"(is|are) believed": "is trusted",
    r"could not be had": "out of memory",
    r"listens? most to|asks every word": "attends to",
    r"parted|parts from": "differ, diverge",
    r"unfold(s|ed|ing)?": "expand",
    r"hostile": "untrusted",
    r"column mass": "key mass",
    r"coarse maps?": "pooled map",
    r"so many further": "that many positions later",
    r"for ever": "indefinitely",
    r"in the place of": "in place of",
    r"for want of": "if it is missing",
    r"set round|round the (text|word|query)s?": "surrounding, around",
    r"slips of the document": "errata",
    r"kMost[A-Z]\w*": "kMax…",
    r"float_weights": "weights_in_float32",
    r"(query|queries|rows?|words?) (asks?|hears?|listens?)": "attends to",
    r"keys? (answers?|speaks?)": "key is attended to",
    r"nobody (has|looks|knows)": "the passive voice",
    r"\w*(ChangeNoBit|change_no_bit)\w*": "DoNotChangeBits",
    r"num_key_heads": "num_kv_heads",
    r"the model's own marks": "special tokens",
    r"a shell is missing": "missing shell name",
    r"\w*(colour|behaviour|neighbour|favour|normalis[ae]|quantis[ae])\w*|labelled|licences?|cent(re|red|res)": "American spelling",
}


def phrases(files):
    """Texts use the terms of the field; data written by programs is not checked."""
    pattern = re.compile(r"\b(" + "|".join(PHRASES) + r")\b", re.IGNORECASE)
    skipped = ("tests/check_style.py", "tests/encoder/", "tests/tokenizer/", "tests/fuzz/corpus/")
    texts = CODE + SCRIPTS + (".md", ".js", ".css", ".pyi", ".html", ".ipynb")
    for path in files:
        if path.suffix in texts and not str(path).startswith(skipped):
            for place in lines_matching(pattern, [path]):
                found = place.rsplit(": ", 1)[1]
                instead = next(right for left, right in PHRASES.items() if re.fullmatch(left, found, re.IGNORECASE))
                yield f"{place}; write: {instead}"


def names(files):
    """Files are named after their contents; C++ files are snake_case."""
    vague = re.compile(r"(^|_)(utils?|helpers?|common|misc|manager)($|_)")
    for path in files:
        for part in path.parts:
            if vague.search(part.split(".")[0]):
                yield f"{path}: a vague name"
        if path.suffix in CODE and not re.fullmatch(r"[a-z0-9_]+", path.stem):
            yield f"{path}: not snake_case"


def lengths(files):
    """Source files are short enough to read in one sitting; the README is a page; comments have at most 120 columns.

    clang-format does not reflow comments, so that drawings survive."""
    for path in files:
        if path.suffix in CODE:
            for number, line in enumerate((text_of(path) or "").splitlines(), start=1):
                if len(line) > 120 and line.lstrip().startswith("//"):
                    yield f"{path}:{number}: a comment of {len(line)} columns, at most 120"
    for path in files:
        if path.suffix in CODE + SCRIPTS:
            count = len((text_of(path) or "").splitlines())
            if count > MAX_LINES:
                yield f"{path}: {count} lines, at most {MAX_LINES}"
    count = len(text_of(pathlib.PurePosixPath("README.md")).splitlines())
    if count > MAX_README_LINES:
        yield f"README.md: {count} lines, at most {MAX_README_LINES}"


def wasm(files):
    """Little code is special to WebAssembly."""
    code = re.compile(r"\s*(//.*)?")
    own = [path for path in files if path.is_relative_to("src/wasm")]
    lines = [line for path in own for line in text_of(path).splitlines()]
    count = sum(not code.fullmatch(line) for line in lines)
    if count > MAX_WASM_LINES:
        yield f"src/wasm: {count} lines of code, at most {MAX_WASM_LINES}"


def opening(files):
    """A C++ file begins with 3 to 20 lines of comment that describe it."""
    for path in files:
        if path.suffix not in CODE or "consumers" in path.parts:
            continue
        count = 0
        for line in (text_of(path) or "").splitlines():
            if not line.startswith(("//", "/*", " *")):
                break
            count += 1
        if not 3 <= count <= 20:
            yield f"{path}: opens with {count} lines of comment"


def places(files):
    """No file names a path or host of a developer's machine."""
    pattern = re.compile(r"/(home|root|work|Users)/\w+|\.\./sha" r"red|/tmp/\w|\blocalhost:\d+\b")
    documented = re.compile(r"/home/you\b")
    texts = [path for path in files if path.name != "check_style.py"]
    yield from (line for line in lines_matching(pattern, texts) if not documented.search(line))


def text_files(files):
    """UTF-8, Unix line ends, no tabs in code, no trailing spaces, a newline at the end."""
    for path in files:
        if "corpus" in path.parts or path.suffix in (".npy", ".safetensors", ".png", ".csv"):
            continue
        text = text_of(path)
        if text is None:
            yield f"{path}: not UTF-8"
        elif text:
            if not text.endswith("\n") or "\r" in text:
                yield f"{path}: not Unix line ends, or no newline at the end"
            if path.suffix in CODE + SCRIPTS and "\t" in text:
                yield f"{path}: a tab"
            if re.search(r"[ \t]$", text, re.MULTILINE) and path.name != "LICENSE":
                yield f"{path}: trailing spaces"


def links(files):
    """Every file that a document links to exists, and every document is reachable from docs/README.md."""
    known = {str(path) for path in files} | {str(parent) for path in files for parent in path.parents}
    targets = {}
    for path in files:
        if path.suffix == ".md":
            targets[str(path)] = []
            for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text_of(path)):
                joined = pathlib.PurePosixPath(path.parent, target)
                parts = []
                for part in joined.parts:
                    parts = parts[:-1] if part == ".." else parts + [part]
                targets[str(path)].append("/".join(parts))
                if targets[str(path)][-1] not in known:
                    yield f"{path}: {target} does not exist"
    reached, waiting = set(), ["docs/README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += targets.get(page, [])
    for page in targets:
        if page.startswith("docs/") and page not in reached:
            yield f"{page}: not reachable from docs/README.md"


def performance(files):
    """The performance pages are those that bench/run_benchmarks generates, and the overview stays short."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(ROOT / "bench"))
    report = importlib.import_module("report")
    pages = report.pages(ROOT)
    for path in sorted(set(pages) | report.written(ROOT)):
        if path not in pages:
            yield f"{path}: not generated from bench/results/*.json"
        elif not (ROOT / path).exists() or text_of(path) != pages[path]:
            yield f"{path}: differs from the JSON files; run bench/run_benchmarks --write-docs"
    count = len(pages["docs/performance/README.md"].splitlines())
    if count > MAX_README_LINES:
        yield f"docs/performance/README.md: {count} lines, at most {MAX_README_LINES}"


def dead_comments(files):
    """No commented-out code."""
    pattern = re.compile(r"^\s+//\s*(if \(.*\) \{|for \(.*\) \{|return .*;|#include .*|\w+\(.*\);)\s*$")
    yield from lines_matching(pattern, [path for path in files if path.suffix in CODE])


def declared_version():
    match = re.search(r"project\(regard VERSION (\d+\.\d+\.\d+)", text_of(pathlib.PurePosixPath("CMakeLists.txt")))
    return match.group(1)


def version(files):
    """CMakeLists.txt holds the version; CHANGELOG.md and CITATION.cff agree, and no source repeats it."""
    number = declared_version()
    latest = re.search(r"^## (\d+\.\d+\.\d+)", text_of(pathlib.PurePosixPath("CHANGELOG.md")), re.MULTILINE)
    if not latest or latest.group(1) != number:
        yield f"CHANGELOG.md: the first section is not {number}"
    if f"version: {number}\n" not in text_of(pathlib.PurePosixPath("CITATION.cff")):
        yield f"CITATION.cff: the version is not {number}"
    literal = re.compile(r'"' + re.escape(number) + r'"')
    sources = [path for path in files if path.suffix == ".cpp" and path.parts[0] in ("src", "cli")]
    yield from (line + " (take it from regard::version())" for line in lines_matching(literal, sources))


RULES = (spdx, promises, phrases, names, lengths, wasm, opening, places, text_files, links, performance, dead_comments,
         version)


def agrees(name, text):
    if re.search(r"(?<![\d.])" + re.escape(declared_version()) + r"(?![\d.])", text):
        return 0
    print(f"{name}: {declared_version()} not in:\n{text}")
    return 1


def main():
    if sys.argv[1] == "--list":
        print(" ".join(rule.__name__ for rule in RULES))
        return 0
    if sys.argv[1] == "program":
        printed = subprocess.run([sys.argv[2], "--version"], check=True, capture_output=True, text=True).stdout
        return agrees("--version", printed)
    if sys.argv[1] == "pkg-config":
        return agrees(sys.argv[2], pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
    rule = {rule.__name__: rule for rule in RULES}[sys.argv[1]]
    faults = list(rule(listed()))
    print("\n".join(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
