# SPDX-License-Identifier: Apache-2.0
"""Writes the corpus of model_folder_fuzz: a BERT with one layer of width 4, and folders that each differ in one respect.
    python3 tests/fuzz/model_folder_corpus.py tests/fuzz/corpus/model_folder
Read next: model_folder_fuzz.cpp."""

import json
import pathlib
import struct
import sys

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b"]
WIDTH, FORWARD, POSITIONS = 4, 6, 8
CONFIG = {"model_type": "bert", "hidden_act": "gelu", "hidden_size": WIDTH, "intermediate_size": FORWARD,
          "num_attention_heads": 2, "num_hidden_layers": 1, "layer_norm_eps": 0.001, "max_position_embeddings": POSITIONS,
          "type_vocab_size": 2, "vocab_size": len(VOCABULARY)}


def tokenizer():
    added = [{"id": number, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for number, token in enumerate(VOCABULARY[:5])]
    template = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    special = {token: {"id": token, "ids": [VOCABULARY.index(token)], "tokens": [token]} for token in ("[CLS]", "[SEP]")}
    return {"version": "1.0", "added_tokens": added,
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                           "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": template, "special_tokens": special},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100, "vocab": {token: i for i, token in enumerate(VOCABULARY)}}}


def shapes():
    layer = {"attention.self.query": (WIDTH, WIDTH), "attention.self.key": (WIDTH, WIDTH),
             "attention.self.value": (WIDTH, WIDTH), "attention.output.dense": (WIDTH, WIDTH),
             "intermediate.dense": (FORWARD, WIDTH), "output.dense": (WIDTH, FORWARD)}
    all_shapes = {"embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
                  "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
                  "embeddings.token_type_embeddings.weight": (2, WIDTH)}
    for name in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        all_shapes |= {f"{name}.LayerNorm.weight": (WIDTH,), f"{name}.LayerNorm.bias": (WIDTH,)}
    for name, shape in layer.items():
        all_shapes |= {f"encoder.layer.0.{name}.weight": shape, f"encoder.layer.0.{name}.bias": shape[:1]}
    return all_shapes


def tensors(types=("F32", 4), number=struct.pack("<f", 0.25), change=lambda header: None):
    name, num_bytes = types
    header, data = {}, b""
    for tensor, shape in shapes().items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[tensor] = {"dtype": name, "shape": list(shape), "data_offsets": [len(data), len(data) + count * num_bytes]}
        data += number * count
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def folder(config=CONFIG, tokens=None, weights=None):
    texts = [json.dumps(part, separators=(",", ":")).encode() for part in (config, tokens or tokenizer())]
    return struct.pack("<II", *map(len, texts)) + b"".join(texts) + (weights if weights is not None else tensors())


def wide(header):
    header["encoder.layer.0.output.dense.weight"]["shape"] = [FORWARD, WIDTH]


def main(to):
    vocabulary = tokenizer()
    vocabulary["model"]["vocab"]["c"] = 8
    cases = {
        "whole": folder(), "f16": folder(weights=tensors(("F16", 2), struct.pack("<e", 0.25))),
        "bf16": folder(weights=tensors(("BF16", 2), b"\x80\x3e")),
        "f64": folder(weights=tensors(("F64", 8), struct.pack("<d", 0.25))),
        "nan": folder(weights=tensors(number=b"\x00\x00\xc0\x7f")), "large": folder(weights=tensors(number=b"\xff\xff\x7f\x7f")),
        "no_weights": folder(weights=b""), "transposed": folder(weights=tensors(change=wide)),
        "heads": folder(CONFIG | {"num_attention_heads": 3}), "layers": folder(CONFIG | {"num_hidden_layers": 4096}),
        "width": folder(CONFIG | {"hidden_size": 2**20}), "tokens": folder(tokens=vocabulary),
        "positions": folder(CONFIG | {"max_position_embeddings": 2}), "names": folder(CONFIG | {"model_type": "\x1b\u202e" + 60 * "é"}),
        "empty": b"", "cut": folder()[:-1],
    }
    for name, content in cases.items():
        (pathlib.Path(to) / name).write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1])
