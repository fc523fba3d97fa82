# SPDX-License-Identifier: Apache-2.0
"""Every architecture that docs/guide/transformers.md lists, in a small configuration: it matches eager or is rejected.

A supported model calls Regard, has eager's outputs with and without padding, and is causal where the page says so.
"""

import pathlib
import re
import warnings

import pytest
import regard.transformers
import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

NAME = regard.transformers.register()
PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/guide/transformers.md").read_text()
LENGTH, CHANGED = 13, 8

# Attributes of all configurations; each configuration takes those that it has.
SMALL = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "n_embd": 32, "n_layer": 2, "n_head": 4,
    "n_positions": 128, "n_ctx": 128, "d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 2, "num_heads": 4, "n_layers": 2,
    "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "attention_heads": 4, "ffn_dim": 48, "num_decoder_layers": 2, "dim": 32,
    "hidden_dim": 48, "embedding_size": 32, "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2,
    "n_routed_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "sliding_window": 6,
    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "max_seq_len": 128, "ffn_hidden_size": 48, "n_inner": 48, "emb_dim": 32,
    "local_attention": 8, "global_attn_every_n_layers": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 0, "dropout": 0.0, "attention_dropout": 0.0, "max_target_positions": 128,
    "max_source_positions": 128, "word_embed_proj_dim": 32, "initializer_range": 0.2, "init_std": 0.2, "num_hidden_groups": 1,
    "num_encoder_layers": 2, "encoder_num_layers": 2, "decoder_num_layers": 2, "index_n_heads": 2, "index_head_dim": 8,
    "index_topk": 4, "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 1, "ssm_state_size": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "vocab_size_per_layer_input": 97, "hidden_size_per_layer_input": 8,
}
FROM_NONE = {"pad_token_id", "head_dim", "intermediate_size"}


def listed(heading):
    """The model types in the last paragraph of that section of the page."""
    section = re.search(rf"^### {heading}\n\n(.*?)\n(?=^#|\Z)", PAGE, re.S | re.M)[1]
    return re.split(r"\s+·?\s*", section.strip().split("\n\n")[-1])


def small(configuration):
    return {name: value for name, value in SMALL.items()
            if hasattr(configuration, name) and (getattr(configuration, name) is not None or name in FROM_NONE)}


def configured(model_type):
    kind = CONFIG_MAPPING[model_type]
    base = kind()
    parts = {name: small(getattr(base, name)) for name in kind.sub_configs if getattr(base, name, None) is not None}
    return kind(**small(base) | parts)


def class_of(model_type, *mappings):
    for mapping in mappings:
        if model_type in mapping:
            name = mapping[model_type]
            return getattr(transformers, name if isinstance(name, str) else name[0])
    raise AssertionError(f"{model_type} is in none of the mappings")


DECODERS = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
ENCODER_DECODERS = modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
ENCODERS = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
ALL = modeling_auto.MODEL_MAPPING_NAMES


def create(kind, configuration, name):
    torch.manual_seed(0)
    return kind._from_config(configuration, attn_implementation=name).eval()


def output(model, **inputs):
    with torch.no_grad():
        given = model(**inputs, **({} if model.config.is_encoder_decoder else {"use_cache": False}))
    return given.logits if "logits" in given else given[0]


def compare(model_type, kind, causal):
    ids = torch.randint(3, 90, (2, LENGTH), generator=torch.Generator().manual_seed(3))
    mask = torch.ones_like(ids)
    mask[1, LENGTH - 4:] = 0
    later = ids.clone()
    later[:, CHANGED] = (ids[:, CHANGED] + 7) % 80 + 5
    outputs = {}
    for name in ("eager", NAME):
        model = create(kind, configured(model_type), name)
        decoded = {"decoder_input_ids": ids[:, :9]} if model.config.is_encoder_decoder else {}
        changed = {"input_ids": ids, "decoder_input_ids": later[:, :9]} if decoded else {"input_ids": later}
        with warnings.catch_warnings():
            warnings.simplefilter("error" if name == NAME else "ignore", UserWarning)  # an inspection without an entry warns
            if name == NAME:
                with regard.transformers.inspection(top_keys=1) as calls:
                    padded = output(model, input_ids=ids, attention_mask=mask, **decoded)
                assert calls
            else:
                padded = output(model, input_ids=ids, attention_mask=mask, **decoded)
        whole = output(model, input_ids=ids, **decoded)
        if causal:
            difference = (output(model, **changed) - whole).abs()
            assert difference[:, :CHANGED].max() <= 1e-5 and difference[:, CHANGED:].max() > 1e-3, name
        outputs[name] = padded if decoded else padded[mask.bool()], whole
    for eager, ours in zip(outputs["eager"], outputs[NAME], strict=True):
        assert (ours - eager).abs().max() <= 1e-5


