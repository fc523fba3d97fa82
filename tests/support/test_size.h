// SPDX-License-Identifier: Apache-2.0
//
// How much a test does. With sanitizers, which find the same faults in smaller inputs, tests do less: .ci/stages/ sets
// the two variables for these builds only.
// Read next: attention_cases.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace regard {

// The number of random calls that a test makes: `all`, but at most $REGARD_RANDOM_CALLS.
inline std::uint64_t num_random_calls(std::uint64_t all) {
  const char* limit = std::getenv("REGARD_RANDOM_CALLS");
  return limit == nullptr ? all : std::min<std::uint64_t>(all, std::stoull(limit));
}

// A size of a test: `smaller` if $REGARD_SMALL_TESTS is 1, otherwise `size`.
template <class T>
T test_size(T size, T smaller) {
  const char* small = std::getenv("REGARD_SMALL_TESTS");
  return small != nullptr && std::string(small) == "1" ? smaller : size;
}

}  // namespace regard
