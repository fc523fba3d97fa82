# SPDX-License-Identifier: Apache-2.0
"""Compares `regard attend --inspect` with NumPy in float64: the weight on each key, the pooled map, the heavy hitters in
text and JSON, for masks, groups, batches, sinks and types. Also the memory for long inputs, and the one-line error of
each invalid input."""

import json
import os
import resource
import struct
import subprocess
import zlib

import numpy as np
import pytest

from attend_reference import reference
from program import PROGRAM, environment, fail, succeed

QKV = ("--query", "q.npy", "--key", "k.npy", "--value", "v.npy")


def write(folder, seed, query, key, dtype=np.float32, **more):
    random = np.random.default_rng(seed)
    arrays = {"q": random.standard_normal(query).astype(dtype), "k": random.standard_normal(key).astype(dtype),
              "v": random.standard_normal(key[:-1] + (3,)).astype(dtype)} | more
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return arrays


def rank4(array):
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def means(weights, rows, columns):
    """The mean of each cell, by definition."""
    length, keys = weights.shape[-2:]
    row, column = ([i * n // count for i in range(count + 1)] for n, count in ((length, rows), (keys, columns)))
    return np.array([[weights[..., row[a]:row[a + 1], column[b]:column[b + 1]].mean(axis=(-2, -1)) for b in range(columns)]
                     for a in range(rows)]).transpose(*range(2, weights.ndim), 0, 1)


ARRAYS = ("key_mass", "pooled_map", "entropy", "largest_weight", "mean_distance", "top_keys", "top_weights")
CASES = {
    "plain": (((40, 8), (50, 8)), [], {}),
    "causal": (((2, 40, 8), (2, 40, 8)), ["--causal", "--map-size", "7"], {"causal": True}),
    "grouped-batch": (((2, 4, 30, 8), (2, 2, 45, 8)), ["--causal=bottom_right", "--map-size", "5,9", "--window", "20,0"],
                      {"causal": True, "offset": [15, 15], "window": (20, 0)}),
    "one-query": (((3, 1, 8), (3, 60, 8)), ["--map-size", "1,6", "--track-keys", "59,0"], {}),
    "float64": (((2, 33, 8), (2, 31, 8)), ["--map-size", "33,31", "--top", "31"], {}),
    "sinks": (((2, 20, 8), (2, 20, 8)), ["--sinks", "sinks.npy"], {"sinks": np.array([0.5, 2], np.float32)}),
}


@pytest.mark.parametrize("name", CASES)
def test_masses_maps_and_statistics_agree_with_numpy(name, tmp_path):
    shapes, options, settings = CASES[name]
    dtype = np.float64 if name == "float64" else np.float32
    if "sinks" in settings:
        np.save(tmp_path / "sinks.npy", settings["sinks"])
    arrays = write(tmp_path, len(name), *shapes, dtype=dtype)
    weights = reference(rank4(arrays["q"]), rank4(arrays["k"]), rank4(arrays["v"]), **settings)["weights"]
    report = json.loads(succeed("attend", *QKV, *options, "--inspect", "--save", "out", "--json", cwd=tmp_path))
    axes = arrays["q"].ndim
    mass, cells = np.load(tmp_path / "out/key_mass.npy"), np.load(tmp_path / "out/pooled_map.npy")
    pictures = [f"head-{h}.png" if weights.shape[0] == 1 else f"batch-{b}-head-{h}.png"
                for b in range(weights.shape[0]) for h in range(weights.shape[1])]
    assert sorted(os.listdir(tmp_path / "out")) == sorted([f"{name}.npy" for name in ARRAYS] + ["inspect.json", *pictures])
    assert mass.dtype == cells.dtype == dtype and mass.ndim == axes - 1 and cells.ndim == axes
    length, keys = weights.shape[2:]
    assert mass.shape[-1] == keys and list(cells.shape[-2:]) == report["inspect"]["map_size"]
    assert report["shapes"]["key_mass"] == list(mass.shape) and report["shapes"]["pooled_map"] == list(cells.shape)
    accuracy = 1e-13 if name == "float64" else 1e-5
    assert np.allclose(mass.reshape(weights.shape[:2] + (keys,)), weights.sum(axis=2), rtol=accuracy, atol=accuracy / 100)
    wanted = means(weights, *cells.shape[-2:])
    assert np.allclose(cells.reshape(wanted.shape), wanted, rtol=accuracy, atol=accuracy / 100)

    said = report["inspect"]
    assert said["queries"] == length and said["keys"] == keys and len(said["heads"]) == weights.shape[0] * weights.shape[1]
    top = int(options[options.index("--top") + 1]) if "--top" in options else 5
    chosen = [int(key) for key in options[options.index("--track-keys") + 1].split(",")] if "--track-keys" in options else [0]
    assert said["tracked_keys"] == chosen
    flat = mass.reshape(-1, keys)
    for n, head in enumerate(said["heads"]):
        assert [head["batch"], head["head"]] == list(divmod(n, weights.shape[1]))
        order = np.argsort(-flat[n], kind="stable")[:top]
        assert head["heavy_hitters"] == list(order)
        assert np.array_equal(np.array(head["mass"], dtype), flat[n][order])
        assert np.allclose(head["share"], flat[n][order] / length, rtol=1e-7)
        assert np.allclose(head["tracked_shares"], flat[n][chosen] / length, rtol=1e-7)
        for name in ("entropy", "largest_weight", "mean_distance"):
            assert head[name] == pytest.approx(np.load(tmp_path / f"out/{name}.npy").reshape(-1, length)[n].mean(dtype=np.float64), rel=1e-5)
    rows = {name: np.load(tmp_path / f"out/{name}.npy").reshape(weights.shape[:3] + ((-1,) if name.startswith("top") else ()))
            for name in ARRAYS[2:]}
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(weights > 0, weights * np.log(weights), 0).sum(axis=3)
    position = np.arange(length) + settings.get("offset", [0])[0]
    distance = (weights * abs(position[:, None] - np.arange(keys))).sum(axis=3)
    for name, wanted in (("entropy", entropy), ("largest_weight", weights.max(axis=3)), ("mean_distance", distance)):
        assert rows[name].dtype == dtype and np.allclose(rows[name], wanted, rtol=accuracy * 10, atol=accuracy * 10), name
    count = min(top, keys)
    order = np.argsort(-weights, axis=3, kind="stable")[..., :count]
    assert rows["top_keys"].shape == order.shape and rows["top_keys"].dtype == np.int64
    known = np.take_along_axis(weights, order, axis=3)
    assert np.array_equal(np.where(known > 1e-9, rows["top_keys"], 0), np.where(known > 1e-9, order, 0))
    assert np.allclose(rows["top_weights"], known, rtol=accuracy, atol=accuracy / 100)
    # inspect.json equals the output of --json.
    assert json.loads((tmp_path / "out/inspect.json").read_text()) == report


# ---- pictures

PAPER, RULE, INK, MAP = (0xfd, 0xfc, 0xf9), (0xd9, 0xd5, 0xca), (0x1f, 0x1e, 0x1b), (0x0b, 0x4f, 0x8f)


def read_png(path):
    """Pixels (height, width, 3) and texts, from the chunks; checks every checksum."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, []
    while at < len(data):
        size, = struct.unpack(">I", data[at:at + 4])
        kind, body = data[at + 4:at + 8], data[at + 8:at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + size
    assert chunks[0][0] == b"IHDR" and chunks[-1] == (b"IEND", b"")
    width, height, *form = struct.unpack(">IIBBBBB", chunks[0][1])
    assert form == [8, 3, 0, 0, 0] and b"sRGB" in dict(chunks)
    rows = np.frombuffer(zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT")), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()  # filter "none"
    palette = np.frombuffer(dict(chunks)[b"PLTE"], np.uint8).reshape(-1, 3)
    texts = dict(body.decode("ascii").split("\0") for kind, body in chunks if kind == b"tEXt")
    return palette[rows[:, 1:]], texts


def painted(cells, scale):
    """The expected pixels for these cells, up to rounding."""
    down, across = (min(max(512 // count, 1), 32) for count in cells.shape)
    largest = np.max(cells[np.isfinite(cells)], initial=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip(cells / largest if scale == "linear" else 1 + np.log10(cells / largest) / 4, 0, 1)[..., None]
    pixels = (1 - share) * np.array(PAPER) + share * np.array(MAP)
    pixels[np.isnan(cells)] = INK
    pixels = pixels.repeat(down, axis=0).repeat(across, axis=1)
    y, x = np.indices(pixels.shape[:2])
    nothing = (cells == 0).repeat(down, axis=0).repeat(across, axis=1)
    pixels[nothing & ((x + y) % 8 == 0)] = RULE
    pixels[nothing & ((x + y) % 8 != 0)] = PAPER
    return pixels


@pytest.mark.parametrize("scale", ["log", "linear"])
@pytest.mark.parametrize("cells", ["600,700", "3,50", "1,1"])
def test_pictures_show_the_maps_in_color(cells, scale, tmp_path):
    write(tmp_path, 11, (2, 2, 700, 8), (2, 1, 700, 8))
    succeed("attend", *QKV, "--causal", "--inspect", "--map-size", cells, "--map-scale", scale, "--save", "out", cwd=tmp_path)
    maps = np.load(tmp_path / "out/pooled_map.npy").astype(np.float64)
    for b in range(2):
        for h in range(2):
            pixels, texts = read_png(tmp_path / f"out/batch-{b}-head-{h}.png")
            wanted = painted(maps[b, h], scale)
            assert pixels.shape == wanted.shape and abs(pixels - wanted).max() < 1.2
            assert texts["Title"] == f"batch {b}, head {h}" and texts["Software"].startswith("regard ")
            rows, columns = cells.split(",")
            assert texts["Description"].startswith(f"Mean attention weights: 700 queries from top to bottom, 700 keys from left to right, in {rows} x {columns} cells")
            full = f"{maps[b, h].max():.6g}"
            assert texts["Scale"] == (f"linear: background 0, full blue {full}; hatched: zero; black: NaN" if scale == "linear" else
                                      f"logarithmic: background {maps[b, h].max() / 1e4:.6g} or less, full blue {full}; hatched: zero; black: NaN")


def test_pictures_mark_nan_and_zero_cells(tmp_path):
    arrays = write(tmp_path, 12, (2, 20, 8), (2, 20, 8))
    arrays["q"][0, 3] = np.nan
    np.save(tmp_path / "q.npy", arrays["q"])
    np.save(tmp_path / "mask.npy", np.array([True, False])[:, None, None] & np.ones((2, 20, 20), bool))
    text = succeed("attend", *QKV, "--mask", "mask.npy", "--inspect", "--map-size", "20", "--save", "out", cwd=tmp_path).decode()
    assert text.startswith("Head 0 has weights that are nan.\n") and text.split("\n")[4].split() == ["1", *"0000", "none"]
    cells = np.load(tmp_path / "out/pooled_map.npy")
    assert np.isnan(cells[0, 3]).all() and np.isfinite(cells[0, 4:]).all() and not cells[1].any()
    for h in range(2):
        pixels, _ = read_png(tmp_path / f"out/head-{h}.png")
        assert abs(pixels - painted(cells[h].astype(np.float64), "log")).max() < 1.2


VISIBLE = {
    "plain": ([], lambda b, h, i, j: True),
    "causal": (["--causal"], lambda b, h, i, j: j <= i),
    "all-combined": (["--causal=top_left", "--window", "6,-", "--key-lengths", "lengths.npy", "--mask", "mask.npy"],
                     lambda b, h, i, j: i - 6 <= j <= i and j < [9, 17][b] and (i * 7 + j * 3 + h) % 4 != 0),
    "bias": (["--causal", "--bias", "bias.npy"], lambda b, h, i, j: j <= i),
}


@pytest.mark.parametrize("name", VISIBLE)
def test_shares_are_compared_with_uniform_attention_over_visible_keys(name, tmp_path):
    options, visible = VISIBLE[name]
    batch, heads, rows = 2, 3, 20
    write(tmp_path, 5, (batch, heads, rows, 4), (batch, heads, rows, 4))
    np.save(tmp_path / "lengths.npy", np.array([9, 17]))
    np.save(tmp_path / "bias.npy", np.random.default_rng(1).standard_normal((rows, rows)).astype(np.float32))
    np.save(tmp_path / "mask.npy", np.array([[[[(i * 7 + j * 3 + h) % 4 != 0 for j in range(rows)] for i in range(rows)]
                                              for h in range(heads)]]))
    said = json.loads(succeed("attend", *QKV, "--inspect", "--top", str(rows), "--json", *options, cwd=tmp_path))["inspect"]["heads"]
    compared = 0
    for head in said:
        b, h = head["batch"], head["head"]
        for key, uniform in zip(head["heavy_hitters"], head["uniform"], strict=True):
            want = 0.0
            for i in range(rows):
                seen = [j for j in range(rows) if visible(b, h, i, j)]
                want += 1 / len(seen) / rows if key in seen else 0.0
            assert uniform == pytest.approx(want, rel=1e-6)
            compared += 1
    assert compared > 50
    text = " ".join(succeed("attend", *QKV, "--inspect", *options, cwd=tmp_path).decode().split())
    most = max((head for head in said), key=lambda head: head["share"][0])
    assert f"uniform over the visible keys of each query: {most['uniform'][0]:.4f}." in text


def test_text_states_the_finding_and_prints_one_line_per_head(tmp_path):
    arrays = write(tmp_path, 3, (4, 30, 8), (2, 30, 8))
    arrays["k"][1, 7] *= 20
    arrays["q"][3, :, :] = arrays["k"][1, 7]
    np.save(tmp_path / "q.npy", arrays["q"])
    np.save(tmp_path / "k.npy", arrays["k"])
    text = succeed("attend", *QKV, "--inspect", "--track-keys", "0,7", "--top", "2", "--save", "out", cwd=tmp_path).decode()
    lines = text.split("\n")
    assert lines[0] == "Head 3 gives 1.0000 of its attention to key 7, the largest share of any key in"
    assert lines[1] == "any head; uniform over the visible keys of each query: 0.0333."
    assert lines[3].split() == "head key 0 key 7 entropy largest distance heavy hitters".split()
    said = json.loads((tmp_path / "out/inspect.json").read_text())["inspect"]["heads"]
    mass = np.load(tmp_path / "out/key_mass.npy")
    for h, line in enumerate(lines[4:8]):
        first, second = np.argsort(-mass[h], kind="stable")[:2]
        share = [f"{x / 30:.4f}" if x > 0 else "0" for x in mass[h]]
        means = [f"{said[h]['entropy']:.2f}", f"{said[h]['largest_weight']:.4f}", f"{said[h]['mean_distance']:.1f}"]
        wanted = [str(h), share[0], share[7], *means, str(first), share[first], str(second), share[second]]
        if h < 3:
            assert line.split() == wanted
    assert lines[8:] == ["", "  saved  out", ""]
    assert succeed("attend", *QKV, "--inspect", "--top", "2", "--track-keys", "0,7", cwd=tmp_path).decode() == "\n".join(lines[:8]) + "\n"
    # Without --top each head has one line with as many keys as fit; with it, as many lines as needed.
    narrow = environment(COLUMNS="50")
    assert len(succeed("attend", *QKV, "--inspect", cwd=tmp_path, env=narrow).decode().split("\n\n")[1].splitlines()) == 5
    assert len(succeed("attend", *QKV, "--inspect", "--top", "8", cwd=tmp_path, env=narrow).decode().split("\n\n")[1].splitlines()) > 15


def test_inspection_does_not_change_other_outputs(tmp_path):
    write(tmp_path, 4, (2, 40, 8), (2, 40, 8))
    succeed("attend", *QKV, "--causal", "-o", "alone.npy", "--lse", "lse.npy", cwd=tmp_path)
    succeed("attend", *QKV, "--causal", "-o", "beside.npy", "--lse", "lse2.npy", "--inspect", "--save", "out", "--threads", "1", cwd=tmp_path)
    assert (tmp_path / "alone.npy").read_bytes() == (tmp_path / "beside.npy").read_bytes()
    assert (tmp_path / "lse.npy").read_bytes() == (tmp_path / "lse2.npy").read_bytes()
    before = {name: (tmp_path / "out" / name).read_bytes() for name in (f"{array}.npy" for array in ARRAYS)}
    # Existing output files are replaced; other files are kept.
    (tmp_path / "out/notes.txt").write_text("mine")
    (tmp_path / "out/pooled_map.npy").write_bytes(b"old")
    succeed("attend", *QKV, "--causal", "--inspect", "--save", "out", "--threads", "2", cwd=tmp_path)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
    assert (tmp_path / "out/notes.txt").read_text() == "mine"


def test_memory_for_long_inputs_is_linear(tmp_path):
    """20,000 queries and keys, whose weights would take 1.6 GB per head."""
    write(tmp_path, 5, (2, 20000, 4), (1, 20000, 4))

    def limited():
        resource.setrlimit(resource.RLIMIT_DATA, (300 * 2**20, 300 * 2**20))

    done = subprocess.run([PROGRAM, "attend", *QKV, "--causal", "--inspect", "--save", "out", "--json", "--threads", "2"], cwd=tmp_path,
                          env=environment(), capture_output=True, timeout=110, preexec_fn=limited, check=False)
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    report = json.loads(done.stdout)
    assert report["inspect"]["map_size"] == [512, 512] and report["plan"]["memory_bytes"] < 100e6
    mass, cells = np.load(tmp_path / "out/key_mass.npy"), np.load(tmp_path / "out/pooled_map.npy")
    assert np.allclose(mass.sum(axis=1), 20000, rtol=1e-5)
    # Cells above the diagonal are 0; a row of cells contains all the weight of its queries.
    edges = np.arange(513) * 20000 // 512
    assert np.allclose((cells * np.diff(edges)).sum(axis=2), 1, rtol=1e-5)
    assert not np.triu(cells[0], 1).any()


def test_invalid_options_are_rejected(tmp_path):
    write(tmp_path, 6, (2, 40, 8), (2, 50, 8))
    (tmp_path / "file").write_text("in the way")
    os.mkdir(tmp_path / "closed", 0o500)
    inspect = ("attend", *QKV, "--inspect")
    fail(2, ["--save needs --inspect"], "attend", *QKV, "--save", "out", cwd=tmp_path)
    fail(2, ["--map-size needs --inspect"], "attend", *QKV, "-o", "c.npy", "--map-size", "4", cwd=tmp_path)
    fail(2, ["--top needs --inspect"], "attend", *QKV, "-o", "c.npy", "--top", "4", cwd=tmp_path)
    fail(2, ["--track-keys needs --inspect"], "attend", *QKV, "-o", "c.npy", "--track-keys", "4", cwd=tmp_path)
    fail(2, ["--inspect", "nothing would be written"], "attend", *QKV, cwd=tmp_path)
    fail(2, ["--output - and --inspect both write to standard output"], *inspect, "-o", "-", cwd=tmp_path)
    fail(2, ["--map-size is 0; expected 1 or more"], *inspect, "--map-size", "0", cwd=tmp_path)
    fail(2, ['--map-size is "1,2,3"; expected'], *inspect, "--map-size", "1,2,3", cwd=tmp_path)
    fail(2, ["--map-size", "integer"], *inspect, "--map-size", "many", cwd=tmp_path)
    fail(2, ['--map-scale is "square"; expected log or linear'], *inspect, "--map-scale", "square", cwd=tmp_path)
    fail(2, ["--map-scale needs --inspect"], "attend", *QKV, "-o", "c.npy", "--map-scale", "log", cwd=tmp_path)
    fail(2, ["--top is -1; expected 0 or more"], *inspect, "--top", "-1", cwd=tmp_path)
    fail(2, ["--track-keys is -1; expected 0 or more"], *inspect, "--track-keys", "0,-1", cwd=tmp_path)
    fail(1, ["--map-size is 41,41; expected at most 40,50"], *inspect, "--map-size", "41", cwd=tmp_path)
    fail(1, ["--map-size is 3,51; expected at most"], *inspect, "--map-size", "3,51", cwd=tmp_path)
    fail(1, ["--track-keys names key 50, but --key has 50 keys"], *inspect, "--track-keys", "3,50", cwd=tmp_path)
    fail(1, ["file", "the folder cannot be created"], *inspect, "--save", "file", cwd=tmp_path)
    fail(1, ["missing/out", "the folder cannot be created"], *inspect, "--save", "missing/out", cwd=tmp_path)
    fail(2, ["--save would write", "key_mass.npy", "--query reads"], "attend", "--query", "key_mass.npy", "--key", "k.npy", "--value", "v.npy",
         "--inspect", "--save", ".", cwd=tmp_path)
    fail(2, ["--output and --save both write to", "pooled_map.npy"], *inspect, "-o", "out/pooled_map.npy", "--save", "out", cwd=tmp_path)
    fail(1, ["this needs", "but --max-memory allows"], *inspect, "--max-memory", "10K", cwd=tmp_path)
    np.save(tmp_path / "none.npy", np.zeros((2, 0, 8), np.float32))
    fail(1, ["--inspect: there is no query to inspect"], "attend", "--query", "none.npy", "--key", "k.npy", "--value", "v.npy", "--inspect", cwd=tmp_path)
    fail(1, ["--inspect: there is no key to inspect"], "attend", "--query", "q.npy", "--key", "none.npy", "--value", "none.npy", "--inspect", cwd=tmp_path)
    np.save(tmp_path / "many.npy", np.zeros((1001, 1, 4), np.float32))
    fail(1, ["a picture for each of 1001 heads; the maximum is 1000"], "attend", "--query", "many.npy", "--key", "many.npy", "--value", "many.npy",
         "--inspect", "--save", "out", cwd=tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_page_of_maps_is_possible_for_any_length(tmp_path):
    write(tmp_path, 8, (2, 3000, 4), (2, 3000, 4))
    fail(1, ["--html: the page would take", "choose rows with --rows A:B, or give --inspect for a map of every head"], "attend", *QKV, "--html", "p.html",
         cwd=tmp_path)
    fail(1, ["--html: the page would take", "choose rows with --rows A:B"], "attend", *QKV, "--html", "p.html", "--inspect", "--rows", "0:2900", cwd=tmp_path)
    text = succeed("attend", *QKV, "--html", "p.html", "--inspect", cwd=tmp_path).decode()
    assert text.endswith("/p.html   maps of the heads\n") and (tmp_path / "p.html").stat().st_size < 4e6
    succeed("attend", *QKV, "--html", "rows.html", "--inspect", "--rows", "7:9", cwd=tmp_path)
    assert b'"rows": [[7, 9]]' in (tmp_path / "rows.html").read_bytes()


def test_a_thousand_pictures_need_few_descriptors(tmp_path):
    np.save(tmp_path / "many.npy", np.zeros((1000, 1, 4), np.float32))
    done = subprocess.run([PROGRAM, "attend", "--query", "many.npy", "--key", "many.npy", "--value", "many.npy", "--inspect", "--save", "out"],
                          cwd=tmp_path, env=environment(), capture_output=True, timeout=110, check=False,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    assert done.returncode == 0 and done.stderr == b"", done.stderr
    assert len(os.listdir(tmp_path / "out")) == 1008


def test_a_failure_leaves_no_folder(tmp_path):
    write(tmp_path, 7, (2, 40, 8), (2, 40, 8))
    with open("/dev/full", "wb") as full:
        done = subprocess.run([PROGRAM, "attend", *QKV, "--inspect", "--save", "out"], cwd=tmp_path, env=environment(), stdout=full,
                              stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 1 and b"standard output" in done.stderr
    assert not (tmp_path / "out").exists()
    # With a file size limit, no file is created.
    done = subprocess.run([PROGRAM, "attend", *QKV, "--inspect", "--save", "out"], cwd=tmp_path, env=environment(), capture_output=True, timeout=60,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)), check=False)
    assert done.returncode == 1 and b"pooled_map.npy: cannot be written" in done.stderr and not done.stdout
    assert not (tmp_path / "out").exists()
