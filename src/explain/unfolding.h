// SPDX-License-Identifier: Apache-2.0
//
// How one cell of a step came about, operation by operation: its products with the sum so far, or the exponential
// and its share. Each fills a CellWork from the operands that the step keeps.
// Read next: unfolding.cpp.
#pragma once

#include "regard/explain.h"

namespace regard {
inline namespace v0 {

// A cell's label on an axis: the word, else the index.
std::string axis_label(const Axis& axis, Index index);
// "Q[love, 0]".
std::string cell_name(const std::string& symbol, const std::string& row, const std::string& column);
// The number at a row and column of the whole matrix. Throws std::invalid_argument when it is not kept.
double kept_number(const Matrix& m, Index head, Index row, Index column);
// Where a row or column of the whole matrix is stored, or −1.
Index stored_place(const std::vector<Index>& kept, Index index);

void unfold_linear(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_product(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_mix(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_add(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_scores(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_scaled(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_masked(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_weights(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_context(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_floor_half(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_power(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_sums(const Explanation&, const Step&, const Cell&, int digits, CellWork&);
void unfold_divide(const Explanation&, const Step&, const Cell&, int digits, CellWork&);

}  // namespace v0
}  // namespace regard
