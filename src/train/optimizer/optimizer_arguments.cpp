// SPDX-License-Identifier: Apache-2.0
//
// Checks of sizes, numbers and memory, with their error messages.
// Read next: optimizer_step.cpp.
#include "optimizer_arguments.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "regard/error.h"

namespace regard::inline v0::internal {
namespace {

template <class Number>
void expect(bool valid, std::string_view function, std::string_view name, Number value, std::string_view expected) {
  if (!valid) throw InvalidArgument(fmt::format("{}: {} is {}; expected {}", function, name, value, expected));
}

bool share_a_byte(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) && before(b.data(), a.data() + a.size());
}

}  // namespace

void expect_not_negative(std::string_view function, std::string_view name, double value) {
  expect(std::isfinite(value) && value >= 0, function, name, value, "a finite number of at least 0");
}

void expect_positive(std::string_view function, std::string_view name, double value) {
  expect(std::isfinite(value) && value > 0, function, name, value, "a finite number above 0");
}

void expect_decay(std::string_view function, std::string_view name, double value) {
  expect(value >= 0 && value < 1, function, name, value, "a number of at least 0 and below 1");
}

void expect_finite(std::string_view function, std::string_view name, double value) {
  expect(std::isfinite(value), function, name, value, "a finite number");
}

void expect_at_least(std::string_view function, std::string_view name, Index value, Index least) {
  expect(value >= least, function, name, value, fmt::format("{} or more", least));
}

void expect_between(std::string_view function, std::string_view name, Index value, Index least, Index most) {
  expect(value >= least && value <= most, function, name, value, fmt::format("{} to {}", least, most));
}

void expect_elements(std::string_view function, std::string_view name, std::size_t size, Index expected,
                     std::string_view as) {
  if (size != static_cast<std::size_t>(expected))
    throw InvalidArgument(
        fmt::format("{}: {} has {} elements; expected {}, as in {}", function, name, size, expected, as));
}

void expect_separate(std::string_view function, std::initializer_list<NamedMemory> arrays) {
  for (auto b = arrays.begin(); b != arrays.end(); ++b) {
    for (auto a = arrays.begin(); a != b; ++a) {
      if (share_a_byte(a->bytes, b->bytes))
        throw InvalidArgument(fmt::format("{}: {} overlaps {}; expected separate memory", function, b->name, a->name));
    }
  }
}

}  // namespace regard::inline v0::internal
