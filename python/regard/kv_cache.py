# SPDX-License-Identifier: Apache-2.0
"""Keys and values that are kept between calls: KvCache, attention_decode and attention_decode_partials.

    cache = regard.KvCache(num_kv_heads=8, head_size=64, capacity=4096, dtype="bfloat16")
    cache.append(key, value)
    context = regard.attention_decode(query, cache, causal=True)

Read next: docs/guide/kv-caches.md, attention_operators.py.
"""

from __future__ import annotations

from . import _regard
from .calls import dtype_name, given_options, requested_outputs, with_hints
from .named_results import AttentionPartials, result_class

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from typing import Any, Literal, TypeVar, overload

    from typing_extensions import Unpack

    from .attention_operators import AttentionOptions
    from .calls import Alignment, AnyArray, DType, Floats, Integers
    from .named_results import AttentionResult

    Array = TypeVar("Array")


class KvCache:
    """A cache of keys and values, packed in the order in which the kernels read them.

    Parameters
    ----------
    head_size : int
        Head size of the keys, D.
    capacity : int
        The maximum number of keys per sequence; for a ring, the number of keys that are kept.
    num_sequences : int, default 1
        The number of sequences, B in :func:`attention_decode`.
    num_kv_heads : int, default 1
        The number of key/value heads, Hkv.
    value_head_size : int, optional
        Head size of the values, Dv; head_size by default.
    page_keys : int, default 0
        The number of keys per page, a multiple of 32; 0 means a contiguous cache.
    num_pages : int, default 0
        The number of pages, which are shared by all sequences; only with page_keys.
    ring : bool, default False
        Whether to keep only the newest `capacity` keys of each sequence; only without pages.
    dtype : dtype or str, default 'float32'
        The type of the stored elements: float32, float64, bfloat16, float16 or int8.

    Raises
    ------
    ValueError
        If the shape is inconsistent.

    Notes
    -----
    Any number of threads may use a cache concurrently. Calls that change it wait until calls that read it have
    finished.

    Examples
    --------
    >>> import numpy as np, regard
    >>> cache = regard.KvCache(num_kv_heads=2, head_size=8, capacity=64)
    >>> cache.append(*(np.ones((1, 2, 5, 8), np.float32) for _ in range(2)))
    >>> cache
    KvCache(float32, 1 sequence of 5 keys, capacity 64, num_kv_heads 2, head_size 8)
    >>> regard.attention_decode(np.ones((1, 4, 1, 8), np.float32), cache, causal=True).shape
    (1, 4, 1, 8)
    """

    __slots__ = ("__weakref__", "_cache")
    _cache: _regard.KvCache

    def __init__(
        self, *, head_size: int, capacity: int, num_sequences: int = 1, num_kv_heads: int = 1,
        value_head_size: int | None = None, page_keys: int = 0, num_pages: int = 0, ring: bool = False,
        dtype: DType = "float32",
    ) -> None:
        self._cache = _regard.KvCache(
            head_size=head_size, capacity=capacity, num_sequences=num_sequences, num_kv_heads=num_kv_heads,
            value_head_size=value_head_size, page_keys=page_keys, num_pages=num_pages, ring=ring, dtype=dtype_name(dtype))

    @staticmethod
    def open(memory: AnyArray) -> KvCache:
        """Open a cache in place from the :attr:`memory` of another cache.

        Parameters
        ----------
        memory : buffer of bytes
            The memory block, aligned to 64 bytes, such as a memory-mapped file. The cache keeps it alive. If the block
            is writable, :meth:`append` writes to it.

        Returns
        -------
        KvCache

        Raises
        ------
        RuntimeError
            If the block is not a consistent cache; the message states the byte offset.
        ValueError
            If the block is not aligned or not contiguous.
        """
        opened = KvCache.__new__(KvCache)
        opened._cache = _regard.KvCache.open(memory)
        return opened

    def append(self, key: AnyArray, value: AnyArray, sequence: int | None = None, counts: Integers | None = None) -> None:
        """Append keys and values.

        Parameters
        ----------
        key, value : array, shapes (B, Hkv, L, D) and (B, Hkv, L, Dv)
            Keys and values for all sequences or, with `sequence`, (Hkv, L, D) and (Hkv, L, Dv) for one sequence.
            float32, bfloat16 and float16 elements are rounded to the type of the cache; a float64 cache accepts only
            float64.
        sequence : int, optional
            The index of the only sequence to append to.
        counts : sequence of int, shape (B,), optional
            The number of keys to append to each sequence, from the first of the L keys.

        Raises
        ------
        ValueError
            If the arrays do not match the cache, a sequence would exceed its capacity, or the memory is read-only.
        RuntimeError
            If no page is free. In this case, the cache is unchanged.
        """
        self._cache.append(key, value, sequence, counts)

    def truncate(self, sequence: int, length: int) -> None:
        """Remove all keys of a sequence after the first `length` keys, and free their pages.

        Parameters
        ----------
        sequence : int
            The index of the sequence.
        length : int
            The number of keys to keep.
        """
        self._cache.truncate(sequence, length)

    def fork(self, from_sequence: int, to_sequence: int) -> None:
        """Make an empty sequence share the keys and values of another sequence. Whole panels are not copied.

        Parameters
        ----------
        from_sequence : int
            The index of the sequence to share.
        to_sequence : int
            The index of the sequence that shares them, which must be empty.
        """
        self._cache.fork(from_sequence, to_sequence)

    def length(self, sequence: int = 0) -> int:
        """Return the number of appended keys that were not truncated; for a ring, including keys no longer stored.

        Parameters
        ----------
        sequence : int, default 0
            The index of the sequence.

        Returns
        -------
        int
        """
        return self._cache.length(sequence)

    def first_key(self, sequence: int = 0) -> int:
        """Return the index of the first key that is still stored, which is 0 except in a ring.

        Parameters
        ----------
        sequence : int, default 0
            The index of the sequence.

        Returns
        -------
        int
        """
        return self._cache.first_key(sequence)

    @property
    def memory(self) -> memoryview:
        """The memory block, read-only.

        To reopen the cache later, save the block to a file, and pass the contents of the file to :meth:`open`.
        """
        return self._cache.memory

    @property
    def num_bytes(self) -> int:
        """The size of the memory block in bytes."""
        return self._cache.num_bytes

    @property
    def num_free_pages(self) -> int:
        """The number of pages that no sequence uses."""
        return self._cache.num_free_pages

    @property
    def dtype(self) -> str:
        """The type of the stored elements."""
        return self._cache.dtype

    @property
    def num_sequences(self) -> int:
        """The number of sequences."""
        return self._cache.num_sequences

    @property
    def num_kv_heads(self) -> int:
        """The number of key/value heads."""
        return self._cache.num_kv_heads

    @property
    def head_size(self) -> int:
        """Head size of the keys, D."""
        return self._cache.head_size

    @property
    def value_head_size(self) -> int:
        """Head size of the values, Dv."""
        return self._cache.value_head_size

    @property
    def capacity(self) -> int:
        """The maximum number of keys per sequence; for a ring, the number of keys that are kept."""
        return self._cache.capacity

    def __repr__(self) -> str:
        lengths = [self.length(sequence) for sequence in range(min(self.num_sequences, 8))]
        shown = ", ".join(map(str, lengths)) + (", …" if self.num_sequences > 8 else "")
        sequences = "1 sequence" if self.num_sequences == 1 else f"{self.num_sequences} sequences"
        values = "" if self.value_head_size == self.head_size else f", value_head_size {self.value_head_size}"
        return (f"KvCache({self.dtype}, {sequences} of {shown} keys, capacity {self.capacity}, "
                f"num_kv_heads {self.num_kv_heads}, head_size {self.head_size}{values})")


