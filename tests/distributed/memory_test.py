# SPDX-License-Identifier: Apache-2.0
"""The peak resident memory of a rank: with the scheme rows, its inputs and outputs, two heads of gathered keys and values,
and what the same rows need on one machine."""

from mpi_programs import each_mpi

RANKS = 4
MAX_EXCESS = 0.05


@each_mpi
def test_a_rank_holds_two_heads_of_keys_and_values(mpi, tmp_path):
    program = mpi.build(tmp_path / "memory", "tests/distributed/memory_check.cpp")
    lines = mpi.run(RANKS, program).splitlines()
    assert sorted(line.split()[0] for line in lines) == ["dense"] * RANKS + ["interleaved"] * RANKS
    for line in lines:
        growth, workspace, two_heads = map(int, line.split()[2:])
        assert growth - workspace <= (1 + MAX_EXCESS) * two_heads, line
        assert growth >= 0.9 * two_heads, line
