# SPDX-License-Identifier: Apache-2.0
"""Regard and PyTorch train the same decoder on the same batches: time per step in turns, and the loss curve.

    text ─▶ batches of Regard ─┬─▶ Regard (training_runs.cpp)     f32, and products in bf16
                               ├─▶ PyTorch, eager                 fused AdamW
                               └─▶ PyTorch, torch.compile

    laptop   4 layers, 4 heads, width 128, 12 × 64 characters     the recipe of nanoGPT for laptops
    gpt2     12 layers, 12 heads, width 768, 50,257 tokens        4 × 64 and 1 × 1024 tokens

Called by run_training, which builds the library and installs PyTorch. Read next: run_training."""

import argparse
import ctypes
import json
import math
import pathlib
import statistics
import sys
import time

import numpy
import torch
from torch import nn
from torch.nn import functional

PRECISIONS = {"f32": 0, "bf16 products": 2}
PARTS = ("products", "attention", "norms", "activations", "rotation", "embedding", "loss", "residual")


class Shape(ctypes.Structure):  # TrainingShape
    _fields_ = [("text", ctypes.c_char_p), *((name, ctypes.c_int64) for name in (
        "vocabulary", "layers", "heads", "width", "biases", "batch", "length", "steps", "seed", "precision", "threads"))]


class Regard:
    """A training run of Regard."""

    def __init__(self, library, shape, precision, threads, steps, seed=0):
        self.library, self.shape = library, shape
        text = shape.get("text")
        given = Shape(text=text.encode() if text else None, vocabulary=shape.get("vocabulary", 0), steps=steps, seed=seed,
                      precision=PRECISIONS[precision], threads=threads,
                      **{name: shape[name] for name in ("layers", "heads", "width", "biases", "batch", "length")})
        self.run = library.training_open(ctypes.byref(given))
        if not self.run:
            raise RuntimeError(library.training_error().decode())
        self.vocabulary = library.training_vocabulary(self.run)

    def step(self):
        loss = self.library.training_step(self.run)
        if loss < 0:
            raise RuntimeError(self.library.training_error().decode())
        return loss

    def batch(self, step):
        """Tokens and targets of a step."""
        made = numpy.empty((2, self.shape["batch"], self.shape["length"]), numpy.int64)
        self.library.training_batch(self.run, step, made[0].ctypes, made[1].ctypes)
        return torch.from_numpy(made)

    def profile(self):
        seconds = (ctypes.c_double * len(PARTS))()
        self.library.training_profile(self.run, seconds)
        return dict(zip(PARTS, seconds))

    def close(self):
        self.library.training_close(self.run)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        width, biases = shape["width"], bool(shape["biases"])
        self.heads = shape["heads"]
        self.attention_norm = nn.LayerNorm(width, bias=biases)
        self.qkv = nn.Linear(width, 3 * width, bias=biases)
        self.output = nn.Linear(width, width, bias=biases)
        self.feed_forward_norm = nn.LayerNorm(width, bias=biases)
        self.up = nn.Linear(width, 4 * width, bias=biases)
        self.down = nn.Linear(4 * width, width, bias=biases)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
                             for part in self.qkv(self.attention_norm(x)).split(width, 2))
        context = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(context.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.feed_forward_norm(x))))


class Decoder(nn.Module):
    """The decoder of regard/model/decoder.h with its defaults: layer norm, learned positions, GELU, a tied table."""

    def __init__(self, shape, vocabulary):
        super().__init__()
        width, biases = shape["width"], bool(shape["biases"])
        self.table = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(shape["length"], width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape["layers"]))
        self.norm = nn.LayerNorm(width, bias=biases)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * shape["layers"]) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.table(tokens) + self.positions.weight[:tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.table.weight)
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


