// SPDX-License-Identifier: Apache-2.0
//
// Runs a list of steps: each finds its operands among the input matrices and earlier results, computes, and is then
// compared with the numbers that a document prints and with the variants.
//
//     names → values:  X W_query … → Q → K → V → S → scaled → … → C
//
// Read next: operations.h and the files it names.
#include "regard/explain/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "expansion.h"
#include "explain/report/terminal.h"
#include "findings.h"
#include "fractions.h"
#include "operations.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace {

void check_matrix(const NamedMatrix& named) {
  const Matrix& m = named.matrix;
  const double numbers =
      static_cast<double>(m.num_heads) * static_cast<double>(m.num_rows) * static_cast<double>(m.num_columns);
  if (m.num_heads < 1 || m.num_rows < 1 || m.num_columns < 1 || !m.kept_rows.empty() || !m.kept_columns.empty() ||
      numbers != static_cast<double>(m.numbers.size()))
    throw InvalidArgument(
        fmt::format("matrix {} is {} × {} × {} and holds {} numbers; it must be complete and non-empty",
                    text_in_message(named.name), m.num_heads, m.num_rows, m.num_columns, m.numbers.size()));
}

// The token axis of an input matrix follows from its name and from the number of tokens.
Value input_value(const NamedMatrix& named, const ExplainSettings& settings, const std::vector<std::string>& tokens,
                  const std::vector<std::string>& key_tokens) {
  Value value{std::make_shared<const Matrix>(named.matrix), {}, {}};
  const bool columns = settings.layout == Layout::columns;
  const std::string& name = named.name;
  if (name.starts_with("W") || name.starts_with("b_")) {
    const Axis in{"E", name.starts_with("b_") ? "" : "input dimension", {}};
    const Axis out{"D", "dimension", {}};
    value.row_axis = columns ? out : in;
    value.column_axis = columns && !name.starts_with("b_") ? in : out;
    return value;
  }
  Axis token{name == "K" || name == "V" ? "S" : "L",
             name == "K" || name == "V" ? "key" : (name == "Q" ? "query" : "token"),
             {}};
  const std::vector<std::string>& words = name == "K" || name == "V" ? key_tokens : tokens;
  const Index count = columns ? named.matrix.num_columns : named.matrix.num_rows;
  if (static_cast<Index>(words.size()) == count) token.labels = words;
  // Y marks the words that follow: a square of tokens and words.
  if (name == "Y" && token.labels.size() == words.size() && named.matrix.num_rows == named.matrix.num_columns &&
      !words.empty()) {
    const Axis word{"L", "word", words};
    value.row_axis = columns ? word : token;
    value.column_axis = columns ? token : word;
    return value;
  }
  const Axis dimension{name == "X" ? "E" : (name == "V" ? "Dv" : "D"), "dimension", {}};
  value.row_axis = columns ? dimension : token;
  value.column_axis = columns ? token : dimension;
  return value;
}

bool rounds_to(double ours, double printed, int digits, bool significant) {
  if (std::isnan(ours) || std::isnan(printed)) return std::isnan(ours) && std::isnan(printed);
  if (std::isinf(ours) || std::isinf(printed)) return ours == printed;
  const auto text = [&](double x) {
    std::string t = significant ? fmt::format("{:.{}e}", x, digits - 1) : fmt::format("{:.{}f}", x, digits);
    if (t.find_first_of("123456789") == std::string::npos && t.starts_with('-')) t.erase(0, 1);
    return t;
  };
  return text(ours) == text(printed);
}

