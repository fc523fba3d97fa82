// SPDX-License-Identifier: Apache-2.0
//
// Comparison of results bit by bit, with a message that names the first difference:
//
//     EXPECT_TRUE(same_bits(bits_of(got), bits_of(expected)));
//
// Read next: arrays.h (bits_of).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace regard {

// Returns whether both have the same bits, and where they first differ.
inline testing::AssertionResult same_bits(const std::vector<std::uint64_t>& got,
                                          const std::vector<std::uint64_t>& expected) {
  if (got.size() != expected.size()) return testing::AssertionFailure() << got.size() << " and " << expected.size();
  const auto place = std::mismatch(got.begin(), got.end(), expected.begin());
  if (place.first == got.end()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "element " << place.first - got.begin() << " of " << got.size() << ": "
                                     << std::hex << *place.first << ", expected " << *place.second;
}

}  // namespace regard
