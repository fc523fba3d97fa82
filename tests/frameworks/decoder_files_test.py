# SPDX-License-Identifier: Apache-2.0
"""The folder that a training run writes opens in transformers and with the package safetensors."""

import json
import pathlib

import numpy
import safetensors
import safetensors.numpy
import torch
import transformers

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "decoder" / "tiny_llama"


def parameter(first, shape, is_gain):
    """The formula of tests/support/tiny_decoder.h."""
    number = numpy.arange(first, first + numpy.prod(shape))
    values = (7919 * number % 2003 - 1001) / 4096
    return (1 + values / 4 if is_gain else values).astype(numpy.float32).reshape(shape)


def test_safetensors_reads_every_parameter():
    with safetensors.safe_open(FOLDER / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt"}
    tensors = safetensors.numpy.load_file(FOLDER / "model.safetensors")
    header = (FOLDER / "model.safetensors").read_bytes()
    names = sorted(tensors, key=lambda name: header.index(f'"{name}"'.encode()))
    assert len(names) == 21 and names[0] == "model.embed_tokens.weight" and names[-1] == "lm_head.weight"
    first = 0
    for name in names:
        numpy.testing.assert_array_equal(tensors[name], parameter(first, tensors[name].shape, "norm" in name))
        first += tensors[name].size


def test_transformers_opens_the_folder_as_llama():
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, output_loading_info=True)
    assert isinstance(model, transformers.LlamaForCausalLM)
    assert not any(loading.values()), loading
    assert model.dtype == torch.float32
    config = model.config
    assert (config.vocab_size, config.hidden_size, config.num_key_value_heads, config.head_dim) == (13, 8, 1, 4)
    assert config.rope_parameters["rope_theta"] == 100 and config.rms_norm_eps == 1e-6
    assert config.bos_token_id is None and config.eos_token_id is None


def test_logits_are_those_in_the_folder():
    """trainer_test compares the same numbers with ours."""
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float64)
    expected = json.loads((FOLDER / "logits.json").read_text(encoding="utf-8"))
    with torch.no_grad():
        logits = model(torch.tensor([expected["tokens"]])).logits[0]
    numpy.testing.assert_allclose(logits.numpy(), expected["logits"], rtol=1e-6, atol=1e-7)