// Marks the numbers that the document prints differently.
void compare_expected(const Expected& expected, Step& step) {
  const Matrix& m = step.result;
  const Matrix& printed = expected.numbers;
  const auto count = [](const std::vector<Index>& chosen, Index all) {
    return chosen.empty() ? all : static_cast<Index>(chosen.size());
  };
  const Index rows = count(expected.rows, m.num_rows);
  const Index columns = count(expected.columns, m.num_columns);
  if (printed.num_heads != m.num_heads || printed.num_rows != rows || printed.num_columns != columns ||
      static_cast<double>(printed.numbers.size()) !=
          static_cast<double>(m.num_heads) * static_cast<double>(rows) * static_cast<double>(columns))
    throw InvalidArgument(fmt::format("step {}: the expected values are {} × {} × {}, but the result is {} × {} × {}",
                                      step.name, printed.num_heads, printed.num_rows, printed.num_columns, m.num_heads,
                                      rows, columns));
  if (expected.digits < (expected.significant ? 1 : 0) || expected.digits > 17)
    throw InvalidArgument(fmt::format("step {}: expected digits must be between 0 and 17", step.name));
  const auto check = [&step](std::string_view what, const std::vector<Index>& chosen, Index all) {
    for (Index i : chosen)
      if (i < 0 || i >= all)
        throw InvalidArgument(fmt::format("step {}: expected {} {} does not exist", step.name, what, i));
  };
  check("row", expected.rows, m.num_rows);
  check("column", expected.columns, m.num_columns);
  step.differs.assign(m.numbers.size(), 0);
  for_each_printed(expected, m, [&](std::size_t ours, double theirs, const Cell&) {
    step.differs[ours] = !rounds_to(m.numbers[ours], theirs, expected.digits, expected.significant);
  });
}

void sum_weights(Step& step) {
  if (step.sums_to_one == SumAxis::none) return;
  const Matrix& m = step.result;
  const bool by_row = step.sums_to_one == SumAxis::row;
  const Index outer = by_row ? m.stored_rows() : m.stored_columns();
  const Index inner = by_row ? m.stored_columns() : m.stored_rows();
  for (Index h = 0; h < m.num_heads; ++h)
    for (Index o = 0; o < outer; ++o) {
      double sum = 0.0;
      for (Index i = 0; i < inner; ++i) sum += m.numbers[by_row ? m.index(h, o, i) : m.index(h, i, o)];
      step.sums.push_back(sum);
    }
  // Shares that are NaN have no sum.
  if (std::any_of(step.sums.begin(), step.sums.end(), [](double sum) { return std::isnan(sum); })) {
    step.sums.clear();
    step.sums_to_one = SumAxis::none;
  }
}

// The name that --step takes: Regard's term for it.
std::string step_name(const StepRequest& request) {
  return request.name.empty() ? std::string(operation_name(request.operation)) : request.name;
}

std::string unique_name(const std::string& name, const std::vector<Step>& steps) {
  const auto same =
      std::count_if(steps.begin(), steps.end(), [&](const Step& s) { return step_name(s.request) == name; });
  return same == 0 ? name : fmt::format("{}#{}", name, same);
}

std::string term_of(const std::string& name, const OperationInfo& operation) {
  static const std::map<std::string_view, std::string_view> kTerms = {
      {"scores", "attention scores"},   {"scaled", "scaled scores"}, {"masked", "masked scores"},
      {"weights", "attention weights"}, {"context", "context"},      {"joined", "joined heads"},
  };
  const auto term = kTerms.find(name);
  if (term != kTerms.end()) return std::string(term->second);
  return name == operation.name ? std::string(operation.term) : name;
}

class Run {
 public:
  Run(const ExplainInput& input, const ExplainSettings& settings, const Explanation& explanation, const Keep& keep)
      : input_(input), settings_(settings), explanation_(explanation), keep_(keep) {
    for (const NamedMatrix& named : input.matrices) {
      check_matrix(named);
      if (!values_
               .emplace(named.name, input_value(named, settings, input.tokens,
                                                input.key_tokens.empty() ? input.tokens : input.key_tokens))
               .second)
        throw InvalidArgument(fmt::format("matrix {} is given twice", text_in_message(named.name)));
    }
  }

