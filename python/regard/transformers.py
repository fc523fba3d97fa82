# SPDX-License-Identifier: Apache-2.0
"""Regard under transformers: an attention implementation for the models that call transformers' AttentionInterface.

    import regard.transformers
    regard.transformers.register()
    model = AutoModel.from_pretrained(name, attn_implementation="regard")
    model(**inputs, output_attentions=True).attentions       # the weights on request, without "eager"

    with regard.transformers.inspection(top_keys=8) as layers:
        model(**inputs)                                      # for lengths at which the weights do not fit in memory:
    layers[0].entropy, layers[0].top_keys                    # statistics of each row, in O(L + S) memory

The mask that a model receives, and the treatment of models that Regard does not support:

    no attention class calls the interface        rejected with the model's name when the implementation is set
    selects attention classes from its own table  rejected in the same way
    passes an unsupported tensor argument         rejected with the argument's name at the first call
    supports sdpa or attention backends           the mask of sdpa: booleans, or None if is_causal is sufficient
    all other models                              the mask of eager: values that are added to the scores

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
# Those of all threads. Dynamo does not read _inspection, but recompiles when this list is no longer empty.
_inspections: list["_Inspection"] = []

_names: set[str] = set()  # under which Regard is registered
_models: weakref.WeakSet[transformers.PreTrainedModel] = weakref.WeakSet()  # that were set to one of them
# By type of configuration: whether all models with it that were set to Regard only pass their mask on.
_hands_mask_on: dict[type, bool] = {}

# Tensors that models pass to every attention function and that do not affect its results.
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
    """Compute attention for a module of transformers. After :func:`register`, transformers calls this function.

    Parameters
    ----------
    module : torch.nn.Module
        The module that calls the function.
    query, key, value : Tensor, shapes (B, H, L, D), (B, Hkv, S, D) and (B, Hkv, S, Dv)
        Queries, keys and values. Key/value heads are not repeated.
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
        A paged cache, which is rejected.
    **kwargs
        Other arguments of the model. Tensors are rejected unless they are known to have no effect on the result.

    Returns
    -------
    context : Tensor, shape (B, L, H, Dv)
    weights : Tensor, shape (B, H, L, S), or None
        The weights before dropout, if ``output_attentions`` requests them. They are differentiable; their backward pass
        allocates a few arrays of the same size.

    Raises
    ------
    ValueError
        If the model passes an argument that Regard does not accept.
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
    asked = _inspection.get() if _inspections else ()
    wanted = _weights_are_wanted(kwargs)
    if asked or wanted:
        told = _told(options)
        if wanted:
            bias, sinks = options.get("bias"), options.get("sinks")
            find = _differentiable_weights if _learns(query, key, bias, sinks) else _weights
            weights = find(query, key, bias, sinks, row_max.detach(), row_sum.detach(), told)
        # A generation step has only the newest rows, which its mask does not show.
        position = {"query_offset": "bottom_right"} if causal and not told["causal"] else {}
        for one in asked:
            one.see(module, query.detach(), key.detach(), value.detach(), told | position)
    return context.transpose(1, 2).contiguous(), weights


def _weights_are_wanted(kwargs):
    """Whether weights are requested, by output_attentions (if the model passes it on) or by transformers itself."""
    collected = getattr(output_capturing, "_active_collector", None)
    names = (collected.get() if collected is not None else None) or ()
    return bool(kwargs.get("output_attentions")) or any(name.endswith("attentions") for name in names)


def _told(options):
    """The options in the form that the library expects: detached, and with the alignment of the causal mask."""
    told = {name: option.detach() if isinstance(option, torch.Tensor) else option for name, option in options.items()}
    told["causal"] = "top_left" if told["causal"] else False
    del told["dropout"]  # it affects only the context
    return told


def _weights(query, key, bias, sinks, row_max, row_sum, told):
    return _regard.attention_weights(query.detach(), key.detach(), row_max=row_max, row_sum=row_sum, **told).to(query.dtype)


@torch.compiler.disable
def _differentiable_weights(*arguments):
    return _Weights.apply(*arguments)