if TYPE_CHECKING:
    @overload
    def attention_decode(
        query: Array, cache: KvCache, *, out: None = None, dtype: None = None, row_max: AnyArray | None = None,
        row_sum: AnyArray | None = None, lse: AnyArray | None = None, sink_weights: AnyArray | None = None,
        return_row_max: Literal[False] = False, return_row_sum: Literal[False] = False, return_lse: Literal[False] = False,
        return_sink_weights: Literal[False] = False, **options: Unpack[AttentionOptions],
    ) -> Array: ...
    @overload
    def attention_decode(
        query: AnyArray, cache: KvCache, *, out: AnyArray | None = None, dtype: DType | None = None,
        row_max: AnyArray | None = None, row_sum: AnyArray | None = None, lse: AnyArray | None = None,
        sink_weights: AnyArray | None = None, return_row_max: Literal[False] = False,
        return_row_sum: Literal[False] = False, return_lse: Literal[False] = False,
        return_sink_weights: Literal[False] = False, **options: Unpack[AttentionOptions],
    ) -> Any: ...
    @overload
    def attention_decode(
        query: Array, cache: KvCache, *, out: AnyArray | None = None, dtype: DType | None = None,
        row_max: AnyArray | None = None, row_sum: AnyArray | None = None, lse: AnyArray | None = None,
        sink_weights: AnyArray | None = None, return_row_max: bool = False, return_row_sum: bool = False,
        return_lse: bool = False, return_sink_weights: bool = False, **options: Unpack[AttentionOptions],
    ) -> AttentionResult[Array]: ...