  void step(const StepRequest& request) {
    Step step;
    step.request = request;
    step.name = unique_name(step_name(request), steps_);
    const OperationInfo& operation = operation_info(request.operation);
    const auto given = static_cast<int>(request.operands.size());
    if (given < operation.min_operands || given > operation.max_operands)
      throw InvalidArgument(fmt::format("step {}: operation {} takes {} operands, not {}", text_in_message(step.name),
                                        operation.name,
                                        operation.min_operands == operation.max_operands
                                            ? fmt::format("{}", operation.min_operands)
                                            : fmt::format("{} to {}", operation.min_operands, operation.max_operands),
                                        given));
    step.term = term_of(step_name(request), operation);
    step.symbol = request.result.empty() ? step.name : request.result;
    step.document_name = request.document_name;
    for (const NamedText& named : input_.names)
      if (named.name == step.name && step.document_name.empty()) step.document_name = named.text;

    std::vector<Value> operands;
    for (const std::string& name : request.operands) {
      const auto value = values_.find(name);
      if (value == values_.end())
        throw InvalidArgument(fmt::format("step {}: matrix {} is not defined before this step",
                                          text_in_message(step.name), text_in_message(name)));
      operands.push_back(value->second);
      step.operands.push_back({name, value->second.matrix});
      used_.push_back(name);
    }
    step.requested_operands = step.operands;
    Evaluation evaluation{.input = input_,
                          .settings = settings_,
                          .request = request,
                          .focus = explanation_.focus,
                          .operands = std::move(operands),
                          .keep = keep_,
                          .previous = steps_,
                          .step = step};
    operation.compute(evaluation);
    finish(request, step);
    if (with_fractions_) keep_fractions(request, step);
    values_.insert_or_assign(step.symbol,
                             Value{std::make_shared<const Matrix>(step.result), step.row_axis, step.column_axis});
    steps_.push_back(std::move(step));
  }

  // Fractions are computed from the integers of the input if a step shows them.
  void follow_fractions() {
    with_fractions_ = true;
    for (const NamedMatrix& named : input_.matrices)
      if (std::optional<ExactMatrix> exact = exact_matrix(named.matrix))
        fractions_.emplace(named.name, std::move(*exact));
  }

  void check_all_used() const {
    for (const NamedMatrix& named : input_.matrices)
      if (std::find(used_.begin(), used_.end(), named.name) == used_.end())
        throw InvalidArgument(fmt::format("matrix {} is not used by any step", text_in_message(named.name)));
  }

  std::vector<Step> take() { return std::move(steps_); }

 private:
  void finish(const StepRequest& request, Step& step) const {
    if (!request.equation.empty()) step.equation = request.equation;
    if (step.row_axis.labels.empty() && static_cast<Index>(request.labels.size()) == step.result.num_rows)
      step.row_axis.labels = request.labels;
    if (step.column_axis.labels.empty() && static_cast<Index>(request.column_labels.size()) == step.result.num_columns)
      step.column_axis.labels = request.column_labels;
    sum_weights(step);
    const auto expected = input_.expected.find(step.name);
    if (request.expected) {
      compare_expected(*request.expected, step);
    } else if (expected != input_.expected.end()) {
      step.request.expected = expected->second;
      compare_expected(expected->second, step);
    }
    step.notes.insert(step.notes.begin(), request.notes.begin(), request.notes.end());
    if (const auto notes = input_.notes.find(step.name); notes != input_.notes.end())
      step.notes.insert(step.notes.end(), notes->second.begin(), notes->second.end());
    step.errata = request.errata;
    if (!request.finding.empty()) step.finding = request.finding;
    if (step.finding.empty()) step.finding = finding_of(step, explanation_);
  }

  void keep_fractions(const StepRequest& request, Step& step) {
    std::optional<ExactMatrix> exact = exact_result(request, settings_, fractions_);
    if (!exact) {
      fractions_.erase(step.symbol);
      return;
    }
    if (request.fractions && exact->numbers.size() == step.result.numbers.size())
      for (const Rational& fraction : exact->numbers) step.exact.push_back(fraction.text());
    fractions_.insert_or_assign(step.symbol, std::move(*exact));
  }

  const ExplainInput& input_;
  const ExplainSettings& settings_;
  const Explanation& explanation_;
  const Keep& keep_;
  bool with_fractions_ = false;
  ExactMatrices fractions_;
  std::map<std::string, Value> values_;
  std::vector<Step> steps_;
  std::vector<std::string> used_;
};

void check_settings(const ExplainSettings& settings) {
  if (settings.heads < 1 || settings.heads > 65536)
    throw InvalidArgument(fmt::format("heads is {}; it must be between 1 and 65536", settings.heads));
  if (settings.dtype != ElementType::float32 && settings.dtype != ElementType::float64)
    throw InvalidArgument(fmt::format("dtype is {}; it must be float32 or float64", type_name(settings.dtype)));
  if (settings.digits && (*settings.digits < 0 || *settings.digits > 17))
    throw InvalidArgument(fmt::format("digits is {}; it must be between 0 and 17", *settings.digits));
  if (settings.softmax_base && !(*settings.softmax_base > 0 && std::isfinite(*settings.softmax_base)))
    throw InvalidArgument("softmax_base must be a positive number or e");
}

