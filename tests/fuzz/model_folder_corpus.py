# SPDX-License-Identifier: Apache-2.0
"""Writes the corpus of model_folder_fuzz: a BERT with one layer of width 4, decoders of the same size, and folders that each
differ from one of them in one respect.
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


DECODER = {"model_type": "regard_decoder", "vocab_size": 3, "hidden_size": WIDTH, "intermediate_size": FORWARD, "num_hidden_layers": 1,
           "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 2, "max_position_embeddings": 4, "layer_norm_eps": 0.001,
           "rope_theta": 100, "tie_word_embeddings": True, "norm": "layer", "positions": "learned", "feed_forward": "gelu",
           "biases": False}
LLAMA = {name: DECODER[name] for name in list(DECODER)[:9]} | {"model_type": "llama", "rms_norm_eps": 0.001, "rope_theta": 100}
CHARACTERS = {"schema": "regard/1", "kind": "characters", "tokens": [" ", "a", "b"]}


def decoder_shapes(config):
    llama = config["model_type"] == "llama"
    name = "model.layers.0."
    all_shapes = {"model.embed_tokens.weight": (3, WIDTH)}
    if not llama:
        all_shapes["model.embed_positions.weight"] = (4, WIDTH)
    all_shapes |= {f"{name}input_layernorm.weight": (WIDTH,), f"{name}self_attn.q_proj.weight": (4, WIDTH),
                   f"{name}self_attn.k_proj.weight": (2, WIDTH), f"{name}self_attn.v_proj.weight": (2, WIDTH),
                   f"{name}self_attn.o_proj.weight": (WIDTH, 4), f"{name}post_attention_layernorm.weight": (WIDTH,)}
    if llama:
        all_shapes[f"{name}mlp.gate_proj.weight"] = (FORWARD, WIDTH)
    all_shapes |= {f"{name}mlp.up_proj.weight": (FORWARD, WIDTH), f"{name}mlp.down_proj.weight": (WIDTH, FORWARD),
                   "model.norm.weight": (WIDTH,)}
    if llama:
        all_shapes["lm_head.weight"] = (3, WIDTH)
    return all_shapes


def decoder(config=DECODER, tokens=CHARACTERS, **options):
    kind = LLAMA if config["model_type"] == "llama" else DECODER
    return folder(config, tokens, tensors(of=decoder_shapes(kind), **options))


def tensors(types=("F32", 4), number=struct.pack("<f", 0.25), change=lambda header: None, of=None):
    name, num_bytes = types
    header, data = {}, b""
    for tensor, shape in (of or shapes()).items():
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
        "decoder": decoder(), "decoder_llama": decoder(LLAMA), "decoder_large": decoder(number=b"\xff\xff\x7f\x7f"),
        "decoder_bf16": decoder(types=("BF16", 2), number=b"\x80\x3e"),
        "decoder_tokens": decoder(tokens=CHARACTERS | {"tokens": [" ", "a"]}),
        "decoder_pairs": decoder(tokens={"schema": "regard/1", "kind": "byte_pairs", "merges": []}),
        "decoder_layers": decoder(DECODER | {"num_hidden_layers": 4096}), "decoder_positions": decoder(LLAMA | {"max_position_embeddings": 2**24}),
        "decoder_width": decoder(LLAMA | {"hidden_size": 2**24}),
    }
    for name, content in cases.items():
        (pathlib.Path(to) / name).write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1])
