# SPDX-License-Identifier: Apache-2.0
"""The peak resident memory of a rank with the scheme rows: its inputs and outputs, what the same rows need on one machine,
two heads of gathered keys and values, and in the backward pass the sums of one head. If gradients are not dense, what this
rank holds of one head arrives in a copy."""

from mpi_programs import each_mpi

RANKS = 4
MAX_EXCESS = 0.05
HEADS = {"forward": 2, "backward": 3}


@each_mpi
def test_a_rank_holds_two_heads_of_keys_and_values(mpi, tmp_path):
    program = mpi.build(tmp_path / "memory", "tests/distributed/memory_check.cpp")
    # With this, the allocator returns what is freed.
    output = mpi.run(RANKS, program, MALLOC_MMAP_THRESHOLD_="65536")
    lines = [line.split() for line in output.splitlines()]
    calls = [[call, layout] for call in HEADS for layout in ("dense", "interleaved")]
    assert sorted(line[:2] for line in lines) == sorted(calls * RANKS)
    for call, layout, *rest in lines:
        growth, workspace, head = map(int, rest[1:])
        heads = HEADS[call] + (1 / RANKS if (call, layout) == ("backward", "interleaved") else 0)
        assert growth - workspace <= (1 + MAX_EXCESS) * heads * head, (call, layout, *rest)
        assert growth >= 0.9 * HEADS[call] * head, (call, layout, *rest)
