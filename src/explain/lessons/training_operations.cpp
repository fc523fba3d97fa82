// SPDX-License-Identifier: Apache-2.0
//
// How lesson learning changes its matrices: AdamW, for one step or for many. The model is the one that the lesson's
// steps spell out, with Y marking the word that follows each token:
//
//     Q, K, V = X · W_query, X · W_key, X · W_value        A = softmax(scale · Q · Kᵀ)        Z = A · V
//     P = softmax(Z · Xᵀ)                                  loss = −Σ Y · ln P
//
// All in double, in plain loops, with tokens as rows in either layout. Read next: gradient_operations.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "explain/report/terminal.h"
#include "explain/steps/expansion.h"
#include "explain/steps/operations.h"
#include "lesson_matrix.h"

namespace regard::inline v0 {
namespace {

constexpr std::size_t kNumAdamwRates = 5;
// About half a second of work.
constexpr Index kMaxTrainedTokens = 32;
constexpr Index kMaxTrainedDimensions = 32;
constexpr Index kMaxTrainingSteps = 1000;

struct AdamwRates {
  double learning_rate;
  double beta1;
  double beta2;
  double epsilon;
  double weight_decay;
};

AdamwRates adamw_rates(const std::vector<double>& numbers) {
  return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
}

AdamwRates checked_rates(const Evaluation& e) {
  if (e.request.numbers.size() < kNumAdamwRates)
    e.fail("takes at least five numbers: learning rate, two decays, epsilon, weight decay");
  const AdamwRates rates = adamw_rates(e.request.numbers);
  const auto is_decay = [](double x) { return x >= 0.0 && x < 1.0; };
  const auto is_rate = [](double x) { return x >= 0.0 && std::isfinite(x); };
  if (!is_rate(rates.learning_rate) || !is_rate(rates.weight_decay) || !is_decay(rates.beta1) ||
      !is_decay(rates.beta2) || !is_rate(rates.epsilon) || rates.epsilon == 0.0)
    e.fail("the rates must be at least 0, the two decays below 1, and epsilon above 0");
  return rates;
}

// The moments of one element of a matrix, 0 before the first step.
struct ElementMoments {
  double first = 0.0;
  double second = 0.0;
};

// One step of AdamW on one element, with what the page shows of it.
struct AdamwElement {
  ElementMoments moments;
  double first;  // the moments divided by 1 − decay^step
  double second;
  double decayed;  // the parameter after weight decay
  double update;   // what is then subtracted
};

AdamwElement adamw_element(const AdamwRates& rates, double parameter, double gradient, const ElementMoments& before,
                           Index step) {
  const auto count = static_cast<double>(step);
  AdamwElement element{};
  element.moments.first = rates.beta1 * before.first + (1.0 - rates.beta1) * gradient;
  element.moments.second = rates.beta2 * before.second + (1.0 - rates.beta2) * gradient * gradient;
  element.first = element.moments.first / (1.0 - std::pow(rates.beta1, count));
  element.second = element.moments.second / (1.0 - std::pow(rates.beta2, count));
  element.decayed = parameter - rates.learning_rate * rates.weight_decay * parameter;
  element.update = rates.learning_rate * element.first / (std::sqrt(element.second) + rates.epsilon);
  return element;
}

void adamw(Evaluation& e) {
  const AdamwRates rates = checked_rates(e);
  const Matrix& parameters = plain(e, 0);
  const Matrix& gradients = plain(e, 1);
  if (parameters.num_rows != gradients.num_rows || parameters.num_columns != gradients.num_columns)
    e.fail(fmt::format("{} is {} and {} is {}: they must have the same shape", e.request.operands[0],
                       shape_text(parameters), e.request.operands[1], shape_text(gradients)));
  std::vector<double> numbers;
  for (std::size_t i = 0; i < parameters.numbers.size(); ++i) {
    const AdamwElement element = adamw_element(rates, parameters.numbers[i], gradients.numbers[i], {}, 1);
    numbers.push_back(rounded(e, element.decayed - element.update));
  }
  set_result(e, parameters.num_rows, parameters.num_columns, std::move(numbers), e.operands[0].row_axis,
             e.operands[0].column_axis);
  e.step.outside_library = true;
  e.step.equation = fmt::format("{} = {} after one step of AdamW with {}", e.step.symbol, e.request.operands[0],
                                e.request.operands[1]);
}

// Every quantity of the step, from the gradient to the new number.
void expand_adamw(const Explanation&, const Step& step, const Cell& cell, int digits, CellDerivation& work) {
  const AdamwRates rates = adamw_rates(step.request.numbers);
  const double parameter = kept_number(*step.operands[0].matrix, 0, cell.row, cell.column);
  const double gradient = kept_number(*step.operands[1].matrix, 0, cell.row, cell.column);
  const AdamwElement element = adamw_element(rates, parameter, gradient, {}, 1);
  const auto shown = [&](double x) { return working_number(x, digits); };
  const auto factor = [&](double x) { return x < 0.0 ? "(" + shown(x) + ")" : shown(x); };
  const auto plain_number = [](double x) { return shown_number(x, ElementType::float64); };
  const auto line = [&](const char* name, const std::string& text) { work.lines.push_back({name, text}); };
  const std::string beta1 = plain_number(rates.beta1);
  const std::string beta2 = plain_number(rates.beta2);
  line("gradient g", shown(gradient));
  line("first moment",
       fmt::format("{} · 0 + (1 − {}) · {} = {}", beta1, beta1, factor(gradient), shown(element.moments.first)));
  line("second moment",
       fmt::format("{} · 0 + (1 − {}) · {}² = {}", beta2, beta2, factor(gradient), shown(element.moments.second)));
  line("first, corrected",
       fmt::format("{} / (1 − {}) = {}", shown(element.moments.first), beta1, shown(element.first)));
  line("second, corrected",
       fmt::format("{} / (1 − {}) = {}", shown(element.moments.second), beta2, shown(element.second)));
  line("weight decay", fmt::format("{} − {} · {} · {} = {}", shown(parameter), plain_number(rates.learning_rate),
                                   plain_number(rates.weight_decay), factor(parameter), shown(element.decayed)));
  line("update", fmt::format("{} · {} / (√{} + {}) = {}", plain_number(rates.learning_rate), factor(element.first),
                             shown(element.second), plain_number(rates.epsilon), shown(element.update)));
  const std::string result =
      fmt::format("{} − {} = {}", shown(element.decayed), factor(element.update), shown(work.result));
  line("new", result);
  work.brief = fmt::format(
      "g = {}; m = (1 − {}) · g / (1 − {}) = {}; v = (1 − {}) · g² / (1 − {}) = {}; {} − {} · {} / "
      "(√{} + {}) = {}",
      shown(gradient), beta1, beta1, shown(element.first), beta2, beta2, shown(element.second), shown(element.decayed),
      plain_number(rates.learning_rate), factor(element.first), shown(element.second), plain_number(rates.epsilon),
      shown(work.result));
}

// A small matrix with tokens, or inputs of a projection, as rows.
struct SmallMatrix {
  SmallMatrix(Index num_rows, Index num_columns)
      : rows(num_rows), columns(num_columns), numbers(static_cast<std::size_t>(num_rows * num_columns)) {}
  double& operator()(Index r, Index c) { return numbers[static_cast<std::size_t>(r * columns + c)]; }
  double operator()(Index r, Index c) const { return numbers[static_cast<std::size_t>(r * columns + c)]; }
  Index rows;
  Index columns;
  std::vector<double> numbers;
};

SmallMatrix transposed(const SmallMatrix& a) {
  SmallMatrix t(a.columns, a.rows);
  for (Index r = 0; r < t.rows; ++r) {
    for (Index c = 0; c < t.columns; ++c) t(r, c) = a(c, r);
  }
  return t;
}

SmallMatrix multiply(const SmallMatrix& a, const SmallMatrix& b) {
  SmallMatrix product(a.rows, b.columns);
  for (Index r = 0; r < product.rows; ++r) {
    for (Index c = 0; c < product.columns; ++c) {
      for (Index i = 0; i < a.columns; ++i) product(r, c) += a(r, i) * b(i, c);
    }
  }
  return product;
}

void softmax_in_place(SmallMatrix& scores) {
  for (Index r = 0; r < scores.rows; ++r) {
    double largest = -std::numeric_limits<double>::infinity();
    for (Index c = 0; c < scores.columns; ++c) largest = std::max(largest, scores(r, c));
    double sum = 0.0;
    for (Index c = 0; c < scores.columns; ++c) sum += scores(r, c) = std::exp(scores(r, c) - largest);
    for (Index c = 0; c < scores.columns; ++c) scores(r, c) /= sum;
  }
}

struct LearningModel {
  SmallMatrix words;
  SmallMatrix marks;
  std::array<SmallMatrix, 3> projections;  // W_query, W_key, W_value
  double scale = 1.0;
  std::optional<Index> causal_offset{};
};

// Every intermediate result of one forward pass.
struct ForwardPass {
  SmallMatrix query, key, value, weights, probabilities;
  double loss;
};

ForwardPass forward_pass(const LearningModel& model) {
  SmallMatrix query = multiply(model.words, model.projections[0]);
  SmallMatrix key = multiply(model.words, model.projections[1]);
  SmallMatrix value = multiply(model.words, model.projections[2]);
  SmallMatrix weights = multiply(query, transposed(key));
  for (Index i = 0; i < weights.rows; ++i) {
    for (Index j = 0; j < weights.columns; ++j) {
      const bool visible = !model.causal_offset || j <= i + *model.causal_offset;
      weights(i, j) = visible ? weights(i, j) * model.scale : -std::numeric_limits<double>::infinity();
    }
  }
  softmax_in_place(weights);
  SmallMatrix probabilities = multiply(multiply(weights, value), transposed(model.words));
  softmax_in_place(probabilities);
  double loss = 0.0;
  for (std::size_t i = 0; i < probabilities.numbers.size(); ++i) {
    if (model.marks.numbers[i] != 0.0) loss -= model.marks.numbers[i] * std::log(probabilities.numbers[i]);
  }
  return {std::move(query), std::move(key), std::move(value), std::move(weights), std::move(probabilities), loss};
}

// The gradients of the loss with respect to W_query, W_key and W_value, as the lesson's steps derive them.
std::array<SmallMatrix, 3> projection_gradients(const LearningModel& model, const ForwardPass& pass) {
  SmallMatrix of_logits = pass.probabilities;
  for (Index i = 0; i < of_logits.rows; ++i) {
    double marks = 0.0;
    for (Index j = 0; j < of_logits.columns; ++j) marks += model.marks(i, j);
    for (Index j = 0; j < of_logits.columns; ++j)
      of_logits(i, j) = marks == 0.0 ? 0.0 : marks * of_logits(i, j) - model.marks(i, j);
  }
  const SmallMatrix of_context = multiply(of_logits, model.words);
  const SmallMatrix of_weights = multiply(of_context, transposed(pass.value));
  SmallMatrix of_scores(of_weights.rows, of_weights.columns);
  for (Index i = 0; i < of_scores.rows; ++i) {
    double mean = 0.0;
    for (Index j = 0; j < of_scores.columns; ++j) mean += pass.weights(i, j) * of_weights(i, j);
    for (Index j = 0; j < of_scores.columns; ++j)
      of_scores(i, j) = model.scale * pass.weights(i, j) * (of_weights(i, j) - mean);
  }
  const SmallMatrix inputs = transposed(model.words);
  return {multiply(inputs, multiply(of_scores, pass.key)),
          multiply(inputs, multiply(transposed(of_scores), pass.query)),
          multiply(inputs, multiply(transposed(pass.weights), of_context))};
}

// Visits the model before the first step (step 0) and after each step.
void train_model(LearningModel& model, const AdamwRates& rates, Index num_steps,
                 const std::function<void(Index step, const ForwardPass& pass)>& visit) {
  std::array<std::vector<ElementMoments>, 3> moments;
  for (std::size_t p = 0; p < 3; ++p) moments[p].resize(model.projections[p].numbers.size());
  for (Index step = 1; step <= num_steps; ++step) {
    const ForwardPass pass = forward_pass(model);
    visit(step - 1, pass);
    const std::array<SmallMatrix, 3> of_projections = projection_gradients(model, pass);
    for (std::size_t p = 0; p < 3; ++p) {
      std::vector<double>& parameters = model.projections[p].numbers;
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const AdamwElement element =
            adamw_element(rates, parameters[i], of_projections[p].numbers[i], moments[p][i], step);
        moments[p][i] = element.moments;
        parameters[i] = element.decayed - element.update;
      }
    }
  }
  visit(num_steps, forward_pass(model));
}

SmallMatrix small_matrix(const Evaluation& e, std::size_t i, Index rows, Index columns) {
  const TokenVectors vectors(e, i);
  if (vectors.num_tokens != rows || vectors.num_dimensions != columns)
    e.fail(fmt::format("{} is {}; expected {}", e.request.operands[i], shape_text(vectors.matrix),
                       e.columns() ? fmt::format("{} × {}", columns, rows) : fmt::format("{} × {}", rows, columns)));
  SmallMatrix table(rows, columns);
  for (Index r = 0; r < rows; ++r) {
    for (Index c = 0; c < columns; ++c) table(r, c) = vectors.at(r, c);
  }
  return table;
}

// Operands: X, Y, W_query, W_key, W_value, under the scale and the mask of the settings.
LearningModel learning_model(const Evaluation& e) {
  const Index tokens = TokenVectors(e, 0).num_tokens;
  const Index width = TokenVectors(e, 0).num_dimensions;
  // In layout columns a projection is stored (outputs, inputs), as vectors of tokens are.
  const Index head_size = TokenVectors(e, 2).num_dimensions;
  if (tokens > kMaxTrainedTokens || width > kMaxTrainedDimensions || head_size > kMaxTrainedDimensions)
    e.fail(fmt::format("takes at most {} tokens and {} dimensions", kMaxTrainedTokens, kMaxTrainedDimensions));
  if (e.settings.softmax == SoftmaxRule::ratio || e.settings.softmax_base)
    e.fail("only softmax with base e can be trained, not other bases or ratios");
  LearningModel model{.words = small_matrix(e, 0, tokens, width),
                      .marks = small_matrix(e, 1, tokens, tokens),
                      .projections = {small_matrix(e, 2, width, head_size), small_matrix(e, 3, width, head_size),
                                      small_matrix(e, 4, width, width)}};
  for (const double mark : model.marks.numbers) {
    if (!(mark >= 0.0 && std::isfinite(mark)))
      e.fail(e.request.operands[1] + " must contain finite numbers of at least 0");
  }
  const Scale& scale = e.request.scale ? *e.request.scale : e.settings.scale;
  if (scale.rule == ScaleRule::floor_half)
    e.fail("scale floor_half has no gradient: a floor is constant between jumps");
  if (scale.rule == ScaleRule::sqrt) model.scale = 1.0 / std::sqrt(static_cast<double>(head_size));
  if (scale.rule == ScaleRule::number) model.scale = scale.number;
  const Causal& causal = e.request.causal ? *e.request.causal : e.settings.causal;
  // With as many queries as keys, top_left and bottom_right are the same.
  if (causal.rule != CausalRule::off) model.causal_offset = causal.rule == CausalRule::number ? causal.offset : 0;
  return model;
}

std::string quoted_token(const Axis& tokens, Index token) { return "“" + axis_label(tokens, token) + "”"; }

// numbers: the five rates, then the steps to show, increasing. One row for each of them: the loss, the probability of
// each next word, and the weights of the query in focus. The finding names the weight that changes most.
void training(Evaluation& e) {
  const AdamwRates rates = checked_rates(e);
  LearningModel model = learning_model(e);
  std::vector<Index> steps;
  std::vector<std::string> labels;
  for (std::size_t i = kNumAdamwRates; i < e.request.numbers.size(); ++i) {
    steps.push_back(whole_number(e, i, steps.empty() ? 0 : steps.back() + 1, kMaxTrainingSteps));
    labels.push_back(std::to_string(steps.back()));
  }
  if (steps.size() < 2) e.fail("needs at least two steps to show after the five rates");
  const Axis& tokens = e.columns() ? e.operands[0].column_axis : e.operands[0].row_axis;
  const std::optional<Index> focus = e.focus && *e.focus < model.words.rows ? e.focus : std::nullopt;
  std::vector<std::string> names = {"loss"};
  std::vector<std::size_t> marked;
  for (Index i = 0; i < model.marks.rows; ++i) {
    for (Index j = 0; j < model.marks.columns; ++j) {
      if (model.marks(i, j) == 0.0) continue;
      marked.push_back(static_cast<std::size_t>(i * model.marks.columns + j));
      names.push_back("p " + axis_label(tokens, j));
    }
  }
  if (marked.empty()) e.fail(e.request.operands[1] + " marks no next word");
  for (Index j = 0; focus && j < model.words.rows; ++j) names.push_back("on " + axis_label(tokens, j));
  std::vector<double> numbers;
  std::vector<ForwardPass> ends;
  train_model(model, rates, steps.back(), [&](Index step, const ForwardPass& pass) {
    if (!std::binary_search(steps.begin(), steps.end(), step)) return;
    numbers.push_back(rounded(e, pass.loss));
    for (const std::size_t i : marked) numbers.push_back(rounded(e, pass.probabilities.numbers[i]));
    for (Index j = 0; focus && j < pass.weights.columns; ++j) numbers.push_back(rounded(e, pass.weights(*focus, j)));
    if (step == steps.front() || step == steps.back()) ends.push_back(pass);
  });
  set_result(e, static_cast<Index>(steps.size()), static_cast<Index>(names.size()), std::move(numbers),
             {"", "step", labels}, {"", "", names});
  Index query = 0;
  Index key = 0;
  const auto change = [&](Index i, Index j) { return std::fabs(ends[1].weights(i, j) - ends[0].weights(i, j)); };
  for (Index i = 0; i < model.words.rows; ++i) {
    for (Index j = 0; j < model.words.rows; ++j) {
      if (change(i, j) > change(query, key)) {
        query = i;
        key = j;
      }
    }
  }
  const auto shown = [](double x) { return styled_number(x, {.digits = 4, .unicode = true}); };
  e.step.finding = fmt::format(
      "From step {} to step {}, the loss changes from {} to {}. The weight that changes most is that of {} on {}: {} "
      "before and {} after",
      steps.front(), steps.back(), shown(ends[0].loss), shown(ends[1].loss), quoted_token(tokens, query),
      quoted_token(tokens, key), shown(ends[0].weights(query, key)), shown(ends[1].weights(query, key)));
  e.step.outside_library = true;
  e.step.equation = "AdamW on the three projections; p: probability of the next word";
  if (focus) e.step.equation += fmt::format("; on: attention weights of {}", quoted_token(tokens, *focus));
}

// numbers: the five rates, the number of steps, and which matrix is the result: 0 W_query, 1 W_key, 2 W_value.
void trained(Evaluation& e) {
  const AdamwRates rates = checked_rates(e);
  if (e.request.numbers.size() != kNumAdamwRates + 2)
    e.fail("takes seven numbers: five rates, the number of steps, and 0, 1 or 2 for the matrix");
  const Index num_steps = whole_number(e, kNumAdamwRates, 0, kMaxTrainingSteps);
  const auto which = static_cast<std::size_t>(whole_number(e, kNumAdamwRates + 1, 0, 2));
  LearningModel model = learning_model(e);
  train_model(model, rates, num_steps, [](Index, const ForwardPass&) {});
  const Matrix& before = e.operand(which + 2);
  SmallMatrix after = e.columns() ? transposed(model.projections[which]) : model.projections[which];
  for (double& number : after.numbers) number = rounded(e, number);
  set_result(e, before.num_rows, before.num_columns, std::move(after.numbers), e.operands[which + 2].row_axis,
             e.operands[which + 2].column_axis);
  e.step.outside_library = true;
  e.step.equation = fmt::format("{} = {} after {} steps", e.step.symbol, e.request.operands[which + 2], num_steps);
}

void expand_trained(const Explanation&, const Step& step, const Cell& cell, int digits, CellDerivation& work) {
  const auto which = static_cast<std::size_t>(step.request.numbers[kNumAdamwRates + 1]);
  const double before = kept_number(*step.operands[which + 2].matrix, 0, cell.row, cell.column);
  const double moved = work.result - before;
  work.lines.push_back(
      {"moved", fmt::format("{} {} {} = {}", working_number(before, digits), moved < 0 ? "−" : "+",
                            working_number(std::fabs(moved), digits), working_number(work.result, digits))});
}

constexpr OperationInfo kTrainingOperations[] = {
    {Operation::adamw, "adamw", "one step of AdamW", 2, 2, adamw, expand_adamw},
    {Operation::training, "training", "training", 5, 5, training, nullptr, {.ignores_layout = true}},
    {Operation::trained, "trained", "after training", 5, 5, trained, expand_trained},
};

}  // namespace

std::span<const OperationInfo> training_operations() { return kTrainingOperations; }

}  // namespace regard::inline v0
