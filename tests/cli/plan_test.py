# SPDX-License-Identifier: Apache-2.0
"""`regard plan`: scheme, bytes and time by the formulas of docs/derivations/ranks.md, the comparison with one machine in
words, measured rates, and invalid options."""

import json
import re

import pytest

from program import environment, fail, succeed

RATES = ["--link", "10Gb", "--latency", "50us", "--flops", "5T", "--read-rate", "50GB/s"]
LINK, LATENCY, FLOPS, READ = 1.25e9, 50e-6, 5e12, 50e9


def plan(*arguments):
    return json.loads(succeed("plan", *RATES, *arguments, "--json"))


def test_heads_receive_query_and_keys_and_return_their_context():
    found = plan("--ranks", "8", "--length", "131072", "--kv-heads", "8", "--dtype", "bf16", "--causal")
    assert found["schema"] == "regard/1" and found["scheme"] == "heads" and found["imbalance"] == 1
    length, group, size, element = 131072, 4, 128, 2
    rows = 7 / 8 * length * group * size * element  # of query, or of context, of one key/value head
    keys = 7 / 8 * length * 2 * size * element
    assert found["received_bytes"] == 2 * rows + keys
    assert found["held_bytes"] == length / 8 * (32 + 8) * 2 * size * element == found["one_machine_bytes"] / 8
    compute = 2 * length * (length + 1) / 2 * group * 2 * size / FLOPS
    assert found["compute_seconds"] == pytest.approx(compute, rel=1e-12)
    transfer = (14 * LATENCY + (rows + keys) / LINK) + (7 * LATENCY + rows / LINK)
    assert found["seconds"] == pytest.approx(compute + transfer, rel=1e-12)
    assert found["one_machine_seconds"] == pytest.approx(8 * compute, rel=1e-12)
    assert found["one_machine_is_faster"] is False


def test_rows_gather_one_head_at_a_time():
    found = plan("--ranks", "4", "--length", "8192", "--kv-heads", "2", "--shares", "even")
    assert found["scheme"] == "rows"
    # A rank has 2048 rows of 32 heads, and receives 6144 keys of each of two key/value heads.
    compute = 2 * 2048 * 8192 * 16 * 256 / FLOPS
    transfer = 3 * LATENCY + 6144 * 256 * 4 / LINK
    assert found["received_bytes"] == 2 * 6144 * 256 * 4 and found["buffer_bytes"] == 2 * 8192 * 256 * 4
    assert found["seconds"] == pytest.approx(transfer + max(compute, transfer) + compute, rel=1e-12)
    assert found["compute_seconds"] == pytest.approx(2 * compute, rel=1e-12)


def test_keys_stay_where_they_are_when_one_row_is_decoded():
    found = plan("--ranks", "8", "--length", "1048576", "--queries", "1", "--kv-heads", "8", "--dtype", "bf16")
    assert found["scheme"] == "keys"
    compute = 131072 * 8 * 256 * 2 / READ + 1024 * 4 * 130 * 4 / READ
    assert found["compute_seconds"] == pytest.approx(compute, rel=1e-12)
    # The last rank holds the row and sends its query to seven others, which receive partial results and return context.
    query, partials, context = 7 * 32 * 128 * 2, 7 * 128 * 4 * 130 * 4, 7 * 4 * 128 * 2
    transfer = 3 * 7 * LATENCY + (query + partials + context) / LINK
    assert found["seconds"] == pytest.approx(compute + transfer, rel=1e-12)


def test_shares_of_equal_work_balance_a_causal_call():
    arguments = ["--ranks", "4", "--length", "4096", "--heads", "2", "--kv-heads", "1", "--causal"]
    even, work = (plan(*arguments, "--shares", shares) for shares in ("even", "work"))
    assert even["scheme"] == work["scheme"] == "rows"
    assert even["imbalance"] <= 1.05 and work["imbalance"] <= 1.05
    assert work["held_bytes"] > even["held_bytes"] == 1024 * (2 + 1) * 256 * 4


def test_with_a_window_only_the_keys_at_a_border_are_sent():
    arguments = ["--ranks", "2", "--length", "4096", "--heads", "2", "--kv-heads", "1", "--causal", "--window", "255,0"]
    found = plan(*arguments)
    assert found["window"] == "255,0" and found["received_bytes"] == 255 * 256 * 4
    assert "float32, causal, window 255,0\n" in succeed("plan", *RATES, *arguments).decode()


