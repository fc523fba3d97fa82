// SPDX-License-Identifier: Apache-2.0
//
// Selects among the kernel tables. A pure function of its inputs, so that tests can simulate any processor.
// Read next: isa.cpp.
#pragma once

#include <span>

#include "kernels/table.h"

namespace regard::kernels {

struct Candidate {
  const KernelTable* table;
  bool available;       // this processor and its operating system support it
  bool slower = false;  // than the one before it, on this processor: used only if it is named
};

// Every table in this build (cmake/kernels.cmake), best last unless slower; the first is always available.
std::span<const Candidate> candidates();

// The bf16 dot product loop of the active table; null unless the table is avx512_bf16.
const PeakLoop* bf16_dot_loop();

// The table named by `forced`, or if it is null the last available one that is not slower. Throws
// std::invalid_argument, listing the valid names, if that table is unknown or not available.
const KernelTable& choose_table(const char* forced, std::span<const Candidate> tables);

}  // namespace regard::kernels
