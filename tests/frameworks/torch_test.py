# SPDX-License-Identifier: Apache-2.0
"""regard.torch.scaled_dot_product_attention against PyTorch's own, in float64, forward and backward."""

import contextlib
import random
import threading

import pytest
import regard.torch
import torch
import torch.nn.functional as functional

from leaks import leaked

ours = regard.torch.scaled_dot_product_attention
theirs = functional.scaled_dot_product_attention


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def bound(query, key, value, bias, visible, scale, unit):
    """The error bound of semantics.md, section 4, for equal numbers of query and KV heads."""
    query, key, value = query.double(), key.double(), value.double()
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * query @ key.mT + (0 if bias is None else bias.double())
    scores = scores if visible is None else scores.masked_fill(~visible, -torch.inf)
    weights = torch.softmax(scores, -1).nan_to_num(0)
    largest = (abs(scale) * query.abs() @ key.abs().mT + (0 if bias is None else bias.double().abs())).amax(-1, keepdim=True)
    return unit * (34 + 4 * query.shape[-1] ** 0.5 * largest) * (weights @ value.abs())


def random_call(draw):
    """Arguments of one call with random strides, masks and groups; small extents are the most frequent."""
    dtype = draw.choice([torch.float32, torch.float32, torch.float64])
    length = lambda: draw.choice([1, 1, 2, 3, 5, 16, 31, 64, 65, 130])  # noqa: E731
    batch, key_heads, groups = draw.choice([1, 2, 3]), draw.choice([1, 2]), draw.choice([1, 1, 2, 3])
    rows, keys, depth, columns = length(), length(), draw.choice([1, 3, 8, 16, 32, 33]), draw.choice([1, 8, 16, 20, 32])
    heads = key_heads * groups

    def tensor(num_heads, positions, width):
        seed = draw.randrange(1 << 30)
        layout = draw.choice(["plain", "plain", "heads last", "reversed", "every other"])
        if layout == "heads last":
            return normal(batch, positions, num_heads, width, dtype=dtype, seed=seed).transpose(1, 2)
        if layout == "reversed":
            return normal(batch, num_heads, width, positions, dtype=dtype, seed=seed).mT
        if layout == "every other":
            return normal(batch, num_heads, 2 * positions, 2 * width, dtype=dtype, seed=seed)[:, :, ::2, ::2]
        return normal(batch, num_heads, positions, width, dtype=dtype, seed=seed)

    query, key, value = tensor(heads, rows, depth), tensor(key_heads, keys, depth), tensor(key_heads, keys, columns)
    options = {"enable_gqa": True} if groups > 1 else {}
    kind = draw.choice(["none", "causal", "bool", "float", "empty rows"])
    if kind == "causal":
        options["is_causal"] = True
    elif kind != "none":
        shape = draw.choice([(rows, keys), (1, keys), (batch, 1, rows, keys), (1, heads, 1, keys), (batch, heads, rows, keys)])
        mask = normal(*shape, dtype=dtype, seed=draw.randrange(1 << 30))
        if kind != "float":
            mask = mask > (1.5 if kind == "empty rows" else -0.5)
        options["attn_mask"] = mask
        if draw.random() < 0.3:
            options["is_causal"] = True
    if draw.random() < 0.3:
        options["scale"] = draw.choice([0.0, 0.1, 1.0, -0.7])
    return query, key, value, options


def in_double(query, key, value, options):
    mask = options.get("attn_mask")
    wide = dict(options)
    if mask is not None and mask.dtype != torch.bool:
        mask = wide["attn_mask"] = mask.double()
    if options.get("is_causal") and (mask is not None or options.get("scale", 1) < 0):
        # PyTorch accepts a mask with is_causal only in some layouts, and gives NaN for is_causal with a negative scale.
        del wide["is_causal"]
        before = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
        mask = before if mask is None else mask & before if mask.dtype == torch.bool else mask.masked_fill(~before, -torch.inf)
        wide["attn_mask"] = mask
    return theirs(query.double(), key.double(), value.double(), **wide)


