# SPDX-License-Identifier: Apache-2.0
"""What a rank runs in the tests of regard.distributed: python rank_cases.py CASE…, under mpirun or with torch.distributed.

    under mpirun                          MPI.COMM_WORLD of mpi4py
    RANK, WORLD_SIZE, RENDEZVOUS are set  the default group of torch.distributed (gloo), which meets at a file
    under torchrun                        the same group, which meets over TCP

Every rank makes the arrays of the whole call, computes it alone, and compares the bytes of its share. For each case it
prints "rank r of N passed: CASE". Read next: tests/distributed/python_test.py, tests/frameworks/ranks_test.py.
"""

import os
import signal
import sys
import time

import numpy as np
import regard
import regard.distributed as distributed

OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": (40, 0)},
    "bottom right": {"causal": "bottom_right"},
    "sinks": {"causal": True, "sinks": [0.5, -0.25, 1.0, 0.0]},
    "packed": {"causal": True, "query_starts": [0, 50, 130], "key_starts": [0, 50, 130]},
    "soft cap": {"soft_cap": 5.0, "alibi_slopes": [0.5, 0.25, 0.125, 0.0625]},
    "dropout": {"dropout": 0.25, "dropout_seed": 7},
}


def shares(length, num_ranks, kind):
    """The first index of each rank, and the length."""
    if kind == "even":
        return [length * r // num_ranks for r in range(num_ranks + 1)]
    if kind == "uneven":
        return [0, *(max(1, length * (r * r) // (num_ranks * num_ranks)) for r in range(1, num_ranks)), length]
    return [0] * num_ranks + [length] if kind == "last has all" else [0] + [length] * num_ranks


def numbers(*shape, seed, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same(found, expected, what):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape, (what, found.shape, expected.shape)
    assert found.tobytes() == expected.tobytes(), what


class Share:
    """A call and the part of this rank."""

    def __init__(self, rank, num_ranks, rows_kind="even", keys_kind="even", rows=130, keys=130, dtype=np.float32):
        self.query = numbers(2, 4, rows, 16, seed=1, dtype=dtype)
        self.key, self.value = (numbers(2, 2, keys, 16, seed=seed, dtype=dtype) for seed in (2, 3))
        starts, key_starts = shares(rows, num_ranks, rows_kind), shares(keys, num_ranks, keys_kind)
        self.rows, self.keys = slice(*starts[rank:rank + 2]), slice(*key_starts[rank:rank + 2])

    def one_sequence(self):
        self.query, self.key, self.value = self.query[:1], self.key[:1], self.value[:1]

    def own(self):
        return self.query[:, :, self.rows], self.key[:, :, self.keys], self.value[:, :, self.keys]

    def all(self):
        return self.query, self.key, self.value


STATE = {"return_row_max": True, "return_row_sum": True, "return_lse": True}
KINDS = [("even", "even"), ("uneven", "uneven"), ("last has all", "even"), ("even", "first has all")]


def forward(comm, rank, num_ranks):
    for name, options in OPTIONS.items():
        for kinds in KINDS:
            share = Share(rank, num_ranks, *kinds)
            if name == "packed":
                share.one_sequence()
            found = distributed.attention(*share.own(), comm=comm, **STATE, **options)
            expected = regard.attention(*share.all(), **STATE, **options)
            for field in ("context", "row_max", "row_sum", "lse"):
                same(getattr(found, field), getattr(expected, field)[:, :, share.rows], (name, kinds, field))
    share = Share(rank, num_ranks, "uneven", "even", rows=70)
    mask = np.random.default_rng(5).random((70, 130)) < 0.7
    bias = numbers(4, 70, 130, seed=6)
    found = distributed.attention(*share.own(), comm=comm, mask=mask[share.rows], bias=bias[:, share.rows], return_weights=True)
    expected = regard.attention(*share.all(), mask=mask, bias=bias, return_weights=True)
    same(found.context, expected.context[:, :, share.rows], "mask")
    same(found.weights, expected.weights[:, :, share.rows], "weights")
    share = Share(rank, num_ranks, dtype=np.float64)
    same(distributed.attention(*share.own(), comm=comm), regard.attention(*share.all())[:, :, share.rows], "float64")
    query, key, value = (array[0, :2] for array in share.own())
    whole = [array[0, :2] for array in share.all()]
    same(distributed.attention(query, key, value, comm=comm), regard.attention(*whole)[:, share.rows], "rank 3")


def backward(comm, rank, num_ranks):
    for name, options in OPTIONS.items():
        for kinds in KINDS:
            share = Share(rank, num_ranks, *kinds)
            if name == "packed":
                share.one_sequence()
            names = ["grad_query", "grad_key", "grad_value"] + ["grad_sinks"] * ("sinks" in options)
            saved = regard.attention(*share.all(), **STATE, return_fingerprint=True, **options)
            grad = numbers(*saved.context.shape, seed=9)
            expected = regard.attention_backward(*share.all(), saved.context, saved.row_max, saved.row_sum, grad,
                                                 fingerprint=saved.fingerprint, gradients=names, **options)
            state = distributed.attention(*share.own(), comm=comm, **STATE, **options)
            found = distributed.attention_backward(*share.own(), state.context, state.row_max, state.row_sum,
                                                   grad[:, :, share.rows], comm=comm, gradients=names, **options)
            same(found.grad_query, expected.grad_query[:, :, share.rows], (name, kinds, "grad_query"))
            for field in ("grad_key", "grad_value"):
                same(found[field], expected[field][:, :, share.keys], (name, kinds, field))
            if "sinks" in options:
                same(found.grad_sinks, expected.grad_sinks, (name, kinds, "grad_sinks"))


def bias_gradients(comm, rank, num_ranks):
    """A bias with entries of its own for each row, and its gradient."""
    share = Share(rank, num_ranks, "uneven", "even")
    bias = numbers(2, 4, 130, 130, seed=6)
    names = ["grad_query", "grad_bias"]
    saved = regard.attention(*share.all(), bias=bias, **STATE)
    grad = numbers(*saved.context.shape, seed=9)
    expected = regard.attention_backward(*share.all(), saved.context, saved.row_max, saved.row_sum, grad, bias=bias,
                                         fingerprint="unchecked", gradients=names)
    found = distributed.attention_backward(
        *share.own(), *(array[:, :, share.rows] for array in (saved.context, saved.row_max, saved.row_sum, grad)), comm=comm,
        bias=bias[:, :, share.rows], gradients=names)
    for name in names:
        same(found[name], expected[name][:, :, share.rows], name)


def types(comm, rank, num_ranks):
    """16-bit elements: the context in their type and in float32, gradients, and caches."""
    import ml_dtypes

    for dtype in (np.float16, ml_dtypes.bfloat16):
        share = Share(rank, num_ranks, "uneven", "even", dtype=dtype)
        for of_context in (dtype, np.float32):
            what = (dtype, of_context)
            saved = regard.attention(*share.all(), causal=True, dtype=of_context, **STATE)
            state = distributed.attention(*share.own(), comm=comm, causal=True, dtype=of_context, **STATE)
            for name in ("context", "row_max", "row_sum", "lse"):
                same(getattr(state, name), getattr(saved, name)[:, :, share.rows], (*what, name))
            grad = numbers(*saved.context.shape, seed=9, dtype=of_context)
            expected = regard.attention_backward(*share.all(), saved.context, saved.row_max, saved.row_sum, grad, causal=True,
                                                 fingerprint="unchecked")
            found = distributed.attention_backward(*share.own(), state.context, state.row_max, state.row_sum,
                                                   grad[:, :, share.rows], comm=comm, causal=True)
            assert found.grad_query.dtype == dtype
            same(found.grad_query, expected.grad_query[:, :, share.rows], (*what, "grad_query"))
            for name in ("grad_key", "grad_value"):
                same(found[name], expected[name][:, :, share.keys], (*what, name))
        shape = {"num_sequences": 2, "num_kv_heads": 2, "head_size": 16, "dtype": dtype}
        whole, own = (regard.KvCache(capacity=2048, **shape) for _ in range(2))
        for cache in (whole, own):
            append = cache.append if cache is whole else lambda *arrays: distributed.append(own, *arrays, comm=comm)
            append(*(numbers(2, 2, 1500, 16, seed=seed, dtype=dtype) for seed in (1, 2)))
        query = numbers(2, 4, 1, 16, seed=3, dtype=dtype)
        same(distributed.attention_decode(query, own, comm=comm), regard.attention_decode(query, whole), (dtype, "decode"))


def statistics(comm, rank, num_ranks):
    share = Share(rank, num_ranks, "uneven", "uneven")
    options = {"causal": True, "top_keys": 3, "chosen_offset": -1}
    found = distributed.attention_with_statistics(*share.own(), comm=comm, **options)
    expected = regard.attention_with_statistics(*share.all(), **options)
    for name in ("context", "entropy", "largest_weight", "mean_distance", "top_keys", "top_weights", "chosen_weight"):
        same(found[name], expected[name][:, :, share.rows], name)
    for name in ("head_entropy", "head_largest_weight", "head_mean_distance", "head_chosen_weight"):
        same(found[name], expected[name], name)
    found = distributed.attention_columns(*share.own()[:2], found.row_max, found.row_sum, comm=comm, causal=True,
                                          pooled_map=(100, 5))
    expected = regard.attention_columns(*share.all()[:2], expected.row_max, expected.row_sum, causal=True, pooled_map=(100, 5))
    same(found.key_mass, expected.key_mass[:, :, share.keys], "key_mass")
    same(found.pooled_map, expected.pooled_map, "pooled_map")


def decode(comm, rank, num_ranks):
    shape = {"num_sequences": 2, "num_kv_heads": 2, "head_size": 16}
    whole, own = (regard.KvCache(capacity=capacity, **shape) for capacity in (4096, {1: 4096, 2: 2048}.get(num_ranks, 1024)))
    for step, length in enumerate((700, 900, 1, 1)):
        key, value = (numbers(2, 2, length, 16, seed=10 * step + n) for n in (0, 1))
        query = numbers(2, 4, 1, 16, seed=10 * step + 2)
        whole.append(key, value)
        distributed.append(own, key, value, comm=comm)
        found = distributed.attention_decode(query, own, comm=comm, causal=True, return_lse=True)
        expected = regard.attention_decode(query, whole, causal=True, return_lse=True)
        same(found.context, expected.context, ("decode", step))
        same(found.lse, expected.lse, ("lse", step))


def sums(comm, rank, num_ranks):
    for dtype in (np.float32, np.float64):
        terms = numbers(20, 1000, seed=4, dtype=dtype)
        starts = shares(20, num_ranks, "uneven")
        expected = np.zeros(1000, dtype)
        for term in terms:
            expected += term
        same(distributed.sum_in_order(terms[slice(*starts[rank:rank + 2])], comm=comm), expected, dtype)


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}")


def mistakes(comm, rank, num_ranks):
    query, key, value = Share(rank, num_ranks).own()
    last = num_ranks - 1

    def attention(query, **options):
        return distributed.attention(query, key, value, comm=comm, **options)

    def text(query, **options):
        return str(raised(ValueError, lambda: attention(query, **options)))

    # Found by the operator, and by the package before it.
    if num_ranks > 1:
        found = text(query, causal=rank == last)
        assert found == f"attention_forward: rank {last}: causal is true; expected false, as on rank 0", found
        found = text(query[0, 0, 0] if rank == last else query)
        assert found.startswith(f"attention_forward: rank {last}: query has"), found
        error = raised((ValueError, TypeError), lambda: attention("text" if rank == last else query))
        assert isinstance(error, TypeError if rank == last else ValueError), error
        assert rank == last or str(error).startswith(f"attention_forward: rank {last}: TypeError: "), error
        error = raised((ValueError, TypeError), lambda: attention(query, **({"is_causal": True} if rank == last else {})))
        assert rank == last or "is_causal" in str(error) and f"rank {last}" in str(error), error
        found = text(query, return_weights=rank == last)
        assert f"rank {last} calls attention_forward with weights" in found, found
    # The same on all ranks.
    found = text(query, window=(-3, 0))
    assert "window" in found and (num_ranks == 1 or "rank 0" in found), found
    raised(TypeError, lambda: attention(query, no_option=1))
    raised(ValueError, lambda: regard.plan(lambda: attention(query)))
    raised(TypeError, lambda: distributed.attention(query, key, value, comm="world"))
    raised(ValueError, lambda: distributed.connect(comm))
    # The ranks are still of use.
    share = Share(rank, num_ranks)
    same(attention(query), regard.attention(*share.all())[:, :, share.rows], "after mistakes")


def close(comm, rank, num_ranks):
    share = Share(rank, num_ranks)
    expected = regard.attention(*share.all())[:, :, share.rows]
    for timeout in (5, 10):
        distributed.connect(comm, timeout=timeout)
        same(distributed.attention(*share.own(), comm=comm), expected, "between connect and close")
        distributed.close(comm)
        distributed.close(comm)


def failure(comm, rank, num_ranks):
    """Rank 1 raises an exception within a call: an interrupt, before the operator begins."""
    distributed.connect(comm, timeout=20)
    query, key, value = Share(rank, num_ranks).own()
    if rank == 1:
        class Interrupted:
            def __dlpack__(self, **_):
                raise KeyboardInterrupt("the user has interrupted")

        raised(KeyboardInterrupt, lambda: distributed.attention(Interrupted(), key, value, comm=comm))
        return
    error = raised(distributed.RankError, lambda: distributed.attention(query, key, value, comm=comm))
    assert error.rank == 1 and str(error) == f"rank 1 of {num_ranks} failed: the user has interrupted", error
    again = raised(distributed.RankError, lambda: distributed.attention(query, key, value, comm=comm))
    assert str(again) == str(error), again


def leaves(comm, rank, num_ranks):
    """Rank 1 makes no second call and ends. The news may reach a rank in its first call, from another rank."""
    query, key, value = Share(rank, num_ranks).own()
    if rank == 1:
        distributed.attention(query, key, value, comm=comm)
    else:
        error = raised(distributed.RankError, lambda: [distributed.attention(query, key, value, comm=comm) for _ in range(2)])
        assert error.rank == 1 and str(error) == f"rank 1 of {num_ranks} has left: it makes no further calls", error


def ends(comm, rank, num_ranks):
    """Rank 1 ends with an exception of its own."""
    query, key, value = Share(rank, num_ranks).own()
    distributed.attention(query, key, value, comm=comm)
    if rank == 1:
        raise RuntimeError("a mistake of the program")
    distributed.attention(query, key, value, comm=comm)


def killed(comm, rank, num_ranks):
    distributed.connect(comm, timeout=3)
    query, key, value = Share(rank, num_ranks).own()
    distributed.attention(query, key, value, comm=comm)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    error = raised(distributed.RankError, lambda: distributed.attention(query, key, value, comm=comm))
    assert error.rank == 1 and str(error).startswith(f"rank 1 of {num_ranks} does not respond"), error
    assert time.monotonic() - began < 15


def interrupt(comm, rank, num_ranks):
    """Ctrl-C ends the wait for rank 1, which is late."""
    distributed.connect(comm, timeout=20)
    query, key, value = Share(rank, num_ranks).own()
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        raised(KeyboardInterrupt, lambda: distributed.attention(query, key, value, comm=comm))
        return
    time.sleep(1.5)
    error = raised(distributed.RankError, lambda: distributed.attention(query, key, value, comm=comm))
    assert error.rank == 0 and "cancelled" in str(error), error


def same_tensor(found, expected, what):
    import torch

    assert found.dtype == expected.dtype, (what, found.dtype)
    # NumPy has no bfloat16.
    same(*(tensor.contiguous().view(torch.uint8) for tensor in (found, expected)), what)


def gradients(comm, rank, num_ranks):
    """PyTorch: backward(), and what autograd rejects."""
    import torch

    share = Share(rank, num_ranks, "uneven", "even")
    of_inputs = ["grad_query", "grad_key", "grad_value", "grad_bias"]
    sinks = torch.tensor([0.5, -0.25, 1.0, 0.0])
    bias = torch.from_numpy(numbers(2, 4, 130, 130, seed=6))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        whole = [torch.from_numpy(array).to(dtype) for array in share.all()]
        weight = torch.from_numpy(numbers(*share.query.shape, seed=11)).to(dtype)
        options = {"causal": True, "return_lse": True}
        saved = regard.attention(*whole, bias=bias, sinks=sinks, return_row_max=True, return_row_sum=True, **options)
        expected = regard.attention_backward(*whole, saved.context, saved.row_max, saved.row_sum, weight, bias=bias, sinks=sinks,
                                             causal=True, fingerprint="unchecked", gradients=[*of_inputs, "grad_sinks"])

        def own(array, indices):
            return array[:, :, indices].clone().requires_grad_()

        query, key, value, own_bias = (own(array, indices) for array, indices in zip(
            [*whole, bias], (share.rows, share.keys, share.keys, share.rows), strict=True))
        sink = sinks.clone().requires_grad_()
        found = distributed.attention(query, key, value, bias=own_bias, sinks=sink, comm=comm, **options)
        (found.context * weight[:, :, share.rows]).sum().backward()
        same_tensor(found.context.detach(), saved.context[:, :, share.rows], (dtype, "context"))
        same_tensor(found.lse, saved.lse[:, :, share.rows], (dtype, "lse"))
        assert found._fields == ("context", "lse") and not found.lse.requires_grad
        for name, tensor, indices in zip(of_inputs, (query, key, value, own_bias),
                                         (share.rows, share.keys, share.keys, share.rows), strict=True):
            same_tensor(tensor.grad, expected[name][:, :, indices], (dtype, name))
        same_tensor(sink.grad, expected.grad_sinks, (dtype, "grad_sinks"))
    query = torch.from_numpy(share.query[:, :, share.rows].copy()).requires_grad_()
    with torch.no_grad():
        found = distributed.attention(query, *share.own()[1:], comm=comm)
    same(found, regard.attention(*share.all())[:, :, share.rows], "no_grad")
    message = str(raised(ValueError, lambda: distributed.attention(query, *map(torch.from_numpy, map(np.copy, share.own()[1:])),
                                                                   comm=comm, out=query)))
    assert "out is given" in message, message


RESULTS = {case.__name__: case for case in (close, forward, backward, bias_gradients, types, statistics, decode, sums, mistakes)}
FAILURES = {case.__name__: case for case in (failure, leaves, interrupt, ends, killed)}
CASES = {**RESULTS, **FAILURES, "gradients": gradients}


def main():
    if "WORLD_SIZE" in os.environ:
        import torch.distributed as dist

        rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        file = os.environ.get("RENDEZVOUS")
        dist.init_process_group("gloo", **({"init_method": f"file://{file}", "rank": rank, "world_size": num_ranks} if file else {}))
        comm = None
    else:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
        rank, num_ranks = comm.Get_rank(), comm.Get_size()
    for case in sys.argv[1:]:
        CASES[case](comm, rank, num_ranks)
        # One write: the lines of ranks are not mixed.
        os.write(1, f"rank {rank} of {num_ranks} passed: {case}\n".encode())


if __name__ == "__main__":
    main()
