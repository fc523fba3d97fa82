// SPDX-License-Identifier: Apache-2.0
//
// Comparison of results bit by bit, with a message that names the first difference:
//
//     EXPECT_TRUE(same_bits(bits_of(got), bits_of(expected)));
//
// Read next: arrays.h (bits_of), same_bits.cpp.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace regard {

// Returns whether both have the same bits, and where they first differ.
testing::AssertionResult same_bits(const std::vector<std::uint64_t>& got, const std::vector<std::uint64_t>& expected);

}  // namespace regard
