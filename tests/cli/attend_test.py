# SPDX-License-Identifier: Apache-2.0
"""Compares `regard attend` with NumPy in float64: every option, type, byte order, memory order and rank, in random
combinations, within the bound of docs/reference/semantics.md, section 4. Also the one-line error of each invalid
input."""

import io
import json
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest

from attend_reference import page_arrays, reference
from program import PROGRAM, environment, fail, run, succeed, tree

QKV = ("--query", "q.npy", "--key", "k.npy", "--value", "v.npy")
OUTPUTS = ("context", "lse", "row-max", "row-sum", "weights")


def agrees(name, ours, expected):
    """Checks the error bound of semantics.md; the bounds of the other outputs follow from that of the scores."""
    unit = 2.0**-24 if ours.dtype == np.float32 else 2.0**-53
    theirs = expected[name].reshape(ours.shape)
    bound = unit * expected["bound"]
    if name == "context":
        allowed = bound[..., None] * expected["magnitude"]
    elif name == "weights":
        allowed = bound[..., None] * theirs.reshape(expected["weights"].shape)
    elif name == "scores":
        allowed = bound[..., None] * (1 + abs(np.where(np.isfinite(theirs), theirs, 0)))
    elif name in ("row-sum", "sink-weights"):
        allowed = bound * expected[name] * 2
    else:
        allowed = bound * (1 + abs(np.where(np.isfinite(expected[name]), expected[name], 0)))
    # Weights below the smallest normal number have fewer bits.
    allowed = allowed.reshape(ours.shape) + np.finfo(ours.dtype).tiny
    finite = np.isfinite(theirs)
    assert np.array_equal(ours[~finite], theirs[~finite].astype(ours.dtype)), name
    worst = np.max(abs(ours[finite].astype(np.float64) - theirs[finite]) - allowed[finite], initial=-1)
    assert worst <= 0, (name, worst)


# ---- random calls


def stored(random, array, swap=True):
    """The same values in a random memory order and byte order."""
    if swap and random.random() < 0.3:
        array = array.astype(array.dtype.newbyteorder(">"))
    if random.random() < 0.3:
        array = np.asfortranarray(array)
    return array


def broadcast(random, shape, rank):
    """A shape that broadcasts to the last `rank` axes."""
    part = [1 if random.random() < 0.3 else n for n in shape[4 - rank:]]
    return part[random.integers(0, rank - 1):]