class Torch:
    """The same run with PyTorch."""

    def __init__(self, shape, batches, steps, seed=0, compiled=False):
        torch.manual_seed(seed)
        self.batches, self.steps, self.done = batches, steps, 0
        self.model = Decoder(shape, batches.vocabulary)
        self.loss = torch.compile(self.model) if compiled else self.model
        matrices = [parameter for parameter in self.model.parameters() if parameter.dim() == 2]
        others = [parameter for parameter in self.model.parameters() if parameter.dim() != 2]
        self.optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}],
                                           betas=(0.9, 0.99), fused=True)

    def rate(self, step):
        warmup = min(100, self.steps)
        if step < warmup:
            return 1e-3 * (step + 1) / (warmup + 1)
        share = (step - warmup) / max(1, self.steps - warmup)
        return 1e-4 + 9e-4 * 0.5 * (1 + math.cos(math.pi * share))

    def step(self):
        tokens, targets = self.batches.batch(self.done)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.done)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(tokens, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.done += 1
        return loss.item()


def library_of(path):
    library = ctypes.CDLL(str(path))
    library.training_open.restype = ctypes.c_void_p
    library.training_error.restype = ctypes.c_char_p
    library.training_step.restype = ctypes.c_double
    library.training_vocabulary.restype = ctypes.c_int64
    for name in ("close", "vocabulary", "step", "profile"):
        getattr(library, f"training_{name}").argtypes = [ctypes.c_void_p, *([ctypes.c_void_p] if name == "profile" else [])]
    library.training_batch.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    return library


def quartiles(values):
    values = sorted(values)
    return [values[len(values) // 4], statistics.median(values), values[3 * len(values) // 4]]


def times(library, name, shape, given):
    """Every contender does one step in turn, after 12 ms of idle time: threads of PyTorch spin for about 8 ms after a call.
    Ratios are taken within each round."""
    rounds = given.rounds if name == "laptop" else max(4, given.rounds // 8)
    steps = rounds + 2
    contenders = {"f32": Regard(library, shape, "f32", given.threads, steps),
                  "bf16 products": Regard(library, shape, "bf16 products", given.threads, steps)}
    batches = contenders["f32"]
    contenders["PyTorch, eager"] = Torch(shape, batches, steps)
    if name == "laptop":
        contenders["PyTorch, torch.compile"] = Torch(shape, batches, steps, compiled=True)
    for contender in contenders.values():
        contender.step()
        contender.step()
    before = batches.profile()
    milliseconds = {who: [] for who in contenders}
    order = list(contenders)
    for turn in range(rounds):
        for who in order[turn % len(order):] + order[:turn % len(order)]:
            time.sleep(0.012)
            begin = time.perf_counter()
            contenders[who].step()
            milliseconds[who].append(1e3 * (time.perf_counter() - begin))
    seconds = {part: value - before[part] for part, value in batches.profile().items()}
    whole = sum(milliseconds["f32"]) / 1e3
    for who in ("f32", "bf16 products"):
        contenders[who].close()
    return {"shape": name, "rounds": rounds, "milliseconds": {who: quartiles(all_) for who, all_ in milliseconds.items()},
            "speedup": {f"{ours} / {theirs}": quartiles([b / a for a, b in zip(milliseconds[ours], milliseconds[theirs])])
                        for ours in ("f32", "bf16 products") for theirs in contenders if theirs.startswith("PyTorch")},
            "parts": {part: value / whole for part, value in seconds.items()},
            "outside": 1 - (seconds["products"] + seconds["attention"]) / whole}


def smoothed(losses, steps):
    """Means over 20 parts of the run: single batches are noisy."""
    width = max(1, steps // 20)
    return [statistics.fmean(losses[begin:begin + width]) for begin in range(0, steps - width + 1, width)]


def band(library, shape, given):
    """The loss of Regard and of PyTorch with five seeds, on the batches of Regard's seed 0."""
    steps = given.steps
    runs = {name: Regard(library, shape, name, given.threads, steps) for name in PRECISIONS}
    ours = {name: smoothed([run.step() for _ in range(steps)], steps) for name, run in runs.items()}
    theirs = []
    for seed in range(5):
        print(f"PyTorch, seed {seed}", file=sys.stderr, flush=True)
        run = Torch(shape, runs["f32"], steps, seed)
        theirs.append(smoothed([run.step() for _ in range(steps)], steps))
    low, high = [min(part) for part in zip(*theirs)], [max(part) for part in zip(*theirs)]
    inside = {name: sum(a <= loss <= b for a, loss, b in zip(low, losses, high)) for name, losses in ours.items()}
    return {"steps": steps, "low": low, "high": high, **ours, "inside": inside}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library")
    parser.add_argument("text")
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--parts", default="laptop,gpt2,band")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    library = library_of(given.library)
    laptop = {"text": given.text, "layers": 4, "heads": 4, "width": 128, "biases": 0, "batch": 12, "length": 64}
    gpt2 = {"vocabulary": 50257, "layers": 12, "heads": 12, "width": 768, "biases": 1}
    shapes = {"laptop": [("laptop", laptop)],
              "gpt2": [("gpt2, 4 × 64 tokens", {**gpt2, "batch": 4, "length": 64}),
                       ("gpt2, 1 × 1024 tokens", {**gpt2, "batch": 1, "length": 1024})]}
    report = {"schema": "regard/1", "torch": torch.__version__, "threads": given.threads, "times": []}
    parts = given.parts.split(",")
    for part in parts:
        for name, shape in shapes.get(part, []):
            found = times(library, name, shape, given)
            report["times"].append(found)
            print(f"\n{name}, {found['rounds']} rounds")
            for who, (low, median, high) in found["milliseconds"].items():
                print(f"  {who:24} {median:10.2f} ms   ({low:.2f} – {high:.2f})")
            for who, (low, median, high) in found["speedup"].items():
                print(f"  {who:40} {median:5.2f} ×   ({low:.2f} – {high:.2f})")
            print(f"  outside products and attention, f32: {found['outside']:.1%}   " +
                  "  ".join(f"{part} {share:.1%}" for part, share in found["parts"].items()))
        if part == "band":
            report["band"] = found = band(library, laptop, given)
            print(f"\nloss over {found['steps']} steps: PyTorch, five seeds")
            for index, (low, high) in enumerate(zip(found["low"], found["high"])):
                print(f"  {low:.4f} – {high:.4f}   " + "   ".join(f"{name} {found[name][index]:.4f}" for name in PRECISIONS))
            print("  inside the band: " + ", ".join(f"{name} {count} of {len(found['low'])}"
                                                   for name, count in found["inside"].items()))
    given.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
