# SPDX-License-Identifier: Apache-2.0
"""The results of calls that return several values: named tuples, and dictionaries whose entries are also attributes.

    AttentionResult        context, lse … of attention and attention_decode: a named tuple of the requested results
    AttentionStatistics …  entropy, top_keys … of attention_with_statistics and others: a dict with attributes

The representation of a result lists the type and shape of every array. Read next: attention_operators.py.
"""

from __future__ import annotations

import collections

TYPE_CHECKING = False  # avoids importing typing at run time
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Generic, TypeVar

    import numpy

    Array = TypeVar("Array")

    class AttentionResult(tuple[Any, ...], Generic[Array]):
        """The context and the other requested results, in this order."""

        context: Array
        row_max: Array
        row_sum: Array
        lse: Array
        weights: Array
        sink_weights: Array
        fingerprint: bytes

        @property
        def _fields(self) -> tuple[str, ...]: ...
        def _asdict(self) -> dict[str, Any]: ...


def described(value: Any) -> str:
    """'float32 (1, 8, 600, 64)' for an array, '64 bytes' for bytes, or the value itself."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{str(dtype).rpartition('.')[2]} {tuple(shape)}"
    return f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)


def _listed(name: str, items: Iterable[tuple[str, Any]]) -> str:
    lines = [f"{field}={described(value)}" for field, value in items]
    text = ", ".join(lines)
    return f"{name}({text})" if len(text) < 80 else "".join((f"{name}(\n    ", ",\n    ".join(lines), ")"))


_FIELDS = ("context", "row_max", "row_sum", "lse", "weights", "sink_weights", "fingerprint", "state", "row_loss", "grad_logits")
_classes: dict[tuple[str, ...], Any] = {}


def _missing(self: Any, name: str) -> Any:
    if name in _FIELDS:
        raise AttributeError(f"this {type(self).__name__} has no {name}; expected return_{name}=True in the call")
    raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


def result_class(fields: tuple[str, ...], name: str = "AttentionResult") -> Any:
    """A named tuple class with these fields. JAX and PyTorch treat its instances as trees."""
    found = _classes.get(fields)
    if found is None:
        make: Any = collections.namedtuple
        found = make(name, fields, module=__name__)
        found.__doc__ = "The requested results: " + ", ".join(fields) + "."
        found.__repr__ = lambda self: _listed(name, zip(fields, self))
        found.__getattr__ = _missing
        found.__reduce__ = lambda self: (restored, (fields, name, tuple(self)))
        _classes[fields] = found
    return found


def restored(fields: tuple[str, ...], name: str, values: tuple[Any, ...]) -> Any:
    """Restore a result; used by pickle and copy."""
    return result_class(fields, name)._make(values)


if TYPE_CHECKING:
    class Named(dict[str, Any], Generic[Array]):
        """Results that are both entries and attributes: found["entropy"] is found.entropy."""
else:
    Array = object

    class Named(dict):
        """Results that are both entries and attributes: found["entropy"] is found.entropy."""

        __slots__ = ()

        def __init__(self, entries=(), /, **more):  # dict itself has no signature
            super().__init__(entries, **more)

        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(f"{type(self).__name__} has no {name}; it has {', '.join(self)}") from None

        def __dir__(self):
            return [*super().__dir__(), *self]

        def __repr__(self):
            return _listed(type(self).__name__, self.items())


class AttentionStatistics(Named[Array]):
    """Context and attention statistics of attention_with_statistics, as entries and attributes.

    top_keys and top_weights are present if top_keys was given. chosen_weight and head_chosen_weight are present if keys
    were chosen.
    """

    __slots__ = ()
    if TYPE_CHECKING:
        context: Array
        row_max: Array
        row_sum: Array
        lse: Array
        fingerprint: bytes
        entropy: Array
        largest_weight: Array
        mean_distance: Array
        chosen_weight: Array
        head_entropy: Array
        head_largest_weight: Array
        head_mean_distance: Array
        head_chosen_weight: Array
        top_keys: Array
        top_weights: Array


class LayerInspection(Named[Array]):
    """One call to attention recorded by regard.transformers.inspection, as entries and attributes.

    It contains the entries of AttentionStatistics except the context, and the layer, step and module of the call.
    key_mass and pooled_map are present if pooled_map was given.
    """

    __slots__ = ()
    if TYPE_CHECKING:
        layer: int
        step: int
        module: str
        row_max: Array
        row_sum: Array
        lse: Array
        fingerprint: bytes
        entropy: Array
        largest_weight: Array
        mean_distance: Array
        chosen_weight: Array
        head_entropy: Array
        head_largest_weight: Array
        head_mean_distance: Array
        head_chosen_weight: Array
        top_keys: Array
        top_weights: Array
        key_mass: Array
        pooled_map: Array


class AttentionColumns(Named[Array]):
    """Key mass and pooled map of attention_columns, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        key_mass: Array
        pooled_map: Array