void check_tokens(const ExplainInput& input) {
  const auto check = [&](std::string_view what, std::size_t words, std::string_view matrix) {
    for (const NamedMatrix& named : input.matrices) {
      const Index count = input.settings.layout == Layout::columns ? named.matrix.num_columns : named.matrix.num_rows;
      if (named.name == matrix && words != 0 && static_cast<Index>(words) != count)
        throw InvalidArgument(fmt::format("the length of {} is {}, but {} has {} {}", what, words, matrix, count,
                                          input.settings.layout == Layout::columns ? "columns" : "rows"));
    }
  };
  check("tokens", input.tokens.size(), "X");
  check("tokens", input.tokens.size(), "Q");
  if (!input.key_tokens.empty()) {
    check("key_tokens", input.key_tokens.size(), "K");
    check("key_tokens", input.key_tokens.size(), "V");
  }
}

std::vector<std::string> settings_lines(const ExplainSettings& s) {
  std::vector<std::string> lines;
  lines.push_back(s.layout == Layout::columns ? "each token is a column" : "each token is a row");
  switch (s.scale.rule) {
    case ScaleRule::none:
      lines.push_back("scores not scaled");
      break;
    case ScaleRule::sqrt:
      lines.push_back("scores divided by √D");
      break;
    case ScaleRule::number:
      lines.push_back("scores times " + shown_number(s.scale.number, ElementType::float64));
      break;
    case ScaleRule::floor_half:
      lines.push_back("floor(score / 2) instead of a scale");
      break;
  }
  if (s.causal.rule == CausalRule::top_left) lines.push_back("causal");
  if (s.causal.rule == CausalRule::bottom_right) lines.push_back("causal, last query at last key");
  if (s.causal.rule == CausalRule::number)
    lines.push_back(fmt::format("causal, query i at position i + {}", s.causal.offset));
  if (s.softmax == SoftmaxRule::unshifted) lines.push_back("softmax without shift");
  if (s.softmax == SoftmaxRule::ratio) lines.push_back("plain ratio instead of softmax");
  if (s.softmax_base)
    lines.push_back("powers of " + shown_number(*s.softmax_base, ElementType::float64) + " instead of e");
  if (s.heads > 1) lines.push_back(fmt::format("{} heads", s.heads));
  if (s.dtype == ElementType::float32) lines.push_back("float32");
  return lines;
}

ExplainInput variant_input(const ExplainInput& input, const Variant& variant) {
  ExplainInput changed = input;
  changed.settings = variant.settings;
  changed.expected.clear();
  for (StepRequest& request : changed.steps) request.expected.reset();
  for (const NamedMatrix& named : variant.matrices) {
    const auto same = std::find_if(changed.matrices.begin(), changed.matrices.end(),
                                   [&](const NamedMatrix& m) { return m.name == named.name; });
    if (same == changed.matrices.end())
      throw InvalidArgument(fmt::format("variant \"{}\": there is no matrix {} to replace",
                                        text_in_message(variant.label), text_in_message(named.name)));
    same->matrix = named.matrix;
  }
  return changed;
}

std::vector<Step> run_all(const ExplainInput& input, const Explanation& explanation, const Keep& keep,
                          const std::stop_token& stop) {
  check_settings(input.settings);
  if (input.settings.heads != 1 && !input.steps.empty())
    throw InvalidArgument(
        fmt::format("heads is {}, but the input lists its own steps; set heads in the steps with the operation linear "
                    "or show instead",
                    input.settings.heads));
  Run run(input, input.settings, explanation, keep);
  const std::vector<StepRequest> requests =
      input.steps.empty() ? standard_steps(input) : steps_by_hand(input.steps, input.settings);
  if (std::any_of(requests.begin(), requests.end(), [](const StepRequest& r) { return r.fractions; }))
    run.follow_fractions();
  for (const StepRequest& request : requests) {
    throw_if_stopped(stop, "the explanation");
    run.step(request);
  }
  run.check_all_used();
  return run.take();
}

