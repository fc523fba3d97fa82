# SPDX-License-Identifier: Apache-2.0
"""Finds the moments at which heads formed, from the JSON of a watched run alone, and compares them with the file's own.

    events.py RECORD.json …       prints each event; exit status 1 if a file states others
    events.py --compare PROGRAM   the same for the JSON that PROGRAM (imitated_training) writes, for many runs
    events.py --train PROGRAM SEED …   trains the induction task with each seed, and with random labels: PROGRAM is regard

The rule is that of find_events() in regard/train/record.h, written independently. The scores are computed here from the
weights, if the probe is a single sequence, whose weights the file holds.
"""

import json
import os
import subprocess
import sys

THRESHOLD = 0.5
PREVIOUS_BEGUN = 0.2
SHARE_OF_FALL = 0.1
LEAST_FALL = 0.05


def scores_from_weights(weights, wanted):
    """(pattern, previous): mean weights on the wanted keys and on the previous token."""
    triangle = [i * (i + 1) // 2 for i in range(len(wanted) + 1)]
    rows = [[float(x) for x in weights[begin:end]] for begin, end in zip(triangle, triangle[1:])]
    on_wanted = [sum(rows[i][key] for key in keys) for i, keys in enumerate(wanted) if keys]
    on_previous = [row[-2] for row in rows[1:]]
    return [sum(x) / len(x) if x else float("nan") for x in (on_wanted, on_previous)]


def series(record, head, single):
    """For each kind the score of a head at each snapshot."""
    wanted = record["probe"]["wanted"]
    found = {"pattern": [], "previous_token": []}
    for snapshot in record["snapshots"]:
        data = snapshot["heads"][head]
        stated = (float(data.get("pattern", "nan")), float(data["previous"]))
        scores = scores_from_weights(data["weights"], wanted) if single else stated
        for own, other in zip(scores, stated):
            assert own != own or abs(own - other) < 1e-6, f"head {head}: score {other}; the weights give {own}"
        found["pattern"].append(scores[0])
        found["previous_token"].append(scores[1])
    return found


def first_formation(scores, begun, formed, losses, ablations):
    """The index of the snapshot at which a head formed, or None: the beginning of the stretch above `begun` in which
    the score exceeds `formed` at two snapshots in a row, and the loss without the head agrees at the second or later.
    """
    falls = [losses[0] - loss for loss in losses]
    for index in range(1, len(scores)):
        if not (falls[index] > LEAST_FALL * losses[0] and ablations[index] > SHARE_OF_FALL * falls[index]):
            continue
        if not (scores[index] > formed and scores[index - 1] > formed):
            continue
        while index > 0 and scores[index - 1] > begun:
            index -= 1
        return index
    return None


def events_of(record):
    """(snapshot, kind, layer, head), in order."""
    wanted = record["probe"]["wanted"]
    named = [(i, keys) for i, keys in enumerate(wanted) if keys]
    kinds = ["previous_token", "pattern"] if named else ["previous_token"]
    if named and all(keys == [i - 1] for i, keys in named):
        kinds = ["pattern"]
    losses = [float(snapshot["loss"]) for snapshot in record["snapshots"]]
    single = record["probe"]["num_sequences"] == 1
    uniform = {name: float(value) for name, value in record["probe"]["uniform"].items()}
    events = []
    for head in range(record["layers"] * record["heads"]):
        ablations = [float(snapshot["heads"][head]["ablation"]) for snapshot in record["snapshots"]]
        scores = series(record, head, single)
        for kind in kinds:
            if kind == "pattern":
                begun = formed = max(THRESHOLD, record["formed_score"])
            else:
                begun, formed = min(THRESHOLD, max(PREVIOUS_BEGUN, 2 * uniform["previous"])), THRESHOLD
            snapshot = first_formation(scores[kind], begun, formed, losses, ablations)
            if snapshot is not None:
                events.append((snapshot, kind, head // record["heads"], head % record["heads"]))
    return sorted(events, key=lambda event: (event[0], event[1] == "pattern", *event[2:]))


def stated_events(record):
    for event in record["events"]:
        assert record["snapshots"][event["snapshot"]]["step"] == event["step"]
    return [(event["snapshot"], event["kind"], event["layer"], event["head"]) for event in record["events"]]


def agree(own, stated):
    """The same heads; each snapshot at most one away."""
    own, stated = (sorted(events, key=lambda event: event[1:]) for events in (own, stated))
    return [event[1:] for event in own] == [event[1:] for event in stated] and \
        all(abs(a[0] - b[0]) <= 1 for a, b in zip(own, stated))


def compare(program):
    """Runs of many seeds and sizes, with and without a pattern; none may have events if the labels are random."""
    few = os.environ.get("REGARD_SMALL_TESTS") == "1"  # as in support/test_size.h
    runs = [[f"seed={seed}"] for seed in range(5 if few else 20)]
    runs += [[f"seed={seed}", "layers=3", "heads=4", "half=6", "steps=90"] for seed in range(2 if few else 5)]
    runs += [[f"seed={seed}", "learns=0"] for seed in range(5 if few else 20)]
    runs += [["pattern=0"], ["steps=1"], ["steps=0"]]
    for run in runs:
        record = json.loads(subprocess.run([program, "json", *run], check=True, capture_output=True).stdout)
        own, stated = events_of(record), stated_events(record)
        assert own == stated, (run, own, stated)
        learns = "learns=0" not in run and "steps=1" not in run and "steps=0" not in run
        assert bool(own) == learns, (run, own)
        if learns and "pattern=0" not in run:
            assert [event[1] for event in own] == ["previous_token", "pattern"], (run, own)


def trained(program, *options):
    command = [program, "train", "--task", "induction", "--json", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def train(program, seeds):
    """The events of trained models are found, with random labels there are none, and with 19 of 20 seeds the head for the
    previous token is named before that for the pattern, whose score then exceeds 0.9."""
    as_expected = 0
    for seed in seeds:
        record = trained(program, "--seed", seed)
        stated = stated_events(record)
        assert agree(events_of(record), stated), (seed, events_of(record), stated)
        best = max(float(head["pattern"]) for head in record["snapshots"][-1]["heads"])
        in_order = [kind for _, kind, _, _ in stated][:1] == ["previous_token"] and stated[-1][1] == "pattern"
        as_expected += in_order and best > 0.9
        print(f"seed {seed}: score {best:.3f}, {'; '.join(event['text'] for event in record['events'])}")
        random = trained(program, "--seed", seed, "--shuffled")
        assert not events_of(random) and not stated_events(random), (seed, events_of(random), stated_events(random))
    assert as_expected >= 0.95 * len(seeds), f"{as_expected} of {len(seeds)} seeds"


def main():
    if sys.argv[1:2] == ["--train"]:
        train(sys.argv[2], sys.argv[3:])
        return 0
    if sys.argv[1:2] == ["--compare"]:
        compare(sys.argv[2])
        return 0
    status = 0
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            record = json.load(file)
        own = events_of(record)
        for snapshot, kind, layer, head in own:
            print(f"{name}: step {record['snapshots'][snapshot]['step']}: layer {layer}, head {head}: {kind}")
        if not agree(own, stated_events(record)):
            print(f"{name}: states {stated_events(record)}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