@with_hints
def attention_decode(
    query: AnyArray, cache: KvCache, *, out: AnyArray | None = None, dtype: DType | None = None,
    row_max: AnyArray | None = None, row_sum: AnyArray | None = None, lse: AnyArray | None = None,
    sink_weights: AnyArray | None = None, return_row_max: bool = False, return_row_sum: bool = False,
    return_lse: bool = False, return_sink_weights: bool = False,
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> Any:
    """Compute attention over the keys and values of a cache. Results are bit-identical to those of :func:`attention`.

    Parameters
    ----------
    query : array, shape (B, H, L, D)
        Queries, with one batch entry per sequence of the cache. They are at the newest L positions of each sequence
        unless query_offset is given. For a cache with one sequence, (H, L, D) is also accepted.
    cache : KvCache
        The keys and values. The context for a sequence without keys is 0.
    out : array, shape (B, H, L, Dv), optional
        The array to write the context to.
    dtype : dtype or str, optional
        The type of the context, as in :func:`attention`.
    row_max, row_sum, lse, sink_weights : array, shape (B, H, L), optional
        Arrays to write these results to.
    return_row_max, return_row_sum, return_lse, return_sink_weights : bool, default False
        Whether to return these results as well, as in :func:`attention`.
    causal, query_offset, window, key_lengths, query_starts, key_starts, prefix : optional
        Options that select visible keys by position and length, as in :func:`attention`.
    query_segments, key_segments, block_mask, block_size, mask, bias : optional
        Segments, masks and the bias added to the scores, as in :func:`attention`.
    alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first, weights_in_float32 : optional
        Score modifications, sinks, dropout and precision, as in :func:`attention`.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    context : array, shape (B, H, L, Dv)
        out if given, otherwise a new array of the same library as query.
    result : AttentionResult
        If any ``return_`` option is set, a named tuple is returned instead.

    Raises
    ------
    ValueError
        If an argument is invalid. The message states the name of the argument, its value and the expected value. The
        error is raised before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> cache = regard.KvCache(num_kv_heads=2, head_size=8, capacity=64)
    >>> cache.append(*(np.ones((1, 2, 5, 8), np.float32) for _ in range(2)))
    >>> regard.attention_decode(np.ones((1, 4, 1, 8), np.float32), cache, return_lse=True)
    AttentionResult(context=float32 (1, 4, 1, 8), lse=float32 (1, 4, 1))
    """
    if not isinstance(cache, KvCache):
        raise TypeError(f"attention_decode: cache is of type {type(cache).__name__}; expected a KvCache")
    options = given_options(
        causal, query_offset, window, key_lengths, query_starts, key_starts, query_segments, key_segments, prefix, block_mask,
        block_size, mask, bias, alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first,
        weights_in_float32, num_threads)
    fields = requested_outputs(
        options, out, dtype, row_max, row_sum, lse, None, sink_weights, return_row_max, return_row_sum, return_lse, False,
        return_sink_weights, False)
    result = _regard.attention_decode(query, cache._cache, **options)
    return result if len(fields) == 1 else result_class(fields)._make(result)


@with_hints
def attention_decode_partials(
    query: Array, cache: KvCache, *,
    causal: bool | Alignment = False, query_offset: int | Alignment | Integers | None = None,
    window: tuple[int | None, int | None] | None = None, key_lengths: Integers | None = None,
    query_starts: Integers | None = None, key_starts: Integers | None = None, query_segments: AnyArray | None = None,
    key_segments: AnyArray | None = None, prefix: Integers | None = None, block_mask: AnyArray | None = None,
    block_size: tuple[int, int] | None = None, mask: AnyArray | None = None, bias: AnyArray | None = None,
    alibi_slopes: Floats | None = None, sinks: Floats | None = None, soft_cap: float | None = None,
    scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Integers = (0, 0, 0),
    weights_in_float32: bool | None = None, num_threads: int = 0,
) -> AttentionPartials[Array]:
    """Compute partial results of :func:`attention_decode`, one per chunk of 1024 keys of a cache.

    This function allows a sequence to be divided among several caches: split it at multiples of 1024 keys, and merge
    the partial results of all caches in key order with :func:`attention_merge`.

    Parameters
    ----------
    query : array, shape (B, H, L, D)
        Queries, with one batch entry per sequence of the cache. They are at the newest L positions of each sequence
        unless query_offset is given.
    cache : KvCache
        The keys and values of all keys or of a piece. For a piece, pass query_offset as a number, and subtract the
        index of the first key of the piece from query_offset and prefix.
    causal, query_offset, window, key_lengths, query_starts, key_starts, prefix : optional
        Options that select visible keys by position and length, as in :func:`attention`.
    query_segments, key_segments, block_mask, block_size, mask, bias : optional
        Segments, masks and the bias added to the scores, as in :func:`attention`.
    alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first, weights_in_float32 : optional
        Score modifications, sinks, dropout and precision, as in :func:`attention`.
    num_threads : int, default 0
        The maximum number of threads; 0 means :func:`default_num_threads`.

    Returns
    -------
    AttentionPartials
        Results by name: accumulator and scaled_accumulator, (N, B, H, L, Dv), and row_max and row_sum, (N, B, H, L),
        for N = ⌈S / 1024⌉ chunks, where S is the length of the longest sequence.

    Raises
    ------
    ValueError
        If an argument is invalid, or sinks, dropout, key lengths or packed sequences are given. The error is raised
        before any work is done.

    Examples
    --------
    >>> import numpy as np, regard
    >>> random = np.random.default_rng(0)
    >>> query, key, value = (random.standard_normal((1, 1, n, 16), dtype=np.float32) for n in (1, 1500, 1500))
    >>> parts = []
    >>> for first in (0, 1024):
    ...     cache = regard.KvCache(head_size=16, capacity=1024)
    ...     cache.append(key[:, :, first:first + 1024], value[:, :, first:first + 1024])
    ...     parts.append(regard.attention_decode_partials(query, cache, causal=True, query_offset=1499 - first))
    >>> merged = regard.attention_merge(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
    >>> bool((merged == regard.attention(query, key, value, causal="bottom_right")).all())
    True
    """
    if not isinstance(cache, KvCache):
        raise TypeError(f"attention_decode_partials: cache is of type {type(cache).__name__}; expected a KvCache")
    options = given_options(
        causal, query_offset, window, key_lengths, query_starts, key_starts, query_segments, key_segments, prefix, block_mask,
        block_size, mask, bias, alibi_slopes, sinks, soft_cap, scale, dropout, dropout_seed, dropout_first,
        weights_in_float32, num_threads)
    return AttentionPartials(_regard.attention_decode_partials(query, cache._cache, **options))
