# SPDX-License-Identifier: Apache-2.0
"""Regard as an attention implementation of Hugging Face Transformers, for models that call its AttentionInterface.

    import regard.transformers
    regard.transformers.register()
    model = AutoModel.from_pretrained(name, attn_implementation="regard")
    model(**inputs, output_attentions=True).attentions       # the weights, without switching to "eager"

    with regard.transformers.inspection(top_keys=8) as layers:
        model(**inputs)                                      # for lengths at which the weights do not fit in memory
    layers[0].entropy, layers[0].top_keys                    # statistics of each row, in O(L + S) memory

Models that Regard does not support raise ValueError:

    models that do not call the interface              when the implementation is set; the message states the model
    models with their own table of attention classes   likewise
    models that pass an unsupported tensor argument    in the first call; the message states the argument

There are two kinds of masks:

    for models that only forward the mask              as for "sdpa": booleans, or None if is_causal is sufficient
    for all other models                               as for "eager": values that are added to the scores

docs/guide/transformers.md lists the architectures. Read next: torch.py.
"""

import collections.abc
import contextlib
import contextvars
import functools
import inspect
import re
import sys
import typing
import warnings
import weakref

import torch
import transformers
from transformers.masking_utils import eager_mask, sdpa_mask
from transformers.utils import TransformersKwargs, output_capturing

from . import _regard
from .named_results import LayerInspection
from .torch import _learns, attention

# The active inspections of the current context, the outermost first.
_inspection: contextvars.ContextVar[tuple["_Inspection", ...]] = contextvars.ContextVar("regard_inspection", default=())
# The active inspections of all threads. Dynamo does not track _inspection, but it recompiles a function when this list
# is no longer empty.
_inspections: list["_Inspection"] = []

# The names under which Regard is registered.
_names: set[str] = set()
# The models whose attention implementation has been set to Regard.
_models: weakref.WeakSet[transformers.PreTrainedModel] = weakref.WeakSet()
# For each configuration class, whether every model in _models that has such a configuration only forwards its mask.
_forwards_mask: dict[type, bool] = {}

# Tensors that models pass to every attention function, although they do not affect attention.
_WITHOUT_EFFECT = {*TransformersKwargs.__annotations__, "cache_position", "position_embeddings", "token_type_ids",
                   "input_ids", "inputs_embeds", "labels"}


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    position_bias: torch.Tensor | None = None,
    cache: object = None,
    **kwargs: typing.Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Compute attention for a module of a Transformers model, which calls this function after :func:`register`.

    Parameters
    ----------
    module : torch.nn.Module
        The attention module that calls this function.
    query, key, value : Tensor, shapes (B, H, L, D), (B, Hkv, S, D) and (B, Hkv, S, Dv)
        Queries, keys and values. Hkv must divide H. Key/value heads need not be repeated.
    attention_mask : Tensor or None
        A boolean mask, or values that are added to the scores. If it is None, a causal module uses a causal mask for
        L > 1.
    scaling : float, optional
        The factor applied to the scores.
    dropout : float, default 0.0
        The dropout probability.
    is_causal : bool, optional
        Whether the module is causal; ``module.is_causal`` by default.
    softcap : float, optional
        The soft cap of the scores.
    s_aux : Tensor, shape (H,), optional
        Attention sinks.
    position_bias : Tensor, optional
        Values added to the scores.
    cache : object, optional
        The paged cache of continuous batching. It is not supported: any value except None is rejected.
    **kwargs
        Other arguments that the model passes. Tensors are rejected unless they are known not to affect attention.

    Returns
    -------
    context : Tensor, shape (B, L, H, Dv)
    weights : Tensor, shape (B, H, L, S), or None
        The weights before dropout, if ``output_attentions`` requests them. They are differentiable; the backward pass
        through them allocates a few arrays of this shape.

    Raises
    ------
    ValueError
        If the model passes an argument that Regard does not support.
    """
    if cache is not None:
        raise ValueError("regard.transformers: a paged cache is given; expected the keys and values themselves "
                         "(generate without continuous batching)")
    for name, given in kwargs.items():
        if isinstance(given, torch.Tensor) and name not in _WITHOUT_EFFECT:
            raise ValueError(f"regard.transformers: {type(module).__name__} passes the tensor {name}, which Regard does not "
                             'support; set attn_implementation="eager" for this model')
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    options = {"causal": bool(causal) and query.shape[2] > 1 and attention_mask is None, "scale": scaling,
               "soft_cap": softcap, "dropout": dropout}
    if attention_mask is not None:
        attention_mask = attention_mask[..., :key.shape[2]]
        options["mask" if attention_mask.dtype == torch.bool else "bias"] = attention_mask
    if position_bias is not None:
        options["bias"] = position_bias if "bias" not in options else options["bias"] + position_bias
    if "bias" in options and (options["bias"].dtype != torch.float32 or query.dtype == torch.float64):
        options["bias"] = options["bias"].to(query.dtype)
    if s_aux is not None:
        options["sinks"] = s_aux.to(torch.float64 if query.dtype == torch.float64 else torch.float32)
    context, row_max, row_sum = attention(query, key, value, **options)
    weights = None
    inspections = _inspection.get() if _inspections else ()
    return_weights = _weights_are_requested(kwargs)
    if inspections or return_weights:
        detached = _detached(options)
        if return_weights:
            bias, sinks = options.get("bias"), options.get("sinks")
            find = _differentiable_weights if _learns(query, key, bias, sinks) else _weights
            weights = find(query, key, bias, sinks, row_max.detach(), row_sum.detach(), detached)
        # Statistics depend on the positions of the rows. In a generation step, query contains only the newest rows, so
        # the last row is aligned with the last key. The mask does not convey this.
        position = {"query_offset": "bottom_right"} if causal and not detached["causal"] else {}
        for active in inspections:
            active.record(module, query.detach(), key.detach(), value.detach(), detached | position)
    return context.transpose(1, 2).contiguous(), weights


def _weights_are_requested(kwargs):
    """Whether weights are requested, by output_attentions (if the model forwards it) or by Transformers' own collector."""
    collector = getattr(output_capturing, "_active_collector", None)
    names = (collector.get() if collector is not None else None) or ()
    return bool(kwargs.get("output_attentions")) or any(name.endswith("attentions") for name in names)


