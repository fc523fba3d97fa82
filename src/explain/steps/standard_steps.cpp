// SPDX-License-Identifier: Apache-2.0
//
// The default list of steps for given matrices and settings, used when the input lists none:
//
//     X W_query W_key W_value  or  Q K V      queries, keys, values
//     the library's softmax                   scores, [scaled], [masked], weights, context
//     another softmax                         scores, [scaled], [masked], exponentials, sums, weights, context
//     heads, W_output                         joined, output
//
// Read next: steps.cpp.
#include <fmt/format.h>

#include <algorithm>

#include "explain/report/terminal.h"
#include "operations.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace {

const Matrix* find(const ExplainInput& input, std::string_view name) {
  for (const NamedMatrix& m : input.matrices)
    if (m.name == name) return &m.matrix;
  return nullptr;
}

StepRequest request(Operation operation, std::vector<std::string> operands, std::string result, std::string name) {
  StepRequest r;
  r.operation = operation;
  r.operands = std::move(operands);
  r.result = std::move(result);
  r.name = std::move(name);
  return r;
}

void check_names(const ExplainInput& input, bool projected) {
  const std::vector<std::string_view> allowed =
      projected ? std::vector<std::string_view>{"X",       "W_query", "W_key",   "W_value", "W_output",
                                                "b_query", "b_key",   "b_value", "b_output"}
                : std::vector<std::string_view>{"Q", "K", "V", "W_output", "b_output"};
  for (const NamedMatrix& m : input.matrices)
    if (std::find(allowed.begin(), allowed.end(), m.name) == allowed.end())
      throw InvalidArgument(fmt::format("matrix {} is not used by any step; the matrices are {}",
                                        text_in_message(m.name), fmt::join(allowed, ", ")));
  for (std::string_view name : projected ? std::vector<std::string_view>{"W_query", "W_key", "W_value"}
                                         : std::vector<std::string_view>{"Q", "K", "V"})
    if (!find(input, name))
      throw InvalidArgument(
          fmt::format("matrix {} is missing; give X, W_query, W_key and W_value, or Q, K and V", name));
  if (find(input, "b_output") && !find(input, "W_output"))
    throw InvalidArgument("matrix b_output is given without W_output");
}

// The softmax as computed by hand in a document, from the matrix of scores of the given name.
void append_paper_softmax(const ExplainInput& input, const std::string& scores, std::vector<StepRequest>& steps) {
  if (input.settings.softmax == SoftmaxRule::ratio) {
    steps.push_back(request(Operation::ratio, {scores}, "A", "weights"));
    return;
  }
  steps.push_back(request(Operation::power, {scores}, "P", "exponentials"));
  steps.push_back(request(Operation::sums, {"P"}, "sums", "sums"));
  steps.push_back(request(Operation::divide, {"P", "sums"}, "A", "weights"));
}

}  // namespace

std::vector<StepRequest> standard_steps(const ExplainInput& input) {
  const bool projected = find(input, "X") != nullptr;
  check_names(input, projected);
  const ExplainSettings& settings = input.settings;
  std::vector<StepRequest> steps;

  if (projected) steps.push_back(request(Operation::show, {"X"}, "X", "input"));
  for (const auto& [name, symbol, part] :
       {std::array{"queries", "Q", "query"}, std::array{"keys", "K", "key"}, std::array{"values", "V", "value"}}) {
    StepRequest r = request(Operation::show, {symbol}, symbol, name);
    if (projected) {
      r = request(Operation::linear, {"X", fmt::format("W_{}", part)}, symbol, name);
      if (find(input, fmt::format("b_{}", part))) r.operands.push_back(fmt::format("b_{}", part));
    }
    if (settings.heads != 1) r.heads = settings.heads;
    steps.push_back(std::move(r));
  }

  const bool causal = settings.causal.rule != CausalRule::off;
  const bool by_hand = settings.scale.rule == ScaleRule::floor_half;
  const bool library = settings.softmax == SoftmaxRule::shifted && !settings.softmax_base && !by_hand;
  std::string_view scores = "S";
  steps.push_back(request(Operation::scores, {"Q", "K"}, "S", "scores"));
  if (by_hand) {
    steps.push_back(request(Operation::floor_half, {"S"}, "scaled", "scaled"));
    scores = "scaled";
  } else if (settings.scale.rule != ScaleRule::none) {
    steps.push_back(request(Operation::scaled, {"Q", "K"}, "scaled", "scaled"));
    scores = "scaled";
  }
  if (causal) {
    steps.push_back(by_hand ? request(Operation::hide, {std::string(scores)}, "masked", "masked")
                            : request(Operation::masked, {"Q", "K"}, "masked", "masked"));
    scores = "masked";
  }
  if (library) {
    steps.push_back(request(Operation::weights, {"Q", "K"}, "A", "weights"));
    steps.push_back(request(Operation::context, {"Q", "K", "V"}, "C", "context"));
  } else {
    append_paper_softmax(input, std::string(scores), steps);
    const bool columns = settings.layout == Layout::columns;
    steps.push_back(columns ? request(Operation::product, {"V", "A"}, "C", "context")
                            : request(Operation::product, {"A", "V"}, "C", "context"));
  }

  std::string_view last = "C";
  const Matrix* query = find(input, "Q");
  if (settings.heads > 1 || (query && query->num_heads > 1)) {
    steps.push_back(request(Operation::join, {"C"}, "J", "joined"));
    last = "J";
  }
  if (find(input, "W_output")) {
    steps.push_back(request(Operation::linear, {std::string(last), "W_output"}, "O", "output"));
    if (find(input, "b_output")) steps.back().operands.push_back("b_output");
  }
  return steps;
}

