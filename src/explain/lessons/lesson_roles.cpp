// SPDX-License-Identifier: Apache-2.0
//
// Lesson roles: the document names the concepts (query, key, value, three stages, context vector), contains no numbers,
// and refers to a book's chapter. The six words and the matrices here are from that chapter: first without projections,
// then with random matrices (seed 123), with the identity, and with two different W_query.
// Read next: lesson_one_function.cpp.
#include "lessons.h"

namespace regard::inline v0 {

ExplainInput lesson_roles() {
  ExplainInput lesson;
  lesson.citation =
      "“Self-attention mechanism”, a course page without numbers; values from the chapter to which it links: "
      "S. Raschka, Build a Large Language Model, chapter 3, ch03.ipynb";
  lesson.tokens = {"Your", "journey", "starts", "with", "one", "step"};
  lesson.matrices = {
      {"X", matrix_of({{0.43, 0.15, 0.89},
                       {0.55, 0.87, 0.66},
                       {0.57, 0.85, 0.64},
                       {0.22, 0.58, 0.33},
                       {0.77, 0.25, 0.10},
                       {0.05, 0.80, 0.55}})},
      {"I", matrix_of({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}})},
  };
  lesson.settings.dtype = ElementType::float32;
  lesson.settings.query = "journey";
  const Scale unscaled{.rule = ScaleRule::none};
  const auto row_of_journey = [](const std::vector<double>& row) {
    return Expected{.numbers = matrix_of({row}), .digits = 4, .rows = {1}};
  };
  lesson.steps = {
      {.operation = Operation::show,
       .operands = {"X"},
       .result = "X",
       .name = "embeddings",
       .document_name = "input token embeddings",
       .digits = 2},

      // No matrices: each word's vector is query, key and value.
      {.operation = Operation::scores,
       .operands = {"X", "X"},
       .result = "ω",
       .name = "plain-scores",
       .document_name = "attention scores",
       .expected = row_of_journey({0.9544, 1.4950, 1.4754, 0.8434, 0.7070, 1.0865}),
       .notes = {"There are no projections yet: each word’s vector is also its query, key and value.",
                 "In this and the following steps, values are compared with those printed in the chapter; the names "
                 "of the steps are those of the course page."}},
      {.operation = Operation::ratio,
       .operands = {"ω"},
       .result = "r",
       .name = "plain-ratio",
       .document_name = "attention weights, first attempt",
       .expected = row_of_journey({0.1455, 0.2278, 0.2249, 0.1285, 0.1077, 0.1656}),
       .notes = {"Each row sums to 1, but negative scores would give negative weights. Softmax avoids this."}},
      {.operation = Operation::weights,
       .operands = {"X", "X"},
       .result = "α",
       .name = "plain-weights",
       .document_name = "attention weights",
       .scale = unscaled,
       .expected = row_of_journey({0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581})},
      {.operation = Operation::context,
       .operands = {"X", "X", "X"},
       .result = "Z",
       .name = "plain-context",
       .document_name = "context vectors",
       .scale = unscaled,
       .expected = row_of_journey({0.4419, 0.6515, 0.5683})},

      // Three matrices: three roles, three stages.
      {.operation = Operation::torch_uniform,
       .result = "W_query",
       .name = "w-query",
       .document_name = "W_q",
       .numbers = {123, 3, 2},
       .notes = {"In practice, these three matrices are learned in training; here, they are drawn at random with a "
                 "fixed seed."}},
      {.operation = Operation::torch_uniform,
       .operands = {"W_query"},
       .result = "W_key",
       .name = "w-key",
       .document_name = "W_k",
       .numbers = {123, 3, 2}},
      {.operation = Operation::torch_uniform,
       .operands = {"W_query", "W_key"},
       .result = "W_value",
       .name = "w-value",
       .document_name = "W_v",
       .numbers = {123, 3, 2}},
      {.operation = Operation::linear,
       .operands = {"X", "W_query"},
       .result = "Q",
       .name = "queries",
       .document_name = "Q matrix",
       .expected = row_of_journey({0.4306, 1.4551}),
       .notes = {"Role 1: the query is compared with the keys of all words in the sentence."}},
      {.operation = Operation::linear,
       .operands = {"X", "W_key"},
       .result = "K",
       .name = "keys",
       .document_name = "K matrix",
       .notes = {"Role 2: the key is compared with the queries of all words."}},
      {.operation = Operation::linear,
       .operands = {"X", "W_value"},
       .result = "V",
       .name = "values",
       .document_name = "V matrix",
       .notes = {"Role 3: the values are averaged, weighted by the attention weights."}},
      {.operation = Operation::scores,
       .operands = {"Q", "K"},
       .result = "S",
       .name = "scores",
       .document_name = "stage 1, attention scores",
       .expected = row_of_journey({1.2705, 1.8524, 1.8111, 1.0795, 0.5577, 1.5440})},
      {.operation = Operation::scaled,
       .operands = {"Q", "K"},
       .result = "S′",
       .name = "scaled",
       .document_name = "stage 2, scaling"},
      {.operation = Operation::weights,
       .operands = {"Q", "K"},
       .result = "A",
       .name = "weights",
       .document_name = "stage 3, attention weights",
       .expected = row_of_journey({0.1500, 0.2264, 0.2199, 0.1311, 0.0906, 0.1820})},
      {.operation = Operation::context,
       .operands = {"Q", "K", "V"},
       .result = "Z₁",
       .name = "context",
       .document_name = "context vectors",
       .expected = row_of_journey({0.3061, 0.8210})},

      // The identity: the words are compared without projection, now with the scale.
      {.operation = Operation::linear,
       .operands = {"X", "I"},
       .result = "Q_I",
       .name = "identity-queries",
       .notes = {"With the identity as W_q, W_k and W_v, the projections change nothing: Q = K = V = X."}},
      {.operation = Operation::weights,
       .operands = {"Q_I", "Q_I"},
       .result = "A_I",
       .name = "identity-weights",
       .document_name = "attention weights",
       .notes = {"The weights are nearly uniform. Similar words attend to each other, and there are no parameters "
                 "that training could change."}},

      // Another W_query: same words, same keys, different weights. Training changes these matrices.
      {.operation = Operation::torch_normal,
       .result = "W_query′",
       .name = "other-w-query",
       .document_name = "W_q",
       .numbers = {789, 3, 2}},
      {.operation = Operation::linear,
       .operands = {"X", "W_query′"},
       .result = "Q′",
       .name = "other-queries",
       .document_name = "Q matrix"},
      {.operation = Operation::weights,
       .operands = {"Q′", "K"},
       .result = "A′",
       .name = "other-weights",
       .document_name = "attention weights",
       .notes = {"The words and keys are the same, but a different W_query gives different weights."}},
      {.operation = Operation::difference,
       .operands = {"A′", "A"},
       .result = "Δ",
       .name = "learnable",
       .document_name = "what “learnable” changes"},
  };
  lesson.errata = {
      "The course page contains no numbers; this lesson uses the values printed in the chapter to which the page "
      "links.",
      "The course page says that values summarize the scores. V does not depend on the scores; its rows are averaged "
      "afterwards, weighted by the attention weights.",
  };
  return lesson;
}

}  // namespace regard::inline v0
