// SPDX-License-Identifier: Apache-2.0
//
// See residual.h.
#include "residual.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "instantiate.h"
#include "regard/parallel.h"
#include "regard/random.h"

namespace regard::inline v0::internal {
namespace {

constexpr std::uint32_t kSite = 0x72657369;  // other counters of the same seed belong to attention
constexpr Index kBlock = 1 << 15;            // elements of a task

}  // namespace

std::uint64_t dropout_seed(std::uint64_t seed, Index place) {
  const auto number = static_cast<std::uint64_t>(place);
  const auto words =
      philox({static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, kSite}, seed);
  return words[0] | std::uint64_t{words[1]} << 32;
}

template <class T>
void drop(const TensorView<T, 2>& rows, const ResidualDropout& dropout, const Runtime& runtime) {
  const auto threshold = static_cast<std::uint64_t>(std::ldexp(dropout.probability, 32));
  const T factor = static_cast<T>(1 / (1 - dropout.probability));
  const Index width = rows.shape[1];
  const auto drop_row = [&](Index row, const Runtime&) {
    const auto number = static_cast<std::uint64_t>(dropout.first_row + row);
    T* const x = rows.pointer(row, 0);
    for (Index e = 0; e < width; e += 4) {
      const auto words = philox({static_cast<std::uint32_t>(e / 4), static_cast<std::uint32_t>(number),
                                 static_cast<std::uint32_t>(number >> 32), kSite},
                                dropout.seed);
      for (Index i = e; i < std::min(width, e + 4); ++i)
        x[i] = words[static_cast<std::size_t>(i - e)] < threshold ? T{} : x[i] * factor;
    }
  };
  parallel_for(rows.shape[0], std::cref(drop_row), runtime);
}

template <class T>
void add(Index count, const T* a, const T* b, T* sum, const Runtime& runtime) {
  const Index blocks = (count + kBlock - 1) / kBlock;
  const auto block = [&](Index number, const Runtime&) {
    const Index end = std::min(count, (number + 1) * kBlock);
    for (Index i = number * kBlock; i < end; ++i) sum[i] = a[i] + b[i];
  };
  if (blocks == 1) return block(0, runtime);
  parallel_for(blocks, std::cref(block), runtime);
}

template <class T>
void add_bias(const TensorView<T, 2>& rows, const TensorView<T, 1>& bias, const Runtime& runtime) {
  const auto add_to_row = [&](Index row, const Runtime&) {
    add(rows.shape[1], rows.pointer(row, 0), bias.data, rows.pointer(row, 0), {});
  };
  parallel_for(rows.shape[0], std::cref(add_to_row), runtime);
}

REGARD_INSTANTIATE_COMPUTE(drop);
REGARD_INSTANTIATE_COMPUTE(add);
REGARD_INSTANTIATE(add_bias, float);

}  // namespace regard::inline v0::internal
