# SPDX-License-Identifier: Apache-2.0
"""Attention over ranks that are processes, with each MPI that $REGARD_MPIS names: bits of one machine for 1 to 8 ranks, and
failures that every surviving rank reports."""

import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

from mpi_programs import EXPLANATION, MPIS

PROGRAM = pathlib.Path(os.environ["REGARD_PROGRAM"])


def test_mpis_are_given():
    assert {str(mpi) for mpi in MPIS} == {"open4", "open5", "mpich5"}, EXPLANATION


@pytest.fixture(scope="session", params=MPIS, ids=str)
def mpi(request):
    return request.param


@pytest.fixture(scope="session")
def check(mpi, tmp_path_factory):
    return mpi.build(tmp_path_factory.mktemp("mpi") / "mpi_check", "tests/distributed/mpi_check.cpp", options=["-Wshadow", "-Wconversion"])


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_results_have_the_bits_of_one_machine(mpi, check, ranks):
    done = mpi.start(ranks, check, "bits")
    assert (done.returncode, sorted(done.stdout.split("\n"))) == (0, [""] + [f"rank {r} equal" for r in range(ranks)]), done.stderr


# What the ranks that are left say if rank 1 of 3 fails.
SENTENCES = {
    "kill": r"rank 1 of 3 does not respond.*",
    "stop": r"rank 1 of 3 does not respond: nothing received for 2 s",
    "throw": r"rank 1 of 3 has left because of an exception",
    "leave": r"rank 1 of 3 has left: it makes no further calls",
    "extents": r"attention_forward: rank 1: query is float32 \(1, 4, …, 24\); expected float32 \(1, 4, …, 16\), as on rank 0",
}


def check_failure(mpi, program, kind, failing, ranks, number, mode="fail"):
    done = mpi.start(ranks, program, mode, kind, str(failing), str(number), goes_on=kind in ("kill", "stop"))
    if kind == "kill" and not mpi.is_open:
        # MPICH's launcher ends all ranks when one is killed, unless a rank that notices it first is ended by MPICH itself.
        assert done.returncode != 0
        assert re.search(r"Killed \(signal 9\)|Fatal error in internal_", done.stdout + done.stderr)
        return
    sentence = SENTENCES[kind].replace("rank 1", f"rank {failing}").replace("of 3", f"of {ranks}")
    for r in range(ranks):
        said = re.findall(rf"^rank {r}: (.*)$", done.stdout, re.MULTILINE)
        if r != failing:
            assert len(said) == 1 and re.fullmatch(sentence, said[0]), (kind, done.stdout, done.stderr[-2000:])


@pytest.mark.parametrize("kind", SENTENCES)
def test_every_rank_that_is_left_names_the_one_that_failed(mpi, check, kind):
    # An error on rank 0 is compared with rank 0: choose another.
    check_failure(mpi, check, kind, 1, 3, 2)


@pytest.mark.parametrize("kind", ["kill", "stop"])
def test_a_rank_that_fails_while_sums_travel_is_named(mpi, check, kind):
    # The messages before the 10th compare arguments and gather keys; the sums of a backward pass are at least 20.
    check_failure(mpi, check, kind, 1, 3, 14, mode="sums")


# ./check slow makes 70 of them.
@pytest.mark.parametrize("seed", range(int(os.environ.get("REGARD_MPI_FAILURES", "2"))))
def test_random_failures(mpi, check, seed):
    choice = random.Random(seed)
    ranks = choice.choice([2, 3, 4])
    kind = choice.choice(list(SENTENCES))
    mode = "sums" if kind in ("kill", "stop") and choice.random() < 0.5 else "fail"
    check_failure(mpi, check, kind, choice.randrange(1, ranks), ranks, choice.randrange(0, 20), mode)


