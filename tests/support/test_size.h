// SPDX-License-Identifier: Apache-2.0
//
// How much a test does. With sanitizers, which find the same faults in smaller inputs, tests do less: .ci/stages/ sets
// the two variables for these builds only.
// Read next: attention_cases.h.
#pragma once

#include <algorithm>
#include <cstddef>
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

// True if a test runs this case: always, or one case in `every` if $REGARD_SMALL_TESTS is 1. Over two lists of at least
// `every` elements, the sum of both indices as the number runs each element of either list.
inline bool runs_case(std::size_t number, std::size_t every) { return number % test_size<std::size_t>(1, every) == 0; }

}  // namespace regard