@pytest.mark.parametrize("shard", range(10))
def test_random_calls_match_pytorch(shard):
    draw = random.Random(shard)
    for call in range(300):
        query, key, value, options = random_call(draw)
        context = ours(query, key, value, **options)
        expected = in_double(query, key, value, options)
        groups = query.shape[1] // key.shape[1]
        mask = options.get("attn_mask")
        visible = mask if mask is not None and mask.dtype == torch.bool else None
        bias = mask if visible is None else None
        if options.get("is_causal"):
            before = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
            visible = before if visible is None else visible & before
        unit = 2.0 ** (-53 if query.dtype == torch.float64 else -24)
        tolerance = bound(query, key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1),
                          bias, visible, options.get("scale"), unit)
        assert context.dtype == query.dtype and context.shape == expected.shape
        # Twice the bound, as PyTorch's float64 result may have the same error.
        assert ((context.double() - expected).abs() <= 2 * tolerance).all(), (shard, call)


@pytest.mark.parametrize("shapes", [
    [(5, 8), (7, 8), (7, 3)],
    [(4, 5, 8), (4, 7, 8), (4, 7, 3)],
    [(2, 3, 4, 5, 8), (2, 3, 4, 7, 8), (2, 3, 4, 7, 3)],
    [(1, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 3)],
    [(2, 4, 5, 8), (2, 1, 7, 8), (2, 1, 7, 3)],
    [(2, 1, 5, 8), (1, 4, 7, 8), (2, 4, 7, 3)],
    [(2, 1, 4, 5, 8), (1, 3, 4, 7, 8), (4, 7, 3)],
])
def test_axes_broadcast_as_in_pytorch(shapes):
    query, key, value = (normal(*shape, dtype=torch.float64, seed=seed) for seed, shape in enumerate(shapes))
    torch.testing.assert_close(ours(query, key, value), theirs(query, key, value), rtol=1e-12, atol=1e-12)
    mask = normal(5, 7, seed=9) > 0
    expected = theirs(query, key, value, attn_mask=mask)
    torch.testing.assert_close(ours(query, key, value, attn_mask=mask), expected, rtol=1e-12, atol=1e-12)


def test_masks_broadcast_from_any_number_of_axes():
    query, key, value = normal(2, 3, 4, 5, 8), normal(2, 3, 4, 7, 8), normal(2, 3, 4, 7, 3)
    for shape in [(7,), (1, 7), (4, 5, 7), (3, 1, 5, 7), (2, 3, 4, 5, 7)]:
        mask = normal(*shape, seed=4)
        expected = theirs(query, key, value, attn_mask=mask if mask.dim() > 1 else mask.expand(5, 7))
        torch.testing.assert_close(ours(query, key, value, attn_mask=mask), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 2e-5), (torch.bfloat16, 4e-2)])
