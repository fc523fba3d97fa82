# SPDX-License-Identifier: Apache-2.0
"""Small decoders with random parameters, as `regard train --run` leaves them, and their forward pass in NumPy."""

import json
import struct

import numpy as np

CHARACTERS = "\n -abcdeé"
WORDS = "a b c d e f ^ =".split()
LAYERS, HEADS, KV_HEADS, WIDTH, SIZE, FEED_FORWARD = 2, 4, 2, 16, 4, 24
EPSILON = 1e-5


def vocabulary(kind):
    """vocabulary.json and the bytes of each token."""
    if kind == "byte_pairs":
        merges = [[0xc3, 0xa9], [97, 98], [32, 257]]  # é, ab, " ab"
        tokens = [bytes([byte]) for byte in range(256)]
        tokens += [tokens[left] + tokens[right] for left, right in merges[:2]]
        tokens.append(b" " + tokens[257])
        return {"schema": "regard/1", "kind": kind, "merges": merges}, tokens
    tokens = sorted(CHARACTERS) if kind == "characters" else WORDS
    return {"schema": "regard/1", "kind": kind, "tokens": tokens}, [token.encode() for token in tokens]


def config(size, positions, llama):
    fields = {"model_type": "llama" if llama else "regard_decoder", "vocab_size": size, "hidden_size": WIDTH,
              "intermediate_size": FEED_FORWARD, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
              "num_key_value_heads": KV_HEADS, "head_dim": SIZE, "max_position_embeddings": positions, "rope_theta": 100.0,
              "tie_word_embeddings": True}
    if llama:
        return {**fields, "rms_norm_eps": EPSILON}
    return {**fields, "layer_norm_eps": EPSILON, "norm": "layer", "positions": "learned", "feed_forward": "relu", "biases": True}


def parameters(size, positions, llama, seed=1):
    """Tensors by name, in float32."""
    random = np.random.default_rng(seed)
    shapes = {"model.embed_tokens.weight": (size, WIDTH), "model.norm.weight": (WIDTH,)}
    if not llama:
        shapes["model.embed_positions.weight"] = (positions, WIDTH)
        shapes["model.norm.bias"] = (WIDTH,)
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        matrices = {"self_attn.q_proj": (HEADS * SIZE, WIDTH), "self_attn.k_proj": (KV_HEADS * SIZE, WIDTH),
                    "self_attn.v_proj": (KV_HEADS * SIZE, WIDTH), "self_attn.o_proj": (WIDTH, HEADS * SIZE),
                    "mlp.up_proj": (FEED_FORWARD, WIDTH), "mlp.down_proj": (WIDTH, FEED_FORWARD)}
        if llama:
            matrices["mlp.gate_proj"] = (FEED_FORWARD, WIDTH)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            matrices[norm] = (WIDTH,)
        for part, shape in matrices.items():
            shapes[f"{name}{part}.weight"] = shape
            if not llama:
                shapes[f"{name}{part}.bias"] = shape[:1]
    return {name: (random.normal(0, 0.6, shape) + ("norm" in name and name.endswith("weight"))).astype(np.float32)
            for name, shape in shapes.items()}


def safetensors(tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + tensor.nbytes]}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def make_run(folder, kind="characters", positions=64, llama=False):
    """Writes a run with one checkpoint into a folder that exists, and returns the folder."""
    checkpoint = folder / "step-00000007"
    checkpoint.mkdir()
    document, tokens = vocabulary(kind)
    (checkpoint / "config.json").write_text(json.dumps(config(len(tokens), positions, llama)))
    (checkpoint / "vocabulary.json").write_text(json.dumps(document))
    (checkpoint / "model.safetensors").write_bytes(safetensors(parameters(len(tokens), positions, llama)))
    return folder


def _norm(x, tensors, name, llama):
    if llama:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON) * tensors[name + ".weight"]
    centered = x - x.mean(axis=-1, keepdims=True)
    return centered / np.sqrt((centered * centered).mean(axis=-1, keepdims=True) + EPSILON) * tensors[name + ".weight"] + tensors[name + ".bias"]


def _linear(x, tensors, name):
    return x @ tensors[name + ".weight"].T + tensors.get(name + ".bias", 0)


def _rotated(x):
    """(heads, L, D), rotated by position: pairs (d, d + D / 2)."""
    half = SIZE // 2
    angles = np.arange(x.shape[1])[:, None] * 100.0 ** (-np.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)], axis=-1)


def forward(ids, kind="characters", positions=64, llama=False):
    """The logits (L, V) and the weights of each layer (H, L, L), in double."""
    size = len(vocabulary(kind)[1])
    tensors = {name: tensor.astype(np.float64) for name, tensor in parameters(size, positions, llama).items()}
    x = tensors["model.embed_tokens.weight"][ids]
    if not llama:
        x = x + tensors["model.embed_positions.weight"][:len(ids)]
    later = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    all_weights = []
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        normed = _norm(x, tensors, name + "input_layernorm", llama)
        query, key, value = (_linear(normed, tensors, f"{name}self_attn.{part}_proj").reshape(len(ids), -1, SIZE).transpose(1, 0, 2)
                             for part in "qkv")
        if llama:
            query, key = _rotated(query), _rotated(key)
        key, value = (np.repeat(part, HEADS // KV_HEADS, axis=0) for part in (key, value))
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(SIZE) + later
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        all_weights.append(weights)
        context = (weights @ value).transpose(1, 0, 2).reshape(len(ids), -1)
        x = x + _linear(context, tensors, name + "self_attn.o_proj")
        normed = _norm(x, tensors, name + "post_attention_layernorm", llama)
        hidden = _linear(normed, tensors, name + "mlp.up_proj")
        if llama:
            gate = _linear(normed, tensors, name + "mlp.gate_proj")
            hidden = gate / (1 + np.exp(-gate)) * hidden
        else:
            hidden = np.maximum(hidden, 0)
        x = x + _linear(hidden, tensors, name + "mlp.down_proj")
    return _norm(x, tensors, "model.norm", llama) @ tensors["model.embed_tokens.weight"].T, np.stack(all_weights)
