"""Exact attention in C++; use it as the package regard."""

from collections.abc import Callable, Sequence
import os
from typing import Any


kAttentionChunkKeys: int = 1024

def attention_forward(query: object, key: object, value: object, *, out: object | None = None, dtype: str | None = None, row_max: object | None = None, row_sum: object | None = None, lse: object | None = None, weights: object | None = None, sink_weights: object | None = None, return_row_max: bool = False, return_row_sum: bool = False, return_lse: bool = False, return_weights: bool = False, return_sink_weights: bool = False, return_fingerprint: bool = False, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> Any:
    """
    softmax(soft_cap(scale · query · keyᵀ) + bias over visible keys) · value.

    query (B, H, L, D), key (B, Hkv, S, D) and value (B, Hkv, S, Dv) are arrays of float32, bfloat16 or
    float16, in any combination, or all of float64. They may be arrays of NumPy, PyTorch or JAX, or any
    object with the buffer protocol or DLPack, in CPU memory, and are read in place, with any strides.
    Returns context (B, H, L, Dv), an array of query's library. With return_… it returns a tuple of
    context, row_max, row_sum, lse (B, H, L), weights (B, H, L, S), sink_weights (B, H, L) and
    fingerprint (bytes, for attention_backward), as requested. out, row_max … are arrays to write to
    instead of new ones. causal='top_left' or 'bottom_right' also sets query_offset. Raises ValueError
    before any work is done.
    """

def attention_weights(query: object, key: object, *, row_max: object | None = None, row_sum: object | None = None, out: object | None = None, rows: Sequence[tuple[int, int]] | None = None, keys: tuple[int, int] | None = None, kind: str = 'weights', causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> Any:
    """
    The exact weights (scores with kind='scores') of selected rows and keys: zero-based ranges
    (begin, end). row_max and row_sum as attention_forward wrote them. Returns (B, H, R, keys).
    """

def attention_with_statistics(query: object, key: object, value: object, *, out: object | None = None, dtype: str | None = None, top_keys: int = 0, chosen_keys: Sequence[int] | object | None = None, chosen_ranges: object | None = None, chosen_offset: int | None = None, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    attention_forward and, in the same pass, statistics of its rows, by name: context, row_max, row_sum,
    lse, fingerprint, entropy, largest_weight and mean_distance (B, H, L), and their means head_… (B,
    H). With top_keys=k, also top_keys and top_weights (B, H, L, k). With chosen keys, also chosen_weight
    and its mean. Chosen keys are chosen_keys=[0, 4] for all rows; chosen_ranges, int64 (L, 2), (1, 2)
    or (B, L, 2), with begin and end for each row; or chosen_offset=n, the key at the position of the
    row + n: -1 is the previous token, 1 - period the token after the earlier copy of this token.
    Positions are i + query_offset. Keys that do not exist have no weight.
    """

def attention_columns(query: object, key: object, row_max: object, row_sum: object, *, pooled_map: tuple[int, int] | None = None, cells: str = 'means', causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    key_mass (B, H, S), the weight on each key summed over the queries. With its size (Ga, Gb) also
    pooled_map (B, H, Ga, Gb), the mean or sum of the weights in each cell.
    """

def attention_partials(query: object, key: object, value: object, *, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    Partial results over chunks of 1024 keys, before the division by row_sum: accumulator and
    scaled_accumulator (N, B, H, L, Dv), row_max and row_sum (N, B, H, L).
    """

def attention_merge(accumulator: object, row_max: object, row_sum: object, *, scaled_accumulator: object | None = None, sinks: Sequence[float] | object | None = None, out: object | None = None, dtype: str | None = None, lse: object | None = None, sink_weights: object | None = None, return_row_max: bool = False, return_row_sum: bool = False, return_lse: bool = False, return_sink_weights: bool = False, num_threads: int = 0) -> Any:
    """
    Merges N partial results in key order. Those of all chunks give the same bits as attention_forward.
    """

def attention_merge_lse(contexts: object, lse: object, *, out: object | None = None, return_lse: bool = False, num_threads: int = 0) -> Any:
    """
    Merges N finished results over disjoint sets of keys, using their lse: contexts (N, B, H, L, Dv), lse
    (N, B, H, L).
    """

def attention_backward(query: object, key: object, value: object, context: object, row_max: object, row_sum: object, grad_context: object, *, fingerprint: bytes | str, gradients: Sequence[str] = ('grad_query', 'grad_key', 'grad_value'), grad_lse: object | None = None, grad_query: object | None = None, grad_key: object | None = None, grad_value: object | None = None, grad_bias: object | None = None, grad_sinks: object | None = None, accumulate: Sequence[str] = (), causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    Gradients of attention_forward, by name. context, row_max, row_sum and fingerprint are those that
    the forward call wrote; grad_context (B, H, L, Dv) and grad_lse (B, H, L) are the gradients of the
    loss with respect to its results. Raises ValueError if options differ from those of the forward
    call; fingerprint='unchecked' turns this check off, for row_max and row_sum that are merged from
    partial results. gradients selects which gradients to compute. They have the shapes of the arrays
    that they belong to and the type of query; grad_bias and grad_sinks are float32 (float64). An array
    with the name of a gradient is written to instead of a new one, or added to if accumulate contains
    the name.
    """

class PackedLinear:
    """
    The weight (I, O) of linear_forward, packed once for many calls: a copy.
    """

    def __init__(self, weight: object) -> None: ...

    @property
    def shape(self) -> tuple[int, int]:
        """(I, O)"""

    @property
    def num_bytes(self) -> int:
        """The size of the panels in bytes."""

def linear_forward(input: object, weight: PackedLinear | object, bias: object | None = None, *, out: object | None = None, dtype: str | None = None, activation: str = 'none', num_threads: int = 0) -> Any:
    """
    activation(input · weight + bias): input (R, I), weight (I, O) or PackedLinear, bias (O), all of
    float32, float64 or bfloat16. The output of bfloat16 inputs may be float32 (dtype, out). activation
    is none, relu, gelu, gelu_tanh or silu. The weight of a PyTorch nn.Linear has shape (O, I): pass weight.T.
    """

def linear_backward(input: object, weight: object, grad_output: object, *, grad_input: object | None = None, grad_weight: object | None = None, grad_bias: object | None = None, accumulate: Sequence[str] = (), rows_per_group: int = 0, num_threads: int = 0) -> dict[str, Any]:
    """
    Gradients of input · weight + bias, by name: grad_input (R, I), grad_weight (I, O) and grad_bias
    (O), from grad_output (R, O), the gradient of the loss with respect to the argument of the
    activation. An array with the name of a gradient is written to, or added to if accumulate contains
    the name.
    """

def activation_forward(input: object, activation: str, *, out: object | None = None, num_threads: int = 0) -> Any:
    """
    f(input), (R, E). activation is none, relu, gelu, gelu_tanh or silu. out may be input.
    """

def activation_backward(input: object, grad_output: object, activation: str, *, grad_input: object | None = None, accumulate: bool = False, num_threads: int = 0) -> Any:
    """
    grad_output · f′(input), (R, E). grad_input may be input or grad_output.
    """

def swiglu_forward(gate: object, up: object, *, out: object | None = None, num_threads: int = 0) -> Any:
    """silu(gate) · up, element by element: (R, F)."""

def swiglu_backward(gate: object, up: object, grad_output: object, *, grad_gate: object | None = None, grad_up: object | None = None, accumulate: Sequence[str] = (), num_threads: int = 0) -> dict[str, Any]:
    """Gradients of silu(gate) · up, by name: grad_gate and grad_up, (R, F)."""

def layer_norm_forward(input: object, gain: object, bias: object | None = None, *, addend: object | None = None, epsilon: float = 1e-05, out: object | None = None, num_threads: int = 0) -> Any:
    """
    (x − mean) / √(variance + epsilon) · gain + bias of every row of x = input + addend: (R, E).
    """

def layer_norm_backward(input: object, gain: object, grad_output: object, *, addend: object | None = None, epsilon: float = 1e-05, grad_input: object | None = None, grad_gain: object | None = None, grad_bias: object | None = None, accumulate: Sequence[str] = (), rows_per_group: int = 0, num_threads: int = 0) -> dict[str, Any]:
    """
    Gradients of layer_norm_forward, by name: grad_input (R, E), which is that of addend as well,
    grad_gain (E) and grad_bias (E).
    """

def rms_norm_forward(input: object, gain: object, *, addend: object | None = None, epsilon: float = 1e-05, out: object | None = None, num_threads: int = 0) -> Any:
    """
    x / √(Σ x² / E + epsilon) · gain of every row of x = input + addend: (R, E).
    """

def rms_norm_backward(input: object, gain: object, grad_output: object, *, addend: object | None = None, epsilon: float = 1e-05, grad_input: object | None = None, grad_gain: object | None = None, accumulate: Sequence[str] = (), rows_per_group: int = 0, num_threads: int = 0) -> dict[str, Any]:
    """
    Gradients of rms_norm_forward, by name: grad_input (R, E) and grad_gain (E).
    """

def embedding_forward(table: object, indices: Sequence[int] | object, *, out: object | None = None, accumulate: bool = False, num_threads: int = 0) -> Any:
    """table[indices]: table (V, E), indices (R), output (R, E)."""

def embedding_backward(indices: Sequence[int] | object, grad_output: object, *, num_rows: int | None = None, grad_table: object | None = None, accumulate: bool = False, rows_per_group: int = 0, num_threads: int = 0) -> Any:
    """
    Gradient of the table, (V, E): the sum of the rows of grad_output (R, E) with the same index.
    num_rows is V; with grad_table it may be absent.
    """

def rotary_forward(input: object, *, out: object | None = None, base: float = 10000.0, layout: str = 'halves', size: int = 0, first_position: int = 0, positions: Sequence[int] | object | None = None, num_threads: int = 0) -> Any:
    """
    Rotates pairs of components of queries or keys (B, H, L, D) by angles that grow with the position.
    layout is halves or interleaved; positions (L) or (B, L). out may be input.
    """

def rotary_backward(grad_output: object, *, grad_input: object | None = None, accumulate: bool = False, base: float = 10000.0, layout: str = 'halves', size: int = 0, first_position: int = 0, positions: Sequence[int] | object | None = None, num_threads: int = 0) -> Any:
    """The gradient of rotary_forward: the rotation by the opposite angles."""

def cross_entropy_forward(logits: object, targets: Sequence[int] | object, *, row_loss: object | None = None, grad_logits: object | None = None, return_row_loss: bool = False, return_grad_logits: bool = False, ignored_target: int = -1, reduction: str = 'mean', grad_scale: float = 1.0, count: int = 0, rows_per_group: int = 0, num_threads: int = 0) -> tuple[Any, ...]:
    """
    The cross-entropy loss of logits (R, V) and targets (R), and the number of targets that are not
    ignored; on request the loss of each row (R) and the gradient of logits (R, V), which may
    overwrite logits.
    """

def multi_head_attention_forward(input: object, w_query: object, w_key: object, w_value: object, *, w_output: object | None = None, memory: object | None = None, b_query: object | None = None, b_key: object | None = None, b_value: object | None = None, b_output: object | None = None, num_heads: int = 1, num_kv_heads: int = 0, out: object | None = None, weights: object | None = None, return_weights: bool = False, return_state: bool = False, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> Any:
    """
    A multi-head attention block on (B, L, E): project, split into heads, attend, join, project back.
    key and value are computed from memory (B, S, E_kv), by default from input. state is what
    multi_head_attention_backward needs.
    """

def multi_head_attention_backward(input: object, w_query: object, w_key: object, w_value: object, state: dict[str, Any], grad_output: object, *, w_output: object | None = None, memory: object | None = None, b_query: object | None = None, b_key: object | None = None, b_value: object | None = None, b_output: object | None = None, num_heads: int = 1, num_kv_heads: int = 0, grad_input: object | None = None, grad_memory: object | None = None, grad_w_query: object | None = None, grad_w_key: object | None = None, grad_w_value: object | None = None, grad_w_output: object | None = None, grad_b_query: object | None = None, grad_b_key: object | None = None, grad_b_value: object | None = None, grad_b_output: object | None = None, accumulate: Sequence[str] = (), rows_per_group: int = 0, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    Gradients of multi_head_attention_forward, by name, from its state and grad_output (B, L, E_out).
    grad_memory, grad_w_output and grad_b_output exist with memory and with w_output.
    """

def adamw_step(parameters: object, gradients: object, first_moment: object, second_moment: object, *, learning_rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-08, weight_decay: float = 0.01, gradient_scale: float = 1.0, step: int = 1, num_threads: int = 0) -> None:
    """
    A step of AdamW on contiguous arrays of any shape, of float32 or float64, in place.
    """

def muon_step(matrix: object, gradient: object, first_moment: object, *, learning_rate: float = 0.02, momentum: float = 0.95, nesterov: bool = True, weight_decay: float = 0.0, gradient_scale: float = 1.0, iterations: int = 5, num_threads: int = 0) -> None:
    """
    A step of Muon on a matrix, in place: rows are outputs, as in PyTorch's nn.Linear.
    """

def global_norm(values: object, *, num_threads: int = 0) -> float:
    """The L2 norm of a contiguous array of any shape, in double."""

def clip_factor(norm: float, max_norm: float) -> float:
    """The factor that limits a norm: min(1, max_norm / (norm + 1e-6))."""

def learning_rate_at(step: int, *, steps: int, learning_rate: float = 0.001, min_learning_rate: float = 0.0001, warmup: int = 0, schedule: str = 'cosine') -> float:
    """The learning rate of AdamW at a step, numbered from 0."""

def muon_learning_rate_at(step: int, *, steps: int, muon_learning_rate: float = 0.02, learning_rate: float = 0.001, min_learning_rate: float = 0.0001, warmup: int = 0, schedule: str = 'cosine') -> float:
    """The learning rate of Muon at a step, in proportion to that of AdamW."""

class KvCache:
    """
    Keys and values that are kept between calls, packed as the kernels read them.
    """

    def __init__(self, *, head_size: int, capacity: int, num_sequences: int = 1, num_kv_heads: int = 1, value_head_size: int | None = None, page_keys: int = 0, num_pages: int = 0, ring: bool = False, dtype: str = 'float32') -> None:
        """
        Creates an empty cache. head_size is D; value_head_size is Dv, by default head_size. dtype is
        float32, float64, bfloat16, float16 or int8. page_keys, a multiple of 32, and num_pages make a paged
        cache. ring keeps the newest `capacity` keys.
        """

    def append(self, key: object, value: object, sequence: int | None = None, counts: Sequence[int] | object | None = None) -> None:
        """
        Appends keys (B, Hkv, L, D) and values (B, Hkv, L, Dv) to all sequences, the first counts[b] of them
        to sequence b. With sequence, appends (Hkv, L, D) and (Hkv, L, Dv) to that sequence. float32,
        bfloat16 and float16 arrays are rounded to the type of the cache; a float64 cache takes float64.
        """

    def truncate(self, sequence: int, length: int) -> None:
        """Keeps the first `length` keys."""

    def fork(self, from_sequence: int, to_sequence: int) -> None:
        """
        Makes to_sequence, which must be empty, share the keys and values of from_sequence: whole panels are
        not copied.
        """

    def length(self, sequence: int = 0) -> int:
        """
        The number of keys that were appended and not truncated; in a ring, including those no longer stored.
        """

    def first_key(self, sequence: int = 0) -> int:
        """The first key that is still stored: 0 except in a ring."""

    @property
    def num_free_pages(self) -> int: ...

    @staticmethod
    def open(memory: object) -> KvCache:
        """
        Opens, in place, a cache from the `memory` of another cache: bytes aligned to 64, such as a
        mapped file. The cache keeps them alive. If they are writable, append() writes to them. Raises
        RuntimeError with the byte offset if the block is not consistent.
        """

    @property
    def memory(self) -> memoryview:
        """
        The block (docs/guide/kv-caches.md), read-only. open() opens a block that was written to a file and
        later read or mapped.
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
    attention_forward over a cache, with the same bits. query (B, H, L, D), B the number of sequences in
    the cache. The queries are the newest L positions of each sequence unless query_offset is given. A
    sequence without keys yields zeros.
    """

def attention_decode_partials(query: object, cache: KvCache, *, causal: bool | str = False, query_offset: int | str | Sequence[int] | None = None, window: tuple[int | None, int | None] | None = None, key_lengths: Sequence[int] | object | None = None, query_starts: Sequence[int] | object | None = None, key_starts: Sequence[int] | object | None = None, query_segments: object | None = None, key_segments: object | None = None, prefix: Sequence[int] | object | None = None, block_mask: object | None = None, block_size: tuple[int, int] | None = None, mask: object | None = None, bias: object | None = None, alibi_slopes: Sequence[float] | object | None = None, sinks: Sequence[float] | object | None = None, soft_cap: float | None = None, scale: float | None = None, dropout: float = 0.0, dropout_seed: int = 0, dropout_first: Sequence[int] = (0, 0, 0), weights_in_float32: bool | None = None, num_threads: int = 0) -> dict[str, Any]:
    """
    Partial results over chunks of 1024 keys of a cache, as in attention_partials: accumulator and
    scaled_accumulator (N, B, H, L, Dv), row_max and row_sum (N, B, H, L).
    """

class RankGroup:
    """Ranks that compute together; used by regard.distributed."""

    def __init__(self, transport: object, timeout: float) -> None:
        """
        The ranks of a transport (python/regard/distributed_transports.py): a collective call.
        """

    def call(self, name: str, function: Callable[..., Any], *args: object, **kwargs: object) -> Any:
        """
        function(*args, **kwargs), whose operator `name` is divided among the ranks.
        """

    def close(self, at_once: bool = False) -> None:
        """
        Waits for the other ranks or, with at_once, notifies them that this one has failed.
        """

    @property
    def num_ranks(self) -> int: ...

def sum_in_order(terms: object) -> Any:
    """The sum of the rows of all ranks, in order; within RankGroup.call()."""

class Model:
    """
    An encoder of the BERT family with its tokenizer, or a decoder trained with Regard, as load_model
    returns it.
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
        """The tokens of a text that the model sees, including [CLS] and [SEP]."""

class Explanation:
    """The steps of an attention computation."""

    def text(self, width: int = 80, color: bool = False, full: bool = False, step: str = '') -> str:
        """All steps as text, or one step by its name or number."""

    def json(self, step: str = '') -> str:
        """The same as JSON, schema regard/1."""

    def html(self) -> str:
        """The same as one page."""

    def __repr__(self) -> str: ...

class SentenceAnalysis:
    """What one word of a sentence attends to in a model."""

    def text(self, width: int = 80, color: bool = False) -> str:
        """The analysis as text."""

    def json(self) -> str:
        """The same as JSON, schema regard/1."""

    def html(self) -> str:
        """The same as one page, with every head of every layer."""

    def __repr__(self) -> str: ...

class Comparison:
    """One word in several sentences."""

    def text(self, width: int = 80, color: bool = False, full: bool = False) -> str:
        """The comparison as text."""

    def json(self) -> str:
        """The same as JSON, schema regard/1."""

    def html(self) -> str:
        """The same as one page."""

    def findings(self) -> list[str]:
        """What the comparison shows, in sentences."""

    def __repr__(self) -> str: ...

def load_model(folder: str | os.PathLike[str], map: bool = False) -> Model:
    """
    Reads config.json, tokenizer.json and model.safetensors of a folder in the layout of Hugging Face,
    or the newest checkpoint of a training run, which explain() also accepts.
    map maps the parameters into memory instead of reading them. Raises RuntimeError with the path of
    the file.
    """

def explain(input: object, model: Model | None = None, query: str | None = None, layer: int | None = None, head: int | None = None, hide: Sequence[str] = (), truncate: bool = False, full: bool = False) -> Any:
    """
    With a model, input is a sentence: returns a SentenceAnalysis of what `query` attends to. Otherwise,
    input is matrices and settings as in docs/guide/own-matrices.md, a dict or JSON: returns an
    Explanation of every step.
    """

def lesson(name: str, layout: str | None = None) -> Explanation:
    """
    A document that teaches attention, recomputed. layout is 'rows' or 'columns'. For an unknown name,
    the message of the ValueError lists all names.
    """

def lesson_entries() -> list[str]:
    """The names of all lessons, in reading order."""

def compare(model: Model, word: str, sentences: Sequence[str], hide: Sequence[str] = (), control: str = '', truncate: bool = False) -> Comparison:
    """
    How far the vectors of one word differ between sentences, layer by layer, and which heads make them
    differ.
    """

def embed(model: Model, texts: Sequence[str], truncate: bool = False) -> Any:
    """
    Vectors of texts, (n, E), float32, each of L2 norm 1: the mean over the tokens of a text,
    normalized.
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
        """The loss of the last step, and its tokens per second."""

    @property
    def seconds(self) -> float: ...

    def advance(self, seconds: float, num_threads: int, folder: str, checkpoint_every: int) -> bool:
        """
        Performs steps for that many seconds. A signal ends it after a complete step. Returns whether the run
        is done.
        """

    def finish(self) -> None:
        """Takes the last snapshot."""

    def resume(self, folder: str) -> str:
        """
        Continues the newest checkpoint of a folder. Returns a warning, or nothing.
        """

    def save(self, folder: str | os.PathLike[str]) -> str:
        """Saves a checkpoint. Returns its path."""

    def log(self) -> dict[str, Any]:
        """The columns of the curve."""

    def snapshots(self) -> dict[str, Any]:
        """Steps, losses, weights and scores of all snapshots."""

    def probe(self) -> dict[str, Any]:
        """The sequence on which heads are observed."""

    def events(self) -> list[dict[str, Any]]:
        """The moments at which heads formed."""

    def findings(self) -> list[str]:
        """What was learned, in sentences."""

    def summary(self) -> list[str]:
        """The settings in a few lines."""

    def evaluate(self, count: int, split: str, ablate: tuple[int, int] | None) -> dict[str, Any]: ...

    def parameters(self) -> dict[str, Any]:
        """Copies of all parameters, by name."""

    def logits(self, tokens: object, ablate: tuple[int, int] | None) -> Any:
        """(B, L, V) of int64 (B, L)."""

    def generate(self, prompt: Sequence[int], tokens: int, temperature: float, top_k: int, top_p: float, seed: int) -> list[int]:
        """The ids that continue a prompt."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def text(self, width: int, color: bool) -> str:
        """A summary of the run."""

    def json(self) -> str: ...

    def html(self) -> str: ...

    def svg(self) -> str: ...

def training_tasks() -> list[dict[str, Any]]:
    """The tasks of train()."""

def plan(call: Callable[..., object], *args: object, **kwargs: object) -> dict[str, Any]:
    """
    What the operators that call(*args, **kwargs) runs would do, without doing it: instruction_set and
    why, operators (name, strategy, operations, bytes, num_threads), workspace_bytes.
    """

def instruction_sets() -> list[dict[str, Any]]:
    """
    Every instruction set that the library was built for, the best one last.
    """

def active_instruction_set() -> str: ...

def default_num_threads() -> int: ...

def available_memory_bytes() -> int: ...

def fma_gflops(num_threads: int, seconds: float) -> float:
    """
    GFLOP/s of float32 multiply-adds on registers: an upper bound for any operator.
    """

def bf16_dot_gflops(num_threads: int, seconds: float) -> float | None:
    """
    GFLOP/s of bfloat16 dot products on registers; None unless the active instruction set is
    avx512_bf16.
    """

def read_gigabytes_per_second(bytes_per_thread: int, num_threads: int, seconds: float) -> float:
    """GB/s of memory reads, in the best of several loops."""
