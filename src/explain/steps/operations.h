// SPDX-License-Identifier: Apache-2.0
//
// What a step can compute: a table of the operations. Each has a function from the operands (named matrices and earlier
// results) to the step's result, and one that expands a single cell of it. operations_attention.cpp calls the library;
// operations_matrix.cpp has products and sums around it; paper_arithmetic.cpp has what the library lacks; the
// operations of lessons are in src/explain/lessons/*_operations.cpp.
//
// To add one: an enumerator in regard/explain/steps.h, a row here, the case that the compiler then requires in
// fractions.cpp, and docs/guide/own-matrices.md. The page draws unknown steps as tables; special figures are in
// web/attention.js. Read next: steps.cpp, which runs the list.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/steps.h"

namespace regard::inline v0 {

// A matrix that steps can refer to by name, with the meaning of its axes.
struct Value {
  std::shared_ptr<const Matrix> matrix;
  Axis row_axis;
  Axis column_axis;
};

// The context of an operation, which fills `step`: result, axes, equation, finding, flags. Name, term, symbol,
// operands, notes, sums and comparisons are filled by steps.cpp.
struct Evaluation {
  const ExplainInput& input;
  const ExplainSettings& settings;  // the input's, or a variant's
  const StepRequest& request;
  std::optional<Index> focus;
  std::vector<Value> operands;  // the number that the operation takes
  const Keep& keep;
  const std::vector<Step>& previous;  // computed before this one
  Step& step;

  const Matrix& operand(std::size_t i) const { return *operands[i].matrix; }
  bool columns() const { return settings.layout == Layout::columns; }
  // Throws std::invalid_argument "step weights: …".
  [[noreturn]] void fail(const std::string& what) const;
};

// A number computed in double, rounded to the type in use.
double rounded(const Evaluation& e, double x);

// "3 × 4", with heads "2 × 3 × 4".
std::string shape_text(const Matrix& m);

// Properties of an operation, apart from its functions.
struct OperationTraits {
  bool ignores_layout = false;  // a table that is the same in both layouts
  bool has_example = true;      // one of its cells is worked out below its result
};
// The row of an operation in the table.
struct OperationInfo {
  Operation operation;
  std::string_view name;
  std::string_view term;  // Regard's standard name of the result
  int min_operands;
  int max_operands;
  void (*compute)(Evaluation&);
  // Expands one cell; nullptr if a cell has no derivation: random numbers, and tables about other steps.
  void (*expand)(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
  OperationTraits traits = {};
};

// The table, in six parts, each in the file of its functions: a row for every operation, in any order.
std::span<const OperationInfo> attention_operations();
std::span<const OperationInfo> matrix_operations();
std::span<const OperationInfo> paper_operations();
std::span<const OperationInfo> lesson_operations();
std::span<const OperationInfo> gradient_operations();
std::span<const OperationInfo> training_operations();
const OperationInfo& operation_info(Operation operation);
std::string operation_names();  // "add, context, …", for messages

// The mean of all numbers, and the mean of their squared distances from it.
struct Moments {
  double mean;
  double variance;
};
Moments moments(const std::vector<double>& numbers);

// Steps that an input lists, under settings that the library's own softmax and scale do not cover: each `weights`,
// `context`, `scaled` and `masked` step becomes the steps by hand that end in a result of the same name.
std::vector<StepRequest> steps_by_hand(const std::vector<StepRequest>& steps, const ExplainSettings& settings);

}  // namespace regard::inline v0