namespace {

// Appends the expansion of each listed step to `steps`.
class HandSteps {
 public:
  explicit HandSteps(const ExplainSettings& settings)
      : settings_(settings), other_softmax_(settings.softmax != SoftmaxRule::shifted || settings.softmax_base) {}

  void append(const StepRequest& step) {
    const bool floored = (step.scale ? *step.scale : settings_.scale).rule == ScaleRule::floor_half;
    if (step.operation == Operation::scaled && floored) {
      add(step, Operation::floor_half, {scores_of(step)});
    } else if (step.operation == Operation::masked && floored) {
      add(step, Operation::hide, {floored_scores_of(step)});
    } else if (step.operation == Operation::weights && (floored || other_softmax_)) {
      add_weights(step, floored);
    } else if (step.operation == Operation::context && (floored || other_softmax_)) {
      StepRequest weights =
          request(Operation::weights, step.operands, "weights of " + step.result, step.name + "-weights");
      weights.scale = step.scale;
      weights.causal = step.causal;
      add_weights(weights, floored);
      const std::string& value = step.operands[2];
      add(step, Operation::product,
          settings_.layout == Layout::columns ? std::vector{value, weights.result}
                                              : std::vector{weights.result, value});
    } else {
      steps_.push_back(step);
    }
  }
  std::vector<StepRequest> take() { return std::move(steps_); }

 private:
  // The last step of several: the same as `like`, except for what it computes.
  void add(const StepRequest& like, Operation operation, std::vector<std::string> operands) {
    steps_.push_back(like);
    steps_.back().operation = operation;
    steps_.back().operands = std::move(operands);
  }
  // An intermediate step of `step`; returns the name of its result.
  std::string between(const StepRequest& step, Operation operation, std::vector<std::string> operands) {
    const std::string_view name_part = operation_name(operation);
    const std::string name = fmt::format("{} of {}", name_part, step.result);
    StepRequest r = request(operation, std::move(operands), name, fmt::format("{}-{}", step.name, name_part));
    r.scale = step.scale;
    r.causal = step.causal;
    steps_.push_back(std::move(r));
    return name;
  }
  std::string scores_of(const StepRequest& step) {
    return between(step, Operation::scores, {step.operands[0], step.operands[1]});
  }
  std::string floored_scores_of(const StepRequest& step) {
    return between(step, Operation::floor_half, {scores_of(step)});
  }

  void add_weights(const StepRequest& step, bool floored) {
    const std::string scores = floored ? between(step, Operation::hide, {floored_scores_of(step)})
                                       : between(step, Operation::masked, {step.operands[0], step.operands[1]});
    if (settings_.softmax == SoftmaxRule::ratio) {
      add(step, Operation::ratio, {scores});
      return;
    }
    const std::string powers = between(step, Operation::power, {scores});
    add(step, Operation::divide, {powers, between(step, Operation::sums, {powers})});
  }

  const ExplainSettings& settings_;
  const bool other_softmax_;
  std::vector<StepRequest> steps_;
};

}  // namespace

std::vector<StepRequest> steps_by_hand(const std::vector<StepRequest>& steps, const ExplainSettings& settings) {
  HandSteps by_hand(settings);
  for (const StepRequest& step : steps) by_hand.append(step);
  return by_hand.take();
}

}  // namespace regard::inline v0