def random_call(random):
    """Arrays by option, the other options of the command line, the results of the reference, and the rank."""
    rank = int(random.choice([2, 3, 4]))
    dtype = np.dtype(random.choice(["float32", "float64"]))
    batch = int(random.integers(1, 4)) if rank == 4 else 1
    groups, kv_heads = (1, 1) if rank == 2 else (int(random.integers(1, 3)), int(random.integers(1, 3)))
    heads = groups * kv_heads
    queries, keys = int(random.integers(1, 40)), int(random.integers(1, 90))
    depth, columns = int(random.integers(1, 40)), int(random.integers(1, 40))

    def drawn(*shape):
        return random.standard_normal(shape).astype(dtype)

    q, k, v = drawn(batch, heads, queries, depth), drawn(batch, kv_heads, keys, depth), drawn(batch, kv_heads, keys, columns)
    arrays = {"query": q, "key": k, "value": v}
    options, known = [], {}
    integer = np.dtype(random.choice(["int32", "int64"]))
    full = (batch, heads, queries, keys)

    def maybe(chance=0.25):
        return random.random() < chance

    if maybe():
        known["key_lengths"] = arrays["key-lengths"] = random.integers(0, keys + 1, batch).astype(integer)
    lengths = known.get("key_lengths", np.full(batch, keys))
    positional = False
    if maybe(0.4):
        known["causal"] = positional = True
        if maybe(0.4):
            known["prefix"] = arrays["prefix"] = random.integers(0, keys + 1, batch).astype(integer)
    if maybe(0.3):
        positional = True
        sides = [None if maybe() else int(random.integers(0, 20)) for _ in range(2)]
        known["window"] = sides
        options += ["--window", ",".join("-" if side is None else str(side) for side in sides)]
    if maybe():
        positional = True
        known["alibi_slopes"] = arrays["alibi-slopes"] = np.abs(drawn(heads))
    if positional:
        number = int(random.integers(-5, 50))
        way, known["offset"] = [("top_left", np.zeros(batch, int)), ("bottom_right", lengths - queries),
                                (str(number), np.full(batch, number)), ("file", None)][random.integers(0, 4)]
        if way == "file":
            known["offset"] = arrays["query-offset"] = random.integers(-5, 50, batch).astype(integer)
            options += ["--causal"] if known.get("causal") else []
        elif known.get("causal") and maybe(0.5):
            options += ["--causal=" + way]
        else:
            options += ["--query-offset", way] + (["--causal"] if known.get("causal") else [])
    if maybe():
        known["mask"] = arrays["mask"] = random.random(broadcast(random, full, rank)) < 0.7
    if maybe():
        narrow = np.float32 if maybe() else dtype
        known["bias"] = arrays["bias"] = random.standard_normal(broadcast(random, full, rank)).astype(narrow)
    if maybe():
        known["query_segments"] = random.integers(-1, 3, (batch, queries)).astype(integer)
        known["key_segments"] = random.integers(-1, 3, (batch, keys)).astype(integer)
        for name in ("query", "key"):
            segments = known[name + "_segments"]
            arrays[name + "-segments"] = segments if rank == 4 else segments[0]
    if maybe():
        size = known["block_size"] = (int(random.integers(1, 20)), int(random.integers(1, 20)))
        blocks = (batch, heads, -(-queries // size[0]), -(-keys // size[1]))
        known["block_mask"] = random.random(blocks) < 0.7
        arrays["block-mask"] = known["block_mask"].reshape(blocks[4 - rank:])
        options += ["--block-size", f"{size[0]},{size[1]}"]
    if maybe():
        known["sinks"] = arrays["sinks"] = drawn(heads)
    if maybe():
        known["soft_cap"] = 2.5
        options += ["--soft-cap", "2.5"]
    if maybe(0.4):
        text, known["scale"] = [("none", 1.0), ("sqrt", None), ("-0.5", -0.5), ("0", 0.0), ("1e-1", 0.1)][random.integers(0, 5)]
        options += ["--scale", text]
    if dtype == np.float32 and known.get("scale") is not None:
        known["scale"] = float(np.float32(known["scale"]))
    for name in ("query", "key", "value"):
        arrays[name] = arrays[name].reshape(arrays[name].shape[4 - rank:])
    return arrays, options, reference(q, k, v, **known), rank


def write_arrays(random, folder, arrays):
    options = []
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", stored(random, array))
        options += ["--" + name, f"{name}.npy"]
    return options


@pytest.mark.parametrize("seed", range(150))
def test_random_calls_agree_with_numpy(seed, tmp_path):
    random = np.random.default_rng(seed)
    arrays, options, expected, rank = random_call(random)
    outputs = list(OUTPUTS) + (["sink-weights"] if "sinks" in arrays else [])
    for name in outputs:
        options += ["-o" if name == "context" else "--" + name, f"{name}-out.npy"]
    assert succeed("attend", *write_arrays(random, tmp_path, arrays), *options, "--html", "page.html", cwd=tmp_path) == b""
    carried = page_arrays((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert np.array_equal(carried["hidden"], ~np.broadcast_to(expected["visible"], carried["weights"].shape))
    agrees("scores", carried["scores"], expected)
    for name in outputs:
        path = tmp_path / f"{name}-out.npy"
        ours = np.load(path)
        assert ours.dtype == arrays["query"].dtype.newbyteorder("=")
        assert ours.ndim == (rank if name in ("context", "weights") else rank - 1)
        agrees(name, ours, expected)
        # Byte for byte the file that NumPy writes.
        again = io.BytesIO()
        np.save(again, ours)
        assert path.read_bytes() == again.getvalue()
        if name != "lse":
            assert np.array_equal(carried[name.replace("-", "_")].reshape(ours.shape), ours)


# ---- input and output files in every form


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    """A folder with q, k and v of shapes (2, 4, 3), (2, 6, 3) and (2, 6, 5) in float32."""
    random = np.random.default_rng(1)
    for name, shape in {"q": (2, 4, 3), "k": (2, 6, 3), "v": (2, 6, 5)}.items():
        np.save(tmp_path / f"{name}.npy", random.standard_normal(shape).astype(np.float32))
    return tmp_path


def context(folder, *options):
    succeed("attend", *QKV, "-o", "out.npy", *options, cwd=folder)
    return np.load(folder / "out.npy")


def save(folder, name, array):
    with open(folder / name, "wb") as file:
        np.save(file, np.asarray(array), allow_pickle=True)
    return name


def test_byte_order_memory_order_and_npy_version_do_not_change_results(folder):
    expected = context(folder)
    q = np.load(folder / "q.npy")
    for form in (q.astype(">f4"), np.asfortranarray(q), np.asfortranarray(q.astype(">f4"))):
        save(folder, "q.npy", form)
        assert np.array_equal(context(folder), expected)
    for version in ((1, 0), (2, 0), (3, 0)):
        with open(folder / "q.npy", "wb") as file:
            np.lib.format.write_array(file, q, version=version)
        assert np.array_equal(context(folder), expected)
    save(folder, "q.npy", q.astype(np.float16))
    half = context(folder)
    save(folder, "q.npy", q.astype(np.float16).astype(np.float32))
    assert np.array_equal(context(folder), half) and half.dtype == np.float32


def test_results_are_bit_identical_for_all_threads_and_instruction_sets(folder):
    expected = context(folder)
    for threads in ("1", "2", "3", "10000", "0"):
        assert np.array_equal(context(folder, "--threads", threads), expected)
    info = json.loads(succeed("info", "--json"))
    sets = [s["name"] for s in info["instruction_sets"] if s["available"] and s["fused_multiply_add"]]
    for name in sets:
        succeed("attend", *QKV, "-o", "out.npy", cwd=folder, env=environment(REGARD_FORCE_ISA=name))
        assert np.array_equal(np.load(folder / "out.npy"), expected)


def test_a_dash_means_standard_input_or_output(folder):
    expected = (context(folder), (folder / "out.npy").read_bytes())[1]
    arguments = ["attend", "--query", "-", *QKV[2:], "-o", "-"]
    query = (folder / "q.npy").read_bytes()
    assert succeed(*arguments, stdin=query, cwd=folder) == expected
    with open(folder / "q.npy", "rb") as file:
        assert succeed(*arguments, stdin=file, cwd=folder) == expected
    succeed("attend", *QKV, "-o", "kept.npy", "--lse", "-", cwd=folder)
    assert (folder / "kept.npy").read_bytes() == expected
    fail(1, ["standard input: byte", "ends after"], *arguments, stdin=query[:-1], cwd=folder)
    fail(1, ["standard input: byte", "extra bytes"], *arguments, stdin=query + b"x", cwd=folder)
    fail(1, "standard input: byte 0: the file is empty", *arguments, cwd=folder)


def test_selected_rows_of_weights_equal_those_of_all_weights(folder):
    succeed("attend", *QKV, "--weights", "w.npy", cwd=folder)
    whole = np.load(folder / "w.npy")
    for rows, index in {"0:4": [0, 1, 2, 3], "1:2": [1], "3:4,0:2,3:4": [3, 0, 1, 3], "2:2": []}.items():
        succeed("attend", *QKV, "--weights", "w.npy", "--rows", rows, cwd=folder)
        assert np.array_equal(np.load(folder / "w.npy"), whole[:, index])


def test_packed_sequences_equal_separate_calls(folder):
    random = np.random.default_rng(2)
    lengths = [(3, 5), (0, 4), (6, 2), (4, 4)]
    parts = [[random.standard_normal((2, n, d)).astype(np.float32) for n, d in ((a, 4), (b, 4), (b, 3))]
             for a, b in lengths]
    for name, column in zip("qkv", zip(*parts)):
        save(folder, f"{name}.npy", np.concatenate(column, axis=1))
    starts = np.cumsum([(0, 0), *lengths], axis=0)
    packed = ["--query-starts", save(folder, "qs.npy", starts[:, 0].astype(np.int32)),
              "--key-starts", save(folder, "ks.npy", starts[:, 1])]
    for options in ([], ["--causal=bottom_right"], ["--causal=top_left", "--window", "2,-"]):
        together = context(folder, *packed, *options)
        assert together.shape == (2, 13, 3)
        for part, (begin, end) in zip(parts, zip(starts[:, 0], starts[1:, 0])):
            if begin == end:
                continue
            for name, array in zip("qkv", part):
                save(folder, f"one-{name}.npy", array)
            succeed("attend", "--query", "one-q.npy", "--key", "one-k.npy", "--value", "one-v.npy", "-o", "one.npy",
                    *options, cwd=folder)
            assert np.array_equal(np.load(folder / "one.npy"), together[:, begin:end])


def test_values_can_follow_a_space_or_an_equals_sign(folder):
    for name, value in {"--scale": "-1", "--query-offset": "-3", "--window": "-,0", "--soft-cap": "1.5"}.items():
        extra = ["--causal"] if name == "--query-offset" else ["--query-offset", "0"] if name == "--window" else []
        assert np.array_equal(context(folder, name, value, *extra), context(folder, f"{name}={value}", *extra))
    # --causal takes a value only after =.
    assert np.array_equal(context(folder, "--causal=-3"), context(folder, "--causal", "--query-offset", "-3"))
    # A file whose name is an option or a number.
    save(folder, "--causal", np.zeros(1, np.int64))
    save(folder, "5", np.full(1, 2))
    assert np.array_equal(context(folder, "--causal", "--query-offset=--causal"), context(folder, "--causal=0"))
    assert np.array_equal(context(folder, "--causal", "--query-offset", "./5"), context(folder, "--causal=2"))


def test_json_reports_command_shapes_plan_and_time(folder):
    text = succeed("attend", *QKV, "--causal=bottom_right", "--threads", "1", "-o", "a b.npy", "--json", cwd=folder)
    report = json.loads(text)
    assert list(report)[0] == "schema" and report["schema"] == "regard/1"
    assert report["command"] == ("regard attend --query q.npy --key k.npy --value v.npy --causal=bottom_right "
                                 "--threads 1 -o 'a b.npy' --json")
    assert report["shapes"] == {"query": [2, 4, 3], "key": [2, 6, 3], "value": [2, 6, 5], "context": [2, 4, 5]}
    assert report["plan"]["type"] == "float32" and report["plan"]["threads"] == 1
    assert report["plan"]["memory_bytes"] >= 4 * (24 + 36 + 60 + 40)
    assert report["seconds"] >= 0
    assert succeed("attend", *QKV, "--json", cwd=folder)
    untrusted = "<script>\u202e\u2028\x1b.npy"
    text = succeed("attend", *QKV, "-o", untrusted, "--json", cwd=folder)
    assert untrusted in json.loads(text)["command"]
    assert not [raw for raw in ("<", ">", "\u202e", "\u2028", "\x1b") if raw.encode() in text]


def test_rows_without_keys_are_zero_and_empty_arrays_are_accepted(folder):
    save(folder, "v.npy", np.full((2, 0, 5), 1, np.float32))
    save(folder, "k.npy", np.full((2, 0, 3), 1, np.float32))
    succeed("attend", *QKV, "-o", "out.npy", "--lse", "lse.npy", cwd=folder)
    assert np.array_equal(np.load(folder / "out.npy"), np.zeros((2, 4, 5)))
    assert np.all(np.isneginf(np.load(folder / "lse.npy")))
    save(folder, "q.npy", np.zeros((2, 0, 3), np.float32))
    assert context(folder).shape == (2, 0, 5)


def test_values_at_masked_keys_do_not_change_results(folder):
    succeed("attend", *QKV, "-o", "out.npy", "--key-lengths", save(folder, "n.npy", [4]), cwd=folder)
    expected = np.load(folder / "out.npy")
    for name, poison in {"k": np.nan, "v": np.inf}.items():
        array = np.load(folder / f"{name}.npy")
        array[:, 4:] = poison
        save(folder, f"{name}.npy", array)
    assert np.array_equal(context(folder, "--key-lengths", "n.npy"), expected)


# ---- output files


def test_outputs_replace_files_and_keep_links_and_modes(folder):
    (folder / "old.npy").write_bytes(b"old")
    os.chmod(folder / "old.npy", 0o640)
    (folder / "link.npy").symlink_to("old.npy")
    succeed("attend", *QKV, "-o", "link.npy", cwd=folder)
    assert (folder / "link.npy").is_symlink() and np.load(folder / "old.npy").shape == (2, 4, 5)
    assert (folder / "old.npy").stat().st_mode & 0o777 == 0o640


def test_either_all_outputs_are_written_or_none(folder):
    (folder / "a.npy").write_bytes(b"old")
    fail(1, ["missing/b.npy", "No such file"], "attend", *QKV, "-o", "a.npy", "--lse", "missing/b.npy", cwd=folder)
    fail(1, ["q.npy/b.npy", "Not a directory"], "attend", *QKV, "-o", "a.npy", "--lse", "q.npy/b.npy", cwd=folder)
    (folder / "d").mkdir()
    fail(1, ["d: is a folder"], "attend", *QKV, "-o", "a.npy", "--lse", "d", cwd=folder)
    fail(1, ["/dev/null: is a device"], "attend", *QKV, "-o", "a.npy", "--lse", "/dev/null", cwd=folder)
    os.mkfifo(folder / "fifo")
    fail(1, ["fifo: is a pipe"], "attend", *QKV, "-o", "a.npy", "--lse", "fifo", cwd=folder)
    with open("/dev/full", "wb") as full:
        assert_full(folder, run("attend", *QKV, "-o", "a.npy", "--lse", "-", cwd=folder, stdout=full))
        assert_full(folder, run("attend", *QKV, "-o", "a.npy", "--json", cwd=folder, stdout=full))


def test_a_failed_rename_undoes_the_others(folder):
    (folder / "old.npy").write_bytes(b"old")
    (folder / "last.npy").write_bytes(b"last")
    os.chmod(folder / "old.npy", 0o640)
    inode = (folder / "old.npy").stat().st_ino
    query = (folder / "q.npy").read_bytes()
    arguments = ["--query", "-", *QKV[2:], "-o", "new.npy", "--lse", "old.npy", "--row-max", "last.npy", "--row-sum",
                 "after.npy"]
    with subprocess.Popen([PROGRAM, "attend", *arguments], cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment()) as process:
        process.stdin.write(query[:130])
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while len([name for name in os.listdir(folder) if name.startswith(".regard")]) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        # While the outputs are open, a folder takes the name of one, which no file can replace.
        (folder / "last.npy").unlink()
        (folder / "last.npy").mkdir()
        process.stdin.write(query[130:])
        process.stdin.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b"regard: last.npy: cannot be moved into place: Is a directory\n"
    assert sorted(os.listdir(folder)) == ["k.npy", "last.npy", "old.npy", "q.npy", "v.npy"]
    assert (folder / "old.npy").read_bytes() == b"old"
    assert (folder / "old.npy").stat().st_ino == inode and (folder / "old.npy").stat().st_mode & 0o777 == 0o640


def assert_full(folder, done):
    assert done.returncode == 1
    assert done.stderr == b"regard: cannot write to standard output: No space left on device\n"
    assert (folder / "a.npy").read_bytes() == b"old"
    assert not [path for path in folder.iterdir() if path.name.startswith(".regard")]


def test_a_file_size_limit_is_reported_and_leaves_no_file(folder):
    def limit():
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    fail(1, ["out.npy: cannot be written: File too large"], "attend", *QKV, "-o", "out.npy", cwd=folder, preexec_fn=limit)


def test_one_path_for_two_purposes_is_rejected(folder):
    (folder / "link.npy").symlink_to("q.npy")
    os.link(folder / "q.npy", folder / "hard.npy")
    for path in ("q.npy", "./q.npy", str(folder / "q.npy"), "link.npy", "hard.npy"):
        fail(2, ["--output would write", "--query reads"], "attend", *QKV, "-o", path, cwd=folder)
    fail(2, ["--output and --lse both write to a.npy"], "attend", *QKV, "-o", "a.npy", "--lse", "./a.npy", cwd=folder)
    fail(2, ["both write to standard output"], "attend", *QKV, "-o", "-", "--lse", "-", cwd=folder)
    fail(2, ["--output - and --json"], "attend", *QKV, "-o", "-", "--json", cwd=folder)
    fail(2, ["--query and --key both read standard input"], "attend", "--query", "-", "--key", "-", "--value", "v.npy",
         "-o", "a.npy", cwd=folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_files(folder, number):
    before = tree(folder)
    # The query's header is written but its data is not: the program waits with its temporary file open.
    query = (folder / "q.npy").read_bytes()
    with subprocess.Popen([PROGRAM, "attend", "--query", "-", *QKV[2:], "-o", "out.npy"], cwd=folder,
                          stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        process.stdin.write(query[:130])
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while not [name for name in os.listdir(folder) if name.startswith(".regard")]:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
        assert process.stderr.read() == b""
    assert tree(folder) == before


# ---- the page as a file


def test_a_page_can_be_the_only_output_or_one_of_several(folder):
    succeed("attend", *QKV, "--html", "page.html", cwd=folder)
    assert sorted(os.listdir(folder)) == ["k.npy", "page.html", "q.npy", "v.npy"]
    page = (folder / "page.html").read_bytes()
    assert page.startswith(b"<!doctype html>") and page.endswith(b"</html>\n")
    report = json.loads(succeed("attend", *QKV, "-o", "out.npy", "--weights", "w.npy", "--html", "beside.html", "--json", cwd=folder))
    assert "html" not in report["shapes"] and report["shapes"]["weights"] == [2, 4, 6]
    carried = page_arrays((folder / "beside.html").read_text())
    for name in ("query", "key", "value"):
        assert np.array_equal(carried[name][0], np.load(folder / f"{name[0]}.npy"))
    assert np.array_equal(carried["weights"][0], np.load(folder / "w.npy"))
    assert np.array_equal(carried["context"][0], np.load(folder / "out.npy"))
    assert np.array_equal(page_arrays(page.decode())["weights"], carried["weights"])
    standard = succeed("attend", *QKV, "--html", "-", cwd=folder)
    assert np.array_equal(page_arrays(standard.decode())["weights"], carried["weights"])


def test_a_page_shows_the_selected_rows(folder):
    succeed("attend", *QKV, "--weights", "whole.npy", cwd=folder)
    succeed("attend", *QKV, "--rows", "3:4,0:2,1:2", "--weights", "w.npy", "--html", "page.html", cwd=folder)
    whole = np.load(folder / "whole.npy")
    assert np.array_equal(np.load(folder / "w.npy"), whole[:, [3, 0, 1, 1]])
    html = (folder / "page.html").read_text()
    assert json.loads(re.search('id="page">(.*?)</script>', html, re.DOTALL)[1])["rows"] == [[0, 2], [3, 4]]
    assert np.array_equal(page_arrays(html)["weights"][0], whole[:, [0, 1, 3]])
    succeed("attend", *QKV, "--rows", "3:4", "--html", "page.html", cwd=folder)
    assert np.array_equal(page_arrays((folder / "page.html").read_text())["weights"][0], whole[:, [3]])


def test_a_page_follows_the_rules_for_outputs(folder):
    (folder / "page.html").write_bytes(b"old")
    fail(1, ["missing/p.html", "No such file"], "attend", *QKV, "--html", "missing/p.html", "-o", "a.npy", cwd=folder)
    fail(1, ["missing/a.npy", "No such file"], "attend", *QKV, "--html", "page.html", "-o", "missing/a.npy", cwd=folder)
    fail(2, ["--output and --html both write to standard output"], "attend", *QKV, "-o", "-", "--html", "-", cwd=folder)
    fail(2, ["--html - and --json both write to standard output"], "attend", *QKV, "--html", "-", "--json", cwd=folder)
    fail(2, ["--html would write", "--query reads"], "attend", *QKV, "--html", "q.npy", cwd=folder)
    fail(2, ["--weights and --html both write to page.html"], "attend", *QKV, "--weights", "page.html", "--html", "page.html", cwd=folder)
    fail(1, ["no row of query to show"], "attend", *QKV, "--html", "page.html", "--rows", "2:2", cwd=folder)
    with open("/dev/full", "wb") as full:
        done = run("attend", *QKV, "-o", "a.npy", "--html", "-", cwd=folder, stdout=full)
    assert done.returncode == 1 and b"No space left on device" in done.stderr
    assert not (folder / "a.npy").exists() and (folder / "page.html").read_bytes() == b"old"


def test_a_page_that_would_be_too_large_is_rejected_before_the_computation(folder):
    save(folder, "long.npy", np.zeros((4096, 4), np.float32))
    arguments = ["attend", "--query", "long.npy", "--key", "long.npy", "--value", "long.npy", "--html", "page.html"]
    fail(1, ["--html: the page would take 173.9 MiB, but the limit is 24.0 MiB; choose rows with --rows A:B"], *arguments, cwd=folder)
    succeed(*arguments, "--rows", "100:103", cwd=folder)
    assert (folder / "page.html").stat().st_size < 1e6
    # Near the limit, the actual size agrees with the estimate.
    succeed(*arguments, "--rows", "0:550", cwd=folder)
    assert 22 * 2**20 < (folder / "page.html").stat().st_size < 24.2 * 2**20
    # If a single row is too large, selecting rows does not help.
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (10_000_000, 4)})
    fail(1, ["--html: the page would take", "give fewer heads, or fewer keys"], "attend", "--query", "long.npy", "--key", "-", "--value", "long.npy",
         "--html", "page.html", "--rows", "0:1", cwd=folder, stdin=header.getvalue())


def test_a_page_of_empty_arrays_is_rejected(folder):
    for shape in ((0, 3), (2, 0, 3), (0, 4, 3)):
        save(folder, "e.npy", np.zeros(shape, np.float32))
        fail(1, "to show on a page", "attend", "--query", "e.npy", "--key", "e.npy", "--value", "e.npy", "--html", "page.html", cwd=folder)


# ---- invalid inputs


def test_files_that_are_not_arrays_are_rejected(folder):
    out = ["-o", "out.npy"]

    def with_query(path, words, code=1):
        return fail(code, words, "attend", "--query", path, *QKV[2:], *out, cwd=folder)

    with_query("missing.npy", "missing.npy: cannot be opened: No such file or directory")
    with_query("x" * 5000, "File name too long")
    (folder / "d").mkdir()
    with_query("d", "d: is a folder; expected a file")
    os.mkfifo(folder / "fifo")
    with_query("fifo", "fifo: is a pipe; expected a file, or - for standard input")
    with_query("/dev/zero", "/dev/zero: is a device")
    (folder / "empty.npy").write_bytes(b"")
    with_query("empty.npy", "empty.npy: byte 0: the file is empty")
    (folder / "text.npy").write_text("1 2 3\n")
    with_query("text.npy", "does not begin with the NPY magic string")
    save(folder, "object.npy", np.array([[1, "a"]], object))
    with_query("object.npy", "'|O' contains Python objects")
    save(folder, "structured.npy", np.zeros((2, 2), [("a", "f4")]))
    with_query("structured.npy", "structured types are not supported")
    save(folder, "narrow.npy", np.zeros((2, 2), np.int16))
    with_query("narrow.npy", ["'<i2' (int16) is not supported", "expected float16, float32, float64"])
    whole = (folder / "q.npy").read_bytes()
    (folder / "short.npy").write_bytes(whole[:-1])
    with_query("short.npy", "short.npy: byte 223: the file holds 95 bytes of data; shape (2, 4, 3) of float32 has 96")
    (folder / "long.npy").write_bytes(whole + b"x")
    with_query("long.npy", "the file holds 97 bytes of data")
    # A name with control characters is escaped.
    untrusted = "a\n\x1b]0;b\u202ec"
    text = with_query(untrusted, "cannot be opened")
    assert "\x1b" not in text and "\u202e" not in text


# The option that gets the array, the array, other options, and parts of the error message.
F4, F8 = np.float32, np.float64
BAD_ARRAYS = [
    ("--query", np.zeros((2, 4, 3), int), [], "x.npy: --query has type int64; expected float32 or float64"),
    ("--query", np.zeros(3, F4), [], "--query has shape (3,); expected 2, 3 or 4 axes"),
    ("--query", np.zeros((1, 1, 1, 4, 3), F4), [], "expected 2, 3 or 4 axes"),
    ("--query", np.zeros((4, 3), F4), [], "--key has shape (2, 6, 3); expected 2 axes, like --query (4, 3)"),
    ("--query", np.zeros((3, 4, 3), F4), [], ["3", "2"]),
    ("--query", np.zeros((2, 4, 7), F4), [], "k.npy: --key has head size 3"),
    ("--key", np.zeros((2, 6, 3), F8), [], "--key has type float64; expected float32, like --query"),
    ("--value", np.zeros((2, 5, 5), F4), [], ["value", "5", "6"]),
    ("--value", np.zeros((2, 6, 0), F4), [], "value"),
    ("--mask", np.zeros((4, 6), np.int32), [], "--mask has type int32; expected bool, true = visible"),
    ("--mask", np.zeros((5, 6), bool), [], "x.npy: --mask has shape (1, 1, 5, 6); expected"),
    ("--mask", np.zeros((1, 2, 4, 6), bool), [], "more axes than --query (2, 4, 3)"),
    ("--bias", np.zeros((4, 6), F8), [], "--bias has type float64; expected float32, like --query"),
    ("--bias", np.zeros((4, 6), bool), [], "--bias has type bool; expected float32 or float64"),
    ("--bias", np.zeros((4, 7), F4), [], ["bias", "7", "6"]),
    ("--key-lengths", np.array([7]), [], "x.npy: --key-lengths[0] is 7; expected 0 to 6"),
    ("--key-lengths", np.array([-1]), [], ["--key-lengths", "-1"]),
    ("--key-lengths", np.array([1, 2]), [], ["--key-lengths", "2", "1"]),
    ("--key-lengths", np.array([1.0]), [], "--key-lengths has type float64; expected int32 or int64"),
    ("--key-lengths", np.array([], int), [], "--key-lengths is empty"),
    ("--key-lengths", np.array([[1]]), [], "--key-lengths has shape (1, 1); expected one axis"),
    ("--key-lengths", np.array([4]), ["--causal"], "--query-offset"),
    ("--query-offset", np.array([1, 2]), ["--causal"], "--query-offset"),
    ("--query-offset", np.array([0.5]), ["--causal"], "--query-offset has type float64; expected int32 or int64"),
    ("--prefix", np.array([1, 2]), ["--causal=0"], ["prefix", "2", "1"]),
    ("--alibi-slopes", np.array([1.0, 2, 3], F4), ["--query-offset=0"], ["--alibi-slopes", "3", "2"]),
    ("--alibi-slopes", np.array([1, np.nan], F4), ["--query-offset=0"], "--alibi-slopes[1]"),
    ("--sinks", np.array([np.inf, 0], F4), [], "sinks[0]"),
    ("--sinks", np.array([1, 0]), [], "--sinks has type int64"),
    ("--query-segments", np.zeros(4, int), ["--key-segments", "y.npy"], ["--key-segments", "5", "6"]),
    ("--query-segments", np.zeros((1, 4), int), ["--key-segments", "y.npy"], "expected a segment number per position"),
    ("--query-segments", np.array([0, 0, 2**31, 0]), ["--key-segments", "y.npy"], "contains segment 2147483648"),
    ("--query-starts", np.array([0, 2, 3]), ["--key-starts", "y.npy"], "--query-starts"),
    ("--block-mask", np.zeros((2, 2), bool), ["--block-size", "2,2"], ["--block-mask", "2", "3"]),
    ("--block-mask", np.zeros((2, 3), int), ["--block-size", "2,2"], "--block-mask has type int64; expected bool"),
]


@pytest.mark.parametrize("option, array, others, words", BAD_ARRAYS)
def test_arrays_of_the_wrong_type_or_shape_are_rejected(folder, option, array, others, words):
    save(folder, "y.npy", np.zeros(5, int))
    given = dict(zip(QKV[::2], QKV[1::2])) | {option: save(folder, "x.npy", array)}
    arguments = [word for pair in given.items() for word in pair]
    fail(1, words, "attend", *arguments, *others, "-o", "out.npy", cwd=folder)


BAD_OPTIONS = [
    (["--causal"], 1, "regard: --causal needs an explicit --query-offset when query and key lengths differ (4 and 6)"),
    (["--window", "1,1"], 1, "regard: --window needs an explicit --query-offset"),
    (["--causal=sideways"], 2, '--causal is "sideways"; expected top_left, bottom_right or an integer'),
    (["--causal=1", "--query-offset", "1"], 2, "both set the offset"),
    (["--causal="], 2, "--causal= has no value"),
    (["--query-offset", "nowhere.npy", "--causal"], 1,
     "--query-offset nowhere.npy: cannot be opened: No such file or directory; expected top_left, bottom_right, an "
     "integer or a .npy file of int32 or int64 with one number per batch entry"),
    *((["--query-offset", number, "--causal"], 2, f'--query-offset is "{number}"; expected top_left, bottom_right, an integer')
      for number in ("1.5", "1e3", "+1", " 1", "nan")),
    *(([option, "3"], 1, f"{option} 3: cannot be opened: No such file or directory; expected a .npy file of {types}")
      for option, types in (("--key-lengths", "int32 or int64"), ("--prefix", "int32 or int64"),
                            ("--mask", "bool"), ("--sinks", "float32 or float64"), ("--bias", "float32 or float64"))),
    (["--query-offset", "99999999999999999999", "--causal"], 2, "expected a signed 64-bit integer"),
    (["--window", "3"], 2, '--window is "3"; expected LEFT,RIGHT'),
    (["--window", "-1,0"], 2, "the left side is -1; expected 0 or more"),
    (["--window", "a,b"], 2, 'the left side is "a"; expected an integer'),
    (["--scale", "half"], 2, '--scale is "half"; expected sqrt, none or a finite number'),
    (["--scale", ""], 2, "--scale has an empty value"),
    (["--scale="], 2, "--scale has an empty value"),
    (["--scale", "1e999"], 2, '--scale is "1e999"; expected a number that fits in a double'),
    (["--scale", "1e300"], 1, "scale"),
    (["--scale", "0,5"], 2, '--scale is "0,5"; expected a number such as 0.125'),
    (["--scale", "1", "--scale", "2"], 2, "--scale is given twice"),
    (["--scale", "nan"], 2, "expected sqrt, none or a finite number"),
    (["--soft-cap", "0"], 2, "--soft-cap is 0; expected a number above 0"),
    (["--soft-cap", "-1"], 2, "expected a number above 0"),
    (["--threads", "-1"], 2, "--threads is -1; expected 0 or more"),
    (["--threads", "two"], 2, '--threads is "two"; expected an integer'),
    (["--block-size", "2,2"], 2, "--block-size needs --block-mask"),
    (["--block-mask", "k.npy", "--block-size", "0,2"], 2, "expected 1 or more"),
    (["--query-segments", "k.npy"], 2, "--query-segments needs --key-segments"),
    (["--key-starts", "k.npy"], 2, "--key-starts needs --query-starts"),
    (["--rows", "0:1"], 2, "--rows needs --weights"),
    (["--weights", "w.npy", "--rows", "1"], 2, "expected BEGIN:END"),
    (["--weights", "w.npy", "--rows", "2:1"], 2, "expected 2 or more"),
    (["--weights", "w.npy", "--rows", "0:5"], 1, "--rows 0:5 goes beyond the 4 rows of --query"),
    (["--sink-weights", "w.npy"], 2, "--sink-weights needs --sinks"),
    (["--max-memory", "lots"], 2, '--max-memory is "lots"; expected a number of bytes'),
    (["--max-memory", "1000"], 1, ["this needs", "of memory, but --max-memory allows 1000 bytes"]),
    (["--nonsense"], 2, "unknown option --nonsense; see regard attend --help"),
    (["surplus"], 2, "unexpected argument: surplus; see regard attend --help"),
    (["--casual"], 2, "unknown option --casual (did you mean --causal?); see"),
    (["--key_lengths", "k.npy"], 2, "unknown option --key_lengths (did you mean --key-lengths?); see"),
    (["--causal", "bottom_right"], 2, "unexpected argument: bottom_right; to pass it to --causal, write --causal=bottom_right; see"),
    (["--mask"], 2, "--mask needs a value"),
    (["--mask", "--causal"], 2, "--mask needs a value, but --causal is an option"),
    (["--mask", "--"], 2, "--mask needs a value"),
    (["--json=yes"], 2, "--json takes no value"),
]


@pytest.mark.parametrize("options, code, words", BAD_OPTIONS)
def test_invalid_options_are_rejected(folder, options, code, words):
    fail(code, words, "attend", *QKV, "-o", "out.npy", *options, cwd=folder)


def test_missing_arguments_are_named(folder):
    fail(2, "--query is missing", "attend", cwd=folder)
    fail(2, "--value is missing", "attend", *QKV[:4], "-o", "out.npy", cwd=folder)
    fail(2, "nothing would be written", "attend", *QKV, cwd=folder)
    fail(2, "--value needs a value", "attend", *QKV[:5], cwd=folder)
    fail(2, "--output has an empty value", "attend", *QKV, "--output", "", cwd=folder)
    fail(2, "--mask has an empty value", "attend", *QKV, "-o", "out.npy", "--mask=", cwd=folder)


def test_too_little_memory_is_reported_with_the_needed_and_available_bytes(folder):
    # A valid header of 32 TiB, from a pipe with no data.
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2, 2**40, 4)})
    arguments = ["attend", "--query", "-", *QKV[2:], "-o", "out.npy"]
    text = fail(1, ["this needs", "TiB of memory, but ", "is available", "--max-memory"], *arguments,
                stdin=header.getvalue(), cwd=folder)
    suggested = text.split("--max-memory ")[1].split()[0]
    fail(1, "standard input: byte 128: the file ends after 0 of 35184372088832 bytes", *arguments,
         "--max-memory", suggested, stdin=header.getvalue(), cwd=folder)
    # A result larger than the address space, whatever is allowed.
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2, 2**59, 1)})
    fail(1, ["this needs 4.0 EiB of memory", "--max-memory allows 4.0 EiB"], *arguments, "--max-memory", "16777215T",
         stdin=header.getvalue(), cwd=folder)
    succeed("attend", *QKV, "-o", "out.npy", "--max-memory", "1M", cwd=folder)
