# SPDX-License-Identifier: Apache-2.0
"""The progress line: shown on a terminal during long work, erased at the end and after Ctrl-C, never written to a pipe
or a file, and never wider than the terminal."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

import numpy as np

from program import PROGRAM, environment, succeed

COLUMNS = 50
# The slowest configuration, so that small inputs take long.
SLOW = {"REGARD_FORCE_ISA": "generic", "REGARD_THREADS": "1"}


class Terminal:
    """A terminal as standard error and as the controlling terminal of the program, so that Ctrl-C sends a signal."""

    def __init__(self, arguments, folder, **changes):
        self.side, program_side = pty.openpty()
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))

        def take_terminal():
            fcntl.ioctl(2, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([PROGRAM, *arguments], cwd=folder, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=program_side, start_new_session=True,
                                        preexec_fn=take_terminal, env=environment(**{"TERM": "xterm", **SLOW, **changes}))
        os.close(program_side)
        self.written = b""

    def read(self, enough=lambda written: False):
        """Reads until there is enough or the program has ended; True when there was enough."""
        deadline = time.monotonic() + 100
        while not enough(self.written):
            assert time.monotonic() < deadline, self.written
            if not select.select([self.side], [], [], 1)[0]:
                continue
            try:
                piece = os.read(self.side, 65536)
            except OSError:  # Linux: the other side is closed
                return False
            if not piece:
                return False
            self.written += piece
        return True

    def finish(self):
        self.read()
        os.close(self.side)
        self.process.stdout.close()
        return self.process.wait(60)

    def screen(self):
        """The text on the lines of the screen."""
        lines, column = [""], 0
        for character in self.written.decode():
            if character == "\r":
                column = 0
            elif character == "\n":
                lines.append("")
            else:
                lines[-1] = lines[-1][:column].ljust(column) + character + lines[-1][column + 1:]
                column += 1
                assert column < COLUMNS, self.written
        return [line.rstrip() for line in lines]


def arguments_of(folder, queries, keys):
    """The arguments of attend for this many queries and keys."""
    for name, rows in {"q": queries, "k": keys, "v": keys}.items():
        np.save(folder / f"{name}.npy", np.ones((rows, 64), np.float32))
    return ["attend", "--query", "q.npy", "--key", "k.npy", "--value", "v.npy", "-o", "out.npy"]


def is_drawn(written):
    return b" %" in written


def test_a_long_call_shows_a_progress_line_and_erases_it(tmp_path):
    # Doubles the work until it takes long on this machine.
    keys = 4096
    while True:
        arguments = arguments_of(tmp_path, 4096, keys)
        terminal = Terminal(arguments, tmp_path)
        assert terminal.finish() == 0
        if is_drawn(terminal.written):
            break
        assert terminal.written == b""
        keys *= 2
    shares = [int(line.split("%")[0].split()[-1]) for line in terminal.written.decode().split("\r") if "%" in line]
    assert shares == sorted(shares) and 0 <= shares[0] and shares[-1] <= 100
    assert terminal.written.startswith(b"\rattention [") and b"#" in terminal.written and b" to go" in terminal.written
    assert b"\x1b" not in terminal.written and b"\n" not in terminal.written
    assert terminal.screen() == [""]
    # The same call without a progress line: a pipe, and a terminal that cannot overwrite a line.
    before = (tmp_path / "out.npy").read_bytes()
    assert succeed(*arguments, cwd=tmp_path, env=environment(TERM="xterm", **SLOW)) == b""
    assert (tmp_path / "out.npy").read_bytes() == before
    terminal = Terminal(arguments, tmp_path, TERM="dumb")
    assert terminal.finish() == 0 and terminal.written == b""


def test_ctrl_c_erases_the_progress_line_and_leaves_no_file(tmp_path):
    # A call that takes minutes is interrupted as soon as the line is shown.
    arguments = arguments_of(tmp_path, 1 << 17, 1 << 17)
    before = sorted(tmp_path.iterdir())
    terminal = Terminal(arguments, tmp_path)
    assert terminal.read(is_drawn)
    os.write(terminal.side, b"\x03")
    assert terminal.finish() == 130
    assert b"^C" in terminal.written and terminal.screen() == [""]
    assert sorted(tmp_path.iterdir()) == before