@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("rows, keys", [(33, 33), (7, 40), (40, 7)])
@pytest.mark.parametrize("key_heads", [2, 4])
def test_a_mask_and_is_causal_are_combined_as_pytorch_does(dtype, tolerance, numbers, rows, keys, key_heads):
    tensors = [normal(2, 4, rows, 16, dtype=dtype, seed=0), normal(2, key_heads, keys, 16, dtype=dtype, seed=1),
               normal(2, key_heads, keys, 16, dtype=dtype, seed=2)]
    mask = normal(rows, keys, dtype=dtype, seed=3)
    mask = mask if numbers else mask > -0.5
    options = {"is_causal": True, "enable_gqa": key_heads == 2}
    found = [tensor.clone().requires_grad_() for tensor in tensors]
    wide = [tensor.double().requires_grad_() for tensor in tensors]
    context = ours(*found, attn_mask=mask, **options)
    expected = theirs(*wide, attn_mask=mask.double() if numbers else mask, **options)
    assert (context.double() - expected).abs().max() <= tolerance * expected.abs().max()
    assert torch.equal(ours(*tensors, attn_mask=mask, **options), context.detach())
    context.square().sum().backward()
    expected.square().sum().backward()
    for mine, yours in zip(found, wide, strict=True):
        assert (mine.grad.double() - yours.grad).abs().max() <= tolerance * yours.grad.abs().max()
    # Rows that are fully masked by the two together, and inputs with fewer axes.
    alone = torch.eye(rows, keys, dtype=torch.bool).roll(1, 1)
    assert (ours(*tensors, attn_mask=alone, **options)[:, :, 0] == 0).all()
    torch.testing.assert_close(ours(*[tensor[0] for tensor in tensors], attn_mask=mask, **options), context[0].detach(),
                               rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("call", [ours, theirs])
def test_a_mask_with_is_causal_and_dropout_is_rejected_as_by_pytorch(call):
    query, mask = normal(1, 2, 5, 8), torch.ones(5, 5, dtype=torch.bool)
    with pytest.raises((ValueError, RuntimeError), match="attn_mask .* is_causal"):
        call(query, query, query, attn_mask=mask, is_causal=True, dropout_p=0.3)


def test_tensors_that_require_gradients_are_referred_to_regard_torch():
    query = normal(1, 2, 5, 8).requires_grad_()
    with pytest.raises(BufferError, match="attention_forward: query: .*; the functions of regard.torch compute gradients"):
        regard.attention(query, query, query)


def test_fully_masked_rows_and_their_gradients_are_zero():
    query, key, value = (normal(1, 2, 6, 8, seed=seed).requires_grad_() for seed in range(3))
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    mask[:, 4] = False
    context = ours(query, key, value, attn_mask=mask)
    context.square().sum().backward()
    assert (context[:, :, 2] == 0).all() and (query.grad[:, :, 2] == 0).all()
    assert (key.grad[:, :, 4] == 0).all() and (value.grad[:, :, 4] == 0).all()
    assert (query.grad[:, :, 1] != 0).any()


@pytest.mark.parametrize("options", [
    {}, {"is_causal": True}, {"scale": 0.3}, {"enable_gqa": True}, {"attn_mask": normal(4, 6, seed=5) > 0},
    {"attn_mask": normal(2, 1, 4, 6, seed=6, dtype=torch.float64)},
    {"attn_mask": normal(2, 1, 4, 6, seed=6, dtype=torch.float64), "is_causal": True},
], ids=lambda options: "-".join(options) or "plain")
def test_gradcheck(options):
    key_heads = 1 if options.get("enable_gqa") else 2
    tensors = [normal(2, 2, 4, 5, dtype=torch.float64, seed=0), normal(2, key_heads, 6, 5, dtype=torch.float64, seed=1),
               normal(2, key_heads, 6, 3, dtype=torch.float64, seed=2)]
    options = dict(options)
    mask = options.pop("attn_mask", None)
    if mask is not None and mask.dtype == torch.float64:
        tensors.append(mask)
        mask = None
    tensors = [tensor.requires_grad_() for tensor in tensors]
    assert torch.autograd.gradcheck(
        lambda query, key, value, bias=None: ours(query, key, value, attn_mask=mask if bias is None else bias, **options),
        tensors)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 2e-5), (torch.bfloat16, 3e-2),
                                         (torch.float16, 4e-3)])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_match_pytorch(dtype, tolerance, causal):
    tensors = [normal(2, 4, 70, 32, dtype=dtype, seed=0), normal(2, 2, 70, 32, dtype=dtype, seed=1),
               normal(2, 2, 70, 24, dtype=dtype, seed=2)]
    upstream = normal(2, 4, 70, 24, dtype=dtype, seed=3)
    found = [tensor.clone().requires_grad_() for tensor in tensors]
    wide = [tensor.double().requires_grad_() for tensor in tensors]
    (ours(*found, is_causal=causal, enable_gqa=True) * upstream).sum().backward()
    (theirs(*wide, is_causal=causal, enable_gqa=True) * upstream.double()).sum().backward()
    for mine, yours in zip(found, wide, strict=True):
        assert mine.grad.dtype == dtype
        assert (mine.grad.double() - yours.grad).abs().max() <= tolerance * yours.grad.abs().max()


def test_gradients_of_gradients_are_rejected():
    query = normal(1, 1, 3, 4).requires_grad_()
    [gradient] = torch.autograd.grad(ours(query, query, query).sum(), query, create_graph=True)
    with pytest.raises(RuntimeError, match="attention_backward"):
        gradient.sum().backward()


@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(grad):
    tensors = [normal(2, 4, 5, 8).requires_grad_(grad), normal(2, 2, 7, 8).requires_grad_(grad),
               normal(2, 2, 7, 3).requires_grad_(grad)]
    operator = torch.ops.regard.attention.default
    torch.library.opcheck(operator, (*tensors, None, None, None, None, 0.0, False, None, None))
    torch.library.opcheck(operator, (*tensors, normal(5, 7)[None, None] > 0, normal(1, 4, 5, 7).requires_grad_(grad),
                                     normal(4).requires_grad_(grad), torch.tensor(5), 0.3, True, 0.2, 3.0))


