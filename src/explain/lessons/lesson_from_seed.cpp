// SPDX-License-Identifier: Apache-2.0
//
// Lesson from-seed: from seed 42 alone, in float32. Equal mixes, naive attention T·Tᵀ, then keys, queries, scale, mask,
// softmax, values. The notebook also prints nine dot products in full: the two summation orders that its processor
// used reproduce them to the last digit, next to the exact sums and the library's.
// Read next: lesson_by_hand.cpp.
#include "lessons.h"

namespace regard::inline v0 {

ExplainInput lesson_from_seed() {
  ExplainInput lesson;
  lesson.citation = "“Attention”, a PyTorch notebook with torch.manual_seed(42)";
  lesson.tokens = {"T0", "T1", "T2"};
  lesson.settings.dtype = ElementType::float32;
  lesson.settings.causal = {.rule = CausalRule::top_left};
  lesson.settings.digits = 4;
  const auto printed = [](const std::vector<std::vector<double>>& rows) {
    return Expected{.numbers = matrix_of(rows), .digits = 4};
  };
  const Matrix long_print = matrix_of({{1.4987846612930298, -0.12174583971500397, 1.265914797782898},
                                       {-0.12174582481384277, 5.602515697479248, -0.06531322002410889},
                                       {1.2659146785736084, -0.06531322002410889, 6.007389068603516}});
  lesson.steps = {
      {.operation = Operation::torch_normal,
       .result = "T",
       .name = "tokens",
       .document_name = "T",
       .numbers = {42, 3, 5},
       .labels = lesson.tokens,
       .expected = printed({{0.3367, 0.1288, 0.2345, 0.2303, -1.1229},
                            {-0.1863, 2.2082, -0.6380, 0.4617, 0.2674},
                            {0.5349, 0.8094, 1.1103, -1.6898, -0.9890}})},
      {.operation = Operation::mix,
       .operands = {"T"},
       .result = "halves",
       .name = "halves",
       .document_name = "1/2 * T[0] + 1/2 * T[1]",
       .numbers = {0.5, 0.5, 0.0},
       .expected = printed({{0.0752, 1.1685, -0.2018, 0.3460, -0.4278}})},
      {.operation = Operation::mix,
       .operands = {"T"},
       .result = "thirds",
       .name = "thirds",
       .document_name = "1/3 * T[0] + 1/3 * T[1] + 1/3 * T[2]",
       .numbers = {1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0},
       .expected = printed({{0.2284, 1.0488, 0.2356, -0.3326, -0.6148}}),
       .notes = {"The coefficients are equal, whatever the words are. In attention, the weights depend on the words."}},

      // Naive attention: no matrices, no softmax.
      {.operation = Operation::scores,
       .operands = {"T", "T"},
       .result = "S",
       .name = "naive-scores",
       .document_name = "S",
       .expected = printed({{1.4988, -0.1217, 1.2659}, {-0.1217, 5.6025, -0.0653}, {1.2659, -0.0653, 6.0074}})},
      {.operation = Operation::float32_dots,
       .operands = {"T"},
       .result = "dots",
       .name = "long-print",
       .document_name = "torch.dot(T[i], T[j])",
       .numbers = {0, 1, 1},
       .digits = 17,
       .expected = Expected{.numbers = long_print, .digits = 17},
       .notes =
           {"In row 0, the products are added in order; in rows 1 and 2, they are added as ((p0+p2)+(p3+p4))+p1. Each "
            "product and each sum is rounded to float32: cells (0,1) and (1,0) differ, although their products are the "
            "same."}},
      {.operation = Operation::dot_table,
       .operands = {"T", "S", "dots"},
       .result = "sums",
       .name = "cell-by-cell",
       .column_labels = {"exact", "Regard", "document"},
       .digits = 17,
       .notes =
           {"Regard adds the products in order, with fused multiply-add operations, each of which rounds only once."}},
      {.operation = Operation::ulp_table,
       .operands = {"T", "S", "dots"},
       .result = "ulps",
       .name = "last-place",
       .column_labels = {"Regard", "document", "difference"},
       .digits = 2,
       .notes = {"The columns show the difference between each sum and the exact sum, and the difference between "
                 "Regard’s sum and the document’s. Both sums are accurate to about seven significant digits, the "
                 "precision of float32. They differ because each order of summation rounds differently."}},
      {.operation = Operation::difference,
       .operands = {"S", "S"},
       .result = "Δ",
       .name = "naive-symmetry",
       .transpose = "right",
       .notes = {"T · Tᵀ is symmetric: the score of query T0 and key T1 equals that of query T1 and key T0."}},
      {.operation = Operation::product,
       .operands = {"S", "T"},
       .result = "C",
       .name = "naive-context",
       .document_name = "torch.matmul(W, T)",
       .expected = printed({{1.2045, 0.9488, 1.8346, -1.8501, -2.9674},
                            {-1.1198, 12.3029, -3.6754, 2.6688, 1.6991},
                            {3.6518, 4.8810, 7.0084, -9.8898, -7.3800}})},

      // Keys and queries.
      {.operation = Operation::torch_normal,
       .operands = {"T"},
       .result = "W_K",
       .name = "w-key",
       .document_name = "W_K",
       .numbers = {42, 5, 4}},
      {.operation = Operation::torch_normal,
       .operands = {"T", "W_K"},
       .result = "W_Q",
       .name = "w-query",
       .document_name = "W_Q",
       .numbers = {42, 5, 4}},
      {.operation = Operation::linear,
       .operands = {"T", "W_K"},
       .result = "K",
       .name = "keys",
       .document_name = "K",
       .expected = printed({{0.6023, -0.7260, 1.1799, 0.2383},
                            {-0.6521, 4.4224, -3.7460, -1.2657},
                            {-0.7106, -4.3429, 4.2984, -2.3664}})},
      {.operation = Operation::linear,
       .operands = {"T", "W_Q"},
       .result = "Q",
       .name = "queries",
       .document_name = "Q",
       .expected = printed({{-1.6964, 1.3355, -0.5133, 0.0674},
                            {1.6595, -0.4445, -0.1917, 1.7729},
                            {-0.1650, -2.9899, -3.8893, 1.2756}})},
      {.operation = Operation::scores,
       .operands = {"Q", "K"},
       .result = "S₁",
       .name = "scores",
       .document_name = "S",
       .expected = printed({{-2.5809, 8.8498, -6.9600}, {1.5185, -4.5739, -4.2686}, {-2.2135, -0.1601, -6.6347}})},
      {.operation = Operation::difference,
       .operands = {"S₁", "S₁"},
       .result = "Δ₁",
       .name = "symmetry",
       .transpose = "right",
       .notes = {"Q · Kᵀ is not symmetric: queries and keys are now different projections of the tokens."}},
      {.operation = Operation::scaled,
       .operands = {"Q", "K"},
       .result = "S₂",
       .name = "scaled",
       .document_name = "S * (4**-0.5)",
       .expected = printed({{-1.2905, 4.4249, -3.4800}, {0.7593, -2.2869, -2.1343}, {-1.1067, -0.0801, -3.3173}})},
      {.operation = Operation::masked,
       .operands = {"Q", "K"},
       .result = "S₃",
       .name = "masked",
       .document_name = "S.masked_fill(trimat == 0, -inf)"},
      {.operation = Operation::weights,
       .operands = {"Q", "K"},
       .result = "A",
       .name = "weights",
       .document_name = "F.softmax(S, dim=-1)",
       .expected = printed({{1.0000, 0.0000, 0.0000}, {0.9546, 0.0454, 0.0000}, {0.2563, 0.7156, 0.0281}})},
      {.operation = Operation::torch_normal,
       .operands = {"T", "W_K", "W_Q"},
       .result = "W_V",
       .name = "w-value",
       .document_name = "W_V",
       .numbers = {42, 5, 4}},
      {.operation = Operation::linear,
       .operands = {"T", "W_V"},
       .result = "V",
       .name = "values",
       .document_name = "V",
       .expected = printed({{-0.9285, 0.3301, 1.8359, -1.3448},
                            {0.4676, -0.1512, -0.5678, 0.8648},
                            {0.6143, 2.6772, -1.3256, -3.2423}})},
      {.operation = Operation::context,
       .operands = {"Q", "K", "V"},
       .result = "R",
       .name = "context",
       .document_name = "R",
       .expected = printed(
           {{-0.9285, 0.3301, 1.8359, -1.3448}, {-0.8652, 0.3082, 1.7268, -1.2445}, {0.1138, 0.0517, 0.0270, 0.1831}})},
  };
  lesson.errata = {
      "One cell multiplies W by T, but W is not defined there; it should be S.",
      "S is overwritten four times; here, its five versions are called S, S₁, S₂, S₃ and A.",
      "The document attributes the scaling to numerical stability; its purpose is to keep the softmax from saturating "
      "(see the lesson why-scale).",
  };
  return lesson;
}

}  // namespace regard::inline v0
