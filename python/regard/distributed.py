# SPDX-License-Identifier: Apache-2.0
"""Attention over several processes, each with its own rows and keys; results are bit-identical to those in one process.

    import torch.distributed as dist
    import regard.distributed

    dist.init_process_group("gloo")
    context_rows = regard.distributed.attention(query_rows, key_rows, value_rows, causal=True)

All ranks must make the same calls in the same order. L and S are the total numbers of rows and keys on all ranks.

Every call has the parameter

    comm          the ranks: a torch.distributed process group with the gloo backend, or an mpi4py intracommunicator;
                  if it is omitted, the default process group

and raises

    ValueError    on all ranks, if an argument on any rank is invalid; the message states the rank
    RankError     on all other ranks, if a rank fails, exits or stops responding

Read next: distributed_transports.py, docs/guide/several-machines.md.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading

from . import _regard
from . import attention as _attention
from . import attention_backward as _attention_backward
from . import attention_columns as _attention_columns
from . import attention_decode as _attention_decode
from . import attention_with_statistics as _attention_with_statistics
from .distributed_transports import transport_of

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from .attention_operators import AttentionOptions as AttentionOptions
    from .calls import AnyArray
    from .kv_cache import KvCache
    from .named_results import AttentionColumns, AttentionGradients, AttentionStatistics

    Array = TypeVar("Array")

_DIFFERENTIABLE = ("query", "key", "value", "bias", "sinks")


class RankError(RuntimeError):
    """A rank has failed, has exited or has stopped responding, or the network has failed.

    All ranks that are waiting for this rank raise the exception with the same message, and so do all later calls. The
    ranks cannot be used again: call :func:`close` and end the program or, with mpi4py, call ``MPI.COMM_WORLD.Abort()``.

    Attributes
    ----------
    rank : int
        The rank that failed; −1 if it is unknown.
    """

    def __init__(self, text: str, rank: int = -1) -> None:
        super().__init__(text, rank)
        self.rank = rank

    def __str__(self) -> str:
        return str(self.args[0])


class _Connection:
    """The ranks of a communicator, in the process that connected them."""

    def __init__(self, comm: Any, timeout: float) -> None:
        self.comm = comm
        self.process = os.getpid()
        self.transport = transport_of(comm)
        self.group = _regard.RankGroup(self.transport, timeout)

    def is_of(self, comm: Any) -> bool:
        return self.process == os.getpid() and bool(self.transport.is_of(comm))


_connections: list[_Connection] = []
_lock = threading.Lock()


def _given(comm: Any) -> Any:
    if comm is not None:
        return comm
    torch = sys.modules.get("torch.distributed")
    if torch is None or not torch.is_available() or not torch.is_initialized():
        raise ValueError("regard.distributed: comm is None, and torch.distributed is not initialized; expected a process "
                         "group, or an mpi4py communicator")
    return torch.group.WORLD


def _found(comm: Any) -> _Connection | None:
    with _lock:
        return next((one for one in _connections if one.is_of(comm)), None)


def _group(comm: Any) -> _regard.RankGroup:
    comm = _given(comm)
    found = _found(comm)
    if found is None:
        connect(comm)
        found = _found(comm)
        assert found is not None
    return found.group


def connect(comm: Any = None, *, timeout: float = 60.0) -> None:
    """Connect the ranks of a communicator. If needed, the first distributed call does so with the default timeout.

    This is a collective call: all ranks of the communicator must make it.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or torch.distributed.ProcessGroup, optional
        The ranks. An mpi4py communicator is duplicated. In a process group, Regard's messages have tags of their own.
    timeout : float, default 60.0
        The time without a heartbeat after which a rank is considered to have failed, in seconds. A thread on each rank
        sends heartbeats even while the rank computes. With mpi4py, this requires the thread level
        ``THREAD_MULTIPLE``, which is the default.

    Raises
    ------
    ValueError
        If the communicator is already connected, or the timeout is not positive.
    TypeError
        If comm is neither a communicator nor a process group.
    """
    comm = _given(comm)
    if _found(comm) is not None:
        raise ValueError("regard.distributed.connect: the communicator is already connected; expected a call to close() first")
    connection = _Connection(comm, timeout)
    with _lock:
        _connections.append(connection)


def close(comm: Any = None) -> None:
    """Disconnect the ranks of a communicator. The call returns when all ranks have made it.

    Ranks are also disconnected when the interpreter exits. If the program calls ``MPI.Finalize()``, ``comm.Free()`` or
    ``torch.distributed.destroy_process_group()``, it must call this function first.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or torch.distributed.ProcessGroup, optional
        The ranks, which need not be connected.
    """
    found = _found(_given(comm))
    if found is None:
        return
    found.group.close()
    with _lock:
        _connections.remove(found)


def _close_all() -> None:
    """Disconnect all ranks at exit. A program that ends with an exception does not wait for the other ranks."""
    at_once = getattr(sys, "last_value", None) is not None
    for connection in _connections[::-1]:
        if connection.process != os.getpid():
            continue
        connection.group.close(at_once)
        connection.transport.exit(at_once)
    _connections.clear()


atexit.register(_close_all)


def _tensors_with_history(arrays: tuple[Any, ...], options: dict[str, Any]) -> bool:
    given = dict(zip(_DIFFERENTIABLE, arrays), **{name: options.get(name) for name in ("bias", "sinks")})
    return any(getattr(array, "requires_grad", False) for array in given.values())


def attention(query: Array, key: AnyArray, value: AnyArray, *, comm: Any = None, **options: Any) -> Any:
    """Compute :func:`regard.attention` over the rows and keys of all ranks.

    Parameters
    ----------
    query : array, shape (B, H, Lr, D)
        The query rows of this rank. Lr may differ between ranks, and may be 0.
    key : array, shape (B, Hkv, Sr, D)
        The keys of this rank. Sr may differ between ranks, and may be 0.
    value : array, shape (B, Hkv, Sr, Dv)
        The values of this rank.
    **options
        The options for :func:`regard.attention`, including those that request results, with equal values on all ranks.
        mask and bias contain the rows of this rank and all keys. All other arrays apply to the whole call: key_lengths,
        query_starts, key_starts, segments, block_mask, prefix, slopes and sinks.

    Returns
    -------
    context : array, shape (B, H, Lr, Dv)
        The context of the rows of this rank.
    result : AttentionResult
        If any ``return_`` option is set, a named tuple is returned instead. weights has shape (B, H, Lr, S).

    Notes
    -----
    Results are bit-identical to those of :func:`regard.attention` in one process, for any number of ranks and any
    division of rows and keys.

    If query, key, value, bias or sinks is a PyTorch tensor that requires a gradient, context is differentiable once.
    The tensors must then require gradients on all ranks, and all ranks must call ``backward()``. The gradient of sinks,
    and that of a bias with one row shared by all queries, is the gradient of the whole call on every rank: do not sum
    it over ranks.

    Examples
    --------
    Run the following program with ``mpirun -n 4 python program.py``::

        from mpi4py import MPI
        context_rows = regard.distributed.attention(query_rows, key_rows, value_rows, comm=MPI.COMM_WORLD, causal=True)
    """
    group = _group(comm)
    if _tensors_with_history((query, key, value), options):
        from . import distributed_torch

        return group.call("attention_forward", distributed_torch.attention, group, query, key, value, options)
    return group.call("attention_forward", _attention, query, key, value, **options)


attention_forward = attention


def attention_backward(
    query: Array, key: AnyArray, value: AnyArray, context: AnyArray, row_max: AnyArray, row_sum: AnyArray,
    grad_context: AnyArray, *, comm: Any = None, **options: Any,
) -> AttentionGradients[Array]:
    """Compute the gradients of :func:`attention`, as :func:`regard.attention_backward` does.

    Parameters
    ----------
    query, key, value : array
        As in the forward call.
    context, row_max, row_sum, grad_context : array
        The arrays for the rows of this rank.
    **options
        The options for :func:`regard.attention_backward`. The fingerprint is not compared and may be omitted. With
        accumulate, each rank adds to its own arrays.

    Returns
    -------
    AttentionGradients
        grad_query for the rows of this rank; grad_key and grad_value for its keys; grad_bias for its rows, or for the
        whole call if bias has one row shared by all queries; and grad_sinks for the whole call, on every rank.
    """
    options.setdefault("fingerprint", "unchecked")
    found: AttentionGradients[Array] = _group(comm).call(
        "attention_backward", _attention_backward, query, key, value, context, row_max, row_sum, grad_context, **options)
    return found


def attention_with_statistics(
    query: Array, key: AnyArray, value: AnyArray, *, comm: Any = None, **options: Any
) -> AttentionStatistics[Array]:
    """Compute :func:`regard.attention_with_statistics` over the rows and keys of all ranks.

    Parameters
    ----------
    query, key, value, **options
        As in :func:`attention`, with the options for :func:`regard.attention_with_statistics`. chosen_ranges refers to
        all L rows.

    Returns
    -------
    AttentionStatistics
        Statistics of the rows of this rank. Per-head statistics cover all rows and are returned on every rank.
    """
    found: AttentionStatistics[Array] = _group(comm).call(
        "attention_with_statistics", _attention_with_statistics, query, key, value, **options)
    return found


def attention_columns(
    query: Array, key: AnyArray, row_max: AnyArray, row_sum: AnyArray, *, comm: Any = None, **options: Any
) -> AttentionColumns[Array]:
    """Compute :func:`regard.attention_columns` over the rows and keys of all ranks.

    Parameters
    ----------
    query, key, **options
        As in :func:`attention`, with the options for :func:`regard.attention_columns`.
    row_max, row_sum : array, shape (B, H, Lr)
        As returned by :func:`attention`.

    Returns
    -------
    AttentionColumns
        key_mass for the keys of this rank, (B, H, Sr), and pooled_map for the whole call, on every rank.
    """
    found: AttentionColumns[Array] = _group(comm).call(
        "attention_columns", _attention_columns, query, key, row_max, row_sum, **options)
    return found


def attention_decode(query: Array, cache: KvCache, *, comm: Any = None, **options: Any) -> Any:
    """Compute :func:`regard.attention_decode` over a cache whose keys are divided among ranks.

    Each sequence consists of the keys of rank 0, followed by the keys of rank 1, and so on. :func:`append` divides keys
    in this way.

    Parameters
    ----------
    query : array, shape (B, H, L, D)
        The queries, which must be the same on every rank.
    cache : KvCache
        The keys and values of this rank. The cache must not be a ring.
    **options
        The options for :func:`regard.attention_decode`, which refer to all keys.

    Returns
    -------
    context : array, shape (B, H, L, Dv)
        The whole context, on every rank, bit-identical to the context for one cache with all keys.
    result : AttentionResult
        If any ``return_`` option is set, a named tuple is returned instead.
    """
    return _group(comm).call("attention_decode", _attention_decode, query, cache, **options)


def append(cache: KvCache, key: AnyArray, value: AnyArray, *, comm: Any = None) -> None:
    """Append keys and values to all sequences of a cache that is divided among ranks.

    Keys are appended on the last rank that has keys of the sequence. Once the capacity of that rank, rounded down to a
    multiple of 1024, is exhausted, keys are appended on the next rank.

    Parameters
    ----------
    cache : KvCache
        The keys and values of this rank. The cache must not be a ring.
    key, value : array, shapes (B, Hkv, L, D) and (B, Hkv, L, Dv)
        The keys and values to append, which must be the same on every rank.
    """
    _group(comm).call("append", cache.append, key, value)


def sum_in_order(terms: Array, *, comm: Any = None) -> Array:
    """Sum the terms of all ranks one after another: the terms of rank 0 in order, then those of rank 1, and so on.

    The sum is bit-identical for any division of the same terms among ranks.

    Parameters
    ----------
    terms : array, shape (n, m)
        The terms of this rank, float32 or float64. n may differ between ranks, and may be 0.

    Returns
    -------
    array, shape (m,)
        The sum, on every rank.
    """
    found: Array = _group(comm).call("sum_in_order", _regard.sum_in_order, terms)
    return found
