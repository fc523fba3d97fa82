// SPDX-License-Identifier: Apache-2.0
//
// How one cell of a step was computed, operation by operation: its products with the sum so far, or the exponential
// and its share. Each function fills a CellDerivation from the operands that the step keeps.
// Read next: expansion.cpp (attention and products), expansion_paper.cpp (everything else).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "explain/report/table.h"
#include "regard/explain/steps.h"

namespace regard::inline v0 {

// "Q[love, 0]".
std::string cell_name(const std::string& symbol, const std::string& row, const std::string& column);
// The number at a row and column of the whole matrix. Throws std::invalid_argument if it is not kept.
double kept_number(const Matrix& m, Index head, Index row, Index column);

// Calls visit(index in the result's numbers, the document's number, cell) for each number that the document prints and
// the result keeps, row by row.
void for_each_printed(const Expected& expected, const Matrix& result,
                      const std::function<void(std::size_t, double, const Cell&)>& visit);

// Reads steps and matrices of either layout as if a token (of scores and weights: a query) were a row. The index across
// is a dimension or a key.
struct TokensFirst {
  explicit TokensFirst(const Explanation& explanation) : by_columns(explanation.settings.layout == Layout::columns) {}

  bool by_columns;
  Index token(const Cell& cell) const { return by_columns ? cell.column : cell.row; }
  Index across(const Cell& cell) const { return by_columns ? cell.row : cell.column; }
  Index num_tokens(const Matrix& m) const { return by_columns ? m.num_columns : m.num_rows; }
  Index num_across(const Matrix& m) const { return by_columns ? m.num_rows : m.num_columns; }
  const Axis& token_axis(const Step& step) const { return by_columns ? step.column_axis : step.row_axis; }
  const Axis& across_axis(const Step& step) const { return by_columns ? step.row_axis : step.column_axis; }
  double number(const Matrix& m, Index head, Index token, Index across) const {
    return by_columns ? kept_number(m, head, across, token) : kept_number(m, head, token, across);
  }
  bool hidden(const Matrix& m, Index head, Index token, Index across) const;
  std::string name(const std::string& symbol, const std::string& token, const std::string& across) const {
    return by_columns ? cell_name(symbol, across, token) : cell_name(symbol, token, across);
  }
};

// A number within a line of the working: short ones in full, longer ones rounded, tiny ones by their power of ten.
std::string working_number(double x, int digits);
// The same after a minus sign: a negative number in parentheses.
std::string working_subtrahend(double x, int digits);
// A term with the product of its factors, adding to the sum so far.
void add_term(CellDerivation& work, std::string label, std::vector<double> factors);
// Sets the difference between the plain sum of the terms and the result, which may have been rounded differently.
void finish_sum(CellDerivation& work);
// The terms and lines of one weight: exponentials of the query's scores minus the largest, their sum, the share.
void expand_share(const TokensFirst& as, const Step& step, const Cell& cell, int digits, double row_max, double row_sum,
                  CellDerivation& work);

void expand_linear(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_product(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_mix(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_scores(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_scaled(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_mask(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_masked(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_weights(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_context(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);

void expand_show(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_join(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_add(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_variances(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_floor_half(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_power(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_sums(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_divide(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_ratio(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_cosine(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_normalize(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_relu(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_softmax(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_difference(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_focus_vectors(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_ranks(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);
void expand_variance_rule(const Explanation&, const Step&, const Cell&, int digits, CellDerivation&);

}  // namespace regard::inline v0
