# SPDX-License-Identifier: Apache-2.0
"""regard.distributed with process groups of torch.distributed (gloo): ranks that are processes, which meet at a file or, with
torchrun, over TCP."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from documents import ROOT, blocks
from rank_cases import FAILURES, RESULTS

GUIDE = ROOT / "docs" / "guide" / "several-machines.md"
BEFORE_THE_GUIDE = """
import os
import torch
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
whole = [torch.randn(1, 2, 5 * ranks, 16) for _ in range(3)]
own = slice(5 * rank, 5 * rank + 5)
query, key, value = (x[:, :, own].clone().requires_grad_() for x in whole)
def loss(context): return (context**2).sum()
"""
AFTER_THE_GUIDE = """
import regard.torch
complete = [x.requires_grad_() for x in whole]
expected = regard.torch.scaled_dot_product_attention(*complete, is_causal=True)
loss(expected).backward()
assert torch.equal(context, expected[:, :, own])
assert all(torch.equal(x.grad, y.grad[:, :, own]) for x, y in zip((query, key, value), complete))
print(f"rank {rank} agrees")
"""
CASES = pathlib.Path(__file__).resolve().parents[1] / "support" / "rank_cases.py"


def run(folder, ranks, *cases):
    """The output and the exit status of every rank."""
    environment = {**os.environ, "WORLD_SIZE": str(ranks), "RENDEZVOUS": str(folder / "rendezvous"), "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([sys.executable, CASES, *cases], env={**environment, "RANK": str(rank)}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(ranks)]
    try:
        return [(process.communicate(timeout=100)[0], process.returncode) for process in processes]
    finally:
        for process in processes:
            process.kill()


def check_passed(results, cases, but=None):
    for rank, (output, status) in enumerate(results):
        passed = [line for line in output.split("\n") if " passed: " in line]
        if rank != but:
            assert (status, passed) == (0, [f"rank {rank} of {len(results)} passed: {case}" for case in cases]), output


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_results_and_gradients_have_the_bits_of_one_process(tmp_path, ranks):
    cases = [*RESULTS, "gradients"]
    check_passed(run(tmp_path, ranks, *cases), cases)


def test_torchrun_over_tcp():
    cases = ["forward", "types", "gradients"]
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", CASES, *cases],
                          capture_output=True, text=True, timeout=110, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    passed = sorted(line for line in done.stdout.split("\n") if " passed: " in line)
    assert (done.returncode, passed) == (0, sorted(f"rank {rank} of 2 passed: {case}" for rank in (0, 1) for case in cases)), done


def test_the_lines_of_the_guide_run_with_its_command(tmp_path):
    texts = [text for _, _, text in blocks(GUIDE)]
    lines = next(text for text in texts if "init_process_group" in text)
    (tmp_path / "train.py").write_text(BEFORE_THE_GUIDE + lines + AFTER_THE_GUIDE, encoding="utf-8")
    command = next(text for text in texts if text.startswith("torchrun --standalone --nproc-per-node 4 train.py")).split("#")[0].split()
    two = ["2" if word == "4" else word for word in command[1:]]
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", *two], cwd=tmp_path, capture_output=True, text=True,
                          timeout=110, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0 and done.stdout.count("agrees") == 2, done


@pytest.mark.parametrize("case", [case for case in FAILURES if case != "ends"])
def test_every_rank_that_is_left_names_the_one_that_failed(tmp_path, case):
    results = run(tmp_path, 3, case)
    check_passed(results, [case], but=1 if case == "killed" else None)
    assert case != "killed" or results[1][1] == -signal.SIGKILL


def test_an_exception_of_a_rank_ends_the_program(tmp_path):
    results = run(tmp_path, 3, "ends")
    assert [status for _, status in results] == [1, 1, 1], results
    assert "RuntimeError: a mistake of the program" in results[1][0]
    for rank in (0, 2):
        assert "regard.distributed.RankError: rank 1 of 3 has left because of an exception" in results[rank][0], results[rank]
