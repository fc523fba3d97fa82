# SPDX-License-Identifier: Apache-2.0
"""Planned execution of calls and capabilities of the machine: plan, instruction sets, threads, memory and peak rates.

Read next: docs/guide/python.md.
"""

from __future__ import annotations

from . import _regard
from .named_results import InstructionSet, Plan, PlannedOperator

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Callable


def plan(call: Callable[..., object], *args: object, **kwargs: object) -> Plan:
    """Return the planned execution of the operators that ``call(*args, **kwargs)`` would run, without running them.

    Parameters
    ----------
    call : callable
        A function of this package, or a function that calls such functions on the same thread.
    *args, **kwargs
        The arguments of the call. They are validated as in the call itself.

    Returns
    -------
    Plan
        instruction_set and the reason why it is active; operators, each with name, strategy (the code path and the
        reason for it), operations, bytes and num_threads; and workspace_bytes, the peak size of the scratch memory.

    Raises
    ------
    ValueError
        If the call would be rejected, or would change a cache.

    Examples
    --------
    >>> import numpy as np, regard
    >>> x = np.ones((1, 2, 64, 16), np.float32)
    >>> planned = regard.plan(regard.attention, x, x, x)
    >>> planned.operators[0].name, planned.operators[0].operations
    ('attention_forward', 524288.0)
    """
    found = Plan(_regard.plan(call, *args, **kwargs))
    found["operators"] = [PlannedOperator(planned) for planned in found["operators"]]
    return found


def instruction_sets() -> list[InstructionSet]:
    """Return all instruction sets that the library was built for, with the best one last.

    Returns
    -------
    list of InstructionSet
        Each entry has the attributes name, available (the processor supports it), active (operators use it) and
        fused_multiply_add.

    Raises
    ------
    ValueError
        If the environment variable ``REGARD_FORCE_ISA`` names an instruction set that cannot be used.

    Examples
    --------
    >>> import regard
    >>> [found.name for found in regard.instruction_sets() if found.active] == [regard.active_instruction_set()]
    True
    """
    return [InstructionSet(found) for found in _regard.instruction_sets()]


def active_instruction_set() -> str:
    """Return the name of the instruction set that operators use.

    Returns
    -------
    str
        The instruction set specified by the environment variable ``REGARD_FORCE_ISA``, or the best available
        instruction set.
    """
    return _regard.active_instruction_set()


def default_num_threads() -> int:
    """Return the number of threads that operators use if num_threads is 0.

    Returns
    -------
    int
        The value of the environment variable ``REGARD_THREADS`` if it is set. Otherwise, the number of physical cores
        in the affinity mask, limited by the CPU quota of the cgroup.
    """
    return _regard.default_num_threads()


def available_memory_bytes() -> int:
    """Return the amount of memory that can currently be allocated without swapping.

    Returns
    -------
    int
        The number of bytes, within the limits of the cgroup.
    """
    return _regard.available_memory_bytes()


def fma_gflops(num_threads: int, seconds: float) -> float:
    """Measure the rate of float32 multiply-adds on registers, which is an upper bound for all operators.

    Parameters
    ----------
    num_threads : int
        The number of threads, 1 to 4096.
    seconds : float
        The duration of the measurement.

    Returns
    -------
    float
        The total GFLOP/s of all threads; a multiply-add counts as two operations.
    """
    return _regard.fma_gflops(num_threads, seconds)


def bf16_dot_gflops(num_threads: int, seconds: float) -> float | None:
    """Measure the rate of bfloat16 dot products on registers.

    Parameters
    ----------
    num_threads : int
        The number of threads, 1 to 4096.
    seconds : float
        The duration of the measurement.

    Returns
    -------
    float or None
        The total GFLOP/s of all threads; None unless the active instruction set is avx512_bf16.
    """
    return _regard.bf16_dot_gflops(num_threads, seconds)


def read_gigabytes_per_second(bytes_per_thread: int, num_threads: int, seconds: float) -> float:
    """Measure the rate at which threads read memory. Each thread reads its own buffer repeatedly.

    Parameters
    ----------
    bytes_per_thread : int
        The size of each thread's buffer in bytes.
    num_threads : int
        The number of threads, 1 to 4096.
    seconds : float
        The duration of the measurement.

    Returns
    -------
    float
        The total GB/s of all threads, in the best of several loops.
    """
    return _regard.read_gigabytes_per_second(bytes_per_thread, num_threads, seconds)
