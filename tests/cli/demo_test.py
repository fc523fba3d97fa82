# SPDX-License-Identifier: Apache-2.0
"""./demo without the model, in a copy of the repository's root whose build is already done: what it trains, which page it
writes, and how it ends when it is interrupted. A stub of the program records the commands that ./demo gives."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from program import PROGRAM, environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUB = """#!/bin/sh
printf '%s|' "$@" >>"$(dirname "$0")/commands"
echo >>"$(dirname "$0")/commands"
for argument; do [ "$page" = next ] && page=$argument; [ "$argument" != --watch ] || page=next; done
[ -z "$page" ] || echo 'the page' >"$page"
[ "$1" != pull ] || exit "${PULL_STATUS-1}"
echo 'the story'
"""
SHORT = ("--steps", "4", "--batch", "2", "--width", "16")


@pytest.fixture(name="root")
def fixture_root(tmp_path):
    """A root in which nothing is to be built; build/regard is the program, or the stub after use_stub()."""
    root = tmp_path / "root"
    (root / ".ci").mkdir(parents=True)
    (root / "build").mkdir()
    shutil.copy(ROOT / "demo", root)
    (root / ".ci" / "packages.sh").write_text("install_packages() { :; }\n")
    (root / "build" / "build.ninja").write_text("build regard_program: phony\n")
    (root / "build" / "CMakeCache.txt").write_text(
        f"CMAKE_HOME_DIRECTORY:INTERNAL={root}\nCMAKE_BUILD_TYPE:STRING=Release\nREGARD_LIVE:BOOL=ON\n")
    (root / "build" / "regard").symlink_to(PROGRAM)
    return root


def use_stub(root):
    (root / "build" / "regard").unlink()
    (root / "build" / "regard").write_text(STUB)
    (root / "build" / "regard").chmod(0o755)


def demo(root, *arguments, **changes):
    done = subprocess.run([root / "demo", *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=root.parent,
                          env=environment(REGARD_CACHE=str(root / "cache"), LC_ALL="C.UTF-8", **changes))
    done.stderr = done.stderr.removeprefix("ninja: no work to do.\n")
    return done


def commands(root):
    return [line.split("|")[:-1] for line in (root / "build" / "commands").read_text().splitlines()]


def test_offline_trains_a_model_and_names_its_page_and_the_lessons(root):
    done = demo(root, "--offline", *SHORT)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "induction: 2 layers × 2 heads, 4 steps" in done.stdout
    page = root / "build" / "head.html"
    assert page.read_text().startswith("<!")
    assert done.stdout.splitlines()[-2].startswith(f"  page   file://{page}")
    assert done.stdout.splitlines()[-1] == "  basics build/regard lesson   documents about attention, number by number"


def test_html_selects_the_page_and_json_prints_only_data(root):
    use_stub(root)
    train = ["train", "--task", "induction"]
    for option in (("--html", "my page.html"), ("--html=my page.html",)):
        done = demo(root, *option, "--offline", "--seed", "3")
        assert commands(root)[-1] == [*train, "--watch", "my page.html", "--seed", "3"]
        assert "  basics " in done.stdout
    done = demo(root, "--offline", "--json")
    assert commands(root)[-1] == [*train, "--json"] and done.stdout == "the story\n"
    demo(root, "--offline", "--json", "--html", "page.html")
    assert commands(root)[-1] == [*train, "--watch", "page.html", "--json"]
    done = demo(root, "--offline", "--html", "-")
    assert done.stdout == "the page\n" and done.stderr == "the story\n"


def test_without_a_network_the_small_model_is_trained_instead(root):
    use_stub(root)
    done = demo(root, "my sentence", "WORD", "--query", "WORD", "--color", "never", "--html", "page.html")
    assert commands(root) == [["pull", "minilm"],
                              ["train", "--task", "induction", "--watch", "page.html", "--color", "never"]]
    assert done.returncode == 0 and "No model; training a small one instead" in done.stderr
    assert done.stdout.startswith("the story\n  basics ")


def test_the_live_page_is_the_page_unless_another_is_asked_for(root):
    use_stub(root)
    model = root / "cache" / "models" / "minilm"
    model.mkdir(parents=True)
    (model / "model.safetensors").touch()
    live = str(root / "build" / "live.html")
    done = demo(root)
    assert [line[0] for line in commands(root)] == ["explain", "live"]
    assert "--html" not in commands(root)[0] and commands(root)[1] == ["live", "-o", live]
    assert done.stdout.splitlines()[-1].startswith("  yours  ./demo ")
    demo(root, "my sentence", "WORD")
    assert commands(root)[-1] == ["live", "-o", live, "--query", "WORD", "--", "my sentence"]
    demo(root, "my sentence", "--html", "page.html")
    assert commands(root)[-1] == ["explain", "--html", "page.html", "--", "my sentence"]
    demo(root, "my sentence", "--model", "folder")
    assert commands(root)[-1] == ["explain", "--model", "folder", "--html", str(root / "build" / "yours.html"), "--", "my sentence"]
    demo(root, "--json")
    assert commands(root)[-1][0] == "explain" and "--html" not in commands(root)[-1]


def test_an_interrupted_download_ends_the_demo(root):
    use_stub(root)
    done = demo(root, PULL_STATUS="130")
    assert done.returncode == 130 and commands(root) == [["pull", "minilm"]]
    assert done.stdout == "" and "training" not in done.stderr


def test_options_of_lessons_and_help_run_no_training(root):
    use_stub(root)
    for arguments, command in ((["--step", "weights"], ["lesson", "three-words", "--step", "weights"]),
                               (["--offline", "--cell", "0,1"], ["lesson", "three-words", "--cell", "0,1"]),
                               (["--offline", "--help"], ["train", "--help"]), (["--help"], ["explain", "--help"])):
        demo(root, *arguments)
        assert commands(root)[-1] == command


def test_an_interrupted_training_writes_the_page_of_the_steps_so_far(root):
    run = root / "run"
    with subprocess.Popen([root / "demo", "--offline", *SHORT[2:], "--steps", "100000", "--run", run, "--checkpoint-every", "1"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), start_new_session=True) as running:
        while running.poll() is None and not list(run.glob("step-*")):
            time.sleep(0.005)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130, (out, err)
    assert b"basics" not in out and b"stopped" in err
    assert (root / "build" / "head.html").read_text().startswith("<!")