@pytest.mark.parametrize("link, slower", [("10Mb", True), ("100Gb", False)])
def test_the_comparison_with_one_machine_is_in_words(link, slower):
    arguments = ["plan", "--ranks", "8", "--link", link, "--length", "16384", "--flops", "5T", "--read-rate", "50GB"]
    lines = succeed(*arguments).decode().splitlines()
    assert max(map(len, lines)) <= 80
    one, several = r"880 ms", r"([0-9.]+ m?s)"
    assert re.fullmatch(rf"one machine is faster: {one} against {several}" if slower else
                        rf"8 machines are faster: {several} against {one} \([0-9.]+ times\)", lines[-1])
    assert [line.split()[0] for line in lines if line[0] != " "] == [
        "call", "scheme", "balance", "bytes", "memory", "node", "link", "time", "one" if slower else "8"]


def test_one_rank_is_one_machine():
    text = succeed("plan", *RATES, "--ranks", "1", "--length", "131072").decode()
    assert text.splitlines()[-1] == "one machine: 56.3 s"


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
def test_rates_that_are_not_given_are_measured(dtype):
    env = environment(REGARD_THREADS="1")
    found = json.loads(succeed("plan", "--ranks", "2", "--link", "1.25GB/s", "--length", "4096", "--dtype", dtype, "--head-size",
                               "32", "--json", env=env))
    assert found["flops_measured"] and found["read_measured"] and found["link_bytes_per_second"] == 1.25e9
    assert found["flops"] > 1e8 and found["read_bytes_per_second"] > 1e8 and found["latency_seconds"] == 50e-6


@pytest.mark.parametrize("given, expected", [("10Gb", 1.25e9), ("10Gb/s", 1.25e9), ("100Gbit/s", 1.25e10), ("1.25GB", 1.25e9),
                                             ("800MB/s", 8e8), ("1Tb", 1.25e11), ("64kb", 8e3), ("1e9B/s", 1e9)])
def test_links_are_given_in_bits_or_bytes(given, expected):
    found = plan("--ranks", "2", "--length", "64") if given == "10Gb" else json.loads(succeed(
        "plan", "--link", given, "--flops", "1e12", "--read-rate", "1GB", "--ranks", "2", "--length", "64", "--json"))
    assert found["link_bytes_per_second"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("given, expected", [("50us", 50e-6), ("2ms", 2e-3), ("0.001s", 1e-3), ("900ns", 9e-7)])
def test_latencies_have_a_unit(given, expected):
    found = json.loads(succeed("plan", "--link", "10Gb", "--latency", given, "--flops", "800GFLOP/s", "--read-rate", "1GB",
                               "--ranks", "2", "--length", "64", "--json"))
    assert found["latency_seconds"] == pytest.approx(expected, rel=1e-12) and found["flops"] == 8e11


@pytest.mark.parametrize("arguments, words", [
    ([], "missing --ranks; give the number of machines"),
    (["--ranks", "2", "--link", "10Gb"], "missing --length; give the number of keys"),
    (["--ranks", "2", "--length", "64"], "missing --link; give the rate of a network link, such as 10Gb"),
    (["--ranks", "0", "--length", "64", "--link", "10Gb"], "--ranks is 0; expected 1 to 4096"),
    (["--ranks", "2", "--length", "-1", "--link", "10Gb"], "--length is -1; expected 1 to"),
    (["--ranks", "2", "--length", "64", "--link", "10"], '--link is "10"; expected a rate above 0, such as 10Gb'),
    (["--ranks", "2", "--length", "64", "--link", "0Gb"], '--link is "0Gb"'),
    (["--ranks", "2", "--length", "64", "--link", "infB"], '--link is "infB"'),
    (["--ranks", "2", "--length", "64", "--link", "fast"], '--link is "fast"'),
    (["--ranks", "2", "--length", "64", "--link", "1Gb", "--latency", "5"], '--latency is "5"; expected a time above 0'),
    (["--ranks", "2", "--length", "64", "--link", "1Gb", "--flops", "5X"], '--flops is "5X"; expected a rate above 0'),
    (["--ranks", "2", "--length", "64", "--link", "1Gb", "--shares", "odd"], '--shares is "odd"; expected even or work'),
    (["--ranks", "2", "--length", "64", "--link", "1Gb", "--dtype", "int8"], '--dtype is "int8"; expected f32, f64, bf16 or f16'),
    (["--ranks", "2", "--length", "64", "--link", "1Gb", "--window", "5"], '--window is "5"; expected LEFT,RIGHT'),
    ([*RATES, "--ranks", "2", "--length", "64", "--kv-heads", "5"],
     "num_kv_heads is 5; expected a divisor of num_heads, 32"),
    ([*RATES, "--ranks", "2", "--length", "1000000000000"], "the extents are too large"),
])
def test_invalid_options_are_rejected(arguments, words, tmp_path):
    fail(2, words, "plan", *arguments, cwd=tmp_path)