bool same_numbers(const Matrix& a, const Matrix& b) {
  return a.num_rows == b.num_rows && a.num_columns == b.num_columns && a.num_heads == b.num_heads &&
         a.hidden == b.hidden && a.numbers.size() == b.numbers.size() &&
         std::equal(a.numbers.begin(), a.numbers.end(), b.numbers.begin(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

void check_step_names(const ExplainInput& input, const std::vector<Step>& steps) {
  const auto check = [&](std::string_view setting, const std::string& name) {
    if (std::none_of(steps.begin(), steps.end(), [&](const Step& s) { return s.name == name; }))
      throw InvalidArgument(fmt::format("{} names step \"{}\", which does not exist", setting, text_in_message(name)));
  };
  for (const NamedText& named : input.names) check("names", named.name);
  for (const auto& [name, expected] : input.expected) check("expected", name);
  for (const auto& [name, notes] : input.notes) check("notes", name);
}

}  // namespace

void Evaluation::fail(const std::string& what) const {
  throw InvalidArgument(fmt::format("step {}: {}", text_in_message(step.name), escape_for_terminal(what)));
}

namespace {

// The table by operation.
using OperationTable = std::array<const OperationInfo*, kNumOperations>;
const OperationTable& operation_table() {
  static const OperationTable table = [] {
    OperationTable rows{};
    for (std::span<const OperationInfo> part : {attention_operations(), matrix_operations(), paper_operations(),
                                                lesson_operations(), gradient_operations(), training_operations()})
      for (const OperationInfo& info : part) rows[static_cast<std::size_t>(info.operation)] = &info;
    assert(std::find(rows.begin(), rows.end(), nullptr) == rows.end());
    return rows;
  }();
  return table;
}

}  // namespace

const OperationInfo& operation_info(Operation operation) {
  return *operation_table()[static_cast<std::size_t>(operation)];
}

std::string_view operation_name(Operation operation) { return operation_info(operation).name; }

std::optional<Operation> operation_named(std::string_view name) {
  for (const OperationInfo* info : operation_table())
    if (info->name == name) return info->operation;
  return std::nullopt;
}

std::string operation_names() {
  std::vector<std::string_view> names;
  for (const OperationInfo* info : operation_table()) names.push_back(info->name);
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<std::string> query_tokens(const ExplainInput& input) {
  std::vector<std::string> tokens = input.tokens;
  for (const NamedMatrix& named : input.matrices) {
    if (!tokens.empty()) break;
    if (named.name != "X" && named.name != "Q") continue;
    const Index count = input.settings.layout == Layout::columns ? named.matrix.num_columns : named.matrix.num_rows;
    for (Index i = 0; i < count; ++i) tokens.push_back(std::to_string(i));
  }
  return tokens;
}

Explanation explain(const ExplainInput& input, const Keep& keep, const std::stop_token& stop) {
  Explanation explanation;
  explanation.lesson = input.lesson;
  explanation.title = input.title;
  explanation.citation = input.citation;
  explanation.settings = input.settings;
  explanation.settings_text = settings_lines(input.settings);
  explanation.errata = input.errata;
  check_tokens(input);
  explanation.tokens = query_tokens(input);
  explanation.key_tokens = input.key_tokens.empty() ? explanation.tokens : input.key_tokens;
  if (!input.settings.query.empty()) explanation.focus = token_index(explanation.tokens, input.settings.query);

  explanation.steps = run_all(input, explanation, keep, stop);
  check_step_names(input, explanation.steps);
  for (const Variant& variant : input.variants) {
    std::vector<Step> steps = run_all(variant_input(input, variant), explanation, keep, stop);
    for (Step& step : explanation.steps)
      for (Step& other : steps)
        if (other.name == step.name && !same_numbers(step.result, other.result))
          step.variants.push_back({variant.label, std::move(other.result)});
  }
  for (const Step& step : explanation.steps) {
    if (step.sums_to_one == SumAxis::none || step.finding.empty()) continue;
    explanation.finding = step.finding;
    if (step.name == "weights") break;
  }
  for (const Step& step : explanation.steps)
    if (step.request.operation == Operation::training) explanation.finding = step.finding;
  return explanation;
}

}  // namespace regard::inline v0
