// SPDX-License-Identifier: Apache-2.0
//
// Checks of arguments that optimizers share. Each throws InvalidArgument, "function: argument is X; expected Y".
// Read next: optimizer_arguments.cpp.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "regard/tensor.h"

namespace regard::inline v0::internal {

// `value` must be finite and at least 0.
void expect_not_negative(std::string_view function, std::string_view name, double value);
// `value` must be finite and above 0.
void expect_positive(std::string_view function, std::string_view name, double value);
// `value` must be in [0, 1).
void expect_decay(std::string_view function, std::string_view name, double value);
void expect_finite(std::string_view function, std::string_view name, double value);
void expect_at_least(std::string_view function, std::string_view name, Index value, Index least);
void expect_between(std::string_view function, std::string_view name, Index value, Index least, Index most);

// An array has exactly as many elements as another argument, which `as` names.
void expect_elements(std::string_view function, std::string_view name, std::size_t size, Index expected,
                     std::string_view as);

// The bytes of an array, for expect_separate().
struct NamedMemory {
  std::string_view name;
  std::span<const std::byte> bytes;
};
// No two of the arrays share a byte.
void expect_separate(std::string_view function, std::initializer_list<NamedMemory> arrays);

}  // namespace regard::inline v0::internal
