# SPDX-License-Identifier: Apache-2.0
"""`regard completion` and `regard manpage`: each shell parses its script and completes exactly the expected words; the
scripts and the manual page contain every option of every --help; mandoc has no warning about the manual page.

    bash   calls _regard with COMP_WORDS, split at = as by readline
    fish   complete -C
    zsh    runs on a pseudo-terminal: Tab starts the completion, and the added words are written to a file
"""

import os
import pathlib
import pty
import re
import select
import subprocess
import time

import pytest

from lessons import LESSONS
from program import PROGRAM, environment, fail, succeed

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHELLS = ("bash", "zsh", "fish")
FILES = ["a b.npy", "c.csv", "sub"]


def subcommands():
    listed = succeed().decode().split("Subcommands:\n")[1].split("\n\n")[0]
    return re.findall("^  ([a-z]+) ", listed, re.MULTILINE)


def options_in_help(command):
    """Every option in the left column of the help."""
    text = succeed(*command, "--help").decode().split("\n\n", 1)[1]
    lines = re.findall(r"^  (-[^ ]*)", text.split("\nEXAMPLES\n")[0].split("\nSHAPES\n")[0], re.MULTILINE)
    return {name for line in lines for name in line.split(",")}


OPTIONS = {name: options_in_help([name]) for name in subcommands()}


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    """The scripts, next to a folder with two files and a folder."""
    for shell in SHELLS:
        (tmp_path / f"regard.{shell}").write_bytes(succeed("completion", shell))
    here = tmp_path / "here"
    here.mkdir()
    (here / "sub").mkdir()
    for name in ("a b.npy", "c.csv"):
        (here / name).touch()
    return here


