# SPDX-License-Identifier: Apache-2.0
"""Calls of public functions for package_test.py, which checks their types with `mypy --strict`. The file is never run."""

from typing import Any, assert_type

import jax
import numpy as np
import numpy.typing as npt
import regard
import regard.jax

Array = npt.NDArray[np.float32]
zeros: Array = np.zeros((1, 2, 4, 8), np.float32)
buffer = memoryview(b"")

# One result has the query's type; with other results, a named tuple.
assert_type(regard.attention(zeros, zeros, zeros), Array)
assert_type(regard.attention(zeros, buffer, buffer, causal="top_left", window=(3, None), key_lengths=[4]), Array)
assert_type(regard.attention_forward(buffer, zeros, zeros, scale=0.5, num_threads=1), memoryview)
found = regard.attention(zeros, zeros, zeros, return_lse=True, return_fingerprint=True)
assert_type(found.lse, Array)
assert_type(found.fingerprint, bytes)
context, lse, fingerprint = found
assert_type(regard.attention(zeros, zeros, zeros, dtype=np.float32), Any)

statistics = regard.attention_with_statistics(zeros, zeros, zeros, top_keys=2, chosen_keys=np.arange(2))
assert_type(statistics.entropy, Array)
assert_type(regard.attention_weights(zeros, zeros, row_max=statistics.row_max, row_sum=statistics.row_sum, rows=[(0, 1)]), Array)
assert_type(regard.attention_columns(zeros, zeros, statistics.row_max, statistics.row_sum).key_mass, Array)
assert_type(regard.attention_partials(zeros, zeros, zeros).accumulator, Array)
gradients = regard.attention_backward(zeros, zeros, zeros, context, statistics.row_max, statistics.row_sum, zeros,
                                      fingerprint=fingerprint, gradients=["grad_query"], mask=np.ones((4, 4), bool))
assert_type(gradients.grad_query, Array)

cache = regard.KvCache(head_size=8, capacity=32, dtype=np.float32)
cache.append(zeros, zeros, counts=[1])
assert_type(cache.length(0), int)
assert_type(cache.memory, memoryview)
assert_type(regard.attention_decode(zeros, regard.KvCache.open(cache.memory), causal=True), Array)
assert_type(regard.attention_decode(zeros, cache, return_lse=True).lse, Array)
assert_type(regard.attention_decode_partials(zeros, cache, causal=True).row_max, Array)

assert_type(regard.linear_forward(zeros[0, 0], regard.PackedLinear(zeros[0, 0]), activation="relu"), Any)
assert_type(regard.linear_backward(zeros, zeros, zeros).grad_bias, Array)
assert_type(regard.layer_norm_forward(zeros, zeros, zeros, epsilon=1e-6), Array)
assert_type(regard.layer_norm_backward(zeros, zeros, zeros, accumulate=["grad_gain"], grad_gain=zeros).grad_bias, Array)
assert_type(regard.activation_forward(zeros, "silu", out=zeros), Array)
assert_type(regard.swiglu_backward(zeros, zeros, zeros).grad_up, Array)
assert_type(regard.embedding_forward(zeros, [0, 1]), Array)
assert_type(regard.rotary_forward(zeros, layout="interleaved", positions=np.arange(4)), Array)
state = regard.multi_head_attention_forward(zeros, zeros, zeros, zeros, return_state=True).state
assert_type(regard.multi_head_attention_backward(zeros, zeros, zeros, zeros, state, zeros).grad_w_query, Array)
regard.adamw_step(zeros, zeros, zeros, zeros, learning_rate=0.1, step=3)
regard.muon_step(zeros, zeros, zeros, nesterov=False)
assert_type(regard.clip_factor(regard.global_norm(zeros), 1), float)
assert_type(regard.learning_rate_at(3, steps=10, schedule="linear"), float)
assert_type(regard.plan(regard.attention, zeros, zeros, zeros).operators[0].strategy, str)
assert_type(regard.instruction_sets()[0].active, bool)
assert_type(regard.default_num_threads(), int)
assert_type(regard.bf16_dot_gflops(1, 0.1), float | None)
assert_type(regard.__version__, str)

model = regard.load_model("folder")
assert_type(regard.explain("he sat on the bank", model, "bank", hide=["[CLS]"]), regard.SentenceAnalysis)
assert_type(regard.explain({"tokens": ["I"]}), regard.Explanation)
assert_type(regard.compare(model, "bank", ["a bank", "the bank"]).findings(), list[str])
vectors: Array = regard.embed(model, ["a bank"])
assert_type(regard.lesson("three-words", layout="columns").text(width=100), str)
figure = regard.show([[0.5, 0.5]], ["a", "b"], queries=["q"], color_scale="shared")

training = regard.train("induction", steps=20, optimizer="muon", seed=3)
rates: npt.NDArray[Any] = training.log.learning_rate
assert_type(training.events[0].text, str)
assert_type(training.evaluate(8, ablate=(1, 0)).loss, float)
assert_type(training.model.generate("^ a", 5), str)
assert_type(training.model.generate([1, 2], 5, temperature=0), list[int])
logits: npt.NDArray[Any] = training.model(np.zeros((2, 5), np.int64))
assert_type(training.save("run"), str)


def loss(query: jax.Array) -> jax.Array:
    return regard.jax.attention(query, query, query, causal=True, scale=0.5).sum()