class _Weights(torch.autograd.Function):
    """P = softmax(soft_cap(scale · Q · Kᵀ) + bias), differentiable in all inputs except row_max and row_sum.

    With g = dL/dP and t = Σ g ∘ P for each row, dL/dscores = P ∘ (g − t) and dL/dsink = −t · (1 − Σ P), where 1 − Σ P
    is the weight of the sink.
    """

    @staticmethod
    def forward(ctx, query, key, bias, sinks, row_max, row_sum, told):
        weights = _weights(query, key, bias, sinks, row_max, row_sum, told)
        ctx.told = told
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
            scale = ctx.told["scale"] if ctx.told["scale"] is not None else size ** -0.5
            if ctx.told["soft_cap"] is not None:
                slope = (grouped @ keys.transpose(-1, -2)).mul_(scale / ctx.told["soft_cap"]).tanh_().square_().neg_().add_(1)
                grad = grad * slope.view_as(grad)
            grad = grad.reshape(*groups, -1) * scale
            grad_query = (grad @ keys).reshape(query.shape).to(query.dtype)
            grad_key = (grad.transpose(-1, -2) @ grouped).sum(2).to(key.dtype)
        return grad_query, grad_key, grad_bias, grad_sinks, None, None, None


class _Inspection:
    def __init__(self, options, pooled_map):
        self.options, self.pooled_map, self.layers = options, pooled_map, []
        self.names, self.steps = {}, {}

    def see(self, module, query, key, value, options):
        seen = _regard.attention_with_statistics(query, key, value, **self.options, **options)
        if self.pooled_map:
            # A generation step has one row, and a short text may have fewer rows than the map.
            cells = tuple(map(min, self.pooled_map, (query.shape[2], key.shape[2])))
            seen |= _regard.attention_columns(query, key, seen["row_max"], seen["row_sum"], pooled_map=cells, **options)
        del seen["context"]
        if module not in self.names:
            self.names[module] = _name_of(module)
        step = self.steps[module] = self.steps.get(module, -1) + 1
        self.layers.append(LayerInspection({"layer": getattr(module, "layer_idx", len(self.layers)), "step": step,
                                            "module": self.names[module], **seen}))