@pytest.fixture(scope="session")
def arrays(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    values = numpy.random.default_rng(3)
    for name, shape in {"q": (2, 6, 130, 32), "k": (2, 3, 140, 32), "v": (2, 3, 140, 24), "bias": (6, 130, 140), "sinks": (6,)}.items():
        numpy.save(folder / f"{name}.npy", values.standard_normal(shape).astype(numpy.float32))
    numpy.save(folder / "fortran.npy", numpy.asfortranarray(numpy.load(folder / "q.npy")))
    numpy.save(folder / "half.npy", numpy.load(folder / "q.npy").astype(numpy.float16))
    return folder


@pytest.fixture(scope="session")
def plugin(mpi, tmp_path_factory):
    path = mpi.build(tmp_path_factory.mktemp("plugin") / "regard-mpi.so", "cli/ranks/mpi_plugin.cpp",
                     options=["-fPIC", "-shared", "-fvisibility=hidden"])
    return {"REGARD_MPI_PLUGIN": str(path)}


def attend(arrays, *options, query="q"):
    return ["attend", "--query", arrays / f"{query}.npy", "--key", arrays / "k.npy", "--value", arrays / "v.npy", *options]


@pytest.mark.parametrize("options", [["--causal=bottom_right"], ["--bias", "bias.npy", "--sinks", "sinks.npy"], ["--window", "20,3"]], ids=" ".join)
@pytest.mark.parametrize("query", ["q", "fortran", "half"])
def test_attend_writes_the_files_of_one_process(mpi, plugin, arrays, tmp_path, options, query):
    options = [str(arrays / option) if option.endswith(".npy") else option for option in options]
    if options[0] == "--window":
        options += ["--query-offset", "10"]
    files = {option: tmp_path / f"{option[2:]}.npy" for option in ("--output", "--lse", "--weights")}
    given = [word for option, path in files.items() for word in (option, path)]
    subprocess.run([PROGRAM, *attend(arrays, *options, *given, query=query)], check=True)
    expected = {path: path.read_bytes() for path in files.values()}
    for ranks in (2, 5):
        for path in files.values():
            path.unlink()
        done = mpi.start(ranks, PROGRAM, *attend(arrays, *options, *given, "--ranks", query=query), **plugin)
        assert done.returncode == 0, done.stderr
        assert {path: path.read_bytes() for path in files.values()} == expected


def test_attend_reports_a_mistake_once(mpi, plugin, arrays, tmp_path):
    output = tmp_path / "o.npy"
    command = [PROGRAM, *attend(arrays, "--output", output, "--ranks")]
    for more, text in ((["--key", arrays / "none.npy"], r"regard: rank 0: .*none\.npy: cannot be opened: No such file or directory.*"),
                       (["--causal"], r"regard: .*L and S differ.*|regard: .*--query-offset.*")):
        words = [str(word) for word in command]
        if more[0] == "--key":
            words[words.index("--key") + 1] = str(more[1])
        else:
            words += more
        done = mpi.start(3, *words, **plugin)
        said = [line for line in done.stderr.splitlines() if line.startswith("regard: ")]
        assert done.returncode != 0 and len(said) == 1 and re.fullmatch(text, said[0]), done.stderr
        assert not output.exists()


def test_attend_without_an_mpi_plugin(arrays, tmp_path):
    done = subprocess.run([PROGRAM, *attend(arrays, "--output", tmp_path / "o.npy", "--ranks")], capture_output=True, text=True,
                          env={**os.environ, "REGARD_MPI_PLUGIN": str(tmp_path / "none.so")})
    assert done.returncode == 1 and "--ranks: the MPI plugin cannot be loaded" in done.stderr


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


def test_training_has_the_bits_of_one_process(mpi, plugin, tmp_path):
    train = [PROGRAM, "train", "--task", "induction", "--checkpoint-every", "10", "--evaluate", "8"]
    subprocess.run([*train, "--steps", "30", "--run", tmp_path / "one"], check=True, stdout=subprocess.DEVNULL)
    expected = contents(tmp_path / "one")
    assert len(expected) >= 2
    for ranks in (2, 3, 4):
        run = tmp_path / f"run-{ranks}"
        done = mpi.start(ranks, *train, "--steps", "30", "--run", run, "--ranks", **plugin)
        assert done.returncode == 0, done.stderr
        assert contents(run) == expected
        assert done.stdout.count("Two heads that work together") == 1  # one rank prints
    # Another number of ranks goes on where a run was killed.
    run = tmp_path / "run-3"
    last = max(run.glob("step-*"))
    shutil.rmtree(last)
    done = mpi.start(4, *train, "--steps", "30", "--resume", "--run", run, "--ranks", **plugin)
    assert done.returncode == 0, done.stderr
    assert contents(run) == expected


def test_training_rejects_ranks_that_round_differently(mpi, plugin):
    """Rank 1 has no fused multiply-add."""
    other = 'if [ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ]; then export REGARD_FORCE_ISA=generic; fi; exec "$0" "$@"'
    done = mpi.start(2, "sh", "-c", other, PROGRAM, "train", "--task", "induction", "--steps", "3", "--ranks", **plugin)
    assert done.returncode != 0
    assert re.search(r"the roundings of the instruction sets \(this rank: \w+; REGARD_FORCE_ISA sets a common one\) differ between ranks",
                     done.stderr)
    assert "step" not in done.stdout


def process_of(rank, word):
    """The process of a rank, one of whose arguments is the word."""
    variables = {f"{name}={rank}".encode() for name in ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            arguments, environment = ((folder / name).read_bytes().split(b"\0") for name in ("cmdline", "environ"))
        except OSError:  # it has ended
            continue
        if word.encode() in arguments and variables & set(environment):
            return int(folder.name)
    raise AssertionError(f"rank {rank} is not found")


def test_training_ends_if_a_rank_stops(mpi, plugin, tmp_path):
    """The rank stops at any moment of a step, most of which is the chain of gradients."""
    run = str(tmp_path / "run")
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(mpi.start, 3, PROGRAM, "train", "--task", "induction", "--steps", "1000000", "--checkpoint-every", "5",
                               "--evaluate", "8", "--run", run, "--ranks", "--timeout", "8", **plugin)
        while not list((tmp_path / "run").glob("step-*")) and not training.done():
            time.sleep(0.05)
        assert not training.done(), training.result().stderr
        os.kill(process_of(1, run), signal.SIGSTOP)
        done = training.result()
    assert done.returncode != 0
    assert "rank 1 of 3 does not respond: nothing received for 8 s" in done.stderr