@pytest.mark.parametrize("model_type", listed("Decoders"))
def test_decoders_match_eager_and_are_causal(model_type):
    compare(model_type, class_of(model_type, DECODERS), True)


@pytest.mark.parametrize("model_type", listed("Encoder-decoders"))
def test_encoder_decoders_match_eager_and_are_causal(model_type):
    compare(model_type, class_of(model_type, ENCODER_DECODERS), True)


@pytest.mark.parametrize("model_type", listed("Encoders"))
def test_encoders_match_eager(model_type):
    compare(model_type, class_of(model_type, ENCODERS, ALL), False)


@pytest.mark.parametrize("model_type", listed("When the implementation is set"))
def test_models_that_cannot_call_regard_are_rejected_at_construction(model_type):
    kind = class_of(model_type, DECODERS, ENCODER_DECODERS, ENCODERS, ALL)
    with pytest.raises(ValueError, match=rf"regard.transformers: {kind.__name__} .*{model_type}\).* expected a model that calls "
                                         r"transformers' AttentionInterface. Set attn_implementation=\"eager\""):
        kind._from_config(CONFIG_MAPPING[model_type](), attn_implementation=NAME)


@pytest.mark.parametrize("model_type", listed("At the first forward pass"))
def test_models_that_pass_unsupported_tensors_are_rejected_at_the_first_call(model_type):
    model = create(class_of(model_type, DECODERS), configured(model_type), NAME)
    with pytest.raises(ValueError, match=r"regard.transformers: \w+ passes the tensor (indices|sinks), which Regard does not support"):
        output(model, input_ids=torch.arange(3, 16)[None])


@pytest.mark.parametrize("model_type", ["bloom", "deberta", "mpnet", "gptj"])
def test_models_that_cannot_call_regard_reject_set_attn_implementation(model_type):
    model = create(class_of(model_type, ALL), configured(model_type), "eager")
    with pytest.raises(ValueError, match=type(model).__name__):
        model.set_attn_implementation(NAME)
    assert model.config._attn_implementation == "eager"


def test_the_page_lists_over_a_hundred_architectures_without_duplicates():
    headings = ["Decoders", "Encoder-decoders", "Encoders"]
    assert all(len(set(listed(heading))) == len(listed(heading)) for heading in headings)
    assert len(listed("Decoders")) >= 80 and len(listed("Encoder-decoders")) >= 15 and len(listed("Encoders")) >= 20
    assert not set().union(*map(listed, headings)) & {*listed("When the implementation is set"), *listed("At the first forward pass")}


def test_every_argument_of_eager_attention_is_taken_or_rejected():
    """Checks all architectures, including those that are not built here."""
    known = {"module", "query", "key", "value", "query_states", "key_states", "value_states", "attention_mask", "scaling",
             "dropout", "softcap", "position_bias", "kwargs",
             "sliding_window",  # contained in the mask
             "sinks"}           # a tensor, rejected
    folder = pathlib.Path(transformers.__file__).parent / "models"
    found = 0
    for path in folder.glob("*/modeling_*.py"):
        for arguments in re.findall(r"^def \w*eager_attention_forward\((.*?)\)(?: ->.*)?:$", path.read_text(), re.S | re.M):
            names = set(re.findall(r"^\s*\*{0,2}(\w+)", arguments, re.M)) or set(re.findall(r"(\w+):", arguments))
            assert names <= known, (path.name, names - known)
            found += 1
    assert found >= 300