def said(*command, cwd, **variables):
    done = subprocess.run(command, cwd=cwd, env=environment(HOME=str(cwd.parent), **variables), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 0 and done.stderr == b"", (command, done.stdout, done.stderr)
    return done.stdout.decode()


# ---- the words that each shell offers for a line that ends at the cursor


def bash(folder, line, wordbreaks=" =", **variables):
    words = [word for word in re.findall(r" +|=|[^ =]+" if "=" in wordbreaks else r" +|[^ ]+", line) if word.strip()]
    if line.endswith(" "):
        words.append("")
    script = ('. "$0"; COMP_WORDBREAKS=$1; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _regard; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    listed = said("bash", "--norc", "-c", script, folder.parent / "regard.bash", wordbreaks, *words, cwd=folder,
                  **variables)
    return sorted(filter(None, listed.split("\n")))


def fish(folder, line):
    listed = said("fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", folder.parent / "regard.fish", line,
                  cwd=folder)
    return sorted(text.split("\t")[0].rstrip("/") for text in listed.split("\n") if text)


ZSH_SETUP = r"""
PROMPT=; unsetopt beep; zstyle ':completion:*' list-prompt ''; LISTMAX=-1
autoload -U compinit; compinit -D -u; source ../regard.zsh
compadd() {
  if [[ " ${@[1,(i)(-|--)]} " == *' -'[a-zA-Z]#[OAD]' '* ]]; then builtin compadd "$@"; return; fi
  local -a found; builtin compadd -A found "$@"; print -rl -- $found >>../added; builtin compadd "$@"
}
setopt extendedglob
tab() { zle complete-word; print -r -- END >>../added; zle kill-whole-line }
zle -N tab; bindkey '^I' tab
"""


def zsh(folder, line):
    added = folder.parent / "added"
    added.write_bytes(b"")
    (folder.parent / "setup.zsh").write_text(ZSH_SETUP)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe("zsh", ["zsh", "-f", "-i"], environment(HOME=str(folder.parent), TERM="xterm", COLUMNS="200"))
    try:
        os.write(terminal, b"source ../setup.zsh; print -r -- READY >>../added\n")
        shown = b""
        typed = False
        deadline = time.monotonic() + 60
        while not added.read_bytes().endswith(b"END\n"):
            assert time.monotonic() < deadline, shown
            if not typed and added.read_bytes() == b"READY\n":
                os.write(terminal, line.encode() + b"\t")
                typed = True
            if select.select([terminal], [], [], 0.02)[0]:
                shown += os.read(terminal, 65536)
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    # zsh quotes the spaces of file names.
    return sorted({text.rstrip("/").replace("\\ ", " ") for text in added.read_text().split("\n") if text not in ("", "READY", "END")})


COMPLETIONS = {"bash": bash, "zsh": zsh, "fish": fish}
each_shell = pytest.mark.parametrize("shell", SHELLS)


# ---- scripts


@each_shell
def test_the_shell_parses_its_script(folder, shell):
    said(shell, "-n", folder.parent / f"regard.{shell}", cwd=folder)


def test_other_shells_and_extra_arguments_are_rejected(tmp_path):
    fail(2, "missing shell name; expected bash, zsh or fish", "completion", cwd=tmp_path)
    fail(2, 'unknown shell "tcsh"; expected bash, zsh or fish', "completion", "tcsh", cwd=tmp_path)
    fail(2, "unexpected argument: fish; see", "completion", "bash", "fish", cwd=tmp_path)
    fail(2, "unexpected argument: attend; see", "manpage", "attend", cwd=tmp_path)


def test_the_help_states_where_to_install_scripts():
    text = succeed("completion", "--help").decode()
    for place in ("~/.local/share/bash-completion/completions/regard", "~/.zfunc/_regard",
                  "~/.config/fish/completions/regard.fish"):
        assert place in text


@each_shell
@pytest.mark.parametrize("line, expected", [
    ("regard att", ["attend"]),
    ("regard completion ", ["bash", "fish", "zsh"]),
    ("regard lesson ", sorted(LESSONS)),
    ("regard lesson why", ["why-scale"]),
    ("regard attend --scale ", ["none", "sqrt"]),
    ("regard explain --softmax=u", ["unshifted"]),
    ("regard attend --query-s", ["--query-segments", "--query-starts"]),
    ("regard attend --query ", FILES),
    ("regard attend -o c", ["c.csv"]),
    ("regard attend --query c.csv --lse=c", ["c.csv"]),
    ("regard explain --model ", ["minilm", "minilm-f16", "minilm-int8", "sub"]),
    ("regard explain --matrix Q=c", ["c.csv"]),
    ("regard explain attend --sort w", ["weight"]),
    ("regard explain --step w", ["weights"]),
    ("regard explain --step s", ["scaled", "scores"]),
    ("regard lesson by-hand --step ranks-of-d", ["ranks-of-dots"]),
    ("regard explain --arrays ", sorted(["weights", "scores", "query", "key", "value", "context", "hidden_states"])),
    ("regard explain --layer ", []),
    ("regard compare attend ", []),
])
def test_the_shell_offers_exactly_the_expected_words(folder, shell, line, expected):
    found = COMPLETIONS[shell](folder, line)
    if shell == "fish":  # fish returns the whole word
        found = [re.sub("^[^ ]*=", "", word) for word in found]
    if shell != "fish" and expected == []:
        found = [word for word in found if not word.startswith("-")]  # options are offered if nothing else is possible
    assert found == expected


@each_shell
def test_every_subcommand_and_option_is_offered(folder, shell):
    complete = COMPLETIONS[shell]
    assert complete(folder, "regard ") == sorted(OPTIONS)
    assert set(complete(folder, "regard -")) == options_in_help([])
    for name, options in OPTIONS.items():
        assert len(options) >= 2, name
        assert {word.rstrip("=") for word in complete(folder, f"regard {name} -")} == options, name


def test_bash_completes_values_after_an_equals_sign(folder):
    assert bash(folder, "regard attend --causal=") == ["bottom_right", "top_left"]
    assert bash(folder, "regard attend --causal=t") == ["top_left"]
    assert set(bash(folder, "regard attend --causal ")) == OPTIONS["attend"]
    # If = does not split words, the whole word is replaced.
    assert bash(folder, "regard attend --causal=t", wordbreaks=" ") == ["--causal=top_left"]
    assert bash(folder, "regard explain --matrix=Q=c", wordbreaks=" ") == ["--matrix=Q=c.csv"]
    assert bash(folder, "regard explain --matrix Q=c", wordbreaks=" ") == ["Q=c.csv"]


def test_fish_offers_an_argument_once(folder):
    assert fish(folder, "regard lesson three-words ") == []
    assert fish(folder, "regard lesson three-words w") == []
    assert fish(folder, "regard lesson --step weights o") == ["one-function"]
    assert fish(folder, "regard lesson --step=weights --json why") == ["why-scale"]
    assert fish(folder, "regard lesson --step weights 000 ") == []
    assert fish(folder, "regard lesson -- t") == ["three-words"]


def test_bash_does_not_take_a_value_for_a_subcommand_or_an_option(folder):
    assert bash(folder, "regard lesson --step attend f") == ["from-seed"]
    assert set(bash(folder, "regard lesson three-words ")) == OPTIONS["lesson"]
    assert bash(folder, "regard attend --scale -") == []
    assert bash(folder, "regard pull -- -") == []


def test_bash_does_not_expand_typed_text(folder):
    for text in ("$(touch x)", "`touch", "*", "c*", "'c"):
        assert bash(folder, f"regard attend --scale {text}") == []
        assert bash(folder, f"regard {text}") == []
    assert not (folder / "x").exists()


def test_quotes_brackets_and_colons_of_help_texts_are_escaped_for_zsh_and_fish(folder):
    listed = said("fish", "--no-config", "-c", "source $argv[1]; complete -C 'regard attend --sink'",
                  folder.parent / "regard.fish", cwd=folder)
    assert "--sink-weights\tthe sinks' weights, (B, H, L)\n" in listed
    script = (folder.parent / "regard.zsh").read_text()
    assert r"--sink-weights=[the sinks'\'' weights, (B, H, L)]:FILE:_files" in script
    assert r"[combine special tokens, such as [CLS\], in one row]" in script
    assert "or Q, K and V are required]:NAME=FILE:_regard_named_file" in script


def test_zsh_loads_the_script_from_fpath(folder):
    functions = folder.parent / "functions"
    functions.mkdir()
    (folder.parent / "regard.zsh").rename(functions / "_regard")
    shown = said("zsh", "-f", "-c", "fpath=(../functions $fpath); autoload -U compinit; compinit -D -u; "
                 "print -r -- $_comps[regard]; whence -w _regard", cwd=folder)
    assert shown == "_regard\n_regard: function\n"


# ---- help texts with characters that are special in a shell

UNTRUSTED = ["it's", "''", '"', "$(touch x)", "`touch x`", "; touch x #", "\\", "\\'", "a]b[c", "a:b::c", "%s%n", "{a,b}", "*?[a-z]",
           "!!", "~", "-o --help", "&& touch x", "a\nb\ttouch x", "\x1b]0;x\x07", "‮abc", "√ · …", "名", ".Sh NAME", "'br",
           "\\fBx\\fP", "Ar No Fl", "(- *)", "$HOME", "<x>|y", "x" * 200, "one. two. Three"]
WRITER = pathlib.Path(PROGRAM).parent / "tests" / "adverse_options"


@pytest.mark.parametrize("shell, text", [(shell, text) for shell in SHELLS for text in [" ".join(UNTRUSTED), *UNTRUSTED]
                                         if shell != "zsh" or text in ("it's", "\\'") or len(text) > 250])
def test_untrusted_help_texts_do_not_break_scripts(folder, shell, text):
    script = folder.parent / f"regard.{shell}"
    script.write_bytes(subprocess.run([WRITER, shell, text], stdout=subprocess.PIPE, timeout=60, check=True).stdout)
    said(shell, "-n", script, cwd=folder)
    complete = COMPLETIONS[shell]
    assert complete(folder, "regard r") == ["run"]
    assert {word.rstrip("=") for word in complete(folder, "regard run -")} == {"-h", "--help", "-f", "--file", "--word", "--flag"}
    assert complete(folder, "regard run --word ye") == ["yes"]
    assert complete(folder, "regard run th") == ["that", "this"]
    assert complete(folder, "regard run -f c") == ["c.csv"]
    assert sorted(path.name for path in folder.iterdir()) == FILES
    if shell == "fish":
        listed = said("fish", "--no-config", "-c", "source $argv[1]; complete -C 'regard run --fl'", script, cwd=folder)
        shown = re.sub("[\x00-\x1f\x7f]", " ", text)
        assert listed.split("\t", 1)[1].strip() == shown.strip() or len(text) > 250


@pytest.mark.parametrize("text", UNTRUSTED)
def test_untrusted_help_texts_do_not_break_the_manual_page(text):
    source = subprocess.run([WRITER, "manpage", text], stdout=subprocess.PIPE, timeout=60, check=True).stdout
    done = subprocess.run(["mandoc", "-Tlint", "-W", "warning"], input=source, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    words = " ".join(rendered(source).split())
    shown = " ".join(re.sub("[\x00-\x1f\x7f]", " ", text).replace("…", "...").split())
    # In the descriptions of the command and of four options, a group title, a note, an example, and the last line.
    assert words.count(shown) >= (9 if len(text) < 70 else 4), words
    assert re.findall("^([A-Z][A-Z ]+)$", rendered(source), re.MULTILINE) == [
        "NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]


# ---- the manual page


def rendered(source, device="utf8"):
    done = subprocess.run(["mandoc", f"-T{device}"], input=source, capture_output=True, timeout=60, check=True)
    return re.sub(".\b", "", done.stdout.decode())


def test_the_manual_page_has_no_warning():
    done = subprocess.run(["mandoc", "-Tlint", "-W", "style"], input=succeed("manpage"), capture_output=True, timeout=60,
                          check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_manual_page_has_every_section_command_and_option():
    source = succeed("manpage")
    text = rendered(source)
    sections = re.findall("^([A-Z][A-Z ]+)$", text, re.MULTILINE)
    assert sections == ["NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "ENVIRONMENT", "FILES", "EXIT STATUS", "EXAMPLES",
                        "SEE ALSO"]
    commands = re.split(r"^   regard ([a-z]+)$", text.split("\nCOMMANDS\n")[1].split("\nENVIRONMENT\n")[0],
                        flags=re.MULTILINE)
    assert commands[1::2] == list(OPTIONS)
    for name, body in zip(commands[1::2], commands[2::2]):
        tags = re.findall(r"^     (-[^ ,[\n]*)(?:, (--[^ [\n]*))?", body, re.MULTILINE)
        assert {option for pair in tags for option in pair if option} == OPTIONS[name], name
    assert "regard compare [options] [word] [sentences ...]\n" in text
    assert "     --causal[=top_left | bottom_right | N]\n" in text
    assert f"Regard {succeed('--version').decode().split()[1]}" in text
    assert re.search(r" (January|February|March|April|May|June|July|August|September|October|November|December) "
                     r"\d{1,2}, \d{4} ", text.splitlines()[-1])


def test_the_manual_page_shows_help_texts_and_examples_unchanged():
    text = rendered(succeed("manpage"))
    words = " ".join(text.split())
    for name in OPTIONS:
        shown = succeed(name, "--help").decode()
        for line in shown.split("EXAMPLES\n")[1].split("\n\n")[0].splitlines():
            assert line.strip().replace("…", "...") in text or not line.startswith("  "), line
        first = shown.splitlines()[0]
        assert f"{first}." in words
    assert "the sinks' weights" in words and "-slope * distance" in words and "~/.cache/regard" in words
    assert "\\" not in words.replace("river\" \\ ", "")


def test_the_manual_page_names_every_variable_that_is_read():
    sources = [path.read_text() for folder in ("cli", "src") for path in (ROOT / folder).rglob("*.cpp")]
    names = {name for text in sources for name in re.findall(r'"(REGARD_[A-Z_]+)"', text)}
    names |= {name for text in sources for name in re.findall(r'(?:getenv|variable|environment)\("([A-Z_]+)"\)', text)}
    assert names >= {"REGARD_THREADS", "REGARD_FORCE_ISA", "REGARD_CACHE", "REGARD_PYTHON", "XDG_CACHE_HOME", "TERM"}
    shown = rendered(succeed("manpage")).split("\nENVIRONMENT\n")[1].split("\nFILES\n")[0]
    assert names <= set(re.findall(r"^     ([A-Z_]+)", shown, re.MULTILINE))
