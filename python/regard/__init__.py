# SPDX-License-Identifier: Apache-2.0
"""Exact attention in C++: softmax(scale · Q · Kᵀ + mask) · V, and every number behind it.

    import numpy, regard
    q = k = v = numpy.random.rand(1, 8, 128, 64).astype("float32")
    context = regard.attention(q, k, v, causal=True)

The names are those of the C++ library; `attention` is `attention_forward`. Arrays of NumPy, PyTorch, JAX and others are
read and written where they lie. docs/guide/python.md has the rest.
"""

from . import _regard
from ._regard import *  # noqa: F403
from .figure import show as show

__version__: str = vars(_regard)["__version__"]
