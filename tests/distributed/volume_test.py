# SPDX-License-Identifier: Apache-2.0
"""What four ranks send in each kind of call, counted between them and MPI, and what docs/derivations/ranks.md derives.

Beyond the formula, a pair of ranks only sends its arguments, which both compare before they compute.
"""

import collections

import pytest

from mpi_programs import each_mpi

RANKS = 4
MAX_AGREEMENT_BYTES = 2048
DATA_TAG = 0

# Bytes that a rank sends with equal shares: the formulas of the derivation, with e = 4.
EQUAL_SHARES = {
    "heads": 3 * (2048 * 8 + 2048 * 8) * 4 * 128 // 16,
    "backward": 3 * (2048 * 8 * (2 * 128 + 2) + 2 * 2048 * 8 * 128) * 4 // 16,
    "rows": 3 * 4096 * 2 * 128 * 4 // 4,
    "decode": 3 * (32 * 8 * 8 * (128 + 2) + 8 * 8 * 128) * 4,
}


@pytest.fixture(scope="module", name="volumes")
def run_once(mpi, tmp_path_factory):
    """For each section, the bytes of each pair (sender, receiver) that are expected and that were sent."""
    folder = tmp_path_factory.mktemp("volume")
    program = mpi.build(folder / "volume", "tests/distributed/volume_check.cpp", "tests/distributed/count_bytes.cpp")
    printed = mpi.run(RANKS, program, REGARD_COUNT_BYTES=str(folder / "counts"))
    expected, names = collections.defaultdict(dict), {}
    for line in printed.splitlines():
        section, name, sender, receiver, number = line.split()
        names[section] = name
        expected[name][int(sender), int(receiver)] = int(number)
    sent = {name: dict.fromkeys(pairs, 0) for name, pairs in expected.items()}
    for sender in range(RANKS):
        for line in (folder / f"counts.{sender}").read_text().splitlines():
            assert not line.startswith("unexpected"), line
            section, receiver, tag, _, number = line.split()
            if section in names and int(tag) == DATA_TAG:
                sent[names[section]][sender, int(receiver)] = int(number)
    return expected, sent


def sums_by_sender(pairs):
    return [sum(pairs[sender, receiver] for receiver in range(RANKS)) for sender in range(RANKS)]


@each_mpi
def test_each_pair_sends_the_planned_bytes_and_its_arguments(volumes):
    expected, sent = volumes
    assert len(expected) == 14
    for name, pairs in expected.items():
        for pair, number in pairs.items():
            agreement = sent[name][pair] - number
            least, most = (0, 0) if pair[0] == pair[1] else (1, MAX_AGREEMENT_BYTES)
            assert least <= agreement <= most, (name, pair, number, sent[name][pair])


@each_mpi
def test_at_most_one_percent_is_sent_beyond_the_formula(volumes):
    expected, sent = volumes
    for name, pairs in expected.items():
        if name != "rows_uncut_documents":
            assert sum(sent[name].values()) <= 1.01 * sum(pairs.values()), name


@each_mpi
def test_equal_shares_send_what_the_formulas_say(volumes):
    for name, number in EQUAL_SHARES.items():
        assert sums_by_sender(volumes[0][name]) == [number] * RANKS, name


@each_mpi
def test_sums_of_keys_travel_once_per_query_head(volumes):
    keys, heads, kv_heads, numbers = 4080, 8, 2, 64 + 64
    gathered = (RANKS - 1) * keys * kv_heads
    summed = (RANKS - 1) * keys * heads + keys * (heads - kv_heads)
    completed = (RANKS - 1) * keys // RANKS * kv_heads
    assert sum(volumes[0]["backward_rows"].values()) == (gathered + summed + completed) * numbers * 4


@each_mpi
def test_a_window_sends_its_keys_over_each_border(volumes):
    keys_before_a_border = 511 * 2 * 256 * 4
    for (sender, receiver), number in volumes[0]["rows_window"].items():
        assert number == (keys_before_a_border if receiver == sender + 1 else 0)


@each_mpi
def test_documents_send_nothing_unless_a_border_cuts_them(volumes):
    assert set(volumes[0]["rows_uncut_documents"].values()) == {0}
    assert 0 < sum(volumes[0]["rows_documents"].values()) < sum(volumes[0]["rows_causal"].values()) / 4
