// SPDX-License-Identifier: Apache-2.0
//
// Operations that only lessons use: seeded matrices, the softmax of given scores, the vectors of one token in a table,
// ranks, variances, float32 sums in a named order, and the effect of division by √D on random vectors.
//
// The softmax is the library's: scores are passed as the additive bias of one-dimensional zero queries and keys.
// Read next: lesson_from_seed.cpp and lesson_why_scale.cpp, which use most of them; gradient_operations.cpp and
// training_operations.cpp, the operations of lesson learning.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "explain/report/terminal.h"
#include "explain/steps/expansion.h"
#include "explain/steps/operations.h"
#include "lesson_matrix.h"
#include "regard/attention.h"
#include "regard/explain/random.h"

namespace regard::inline v0 {
namespace {

// numbers: seed, rows, columns of the matrix as it is drawn; in layout "columns" it is shown transposed.
// Operands: the matrices that the same generator drew before, in order.
template <std::vector<float> (TorchGenerator::*draw)(Index)>
void draw_matrix(Evaluation& e, const std::string& function) {
  if (e.request.numbers.size() != 3) e.fail("takes three numbers: seed, rows, columns");
  const Index seed = whole_number(e, 0, 0, Index{0xffffffff});
  const Index rows = whole_number(e, 1, 1, kMaxKeptElements);
  const Index columns = whole_number(e, 2, 1, kMaxKeptElements / rows);
  TorchGenerator torch(static_cast<std::uint64_t>(seed));
  std::string after;
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    (torch.*draw)(static_cast<Index>(plain(e, i).numbers.size()));
    after += (i == 0 ? ", drawn after " : i + 1 < e.operands.size() ? ", " : " and ") + e.request.operands[i];
  }
  const std::vector<float> drawn = (torch.*draw)(rows * columns);
  const bool by_column = e.columns();
  std::vector<double> numbers(drawn.begin(), drawn.end());
  if (by_column) {
    for (Index r = 0; r < rows; ++r) {
      for (Index c = 0; c < columns; ++c) {
        numbers[static_cast<std::size_t>(c * rows + r)] =
            static_cast<double>(drawn[static_cast<std::size_t>(r * columns + c)]);
      }
    }
  }
  // The rows drawn are tokens if they have labels.
  const Axis tokens{e.request.labels.empty() ? "" : "L", e.request.labels.empty() ? "" : "token", e.request.labels};
  const Axis others{e.request.labels.empty() ? "" : "E", e.request.labels.empty() ? "" : "dimension", {}};
  set_result(e, by_column ? columns : rows, by_column ? rows : columns, std::move(numbers), by_column ? others : tokens,
             by_column ? tokens : others);
  e.step.equation = e.step.symbol + " = " + function + "(" + std::to_string(rows) + ", " + std::to_string(columns) +
                    ")" + (by_column ? "ᵀ" : "") + ", seed " + std::to_string(seed) + after;
}

void torch_normal(Evaluation& e) { draw_matrix<&TorchGenerator::normal>(e, "randn"); }
void torch_uniform(Evaluation& e) { draw_matrix<&TorchGenerator::uniform>(e, "rand"); }

template <class T>
std::vector<double> softmax_rows(const Matrix& scores, bool by_column) {
  const Index num_queries = by_column ? scores.num_columns : scores.num_rows;
  const Index num_keys = by_column ? scores.num_rows : scores.num_columns;
  const std::vector<T> bias(scores.numbers.begin(), scores.numbers.end());
  Tensor<T, 4> query({1, 1, num_queries, 1});
  Tensor<T, 4> key({1, 1, num_keys, 1});
  Tensor<T, 4> context({1, 1, num_queries, 1});
  Tensor<T, 4> weights({1, 1, num_queries, num_keys});
  AttentionOptions options;
  options.bias = TensorView<const T, 4>(bias.data(), {1, 1, num_queries, num_keys},
                                        {0, 0, by_column ? 1 : num_keys, by_column ? num_queries : 1});
  options.scale = 1.0;
  attention_forward(std::as_const(query).view(), std::as_const(key).view(), std::as_const(key).view(),
                    {.context = context.view(), .weights = weights.view()}, options);
  std::vector<double> numbers;
  for (Index r = 0; r < scores.num_rows; ++r) {
    for (Index c = 0; c < scores.num_columns; ++c) {
      numbers.push_back(static_cast<double>(by_column ? weights(0, 0, c, r) : weights(0, 0, r, c)));
    }
  }
  return numbers;
}

void softmax(Evaluation& e) {
  const Matrix& scores = plain(e, 0);
  const bool by_column = e.columns();
  set_result(e, scores.num_rows, scores.num_columns,
             e.settings.dtype == ElementType::float32 ? softmax_rows<float>(scores, by_column)
                                                      : softmax_rows<double>(scores, by_column),
             e.operands[0].row_axis, e.operands[0].column_axis);
  e.step.result.hidden = scores.hidden;
  e.step.sums_to_one = by_column ? SumAxis::column : SumAxis::row;
  e.step.equation = e.step.symbol + " = e^(s − largest s) / Σ e^(s − largest s)";
}

// The same softmax, over words that may come next instead of keys.
void probabilities(Evaluation& e) {
  softmax(e);
  Axis& words = e.columns() ? e.step.row_axis : e.step.column_axis;
  words.name = "word";
  e.step.equation =
      e.step.symbol + " = softmax(" + e.request.operands[0] + "), " + (e.columns() ? "column by column" : "row by row");
}

// A − B, or with transpose "right" A − Bᵀ.
void difference(Evaluation& e) {
  const Matrix& a = plain(e, 0);
  const Matrix& b = plain(e, 1);
  const bool transposed = e.request.transpose == "right";
  if (a.num_rows != (transposed ? b.num_columns : b.num_rows) ||
      a.num_columns != (transposed ? b.num_rows : b.num_columns)) {
    e.fail("its operands differ in shape");
  }
  std::vector<double> numbers;
  for (Index r = 0; r < a.num_rows; ++r) {
    for (Index c = 0; c < a.num_columns; ++c) {
      numbers.push_back(at(a, r, c) - (transposed ? at(b, c, r) : at(b, r, c)));
    }
  }
  set_result(e, a.num_rows, a.num_columns, std::move(numbers), e.operands[0].row_axis, e.operands[0].column_axis);
  e.step.equation =
      e.step.symbol + " = " + e.request.operands[0] + " − " + e.request.operands[1] + (transposed ? "ᵀ" : "");
}

// The vector of the token in focus in each operand, one per row (in layout columns, one per column).
void focus_vectors(Evaluation& e) {
  if (!e.focus) e.fail("needs a token in focus");
  const auto count = static_cast<Index>(e.operands.size());
  const TokenVectors first(e, 0);
  std::vector<double> numbers(static_cast<std::size_t>(count * first.num_dimensions));
  for (Index i = 0; i < count; ++i) {
    const TokenVectors vectors(e, static_cast<std::size_t>(i));
    if (vectors.num_dimensions != first.num_dimensions) e.fail("its operands differ in width");
    if (*e.focus >= vectors.num_tokens) e.fail("an operand does not have that token");
    for (Index d = 0; d < first.num_dimensions; ++d) {
      numbers[static_cast<std::size_t>(first.by_column ? d * count + i : i * first.num_dimensions + d)] =
          vectors.at(*e.focus, d);
    }
  }
  const Axis vectors{"", "vector", e.request.labels.empty() ? e.request.operands : e.request.labels};
  if (first.by_column) {
    set_result(e, first.num_dimensions, count, std::move(numbers), e.operands[0].row_axis, vectors);
  } else {
    set_result(e, count, first.num_dimensions, std::move(numbers), vectors, e.operands[0].column_axis);
  }
  e.step.equation = "the vectors of one token";
}

// The rank of each key: 1 for the largest of each query's scores; equal scores share the smaller rank.
void ranks(Evaluation& e) {
  const Matrix& scores = plain(e, 0);
  const bool by_column = e.columns();
  const Index num_keys = by_column ? scores.num_rows : scores.num_columns;
  std::vector<double> numbers;
  for (Index r = 0; r < scores.num_rows; ++r) {
    for (Index c = 0; c < scores.num_columns; ++c) {
      double rank = 1.0;
      for (Index k = 0; k < num_keys; ++k) {
        const double other = by_column ? at(scores, k, c) : at(scores, r, k);
        // Quotients of equal numbers may differ in the last bits.
        if (other > at(scores, r, c) + 1e-12 * std::fabs(other)) rank += 1.0;
      }
      numbers.push_back(rank);
    }
  }
  set_result(e, scores.num_rows, scores.num_columns, std::move(numbers), e.operands[0].row_axis,
             e.operands[0].column_axis);
  e.step.outside_library = true;
  e.step.equation = e.step.symbol + " = rank of each key for each query, 1 = largest";
}

// The variance expected for independent values with mean 0, and the measured one: Q K S.
void variance_rule(Evaluation& e) {
  const Index head_size = TokenVectors(e, 0).num_dimensions;
  const auto variance = [&e](std::size_t i) { return moments(plain(e, i).numbers).variance; };
  const double rule = static_cast<double>(head_size) * variance(0) * variance(1);
  const std::vector<std::string>& names = e.request.operands;
  set_result(e, 2, 1, {rule, variance(2)},
             {"", "", {"D · var(" + names[0] + ") · var(" + names[1] + ")", "var(" + names[2] + ")"}},
             {"", "", {"variance"}});
  e.step.outside_library = true;
  e.step.equation = "var(q · k) = D · var(q) · var(k) for independent values with mean 0";
}

// Every pair of tokens is one line of the table, so their number is limited.
void check_tokens(const Evaluation& e, const TokenVectors& vectors) {
  constexpr Index kMaxTokens = 64;
  if (vectors.num_tokens > kMaxTokens) {
    e.fail("takes at most " + std::to_string(kMaxTokens) + " tokens, not " + std::to_string(vectors.num_tokens));
  }
}

// Sums of float32 products; each product and each sum is rounded separately.
float dot_in_order(const std::vector<float>& p) {
  float sum = p[0];
  for (std::size_t i = 1; i < p.size(); ++i) sum += p[i];
  return sum;
}
float dot_in_pairs(const std::vector<float>& p) { return ((p[0] + p[2]) + (p[3] + p[4])) + p[1]; }

// All pairs of A's tokens; numbers: for each first token 0 = in order, 1 = ((p0+p2)+(p3+p4))+p1, which requires vectors
// of five elements.
void float32_dots(Evaluation& e) {
  const TokenVectors a(e, 0);
  const Index count = a.num_tokens;
  check_tokens(e, a);
  if (static_cast<Index>(e.request.numbers.size()) != count) e.fail("takes one number for each token, 0 or 1");
  std::vector<double> numbers(static_cast<std::size_t>(count * count));
  for (Index i = 0; i < count; ++i) {
    const bool in_pairs = whole_number(e, static_cast<std::size_t>(i), 0, 1) == 1;
    if (in_pairs && a.num_dimensions != 5) e.fail("the order in pairs requires vectors of five elements");
    for (Index j = 0; j < count; ++j) {
      std::vector<float> products;
      for (Index d = 0; d < a.num_dimensions; ++d) {
        products.push_back(static_cast<float>(a.at(i, d)) * static_cast<float>(a.at(j, d)));
      }
      numbers[static_cast<std::size_t>(a.by_column ? j * count + i : i * count + j)] =
          static_cast<double>(in_pairs ? dot_in_pairs(products) : dot_in_order(products));
    }
  }
  const Axis& tokens = a.by_column ? e.operands[0].column_axis : e.operands[0].row_axis;
  set_result(e, count, count, std::move(numbers), tokens, tokens);
  e.step.outside_library = true;
  e.step.equation = e.step.symbol + " = sums of float32 products, rounded after each step";
}

// Every product and every sum of one cell, in the order of its token.
void expand_float32_dots(const Explanation& explanation, const Step& step, const Cell& cell, int,
                         CellDerivation& work) {
  const Matrix& a = *step.operands[0].matrix;
  const bool by_column = explanation.settings.layout == Layout::columns;
  const Index first = by_column ? cell.column : cell.row;
  const Index second = by_column ? cell.row : cell.column;
  const auto line = [&](const std::string& name, float number) {
    work.lines.push_back({name, shown_number(static_cast<double>(number), ElementType::float32)});
  };
  std::vector<float> p;
  for (Index d = 0; d < (by_column ? a.num_rows : a.num_columns); ++d) {
    const auto number = [&](Index token) { return static_cast<float>(by_column ? at(a, d, token) : at(a, token, d)); };
    p.push_back(number(first) * number(second));
    line(std::string("p").append(std::to_string(d)), p.back());
  }
  if (step.request.numbers[static_cast<std::size_t>(first)] == 1.0) {
    line("p0 + p2", p[0] + p[2]);
    line("p3 + p4", p[3] + p[4]);
    line("both", (p[0] + p[2]) + (p[3] + p[4]));
    line("and p1", dot_in_pairs(p));
    return;
  }
  float sum = p[0];
  for (std::size_t d = 1; d < p.size(); ++d) line(std::string("with p").append(std::to_string(d)), sum += p[d]);
}

// The sum of products, as if rounded once to double (Neumaier 1974); products of two floats are exact in double.
double exact_dot(const TokenVectors& a, Index i, Index j) {
  double sum = 0.0;
  double lost = 0.0;
  for (Index d = 0; d < a.num_dimensions; ++d) {
    const double product = a.at(i, d) * a.at(j, d);
    const double next = sum + product;
    lost += std::fabs(sum) >= std::fabs(product) ? (sum - next) + product : (product - next) + sum;
    sum = next;
  }
  return sum + lost;
}

struct DotCell {
  std::string label;
  double exact;
  std::vector<double> others;  // the same cell of each other operand
};

// One for each pair of A's tokens, first token first.
std::vector<DotCell> dot_cells(const Evaluation& e) {
  const TokenVectors a(e, 0);
  check_tokens(e, a);
  std::vector<DotCell> cells;
  for (Index i = 0; i < a.num_tokens; ++i) {
    for (Index j = 0; j < a.num_tokens; ++j) {
      cells.push_back({std::to_string(i) + "," + std::to_string(j), exact_dot(a, i, j), {}});
      for (std::size_t k = 1; k < e.operands.size(); ++k) {
        const Matrix& other = plain(e, k);
        if (other.num_rows != a.num_tokens || other.num_columns != a.num_tokens)
          e.fail("its operands differ in the number of tokens");
        cells.back().others.push_back(a.by_column ? at(other, j, i) : at(other, i, j));
      }
    }
  }
  return cells;
}

void set_cell_table(Evaluation& e, const std::vector<DotCell>& cells, std::vector<double> numbers,
                    const std::vector<std::string>& labels) {
  std::vector<std::string> names;
  for (const DotCell& cell : cells) names.push_back(cell.label);
  set_result(e, static_cast<Index>(cells.size()), static_cast<Index>(labels.size()), std::move(numbers),
             {"", "cell", names}, {"", "", e.request.column_labels.empty() ? labels : e.request.column_labels});
  e.step.outside_library = true;
}

// One row per dot product: the exact value, and the value of each other operand.
void dot_table(Evaluation& e) {
  const std::vector<DotCell> cells = dot_cells(e);
  std::vector<double> numbers;
  for (const DotCell& cell : cells) {
    numbers.push_back(cell.exact);
    numbers.insert(numbers.end(), cell.others.begin(), cell.others.end());
  }
  std::vector<std::string> labels = {"exact"};
  labels.insert(labels.end(), e.request.operands.begin() + 1, e.request.operands.end());
  set_cell_table(e, cells, std::move(numbers), labels);
  e.step.equation = "each cell of " + e.request.operands[0] + " · " + e.request.operands[0] + "ᵀ";
}

// The same cells: the differences of the second and third operands from the exact sum and from each other, in units in
// the last place of the third operand's float.
void ulp_table(Evaluation& e) {
  const std::vector<DotCell> cells = dot_cells(e);
  std::vector<double> numbers;
  for (const DotCell& cell : cells) {
    const float printed = std::fabs(static_cast<float>(cell.others[1]));
    const auto ulp = static_cast<double>(std::nextafter(printed, std::numeric_limits<float>::infinity()) - printed);
    numbers.push_back((cell.others[0] - cell.exact) / ulp);
    numbers.push_back((cell.others[1] - cell.exact) / ulp);
    numbers.push_back((cell.others[0] - cell.others[1]) / ulp);
  }
  const std::string& ours = e.request.operands[1];
  const std::string& theirs = e.request.operands[2];
  set_cell_table(e, cells, std::move(numbers), {ours + " − exact", theirs + " − exact", ours + " − " + theirs});
  e.step.equation = "differences in float32 ULPs (units in the last place)";
}

// Keys of each query of scale_statistics.
constexpr Index kScaleKeys = 10;

struct ScaleStatistics {
  double variance = 0.0;
  double largest_weight = 0.0;
  double slope = 0.0;
};

// The histogram's range shows the spread of q·k up to D = 128; for larger D, most scores are outside.
ScoreSample empty_sample() {
  return {.low = -20.0,
          .high = 20.0,
          .counts = std::vector<Index>(80),
          .ranked_weights = std::vector<double>(static_cast<std::size_t>(kScaleKeys))};
}

void count_score(ScoreSample& sample, double score) {
  if (score < sample.low) {
    ++sample.below;
  } else if (score >= sample.high) {
    ++sample.above;
  } else {
    const double share = (score - sample.low) / (sample.high - sample.low);
    ++sample.counts[static_cast<std::size_t>(share * static_cast<double>(sample.counts.size()))];
  }
}

// Sums over the queries and their keys, scores times scale.
template <Index num_keys>
void add_statistics(TensorView<const float, 4> query, TensorView<const float, 4> key, double scale,
                    ScaleStatistics& sums, ScoreSample& sample) {
  const Index heads = query.shape[1];
  const Tensor<float, 4> value({1, heads, num_keys, 1});
  Tensor<float, 4> context({1, heads, 1, 1});
  Tensor<float, 4> scores({1, heads, 1, num_keys});
  Tensor<float, 4> weights({1, heads, 1, num_keys});
  AttentionOptions options;
  options.scale = scale;
  attention_weights(query, key, {.kind = WeightsKind::scores}, scores.view(), options);
  attention_forward(query, key, value.view(), {.context = context.view(), .weights = weights.view()}, options);
  for (Index h = 0; h < heads; ++h) {
    double largest = 0.0;
    std::array<double, num_keys> ranked{};
    for (Index j = 0; j < num_keys; ++j) {
      const auto score = static_cast<double>(scores(0, h, 0, j));
      const auto weight = static_cast<double>(weights(0, h, 0, j));
      // The mean of q · k is 0 by symmetry, so the mean of the squares is the variance.
      sums.variance += score * score;
      sums.slope += weight * (1.0 - weight);
      largest = std::max(largest, weight);
      ranked[static_cast<std::size_t>(j)] = weight;
      count_score(sample, score);
    }
    sums.largest_weight += largest;
    std::sort(ranked.begin(), ranked.end(), std::greater<>());
    for (std::size_t j = 0; j < ranked.size(); ++j) sample.ranked_weights[j] += ranked[j];
  }
}

// "… for D = 32, var(q·k) = 32.74 and var(q·k/√D) = 32.74 / 32 = 1.02"
std::string variance_finding(const std::vector<ScalePicture>& pictures, const std::vector<double>& numbers) {
  constexpr std::size_t kColumns = 6;
  std::size_t row = pictures.size() - 1;
  for (std::size_t i = 0; i < pictures.size(); ++i) {
    if (pictures[i].head_size == 32) row = i;
  }
  const auto number = [&](std::size_t column) {
    return styled_number(numbers[row * kColumns + column], {.digits = 2, .unicode = true});
  };
  const std::string head_size = std::to_string(pictures[row].head_size);
  return "var(q·k) grows in proportion to D. Dividing the scores by √D divides their variance by D: for D = " +
         head_size + ", var(q·k) = " + number(0) + " and var(q·k/√D) = var(q·k)/D = " + number(0) + " / " + head_size +
         " = " + number(1);
}

// numbers: seed, queries, then each head size D. One row per D: standard normal queries and ten keys for each of
// them; variance of the scores, mean largest weight, mean p(1 − p), each of q · k and of q · k/√D.
void scale_statistics(Evaluation& e) {
  // A batch of this many queries with their keys takes 14 MiB at D = 4960.
  constexpr Index kBatch = 64;
  // About a second of work.
  constexpr Index kMaxNumbers = Index{1} << 25;
  if (e.request.numbers.size() < 3) e.fail("takes a seed, the number of queries, and head sizes");
  const Index seed = whole_number(e, 0, 0, Index{0xffffffff});
  const Index num_queries = whole_number(e, 1, 1, 4096);
  Index drawn = 0;
  std::vector<double> numbers;
  std::vector<std::string> head_sizes;
  for (std::size_t i = 2; i < e.request.numbers.size(); ++i) {
    const Index head_size = whole_number(e, i, 1, 8192);
    drawn += num_queries * (kScaleKeys + 1) * head_size;
    if (drawn > kMaxNumbers) e.fail("would draw more than " + std::to_string(kMaxNumbers) + " numbers");
    head_sizes.push_back("D = " + std::to_string(head_size));
    TorchGenerator torch(static_cast<std::uint64_t>(seed));
    ScaleStatistics plain_sums;
    ScaleStatistics scaled_sums;
    ScalePicture picture{.head_size = head_size, .plain = empty_sample(), .scaled = empty_sample()};
    for (Index first = 0; first < num_queries; first += kBatch) {
      const Index heads = std::min(kBatch, num_queries - first);
      const std::vector<float> query = torch.normal(heads * head_size);
      const std::vector<float> key = torch.normal(heads * kScaleKeys * head_size);
      const TensorView<const float, 4> q(query.data(), {1, heads, 1, head_size});
      const TensorView<const float, 4> k(key.data(), {1, heads, kScaleKeys, head_size});
      add_statistics<kScaleKeys>(q, k, 1.0, plain_sums, picture.plain);
      add_statistics<kScaleKeys>(q, k, 1.0 / std::sqrt(static_cast<double>(head_size)), scaled_sums, picture.scaled);
    }
    const auto queries = static_cast<double>(num_queries);
    for (const auto& [member, count] : {std::pair{&ScaleStatistics::variance, queries * kScaleKeys},
                                        std::pair{&ScaleStatistics::largest_weight, queries},
                                        std::pair{&ScaleStatistics::slope, queries * kScaleKeys}}) {
      numbers.push_back(plain_sums.*member / count);
      numbers.push_back(scaled_sums.*member / count);
    }
    for (ScoreSample* sample : {&picture.plain, &picture.scaled}) {
      for (double& weight : sample->ranked_weights) weight /= queries;
    }
    e.step.pictures.push_back(std::move(picture));
  }
  const auto rows = static_cast<Index>(head_sizes.size());
  e.step.finding = variance_finding(e.step.pictures, numbers);
  set_result(e, rows, 6, std::move(numbers), {"D", "size", head_sizes},
             {"", "", {"var(q·k)", "var(q·k/√D)", "largest p", "largest p′", "slope p", "slope p′"}});
  e.step.equation = "p = softmax(q·k), p′ = softmax(q·k/√D), q and k standard normal with D elements";
}

// How a mean was computed: its sum over the number of its terms; the variance of the scaled scores, from the unscaled.
void expand_scale_statistics(const Explanation&, const Step& step, const Cell& cell, int digits, CellDerivation& work) {
  const auto num_queries = static_cast<Index>(step.request.numbers[1]);
  const auto quotient = [&](const std::string& name, const std::string& terms, double dividend, Index divisor) {
    work.lines.push_back({name, terms + " = " + working_number(dividend, digits) + " / " + std::to_string(divisor) +
                                    " = " + working_number(work.result, digits)});
  };
  const std::string p = cell.column % 2 == 1 ? "p′" : "p";
  const auto mean = [&](const std::string& term, Index count) {
    quotient("mean", "Σ " + term + " / " + std::to_string(count), work.result * static_cast<double>(count), count);
  };
  switch (cell.column) {
    case 0:
      return mean("(q·k)²", num_queries * kScaleKeys);
    case 1:
      return quotient("variance", "var(q·k) / D", step.result.numbers[step.result.index(0, cell.row, 0)],
                      step.pictures[static_cast<std::size_t>(cell.row)].head_size);
    case 2:
    case 3:
      return mean("largest " + p, num_queries);
    default:
      return mean(p + "(1 − " + p + ")", num_queries * kScaleKeys);
  }
}

constexpr std::array kLessonOperations = {
    OperationInfo{Operation::torch_normal, "torch_normal", "seeded normals", 0, 16, torch_normal, nullptr},
    OperationInfo{Operation::torch_uniform, "torch_uniform", "seeded uniforms", 0, 16, torch_uniform, nullptr},
    OperationInfo{Operation::softmax, "softmax", "attention weights", 1, 1, softmax, expand_softmax},
    OperationInfo{Operation::probabilities, "probabilities", "probabilities of the next word", 1, 1, probabilities,
                  expand_softmax},
    OperationInfo{Operation::difference, "difference", "difference", 2, 2, difference, expand_difference},
    OperationInfo{Operation::focus_vectors, "focus_vectors", "vectors of one token", 1, 8, focus_vectors,
                  expand_focus_vectors},
    OperationInfo{Operation::ranks, "ranks", "ranks", 1, 1, ranks, expand_ranks},
    OperationInfo{Operation::variance_rule,
                  "variance_rule",
                  "variances",
                  3,
                  3,
                  variance_rule,
                  expand_variance_rule,
                  {.ignores_layout = true}},
    OperationInfo{Operation::float32_dots, "float32_dots", "float32 sums", 1, 1, float32_dots, expand_float32_dots},
    OperationInfo{
        Operation::dot_table, "dot_table", "sums, cell by cell", 2, 4, dot_table, nullptr, {.ignores_layout = true}},
    OperationInfo{Operation::ulp_table,
                  "ulp_table",
                  "units in the last place",
                  3,
                  3,
                  ulp_table,
                  nullptr,
                  {.ignores_layout = true}},
    OperationInfo{Operation::scale_statistics,
                  "scale_statistics",
                  "statistics of random scores",
                  0,
                  0,
                  scale_statistics,
                  expand_scale_statistics,
                  {.ignores_layout = true}},
};

}  // namespace

std::span<const OperationInfo> lesson_operations() { return kLessonOperations; }

}  // namespace regard::inline v0
