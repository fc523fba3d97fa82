// SPDX-License-Identifier: Apache-2.0
//
// The caches of the machine, as Linux tells them. Read next: info.cpp, peaks.h.
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

// The caches of processor 0; none where the system does not tell.
std::vector<Cache> caches();

}  // namespace regard::program
