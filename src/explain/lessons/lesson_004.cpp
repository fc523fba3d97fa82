// SPDX-License-Identifier: Apache-2.0
//
// Lesson 004: attention by hand, tokens as columns. floor(□ / 2) stands for the division by √3 and 3^x for e^x, so
// every number is a fraction; the exact √3 and e follow beside. Then two heads, joined, and the transformer round
// them. The article has its numbers in pictures; these are its author's spreadsheet's, Self-Attention.xlsx, sheet
// "small". The second head and what follows it are this lesson's own whole numbers.
// Read next: lesson_why_scale.cpp.
#include "lessons.h"

namespace regard {
inline namespace v0 {

ExplainInput lesson_004() {
  ExplainInput lesson;
  lesson.title = "By hand, in columns: fractions, two heads, a transformer block";
  lesson.citation =
      "“Deep Dive into Self-Attention by Hand”; numbers: T. Yeh, AI by Hand, Self-Attention.xlsx, sheet “small”";
  lesson.tokens = {"x1", "x2", "x3", "x4"};
  lesson.matrices = {
      {"X", matrix_of({{2, 0, 0, 2}, {0, 1, 0, 0}, {0, 2, 1, 0}, {0, 0, 1, 1}, {2, 0, 0, 0}, {1, 0, 1, 1}})},
      {"W_Q", matrix_of({{1, 1, 0, 0, 0, 0}, {0, 1, 0, 1, 0, 0}, {0, 0, 1, 0, 1, 1}})},
      {"W_K", matrix_of({{0, 0, 1, 0, 0, 0}, {0, 1, 0, 0, 0, 0}, {1, 0, 0, 0, 0, -1}})},
      {"W_V", matrix_of({{10, 0, 0, 0, 0, 0}, {0, 0, 0, 10, 0, 0}, {0, 10, 0, 0, 0, 0}})},
      // Rows 0 to 2 are the matrices above, rows 3 to 5 a second head's.
      {"W_Q2", matrix_of({{1, 1, 0, 0, 0, 0},
                          {0, 1, 0, 1, 0, 0},
                          {0, 0, 1, 0, 1, 1},
                          {0, 0, 0, 1, 0, 1},
                          {1, 0, 1, 0, 0, 0},
                          {0, 1, 0, 0, 1, 0}})},
      {"W_K2", matrix_of({{0, 0, 1, 0, 0, 0},
                          {0, 1, 0, 0, 0, 0},
                          {1, 0, 0, 0, 0, -1},
                          {0, 1, 0, 0, 0, 1},
                          {1, 0, 0, -1, 0, 0},
                          {0, 0, 1, 0, 0, 0}})},
      {"W_V2", matrix_of({{10, 0, 0, 0, 0, 0},
                          {0, 0, 0, 10, 0, 0},
                          {0, 10, 0, 0, 0, 0},
                          {0, 0, 10, 0, 0, 0},
                          {0, 0, 0, 0, 10, 0},
                          {0, 0, 0, 0, 0, 10}})},
      {"W_output", matrix_of({{1, 0, 0, 0, 0, 1},
                              {0, 1, 0, 0, 1, 0},
                              {0, 0, 1, 1, 0, 0},
                              {0, 0, -1, 1, 0, 0},
                              {0, -1, 0, 0, 1, 0},
                              {-1, 0, 0, 0, 0, 1}})},
      {"W_1", matrix_of({{1, 0, -1, 0, 1, 0},
                         {0, 1, 0, -1, 0, 1},
                         {1, -1, 0, 0, 0, 0},
                         {0, 0, 1, -1, 0, 0},
                         {0, 0, 0, 0, 1, -1},
                         {1, 1, 1, 0, 0, 0},
                         {0, 0, 0, 1, 1, 1},
                         {-1, 0, 0, 0, 0, 1}})},
      {"W_2", matrix_of({{1, 0, 0, 0, 0, 1, 0, 0},
                         {0, 1, 0, 0, 0, 0, 1, 0},
                         {0, 0, 1, 0, 0, 0, 0, 1},
                         {0, 0, 0, 1, 0, 1, 0, 0},
                         {0, 0, 0, 0, 1, 0, 1, 0},
                         {-1, 0, 0, 0, 0, 0, 0, 1}})},
  };
  lesson.settings.layout = Layout::columns;
  lesson.settings.query = "x1";
  const auto whole = [](const std::vector<std::vector<double>>& rows) {
    return Expected{.numbers = matrix_of(rows), .digits = 0};
  };
  const auto printed = [](const std::vector<std::vector<double>>& rows) {
    return Expected{.numbers = matrix_of(rows), .digits = 4};
  };
  lesson.steps = {
      {.operation = "show",
       .operands = {"X"},
       .result = "X",
       .name = "features",
       .called = "features",
       .notes = {"A token is a column here. Written by rows, every product below is turned round: the same numbers."}},
      {.operation = "linear",
       .operands = {"X", "W_Q"},
       .result = "Q",
       .name = "queries",
       .called = "Q",
       .expected = whole({{2, 1, 0, 2}, {0, 1, 1, 1}, {3, 2, 2, 1}})},
      {.operation = "linear",
       .operands = {"X", "W_K"},
       .result = "K",
       .name = "keys",
       .called = "K",
       .expected = whole({{0, 2, 1, 0}, {0, 1, 0, 0}, {1, 0, -1, 1}})},
      {.operation = "linear",
       .operands = {"X", "W_V"},
       .result = "V",
       .name = "values",
       .called = "V",
       .expected = whole({{20, 0, 0, 20}, {0, 0, 10, 10}, {0, 10, 0, 0}})},
      {.operation = "scores",
       .operands = {"Q", "K"},
       .result = "KᵀQ",
       .name = "scores",
       .called = "matching scores",
       .expected = whole({{3, 2, 2, 1}, {4, 3, 1, 5}, {-1, -1, -2, 1}, {3, 2, 2, 1}})},
      {.operation = "cosine",
       .operands = {"Q", "K"},
       .result = "cos",
       .name = "cosines",
       .called = "cosine similarity",
       .digits = 3,
       .notes = {"A dot product is cosine × both lengths: a long key can win with a worse angle."}},
      {.operation = "ranks",
       .operands = {"KᵀQ"},
       .result = "ranks by dot product",
       .name = "ranks-of-dots",
       .digits = 0},
      {.operation = "ranks",
       .operands = {"cos"},
       .result = "ranks by cosine",
       .name = "ranks-of-cosines",
       .digits = 0,
       .notes = {"Where the two tables differ, dot product and cosine choose different keys."}},

      // By hand: fractions throughout.
      {.operation = "floor_half",
       .operands = {"KᵀQ"},
       .result = "F",
       .name = "floored",
       .called = "scaled",
       .expected = whole({{1, 1, 1, 0}, {2, 1, 0, 2}, {-1, -1, -1, 0}, {1, 1, 1, 0}}),
       .slips = {"floor rounds down, also below 0: −1 / 2 becomes −1, while 1 / 2 becomes 0."}},
      {.operation = "power",
       .operands = {"F"},
       .result = "P",
       .name = "powers",
       .called = "3 to the power of each cell",
       .base = 3.0,
       .fractions = true},
      {.operation = "sums",
       .operands = {"P"},
       .result = "Σ",
       .name = "column-sums",
       .called = "sum of each column",
       .fractions = true},
      {.operation = "divide",
       .operands = {"P", "Σ"},
       .result = "A",
       .name = "hand-weights",
       .called = "attention weight matrix A",
       .fractions = true,
       .expected = printed({{9.0 / 46, 9.0 / 28, 9.0 / 22, 1.0 / 12},
                            {27.0 / 46, 9.0 / 28, 3.0 / 22, 9.0 / 12},
                            {1.0 / 46, 1.0 / 28, 1.0 / 22, 1.0 / 12},
                            {9.0 / 46, 9.0 / 28, 9.0 / 22, 1.0 / 12}})},
      {.operation = "product",
       .operands = {"V", "A"},
       .result = "Z",
       .name = "hand-context",
       .called = "attention weighted features Z",
       .fractions = true,
       .expected = printed(
           {{7.8261, 12.8571, 16.3636, 3.3333}, {2.1739, 3.5714, 4.5455, 1.6667}, {5.8696, 3.2143, 1.3636, 7.5}})},

      // The same with the true scale and base, as the author's spreadsheet has it.
      {.operation = "scaled", .operands = {"Q", "K"}, .result = "S", .name = "scaled", .called = "KᵀQ / √3"},
      {.operation = "weights",
       .operands = {"Q", "K"},
       .result = "A_exact",
       .name = "weights",
       .called = "attention weight matrix A",
       .expected = printed({{.2577, .2526, .3758, .0765},
                            {.4590, .4500, .2110, .7704},
                            {.0256, .0447, .0373, .0765},
                            {.2577, .2526, .3758, .0765}})},
      {.operation = "context",
       .operands = {"Q", "K", "V"},
       .result = "Z_exact",
       .name = "context",
       .called = "attention weighted features Z",
       .expected = printed(
           {{10.3076, 10.1055, 15.0336, 3.0608}, {2.8328, 2.9733, 4.1317, 1.5304}, {4.5903, 4.5003, 2.1099, 7.7044}})},
      {.operation = "difference",
       .operands = {"Z", "Z_exact"},
       .result = "Δ",
       .name = "hand-and-exact",
       .notes = {"What floor and 3^x cost against √3 and e."}},

      // Two heads, side by side, then joined.
      {.operation = "linear",
       .operands = {"X", "W_Q2"},
       .result = "Q₂",
       .name = "queries-of-two-heads",
       .heads = 2,
       .notes = {"Head 0 is the one above; head 1 has matrices of its own."}},
      {.operation = "linear", .operands = {"X", "W_K2"}, .result = "K₂", .name = "keys-of-two-heads", .heads = 2},
      {.operation = "linear", .operands = {"X", "W_V2"}, .result = "V₂", .name = "values-of-two-heads", .heads = 2},
      {.operation = "weights",
       .operands = {"Q₂", "K₂"},
       .result = "A₂",
       .name = "weights-of-two-heads",
       .notes = {"Each head has weights of its own: two views of the same sequence."}},
      {.operation = "context", .operands = {"Q₂", "K₂", "V₂"}, .result = "Z₂", .name = "context-of-two-heads"},
      {.operation = "join",
       .operands = {"Z₂"},
       .result = "J",
       .name = "joined",
       .called = "concatenated",
       .notes = {"Head 0 fills the first three dimensions, head 1 the last three."}},

      // The transformer round it.
      {.operation = "linear",
       .operands = {"J", "W_output"},
       .result = "O",
       .name = "output",
       .notes = {"Up to here positions are mixed: each column of O is made of all columns of X."}},
      {.operation = "add",
       .operands = {"X", "O"},
       .result = "R",
       .name = "residual",
       .notes = {"The way round attention."}},
      {.operation = "normalize", .operands = {"R"}, .result = "N", .name = "normalised"},
      {.operation = "linear", .operands = {"N", "W_1"}, .result = "H", .name = "feed-forward-1"},
      {.operation = "relu", .operands = {"H"}, .result = "H⁺", .name = "rectified"},
      {.operation = "linear",
       .operands = {"H⁺", "W_2"},
       .result = "F₂",
       .name = "feed-forward-2",
       .called = "FFN",
       .notes = {"From N on dimensions are mixed: each column is made of the same column only."}},
      {.operation = "add", .operands = {"N", "F₂"}, .result = "R₂", .name = "second-residual"},
      {.operation = "normalize",
       .operands = {"R₂"},
       .result = "Y",
       .name = "block-output",
       .notes = {"One block of a transformer. A model stacks many."}},
  };
  lesson.slips = {
      "floor(□ / 2) takes −1 to −1, so a score of −1 is not drawn towards 0.",
      "A dot product of 1 means an angle of 0 only between vectors of length 1.",
      "“Cosine similarity” is said of KᵀQ; these are dot products, lengths and all.",
  };
  return lesson;
}

}  // namespace v0
}  // namespace regard
