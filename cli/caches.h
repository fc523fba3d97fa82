// SPDX-License-Identifier: Apache-2.0
//
// The processor caches, as reported by Linux. Read next: info.cpp, peaks.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace regard::program {

struct Cache {
  int level;
  std::string type;  // "Data", "Instruction", "Unified"
  std::uint64_t bytes;
  std::string shared_by;  // logical processors: "0-1"
};

// The caches of processor 0; empty if the system does not report them.
std::vector<Cache> caches();

}  // namespace regard::program
