// SPDX-License-Identifier: Apache-2.0
//
// Scores of a head: plain loops over rows and visible keys, in double.
//
//     for each row i:  expected keys, with and without key 0;  key i − 1;  key 0;  entropy of keys 0 … i
//
// Read next: tasks.cpp.
#include "regard/train/patterns.h"

#include <fmt/format.h>

#include <cmath>

#include "regard/error.h"

namespace regard::inline v0 {
namespace {

struct Mean {
  double sum = 0;
  Index count = 0;
  void add(double x) { sum += x, ++count; }
  double value() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

void check_wanted(std::span<const std::vector<Index>> wanted) {
  for (std::size_t row = 0; row < wanted.size(); ++row) {
    Index last = -1;
    for (const Index key : wanted[row]) {
      if (key <= last || key > static_cast<Index>(row))
        throw InvalidArgument(fmt::format("head_pattern: wanted of row {} has key {}; expected {} to {}, ascending",
                                          row, key, last + 1, row));
      last = key;
    }
  }
}

// weight(i, j) is defined for 0 ≤ j ≤ i < L.
template <class Weight>
HeadPattern pattern_of(const Weight& weight, std::span<const std::vector<Index>> wanted) {
  Mean score, uniform, without_first, uniform_without_first, previous, first, one_key, entropy;
  for (Index row = 0; row < static_cast<Index>(wanted.size()); ++row) {
    const auto visible = static_cast<double>(row + 1);
    const std::vector<Index>& keys = wanted[static_cast<std::size_t>(row)];
    double others = 0, plogp = 0;  // without key 0; of all keys
    for (Index key = 0; key <= row; ++key) {
      const double w = weight(row, key);
      if (key > 0) others += w;
      if (w > 0) plogp += w * std::log(w);
    }
    double on_wanted = 0, on_wanted_others = 0, num_others = 0;
    for (const Index key : keys) {
      const double w = weight(row, key);
      on_wanted += w;
      if (key > 0) on_wanted_others += w, ++num_others;
    }
    if (!keys.empty()) {
      score.add(on_wanted);
      uniform.add(static_cast<double>(keys.size()) / visible);
    }
    if (num_others > 0) {
      without_first.add(others > 0 ? on_wanted_others / others : 0);
      uniform_without_first.add(num_others / (visible - 1));
    }
    if (row == 0) continue;
    previous.add(weight(row, row - 1));
    first.add(weight(row, 0));
    one_key.add(1 / visible);
    entropy.add(-plogp / std::log(visible));
  }
  return {.score = score.value(),
          .uniform = uniform.value(),
          .score_without_first = without_first.value(),
          .uniform_without_first = uniform_without_first.value(),
          .previous_token = previous.value(),
          .first_token = first.value(),
          .one_key_uniform = one_key.value(),
          .entropy = entropy.value()};
}

}  // namespace

template <class T>
HeadPattern head_pattern(TensorView<const T, 2> weights, std::span<const std::vector<Index>> wanted) {
  const auto length = static_cast<Index>(wanted.size());
  if (weights.shape[0] != length || weights.shape[1] != length)
    throw InvalidArgument(
        fmt::format("head_pattern: weights has shape ({}, {}); expected ({}, {}) because wanted has {} rows",
                    weights.shape[0], weights.shape[1], length, length, length));
  check_wanted(wanted);
  return pattern_of([&](Index row, Index key) { return static_cast<double>(weights(row, key)); }, wanted);
}

template <class T>
HeadPattern head_pattern(std::span<const T> lower_triangle, std::span<const std::vector<Index>> wanted) {
  const std::size_t count = wanted.size() * (wanted.size() + 1) / 2;
  if (lower_triangle.size() != count)
    throw InvalidArgument(
        fmt::format("head_pattern: lower_triangle has {} elements; expected {} because wanted has {} rows",
                    lower_triangle.size(), count, wanted.size()));
  check_wanted(wanted);
  const auto weight = [&](Index row, Index key) {
    return static_cast<double>(lower_triangle[static_cast<std::size_t>(row * (row + 1) / 2 + key)]);
  };
  return pattern_of(weight, wanted);
}

template REGARD_EXPORT HeadPattern head_pattern(TensorView<const float, 2>, std::span<const std::vector<Index>>);
template REGARD_EXPORT HeadPattern head_pattern(TensorView<const double, 2>, std::span<const std::vector<Index>>);
template REGARD_EXPORT HeadPattern head_pattern(std::span<const float>, std::span<const std::vector<Index>>);
template REGARD_EXPORT HeadPattern head_pattern(std::span<const double>, std::span<const std::vector<Index>>);

}  // namespace regard::inline v0
