// SPDX-License-Identifier: Apache-2.0
//
// Lesson three-words: three words, integer matrices, attention of one word, unscaled; a variant divides scores by √3.
// Every number is the document's, printed by NumPy. Read next: lesson_roles.cpp.
#include "lessons.h"

namespace regard::inline v0 {

ExplainInput lesson_three_words() {
  ExplainInput lesson;
  lesson.citation = "“Transformers and the Attention Mechanism”, a NumPy notebook";
  lesson.tokens = {"I", "love", "coding"};
  lesson.matrices = {
      {"X", matrix_of({{1, 0, 1}, {0, 1, 0}, {1, 1, 1}})},
      {"W_query", matrix_of({{1, 0, 1}, {0, 1, 0}, {1, 1, 1}})},
      {"W_key", matrix_of({{0, 1, 1}, {1, 0, 0}, {0, 0, 1}})},
      {"W_value", matrix_of({{1, 2, 1}, {0, 1, 0}, {1, 1, 0}})},
  };
  lesson.settings.scale = {.rule = ScaleRule::none};
  lesson.settings.query = "love";
  lesson.steps = {
      {.operation = Operation::show,
       .operands = {"X"},
       .result = "X",
       .name = "embeddings",
       .document_name = "embeddings"},
      {.operation = Operation::linear,
       .operands = {"X", "W_query"},
       .result = "Q",
       .name = "queries",
       .document_name = "queries",
       .expected = Expected{.numbers = matrix_of({{2, 1, 2}, {0, 1, 0}, {2, 2, 2}}), .digits = 0},
       .notes = {"A query is the vector that is compared with every key."}},
      {.operation = Operation::linear,
       .operands = {"X", "W_key"},
       .result = "K",
       .name = "keys",
       .document_name = "keys",
       .expected = Expected{.numbers = matrix_of({{0, 1, 2}, {1, 0, 0}, {1, 1, 2}}), .digits = 0},
       .notes = {"A key is the vector that is compared with every query."}},
      {.operation = Operation::linear,
       .operands = {"X", "W_value"},
       .result = "V",
       .name = "values",
       .document_name = "values",
       .expected = Expected{.numbers = matrix_of({{2, 3, 1}, {0, 1, 0}, {2, 4, 1}}), .digits = 0},
       .notes = {"A value is the vector that a word contributes to the context of every query that attends to it."}},
      {.operation = Operation::scores,
       .operands = {"Q", "K"},
       .result = "S",
       .name = "scores",
       .document_name = "attention_scores",
       .expected = Expected{.numbers = matrix_of({{1, 0, 1}}), .digits = 0, .rows = {1}},
       .notes = {"The document computes only the row of “love”, as keys @ query_love; the products are the same."}},
      {.operation = Operation::scaled,
       .operands = {"Q", "K"},
       .result = "S′",
       .name = "scaled",
       .notes = {"The document omits this step; dividing by √3 would make the weights more uniform."}},
      {.operation = Operation::weights,
       .operands = {"Q", "K"},
       .result = "A",
       .name = "weights",
       .document_name = "attention_probs",
       .digits = 8,
       .expected = Expected{.numbers = matrix_of({{0.4223188, 0.1553624, 0.4223188}}), .digits = 8, .rows = {1}}},
      {.operation = Operation::context,
       .operands = {"Q", "K", "V"},
       .result = "Z",
       .name = "context",
       .document_name = "output_love",
       .digits = 8,
       .expected = Expected{.numbers = matrix_of({{1.68927519, 3.11159399, 0.8446376}}), .digits = 8, .rows = {1}}},
      {.operation = Operation::focus_vectors,
       .operands = {"X", "V", "Z"},
       .result = "before and after",
       .name = "before-and-after",
       .labels = {"X, static", "V, static", "Z, contextual"},
       .digits = 8,
       .notes = {"X and V of a word are the same in every sentence; Z depends on the other words."}},
  };
  lesson.variants = {{.label = "with ÷√3", .settings = lesson.settings}};
  lesson.variants[0].settings.scale = {.rule = ScaleRule::sqrt};
  lesson.errata = {
      "The document announces “The cat sat” but computes “I love coding”.",
      "After the shift by the maximum, the largest score is 0; the comment says that scores start at 0.",
      "“Contextualised by I and coding”: “love” also keeps 0.1553624 of its own value.",
  };
  return lesson;
}

}  // namespace regard::inline v0
