// SPDX-License-Identifier: Apache-2.0
//
// The loss of lesson learning, and the gradients that are not plain products. Y marks the word that follows each token:
//
//     loss = −Σ Y · ln P                      P = softmax(G), a probability of each word for each token
//     dG   = (sum of Y's row) · P − Y         P − Y where one word follows, 0 where none does
//     dS   = scale · A · (dA − Σ A · dA)      A = softmax(scale · S), row by row
//
// All in double, in plain loops. Read next: lesson_learning.cpp, training_operations.cpp.
#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "explain/report/terminal.h"
#include "explain/steps/expansion.h"
#include "explain/steps/operations.h"
#include "lesson_matrix.h"

namespace regard::inline v0 {
namespace {

void check_same_shape(const Evaluation& e, std::size_t i, std::size_t j) {
  const Matrix& a = plain(e, i);
  const Matrix& b = plain(e, j);
  if (a.num_rows != b.num_rows || a.num_columns != b.num_columns) {
    e.fail(fmt::format("{} is {} and {} is {}: they must have the same shape", e.request.operands[i], shape_text(a),
                       e.request.operands[j], shape_text(b)));
  }
}

// A word that follows a token.
struct NextWord {
  Index token;
  Index word;
  double count;  // Y's element, 1 unless the word follows several times
};

std::vector<NextWord> targets_of(const Matrix& marks, bool by_column) {
  std::vector<NextWord> targets;
  const Index tokens = by_column ? marks.num_columns : marks.num_rows;
  const Index words = by_column ? marks.num_rows : marks.num_columns;
  for (Index i = 0; i < tokens; ++i) {
    for (Index j = 0; j < words; ++j) {
      const double count = by_column ? at(marks, j, i) : at(marks, i, j);
      if (count != 0.0) targets.push_back({i, j, count});
    }
  }
  return targets;
}

void check_marks(const Evaluation& e) {
  check_same_shape(e, 0, 1);
  for (const double mark : e.operand(1).numbers) {
    if (!(mark >= 0.0 && std::isfinite(mark)))
      e.fail(e.request.operands[1] + " must contain finite numbers of at least 0");
  }
}

// One row for each next word, then all together: the loss, and the probability.
void cross_entropy(Evaluation& e) {
  check_marks(e);
  const TokenVectors p(e, 0);
  const Axis& tokens = e.columns() ? e.operands[0].column_axis : e.operands[0].row_axis;
  const Axis& words = e.columns() ? e.operands[0].row_axis : e.operands[0].column_axis;
  const std::vector<NextWord> targets = targets_of(e.operand(1), e.columns());
  if (targets.empty()) e.fail(e.request.operands[1] + " marks no next word");
  std::vector<std::string> labels;
  std::vector<double> numbers;
  double loss = 0.0;
  double probability = 1.0;
  for (const NextWord& target : targets) {
    const double of_word = p.at(target.token, target.word);
    const double of_loss = rounded(e, -target.count * std::log(of_word));
    labels.push_back(axis_label(tokens, target.token) + " → " + axis_label(words, target.word));
    numbers.insert(numbers.end(), {of_loss, of_word});
    loss += of_loss;
    probability *= std::pow(of_word, target.count);
  }
  labels.emplace_back("together");
  numbers.insert(numbers.end(), {rounded(e, loss), rounded(e, probability)});
  set_result(e, static_cast<Index>(labels.size()), 2, std::move(numbers), {"", "next word", labels},
             {"", "", {"−ln p", "p"}});
  e.step.outside_library = true;
  e.step.equation = e.step.symbol + " = −Σ ln p, where p is the probability of the word that follows";
}

void expand_cross_entropy(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                          CellDerivation& work) {
  const TokensFirst as(explanation);
  const std::vector<NextWord> targets = targets_of(*step.operands[1].matrix, as.by_columns);
  const auto row = static_cast<std::size_t>(cell.row);
  const auto shown = [&](double x) { return working_number(x, digits); };
  const auto probability = [&](const NextWord& t) { return as.number(*step.operands[0].matrix, 0, t.token, t.word); };
  if (row < targets.size()) {
    const NextWord& target = targets[row];
    const std::string p = shown(probability(target));
    if (cell.column == 1) {
      work.lines.push_back(
          {"probability", fmt::format("{} of {} = {}", step.operands[0].name, step.row_axis.labels[row], p)});
    } else if (target.count == 1.0) {
      work.lines.push_back({"loss", fmt::format("−ln {} = {}", p, shown(work.result))});
    } else {
      work.lines.push_back({"loss", fmt::format("−{} · ln {} = {}", shown(target.count), p, shown(work.result))});
    }
    return;
  }
  if (cell.column == 0) {
    for (std::size_t i = 0; i < targets.size(); ++i) {
      add_term(work, step.row_axis.labels[i], {step.result.numbers[step.result.index(0, static_cast<Index>(i), 0)]});
    }
    finish_sum(work);
    return;
  }
  std::string product;
  for (const NextWord& target : targets) {
    product += (product.empty() ? "" : " · ") + shown(probability(target));
    if (target.count != 1.0) product += "^" + shown(target.count);
  }
  work.lines.push_back({"product", product + " = " + shown(work.result)});
}

double marks_of_token(const TokensFirst& as, const Matrix& marks, Index token) {
  double sum = 0.0;
  for (Index j = 0; j < as.num_across(marks); ++j) sum += as.number(marks, 0, token, j);
  return sum;
}

void cross_entropy_gradient(Evaluation& e) {
  check_marks(e);
  const TokenVectors p(e, 0);
  const TokenVectors y(e, 1);
  std::vector<double> numbers(p.matrix.numbers.size());
  for (Index i = 0; i < p.num_tokens; ++i) {
    double marks = 0.0;
    for (Index j = 0; j < p.num_dimensions; ++j) marks += y.at(i, j);
    for (Index j = 0; j < p.num_dimensions; ++j) {
      numbers[p.index(i, j)] = marks == 0.0 ? 0.0 : rounded(e, marks * p.at(i, j) - y.at(i, j));
    }
  }
  set_result(e, p.matrix.num_rows, p.matrix.num_columns, std::move(numbers), e.operands[0].row_axis,
             e.operands[0].column_axis);
  e.step.outside_library = true;
  e.step.equation = fmt::format("{} = {} − {} where a word follows, else 0", e.step.symbol, e.request.operands[0],
                                e.request.operands[1]);
}

void expand_cross_entropy_gradient(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                                   CellDerivation& work) {
  const TokensFirst as(explanation);
  const Matrix& marks = *step.operands[1].matrix;
  const double count = marks_of_token(as, marks, as.token(cell));
  if (count == 0.0) {
    work.lines.push_back({"gradient", "no word follows: 0"});
    return;
  }
  const auto shown = [&](double x) { return working_number(x, digits); };
  work.lines.push_back(
      {"gradient", fmt::format("{}{} − {} = {}", count == 1.0 ? "" : shown(count) + " · ",
                               shown(kept_number(*step.operands[0].matrix, 0, cell.row, cell.column)),
                               shown(kept_number(marks, 0, cell.row, cell.column)), shown(work.result))});
}

// The factor of the scores: that of the settings, whose √D needs the queries.
double scale_of_scores(const Evaluation& e) {
  const Scale& scale = e.request.scale ? *e.request.scale : e.settings.scale;
  if (scale.rule == ScaleRule::none) return 1.0;
  if (scale.rule == ScaleRule::number) return scale.number;
  if (scale.rule == ScaleRule::floor_half)
    e.fail("scale floor_half has no gradient: a floor is constant between jumps");
  if (e.operands.size() < 3) e.fail("needs the queries as a third operand, for √D");
  return 1.0 / std::sqrt(static_cast<double>(TokenVectors(e, 2).num_dimensions));
}

// Σ A · dA over the keys of one query.
double mean_gradient(const TokensFirst& as, const Matrix& a, const Matrix& gradient, Index query) {
  double sum = 0.0;
  for (Index j = 0; j < as.num_across(a); ++j) sum += as.number(a, 0, query, j) * as.number(gradient, 0, query, j);
  return sum;
}

void softmax_gradient(Evaluation& e) {
  check_same_shape(e, 0, 1);
  if (e.settings.softmax == SoftmaxRule::ratio || e.settings.softmax_base) {
    e.fail("only softmax with base e has a gradient here, not other bases or ratios");
  }
  const TokenVectors a(e, 0);
  const TokenVectors gradient(e, 1);
  e.step.factor = scale_of_scores(e);
  std::vector<double> numbers(a.matrix.numbers.size());
  for (Index i = 0; i < a.num_tokens; ++i) {
    double mean = 0.0;
    for (Index j = 0; j < a.num_dimensions; ++j) mean += a.at(i, j) * gradient.at(i, j);
    for (Index j = 0; j < a.num_dimensions; ++j) {
      numbers[a.index(i, j)] = rounded(e, e.step.factor * a.at(i, j) * (gradient.at(i, j) - mean));
    }
  }
  set_result(e, a.matrix.num_rows, a.matrix.num_columns, std::move(numbers), e.operands[0].row_axis,
             e.operands[0].column_axis);
  e.step.result.hidden = a.matrix.hidden;
  e.step.outside_library = true;
  const std::string& weights = e.request.operands[0];
  const std::string& of_weights = e.request.operands[1];
  e.step.equation = fmt::format("{0} = {1}{2} · ({3} − m), where m = Σ {2} · {3} over the keys", e.step.symbol,
                                e.step.factor == 1.0 ? "" : shown_number(e.step.factor, ElementType::float64) + " · ",
                                weights, of_weights);
}

void expand_softmax_gradient(const Explanation& explanation, const Step& step, const Cell& cell, int digits,
                             CellDerivation& work) {
  const TokensFirst as(explanation);
  const Matrix& a = *step.operands[0].matrix;
  const Matrix& gradient = *step.operands[1].matrix;
  const Index query = as.token(cell);
  const Index key = as.across(cell);
  const std::string query_label = axis_label(as.token_axis(step), query);
  for (Index j = 0; j < as.num_across(a); ++j) {
    const std::string key_label = axis_label(as.across_axis(step), j);
    add_term(work,
             as.name(step.operands[0].name, query_label, key_label) + " · " +
                 as.name(step.operands[1].name, query_label, key_label),
             {as.number(a, 0, query, j), as.number(gradient, 0, query, j)});
  }
  if (as.hidden(a, 0, query, key)) {
    work.lines.push_back({"hidden", "the mask hides this key: gradient 0"});
    return;
  }
  const auto shown = [&](double x) { return working_number(x, digits); };
  const auto in_difference = [&](double x) { return x < 0.0 ? "(" + shown(x) + ")" : shown(x); };
  const double mean = mean_gradient(as, a, gradient, query);
  const std::string result = fmt::format("{}{} · ({} − {}) = {}", step.factor == 1.0 ? "" : shown(step.factor) + " · ",
                                         shown(as.number(a, 0, query, key)), shown(as.number(gradient, 0, query, key)),
                                         in_difference(mean), shown(work.result));
  work.lines.push_back({"m", shown(mean)});
  work.lines.push_back({"gradient", result});
  work.brief = fmt::format("m = {}; {}", shown(mean), result);
}

constexpr OperationInfo kGradientOperations[] = {
    {Operation::cross_entropy,
     "cross_entropy",
     "loss",
     2,
     2,
     cross_entropy,
     expand_cross_entropy,
     {.ignores_layout = true}},
    {Operation::cross_entropy_gradient, "cross_entropy_gradient", "gradient of the logits", 2, 2,
     cross_entropy_gradient, expand_cross_entropy_gradient},
    {Operation::softmax_gradient, "softmax_gradient", "gradient of the scores", 2, 3, softmax_gradient,
     expand_softmax_gradient},
};

}  // namespace

std::span<const OperationInfo> gradient_operations() { return kGradientOperations; }

}  // namespace regard::inline v0