def test_dropout_drops_weights_and_keeps_their_mean():
    query, key = normal(2, 4, 300, 16, seed=0), normal(2, 4, 200, 16, seed=1)
    value = torch.eye(200).expand(2, 4, 200, 200)  # the context is the weights that are left
    weights = ours(query, key, value)
    torch.manual_seed(3)
    left, other = (ours(query, key, value, dropout_p=0.25) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(ours(query, key, value, dropout_p=0.25), left) and not torch.equal(other, left)
    kept = left != 0
    torch.testing.assert_close(left[kept], weights[kept] / 0.75, rtol=1e-5, atol=0)
    share = kept.double().mean()
    assert abs(share - 0.75) < 5 * (0.75 * 0.25 / kept.numel()) ** 0.5
    assert (ours(query, key, value, dropout_p=1.0) == 0).all()


def test_dropped_weights_have_no_gradient():
    seed = torch.tensor(11)
    tensors = [normal(1, 2, 5, 4, dtype=torch.float64, seed=number).requires_grad_() for number in range(3)]
    assert torch.autograd.gradcheck(
        lambda *given: torch.ops.regard.attention(*given, None, None, None, seed, 0.4, False, None, None)[0], tensors)


class DispatchedOperators(torch.utils._python_dispatch.TorchDispatchMode):
    """Records the names of Regard's operators that PyTorch dispatches."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "regard":
            self.names.append(operator.__name__)
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("options", [
    {}, {"is_causal": True, "scale": 0.3}, {"attn_mask": normal(33, 33, seed=5) > 0}, {"attn_mask": normal(33, 33, seed=6)},
    {"dropout_p": 0.4},
], ids=lambda options: "-".join(options) or "plain")
def test_eager_calls_and_operators_give_the_same_bits(options):
    tensors = [normal(2, 3, 33, 16, seed=seed).requires_grad_() for seed in range(3)]
    if options.get("attn_mask") is not None and options["attn_mask"].dtype == torch.float32:
        tensors.append(options["attn_mask"].clone().requires_grad_())
        options = options | {"attn_mask": tensors[3]}
    found, dispatched = [], DispatchedOperators()
    for mode in (contextlib.nullcontext(), dispatched):
        torch.manual_seed(0)
        with mode:
            context = ours(*tensors[:3], **options)
            found.append((context, *torch.autograd.grad(context.square().sum(), tensors)))
            with torch.no_grad():
                torch.manual_seed(0)
                found[-1] += (ours(*tensors[:3], **options),)
    assert dispatched.names == ["attention.default", "attention_backward.default", "attention.default"]
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert found[0][0].requires_grad and not found[0][-1].requires_grad


def test_negative_views_parameters_and_inference_tensors_are_read_correctly():
    # Its memory holds the negated elements.
    negative = torch.view_as_complex(normal(1, 2, 5, 4, 2)).conj().imag
    assert negative.is_neg()
    assert torch.equal(ours(negative, negative, negative), ours(*[negative.resolve_neg()] * 3))
    parameter = torch.nn.Parameter(normal(1, 2, 5, 4))
    assert torch.equal(ours(parameter, parameter, parameter), ours(*[parameter.detach()] * 3))
    with torch.inference_mode():
        kept = normal(1, 2, 5, 4)
        assert torch.equal(ours(kept, kept, kept), ours(*[parameter.detach()] * 3))


def test_vmap_loops_over_entries_and_tangents_are_rejected():
    query = normal(3, 1, 2, 5, 4)
    assert torch.equal(torch.vmap(lambda one: ours(one, one, one))(query), torch.stack([ours(x, x, x) for x in query]))
    for learns in (False, True):
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(query[0].clone().requires_grad_(learns), query[0])
            with pytest.raises(ValueError, match="a tensor has a tangent for forward-mode derivatives"):
                ours(dual, dual, dual)
            assert torch.equal(ours(query[0], query[0], query[0]), ours(query, query, query)[0])


@pytest.mark.parametrize("transform", [
    lambda call, x: torch.func.jvp(call, (x,), (x,)),
    lambda call, x: torch.func.jvp(torch.vmap(call), (x,), (x,)),
    lambda call, x: torch.vmap(lambda one: torch.func.jvp(call, (one,), (one,)))(x),
    lambda call, x: torch.func.jacfwd(call)(x),
    lambda call, x: torch.func.grad(lambda one: call(one).sum())(x),
    lambda call, x: torch.vmap(torch.func.grad(lambda one: call(one).sum()))(x),
    lambda call, x: torch.func.vjp(call, x),
    lambda call, x: torch.func.hessian(lambda one: call(one).sum())(x),
])
def test_derivatives_of_torch_func_are_rejected_by_name(transform):
    other = normal(2, 5, 4)
    with pytest.raises(ValueError, match="a transform of torch.func .* expected torch.autograd.grad"):
        transform(lambda one: ours(one, other, other), normal(1, 2, 5, 4))


def test_key_and_value_may_have_different_numbers_of_heads():
    query, key, value = (normal(2, heads, 5, 4).double().requires_grad_() for heads in (6, 2, 3))
    expected = theirs(query, key, value, enable_gqa=True)
    context = ours(query, key, value, enable_gqa=True)
    torch.testing.assert_close(context, expected, rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(context.sum(), (query, key, value))
    torch.testing.assert_close(gradients, torch.autograd.grad(expected.sum(), (query, key, value)), rtol=1e-12, atol=1e-12)


def test_saved_tensor_hooks_apply_and_modified_tensors_are_rejected():
    query = normal(1, 2, 5, 4).requires_grad_()
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: packed.append(tensor) or tensor, lambda tensor: tensor):
        ours(query, query, query).sum().backward()
    assert len(packed) == 7 and query.grad.shape == query.shape
    doubled = query * 2
    context = ours(doubled, doubled, doubled)
    doubled.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        context.sum().backward()


def test_a_mask_modified_without_autograd_is_rejected():
    query, mask = normal(1, 2, 5, 4).requires_grad_(), torch.ones(5, 5, dtype=torch.bool)
    context = ours(query, query, query, attn_mask=mask)
    mask.data[0, 3] = False
    with pytest.raises(ValueError, match="attention_backward: mask differs from the forward call"):
        context.sum().backward()


@pytest.mark.parametrize("grad", [False, True])
def test_calls_leak_no_references_and_no_memory(grad):
    tensors = [normal(1, 1, 1, 8, seed=seed).requires_grad_(grad) for seed in range(3)]
    objects = [*tensors, torch.Tensor, torch.float32, None, torch.empty]

    def call():
        context = ours(*tensors, is_causal=True)
        if grad:
            torch.autograd.grad(context, tensors, context.detach())

    references, blocks = leaked(call, 20_000, objects)
    # The number of blocks that PyTorch uses internally varies by some hundred.
    assert not any(references) and blocks < 2000


def test_it_is_compiled_as_one_operator():
    def block(query, key, value):
        return torch.tanh(ours(query * 2, key, value, is_causal=True)).sum()

    tensors = [normal(1, 2, 33, 16, seed=seed).requires_grad_() for seed in range(3)]
    torch.compiler.reset()
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    gradients = []
    for call in (block, compiled):
        loss = call(*tensors)
        gradients.append((loss, *torch.autograd.grad(loss, tensors)))
    for plain, traced in zip(*gradients, strict=True):
        assert torch.equal(plain, traced)


def test_patched_replaces_and_restores_the_function():
    layer = torch.nn.MultiheadAttention(16, 2, batch_first=True, dtype=torch.float64)
    words = normal(3, 5, 16, dtype=torch.float64).requires_grad_()
    before, _ = layer(words, words, words, need_weights=False)
    calls = []
    original = regard.torch.scaled_dot_product_attention
    regard.torch.scaled_dot_product_attention = lambda *a, **k: calls.append(1) or original(*a, **k)
    try:
        with regard.torch.patched():
            assert functional.scaled_dot_product_attention is not theirs
            with regard.torch.patched():
                after, _ = layer(words, words, words, need_weights=False)
            assert functional.scaled_dot_product_attention is not theirs
    finally:
        regard.torch.scaled_dot_product_attention = original
    assert functional.scaled_dot_product_attention is theirs and calls == [1]
    torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-12)
    with pytest.raises(ZeroDivisionError), regard.torch.patched():
        raise ZeroDivisionError
    assert functional.scaled_dot_product_attention is theirs


def test_patched_leaves_other_devices_to_pytorch():
    with regard.torch.patched():
        on_meta = functional.scaled_dot_product_attention(*[torch.empty(1, 2, 3, 4, device="meta")] * 3)
    assert on_meta.device.type == "meta" and on_meta.shape == (1, 2, 3, 4)


def test_autocast_converts_inputs_as_for_pytorch():
    query = normal(1, 2, 9, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        context, expected = ours(query, query, query), theirs(query, query, query)
    assert context.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(context, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("change, message", [
    ({"dropout_p": 1.5}, "dropout_p is 1.5"),
    ({"query": normal(1, 2, 3, 4).int()}, "query has type torch.int32"),
    ({"query": normal(1, 2, 3, 4).double()}, "types torch.float64, torch.float32, torch.float32"),
    ({"query": torch.empty(1, 2, 3, 4, device="meta")}, "query is on meta"),
    ({"query": normal(4)}, "query has 1 axes"),
    ({"query": normal(1, 2, 3, 4).to_sparse()}, "query is torch.sparse_coo"),
    ({"query": normal(1, 3, 3, 4)}, "query has 3 heads and key and value 2"),
    ({"query": normal(1, 3, 3, 4), "enable_gqa": True}, "3"),
    ({"query": normal(1, 2, 3, 5)}, "head size 4"),
    ({"attn_mask": normal(3, 3), "is_causal": True, "dropout_p": 0.5}, "both given, with dropout_p 0.5"),
    ({"attn_mask": normal(3, 3).int()}, "attn_mask has type torch.int32"),
    ({"attn_mask": normal(3, 4)}, "4"),
    ({"scale": float("nan")}, "scale"),
    ({"query": normal(2, 2, 3, 4), "key": normal(3, 2, 3, 4)}, r"\(2, 2, 3, 4\), \(3, 2, 3, 4\) and .* that broadcast"),
    ({"query": normal(1, 6, 3, 4), "key": normal(1, 3, 3, 4)}, "key has 3 heads and value 2; .* enable_gqa"),
    ({"query": normal(1, 4, 3, 4), "key": normal(1, 3, 3, 4), "enable_gqa": True}, "divisors of query's 4"),
])
def test_invalid_arguments_are_rejected_by_name(change, message):
    arguments = {"query": normal(1, 2, 3, 4), "key": normal(1, 2, 3, 4), "value": normal(1, 2, 3, 4)} | change
    with pytest.raises(ValueError, match=message):
        ours(**arguments)


@pytest.mark.parametrize("name, what", [("query", None), ("key", [[1.0]]), ("value", normal(1, 2, 3, 4).numpy()),
                                        ("attn_mask", True)])
def test_arguments_that_are_not_tensors_are_rejected_by_name(name, what):
    arguments = {"query": normal(1, 2, 3, 4), "key": normal(1, 2, 3, 4), "value": normal(1, 2, 3, 4)} | {name: what}
    with pytest.raises(TypeError, match=f"{name} is of type {type(what).__name__}; expected a PyTorch tensor"):
        ours(**arguments)


@pytest.mark.parametrize("change, message", [
    (lambda tensor: tensor.to("meta"), "meta"),
    (lambda tensor: tensor.requires_grad_(), "detach"),
    (lambda tensor: tensor.to_sparse(), "strided"),
])
def test_the_library_names_the_tensor_that_pytorch_does_not_export(change, message):
    tensor = normal(1, 2, 3, 4)
    with pytest.raises(BufferError, match=f"^attention_forward: key: .*{message}"):
        regard.attention(tensor, change(normal(1, 2, 3, 4)), tensor)


@pytest.mark.parametrize("of", [torch.Tensor, type("Tensor", (torch.Tensor,), {})], ids=["tensor", "subclass"])
@pytest.mark.parametrize("name", ["query", "key", "value", "bias", "out", "row_sum"])
def test_the_library_rejects_tensors_with_the_negative_bit(name, of):
    arguments = {"query": normal(1, 2, 3, 3), "key": normal(1, 2, 3, 3), "value": normal(1, 2, 3, 3)}
    shape = (1, 2, 3) if name == "row_sum" else (1, 2, 3, 3)
    negative = torch.view_as_complex(normal(*shape, 2)).conj().imag
    assert negative.is_neg()
    before = negative.clone()
    with pytest.raises(ValueError, match=rf"^attention_forward: {name} has PyTorch's negative bit.*\.resolve_neg\(\)"):
        regard.attention(**arguments | {name: negative.as_subclass(of)})
    assert torch.equal(negative, before)
    regard.attention(**arguments | {name: negative.resolve_neg().as_subclass(of)})


def test_the_library_rejects_complex_tensors():
    query, numbers = normal(1, 2, 3, 4), torch.view_as_complex(normal(1, 2, 3, 4, 2))
    for key in (numbers, numbers.conj(), numbers.conj().as_subclass(type("Tensor", (torch.Tensor,), {}))):
        with pytest.raises((ValueError, BufferError), match="^attention_forward: key.*(complex64|conjugate bit)"):
            regard.attention(query, key, query)


def test_concurrent_calls_have_the_same_bits():
    tensors = [normal(1, 4, 200, 32, seed=seed) for seed in range(3)]
    expected, found = ours(*tensors, is_causal=True), []
    threads = [threading.Thread(target=lambda: found.append(ours(*tensors, is_causal=True))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(torch.equal(one, expected) for one in found)
