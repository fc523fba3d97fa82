// SPDX-License-Identifier: Apache-2.0
//
// Implements plan_values.h.
// Read next: plan_values.h.
#include "plan_values.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "program.h"

namespace regard::program {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// The factor of k, M, G or T at the beginning of a unit, which is removed; 1 without one.
double take_prefix(std::string_view& unit) {
  constexpr std::array<Unit, 5> kPrefixes{{{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}}};
  for (const Unit& prefix : kPrefixes) {
    if (!unit.starts_with(prefix.name)) continue;
    unit.remove_prefix(1);
    return prefix.factor;
  }
  return 1;
}

// A number above 0, a prefix if `prefixed`, and one of these units.
template <std::size_t N>
double parse_quantity(std::string_view option, std::string_view text, const std::array<Unit, N>& units, bool prefixed,
                      const char* expected) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  const double factor = prefixed ? take_prefix(unit) : 1;
  for (const Unit& known : units) {
    const double value = number * factor * known.factor;
    if (error == std::errc() && unit == known.name && value > 0 && std::isfinite(value)) return value;
  }
  reject_value(option, text, expected);
}

}  // namespace

double parse_link(std::string_view option, std::string_view text) {
  constexpr std::array<Unit, 6> kUnits{
      {{"b", 0.125}, {"b/s", 0.125}, {"bit", 0.125}, {"bit/s", 0.125}, {"B", 1}, {"B/s", 1}}};
  return parse_quantity(option, text, kUnits, true, "a rate above 0, such as 10Gb (bits) or 1.25GB/s (bytes)");
}

double parse_flops(std::string_view option, std::string_view text) {
  constexpr std::array<Unit, 3> kUnits{{{"", 1}, {"FLOPS", 1}, {"FLOP/s", 1}}};
  return parse_quantity(option, text, kUnits, true, "a rate above 0, such as 800G, 5T or 5e12");
}

double parse_seconds(std::string_view option, std::string_view text) {
  constexpr std::array<Unit, 4> kUnits{{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}};
  return parse_quantity(option, text, kUnits, false, "a time above 0, such as 50us, 2ms or 0.001s");
}

std::string seconds_text(double seconds) {
  if (seconds >= 100) return fmt::format("{:.0f} s", seconds);
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string rate_text(double rate) {
  for (const auto& [factor, name] : {std::pair{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}) {
    if (rate >= factor) return fmt::format("{:.3g} {}", rate / factor, name);
  }
  return fmt::format("{:.3g} ", rate);
}

}  // namespace regard::program
