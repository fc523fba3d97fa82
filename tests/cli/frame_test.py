# SPDX-License-Identifier: Apache-2.0
"""What the subcommands of `regard` share: help, version, usage errors, standard output that is closed, full or has no
reader, and the environment."""

import json
import os
import pty
import re
import subprocess

import numpy as np
import pytest

from program import PROGRAM, environment, fail, run, succeed

SUBCOMMANDS = ["attend", "explain", "compare", "heads", "train", "generate", "embed", "join", "similar",
               "lesson", "live", "pull", "plan", "bench", "info", "completion", "manpage"]


# ---- help and version


@pytest.mark.parametrize("command", [[], *[[name] for name in SUBCOMMANDS]])
def test_help_fits_the_screen_and_has_examples(command):
    text = succeed(*command, "--help").decode()
    assert text == succeed(*command, "-h").decode()
    assert "EXAMPLES\n  regard" in text
    assert not [line for line in text.splitlines() if len(line) > 80]
    assert "\n\n\n" not in text


def test_without_arguments_the_help_is_shown():
    assert succeed() == succeed("--help")
    listed = succeed().decode().split("Subcommands:\n")[1].split("\n\n")[0]
    assert re.findall("^  ([a-z]+) ", listed, re.MULTILINE) == SUBCOMMANDS


def test_help_examples_name_options_that_exist():
    options = {name: set(re.findall(r"--[a-z][a-z-]*", succeed(name, "--help").decode().split("EXAMPLES\n")[0]))
               for name in SUBCOMMANDS}
    checked = set()
    for name in [None, *SUBCOMMANDS]:
        examples = succeed(*([name] if name else []), "--help").decode().split("EXAMPLES\n")[1]
        for command in re.findall(r"\bregard ([^|\n]*)", examples):
            subcommand = command.split()[0]
            used = set(re.findall(r"--[a-z][a-z-]*", command.split("  ")[0]))
            assert used <= options[subcommand], (command, used - options[subcommand])
            checked.add(subcommand)
    assert checked == set(SUBCOMMANDS)


def test_version_names_commit_compiler_and_instruction_sets():
    text = succeed("--version").decode()
    assert re.fullmatch(r"regard \d+\.\d+\.\d+\ncommit ([0-9a-f]{12}\+?|unknown)\ncompiler (g\+\+|clang) [\d.]+\n"
                        r"instruction sets generic.*\(active\).*\n", text), text


def test_info_text_agrees_with_its_json():
    info = json.loads(succeed("info", "--json"))
    assert list(info)[0] == "schema" and info["schema"] == "regard/1"
    assert info["command"] == "regard info --json"
    sets = info["instruction_sets"]
    assert [s["name"] for s in sets if s["active"]] == [info["instruction_set"]]
    assert sets[0]["name"] == "generic" and sets[0]["available"]
    assert info["threads"] >= 1 and info["memory_bytes"] > 2**20
    for cache in info["caches"]:
        assert cache["level"] >= 1 and cache["bytes"] >= 1024
    text = succeed("info").decode()
    assert f"version           {info['version']}\n" in text and f"commit            {info['commit']}\n" in text
    assert f"compiler          {info['compiler']}\n" in text and f"threads           {info['threads']}\n" in text
    assert re.search(rf"\b{info['instruction_set']} +active\n", text)
    assert "peaks" not in info and "GFLOP" not in text


def test_info_measures_peaks_on_request():
    info = json.loads(succeed("info", "--peaks", "--json"))
    peaks = info["peaks"]
    assert list(peaks) == ["threads", "fma_gflops", "bf16_dot_gflops", "read"]
    assert peaks["threads"] == [1] if info["threads"] == 1 else peaks["threads"] == [1, info["threads"]]

    def are_rates(rates):
        return len(rates) == len(peaks["threads"]) and all(0 < rate < float("inf") for rate in rates)

    assert are_rates(peaks["fma_gflops"])
    has_dot = info["instruction_set"] == "avx512_bf16"
    assert are_rates(peaks["bf16_dot_gflops"]) if has_dot else peaks["bf16_dot_gflops"] is None
    assert [read["place"] for read in peaks["read"]] == ["L2", "L3", "memory"]
    for read in peaks["read"]:
        assert list(read) == ["place", "bytes_per_thread", "gigabytes_per_second"]
        assert len(read["bytes_per_thread"]) == len(peaks["threads"])
        # 0 and null if the system does not report the size of the cache.
        for size, rate in zip(read["bytes_per_thread"], read["gigabytes_per_second"]):
            assert rate is None if size == 0 else 0 < rate < float("inf")
    assert peaks["read"][2]["bytes_per_thread"][0] >= 2**20


