# SPDX-License-Identifier: Apache-2.0
"""Counts the references to objects and the blocks of Python memory that calls leak."""

import gc
import sys


def leaked(call, calls, objects):
    """The references to each object, and the memory blocks, that a number of calls leak.

    The interpreter and libraries allocate and free some blocks internally; a leak has at least one block per call."""
    def state():
        gc.collect()
        return [sys.getrefcount(one) for one in objects], sys.getallocatedblocks()

    for _ in range(1000):
        call()
    references, blocks = state()
    for _ in range(calls):
        call()
    references_after, blocks_after = state()
    return [after - before for before, after in zip(references, references_after)], blocks_after - blocks
