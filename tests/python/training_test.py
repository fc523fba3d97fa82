# SPDX-License-Identifier: Apache-2.0
"""regard.train: the log, the snapshots and the model of small runs, the bits of the program, interrupts, and rejections."""

import html
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import warnings

import numpy as np
import pytest
import regard

SMALL = dict(layers=1, heads=2, width=16, batch=8)
TEXT = "she sells sea shells by the sea shore. " * 30


@pytest.fixture(name="training", scope="module")
def fixture_training():
    """A run that learns: about two seconds."""
    return regard.train("reverse", steps=120)


def parameters_equal(first, second):
    return first.keys() == second.keys() and all(np.array_equal(array, second[name]) for name, array in first.items())


# ---- the record

def test_the_log_has_a_row_for_each_step(training):
    log = training.log
    assert set(map(len, log.values())) == {120} and np.array_equal(log.step, np.arange(120))
    assert log.loss[0] > 2 > log.loss[-1] and (log.gradient_norm > 0).all() and (log.learning_rate > 0).all()
    measured = log.step[~np.isnan(log.held_out_loss)]
    assert np.array_equal(measured, training.snapshots.step[:-1])
    assert training.log is log and training.done and training.seconds > 0


def test_snapshots_have_the_weights_and_the_scores_of_every_head(training):
    found, probe = training.snapshots, training.probe
    count, layers, heads, length, _ = found.weights.shape
    assert found.step[0] == 0 and found.step[-1] == 120 and count == len(found.step) <= 60 and length == len(probe.tokens)
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-5)
    assert not np.triu(found.weights, 1).any()
    for name in ("pattern", "previous", "sink", "entropy", "ablation"):
        assert found[name].shape == (count, layers, heads)
    best = np.unravel_index(found.pattern[-1].argmax(), (layers, heads))
    wanted = [row for row, keys in enumerate(probe.wanted) if keys]
    first = np.mean([found.weights[-1][best][row, probe.wanted[row]].sum() for row in wanted])
    assert found.pattern[-1][best] > 0.5 and abs(first - found.pattern[-1][best]) < 0.3   # the score is a mean over sequences
    assert found.ablation[-1][best] == found.ablation[-1].max() > 0.5
    assert found.grad_weights.shape == found.grad_scores.shape == (count, layers, heads, probe.query + 1)
    row, dp = found.weights[-1, 0, 0, probe.query, :probe.query + 1], found.grad_weights[-1, 0, 0]
    np.testing.assert_allclose(found.grad_scores[-1, 0, 0], row * (dp - (row * dp).sum()), rtol=1e-3, atol=1e-6)


def test_events_are_sentences_with_values(training):
    event = training.events[0]
    assert str(event) == event.text and f"step {event.step}: layer {event.layer}, head {event.head} attends to " in event.text
    assert event.kind == "pattern" and event.score > 0.5 > event.uniform and event.step in training.snapshots.step
    ablated = training.evaluate(ablate=(event.layer, event.head))
    assert ablated.loss > training.held_out.loss + 0.5 and ablated.correct_targets < training.held_out.correct_targets
    assert training.held_out == training.evaluate(512) and training.evaluate(8, split="train").num_sequences == 8


def test_a_run_prints_its_story_and_a_notebook_shows_its_page(training):
    assert repr(training) == training.text() and len(repr(training).splitlines()) <= 30 and "loss" in repr(training)
    assert training.findings[0] in " ".join(repr(training).split())
    shown = training._repr_mimebundle_()
    assert shown["text/plain"] == repr(training) and "<script" not in shown["text/html"]
    [page] = re.findall('<iframe title="Regard[^"]*" srcdoc="([^"]*)" sandbox="allow-scripts"', shown["text/html"])
    assert html.unescape(page) == training.html() and training.html().startswith("<!")
    assert training.svg().startswith("<svg") and json.loads(training.json())["schema"] == "regard/1"
    assert regard.show(training.snapshots.weights[-1], training.probe.tokens)


def test_a_run_has_the_bits_of_the_program(tmp_path):
    done = subprocess.run([os.environ["REGARD_PROGRAM"], "train", "--task", "copy", "--steps", "6", "--layers", "1", "--heads", "2",
                           "--width", "16", "--batch", "8", "--seed", "3", "--json", "--run", tmp_path / "run"],
                          capture_output=True, text=True, check=True, timeout=60)
    program, training = json.loads(done.stdout), regard.train("copy", steps=6, seed=3, **SMALL)
    record = json.loads(training.json())
    assert record["snapshots"] == program["snapshots"] and record["settings"] == program["settings"]
    for name in ("step", "loss", "gradient_norm", "learning_rate"):
        assert program["curve"][name] == training.log[name].tolist(), name
    assert record["command"] == "regard.train('copy', steps=6, batch=8, seed=3, layers=1, heads=2, width=16)"
    saved = regard.load_model(tmp_path / "run")
    assert saved.width == 16 and saved.num_heads == 2