class AttentionPartials(Named[Array]):
    """Partial results of attention_partials or attention_decode_partials, per chunk, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        accumulator: Array
        row_max: Array
        row_sum: Array
        scaled_accumulator: Array


class AttentionGradients(Named[Array]):
    """The requested gradients of attention_backward, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        grad_query: Array
        grad_key: Array
        grad_value: Array
        grad_bias: Array
        grad_sinks: Array


class LinearGradients(Named[Array]):
    """Gradients of linear_backward, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        grad_input: Array
        grad_weight: Array
        grad_bias: Array


class SwigluGradients(Named[Array]):
    """Gradients of swiglu_backward, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        grad_gate: Array
        grad_up: Array


class LayerNormGradients(Named[Array]):
    """Gradients of layer_norm_backward, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        grad_input: Array
        grad_gain: Array
        grad_bias: Array


class RmsNormGradients(Named[Array]):
    """Gradients of rms_norm_backward, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        grad_input: Array
        grad_gain: Array


class MultiHeadForwardState(Named[Array]):
    """State of the forward call for multi_head_attention_backward, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        query: Array
        key: Array
        value: Array
        context: Array
        row_max: Array
        row_sum: Array
        fingerprint: bytes


class MultiHeadGradients(Named[Array]):
    """Gradients of multi_head_attention_backward, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        grad_input: Array
        grad_memory: Array
        grad_w_query: Array
        grad_w_key: Array
        grad_w_value: Array
        grad_w_output: Array
        grad_b_query: Array
        grad_b_key: Array
        grad_b_value: Array
        grad_b_output: Array


class TrainingLog(Named[object]):
    """The curve of a training run, with one array per column, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        step: numpy.ndarray[Any, numpy.dtype[Any]]
        loss: numpy.ndarray[Any, numpy.dtype[Any]]
        held_out_loss: numpy.ndarray[Any, numpy.dtype[Any]]
        gradient_norm: numpy.ndarray[Any, numpy.dtype[Any]]
        learning_rate: numpy.ndarray[Any, numpy.dtype[Any]]
        tokens_per_second: numpy.ndarray[Any, numpy.dtype[Any]]


class TrainingSnapshots(Named[object]):
    """The attention of every head at each snapshot of a training run, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        step: numpy.ndarray[Any, numpy.dtype[Any]]
        loss: numpy.ndarray[Any, numpy.dtype[Any]]
        weights: numpy.ndarray[Any, numpy.dtype[Any]]
        pattern: numpy.ndarray[Any, numpy.dtype[Any]]
        previous: numpy.ndarray[Any, numpy.dtype[Any]]
        sink: numpy.ndarray[Any, numpy.dtype[Any]]
        entropy: numpy.ndarray[Any, numpy.dtype[Any]]
        ablation: numpy.ndarray[Any, numpy.dtype[Any]]
        grad_weights: numpy.ndarray[Any, numpy.dtype[Any]]
        grad_scores: numpy.ndarray[Any, numpy.dtype[Any]]


class TrainingProbe(Named[object]):
    """The sequence on which the heads of a training run are observed, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        tokens: list[str]
        targets: list[str | None]
        wanted: list[list[int]]
        query: int
        uniform_pattern: float
        uniform_previous: float
        uniform_sink: float


class HeadEvent(Named[object]):
    """The moment at which a head formed, as entries and attributes. It is printed as a sentence."""

    __slots__ = ()
    if TYPE_CHECKING:
        text: str
        kind: str
        layer: int
        head: int
        step: int
        score: float
        uniform: float
        loss_fall: float
        ablation: float

    def __repr__(self) -> str:
        return str(self["text"])


class Evaluation(Named[object]):
    """The loss and the accuracy of a model on a set of examples, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        loss: float
        num_targets: int
        correct_targets: int
        num_sequences: int
        correct_sequences: int


class TrainingTask(Named[object]):
    """A task of regard.train, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        name: str
        shows: str
        pattern: str
        expected: str
        parameters: int


class PlannedOperator(Named[object]):
    """The planned execution of one operator of a call, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        name: str
        strategy: str
        operations: float
        bytes: float
        num_threads: int


class Plan(Named[object]):
    """The planned execution of a call, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        instruction_set: str
        why: str
        operators: list[PlannedOperator]
        workspace_bytes: int


class InstructionSet(Named[object]):
    """An instruction set that the library was built for, as entries and attributes."""

    __slots__ = ()
    if TYPE_CHECKING:
        name: str
        available: bool
        active: bool
        fused_multiply_add: bool
