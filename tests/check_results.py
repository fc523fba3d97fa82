# SPDX-License-Identifier: Apache-2.0
"""Evaluates the results of ./check (JUnit files of ctest and pytest).

    count FILE   prints `passed failed skipped` of one run; a skip that tests/allowed_skips.txt does not list fails
    whole WORK   fails if no target of the last ./check in WORK ran some test file of the repository

Read next: ../check.
"""

import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

TESTS = pathlib.Path(__file__).resolve().parent


def allowed_reasons():
    lines = (TESTS / "allowed_skips.txt").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def count(path):
    reasons = allowed_reasons()
    passed = failed = skipped = 0
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        status = case.get("status", "run")
        if case.find("failure") is not None or case.find("error") is not None or status == "fail":
            failed += 1
        elif case.find("skipped") is not None or status in ("notrun", "disabled"):
            text = " ".join(filter(None, [node.get("message", "") + " " + (node.text or "") for node in case]))
            if any(re.search(rf"{re.escape(reason)}\b", text) for reason in reasons):
                skipped += 1
            else:
                failed += 1
                print(f"skipped, but not listed in tests/allowed_skips.txt: {case.get('name')}: {text.strip()[:200]}", file=sys.stderr)
        else:
            passed += 1
    print(passed, failed, skipped)


def names_run_by_ctest(build):
    """The programs and scripts that tests run, and the sources of their cases (each case is labeled with its stem)."""
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True)
    tests = json.loads(listing.stdout)["tests"]
    names = {pathlib.Path(word).name for test in tests for word in test.get("command", [])}
    for test in tests:
        if any(word.startswith("--gtest_filter=") for word in test.get("command", [])):
            names.update(f"{label}_test" for item in test["properties"] if item["name"] == "LABELS" for label in item["value"])
    return names


def files_run_by_pytest(report):
    names = set()
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        names.update(part + ".py" for part in case.get("classname", "").split("."))
    return names


def whole(work):
    run_by_ctest = names_run_by_ctest(work / "release")
    run_by_pytest = set().union(*(files_run_by_pytest(work / "results" / name) for name in ("python.xml", "frameworks.xml", "page.xml", "wasm.xml", "mpi.xml")))
    replayed = {path.stem for path in (work / "logs").glob("*_fuzz.log")}
    unrun = [path for path in TESTS.rglob("*_test.c*") if path.stem not in run_by_ctest]
    unrun += [path for path in TESTS.rglob("*_test.py") if path.name not in run_by_pytest]
    unrun += [path for path in TESTS.rglob("*_fuzz.cpp") if path.stem not in replayed]
    unrun += [path for path in (TESTS / "fuzz" / "corpus").iterdir() if f"{path.name}_fuzz" not in replayed]
    unrun += [path for path in TESTS.rglob("check_*.py") if path.name not in run_by_ctest | {
        "check_results.py", "check_style.py", "check_layers.py"}]
    unrun += [path for path in (TESTS / "consumers").iterdir() if path.is_dir() and path.name not in run_by_ctest]
    for path in unrun:
        print(f"no target runs {path.relative_to(TESTS.parent)}")
    return 1 if unrun else 0


if __name__ == "__main__":
    if sys.argv[1] == "count":
        count(sys.argv[2])
    else:
        sys.exit(whole(pathlib.Path(sys.argv[2])))
