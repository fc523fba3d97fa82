// SPDX-License-Identifier: Apache-2.0
//
// The steps of an explanation: numbers worked out by hand, both layouts, heads, masks, arithmetic done as on paper, the
// derivation of cells, and rejections.
// Read next: explain_render_test.cpp, docs/guide/own-matrices.md.
#include "regard/explain/steps.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/rejection.h"
#include "support/test_size.h"

namespace regard::explain_test {
namespace {

// The words of lesson three-words.
ExplainInput love() {
  ExplainInput in;
  in.tokens = {"I", "love", "coding"};
  in.matrices = {{"X", matrix_of({{1, 0, 1}, {0, 1, 0}, {1, 1, 1}})},
                 {"W_query", matrix_of({{1, 0, 1}, {0, 1, 0}, {1, 1, 1}})},
                 {"W_key", matrix_of({{0, 1, 1}, {1, 0, 0}, {0, 0, 1}})},
                 {"W_value", matrix_of({{1, 2, 1}, {0, 1, 0}, {1, 1, 0}})}};
  in.settings.scale.rule = ScaleRule::none;
  in.settings.query = "love";
  return in;
}

// The four columns of lesson by-hand.
ExplainInput by_hand() {
  ExplainInput in;
  in.matrices = {{"Q", matrix_of({{2, 1, 0, 2}, {0, 1, 1, 1}, {3, 2, 2, 1}})},
                 {"K", matrix_of({{0, 2, 1, 0}, {0, 1, 0, 0}, {1, 0, -1, 1}})},
                 {"V", matrix_of({{20, 0, 0, 20}, {0, 0, 10, 10}, {0, 10, 0, 0}})}};
  in.settings.layout = Layout::columns;
  return in;
}

Matrix transposed(const Matrix& m) {
  Matrix t;
  t.num_rows = m.num_columns;
  t.num_columns = m.num_rows;
  t.numbers.resize(m.numbers.size());
  for (Index r = 0; r < m.num_rows; ++r)
    for (Index c = 0; c < m.num_columns; ++c) t.numbers[t.index(0, c, r)] = m.numbers[m.index(0, r, c)];
  return t;
}

const Step& step(const Explanation& explanation, std::string_view name) {
  for (const Step& s : explanation.steps)
    if (s.name == name) return s;
  ADD_FAILURE() << "there is no step " << name;
  return explanation.steps[0];
}

std::string names(const Explanation& explanation) {
  std::string text;
  for (const Step& s : explanation.steps) text += s.name + " ";
  return text;
}

void expect_numbers(const Step& s, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(s.result.numbers.size(), expected.size()) << s.name;
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(s.result.numbers[i], expected[i], tolerance) << s.name << " " << i;
}

std::string rejection(const ExplainInput& in) {
  return regard::rejection([&] { explain(in); });
}

TEST(Explain, ComputesTheThreeWordsByHand) {
  const Explanation e = explain(love());
  EXPECT_EQ(names(e), "input queries keys values scores weights context ");
  EXPECT_EQ(step(e, "queries").result.numbers, (std::vector<double>{2, 1, 2, 0, 1, 0, 2, 2, 2}));
  EXPECT_EQ(step(e, "keys").result.numbers, (std::vector<double>{0, 1, 2, 1, 0, 0, 1, 1, 2}));
  EXPECT_EQ(step(e, "values").result.numbers, (std::vector<double>{2, 3, 1, 0, 1, 0, 2, 4, 1}));
  EXPECT_EQ(step(e, "scores").result.numbers, (std::vector<double>{5, 2, 7, 1, 0, 1, 6, 2, 8}));
  const Step& weights = step(e, "weights");
  EXPECT_NEAR(weights.result.numbers[3], 0.4223188, 5e-8);
  EXPECT_NEAR(weights.result.numbers[4], 0.1553624, 5e-8);
  EXPECT_NEAR(weights.result.numbers[5], 0.4223188, 5e-8);
  EXPECT_EQ(weights.sums_to_one, SumAxis::row);
  ASSERT_EQ(weights.sums.size(), 3u);
  EXPECT_NEAR(weights.sums[1], 1.0, 1e-15);
  const Step& context = step(e, "context");
  EXPECT_NEAR(context.result.numbers[3], 1.68927519, 5e-9);
  EXPECT_NEAR(context.result.numbers[4], 3.11159399, 5e-9);
  EXPECT_NEAR(context.result.numbers[5], 0.8446376, 5e-8);
  EXPECT_EQ(e.focus, 1);
  EXPECT_EQ(e.finding, "“love” attends most to “I” and “coding”: 0.4223 each (uniform: 0.3333)");
}

TEST(Explain, NamesSymbolsEquationsAndAxes) {
  ExplainInput in = love();
  in.settings.scale.rule = ScaleRule::sqrt;
  in.settings.causal.rule = CausalRule::top_left;
  in.names = {{"context", "new V"}};
  const Explanation e = explain(in);
  EXPECT_EQ(names(e), "input queries keys values scores scaled masked weights context ");
  EXPECT_EQ(step(e, "queries").equation, "Q = X · W_query");
  EXPECT_EQ(step(e, "scores").equation, "S = Q · Kᵀ");
  EXPECT_EQ(step(e, "scaled").equation, "scaled = S / √3");
  EXPECT_EQ(step(e, "masked").equation, "masked = scaled where key ≤ query, else −∞");
  EXPECT_EQ(step(e, "weights").equation, "A = softmax(masked), row by row");
  EXPECT_EQ(step(e, "context").equation, "C = A · V");
  EXPECT_EQ(step(e, "context").document_name, "new V");
  EXPECT_EQ(step(e, "weights").term, "attention weights");
  EXPECT_EQ(step(e, "weights").row_axis.extent, "L");
  EXPECT_EQ(step(e, "weights").column_axis.name, "key");
  EXPECT_EQ(step(e, "weights").column_axis.labels, in.tokens);
  for (const Step& s : e.steps) EXPECT_FALSE(s.outside_library) << s.name;
}

TEST(Explain, HidesKeysAfterTheQuery) {
  ExplainInput in = love();
  in.settings.causal.rule = CausalRule::top_left;
  const Explanation e = explain(in);
  const std::vector<std::uint8_t> hidden = {0, 1, 1, 0, 0, 1, 0, 0, 0};
  EXPECT_EQ(step(e, "masked").result.hidden, hidden);
  EXPECT_EQ(step(e, "masked").result.numbers[1], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(step(e, "weights").result.hidden, hidden);
  EXPECT_EQ(step(e, "weights").result.numbers[0], 1.0);
  EXPECT_EQ(step(e, "weights").result.numbers[2], 0.0);
  EXPECT_NEAR(step(e, "weights").result.numbers[3], std::exp(1.0) / (std::exp(1.0) + 1), 1e-15);

  // Two queries aligned with the last two of three keys.
  ExplainInput cross;
  cross.matrices = {{"Q", matrix_of({{1}, {1}})}, {"K", matrix_of({{1}, {1}, {1}})}, {"V", matrix_of({{3}, {6}, {9}})}};
  cross.settings.causal.rule = CausalRule::bottom_right;
  const Explanation c = explain(cross);
  EXPECT_EQ(step(c, "weights").result.hidden, (std::vector<std::uint8_t>{0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(step(c, "masked").causal_offset, 1);
  expect_numbers(step(c, "context"), {4.5, 6}, 1e-15);
}

TEST(Explain, LayoutColumnsTransposesEveryResult) {
  const ExplainInput columns = by_hand();
  ExplainInput rows = columns;
  rows.settings.layout = Layout::rows;
  for (NamedMatrix& named : rows.matrices) named.matrix = transposed(named.matrix);
  const Explanation c = explain(columns);
  const Explanation r = explain(rows);
  ASSERT_EQ(names(c), names(r));
  for (std::size_t i = 0; i < c.steps.size(); ++i)
    EXPECT_EQ(transposed(c.steps[i].result).numbers, r.steps[i].result.numbers) << c.steps[i].name;
  EXPECT_EQ(step(c, "weights").sums_to_one, SumAxis::column);
  EXPECT_EQ(step(c, "scores").equation, "S = Kᵀ · Q");
  EXPECT_EQ(step(c, "context").equation, "C = V · A");
  EXPECT_EQ(step(c, "scores").result.numbers, (std::vector<double>{3, 2, 2, 1, 4, 3, 1, 5, -1, -1, -2, 1, 3, 2, 2, 1}));
  EXPECT_NEAR(step(c, "weights").result.numbers[0], 0.2577, 5e-5);
  EXPECT_NEAR(step(c, "context").result.numbers[0], 10.3076, 5e-5);
}

TEST(Explain, ComputesPaperArithmetic) {
  ExplainInput in = by_hand();
  in.settings.scale.rule = ScaleRule::floor_half;
  in.settings.softmax_base = 3;
  const Explanation e = explain(in);
  EXPECT_EQ(names(e), "queries keys values scores scaled exponentials sums weights context ");
  EXPECT_EQ(step(e, "scaled").result.numbers, (std::vector<double>{1, 1, 1, 0, 2, 1, 0, 2, -1, -1, -1, 0, 1, 1, 1, 0}));
  expect_numbers(step(e, "sums"), {46.0 / 3, 28.0 / 3, 22.0 / 3, 12}, 1e-14);
  const Step& weights = step(e, "weights");
  expect_numbers(weights,
                 {9.0 / 46, 9.0 / 28, 9.0 / 22, 1.0 / 12, 27.0 / 46, 9.0 / 28, 3.0 / 22, 9.0 / 12, 1.0 / 46, 1.0 / 28,
                  1.0 / 22, 1.0 / 12, 9.0 / 46, 9.0 / 28, 9.0 / 22, 1.0 / 12},
                 1e-15);
  EXPECT_EQ(weights.sums_to_one, SumAxis::column);
  EXPECT_TRUE(weights.outside_library);
  EXPECT_TRUE(step(e, "scaled").outside_library);
  EXPECT_FALSE(step(e, "scores").outside_library);
  EXPECT_FALSE(step(e, "context").outside_library);
  expect_numbers(step(e, "context"),
                 {7.8261, 12.8571, 16.3636, 3.3333, 2.1739, 3.5714, 4.5455, 1.6667, 5.8696, 3.2143, 1.3636, 7.5}, 5e-5);

  // A mask after floor_half, and a plain ratio.
  in.settings.causal.rule = CausalRule::top_left;
  in.settings.softmax = SoftmaxRule::unshifted;
  in.settings.softmax_base.reset();
  const Explanation masked = explain(in);
  EXPECT_EQ(step(masked, "weights").result.numbers[0], 1.0);
  EXPECT_EQ(step(masked, "weights").result.numbers[4], 0.0);
  EXPECT_EQ(step(masked, "weights").result.hidden[4], 1);
  EXPECT_EQ(step(masked, "masked").result.hidden, step(masked, "weights").result.hidden);
  ExplainInput ratio = love();
  ratio.settings.softmax = SoftmaxRule::ratio;
  const Explanation divided = explain(ratio);
  const Step& shares = step(divided, "weights");
  EXPECT_DOUBLE_EQ(shares.result.numbers[0], 5.0 / 14);
  EXPECT_DOUBLE_EQ(shares.result.numbers[3], 0.5);
}

TEST(Explain, UnshiftedSoftmaxOverflowsAndTheLibrarysDoesNot) {
  ExplainInput in;
  in.matrices = {{"Q", matrix_of({{1000}})}, {"K", matrix_of({{1}, {1}})}, {"V", matrix_of({{1}, {3}})}};
  expect_numbers(step(explain(in), "weights"), {0.5, 0.5}, 0);
  in.settings.softmax = SoftmaxRule::unshifted;
  const Explanation e = explain(in);
  EXPECT_TRUE(std::isnan(step(e, "weights").result.numbers[0]));
  EXPECT_NE(render_text(e, {}).find("nan"), std::string::npos);
}

TEST(Explain, EachHeadIsASeparateAttention) {
  ExplainInput both = love();
  both.settings.query.clear();
  both.settings.heads = 3;
  both.matrices.push_back({"b_value", matrix_of({{10, 20, 30}})});
  both.matrices.push_back({"W_output", matrix_of({{1, 0}, {0, 1}, {1, 1}})});
  both.matrices.push_back({"b_output", matrix_of({{0.5, -0.5}})});
  const Explanation e = explain(both);
  EXPECT_EQ(names(e), "input queries keys values scores weights context joined output ");
  const Step& weights = step(e, "weights");
  EXPECT_EQ(weights.result.num_heads, 3);
  for (Index h = 0; h < 3; ++h) {
    ExplainInput one;
    const auto column = [&](const char* name) {
      Matrix m;
      m.num_rows = 3;
      m.num_columns = 1;
      for (Index r = 0; r < 3; ++r)
        m.numbers.push_back(step(e, name).result.numbers[step(e, name).result.index(h, r, 0)]);
      return m;
    };
    one.matrices = {{"Q", column("queries")}, {"K", column("keys")}, {"V", column("values")}};
    one.settings.scale.rule = ScaleRule::none;
    const Explanation alone = explain(one);
    for (Index r = 0; r < 3; ++r) {
      for (Index c = 0; c < 3; ++c)
        EXPECT_EQ(weights.result.numbers[weights.result.index(h, r, c)],
                  step(alone, "weights").result.numbers[static_cast<std::size_t>(3 * r + c)]);
      EXPECT_EQ(step(e, "joined").result.numbers[static_cast<std::size_t>(3 * r + h)],
                step(alone, "context").result.numbers[static_cast<std::size_t>(r)]);
    }
  }
  const std::vector<double>& joined = step(e, "joined").result.numbers;
  const std::vector<double>& output = step(e, "output").result.numbers;
  EXPECT_NEAR(output[0], joined[0] + joined[2] + 0.5, 1e-13);
  EXPECT_NEAR(output[1], joined[1] + joined[2] - 0.5, 1e-13);
}

TEST(Explain, Float32RoundsEachStep) {
  ExplainInput in = love();
  in.settings.dtype = ElementType::float32;
  const Explanation e = explain(in);
  for (const Step& s : e.steps)
    for (double x : s.result.numbers) EXPECT_EQ(x, static_cast<double>(static_cast<float>(x))) << s.name;
  EXPECT_NEAR(step(e, "weights").result.numbers[3], 0.4223188, 1e-7);
  in.settings.dtype = ElementType::bfloat16;
  EXPECT_EQ(rejection(in), "dtype is bfloat16; it must be float32 or float64");
}

TEST(Explain, ExpandsCells) {
  const Explanation e = explain(love());
  const CellDerivation score = expand_cell(e, step(e, "scores"), {.row = 0, .column = 2}, 4);
  EXPECT_EQ(score.what, "S[I, coding]");
  ASSERT_EQ(score.terms.size(), 3u);
  EXPECT_EQ(score.terms[2].label, "Q[I, 2] · K[coding, 2]");
  EXPECT_EQ(score.terms[2].factors, (std::vector<double>{2, 2}));
  EXPECT_EQ(score.terms[0].partial_sum, 2);
  EXPECT_EQ(score.terms[1].partial_sum, 3);
  EXPECT_EQ(score.terms[2].partial_sum, 7);
  EXPECT_EQ(score.result, 7);
  EXPECT_EQ(score.difference, 0);

  const CellDerivation weight = expand_cell(e, step(e, "weights"), {.row = 1, .column = 1}, 4);
  ASSERT_EQ(weight.terms.size(), 3u);
  EXPECT_NEAR(weight.terms[1].product, std::exp(-1.0), 1e-15);
  EXPECT_NEAR(weight.terms[2].partial_sum, 2 + std::exp(-1.0), 1e-15);
  ASSERT_EQ(weight.lines.size(), 4u);
  EXPECT_EQ(weight.lines[1].text, "e^(0 − 1) = 0.3679");
  EXPECT_EQ(weight.lines[3].text, "0.3679 / 2.3679 = 0.1554");

  const CellDerivation context = expand_cell(e, step(e, "context"), {.row = 1, .column = 1}, 4);
  EXPECT_EQ(context.terms[2].label, "A[love, coding] · V[coding, 1]");
  EXPECT_EQ(context.terms[2].factors[1], 4);
  EXPECT_NEAR(context.terms[2].partial_sum, context.result, 1e-15);
  EXPECT_THROW(expand_cell(e, step(e, "scores"), {.row = 3, .column = 0}, 4), std::invalid_argument);
  EXPECT_THROW(expand_cell(e, step(e, "scores"), {.row = 0, .column = 0, .head = 1}, 4), std::invalid_argument);
}

TEST(Explain, ParenthesizesANegativeLargestScore) {
  ExplainInput in = love();
  for (double& number : in.matrices[2].matrix.numbers) number = -number;
  const Explanation e = explain(in);
  const CellDerivation weight = expand_cell(e, step(e, "weights"), {.row = 0, .column = 0}, 4);
  EXPECT_EQ(weight.terms[0].label, "e^(−5 − (−2)), I");
  EXPECT_EQ(weight.lines[0].text, "−2");
  EXPECT_EQ(weight.lines[1].text, "e^(−5 − (−2)) = 0.0498");
}

TEST(Explain, ExpandsPaperCells) {
  ExplainInput in = by_hand();
  in.settings.scale.rule = ScaleRule::floor_half;
  in.settings.softmax_base = 3;
  const Explanation e = explain(in);
  EXPECT_EQ(expand_cell(e, step(e, "scaled"), {.row = 0, .column = 0}, 4).lines[0].text,
            "floor(3 / 2) = floor(1.5) = 1");
  EXPECT_EQ(expand_cell(e, step(e, "exponentials"), {.row = 1, .column = 0}, 4).lines[0].text, "3^(2) = 9");
  EXPECT_EQ(expand_cell(e, step(e, "weights"), {.row = 1, .column = 0}, 4).lines[0].text, "9 / 15.3333 = 0.5870");
  const CellDerivation score = expand_cell(e, step(e, "scores"), {.row = 1, .column = 3}, 4);
  EXPECT_EQ(score.terms[0].label, "K[0, 1] · Q[0, 3]");
  EXPECT_EQ(score.terms.back().partial_sum, 5);
}

std::string line(const CellDerivation& work, std::string_view name) {
  for (const NamedText& l : work.lines)
    if (l.name == name) return l.text;
  return "no line";
}

TEST(Explain, ExpandsStepsAroundAttention) {
  const ExplainInput in = read_explain_input(R"({"T": [[1, 2], [3, 4]], "steps": [
    {"operation": "show", "operands": ["T"], "result": "T", "heads": 2},
    {"operation": "join", "operands": ["T"], "result": "J"},
    {"operation": "variances", "operands": ["J", "T"], "result": "var"},
    {"operation": "cosine", "operands": ["J", "J"], "result": "cos"},
    {"operation": "add", "operands": ["J", "J"], "result": "T2"},
    {"operation": "normalize", "operands": ["T2"], "result": "N"},
    {"operation": "relu", "operands": ["N"], "result": "R"},
    {"operation": "difference", "operands": ["J", "J"], "transpose": "right", "result": "D"},
    {"operation": "ranks", "operands": ["J"], "result": "P"},
    {"operation": "variance_rule", "operands": ["J", "J", "T2"], "result": "rule"}]})",
                                             "in.json");
  const Explanation e = explain(in);
  const auto cell = [&](std::string_view name, Index row, Index column, Index head = 0) {
    return expand_cell(e, step(e, name), {row, column, head}, 4);
  };
  EXPECT_EQ(line(cell("show", 1, 0, 1), "given"), "T[1, 1] = 4");
  EXPECT_EQ(line(cell("join", 1, 1), "head 1"), "T[1, 0] = 4");
  EXPECT_EQ(line(cell("join", 1, 0), "head 0"), "T[1, 0] = 3");

  const CellDerivation variance = cell("variances", 0, 0);
  ASSERT_EQ(variance.terms.size(), 4u);
  EXPECT_EQ(variance.terms[3].label, "(J[1, 1] − 2.5)²");
  EXPECT_EQ(variance.terms[3].product, 2.25);
  EXPECT_EQ(variance.terms[3].partial_sum, 5);
  EXPECT_EQ(line(variance, "mean"), "10 / 4 = 2.5");
  EXPECT_EQ(line(variance, "variance"), "5 / 4 = 1.25");
  EXPECT_EQ(cell("variances", 1, 0).terms[2].label, "(T[1, 0, 0] − 2.5)²");

  const CellDerivation cosine = cell("cosine", 0, 1);
  ASSERT_EQ(cosine.terms.size(), 2u);
  EXPECT_EQ(cosine.terms[1].label, "J[0, 1] · J[1, 1]");
  EXPECT_EQ(cosine.terms[1].factors, (std::vector<double>{2, 4}));
  EXPECT_EQ(cosine.terms[1].partial_sum, 11);
  EXPECT_EQ(line(cosine, "|q|"), "√5 = 2.2361");
  EXPECT_EQ(line(cosine, "|k|"), "√25 = 5");
  EXPECT_EQ(line(cosine, "cosine"), "11 / (2.2361 · 5) = 0.9839");

  const CellDerivation normalized = cell("normalize", 1, 0);
  EXPECT_EQ(normalized.terms[0].label, "(T2[1, 0] − 7)²");
  EXPECT_EQ(normalized.terms[1].partial_sum, 2);
  EXPECT_EQ(line(normalized, "mean"), "14 / 2 = 7");
  EXPECT_EQ(line(normalized, "variance"), "2 / 2 = 1");
  EXPECT_EQ(line(normalized, "normalized"), "(6 − 7) / 1 = −1");
  EXPECT_EQ(line(cell("relu", 1, 0), "rectified"), "max(0, −1) = 0");
  EXPECT_EQ(line(cell("difference", 0, 1), "difference"), "2 − 3 = −1");
  EXPECT_EQ(line(cell("ranks", 0, 0), "rank"), "2: 1 of the 2 keys has a larger score");
  EXPECT_EQ(line(cell("variance_rule", 0, 0), "rule"), "2 · 1.25 · 1.25 = 3.125");
  EXPECT_EQ(line(cell("variance_rule", 1, 0), "variance"), "20 / 4 = 5");
}

TEST(Explain, ExpandsMasksAndRatios) {
  ExplainInput in;
  in.tokens = {"b", "c"};
  in.key_tokens = {"a", "b", "c"};
  in.matrices = {{"Q", matrix_of({{1}, {2}})}, {"K", matrix_of({{1}, {2}, {5}})}, {"V", matrix_of({{1}, {2}, {3}})}};
  in.settings.causal.rule = CausalRule::bottom_right;
  in.settings.scale.rule = ScaleRule::none;
  in.steps = {
      {.operation = Operation::mask, .operands = {"Q", "K"}, .result = "M"},
      {.operation = Operation::masked, .operands = {"Q", "K"}, .result = "S"},
      {.operation = Operation::ratio, .operands = {"S"}, .result = "R"},
      {.operation = Operation::softmax, .operands = {"S"}, .result = "A"},
      {.operation = Operation::mask, .operands = {"Q", "K"}, .result = "M0", .name = "open", .causal = Causal{}},
      {.operation = Operation::masked, .operands = {"Q", "K"}, .result = "S0", .name = "seen", .causal = Causal{}},
      {.operation = Operation::product, .operands = {"R", "V"}, .result = "C"}};
  for (const Layout layout : {Layout::rows, Layout::columns}) {
    if (layout == Layout::columns) {
      in.settings.layout = layout;
      for (NamedMatrix& named : in.matrices) named.matrix = transposed(named.matrix);
      in.steps.back().operands = {"V", "R"};
    }
    const Explanation e = explain(in);
    const auto cell = [&](std::string_view name, Index query, Index key) {
      return expand_cell(e, step(e, name), layout == Layout::rows ? Cell{query, key} : Cell{key, query}, 4);
    };
    EXPECT_EQ(line(cell("mask", 0, 2), "hidden"), "key 2 > 0 + 1: −∞ is added to the score");
    EXPECT_EQ(line(cell("mask", 0, 1), "visible"), "key 1 ≤ 0 + 1: 0 is added to the score");
    EXPECT_EQ(line(cell("masked", 0, 2), "hidden"), "key 2 > 0 + 1: the score becomes −∞");
    EXPECT_EQ(line(cell("open", 0, 2), "visible"), "every key is visible: 0 is added to the score");
    EXPECT_EQ(line(cell("seen", 0, 2), "visible"), "every key is visible: the score is unchanged");
    const CellDerivation ratio = cell("ratio", 1, 2);
    ASSERT_EQ(ratio.terms.size(), 3u);
    EXPECT_EQ(ratio.terms[2].label, "S[c, c]");
    EXPECT_EQ(ratio.terms[1].partial_sum, 6);
    EXPECT_EQ(ratio.difference, 0);
    EXPECT_EQ(line(ratio, "share"), "10 / 16 = 0.625");
    const CellDerivation masked = cell("ratio", 0, 1);
    EXPECT_EQ(masked.terms.size(), 2u);
    EXPECT_EQ(masked.terms[0].label, layout == Layout::rows ? "S[b, a]" : "S[a, b]");
    EXPECT_EQ(line(masked, "share"), "2 / 3 = 0.6667");
    EXPECT_EQ(line(cell("ratio", 0, 2), "hidden"), "the mask hides this key: weight 0");
    const CellDerivation share = cell("softmax", 0, 0);
    ASSERT_EQ(share.terms.size(), 2u);
    EXPECT_EQ(line(share, "exponential"), "e^(1 − 2) = 0.3679");
    EXPECT_EQ(line(share, "share"), "0.3679 / 1.3679 = 0.2689");
  }
}

TEST(Explain, ExpandsTinyNumbersByTheirPowerOfTen) {
  ExplainInput in;
  in.matrices = {{"Q", matrix_of({{1}})}, {"K", matrix_of({{0}, {30}})}, {"V", matrix_of({{1}, {2}})}};
  in.settings.scale.rule = ScaleRule::none;
  const Explanation e = explain(in);
  EXPECT_EQ(line(expand_cell(e, step(e, "weights"), {.row = 0, .column = 0}, 4), "share"),
            "9.358e−14 / 1.0000 = 9.358e−14");
}

TEST(Explain, MarksWhereADocumentDiffers) {
  ExplainInput in = love();
  in.expected["weights"] = {.numbers = matrix_of({{0.4223188, 0.1553624, 0.4223189}}), .digits = 7, .rows = {1}};
  const Explanation e = explain(in);
  EXPECT_EQ(step(e, "weights").differs, (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 1, 0, 0, 0}));
  in.expected["weights"].rows = {};
  EXPECT_EQ(rejection(in), "step weights: the expected values are 1 × 1 × 3, but the result is 1 × 3 × 3");
  in.expected["weights"] = {
      .numbers = matrix_of({{0.1553624}, {0.4223188}}), .digits = 7, .rows = {1, 1}, .columns = {1, 0}};
  EXPECT_EQ(rejection(in), "step weights: the expected values are 1 × 2 × 1, but the result is 1 × 2 × 2");
  in.expected["weights"] = {.numbers = matrix_of({{0.1553624, 0.5}}), .digits = 7, .rows = {1}, .columns = {1, 0}};
  EXPECT_EQ(step(explain(in), "weights").differs, (std::vector<std::uint8_t>{0, 0, 0, 1, 0, 0, 0, 0, 0}));
  in.expected["weights"].columns = {1, 3};
  EXPECT_EQ(rejection(in), "step weights: expected column 3 does not exist");
  in.expected = {{"wieghts", {}}};
  EXPECT_EQ(rejection(in), "expected names step \"wieghts\", which does not exist");
}

TEST(Explain, ComputesVariantsOfEachStep) {
  ExplainInput in = love();
  Variant scaled{.label = "with √3", .settings = in.settings};
  scaled.settings.scale.rule = ScaleRule::sqrt;
  in.variants = {scaled};
  const Explanation e = explain(in);
  EXPECT_TRUE(step(e, "scores").variants.empty());
  ASSERT_EQ(step(e, "weights").variants.size(), 1u);
  EXPECT_NEAR(step(e, "weights").variants[0].result.numbers[3], 1 / (2 + std::exp(-1 / std::sqrt(3.0))), 1e-15);
}

TEST(Explain, RunsTheStepsOfTheInput) {
  const ExplainInput in = read_explain_input(R"({"T": [[1, 2], [3, 4]], "steps": [
    {"operation": "product", "operands": ["T", "T"], "transpose": "right", "result": "S", "name": "naive"},
    {"operation": "product", "operands": ["S", "T"], "result": "Y", "name": "mixed"},
    {"operation": "mix", "operands": ["T"], "numbers": [0.5, 0.5, 1, 0], "result": "M"},
    {"operation": "variances", "operands": ["T", "S"], "result": "var"},
    {"operation": "cosine", "operands": ["T", "T"], "result": "cos"},
    {"operation": "add", "operands": ["T", "T"], "result": "T2"},
    {"operation": "normalize", "operands": ["T2"], "result": "N"},
    {"operation": "relu", "operands": ["N"], "result": "R"}]})",
                                             "in.json");
  const Explanation e = explain(in);
  EXPECT_EQ(names(e), "naive mixed mix variances cosine add normalize relu ");
  EXPECT_EQ(e.steps[0].result.numbers, (std::vector<double>{5, 11, 11, 25}));
  EXPECT_EQ(e.steps[0].equation, "S = T · Tᵀ");
  EXPECT_EQ(e.steps[1].result.numbers, (std::vector<double>{38, 54, 86, 122}));
  EXPECT_EQ(e.steps[2].result.numbers, (std::vector<double>{2, 3, 1, 2}));
  EXPECT_EQ(e.steps[3].result.numbers, (std::vector<double>{1.25, 54}));
  EXPECT_NEAR(e.steps[4].result.numbers[1], 11 / std::sqrt(125.0), 1e-15);
  EXPECT_EQ(e.steps[5].result.numbers, (std::vector<double>{2, 4, 6, 8}));
  EXPECT_EQ(e.steps[6].result.numbers, (std::vector<double>{-1, 1, -1, 1}));
  EXPECT_EQ(e.steps[7].result.numbers, (std::vector<double>{0, 1, 0, 1}));
}

TEST(Explain, RejectsInvalidInputs) {
  ExplainInput in = love();
  in.matrices.erase(in.matrices.begin() + 2);
  EXPECT_EQ(rejection(in), "matrix W_key is missing; give X, W_query, W_key and W_value, or Q, K and V");
  in = love();
  in.matrices.push_back({"W_qurey", matrix_of({{1}})});
  EXPECT_EQ(rejection(in).substr(0, 38), "matrix W_qurey is not used by any step");
  in = love();
  in.matrices[1].matrix = matrix_of({{1, 2}});
  EXPECT_EQ(rejection(in), "step queries: X is 3 × 3 and W_query is 1 × 2: W_query must have 3 rows");
  in = love();
  in.matrices[2].matrix = matrix_of({{1}, {2}, {3}});
  EXPECT_EQ(rejection(in), "step scores: Q is 3 × 3 and K is 3 × 1: queries and keys must have the same head size");
  in = love();
  in.tokens.pop_back();
  EXPECT_EQ(rejection(in), "the length of tokens is 2, but X has 3 rows");
  in = love();
  in.settings.heads = 2;
  EXPECT_EQ(rejection(in), "step queries: 3 dimensions cannot be split into 2 heads");
  in.steps = {{.operation = Operation::show, .operands = {"X"}}};
  EXPECT_EQ(rejection(in),
            "heads is 2, but the input lists its own steps; set heads in the steps with the operation linear or show "
            "instead");
  in = love();
  in.steps = {{.operation = Operation::relu, .operands = {"Y"}}};
  EXPECT_EQ(rejection(in), "step relu: matrix Y is not defined before this step");
  in.steps = {{.operation = Operation::relu, .operands = {"X", "X"}}};
  EXPECT_EQ(rejection(in), "step relu: operation relu takes 1 operands, not 2");
  in.steps = {{.operation = Operation::relu, .operands = {"X"}}};
  EXPECT_EQ(rejection(in), "matrix W_query is not used by any step");
  EXPECT_EQ(rejection(ExplainInput{}), "matrix Q is missing; give X, W_query, W_key and W_value, or Q, K and V");
}

TEST(Explain, KeepsOnlyChosenRowsOfALongSequence) {
  const Index tokens = regard::test_size<Index>(100000, 20000), half = tokens / 2;
  ExplainInput in;
  Matrix column;
  column.num_rows = tokens;
  column.num_columns = 1;
  for (Index i = 0; i < tokens; ++i) column.numbers.push_back(static_cast<double>(i % 3));
  in.matrices = {{"Q", column}, {"K", column}, {"V", column}};
  in.settings.causal.rule = CausalRule::top_left;
  in.settings.query = "@" + std::to_string(half);
  const Explanation e = explain(in, {.also = {777}});
  const Matrix& weights = step(e, "weights").result;
  EXPECT_EQ(weights.num_rows, tokens);
  EXPECT_EQ(weights.kept_rows,
            (std::vector<Index>{0, 1, 2, 3, 4, 5, 6, 7, 777, half, tokens - 8, tokens - 7, tokens - 6, tokens - 5,
                                tokens - 4, tokens - 3, tokens - 2, tokens - 1}));
  // Query 777 is 0: its weights on 778 keys are equal.
  EXPECT_NEAR(weights.numbers[weights.index(0, 8, 777)], 1.0 / 778, 1e-15);
  EXPECT_EQ(weights.numbers[weights.index(0, 8, 778)], 0.0);
  EXPECT_EQ(weights.hidden[weights.index(0, 8, 778)], 1);
  EXPECT_NEAR(step(e, "context").result.numbers[8], 777.0 / 778, 1e-12);
  const std::string text = render_text(e, {});
  EXPECT_LT(text.size(), 40000u);
  EXPECT_NE(text.find("of " + std::to_string(tokens) + " rows"), std::string::npos);
  EXPECT_THROW(expand_cell(e, step(e, "weights"), {.row = 100, .column = 0}, 4), std::invalid_argument);
}

