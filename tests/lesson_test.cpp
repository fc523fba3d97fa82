// SPDX-License-Identifier: Apache-2.0
//
// The lessons against the numbers that their documents print, copied here as printed. Sources: the notebooks and
// articles named in each lesson's citation; for lesson roles chapter 3 of S. Raschka, "Build a Large Language Model
// (From Scratch)", ch03.ipynb; for lesson by-hand T. Yeh, AI by Hand, Self-Attention.xlsx, sheet "small", and fractions
// worked out by hand. A number must be within half a unit of the last printed digit, unless stated
// otherwise. Then: the list of lessons, their JSON, their other layout, and settings that depart from the document.
#include "regard/explain/lesson.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "support/rejection.h"
#include "support/test_size.h"

namespace regard::lesson_test {
namespace {

// Half a unit, and the rounding of the printed decimal itself.
constexpr double kHalf = 0.5 + 1e-6;

// Small tests replace the largest head size of why-scale, 4960, for which most of its numbers are drawn.
regard::ExplainInput input_of(const std::string& name) {
  regard::ExplainInput input = regard::lesson_input(name);
  for (regard::StepRequest& request : input.steps) {
    if (request.operation != Operation::scale_statistics) continue;
    request.numbers.back() = regard::test_size(request.numbers.back(), 256.0);
  }
  return input;
}

const Explanation& explained(const std::string& name) {
  static std::map<std::string, Explanation> all;
  const auto found = all.find(name);
  return found != all.end() ? found->second : all.emplace(name, regard::explain(input_of(name))).first->second;
}

const Step& step_of(const Explanation& explanation, const std::string& name) {
  for (const Step& step : explanation.steps) {
    if (step.name == name) return step;
  }
  throw std::runtime_error("no step " + name);
}

// The number at the end of a line of working.
double last_number(std::string text) {
  constexpr std::string_view kMinus = "−";
  text = text.substr(text.rfind(' ') + 1);
  if (text.starts_with(kMinus)) return -last_number(text.substr(kMinus.size()));
  return text == "∞" ? INFINITY : std::stod(text);
}

// Rows are separated by "/". Ours and theirs may differ by `units` of the last of `digits` decimals.
void expect_numbers(const std::string& lesson, const std::string& name, const std::string& printed, int digits,
                    double units = kHalf, std::vector<Index> rows = {}) {
  SCOPED_TRACE("lesson " + lesson + ", step " + name);
  const Step& step = step_of(explained(lesson), name);
  if (rows.empty()) {
    for (Index r = 0; r < step.result.num_rows; ++r) rows.push_back(r);
  }
  std::istringstream text(printed);
  std::string word;
  std::size_t row = 0;
  Index column = 0;
  while (text >> word) {
    if (word == "/") {
      ASSERT_EQ(column, step.result.num_columns);
      ++row;
      column = 0;
      continue;
    }
    ASSERT_LT(row, rows.size());
    ASSERT_LT(column, step.result.num_columns);
    const double ours = step.result.numbers[step.result.index(0, rows[row], column)];
    if (word == "-inf") {
      EXPECT_EQ(ours, -INFINITY);
    } else {
      EXPECT_NEAR(ours, std::stod(word), units * std::pow(10.0, -digits)) << "row " << rows[row] << ", " << column;
    }
    ++column;
  }
  EXPECT_EQ(row + 1, rows.size());
  EXPECT_EQ(column, step.result.num_columns);
}

TEST(LessonThreeWords, ReproducesEveryNumberOfTheDocument) {
  expect_numbers("three-words", "embeddings", "1 0 1 / 0 1 0 / 1 1 1", 0, 0);
  expect_numbers("three-words", "queries", "2 1 2 / 0 1 0 / 2 2 2", 0, 0);
  expect_numbers("three-words", "keys", "0 1 2 / 1 0 0 / 1 1 2", 0, 0);
  expect_numbers("three-words", "values", "2 3 1 / 0 1 0 / 2 4 1", 0, 0);
  expect_numbers("three-words", "scores", "1 0 1", 0, 0, {1});
  expect_numbers("three-words", "weights", "0.4223188 0.1553624 0.4223188", 8, kHalf, {1});
  expect_numbers("three-words", "context", "1.68927519 3.11159399 0.8446376", 8, kHalf, {1});
}

TEST(LessonThreeWords, ShowsAllThreeQueriesAndBothVectorsOfTheWord) {
  expect_numbers("three-words", "scores", "5 2 7 / 1 0 1 / 6 2 8", 0, 0);
  expect_numbers("three-words", "before-and-after", "0 1 0 / 0 1 0 / 1.68927519 3.11159399 0.8446376", 8);
}

TEST(LessonThreeWords, ComparesWithTheScaleThatTheDocumentLeavesOut) {
  for (const char* name : {"scaled", "weights", "context"}) {
    const Step& step = step_of(explained("three-words"), name);
    ASSERT_EQ(step.variants.size(), 1u) << name;
    EXPECT_EQ(step.variants[0].label, "with ÷√3");
  }
  // e^(1/√3) / (2 e^(1/√3) + 1), by hand.
  const double e = std::exp(1.0 / std::sqrt(3.0));
  const regard::Matrix& weights = step_of(explained("three-words"), "weights").variants[0].result;
  EXPECT_NEAR(weights.numbers[3], e / (2 * e + 1), 1e-14);
  EXPECT_NEAR(weights.numbers[4], 1 / (2 * e + 1), 1e-14);
  EXPECT_TRUE(step_of(explained("three-words"), "keys").variants.empty());
}

TEST(LessonRoles, ReproducesTheChaptersRowsWithoutMatrices) {
  expect_numbers("roles", "plain-scores", "0.9544 1.4950 1.4754 0.8434 0.7070 1.0865", 4, kHalf, {1});
  expect_numbers("roles", "plain-ratio", "0.1455 0.2278 0.2249 0.1285 0.1077 0.1656", 4, kHalf, {1});
  expect_numbers("roles", "plain-weights", "0.1385 0.2379 0.2333 0.1240 0.1082 0.1581", 4, kHalf, {1});
  expect_numbers("roles", "plain-context", "0.4419 0.6515 0.5683", 4, kHalf, {1});
}

TEST(LessonRoles, ReproducesTheChaptersRowsWithSeed123) {
  expect_numbers("roles", "queries", "0.4306 1.4551", 4, kHalf, {1});
  expect_numbers("roles", "scores", "1.2705 1.8524 1.8111 1.0795 0.5577 1.5440", 4, kHalf, {1});
  expect_numbers("roles", "weights", "0.1500 0.2264 0.2199 0.1311 0.0906 0.1820", 4, kHalf, {1});
  expect_numbers("roles", "context", "0.3061 0.8210", 4, kHalf, {1});
}

// Not that of the weights from another matrix, later on.
TEST(LessonRoles, FindingIsThatOfTheDocumentsWeights) {
  EXPECT_EQ(explained("roles").finding, step_of(explained("roles"), "weights").finding);
  EXPECT_EQ(explained("roles").finding, "“journey” attends most to “journey”: 0.2264 (uniform: 0.1667)");
  EXPECT_EQ(explained("by-hand").finding, "“x1” attends most to “x2”: 0.4590 (uniform: 0.2500)");
}

TEST(LessonRoles, AnotherQueryMatrixMovesTheLargestWeight) {
  const auto most_attended = [](const std::string& name) {
    const regard::Matrix& weights = step_of(explained("roles"), name).result;
    const auto row = weights.numbers.begin() + static_cast<std::ptrdiff_t>(weights.index(0, 1, 0));
    return std::max_element(row, row + 6) - row;
  };
  EXPECT_EQ(most_attended("weights"), 1);
  EXPECT_EQ(most_attended("other-weights"), 4);
}

TEST(LessonOneFunction, ReproducesEveryNumberOfTheDocument) {
  // From inputs that are themselves rounded to eight decimals.
  expect_numbers("one-function", "scores",
                 "0.5584545 -3.35153984 0.70533024 1.03421098 / 1.87361595 -0.12535484 3.52750914 0.62719536 / "
                 "-8.37572099 0.62481134 -0.31270199 1.5060436 / 2.39156799 -1.69717588 -0.57566407 -3.71359891",
                 8, 3 + kHalf);
  expect_numbers("one-function", "scaled",
                 "0.19744348 -1.18494828 0.2493719 0.3656488 / 0.66242327 -0.04431963 1.24716282 0.22174705 / "
                 "-2.96126456 0.22090417 -0.11055685 0.53246682 / 0.84554697 -0.60004229 -0.20352798 -1.31295549",
                 8, 1 + kHalf);
  expect_numbers("one-function", "mask", "0 -inf -inf -inf / 0 0 -inf -inf / 0 0 0 -inf / 0 0 0 0", 0, 0);
  expect_numbers("one-function", "masked",
                 "0.19744348 -inf -inf -inf / 0.66242327 -0.04431963 -inf -inf / "
                 "-2.96126456 0.22090417 -0.11055685 -inf / 0.84554697 -0.60004229 -0.20352798 -1.31295549",
                 8, 1 + kHalf);
  const std::string attention =
      "1 0 0 0 / 0.66968106 0.33031894 0 0 / 0.02358547 0.56838537 0.40802916 0 / "
      "0.58776275 0.13848114 0.20587072 0.06788539";
  for (const char* name : {"weights", "unshifted-weights", "shifted-at-1000"}) {
    expect_numbers("one-function", name, attention, 8, 1 + kHalf);
  }
  expect_numbers("one-function", "context",
                 "-2.33028699 0.41850626 1.57360937 0.13730874 0.85209484 0.65816785 -0.41211221 -0.0025269 / "
                 "-2.35489311 0.01073226 0.78231893 0.13865475 0.42967217 -0.09690355 -0.09211864 -0.31554853 / "
                 "-1.18941663 0.02206074 -0.73501088 -0.16634756 -0.02023404 -0.85551669 0.03142011 -0.69390214 / "
                 "-1.52017524 0.38293583 0.67771783 0.19193084 0.50039236 0.14997879 -0.33905113 -0.30067545",
                 8, 1 + kHalf);
}

TEST(LessonOneFunction, ReproducesVariancesToEightSignificantDigits) {
  const regard::Matrix& variances = step_of(explained("one-function"), "variances").result;
  const double scaled = step_of(explained("one-function"), "scaled-variance").result.numbers[0];
  const auto expect_digits = [](double ours, double printed) {
    EXPECT_NEAR(ours, printed, std::pow(10.0, std::floor(std::log10(printed)) - 7));
  };
  expect_digits(variances.numbers[0], 1.1902732818147692);
  expect_digits(variances.numbers[1], 0.7955736609453732);
  expect_digits(variances.numbers[2], 7.7092653269714475);
  expect_digits(scaled, 0.9636581658714307);
  EXPECT_NEAR(step_of(explained("one-function"), "variance-rule").result.numbers[0], 7.5756, 0.5e-4);
}

TEST(LessonOneFunction, SoftmaxWithoutTheShiftIsNanAtScoresOf1000) {
  const regard::Matrix& unshifted = step_of(explained("one-function"), "unshifted-at-1000").result;
  for (Index r = 0; r < 4; ++r) {
    for (Index c = 0; c <= r; ++c) EXPECT_TRUE(std::isnan(unshifted.numbers[unshifted.index(0, r, c)]));
  }
}

TEST(LessonOneFunction, WithoutAMaskAllRowsButTheLastChange) {
  const regard::Matrix& masked = step_of(explained("one-function"), "weights").result;
  const regard::Matrix& full = step_of(explained("one-function"), "weights-without-mask").result;
  EXPECT_TRUE(full.hidden.empty());
  for (std::size_t i = 12; i < 16; ++i) EXPECT_EQ(masked.numbers[i], full.numbers[i]);
  EXPECT_LT(full.numbers[0], 0.5);
}

TEST(LessonFromSeed, ReproducesEveryNumberOfTheDocument) {
  expect_numbers("from-seed", "tokens",
                 "0.3367 0.1288 0.2345 0.2303 -1.1229 / -0.1863 2.2082 -0.6380 0.4617 0.2674 / "
                 "0.5349 0.8094 1.1103 -1.6898 -0.9890",
                 4);
  expect_numbers("from-seed", "halves", "0.0752 1.1685 -0.2018 0.3460 -0.4278", 4);
  expect_numbers("from-seed", "thirds", "0.2284 1.0488 0.2356 -0.3326 -0.6148", 4);
  expect_numbers("from-seed", "naive-scores", "1.4988 -0.1217 1.2659 / -0.1217 5.6025 -0.0653 / 1.2659 -0.0653 6.0074",
                 4);
  expect_numbers("from-seed", "naive-context",
                 "1.2045 0.9488 1.8346 -1.8501 -2.9674 / -1.1198 12.3029 -3.6754 2.6688 1.6991 / "
                 "3.6518 4.8810 7.0084 -9.8898 -7.3800",
                 4);
  expect_numbers("from-seed", "keys",
                 "0.6023 -0.7260 1.1799 0.2383 / -0.6521 4.4224 -3.7460 -1.2657 / -0.7106 -4.3429 4.2984 -2.3664", 4);
  expect_numbers("from-seed", "queries",
                 "-1.6964 1.3355 -0.5133 0.0674 / 1.6595 -0.4445 -0.1917 1.7729 / -0.1650 -2.9899 -3.8893 1.2756", 4);
  expect_numbers("from-seed", "scores", "-2.5809 8.8498 -6.9600 / 1.5185 -4.5739 -4.2686 / -2.2135 -0.1601 -6.6347", 4);
  expect_numbers("from-seed", "scaled", "-1.2905 4.4249 -3.4800 / 0.7593 -2.2869 -2.1343 / -1.1067 -0.0801 -3.3173", 4);
  expect_numbers("from-seed", "masked", "-1.2905 -inf -inf / 0.7593 -2.2869 -inf / -1.1067 -0.0801 -3.3173", 4);
  expect_numbers("from-seed", "weights", "1.0000 0.0000 0.0000 / 0.9546 0.0454 0.0000 / 0.2563 0.7156 0.0281", 4);
  expect_numbers("from-seed", "values",
                 "-0.9285 0.3301 1.8359 -1.3448 / 0.4676 -0.1512 -0.5678 0.8648 / 0.6143 2.6772 -1.3256 -3.2423", 4);
  expect_numbers("from-seed", "context",
                 "-0.9285 0.3301 1.8359 -1.3448 / -0.8652 0.3082 1.7268 -1.2445 / 0.1138 0.0517 0.0270 0.1831", 4);
}

TEST(LessonFromSeed, ReproducesTheLongPrintByTheTwoNamedOrders) {
  const std::vector<double> printed = {1.4987846612930298,   -0.12174583971500397, 1.265914797782898,
                                       -0.12174582481384277, 5.602515697479248,    -0.06531322002410889,
                                       1.2659146785736084,   -0.06531322002410889, 6.007389068603516};
  const std::vector<double>& ours = step_of(explained("from-seed"), "long-print").result.numbers;
  // The document prints the shortest decimal that identifies a float32.
  ASSERT_EQ(ours.size(), printed.size());
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(ours[i], static_cast<double>(static_cast<float>(printed[i]))) << i;
  const Step& table = step_of(explained("from-seed"), "cell-by-cell");
  for (Index i = 0; i < 9; ++i) {
    EXPECT_EQ(table.result.numbers[table.result.index(0, i, 2)], ours[static_cast<std::size_t>(i)]);
  }
}

TEST(LessonFromSeed, KernelIsWithinFourUlpsOfTheLongPrint) {
  const regard::Matrix& ulps = step_of(explained("from-seed"), "last-place").result;
  for (Index i = 0; i < 9; ++i) EXPECT_LE(std::fabs(ulps.numbers[ulps.index(0, i, 2)]), 4.0) << "cell " << i;
}

TEST(LessonFromSeed, ACellOfTheLongPrintExpandsInItsOrder) {
  const Explanation& lesson = explained("from-seed");
  const Step& step = step_of(lesson, "long-print");
  const auto names_of = [&](Index row, Index column) {
    std::vector<std::string> names;
    const regard::CellDerivation work = regard::expand_cell(lesson, step, {.row = row, .column = column}, 8);
    for (const regard::NamedText& line : work.lines) names.push_back(line.name);
    EXPECT_FLOAT_EQ(static_cast<float>(last_number(work.lines.back().text)), static_cast<float>(work.result));
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names_of(0, 1), (Names{"p0", "p1", "p2", "p3", "p4", "with p1", "with p2", "with p3", "with p4"}));
  EXPECT_EQ(names_of(1, 0), (Names{"p0", "p1", "p2", "p3", "p4", "p0 + p2", "p3 + p4", "both", "and p1"}));
}

TEST(LessonFromSeed, NaiveScoresAreSymmetricAndScoresAreNot) {
  for (double number : step_of(explained("from-seed"), "naive-symmetry").result.numbers) EXPECT_EQ(number, 0.0);
  EXPECT_GT(std::fabs(step_of(explained("from-seed"), "symmetry").result.numbers[1]), 1.0);
}

TEST(LessonByHand, ReproducesEveryNumberOfTheWorksheet) {
  expect_numbers("by-hand", "features", "2 0 0 2 / 0 1 0 0 / 0 2 1 0 / 0 0 1 1 / 2 0 0 0 / 1 0 1 1", 0, 0);
  expect_numbers("by-hand", "queries", "2 1 0 2 / 0 1 1 1 / 3 2 2 1", 0, 0);
  expect_numbers("by-hand", "keys", "0 2 1 0 / 0 1 0 0 / 1 0 -1 1", 0, 0);
  expect_numbers("by-hand", "values", "20 0 0 20 / 0 0 10 10 / 0 10 0 0", 0, 0);
  expect_numbers("by-hand", "scores", "3 2 2 1 / 4 3 1 5 / -1 -1 -2 1 / 3 2 2 1", 0, 0);
  expect_numbers("by-hand", "floored", "1 1 1 0 / 2 1 0 2 / -1 -1 -1 0 / 1 1 1 0", 0, 0);
  expect_numbers("by-hand", "weights",
                 "0.2577 0.2526 0.3758 0.0765 / 0.4590 0.4500 0.2110 0.7704 / 0.0256 0.0447 0.0373 0.0765 / "
                 "0.2577 0.2526 0.3758 0.0765",
                 4);
  expect_numbers("by-hand", "context",
                 "10.3076 10.1055 15.0336 3.0608 / 2.8328 2.9733 4.1317 1.5304 / 4.5903 4.5003 2.1099 7.7044", 4);
  expect_numbers("by-hand", "hand-context",
                 "7.8261 12.8571 16.3636 3.3333 / 2.1739 3.5714 4.5455 1.6667 / 5.8696 3.2143 1.3636 7.5", 4);
}

TEST(LessonByHand, FractionsAreThoseComputedByHand) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(step_of(explained("by-hand"), "powers").exact,
            (Texts{"3", "3", "3", "1", "9", "3", "1", "9", "1/3", "1/3", "1/3", "1", "3", "3", "3", "1"}));
  EXPECT_EQ(step_of(explained("by-hand"), "column-sums").exact, (Texts{"46/3", "28/3", "22/3", "12"}));
  // (9 27 1 9)/46, (9 9 1 9)/28, (9 3 1 9)/22, (1 9 1 1)/12 by column.
  EXPECT_EQ(step_of(explained("by-hand"), "hand-weights").exact,
            (Texts{"9/46", "9/28", "9/22", "1/12", "27/46", "9/28", "3/22", "3/4", "1/46", "1/28", "1/22", "1/12",
                   "9/46", "9/28", "9/22", "1/12"}));
  EXPECT_EQ(
      step_of(explained("by-hand"), "hand-context").exact,
      (Texts{"180/23", "90/7", "180/11", "10/3", "50/23", "25/7", "50/11", "5/3", "135/23", "45/14", "15/11", "15/2"}));
}

TEST(LessonByHand, CosinesRankTheKeysOfQ1DifferentlyFromDotProducts) {
  const auto column_of_q1 = [](const std::string& name) {
    const regard::Matrix& matrix = step_of(explained("by-hand"), name).result;
    std::vector<double> column;
    for (Index r = 0; r < 4; ++r) column.push_back(matrix.numbers[matrix.index(0, r, 0)]);
    return column;
  };
  const std::vector<double> cosines = column_of_q1("cosines");
  const std::vector<double> printed = {.832, .496, -.196, .832};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(cosines[i], printed[i], 0.5e-3);
  EXPECT_EQ(column_of_q1("scores"), (std::vector<double>{3, 4, -1, 3}));
  EXPECT_EQ(column_of_q1("ranks-of-dots"), (std::vector<double>{2, 1, 4, 2}));
  EXPECT_EQ(column_of_q1("ranks-of-cosines"), (std::vector<double>{1, 3, 4, 1}));
}

TEST(LessonByHand, AttentionMixesPositionsFeedForwardDoesNot) {
  regard::ExplainInput changed = regard::lesson_input("by-hand");
  for (regard::StepRequest& request : changed.steps) request.expected.reset();
  changed.matrices[0].matrix.numbers[3] += 1.0;  // one feature of x4
  const Explanation after = regard::explain(changed);
  const auto columns_moved = [&](const Step& a, const Step& b) {
    std::vector<bool> moved(4);
    for (Index r = 0; r < a.result.num_rows; ++r) {
      for (Index c = 0; c < 4; ++c) {
        const std::size_t i = a.result.index(0, r, c);
        if (a.result.numbers[i] != b.result.numbers[i]) moved[static_cast<std::size_t>(c)] = true;
      }
    }
    return moved;
  };
  EXPECT_EQ(columns_moved(step_of(explained("by-hand"), "output"), step_of(after, "output")),
            (std::vector<bool>{true, true, true, true}));
  // The feed-forward part alone, on X instead of N: only the column of x4 changes.
  const auto feed_forward = [](regard::ExplainInput input) {
    std::erase_if(input.matrices,
                  [](const regard::NamedMatrix& m) { return m.name != "X" && m.name != "W_1" && m.name != "W_2"; });
    input.steps = {{.operation = Operation::linear, .operands = {"X", "W_1"}, .result = "H"},
                   {.operation = Operation::relu, .operands = {"H"}, .result = "H⁺"},
                   {.operation = Operation::linear, .operands = {"H⁺", "W_2"}, .result = "F", .name = "feed-forward"}};
    return regard::explain(input);
  };
  EXPECT_EQ(columns_moved(step_of(feed_forward(regard::lesson_input("by-hand")), "feed-forward"),
                          step_of(feed_forward(changed), "feed-forward")),
            (std::vector<bool>{false, false, false, true}));
}

TEST(LessonWhyScale, DividingKeepsVarianceAndSlopeConstant) {
  const Explanation lesson = regard::explain(regard::lesson_input("why-scale"));
  const regard::Matrix& measured = step_of(lesson, "statistics").result;
  const std::vector<double> head_sizes = {3, 8, 32, 64, 128, 4960};
  ASSERT_EQ(measured.num_rows, 6);
  for (Index r = 0; r < 6; ++r) {
    const double head_size = head_sizes[static_cast<std::size_t>(r)];
    const auto at = [&](Index column) { return measured.numbers[measured.index(0, r, column)]; };
    // 2560 products, ten of which share a query: a spread of (2 + 10 · 2 / D) / 2560 of the squares' mean.
    const double spread = 5.0 * std::sqrt((2.0 + 20.0 / head_size) / 2560.0);
    EXPECT_NEAR(at(0), head_size, spread * head_size);
    EXPECT_NEAR(at(1), 1.0, spread);
    EXPECT_NEAR(at(0) / head_size, at(1), 1e-4) << "the same vectors, once divided";
    EXPECT_GT(at(2), at(3)) << "unscaled, one key takes more";
    EXPECT_LT(at(4), at(5)) << "unscaled, the slope is smaller";
    if (r > 0) {
      EXPECT_GT(at(2), measured.numbers[measured.index(0, r - 1, 2)]);
      EXPECT_LT(at(4), measured.numbers[measured.index(0, r - 1, 4)]);
    }
  }
  EXPECT_GT(measured.numbers[measured.index(0, 5, 2)], 0.95);
  EXPECT_LT(measured.numbers[measured.index(0, 5, 4)], 0.01);
}

TEST(Lessons, AreListedAndAnUnknownNameIsRejectedWithTheNames) {
  std::vector<std::string> names;
  for (const regard::LessonEntry& entry : regard::lesson_entries()) {
    names.push_back(entry.name);
    EXPECT_FALSE(entry.title.empty());
    EXPECT_FALSE(explained(entry.name).steps.empty());
    EXPECT_EQ(explained(entry.name).errata.empty(), entry.name == "why-scale");
  }
  EXPECT_EQ(names, (std::vector<std::string>{"three-words", "roles", "one-function", "from-seed", "by-hand",
                                             "why-scale", "learning"}));
  EXPECT_EQ(regard::rejection([] { regard::lesson_input("005\x1b[31m"); }),
            "unknown lesson \"005\\u{1b}[31m\"; expected one of three-words, roles, one-function, from-seed, by-hand, "
            "why-scale, learning");
}

TEST(Lessons, OnlyLessonOneFunctionMarksDifferingNumbers) {
  for (const regard::LessonEntry& entry : regard::lesson_entries()) {
    if (entry.name == "one-function") continue;
    for (const Step& step : explained(entry.name).steps) {
      EXPECT_EQ(std::count(step.differs.begin(), step.differs.end(), 1), 0) << entry.name << " " << step.name;
    }
  }
}

TEST(Lessons, ExplainToTheSameStepsAfterJsonRoundTrip) {
  for (const regard::LessonEntry& entry : regard::lesson_entries()) {
    const std::string json = regard::write_explain_input(input_of(entry.name));
    Explanation read = regard::explain(regard::read_explain_input(json, "lesson"));
    EXPECT_EQ(read.lesson, "");
    read.lesson = entry.name;
    for (int width : {60, 80, 200}) {
      regard::TextOptions options;
      options.width = width;
      EXPECT_EQ(regard::render_text(read, options), regard::render_text(explained(entry.name), options)) << entry.name;
    }
    EXPECT_EQ(regard::render_json(read, {}), regard::render_json(explained(entry.name), {})) << entry.name;
  }
}

TEST(Lessons, FitTheWidthAndWorkInAscii) {
  for (const regard::LessonEntry& entry : regard::lesson_entries()) {
    EXPECT_LE(regard::display_width(entry.title), 67) << "the list has 80 columns";
    for (int width : {60, 80, 200}) {
      std::istringstream text(regard::render_text(explained(entry.name), {.width = width}));
      for (std::string line; std::getline(text, line);) {
        EXPECT_LE(regard::display_width(line), width) << entry.name << ": " << line;
        EXPECT_FALSE(line.ends_with(' ')) << entry.name << ": " << line;
      }
    }
    const std::string plain = regard::render_text(explained(entry.name), {.unicode = false});
    EXPECT_TRUE(std::all_of(plain.begin(), plain.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    EXPECT_EQ(plain.find("\\u{"), std::string::npos) << entry.name;
  }
}

TEST(Lessons, TransposeEveryResultInTheOtherLayout) {
  for (const regard::LessonEntry& entry : regard::lesson_entries()) {
    const Explanation& original = explained(entry.name);
    const Layout other = original.settings.layout == Layout::rows ? Layout::columns : Layout::rows;
    const Explanation turned = regard::explain(regard::with_layout(input_of(entry.name), other));
    ASSERT_EQ(turned.steps.size(), original.steps.size());
    for (std::size_t i = 0; i < turned.steps.size(); ++i) {
      const regard::Matrix& a = original.steps[i].result;
      const regard::Matrix& b = turned.steps[i].result;
      const std::string_view operation = regard::operation_name(original.steps[i].request.operation);
      const bool same = operation == "variances" || operation == "variance_rule" || operation == "dot_table" ||
                        operation == "ulp_table" || operation == "scale_statistics" || operation == "cross_entropy" ||
                        operation == "training";
      ASSERT_EQ(a.num_rows, same ? b.num_rows : b.num_columns) << entry.name << " " << original.steps[i].name;
      ASSERT_EQ(a.num_heads, b.num_heads);
      const std::vector<std::uint8_t>& differs = original.steps[i].differs;
      // The document's numbers stay next to it.
      ASSERT_EQ(differs.size(), turned.steps[i].differs.size()) << entry.name << " " << original.steps[i].name;
      for (Index h = 0; h < a.num_heads; ++h) {
        for (Index r = 0; r < a.num_rows; ++r) {
          for (Index c = 0; c < a.num_columns; ++c) {
            const double x = a.numbers[a.index(h, r, c)];
            const std::size_t at = same ? b.index(h, r, c) : b.index(h, c, r);
            const double y = b.numbers[at];
            if (!differs.empty()) {
              EXPECT_EQ(differs[a.index(h, r, c)], turned.steps[i].differs[at])
                  << entry.name << " " << original.steps[i].name;
            }
            // At most another order of the same sums.
            if (!(std::isnan(x) && std::isnan(y)) && x != y) {
              EXPECT_NEAR(x, y, 1e-6 * std::max(1.0, std::fabs(x))) << entry.name << " " << original.steps[i].name;
            }
          }
        }
      }
    }
    EXPECT_EQ(regard::render_text(regard::explain(regard::with_layout(regard::with_layout(input_of(entry.name), other),
                                                                      original.settings.layout)),
                                  {.step = original.steps.back().name}),
              regard::render_text(original, {.step = original.steps.back().name}));
  }
}

TEST(Lessons, DeriveEveryCell) {
  const std::vector<std::string> plain = {"torch_normal", "torch_uniform", "dot_table", "ulp_table", "training"};
  int worked_out = 0;
  for (const regard::LessonEntry& entry : regard::lesson_entries()) {
    for (const Layout layout : {Layout::rows, Layout::columns}) {
      const Explanation e = regard::explain(regard::with_layout(input_of(entry.name), layout));
      for (const Step& step : e.steps) {
        SCOPED_TRACE(entry.name + " " + step.name);
        const regard::Matrix& m = step.result;
        for (Index h = 0; h < m.num_heads; ++h) {
          for (Index r = 0; r < m.num_rows; ++r) {
            for (Index c = 0; c < m.num_columns; ++c) {
              const regard::CellDerivation work = regard::expand_cell(e, step, {r, c, h}, 12);
              if (std::find(plain.begin(), plain.end(), regard::operation_name(step.request.operation)) !=
                  plain.end()) {
                EXPECT_TRUE(work.terms.empty() && work.lines.empty());
                continue;
              }
              ++worked_out;
              double sum = 0;
              for (const regard::CellTerm& term : work.terms) {
                sum += term.product;
                EXPECT_TRUE(term.partial_sum == sum || std::isnan(sum));
              }
              if (work.lines.empty()) {
                ASSERT_FALSE(work.terms.empty());
                if (std::isfinite(work.result)) {
                  EXPECT_NEAR(sum, work.result, 2e-6 * std::max(1.0, std::fabs(sum)));
                }
                continue;
              }
              const std::string& name = work.lines.back().name;
              const std::string& text = work.lines.back().text;
              if (name == "hidden") {
                EXPECT_TRUE(work.result == 0 || work.result == -INFINITY);
              } else if (name != "visible" && name != "rank" && !std::isnan(work.result)) {
                const double last = last_number(text);
                EXPECT_TRUE(last == work.result ||
                            std::fabs(last - work.result) <= 1e-6 * std::max(1.0, std::fabs(work.result)))
                    << text;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(worked_out, 2000);
}

TEST(Lessons, ShowChangedSettingsNextToTheDocument) {
  const regard::ExplainInput document = regard::lesson_input("from-seed");
  regard::ExplainSettings settings = document.settings;
  settings.causal = {};
  settings.query = "T0";
  const regard::ExplainInput both = regard::with_compared_settings(document, settings, "--causal off");
  const Explanation explanation = regard::explain(both);
  EXPECT_EQ(explanation.focus, Index{0});
  const Step& weights = step_of(explanation, "weights");
  EXPECT_EQ(weights.result.numbers, step_of(explained("from-seed"), "weights").result.numbers);
  ASSERT_EQ(weights.variants.size(), 1u);
  EXPECT_EQ(weights.variants[0].label, "--causal off");
  // T0 now attends to T1: e^(4.4249) outweighs the others.
  EXPECT_GT(weights.variants[0].result.numbers[1], 0.99);
  EXPECT_TRUE(step_of(explanation, "scaled").variants.empty());
}

TEST(Lessons, ShowOtherSoftmaxesAndTheFloorNextToTheDocument) {
  const regard::ExplainInput document = regard::lesson_input("three-words");
  const auto row_of_love = [&](auto change, const std::string& name) {
    regard::ExplainSettings settings = document.settings;
    change(settings);
    const Explanation both = regard::explain(regard::with_compared_settings(document, settings, "changed"));
    const Step& step = step_of(both, name);
    EXPECT_EQ(step.result.numbers, step_of(explained("three-words"), name).result.numbers);
    const regard::Matrix& other = step.variants.at(0).result;
    const auto row = other.numbers.begin() + static_cast<std::ptrdiff_t>(other.index(0, 1, 0));
    return std::vector<double>(row, row + other.num_columns);
  };
  // Scores 1 0 1. Ratio: ½ 0 ½; powers of 3: 3 1 3 by 7; floored: 0 0 0, so thirds. Values 2 3 1, 0 1 0, 2 4 1.
  const auto ratio = [](regard::ExplainSettings& s) { s.softmax = regard::SoftmaxRule::ratio; };
  const auto threes = [](regard::ExplainSettings& s) { s.softmax_base = 3.0; };
  const auto floored = [](regard::ExplainSettings& s) { s.scale = {.rule = regard::ScaleRule::floor_half}; };
  EXPECT_EQ(row_of_love(ratio, "weights"), (std::vector<double>{0.5, 0.0, 0.5}));
  EXPECT_EQ(row_of_love(ratio, "context"), (std::vector<double>{2.0, 3.5, 1.0}));
  EXPECT_EQ(row_of_love(floored, "scaled"), (std::vector<double>{0.0, 0.0, 0.0}));
  const std::vector<double> sevenths = row_of_love(threes, "weights");
  const std::vector<double> thirds = row_of_love(floored, "context");
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(sevenths[i], (i == 1 ? 1.0 : 3.0) / 7.0, 1e-15);
    EXPECT_NEAR(thirds[i], std::vector<double>({4, 8, 2})[i] / 3.0, 1e-15);
  }
  // Unshifted is the same where nothing overflows.
  const auto unshifted = [](regard::ExplainSettings& s) { s.softmax = regard::SoftmaxRule::unshifted; };
  for (const char* name : {"one-function", "from-seed"}) {
    const regard::ExplainInput lesson = regard::lesson_input(name);
    regard::ExplainSettings settings = lesson.settings;
    unshifted(settings);
    const Explanation both = regard::explain(regard::with_compared_settings(lesson, settings, "unshifted"));
    const Step& context = step_of(both, "context");
    for (const regard::VariantResult& other : context.variants) {
      for (std::size_t i = 0; i < other.result.numbers.size(); ++i) {
        EXPECT_NEAR(other.result.numbers[i], context.result.numbers[i], 1e-6);
      }
    }
  }
}

TEST(Lessons, OperationsRejectInvalidOperands) {
  const auto message = [](std::vector<regard::StepRequest> steps, Index rows = 2, Index columns = 5) {
    regard::ExplainInput input;
    regard::Matrix a;
    a.num_rows = rows;
    a.num_columns = columns;
    a.numbers.assign(static_cast<std::size_t>(rows * columns), 1.0);
    input.matrices = {{"A", a}};
    input.steps = std::move(steps);
    return regard::rejection([&] { regard::explain(input); });
  };
  const auto one = [](Operation operation, const std::vector<double>& numbers,
                      const std::vector<std::string>& operands) {
    return std::vector<regard::StepRequest>{
        {.operation = Operation::show, .operands = {"A"}, .result = "B"},
        {.operation = operation, .operands = operands, .result = "R", .name = "r", .numbers = numbers}};
  };
  EXPECT_EQ(message(one(Operation::torch_normal, {42, 3}, {})), "step r: takes three numbers: seed, rows, columns");
  EXPECT_EQ(message(one(Operation::torch_normal, {42, 0.5, 3}, {})),
            "step r: number 1 must be an integer from 1 to 1048576");
  EXPECT_EQ(message(one(Operation::torch_uniform, {42, 1024, 1025}, {})),
            "step r: number 2 must be an integer from 1 to 1024");
  EXPECT_EQ(message(one(Operation::torch_uniform, {-1, 2, 2}, {})),
            "step r: number 0 must be an integer from 0 to 4294967295");
  EXPECT_EQ(message(one(Operation::float32_dots, {0}, {"A"})), "step r: takes one number for each token, 0 or 1");
  EXPECT_EQ(message(one(Operation::float32_dots, {1, 1}, {"A"}), 2, 4),
            "step r: the order in pairs requires vectors of five elements");
  EXPECT_EQ(message(one(Operation::dot_table, {}, {"A", "A"}), 100), "step r: takes at most 64 tokens, not 100");
  EXPECT_EQ(message(one(Operation::dot_table, {}, {"A", "A"})), "step r: its operands differ in the number of tokens");
  EXPECT_EQ(message(one(Operation::focus_vectors, {}, {"A"})), "step r: needs a token in focus");
  EXPECT_EQ(message(one(Operation::scale_statistics, {0, 4096, 8192}, {})),
            "step r: would draw more than 33554432 numbers");
  EXPECT_EQ(message(one(Operation::scale_statistics, {0, 1}, {})),
            "step r: takes a seed, the number of queries, and head sizes");
  std::vector<regard::StepRequest> unlike = one(Operation::difference, {}, {"A", "A"});
  unlike[1].transpose = "right";
  EXPECT_EQ(message(unlike), "step r: its operands differ in shape");
}

TEST(Lessons, TokenAndDigitsAloneChangeNothing) {
  const regard::ExplainInput document = regard::lesson_input("roles");
  regard::ExplainSettings settings = document.settings;
  settings.query = "one";
  settings.digits = 6;
  settings.layout = Layout::columns;
  const regard::ExplainInput changed = regard::with_compared_settings(document, settings, "");
  EXPECT_TRUE(changed.variants.empty());
  EXPECT_EQ(regard::explain(changed).focus, Index{4});
}

}  // namespace
}  // namespace regard::lesson_test