def test_peaks_refer_to_the_active_instruction_set_and_threads():
    env = environment(REGARD_FORCE_ISA="generic", REGARD_THREADS="1")
    peaks = json.loads(succeed("info", "--peaks", "--json", env=env))["peaks"]
    assert peaks["threads"] == [1] and peaks["bf16_dot_gflops"] is None
    env = environment(REGARD_FORCE_ISA="generic", REGARD_THREADS="3")
    text = succeed("info", "--peaks", env=env).decode()
    table = text.split("\npeaks ")[1].splitlines()
    assert table[0].split() == ["1", "thread", "3", "threads"]
    rows = [re.fullmatch(r"  ([a-zA-Z0-9 -]+?)( +([0-9.]+|-)){2}   (GFLOP/s, float, from registers|GB/s.*)", line)
            for line in table[1:-1]]
    assert [row[1] for row in rows] == ["multiply-add", "read L2", "read L3", "read memory"]
    assert table[-1].endswith("lowers these figures.")


# ---- usage errors

USAGE = [
    (["--nonsense"], "unknown option --nonsense; see regard --help"),
    (["-x"], "unknown option -x; see regard --help"),
    (["nonsense"], 'unknown subcommand "nonsense"; see regard --help'),
    ([""], 'unknown subcommand ""'),
    (["--"], "missing subcommand"),
    (["--", "info"], "missing subcommand"),
    (["info", "--nonsense"], "unknown option --nonsense; see regard info --help"),
    (["info", "--jsno"], "unknown option --jsno (did you mean --json?); see regard info --help"),
    (["info", "--" + "json" * 10000], "; see regard info --help"),
    (["lessons"], 'unknown subcommand "lessons" (did you mean lesson?); see regard --help'),
    (["ingo"], 'unknown subcommand "ingo" (did you mean info?); see regard --help'),
    (["info", "surplus"], "surplus"),
    (["info", ""], "see regard info --help"),
    (["info", "attend"], "attend"),
    (["info", "-3"], "-3"),
    (["info", "--", "--json"], "--json"),
    (["info", "--json=1"], "--json takes no value"),
    (["info", "--json", "--json\x1b[2J"], "unknown option --json\\u{1b}[2J"),
    (["--version=2"], "--version takes no value"),
]


@pytest.mark.parametrize("arguments, words", USAGE)
def test_usage_errors_are_reported(tmp_path, arguments, words):
    fail(2, words, *arguments, cwd=tmp_path)


def test_two_dashes_end_the_options(tmp_path):
    assert succeed("info", "--json", "--").startswith(b"{")
    fail(2, "--json", "info", "--", "--json", cwd=tmp_path)


# ---- standard output and input


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["info"], ["info", "--json"], ["attend", "--help"]])
def test_full_closed_or_unread_standard_output_is_an_error(arguments):
    with open("/dev/full", "wb") as full:
        done = run(*arguments, stdout=full)
    assert (done.returncode, done.stderr) == (1, b"regard: cannot write to standard output: No space left on device\n")
    done = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', PROGRAM, *arguments], stderr=subprocess.PIPE,
                          env=environment(), timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"regard: standard output is closed; there is nowhere to write\n")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = run(*arguments, stdout=pipe)
    assert (done.returncode, done.stderr) == (1, b"")


def test_files_do_not_get_closed_standard_descriptors(tmp_path):
    # With all three closed, the first files opened would get their numbers, and messages would be written to them.
    for name, shape in {"q": (4, 3), "k": (6, 3), "v": (6, 5)}.items():
        np.save(tmp_path / f"{name}.npy", np.ones(shape, np.float32))
    arrays = "--key k.npy --value v.npy"
    command = f'"$0" attend --query q.npy {arrays} -o out.npy <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", command, PROGRAM], cwd=tmp_path, env=environment(), timeout=60,
                          check=False).returncode == 0
    assert np.array_equal(np.load(tmp_path / "out.npy"), np.ones((4, 5)))
    done = subprocess.run(["sh", "-c", f'"$0" attend --query - {arrays} -o out.npy <&-', PROGRAM], cwd=tmp_path,
                          env=environment(), timeout=60, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"regard: standard input: cannot be read: it is closed\n")


def on_terminal(*arguments, **changes):
    """The exit code, the output to a terminal as standard output, and standard error."""
    terminal, program_side = pty.openpty()
    with subprocess.Popen([PROGRAM, *arguments], stdin=program_side, stdout=program_side, stderr=subprocess.PIPE,
                          env=environment(**changes)) as process:
        os.close(program_side)
        shown = b""
        while True:
            try:
                piece = os.read(terminal, 65536)
            except OSError:  # Linux: the other side is closed
                break
            if not piece:
                break
            shown += piece
        os.close(terminal)
        return process.wait(60), shown, process.stderr.read()


