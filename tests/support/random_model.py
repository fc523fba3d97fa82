# SPDX-License-Identifier: Apache-2.0
"""Folders of BERT encoders of any size with random parameters, and a tokenizer.json with the vocabulary of BERT."""

import json
import pathlib

import numpy as np

from sentence_model import tokenizer

VOCABULARY = (pathlib.Path(__file__).resolve().parents[1] / "tokenizer/vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]


def bert_tokenizer():
    """The contents of a tokenizer.json with the 30,522 tokens of BERT."""
    contents = tokenizer()
    contents["model"]["vocab"] = {token: number for number, token in enumerate(VOCABULARY)}
    for added in contents["added_tokens"]:
        added["id"] = VOCABULARY.index(added["content"])
    for token, special in contents["post_processor"]["special_tokens"].items():
        special["ids"] = [VOCABULARY.index(token)]
    return contents


def tensors(layers, width, intermediate, positions, tokens):
    """Names and shapes of the parameters."""
    for name, shape in (("word_embeddings.weight", (tokens, width)), ("position_embeddings.weight", (positions, width)),
                        ("token_type_embeddings.weight", (2, width)), ("LayerNorm.weight", (width,)), ("LayerNorm.bias", (width,))):
        yield f"embeddings.{name}", shape
    for layer in range(layers):
        for part, rows, columns in (("attention.self.query", width, width), ("attention.self.key", width, width),
                                    ("attention.self.value", width, width), ("attention.output.dense", width, width),
                                    ("intermediate.dense", intermediate, width), ("output.dense", width, intermediate)):
            yield f"encoder.layer.{layer}.{part}.weight", (rows, columns)
            yield f"encoder.layer.{layer}.{part}.bias", (rows,)
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            yield f"encoder.layer.{layer}.{part}.weight", (width,)
            yield f"encoder.layer.{layer}.{part}.bias", (width,)


def make_random_model(folder, contents, layers, heads, width, intermediate, positions):
    """Writes config.json, tokenizer.json with these contents, and model.safetensors into a folder; returns the folder."""
    tokens = len(contents["model"]["vocab"])
    (folder / "tokenizer.json").write_text(json.dumps(contents), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "hidden_size": width,
        "intermediate_size": intermediate, "layer_norm_eps": 1e-12, "max_position_embeddings": positions,
        "num_attention_heads": heads, "num_hidden_layers": layers, "type_vocab_size": 2, "vocab_size": tokens}))
    random, header, data = np.random.default_rng(28), {}, b""
    for name, shape in tensors(layers, width, intermediate, positions, tokens):
        values = (random.standard_normal(shape) * 0.1 + name.endswith("LayerNorm.weight")).astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder
