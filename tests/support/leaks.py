# SPDX-License-Identifier: Apache-2.0
"""What calls leave behind in a process: references to objects, and blocks of Python's memory."""

import gc
import sys


def left_behind(call, calls, watched):
    """References to each watched object and blocks of memory, how many more there are after a number of calls.

    What the interpreter and libraries keep for themselves comes and goes by some blocks; a leak has one of each call at
    least."""
    def state():
        gc.collect()
        return [sys.getrefcount(one) for one in watched], sys.getallocatedblocks()

    for _ in range(1000):
        call()
    references, blocks = state()
    for _ in range(calls):
        call()
    references_after, blocks_after = state()
    return [after - before for before, after in zip(references, references_after)], blocks_after - blocks