def test_color_is_used_on_terminals_unless_disabled():
    def colored(shown):
        return b"\x1b[" in shown

    lesson = ("lesson", "three-words")
    assert colored(on_terminal(*lesson, TERM="xterm")[1])
    for changes in ({"TERM": "dumb"}, {"TERM": None}, {"TERM": ""}, {"TERM": "xterm", "NO_COLOR": "1"}):
        code, shown, _ = on_terminal(*lesson, **changes)
        assert code == 0 and shown and not colored(shown)
    assert colored(on_terminal(*lesson, TERM="xterm", NO_COLOR="")[1])
    assert colored(on_terminal(*lesson, "--color", "always", TERM="dumb", NO_COLOR="1")[1])
    assert colored(succeed(*lesson, "--color=always"))
    assert not colored(on_terminal(*lesson, "--color", "never", TERM="xterm")[1])
    assert not colored(succeed(*lesson, env=environment(TERM="xterm")))


def test_other_values_of_color_are_rejected(tmp_path):
    fail(2, '--color is "sometimes"; expected auto, always or never', "lesson", "three-words", "--color", "sometimes",
         cwd=tmp_path)


def test_binary_data_is_neither_written_to_nor_read_from_a_terminal(tmp_path):
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.ones((2, 2), np.float32))
    arrays = [word for name in ("query", "key", "value") for word in ("--" + name, str(tmp_path / f"{name[0]}.npy"))]
    code, shown, error = on_terminal("attend", *arrays, "-o", "-")
    assert (code, shown) == (2, b"") and b"--output - would write binary data to the terminal" in error
    code, shown, error = on_terminal("attend", "--query", "-", *arrays[2:], "-o", str(tmp_path / "out.npy"))
    assert (code, shown) == (2, b"") and b"--query - would read a binary file from the terminal" in error
    assert not (tmp_path / "out.npy").exists()


# ---- the environment


def test_the_decimal_point_is_the_same_in_every_locale(tmp_path):
    for name, shape in {"q": (2, 2), "k": (2, 2), "v": (2, 2)}.items():
        np.save(tmp_path / f"{name}.npy", np.arange(4, dtype=np.float64).reshape(shape))
    arguments = ["attend", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "--scale", "0.25", "--json"]
    succeed(*arguments, "-o", "here.npy", cwd=tmp_path)
    german = environment(LC_ALL="de_DE.UTF-8", LC_NUMERIC="de_DE.UTF-8", LANG="de_DE.UTF-8")
    report = json.loads(succeed(*arguments, "-o", "there.npy", cwd=tmp_path, env=german))
    assert isinstance(report["seconds"], float)
    assert (tmp_path / "here.npy").read_bytes() == (tmp_path / "there.npy").read_bytes()


@pytest.mark.parametrize("value", ["nonsense", "", "AVX2", "avx2 "])
def test_an_unknown_instruction_set_is_rejected(tmp_path, value):
    text = fail(1, "REGARD_FORCE_ISA", "info", cwd=tmp_path, env=environment(REGARD_FORCE_ISA=value))
    assert f'"{value}"' in text and "generic" in text


def test_available_instruction_sets_can_be_selected():
    for entry in json.loads(succeed("info", "--json"))["instruction_sets"]:
        done = run("info", "--json", env=environment(REGARD_FORCE_ISA=entry["name"]))
        if entry["available"]:
            assert json.loads(done.stdout)["instruction_set"] == entry["name"]
        else:
            assert done.returncode == 1 and b"REGARD_FORCE_ISA" in done.stderr


@pytest.mark.parametrize("value", ["garbage", "0", "-1", "1.5", "", "99999999999999999999", " 2"])
def test_an_invalid_number_of_threads_is_rejected(tmp_path, value):
    fail(1, ["REGARD_THREADS", f'"{value}"', "integer"], "info", cwd=tmp_path, env=environment(REGARD_THREADS=value))


def test_the_environment_sets_the_number_of_threads():
    assert json.loads(succeed("info", "--json", env=environment(REGARD_THREADS="3")))["threads"] == 3


def test_a_pipe_gets_no_escape_sequences():
    for changes in ({}, {"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "xterm"}):
        for arguments in (["--help"], ["info"], ["--version"], ["lesson"]):
            assert b"\x1b" not in succeed(*arguments, env=environment(**changes))
