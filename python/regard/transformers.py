# SPDX-License-Identifier: Apache-2.0
"""Regard under transformers: an attention implementation that every model of the library can be set to.

    import regard.transformers
    regard.transformers.register()
    model = AutoModel.from_pretrained(name, attn_implementation="regard")
    model(**inputs, output_attentions=True).attentions       # the weights, on request, without "eager"

    with regard.transformers.inspection(top_keys=8) as layers:
        model(**inputs)                                      # and at lengths where the weights do not fit:
    layers[0]["entropy"], layers[0]["top_keys"]              # what each row looks at, in memory of L + S

The attention function and the mask are registered together: with the function alone transformers builds no mask.
Read next: torch.py.
"""

import collections.abc
import contextlib
import contextvars
import typing

import torch
import transformers
from transformers.masking_utils import sdpa_mask
from transformers.utils import output_capturing

from . import _regard
from .torch import attention

_inspection = contextvars.ContextVar("regard_inspection", default=None)
# Those of all threads. Dynamo does not read _inspection, but compiles anew when this is no longer empty.
_inspections: list["_Inspection"] = []


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
    """The attention function of transformers: (B, H, L, D) and the key heads as they are; returns (B, L, H, Dv), weights.

    The weights (B, H, L, S) are computed where output_attentions asks for them, before dropout, and are None otherwise. A mask of
    booleans or numbers is honoured as it is; without one, a module that is causal gets a causal mask if L > 1.
    """
    if cache is not None:
        raise ValueError("regard.transformers: a paged cache is given; expected the keys and values themselves "
                         "(generate without continuous batching)")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    options = {"causal": bool(causal) and query.shape[2] > 1 and attention_mask is None, "scale": scaling,
               "soft_cap": softcap, "dropout": dropout}
    if attention_mask is not None:
        attention_mask = attention_mask[..., :key.shape[2]]
        options["mask" if attention_mask.dtype == torch.bool else "bias"] = attention_mask
    if position_bias is not None:
        options["bias"] = position_bias if "bias" not in options else options["bias"] + position_bias
    if s_aux is not None:
        options["sinks"] = s_aux.to(torch.float64 if query.dtype == torch.float64 else torch.float32)
    context, row_max, row_sum = attention(query, key, value, **options)
    weights = None
    asked = _inspection.get() if _inspections else None
    wanted = _weights_are_wanted(kwargs)
    if asked is not None or wanted:
        told = _told(options)
        if wanted:
            weights = _regard.attention_weights(query.detach(), key.detach(), row_max=row_max.detach(),
                                                row_sum=row_sum.detach(), **told).to(query.dtype)
        if asked is not None:
            asked.see(module, query.detach(), key.detach(), value.detach(), told)
    return context.transpose(1, 2).contiguous(), weights


def _weights_are_wanted(kwargs):
    """Some models hand output_attentions down to here; for all, what transformers collects from layers is known to it."""
    collected = getattr(output_capturing, "_active_collector", None)
    names = (collected.get() if collected is not None else None) or ()
    return bool(kwargs.get("output_attentions")) or any(name.endswith("attentions") for name in names)


def _told(options):
    """The same options as the library takes them: detached, the causal mask's alignment named."""
    told = {name: option.detach() if isinstance(option, torch.Tensor) else option for name, option in options.items()}
    told["causal"] = "top_left" if told["causal"] else False
    del told["dropout"]  # it acts on the context alone
    return told


class _Inspection:
    def __init__(self, options, coarse_map):
        self.options, self.coarse_map, self.layers = options, coarse_map, []

    def see(self, module, query, key, value, options):
        seen = _regard.attention_with_statistics(query, key, value, **self.options, **options)
        if self.coarse_map:
            # A step of generation has one row, and a short text fewer than the map.
            cells = tuple(map(min, self.coarse_map, (query.shape[2], key.shape[2])))
            seen |= _regard.attention_columns(query, key, seen["row_max"], seen["row_sum"], coarse_map=cells, **options)
        del seen["context"]
        self.layers.append({"layer": getattr(module, "layer_idx", len(self.layers)), **seen})


@contextlib.contextmanager
def inspection(
    top_keys: int = 8,
    chosen_keys: collections.abc.Sequence[int] | None = None,
    coarse_map: tuple[int, int] | None = None,
) -> collections.abc.Iterator[list[dict[str, typing.Any]]]:
    """While it lasts, attention_forward tells of each of its calls, in their order, into the list that it gives.

    An entry is a dictionary: layer, and, as attention_with_statistics names them, entropy, largest_weight, mean_distance
    and more (B, H, L), top_keys and top_weights (B, H, L, top_keys); with coarse_map=(rows, columns) also column_mass
    (B, H, S) and coarse_map, of fewer cells where a call has fewer rows or keys, as attention_columns names
    them. Memory is of the order of L + S, never of L · S.
    """
    options = {"top_keys": top_keys} | ({} if chosen_keys is None else {"chosen_keys": list(chosen_keys)})
    asked = _Inspection(options, coarse_map)
    token = _inspection.set(asked)
    _inspections.append(asked)
    try:
        yield asked.layers
    finally:
        _inspections.remove(asked)
        _inspection.reset(token)


def register(name: str = "regard") -> str:
    """Makes attn_implementation=name known to transformers, with its masks; returns the name."""
    transformers.AttentionInterface.register(name, attention_forward)
    transformers.AttentionMaskInterface.register(name, sdpa_mask)
    return name