TEST(Explain, SplitsChosenRowsOfALongSequence) {
  constexpr Index kTokens = 5000;
  ExplainInput in;
  Matrix column;
  column.num_rows = kTokens;
  column.num_columns = 1;
  column.numbers.assign(static_cast<std::size_t>(kTokens), 0.0);
  Matrix value;
  value.num_rows = kTokens;
  value.num_columns = 2;
  for (Index i = 0; i < kTokens; ++i) value.numbers.insert(value.numbers.end(), {static_cast<double>(i), 1.0});
  in.matrices = {{"Q", column}, {"K", column}, {"V", value}, {"W", matrix_of({{1, 0}, {0, 2}})}};
  in.settings.causal.rule = CausalRule::top_left;
  in.steps = {{.operation = Operation::context, .operands = {"Q", "K", "V"}, .result = "C"},
              {.operation = Operation::show, .operands = {"C"}, .result = "S", .heads = 2},
              {.operation = Operation::linear, .operands = {"C", "W"}, .result = "L", .heads = 2},
              {.operation = Operation::join, .operands = {"S"}, .result = "J"}};
  for (const Layout layout : {Layout::rows, Layout::columns}) {
    if (layout == Layout::columns) {
      in.settings.layout = layout;
      for (NamedMatrix& named : in.matrices) named.matrix = transposed(named.matrix);
    }
    const Explanation e = explain(in);
    // All scores are 0: each query's context is the mean of the visible values.
    const auto number = [&](std::string_view name, Index head, Index row) {
      const Matrix& m = step(e, name).result;
      const std::vector<Index>& kept = layout == Layout::rows ? m.kept_rows : m.kept_columns;
      EXPECT_EQ(kept[static_cast<std::size_t>(row)], row < 8 ? row : kTokens - 8 + (row - 8)) << name;
      return m.numbers[layout == Layout::rows ? m.index(head, row, 0) : m.index(head, 0, row)];
    };
    EXPECT_NEAR(number("show", 0, 15), (kTokens - 1) / 2.0, 1e-9);
    EXPECT_NEAR(number("show", 1, 15), 1, 1e-12);
    EXPECT_NEAR(number("show", 0, 3), 1.5, 1e-12);
    EXPECT_NEAR(number("linear", 1, 3), 2, 1e-12);
    EXPECT_NEAR(number("linear", 0, 15), (kTokens - 1) / 2.0, 1e-9);
    EXPECT_EQ(step(e, "join").result.numbers, step(e, "context").result.numbers);
  }
}

TEST(Explain, ExportExplainsToTheSameSteps) {
  ExplainInput in = love();
  in.settings.causal = {.rule = CausalRule::number, .offset = 1};
  in.settings.softmax_base = 3;
  in.notes["weights"] = {"a note"};
  in.expected["scores"] = {.numbers = matrix_of({{1, 1}}), .digits = 0, .rows = {1}, .columns = {0, 2}};
  const std::string before = render_json(explain(in), {});
  const std::string after = render_json(explain(read_explain_input(write_explain_input(in), "export")), {});
  EXPECT_EQ(before, after);
  EXPECT_NE(before.find("a note"), std::string::npos);
}

}  // namespace
}  // namespace regard::explain_test