def test_threads_micro_batches_and_recomputation_do_not_change_bits():
    expected = regard.train("copy", steps=4, **SMALL)
    for options in (dict(num_threads=1), dict(micro_batch=3), dict(recompute=True), dict(progress=True)):
        found = regard.train("copy", steps=4, **SMALL, **options)
        assert np.array_equal(found.log.loss, expected.log.loss), options
        assert parameters_equal(found.model.parameters, expected.model.parameters), options


def test_progress_is_printed_to_standard_error(capsys):
    regard.train("copy", steps=3, **SMALL, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and re.search(r"\rtrain  step 3 of 3  loss \d\.\d{3}  [\d,]+ tokens/s *\n$", err)


def test_every_setting_of_the_program_is_a_keyword():
    options = dict(micro_batch=2, seed=2**63, kv_heads=1, head_size=6, feed_forward_width=20, feed_forward="swiglu", norm="rms",
                   positions="rotary", optimizer="muon", learning_rate=0.01, muon_learning_rate=0.05, min_learning_rate=0.001,
                   warmup=2, schedule="linear", weight_decay=0.2, beta1=0.8, beta2=0.9, clip=2.0, dropout=0.1, precision="float64",
                   untied=True, biases=True, recompute=True)
    training = regard.train("copy", steps=3, **SMALL, **options)
    assert all(array.dtype == np.float64 for array in training.model.parameters.values())
    stated = " ".join(training.settings)
    for value in ("SwiGLU feed-forward of width 20", "RMS norm", "rotary", "Muon, learning rate 0.05", "AdamW, 0.01", "linear", "to 0.001",
                  "2 steps of warm-up", "weight decay 0.2", "at most 2", "dropout 0.1", f"seed {2**63}, float64"):
        assert value in stated, value
    program = subprocess.run([os.environ["REGARD_PROGRAM"], "train", "--help"], capture_output=True, text=True, check=True).stdout
    names = {name.replace("-", "_") for name in re.findall(r"^ +--([a-z0-9-]+)", program.split("SETTINGS (default")[1].split("EXAMPLES")[0], re.MULTILINE)}
    assert len(names) > 25 and names <= set(regard.train.__kwdefaults__), names


# ---- the model

def forward(parameters, tokens):
    """The logits of a model with RMS norms, rotary position embeddings, SwiGLU and two tables, with the layers of the package."""
    def linear(x, name):
        return regard.linear_forward(x, parameters[name + ".weight"].T)

    def heads(x):
        return x.reshape(1, len(tokens), 2, 8).transpose(0, 2, 1, 3)

    x = regard.embedding_forward(parameters["model.embed_tokens.weight"], tokens)
    for layer in ("model.layers.0.", "model.layers.1."):
        normed = regard.rms_norm_forward(x, parameters[layer + "input_layernorm.weight"])
        query, key, value = (heads(linear(normed, f"{layer}self_attn.{name}_proj")) for name in "qkv")
        context = regard.attention(regard.rotary_forward(query), regard.rotary_forward(key), value, causal=True)
        x = x + linear(context.transpose(0, 2, 1, 3).reshape(len(tokens), 16), layer + "self_attn.o_proj")
        normed = regard.rms_norm_forward(x, parameters[layer + "post_attention_layernorm.weight"])
        gated = regard.swiglu_forward(linear(normed, layer + "mlp.gate_proj"), linear(normed, layer + "mlp.up_proj"))
        x = x + linear(gated, layer + "mlp.down_proj")
    return linear(regard.rms_norm_forward(x, parameters["model.norm.weight"]), "lm_head")


@pytest.mark.parametrize("precision, tolerance", [("float32", 1e-5), ("float64", 1e-13)])
def test_the_model_is_its_parameters_and_the_layers_of_the_package(precision, tolerance):
    training = regard.train("copy", steps=5, layers=2, heads=2, width=16, batch=8, norm="rms", positions="rotary", feed_forward="swiglu",
                            precision=precision)
    tokens = training.model.encode(" ".join(training.probe.tokens))
    logits = training.model(tokens)
    assert logits.dtype == precision and np.array_equal(training.model(" ".join(training.probe.tokens)), logits)
    np.testing.assert_allclose(logits, forward(training.model.parameters, tokens), rtol=tolerance, atol=tolerance)
    batch = np.array([tokens] * 11)
    assert np.array_equal(training.model(batch), np.array([logits] * 11))        # more than the model computes at a time
    without = training.model(tokens, ablate=(0, 1))
    changed = dict(training.model.parameters)
    changed["model.layers.0.self_attn.o_proj.weight"] = changed["model.layers.0.self_attn.o_proj.weight"].copy()
    changed["model.layers.0.self_attn.o_proj.weight"][:, 8:] = 0
    np.testing.assert_allclose(without, forward(changed, tokens), rtol=tolerance, atol=tolerance)
    assert not np.array_equal(without, logits)


def test_generation_continues_a_prompt_as_the_logits_say(training):
    prompt = training.probe.tokens[:training.probe.tokens.index("=") + 1]
    ids = training.model.encode(" ".join(prompt))
    greedy = training.model.generate(ids, 3, temperature=0)
    assert isinstance(greedy, list) and len(greedy) == 3
    for i, token in enumerate(greedy):
        assert training.model([*ids, *greedy[:i]])[-1].argmax() == token
    assert training.model.generate(" ".join(prompt), 3, temperature=0) == training.model.decode(greedy)
    drawn = {training.model.generate(ids, 4, temperature=3, seed=seed)[0] for seed in range(20)}
    assert len(drawn) > 2 and training.model.generate(ids, 4, temperature=3, top_k=1) == training.model.generate(ids, 4, temperature=0)
    assert training.evaluate(4) == training.evaluate(4) and "TrainedModel(" in repr(training.model)


def test_a_saved_run_is_loaded_explained_and_generates_the_same(training, tmp_path):
    checkpoint = pathlib.Path(training.save(tmp_path / "run"))
    assert checkpoint.parent == tmp_path / "run" and (checkpoint / "model.safetensors").is_file()
    text = " ".join(training.probe.tokens)
    assert regard.explain(text, model=regard.load_model(tmp_path / "run")).json()
    prompt = " ".join(training.probe.tokens[:6])
    done = subprocess.run([os.environ["REGARD_PROGRAM"], "generate", tmp_path / "run", prompt, "--tokens", "5", "--seed", "7", "--json"],
                          capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["text"] == training.model.generate(prompt, 5, seed=7)


@pytest.mark.parametrize("vocabulary", [None, "characters", 260])
def test_a_text_is_learned(vocabulary, tmp_path):
    options = dict(layers=1, heads=2, width=16, steps=4, length=12)
    training = regard.train(text=TEXT, vocabulary=vocabulary, **options)
    assert training.model.decode(training.model.encode("sea shells")) == "sea shells"
    assert isinstance(training.model.generate("she ", 5), str) and training.events == []
    assert training.model.parameters["model.embed_tokens.weight"].shape[0] == (260 if vocabulary == 260 else len(set(TEXT)))
    path = tmp_path / "shore.txt"
    path.write_bytes(TEXT.encode())
    of_file = regard.train(text=path, vocabulary=vocabulary, **options)
    assert np.array_equal(of_file.log.loss, training.log.loss) and "shore.txt" in repr(of_file)


def test_a_resumed_run_has_the_bits_of_a_whole_one(tmp_path):
    options = dict(schedule="constant", **SMALL)
    whole = regard.train("copy", steps=9, **options)
    first = regard.train("copy", steps=5, **options, run=tmp_path / "run", checkpoint_every=2)
    assert not np.isnan(first.log.tokens_per_second).any()
    with pytest.raises(ValueError, match="already has checkpoints; expected another folder, or resume=True"):
        regard.train("copy", steps=9, **options, run=tmp_path / "run")
    second = regard.train("copy", steps=9, **options, run=tmp_path / "run", resume=True)
    assert np.array_equal(second.log.loss, whole.log.loss) and parameters_equal(second.model.parameters, whole.model.parameters)
    assert np.isnan(second.log.tokens_per_second[:5]).all() and second.snapshots.step[-1] == 9
    with pytest.raises(RuntimeError, match="width"):
        regard.train("copy", steps=9, **{**options, "width": 32}, run=tmp_path / "run", resume=True)


# ---- signals and threads

def signaled(number, run):
    """The result of a run of a million steps that receives a signal as soon as it has a checkpoint."""
    def send():
        while not any(run.glob("step-*")):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        return regard.train("copy", steps=1_000_000, schedule="constant", **SMALL, run=run, checkpoint_every=20)
    finally:
        sender.join()


def test_an_interrupt_completes_the_step_and_returns_what_was_learned(tmp_path):
    # Programs that a shell starts in the background ignore this signal.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.warns(RuntimeWarning, match=r"train: interrupted after step \d+ of 1000000; the run is saved; continue it with resume=True"):
            training = signaled(signal.SIGINT, tmp_path / "run")
    finally:
        signal.signal(signal.SIGINT, previous)
    steps = len(training.log.step)
    assert not training.done and 0 < steps < 1_000_000 and training.snapshots.step[-1] == steps
    assert training.held_out.num_sequences == 32 and "copy" in repr(training)
    again = regard.train("copy", steps=steps, schedule="constant", **SMALL)
    assert np.array_equal(again.log.loss, training.log.loss) and parameters_equal(again.model.parameters, training.model.parameters)


def test_another_exception_of_a_signal_handler_ends_the_call(tmp_path):
    class Expired(Exception):
        pass

    def expire(*_):
        raise Expired

    previous = signal.signal(signal.SIGALRM, expire)
    try:
        with pytest.raises(Expired):
            signaled(signal.SIGALRM, tmp_path / "run")
    finally:
        signal.signal(signal.SIGALRM, previous)


def test_threads_share_a_run(training):
    ids = training.model.encode(" ".join(training.probe.tokens))
    logits, held_out = training.model(ids), training.held_out
    wrong = []

    def use(number):
        for _ in range(5):
            if not np.array_equal(training.model(ids), logits) or training.evaluate(512 if number == 0 else 64).num_targets <= 0:
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and training.evaluate() == held_out


# ---- rejections

@pytest.mark.parametrize("call, words", [
    (lambda: regard.train(), "train: expected either task or text"),
    (lambda: regard.train("copy", text=TEXT), "train: expected either task or text"),
    (lambda: regard.train("chess"), "induction"),
    (lambda: regard.train("copy", vocabulary=300), "vocabulary applies only to a text"),
    (lambda: regard.train("copy", length=5), "length applies only to a text; the length of a task is fixed"),
    (lambda: regard.train(text=TEXT, shuffled=True), "shuffled applies only to a task"),
    (lambda: regard.train(text=TEXT, vocabulary="words"), "vocabulary is 'words'; expected 'characters' or a number of tokens"),
    (lambda: regard.train("copy", steps=0), "training: steps is 0"),
    (lambda: regard.train("copy", width=3), "decoder: width is 3"),
    (lambda: regard.train("copy", optimizer="sgd"), "train: optimizer is 'sgd'; expected adamw or muon"),
    (lambda: regard.train("copy", feed_forward="moe"), "feed_forward is 'moe'; expected none, relu, gelu, gelu_tanh or swiglu"),
    (lambda: regard.train("copy", snapshots=1), "snapshot_steps: max is 1"),
    (lambda: regard.train("copy", seed=-1), "train: seed is out of range; expected 0 to 18446744073709551615"),
    (lambda: regard.train("copy", resume=True), "resume is True; expected the folder of a run as run="),
    (lambda: regard.train("copy", checkpoint_every=5), "checkpoint_every is 5; expected at least 1, and the folder of a run"),
    (lambda: regard.plan(regard.train, "copy"), "train: called inside a plan, which must not change anything"),
])
def test_invalid_settings_are_rejected_by_name(call, words):
    with pytest.raises(ValueError) as rejection:
        call()
    assert words in str(rejection.value), str(rejection.value)


def test_invalid_arguments_of_the_model_are_rejected_by_name(training):
    for call, words in ((lambda: training.model("^ ?"), "encode: byte 2"),
                        (lambda: training.model([[[1]]]), "tokens has 3 axes"),
                        (lambda: training.model([0.5]), "expected 1 or 2 axes of integers"),
                        (lambda: training.model([1, 10**6]), "1000000"),
                        (lambda: training.model([1], ablate=(7, 0)), "ablated is layer 7"),
                        (lambda: training.model([1], ablate=(-1, 0)), "ablate[0] is -1; expected a layer"),
                        (lambda: training.evaluate(0), "count is 0"),
                        (lambda: training.evaluate(split="test"), "evaluate: split is 'test'; expected held_out or train"),
                        (lambda: training.model.generate("", 1), "prompt"),
                        (lambda: training.model.generate("^", 0), "generate: tokens is 0; expected at least 1"),
                        (lambda: training.model.generate("^", 1, temperature=-1), "temperature is -1")):
        with pytest.raises(ValueError) as rejection:
            call()
        assert words in str(rejection.value), str(rejection.value)
    with pytest.raises(TypeError, match="train: steps is of type str; expected an integer"):
        regard.train("copy", steps="5")
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        regard.train(text=pathlib.Path("no-such-file"))


def test_a_loss_that_is_not_finite_names_step_and_operation():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError, match=r"step \d+"):
            regard.train("copy", steps=50, **SMALL, learning_rate=1e30, clip=0, optimizer="adamw", schedule="constant")
