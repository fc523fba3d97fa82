// SPDX-License-Identifier: Apache-2.0
//
// The norm of a gradient, and the factor that limits it.
//
//     up to 256 blocks:  per block, 32 sums of every 32nd square, added in order ──▶ blocks, added in order
//
// Read next: optimizer_step.cpp.
#include <algorithm>
#include <array>
#include <cmath>

#include "instantiate.h"
#include "optimizer_arguments.h"
#include "ranges.h"
#include "regard/train/optimizer.h"

namespace regard::inline v0 {
namespace internal {
namespace {

// Independent sums, enough to hide the latency of an addition.
constexpr Index kSumLanes = 32;
constexpr Index kMaxSumBlocks = 256;  // the sums of all blocks are on the stack
constexpr Index kMinSumBlock = Index{1} << 14;

template <class T>
double sum_of_squares(std::span<const T> values) {
  std::array<double, kSumLanes> sums{};
  const auto add = [&](const T* x, Index n) {
    for (Index i = 0; i < n; ++i) {
      const auto wide = static_cast<double>(x[i]);
      sums[static_cast<std::size_t>(i)] += wide * wide;
    }
  };
  const auto n = static_cast<Index>(values.size());
  const Index whole = n / kSumLanes * kSumLanes;
  for (Index i = 0; i < whole; i += kSumLanes) add(values.data() + i, kSumLanes);
  add(values.data() + whole, n - whole);
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace
}  // namespace internal

template <class T>
double global_norm(std::span<const T> values, const Runtime& runtime) {
  using namespace internal;
  const auto n = static_cast<Index>(values.size());
  const Index size = std::max(kMinSumBlock, (n + kMaxSumBlocks - 1) / kMaxSumBlocks);
  std::array<double, kMaxSumBlocks> sums{};
  for_each_range(
      n, size,
      [&](Index first, Index end, const Runtime&) {
        sums[static_cast<std::size_t>(first / size)] =
            sum_of_squares(values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first)));
      },
      runtime);
  double total = 0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

double clip_factor(double norm, double max_norm) {
  internal::expect_not_negative("clip_factor", "max_norm", max_norm);
  return max_norm == 0 ? 1 : std::min(1.0, max_norm / (norm + 1e-6));
}

REGARD_INSTANTIATE_COMPUTE(global_norm);

}  // namespace regard::inline v0
