# SPDX-License-Identifier: Apache-2.0
"""Runs the program `regard` (REGARD_PROGRAM) for the Python tests, and checks the form of every failure."""

import os
import signal
import subprocess

PROGRAM = os.path.abspath(os.environ["REGARD_PROGRAM"])

# Under nohup and in background jobs of a shell, these signals are ignored, and the program would inherit that.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


def environment(**changes):
    """The environment without variables that change what the program does, except those given; None removes one."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("REGARD_", "LC_", "LANG")) and name not in ("NO_COLOR", "TERM")}
    kept.update({name: value for name, value in changes.items() if value is not None})
    return kept


def run(*arguments, stdin=b"", cwd=None, env=None, **options):
    """The finished process; stdin is bytes, or what subprocess takes."""
    source = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([PROGRAM, *map(os.fspath, arguments)], stderr=subprocess.PIPE, cwd=cwd, timeout=60,
                          env=environment() if env is None else env, check=False, **source, **options)


def succeed(*arguments, **options):
    done = run(*arguments, **options)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    return done.stdout


def printed_number(text):
    """The value of a printed number, whose minus sign is U+2212."""
    return float(text.replace("−", "-"))


def tree(folder):
    """Every file below a folder with its bytes."""
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def fail(code, words, *arguments, cwd, **options):
    """Runs a command that must fail: it prints one line that contains the words on standard error and nothing on standard
    output, and changes no file. Returns the line."""
    before = tree(cwd)
    done = run(*arguments, cwd=cwd, **options)
    text = done.stderr.decode()
    assert done.returncode == code, (done.returncode, text)
    assert not done.stdout
    assert text.startswith("regard: ") and text.count("\n") == 1 and text.endswith("\n"), text
    for word in [words] if isinstance(words, str) else words:
        assert word in text, text
    assert tree(cwd) == before
    return text
