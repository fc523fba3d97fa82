# SPDX-License-Identifier: Apache-2.0
"""Training in PyTorch with its own attention and with that of regard.torch, eagerly and under torch.compile, in turns.

    bench/torch_training.py [--rounds 60]     about two minutes

The decoder of training.py with 4 layers, width 128, 4 heads, batch 8 and S = 256; each contender does one step in turn, after 12 ms of
idle time, and ratios are taken within each round. Regard is that of build/bench/package (bench/run_benchmarks --prepare builds it).

Read next: training.py, docs/guide/pytorch.md."""

import argparse
import pathlib
import statistics
import sys
import time

import torch
from training import Decoder

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "build" / "bench" / "package"))
import regard.torch  # noqa: E402  (of this tree)

SHAPE = {"layers": 4, "width": 128, "heads": 4, "biases": 0, "length": 256}
BATCH, VOCABULARY, IDLE, WARM_UP = 8, 65, 0.012, 3


class Run:
    """A model with one kind of attention, and its optimizer."""

    def __init__(self, compiled):
        torch.manual_seed(0)
        model = Decoder(SHAPE, VOCABULARY)
        self.loss = torch.compile(model) if compiled else model
        self.optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        self.tokens = torch.randint(VOCABULARY, (BATCH, SHAPE["length"] + 1))

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.tokens[:, :-1], self.tokens[:, 1:])
        loss.backward()
        self.optimizer.step()
        return loss.item()


def milliseconds(run):
    time.sleep(IDLE)
    begin = time.perf_counter()
    run.step()
    return 1e3 * (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(regard.default_num_threads())
    for name, compiled in (("eager", False), ("torch.compile", True)):
        stock, ours = Run(compiled), Run(compiled)
        for _ in range(WARM_UP):
            first = stock.step()
            with regard.torch.patched():
                second = ours.step()
            assert abs(first - second) < 1e-4, f"losses {first} and {second}; expected equal ones"
        times = {"PyTorch's attention": [], "regard.torch": []}
        for turn in range(rounds):
            for who in sorted(times, reverse=turn % 2 == 1):
                if who == "regard.torch":
                    with regard.torch.patched():
                        times[who].append(milliseconds(ours))
                else:
                    times[who].append(milliseconds(stock))
        ratios = sorted(stock / ours for stock, ours in zip(*times.values(), strict=True))
        for who, all_ in times.items():
            print(f"{name:<14} {who:<20} {statistics.median(all_):7.2f} ms")
        print(f"{name:<14} {'ratio':<20} {statistics.median(ratios):7.2f} ×    ({ratios[rounds // 4]:.2f} – {ratios[3 * rounds // 4]:.2f})")


main()
