# SPDX-License-Identifier: Apache-2.0
"""Writes the reference files of the encoder in this folder with transformers (eager attention, float32).

    make_reference.py tiny            tiny/: a BERT with random parameters;  tiny_reference.safetensors: its results
    make_reference.py model FOLDER    minilm_reference.safetensors: all-MiniLM-L6-v2 on sentences.txt
    make_reference.py vectors FOLDER  minilm_vectors.npy: vectors (100, E) of hundred_sentences.txt by the same model

Needs torch 2.13.0, transformers 5.23.0, safetensors and numpy. Tensors by name, N the case or the line of
sentences.txt, K a layer:

    tiny      N.ids N.hidden_keys N.states (layers + 1, L, E); for short texts N.weights (layers, H, L, L) and N.K.NAME,
              (L, E), with NAME one of query key value attention_output attention_normed feed_forward
    minilm    N.ids N.pooled (E) N.norms (layers + 1, L); N.states (layers + 1, 64) and N.weights (layers, H, 16): samples
              at positions drawn by `places`, as in ../support/encoder_reference.h; all of sentence 0 is in all_states,
              all_weights

states 0 is the input of layer 0.
"""

import pathlib
import sys

import numpy
import torch
import transformers
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent
NUM_STATES = 64
NUM_WEIGHTS = 16
KEPT = {"attention.self.query": "query", "attention.self.key": "key", "attention.self.value": "value",
        "attention.output.dense": "attention_output", "attention.output": "attention_normed",
        "output.dense": "feed_forward"}


def run(model, ids, hidden_keys=()):
    """States (layers + 1, L, E), weights (layers, H, L, L), and {(layer, name): (L, E)}."""
    inside = {}
    hooks = []
    for number, layer in enumerate(model.encoder.layer):
        for path, name in KEPT.items():
            def keep(_module, _inputs, output, place=(number, name)):
                inside[place] = output[0].detach().numpy().copy()
            hooks.append(layer.get_submodule(path).register_forward_hook(keep))
    mask = torch.ones(1, len(ids), dtype=torch.long)
    mask[0, list(hidden_keys)] = 0
    with torch.no_grad():
        result = model(input_ids=torch.tensor([ids]), attention_mask=mask, output_hidden_states=True,
                       output_attentions=True)
    for hook in hooks:
        hook.remove()
    states = numpy.stack([state[0].numpy() for state in result.hidden_states])
    weights = numpy.stack([attention[0].numpy() for attention in result.attentions])
    return states, weights, inside


def tiny():
    torch.manual_seed(20240917)
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=40, num_hidden_layers=3, num_attention_heads=4, intermediate_size=72,
        max_position_embeddings=40, type_vocab_size=2, layer_norm_eps=1e-3, hidden_act="gelu",
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager")
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    with torch.no_grad():  # as far from the initial values of training as trained parameters are
        for name, parameter in model.named_parameters():
            spread = 0.3 if parameter.dim() == 2 else 0.2
            parameter.normal_(1.0 if name.endswith("LayerNorm.weight") else 0.0, spread)
    folder = HERE / "tiny"
    folder.mkdir(exist_ok=True)
    config.architectures = ["BertModel"]
    config.to_json_file(folder / "config.json", use_diff=False)
    save_file({name: p.detach().numpy() for name, p in model.named_parameters()}, folder / "model.safetensors",
              metadata={"format": "pt"})

    numbers = numpy.random.default_rng(7)
    cases = [(9, ()), (17, (0, 5, 16)), (1, ()), (40, ()), (3, (1, 2))]
    tensors = {}
    for case, (length, hidden_keys) in enumerate(cases):
        ids = numbers.integers(0, config.vocab_size, length).tolist()
        states, weights, inside = run(model, ids, hidden_keys)
        tensors[f"{case}.ids"] = numpy.array(ids, numpy.int32)
        tensors[f"{case}.hidden_keys"] = numpy.array(hidden_keys, numpy.int32)
        tensors[f"{case}.states"] = states
        if length < 20:
            tensors[f"{case}.weights"] = weights
            tensors.update({f"{case}.{layer}.{name}": array for (layer, name), array in inside.items()})
    save_file(tensors, HERE / "tiny_reference.safetensors")


class SplitMix64:
    """Steele, Lea and Flood 2014; `Random` of ../support/arrays.h."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return (z ^ (z >> 31)) % bound


def places(random, count, rows, columns):
    return [(random.below(rows), random.below(columns)) for _ in range(count)]


def model(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoder = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    tensors = {}
    for number, sentence in enumerate((HERE / "sentences.txt").read_text(encoding="utf-8").splitlines()):
        ids = tokenizer(sentence)["input_ids"]
        states, weights, _ = run(encoder, ids)
        random = SplitMix64(number)
        tensors[f"{number}.ids"] = numpy.array(ids, numpy.int32)
        # The mean over all tokens, as torch sums float32.
        tensors[f"{number}.pooled"] = torch.from_numpy(states[-1]).mean(0).numpy()
        tensors[f"{number}.norms"] = numpy.linalg.norm(states.astype(numpy.float64), axis=2).astype(numpy.float32)
        tensors[f"{number}.states"] = numpy.array(
            [[state[at] for at in places(random, NUM_STATES, *state.shape)] for state in states], numpy.float32)
        tensors[f"{number}.weights"] = numpy.array(
            [[[head[at] for at in places(random, NUM_WEIGHTS, *head.shape)] for head in layer] for layer in weights],
            numpy.float32)
        if number == 0:
            tensors["all_states"] = states
            tensors["all_weights"] = weights
    save_file(tensors, HERE / "minilm_reference.safetensors")


def vectors(folder):
    """Mean over all tokens, scaled to norm 1, as in the model card."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    encoder = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    rows = []
    for sentence in (HERE / "hundred_sentences.txt").read_text(encoding="utf-8").splitlines():
        with torch.no_grad():
            states = encoder(**tokenizer(sentence, return_tensors="pt")).last_hidden_state
        rows.append(torch.nn.functional.normalize(states.mean(1))[0].numpy())
    numpy.save(HERE / "minilm_vectors.npy", numpy.stack(rows))


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1:] == ["tiny"]:
        tiny()
    elif len(sys.argv) == 3 and sys.argv[1] == "model":
        model(sys.argv[2])
    elif len(sys.argv) == 3 and sys.argv[1] == "vectors":
        vectors(sys.argv[2])
    else:
        sys.exit(__doc__)
