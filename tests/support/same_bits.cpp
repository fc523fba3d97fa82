// SPDX-License-Identifier: Apache-2.0
//
// Optimized even if the tests are not: large results are compared.
// Read next: same_bits.h.
#include "same_bits.h"

#include <algorithm>

namespace regard {

testing::AssertionResult same_bits(const std::vector<std::uint64_t>& got, const std::vector<std::uint64_t>& expected) {
  if (got.size() != expected.size()) return testing::AssertionFailure() << got.size() << " and " << expected.size();
  const auto place = std::mismatch(got.begin(), got.end(), expected.begin());
  if (place.first == got.end()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "element " << place.first - got.begin() << " of " << got.size() << ": "
                                     << std::hex << *place.first << ", expected " << *place.second;
}

}  // namespace regard
