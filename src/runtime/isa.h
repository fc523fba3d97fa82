// SPDX-License-Identifier: Apache-2.0
//
// The choice among the kernel tables, as a function of its inputs so that tests can play every processor.
// Read next: isa.cpp.
#pragma once

#include <span>

#include "kernels/table.h"

namespace regard::kernels {

struct Candidate {
  const KernelTable* table;
  bool available;  // this processor and its operating system can run it
};

// Every table that was built (cmake/kernels.cmake), best last; the first is always available.
std::span<const Candidate> candidates();

// The loop of bf16 dot products of the active table; null unless that is avx512_bf16.
const PeakLoop* bf16_dot_loop();

// The table named by `forced`, or the last available one when it is null.
// Throws std::invalid_argument, with the names that would do, when that table is unknown or not available.
const KernelTable& choose_table(const char* forced, std::span<const Candidate> tables);

}  // namespace regard::kernels
