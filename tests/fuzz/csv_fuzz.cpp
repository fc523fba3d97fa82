// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as CSV are read as a matrix of consistent size, or rejected with std::runtime_error that
// names the position.
// Read next: include/regard/io/csv.h.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "regard/io/csv.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const regard::Matrix m = regard::read_csv({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (m.num_rows < 1 || m.num_columns < 1) std::abort();
    if (static_cast<std::size_t>(m.num_rows * m.num_columns) != m.numbers.size()) std::abort();
  } catch (const std::runtime_error& error) {
    if (!std::string_view(error.what()).starts_with("fuzz: line ")) std::abort();
  }
  return 0;
}
