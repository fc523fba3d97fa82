"""Exact attention in C++; use it as the package regard."""

from collections.abc import Callable, Sequence
import os
from typing import Any


kAttentionChunkKeys: int = 1024

def attention_forward(query: object, key: object, value: object, *, out: object | None = None, dtype: str | None = None, row_max: object | None = None, row_sum: object | None = None, lse: object | None = None, weights: object | None = None, sink_weights: object | None = None, return_row_max: bool = False, return_row_sum: bool = False, return_lse: bool = False, return_weights: bool = False, return_sink_weights: bool = False, return_fingerprint: bool = False, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> Any:
    """
    Computes softmax(soft_cap(scale · query · keyᵀ) + bias) · value, with the softmax over visible keys.

    query (B, H, L, D), key (B, Hkv, S, D) and value (B, Hkv, S, Dv) are arrays of float32, bfloat16 or
    float16, in any combination, or all of float64. They may be arrays of NumPy, PyTorch or JAX, or any
    object that supports the buffer protocol or DLPack, in CPU memory, and are read in place, with any
    strides. Returns context (B, H, L, Dv), an array of the same library as query. With return_… options,
    returns a tuple of context and the requested results: row_max, row_sum and lse (B, H, L), weights
    (B, H, L, S), sink_weights (B, H, L) and fingerprint (bytes, for attention_backward). out, row_max … are
    arrays that are written to instead of new arrays. causal='top_left' or 'bottom_right' also sets
    query_offset.
    Raises ValueError before any work is done.
    """

def attention_weights(query: object, key: object, *, row_max: object | None = None, row_sum: object | None = None, out: object | None = None, rows: Sequence[tuple[int, int]] | None = None, keys: tuple[int, int] | None = None, kind: str = 'weights', causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> Any:
    """
    Computes the exact weights (with kind='scores', the scores) of selected rows and keys, which are
    zero-based ranges (begin, end). row_max and row_sum are those of attention_forward. Returns an array
    (B, H, R, keys).
    """

def attention_with_statistics(query: object, key: object, value: object, *, out: object | None = None, dtype: str | None = None, top_keys: int = 0, chosen_keys: Sequence[int] | object | None = None, chosen_ranges: object | None = None, chosen_offset: int | None = None, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    Computes attention_forward and, in the same pass, statistics of its rows. Returns by name: context,
    row_max, row_sum, lse, fingerprint, entropy, largest_weight and mean_distance (B, H, L), and the means
    head_… (B, H). With top_keys=k, also top_keys and top_weights (B, H, L, k). With chosen keys, also
    chosen_weight and its mean. Chosen keys are given by chosen_keys=[0, 4] for all rows, by
    chosen_ranges, int64 (L, 2), (1, 2) or (B, L, 2), with begin and end for each row, or by
    chosen_offset=n, the key at the position of the row + n: -1 is the previous token, 1 - period the
    token after the earlier copy of this token. Positions are i + query_offset. The weight of a key that
    does not exist is 0.
    """

def attention_columns(query: object, key: object, row_max: object, row_sum: object, *, pooled_map: tuple[int, int] | None = None, cells: str = 'means', causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    Computes key_mass (B, H, S), the weight on each key summed over the queries. If pooled_map is given as
    a size (Ga, Gb), also computes pooled_map (B, H, Ga, Gb), the mean or sum of the weights in each cell.
    """

def attention_partials(query: object, key: object, value: object, *, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    Computes partial results over chunks of 1024 keys, before the division by row_sum: accumulator and
    scaled_accumulator (N, B, H, L, Dv), row_max and row_sum (N, B, H, L).
    """

def attention_merge(accumulator: object, row_max: object, row_sum: object, *, scaled_accumulator: object | None = None, sinks: Sequence[float] | object | None = None, out: object | None = None, dtype: str | None = None, lse: object | None = None, sink_weights: object | None = None, return_row_max: bool = False, return_row_sum: bool = False, return_lse: bool = False, return_sink_weights: bool = False, num_threads: int = 0) -> Any:
    """
    Merges N partial results in key order. The result for all chunks is bit-identical to that of
    attention_forward.
    """

def attention_merge_lse(contexts: object, lse: object, *, out: object | None = None, return_lse: bool = False, num_threads: int = 0) -> Any:
    """
    Merges N complete results over disjoint sets of keys, using the lse of each result: contexts
    (N, B, H, L, Dv), lse (N, B, H, L).
    """

def attention_backward(query: object, key: object, value: object, context: object, row_max: object, row_sum: object, grad_context: object, *, fingerprint: bytes | str, gradients: Sequence[str] = ('grad_query', 'grad_key', 'grad_value'), grad_lse: object | None = None, grad_query: object | None = None, grad_key: object | None = None, grad_value: object | None = None, grad_bias: object | None = None, grad_sinks: object | None = None, accumulate: Sequence[str] = (), causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    Computes the gradients of attention_forward. Returns them by name. context, row_max, row_sum and
    fingerprint are results of the forward call; grad_context (B, H, L, Dv) and grad_lse (B, H, L) are the
    gradients of the loss with respect to context and lse. Raises ValueError if options differ from those
    of the forward call; fingerprint='unchecked' disables this check, for row_max and row_sum that were
    merged from partial results. gradients selects the gradients to compute. They have the shapes of the
    corresponding arrays and the type of query; grad_bias and grad_sinks are float32 (float64 if query is
    float64). If an array is passed under the name of a gradient, the gradient is written to it instead of
    to a new array, or added to it if accumulate contains the name.
    """

class PackedLinear:
    """A packed copy of a weight (I, O) for many calls to linear_forward."""

    def __init__(self, weight: object) -> None: ...

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the weight, (I, O)."""

    @property
    def num_bytes(self) -> int:
        """The size of the packed weight in bytes."""

def linear_forward(input: object, weight: PackedLinear | object, bias: object | None = None, *, out: object | None = None, dtype: str | None = None, activation: str = 'none', num_threads: int = 0) -> Any:
    """
    Computes activation(input · weight + bias) for input (R, I), weight (I, O) or PackedLinear, and bias
    (O), all of float32, float64 or bfloat16. The output for bfloat16 inputs may be float32 (dtype, out).
    activation is none, relu, gelu, gelu_tanh or silu. The weight of a PyTorch nn.Linear has shape (O, I):
    pass weight.T.
    """

def linear_backward(input: object, weight: object, grad_output: object, *, grad_input: object | None = None, grad_weight: object | None = None, grad_bias: object | None = None, accumulate: Sequence[str] = (), rows_per_group: int = 0, num_threads: int = 0) -> dict[str, Any]:
    """
    Computes the gradients of input · weight + bias from grad_output (R, O), the gradient of the loss with
    respect to this sum, before any activation. Returns grad_input (R, I), grad_weight (I, O) and grad_bias
    (O) by name. If an array is passed under the name of a gradient, the gradient is written to it, or
    added to it if accumulate contains the name.
    """

def activation_forward(input: object, activation: str, *, out: object | None = None, num_threads: int = 0) -> Any:
    """
    Computes f(input), (R, E), where activation f is none, relu, gelu, gelu_tanh or silu. out may be input.
    """

def activation_backward(input: object, grad_output: object, activation: str, *, grad_input: object | None = None, accumulate: bool = False, num_threads: int = 0) -> Any:
    """
    Computes grad_output · f′(input), (R, E). grad_input may be input or grad_output.
    """

def swiglu_forward(gate: object, up: object, *, out: object | None = None, num_threads: int = 0) -> Any:
    """Computes silu(gate) · up, (R, F), element by element."""

def swiglu_backward(gate: object, up: object, grad_output: object, *, grad_gate: object | None = None, grad_up: object | None = None, accumulate: Sequence[str] = (), num_threads: int = 0) -> dict[str, Any]:
    """
    Computes the gradients of silu(gate) · up. Returns grad_gate and grad_up, (R, F), by name.
    """

def layer_norm_forward(input: object, gain: object, bias: object | None = None, *, addend: object | None = None, epsilon: float = 1e-05, out: object | None = None, num_threads: int = 0) -> Any:
    """
    Computes (x − mean) / √(variance + epsilon) · gain + bias for every row of x = input + addend, (R, E).
    """

def layer_norm_backward(input: object, gain: object, grad_output: object, *, addend: object | None = None, epsilon: float = 1e-05, grad_input: object | None = None, grad_gain: object | None = None, grad_bias: object | None = None, accumulate: Sequence[str] = (), rows_per_group: int = 0, num_threads: int = 0) -> dict[str, Any]:
    """
    Computes the gradients of layer_norm_forward. Returns by name: grad_input (R, E), which is also the
    gradient of addend, grad_gain (E) and grad_bias (E).
    """

def rms_norm_forward(input: object, gain: object, *, addend: object | None = None, epsilon: float = 1e-05, out: object | None = None, num_threads: int = 0) -> Any:
    """
    Computes x / √(Σ x² / E + epsilon) · gain for every row of x = input + addend, (R, E).
    """

def rms_norm_backward(input: object, gain: object, grad_output: object, *, addend: object | None = None, epsilon: float = 1e-05, grad_input: object | None = None, grad_gain: object | None = None, accumulate: Sequence[str] = (), rows_per_group: int = 0, num_threads: int = 0) -> dict[str, Any]:
    """
    Computes the gradients of rms_norm_forward. Returns grad_input (R, E) and grad_gain (E) by name.
    """

def embedding_forward(table: object, indices: Sequence[int] | object, *, out: object | None = None, accumulate: bool = False, num_threads: int = 0) -> Any:
    """Returns table[indices] for table (V, E) and indices (R): (R, E)."""

def embedding_backward(indices: Sequence[int] | object, grad_output: object, *, num_rows: int | None = None, grad_table: object | None = None, accumulate: bool = False, rows_per_group: int = 0, num_threads: int = 0) -> Any:
    """
    Computes the gradient of the table, (V, E): each row is the sum of the rows of grad_output (R, E) with
    that index. num_rows is V; it may be omitted if grad_table is given.
    """

def rotary_forward(input: object, *, out: object | None = None, base: float = 10000.0, layout: str = 'halves', size: int = 0, first_position: int = 0, positions: Sequence[int] | object | None = None, num_threads: int = 0) -> Any:
    """
    Rotates pairs of components of queries or keys (B, H, L, D) by angles that grow with the position.
    layout is halves or interleaved, and positions has shape (L) or (B, L). out may be input.
    """

def rotary_backward(grad_output: object, *, grad_input: object | None = None, accumulate: bool = False, base: float = 10000.0, layout: str = 'halves', size: int = 0, first_position: int = 0, positions: Sequence[int] | object | None = None, num_threads: int = 0) -> Any:
    """
    Computes the gradient of rotary_forward: the rotation by the opposite angles.
    """

def cross_entropy_forward(logits: object, targets: Sequence[int] | object, *, row_loss: object | None = None, grad_logits: object | None = None, return_row_loss: bool = False, return_grad_logits: bool = False, ignored_target: int = -1, reduction: str = 'mean', grad_scale: float = 1.0, count: int = 0, rows_per_group: int = 0, num_threads: int = 0) -> tuple[Any, ...]:
    """
    Computes the cross-entropy loss of logits (R, V) and targets (R), and the number of targets that are
    not ignored. On request, also computes the loss of each row (R) and the gradient of logits (R, V),
    which may overwrite logits.
    """

def multi_head_attention_forward(input: object, w_query: object, w_key: object, w_value: object, *, w_output: object | None = None, memory: object | None = None, b_query: object | None = None, b_key: object | None = None, b_value: object | None = None, b_output: object | None = None, num_heads: int = 1, num_kv_heads: int = 0, out: object | None = None, weights: object | None = None, return_weights: bool = False, return_state: bool = False, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> Any:
    """
    Computes a multi-head attention block on (B, L, E): projections, attention in each head, concatenation
    and output projection. Keys and values are computed from memory (B, S, E_kv), which is input by
    default. multi_head_attention_backward requires state.
    """

def multi_head_attention_backward(input: object, w_query: object, w_key: object, w_value: object, state: dict[str, Any], grad_output: object, *, w_output: object | None = None, memory: object | None = None, b_query: object | None = None, b_key: object | None = None, b_value: object | None = None, b_output: object | None = None, num_heads: int = 1, num_kv_heads: int = 0, grad_input: object | None = None, grad_memory: object | None = None, grad_w_query: object | None = None, grad_w_key: object | None = None, grad_w_value: object | None = None, grad_w_output: object | None = None, grad_b_query: object | None = None, grad_b_key: object | None = None, grad_b_value: object | None = None, grad_b_output: object | None = None, accumulate: Sequence[str] = (), rows_per_group: int = 0, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    Computes the gradients of multi_head_attention_forward from its state and grad_output (B, L, E_out).
    Returns them by name. grad_memory is present only with memory, and grad_w_output and grad_b_output
    only with w_output.
    """

def adamw_step(parameters: object, gradients: object, first_moment: object, second_moment: object, *, learning_rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-08, weight_decay: float = 0.01, gradient_scale: float = 1.0, step: int, num_threads: int = 0) -> None:
    """
    Performs a step of AdamW, in place, on contiguous float32 or float64 arrays of any shape.
    """

def muon_step(matrix: object, gradient: object, first_moment: object, *, learning_rate: float = 0.02, momentum: float = 0.95, nesterov: bool = True, weight_decay: float = 0.0, gradient_scale: float = 1.0, iterations: int = 5, num_threads: int = 0) -> None:
    """
    Performs a step of Muon, in place, on a matrix whose rows are outputs, as in PyTorch's nn.Linear.
    """

def global_norm(values: object, *, num_threads: int = 0) -> float:
    """Returns the L2 norm of a contiguous array of any shape, in double."""

def clip_factor(norm: float, max_norm: float) -> float:
    """
    Returns the factor that limits a norm, min(1, max_norm / (norm + 1e-6)).
    """

def learning_rate_at(step: int, *, steps: int, learning_rate: float = 0.001, min_learning_rate: float = 0.0001, warmup: int = 0, schedule: str = 'cosine') -> float:
    """Returns the learning rate of AdamW at a zero-based step."""

def muon_learning_rate_at(step: int, *, steps: int, muon_learning_rate: float = 0.02, learning_rate: float = 0.001, min_learning_rate: float = 0.0001, warmup: int = 0, schedule: str = 'cosine') -> float:
    """
    Returns the learning rate of Muon at a step, proportional to that of AdamW.
    """

class KvCache:
    """
    Keys and values that are kept between calls, packed in the order in which kernels read them.
    """

    def __init__(self, *, head_size: int, capacity: int, num_sequences: int = 1, num_kv_heads: int = 1, value_head_size: int | None = None, page_keys: int = 0, num_pages: int = 0, ring: bool = False, dtype: str = 'float32') -> None:
        """
        Creates an empty cache. head_size is D; value_head_size is Dv, by default head_size. dtype is
        float32, float64, bfloat16, float16 or int8. page_keys, a multiple of 32, and num_pages create a paged
        cache. With ring, only the newest `capacity` keys are kept.
        """

    def append(self, key: object, value: object, sequence: int | None = None, counts: Sequence[int] | object | None = None) -> None:
        """
        Appends keys (B, Hkv, L, D) and values (B, Hkv, L, Dv) to all sequences; with counts, appends the
        first counts[b] keys to sequence b. With sequence, appends (Hkv, L, D) and (Hkv, L, Dv) to that
        sequence. float32, bfloat16 and float16 arrays are rounded to the type of the cache; a float64 cache
        accepts only float64.
        """

    def truncate(self, sequence: int, length: int) -> None:
        """Removes all keys of a sequence after the first `length` keys."""

    def fork(self, from_sequence: int, to_sequence: int) -> None:
        """
        Makes to_sequence, which must be empty, share the keys and values of from_sequence. Whole panels are
        not copied.
        """

    def length(self, sequence: int = 0) -> int:
        """
        The number of appended keys that were not truncated; for a ring, including keys no longer stored.
        """

    def first_key(self, sequence: int = 0) -> int:
        """The index of the first key still stored, which is 0 except in a ring."""

    @property
    def num_free_pages(self) -> int: ...

    @staticmethod
    def open(memory: object) -> KvCache:
        """
        Opens a cache in place from the `memory` of another cache: a block of bytes aligned to 64, such as a
        memory-mapped file. The cache keeps the block alive. If it is writable, append() writes to it. Raises
        RuntimeError with the byte offset if the block is not a consistent cache.
        """

    @property
    def memory(self) -> memoryview:
        """
        The memory block (docs/guide/kv-caches.md), read-only. To reopen the cache later, save the block to a
        file, and pass the contents of the file to open().
        """

    @property
    def num_bytes(self) -> int: ...

    @property
    def dtype(self) -> str: ...

    @property
    def num_sequences(self) -> int: ...

    @property
    def num_kv_heads(self) -> int: ...

    @property
    def head_size(self) -> int: ...

    @property
    def value_head_size(self) -> int: ...

    @property
    def capacity(self) -> int: ...

def attention_decode(query: object, cache: KvCache, *, out: object | None = None, dtype: str | None = None, row_max: object | None = None, row_sum: object | None = None, lse: object | None = None, sink_weights: object | None = None, return_row_max: bool = False, return_row_sum: bool = False, return_lse: bool = False, return_sink_weights: bool = False, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> Any:
    """
    Computes attention_forward over a cache, with bit-identical results. query has shape (B, H, L, D),
    where B is the number of sequences in the cache. The queries are at the newest L positions of each
    sequence unless query_offset is given. The context for a sequence without keys is 0.
    """

def attention_decode_partials(query: object, cache: KvCache, *, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    Computes partial results over chunks of 1024 keys of a cache, as attention_partials does: accumulator
    and scaled_accumulator (N, B, H, L, Dv), row_max and row_sum (N, B, H, L).
    """

class RankGroup:
    """A group of ranks that compute together; used by regard.distributed."""

    def __init__(self, transport: object, timeout: float) -> None:
        """
        Creates the group of a transport (python/regard/distributed_transports.py). This is a collective call.
        """

    def call(self, name: str, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """
        Calls function(*args, **kwargs), whose operator `name` is divided among the ranks.
        """

    def close(self, at_once: bool = False) -> None:
        """
        Waits for the other ranks or, with at_once, notifies them that this rank has failed.
        """

    @property
    def num_ranks(self) -> int: ...

def sum_in_order(terms: object) -> Any:
    """Sums the rows of all ranks in order; only within RankGroup.call()."""

class Model:
    """
    An encoder of the BERT family with its tokenizer, or a decoder trained with Regard, as returned by
    load_model.
    """

    @property
    def num_layers(self) -> int: ...

    @property
    def num_heads(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def max_positions(self) -> int: ...

    @property
    def folder(self) -> str: ...

    def tokens(self, text: str) -> list[str]:
        """
        The tokens of a text that the model processes, including [CLS] and [SEP].
        """

class Explanation:
    """The steps of an attention computation."""

    def text(self, width: int = 80, color: bool = False, full: bool = False, step: str = '') -> str:
        """All steps, or one step specified by name or number, as text."""

    def json(self, step: str = '') -> str:
        """The result as JSON, schema regard/1."""

    def html(self) -> str:
        """The result as one HTML page."""

    def __repr__(self) -> str: ...

class SentenceAnalysis:
    """The attention of one word in a sentence that a model has processed."""

    def text(self, width: int = 80, color: bool = False) -> str:
        """The analysis as text."""

    def json(self) -> str:
        """The result as JSON, schema regard/1."""

    def html(self) -> str:
        """The analysis as one HTML page with every head of every layer."""

    def __repr__(self) -> str: ...

class Comparison:
    """A comparison of one word in several sentences."""

    def text(self, width: int = 80, color: bool = False, full: bool = False) -> str:
        """The comparison as text."""

    def json(self) -> str:
        """The result as JSON, schema regard/1."""

    def html(self) -> str:
        """The result as one HTML page."""

    def findings(self) -> list[str]:
        """The findings of the comparison, in sentences."""

    def __repr__(self) -> str: ...

def load_model(folder: str | os.PathLike[str], map: bool = False) -> Model:
    """
    Loads config.json, tokenizer.json and model.safetensors from a folder in the Hugging Face layout, or
    the newest checkpoint of a training run, which is a decoder; explain() accepts both kinds of models.
    With map, the parameters are mapped into memory instead of being read. Raises RuntimeError with the
    path of the file.
    """

def explain(input: object, model: Model | None = None, query: str | None = None, layer: int | None = None, head: int | None = None, hide: Sequence[str] = (), truncate: bool = False, full: bool = False) -> Any:
    """
    With a model, input is a sentence, and the result is a SentenceAnalysis of the attention of `query`.
    Otherwise, input contains matrices and settings as in docs/guide/own-matrices.md, as a dict or JSON,
    and the result is an Explanation of every step.
    """

def lesson(name: str, layout: str | None = None) -> Explanation:
    """
    Recomputes the calculations in a document that teaches attention. layout is 'rows' or 'columns'. Raises
    ValueError with a list of all names if the name is unknown.
    """

def lesson_entries() -> list[str]:
    """Returns the names of all lessons, in reading order."""

def compare(model: Model, word: str, sentences: Sequence[str], hide: Sequence[str] = (), control: str = '', truncate: bool = False) -> Comparison:
    """
    Compares the vectors of one word in several sentences: the differences in each layer, and the heads
    that cause them.
    """

def embed(model: Model, texts: Sequence[str], truncate: bool = False) -> Any:
    """
    Returns the vectors of texts, (n, E), float32. Each is the mean of the vectors of the text's tokens,
    normalized to L2 norm 1.
    """

class Training:
    """A training run with its record."""

    def __init__(self, command: str, **kwargs: object) -> None: ...

    @property
    def step(self) -> int:
        """The number of optimizer steps so far."""

    @property
    def steps(self) -> int: ...

    def last(self) -> tuple[float, float]:
        """The loss and the tokens per second of the last step."""

    @property
    def seconds(self) -> float: ...

    def advance(self, seconds: float, num_threads: int, folder: str, checkpoint_every: int) -> bool:
        """
        Performs steps for the given number of seconds. A signal ends the call after a complete step. Returns
        whether the run is done.
        """

    def finish(self) -> None:
        """Takes the last snapshot."""

    def resume(self, folder: str) -> str:
        """
        Resumes the newest checkpoint in a folder. Returns a warning or an empty string.
        """

    def save(self, folder: str | os.PathLike[str]) -> str:
        """Saves a checkpoint and returns its path."""

    def log(self) -> dict[str, Any]:
        """The columns of the training curve."""

    def snapshots(self) -> dict[str, Any]:
        """Steps, losses, weights and scores of all snapshots."""

    def probe(self) -> dict[str, Any]:
        """The sequence on which heads are observed."""

    def events(self) -> list[dict[str, Any]]:
        """The moments at which heads formed."""

    def findings(self) -> list[str]:
        """The findings of the run, in sentences."""

    def summary(self) -> list[str]:
        """The settings in a few lines."""

    def evaluate(self, count: int, split: str, ablate: tuple[int, int] | None) -> dict[str, Any]: ...

    def parameters(self) -> dict[str, Any]:
        """Copies of all parameters, by name."""

    def logits(self, tokens: object, ablate: tuple[int, int] | None) -> Any:
        """The logits, (B, L, V), of int64 token ids, (B, L)."""

    def generate(self, prompt: Sequence[int], tokens: int, temperature: float, top_k: int, top_p: float, seed: int) -> list[int]:
        """The token ids that continue a prompt."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def text(self, width: int, color: bool) -> str:
        """A summary of the run as text."""

    def json(self) -> str: ...

    def html(self) -> str: ...

    def svg(self) -> str: ...

def training_tasks() -> list[dict[str, Any]]:
    """Returns the tasks that train() accepts."""

def plan(call: Callable[..., object], *args: object, **kwargs: object) -> dict[str, Any]:
    """
    Returns the planned execution of the operators that call(*args, **kwargs) would run, without running
    them: instruction_set, why (the reason for this choice), operators (name, strategy, operations, bytes,
    num_threads) and workspace_bytes.
    """

def instruction_sets() -> list[dict[str, Any]]:
    """
    Returns all instruction sets that the library was built for, with the best one last.
    """

def active_instruction_set() -> str: ...

def default_num_threads() -> int: ...

def available_memory_bytes() -> int: ...

def fma_gflops(num_threads: int, seconds: float) -> float:
    """
    Returns the GFLOP/s of float32 multiply-adds on registers, an upper bound for all operators.
    """

def bf16_dot_gflops(num_threads: int, seconds: float) -> float | None:
    """
    Returns the GFLOP/s of bfloat16 dot products on registers, or None unless the active instruction set
    is avx512_bf16.
    """

def read_gigabytes_per_second(bytes_per_thread: int, num_threads: int, seconds: float) -> float:
    """Returns the GB/s of memory reads in the best of several loops."""
