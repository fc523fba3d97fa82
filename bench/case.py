# SPDX-License-Identifier: Apache-2.0
"""A case of the benchmark: one shape and its contenders, each a function that returns its figure for one round.

Read next: suite.py."""

import dataclasses
import time


@dataclasses.dataclass
class Case:
    row: str
    label: str
    unit: str = "GFLOP/s"
    weight: float = 1.0  # multiple of --seconds
    max_rounds: int = 1 << 30
    contenders: dict = dataclasses.field(default_factory=dict)  # name: function that returns its figure
    every: dict = dataclasses.field(default_factory=dict)       # name: runs in every n-th round only
    errors: dict = dataclasses.field(default_factory=dict)      # name: function that returns the error
    memory: dict = dataclasses.field(default_factory=dict)      # name: (workspace, one packed copy) in bytes
    against: dict = dataclasses.field(default_factory=dict)     # name: Regard's contender for the same work


def timed(amount, call):
    """A contender: one call, in billions of operations or bytes per second."""
    def contender():
        begin = time.perf_counter()
        call()
        return amount / (time.perf_counter() - begin) / 1e9
    return contender