def _name_of(module):
    """The module's name in the outermost model that was set to Regard, as in named_modules(), or its type's name."""
    names = (name for model in _models for name, one in model.named_modules() if one is module)
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
        The keys of chosen_weight, the same for every row.
    pooled_map : tuple (rows, columns), optional
        The size of the pooled map. The map is smaller if a call has fewer rows or keys.
    chosen_offset : int, optional
        The offset of the key of chosen_weight from the row's position. With −1, previous-token heads have a large
        chosen_weight; with 1 − period, induction heads do in a text that repeats. The weight of a key that does not
        exist is 0.

    Returns
    -------
    context manager
        The context manager yields a list with one LayerInspection object for each call. Its entries are layer; step,
        the number of earlier calls to the same module (0 for a single forward pass, the position in ``generate()``);
        module, the name of the module in the model, such as "model.layers.0.self_attn"; and the results of
        :func:`regard.attention_with_statistics` except the context. With pooled_map, they include key_mass and
        pooled_map, as returned by :func:`regard.attention_columns`.

    Warns
    -----
    UserWarning
        No attention call was recorded.

    Notes
    -----
    Memory use is O(L + S), not O(L · S). Inspections can be nested, in which case each one yields its own list.
    """
    options = {"top_keys": top_keys, "chosen_keys": None if chosen_keys is None else list(chosen_keys),
               "chosen_offset": chosen_offset}
    asked = _Inspection(options, pooled_map)
    token = _inspection.set((*_inspection.get(), asked))
    _inspections.append(asked)
    try:
        yield asked.layers
    finally:
        _inspections.remove(asked)
        _inspection.reset(token)
    if not asked.layers:
        warnings.warn("regard.transformers.inspection: no attention call was seen; expected a model that is set to "
                      'attn_implementation="regard" and runs within the context, in the same thread', stacklevel=3)


def attention_mask(**options: typing.Any) -> torch.Tensor | None:
    """Return the mask that a model passes to :func:`attention_forward`.

    For models that only pass the mask on, it is a boolean mask, as for "sdpa"; otherwise, it contains values that are
    added to the scores, as for "eager". A model that computes attention itself adds its mask to the scores with every
    implementation.

    Parameters
    ----------
    **options
        The arguments of a mask function of transformers.

    Returns
    -------
    Tensor or None
    """
    handed_on = _hands_mask_on.get(type(options.get("config")), False)
    return sdpa_mask(**options) if handed_on else eager_mask(**options)


@functools.cache
def _reason_not_to_serve(model):
    """The reason why models of this class cannot call Regard, from the modules of the class and its bases, or None."""
    modules = _modules(model)
    names = [value for module in modules for value in vars(module).values()]
    for value in names:
        if isinstance(value, dict) and "eager" in value and all(isinstance(one, type) for one in value.values()):
            return "selects its attention classes from its own table"
    if any(isinstance(value, transformers.AttentionInterface) for value in names):
        return None
    if any(value.__module__ == module.__name__ and issubclass(value, torch.nn.Module) and "Attention" in value.__name__
           for module in modules for value in vars(module).values() if isinstance(value, type)):
        return "computes its attention itself, without transformers' AttentionInterface"
    own = {module.__name__ for module in modules}
    if any(isinstance(value, type) and ".models." in value.__module__ and ".modeling_" in value.__module__
           and value.__module__ not in own for value in names):
        return None  # its parts are models of other modules, which are checked separately
    return "has no attention that calls transformers' AttentionInterface"


@functools.cache
def _only_hands_mask_on(model):
    """Whether the model treats all supported implementations alike and only attention functions read its mask."""
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
    bases = [base for base in model.__mro__ if issubclass(base, transformers.PreTrainedModel)]
    return [sys.modules[name] for name in dict.fromkeys(base.__module__ for base in bases[:-1]) if name in sys.modules]


def _reject_unserved(model):
    reason = _reason_not_to_serve(type(model))
    if reason is not None:
        raise ValueError(f"regard.transformers: {type(model).__name__} (model type {model.config.model_type}) {reason}; "
                         'expected a model that calls it. Set attn_implementation="eager" for this model')


def _watch_models():
    """Wrap the two methods by which transformers sets a model's implementation; neither consults the implementation."""
    base = transformers.PreTrainedModel
    check, change = base.get_correct_attn_implementation, base.set_attn_implementation

    @functools.wraps(check)
    def get_correct_attn_implementation(self, requested_attention, *args, **kwargs):
        if requested_attention in _names:
            _reject_unserved(self)
            kind = type(self.config)
            _hands_mask_on[kind] = _hands_mask_on.get(kind, True) and _only_hands_mask_on(type(self))
            _models.add(self)
        return check(self, requested_attention, *args, **kwargs)

    @functools.wraps(change)
    def set_attn_implementation(self, attn_implementation, *args, **kwargs):
        # transformers itself only logs a message if the implementation of a model cannot be set.
        if isinstance(attn_implementation, str) and attn_implementation in _names:
            for module in self.modules():
                if isinstance(module, base):
                    _reject_unserved(module)
        return change(self, attn_implementation, *args, **kwargs)

    base.get_correct_attn_implementation = get_correct_attn_implementation
    base.set_attn_implementation = set_attn_implementation


def register(name: str = "regard") -> str:
    """Register Regard as an attention implementation of transformers, with its masks.

    After this call, setting this implementation on a model that cannot call Regard raises ValueError with the model's
    name, both when the model is created and in ``set_attn_implementation``. For this purpose, two methods of
    ``transformers.PreTrainedModel`` are wrapped.

    Parameters
    ----------
    name : str, default 'regard'
        The value of ``attn_implementation``.

    Returns
    -------
    str
        The name.
    """
    if not _names:
        _watch_models()
    _names.add(name)
    transformers.AttentionInterface.register(name, attention_forward)
    transformers.AttentionMaskInterface.register(name, attention_mask)
    return name