def _detached(options):
    """The options for the extension: tensors are detached, and causal is the alignment of the mask, or False."""
    detached = {name: option.detach() if isinstance(option, torch.Tensor) else option for name, option in options.items()}
    detached["causal"] = "top_left" if detached["causal"] else False
    del detached["dropout"]  # dropout affects only the context
    return detached


def _weights(query, key, bias, sinks, row_max, row_sum, options):
    return _regard.attention_weights(query.detach(), key.detach(), row_max=row_max, row_sum=row_sum, **options).to(query.dtype)


@torch.compiler.disable
def _differentiable_weights(*arguments):
    return _Weights.apply(*arguments)


class _Weights(torch.autograd.Function):
    """P = softmax(soft_cap(scale · Q · Kᵀ) + bias), differentiable in all inputs except row_max and row_sum.

    For each row, let g = dL/dP and t = Σ g ∘ P. Then dL/dscores = P ∘ (g − t), and dL/dsink = −t · (1 − Σ P), where
    1 − Σ P is the weight of the sink.
    """

    @staticmethod
    def forward(ctx, query, key, bias, sinks, row_max, row_sum, options):
        weights = _weights(query, key, bias, sinks, row_max, row_sum, options)
        ctx.options = options
        ctx.save_for_backward(query, key, bias, sinks, weights)
        return weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_weights):
        query, key, bias, sinks, weights = ctx.saved_tensors
        computed = torch.float64 if query.dtype == torch.float64 else torch.float32
        weights, grad = weights.to(computed), grad_weights.to(computed)
        row = (grad * weights).sum(-1, keepdim=True)
        grad_sinks = (-row * (1 - weights.sum(-1, keepdim=True))).sum((0, 2, 3)) if ctx.needs_input_grad[3] else None
        grad = (grad - row).mul_(weights)
        grad_bias = grad.sum_to_size(bias.shape).to(bias.dtype) if ctx.needs_input_grad[2] else None
        grad_query = grad_key = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            batch, heads, length, size = query.shape
            groups = (batch, key.shape[1], heads // key.shape[1], length)
            grouped = query.to(computed).reshape(*groups, size)
            keys = key.to(computed)[:, :, None]
            scale = ctx.options["scale"] if ctx.options["scale"] is not None else size ** -0.5
            if ctx.options["soft_cap"] is not None:
                tanh = (grouped @ keys.transpose(-1, -2)).mul_(scale / ctx.options["soft_cap"]).tanh_()
                slope = tanh.square_().neg_().add_(1)
                grad = grad * slope.view_as(grad)
            grad = grad.reshape(*groups, -1) * scale
            grad_query = (grad @ keys).reshape(query.shape).to(query.dtype)
            grad_key = (grad.transpose(-1, -2) @ grouped).sum(2).to(key.dtype)
        return grad_query, grad_key, grad_bias, grad_sinks, None, None, None


class _Inspection:
    def __init__(self, options, pooled_map):
        self.options, self.pooled_map, self.layers = options, pooled_map, []
        self.names, self.steps = {}, {}

    def record(self, module, query, key, value, options):
        found = _regard.attention_with_statistics(query, key, value, **self.options, **options)
        if self.pooled_map:
            # The map must not be larger than the call: a generation step has one row, and a text may be short.
            size = tuple(map(min, self.pooled_map, (query.shape[2], key.shape[2])))
            found |= _regard.attention_columns(query, key, found["row_max"], found["row_sum"], pooled_map=size, **options)
        del found["context"]
        if module not in self.names:
            self.names[module] = _name_of(module)
        step = self.steps[module] = self.steps.get(module, -1) + 1
        self.layers.append(LayerInspection({"layer": getattr(module, "layer_idx", len(self.layers)), "step": step,
                                            "module": self.names[module], **found}))


def _name_of(module):
    """The module's name, as in named_modules(), within the outermost model of _models that contains it.

    If no model contains the module, the name of its type.
    """
    names = (name for model in _models for name, candidate in model.named_modules() if candidate is module)
    return max(names, key=len, default=type(module).__name__)


@contextlib.contextmanager
def inspection(
    top_keys: int = 8,
    chosen_keys: collections.abc.Sequence[int] | None = None,
    pooled_map: tuple[int, int] | None = None,
    chosen_offset: int | None = None,
) -> collections.abc.Iterator[list[LayerInspection[torch.Tensor]]]:
    """Record attention statistics for every attention call within a context.

    Parameters
    ----------
    top_keys : int, default 8
        The number of keys with the largest weights to record per row.
    chosen_keys : sequence of int, optional
        The keys whose total weight is returned as chosen_weight, the same for every row.
    pooled_map : tuple (rows, columns), optional
        The size of the pooled map. The map of a call with fewer rows or keys is smaller.
    chosen_offset : int, optional
        Alternatively, one key for each row, as an offset from the row's position. With −1, chosen_weight is large in
        previous-token heads. With 1 − period, it is large in induction heads if the text repeats with this period. The
        weight of a key that does not exist is 0.

    Returns
    -------
    context manager
        The context manager yields a list to which each attention call appends a LayerInspection, with these entries:

        - layer, the index of the layer
        - step, the number of earlier calls by the same module: 0 in a single forward pass, and the index of the
          generation step in ``generate()``
        - module, the name of the module in the model, such as "model.layers.0.self_attn"
        - the results of :func:`regard.attention_with_statistics` except the context
        - with pooled_map, also key_mass and pooled_map, as returned by :func:`regard.attention_columns`

    Warns
    -----
    UserWarning
        If no attention call was recorded.

    Notes
    -----
    Memory use is O(L + S), not O(L · S). Inspections can be nested; each of them then records every call.
    """
    options = {"top_keys": top_keys, "chosen_keys": None if chosen_keys is None else list(chosen_keys),
               "chosen_offset": chosen_offset}
    current = _Inspection(options, pooled_map)
    token = _inspection.set((*_inspection.get(), current))
    _inspections.append(current)
    try:
        yield current.layers
    finally:
        _inspections.remove(current)
        _inspection.reset(token)
    if not current.layers:
        warnings.warn("regard.transformers.inspection: no attention call was recorded; expected a model that is set to "
                      'attn_implementation="regard" and runs within the context, in the same thread', stacklevel=3)


def attention_mask(**options: typing.Any) -> torch.Tensor | None:
    """Return the mask that a model passes to :func:`attention_forward`. Transformers calls this function.

    For a model that only forwards its mask, this is the mask for "sdpa": booleans, or None if ``is_causal`` is
    sufficient. For any other model, it is the mask for "eager", because the model's own code may add the mask to
    scores.

    Parameters
    ----------
    **options
        The arguments that Transformers passes to a mask function.

    Returns
    -------
    Tensor or None
    """
    forwards_mask = _forwards_mask.get(type(options.get("config")), False)
    return sdpa_mask(**options) if forwards_mask else eager_mask(**options)


@functools.cache
def _unsupported_reason(model):
    """Why models of this class cannot call Regard, or None if they can.

    The reason is determined from the contents of the Python modules that define the class and its base classes.
    """
    modules = _modules(model)
    names = [value for module in modules for value in vars(module).values()]
    for value in names:
        if isinstance(value, dict) and "eager" in value and all(isinstance(one, type) for one in value.values()):
            return "selects its attention classes from its own table"
    if any(isinstance(value, transformers.AttentionInterface) for value in names):
        return None
    if any(value.__module__ == module.__name__ and issubclass(value, torch.nn.Module) and "Attention" in value.__name__
           for module in modules for value in vars(module).values() if isinstance(value, type)):
        return "computes attention in its own code"
    own = {module.__name__ for module in modules}
    if any(isinstance(value, type) and ".models." in value.__module__ and ".modeling_" in value.__module__
           and value.__module__ not in own for value in names):
        return None  # a composite of models that are defined in other modules and checked individually
    return "has no attention"


@functools.cache
def _only_forwards_mask(model):
    """Whether models of this class only forward their mask to attention functions.

    This is the case if the class supports "sdpa" or other attention backends, and its code does not test for "sdpa".
    """
    if not (model._supports_sdpa or model._supports_attention_backend):
        return False
    for module in _modules(model):
        try:
            source = inspect.getsource(module)
        except (OSError, TypeError):
            return False
        if re.search(r'(==|!=|\bin\b)[^\n]*"sdpa"', source):
            return False
    return True


def _modules(model):
    """The Python modules that define a model class and its base classes."""
    bases = [base for base in model.__mro__ if issubclass(base, transformers.PreTrainedModel)]
    return [sys.modules[name] for name in dict.fromkeys(base.__module__ for base in bases[:-1]) if name in sys.modules]


def _reject_unsupported(model):
    reason = _unsupported_reason(type(model))
    if reason is not None:
        raise ValueError(f"regard.transformers: {type(model).__name__} (model type {model.config.model_type}) {reason}; "
                         "expected a model that calls transformers' AttentionInterface. "
                         'Set attn_implementation="eager" for this model')


def _watch_models():
    """Wrap the two methods with which Transformers sets the attention implementation of a model.

    Without the wrappers, an implementation has no opportunity to reject a model.
    """
    base = transformers.PreTrainedModel
    check, change = base.get_correct_attn_implementation, base.set_attn_implementation

    @functools.wraps(check)
    def get_correct_attn_implementation(self, requested_attention, *args, **kwargs):
        if requested_attention in _names:
            _reject_unsupported(self)
            kind = type(self.config)
            _forwards_mask[kind] = _forwards_mask.get(kind, True) and _only_forwards_mask(type(self))
            _models.add(self)
        return check(self, requested_attention, *args, **kwargs)

    @functools.wraps(change)
    def set_attn_implementation(self, attn_implementation, *args, **kwargs):
        # If an implementation cannot be set, Transformers only logs a message. The model and its submodels are therefore
        # checked first.
        if isinstance(attn_implementation, str) and attn_implementation in _names:
            for module in self.modules():
                if isinstance(module, base):
                    _reject_unsupported(module)
        return change(self, attn_implementation, *args, **kwargs)

    base.get_correct_attn_implementation = get_correct_attn_implementation
    base.set_attn_implementation = set_attn_implementation


def register(name: str = "regard") -> str:
    """Register Regard as an attention implementation of Transformers, with a mask function.

    From then on, selecting this implementation for a model that cannot call Regard raises ValueError with the name of
    the model, both when the model is created and in ``set_attn_implementation``. For this purpose, two methods of
    ``transformers.PreTrainedModel`` are wrapped.

    Parameters
    ----------
    name : str, default 'regard'
        The value of ``attn_implementation`` that selects Regard.

    Returns
    -------
    str
        The same name.
    """
    if not _names:
        _watch_models()
    _names.add(name)
    transformers.AttentionInterface.register(name, attention_forward)
    transformers.AttentionMaskInterface.register(name, attention_mask)
    return name
