// SPDX-License-Identifier: Apache-2.0
//
// delta and the gradient of the sinks: sums over rows, in order. Read next: row_gradients.h.
#include "row_gradients.h"

#include <algorithm>
#include <array>
#include <limits>

#include "instantiate.h"
#include "kernels/table.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0::internal {

using kernels::kRows;

template <class T>
void fill_delta(const ResolvedAttention<T>& r, const TypedForwardState<T>& saved, T* delta, const Runtime& runtime) {
  const Index rows = r.batch * r.num_heads * r.num_queries;
  const Index pieces = (rows + kRows - 1) / kRows;
  constexpr double kElementProducts = 16;  // an element, summed in order, takes as long as this many products
  const int workers = num_workers(
      runtime, pieces, kElementProducts * static_cast<double>(rows) * static_cast<double>(r.value_head_size));
  constexpr Index kRowsAtOnce = 4;  // rows: four independent in-order sums take no longer than one
  static_assert(kRows % kRowsAtOnce == 0);
  const Index row_numbers = 2 * r.value_head_size, numbers = kRowsAtOnce * row_numbers;
  const Workspace<T> scratch(runtime, workers * numbers);
  for_each_item(runtime, workers, pieces, [&](Index piece, int worker) {
    T* const context = scratch.data() + worker * numbers;
    T* const grad = context + r.value_head_size;
    for (Index first = piece * kRows; first < std::min(rows, (piece + 1) * kRows); first += kRowsAtOnce) {
      const auto place = [&](Index row) {
        return std::array{row / r.num_queries / r.num_heads, row / r.num_queries % r.num_heads, row % r.num_queries};
      };
      for (Index n = 0; n < kRowsAtOnce; ++n) {
        const std::array<Index, 3> at = place(std::min(first + n, rows - 1));
        const auto read = [&](const InputView<4>& view, T* to) {
          read_numbers(view.type, r.value_head_size, view.pointer(at[0], at[1], at[2], 0), view.strides[3],
                       to + n * row_numbers);
        };
        read(saved.context, context);
        read(saved.grad_context, grad);
      }
      double sums[kRowsAtOnce]{};
      for (Index c = 0; c < r.value_head_size; ++c) {
        for (Index n = 0; n < kRowsAtOnce; ++n)
          sums[n] += static_cast<double>(context[n * row_numbers + c]) * static_cast<double>(grad[n * row_numbers + c]);
      }
      for (Index n = 0; n < std::min(kRowsAtOnce, rows - first); ++n) {
        const auto [b, h, i] = place(first + n);
        if (!saved.grad_lse.absent()) sums[n] -= static_cast<double>(read_element(saved.grad_lse.pointer(b, h, i)));
        delta[first + n] = static_cast<T>(sums[n]);
      }
    }
  });
}

template <class T>
void add_sink_gradients(const BackwardCall<T>& call, double* sums) {
  const ResolvedAttention<T>& r = call.r;
  const auto& kernel = kernels::active().template of<T>();
  constexpr double kRowProducts = 1000;  // an exponential and a division cost as much as this many products
  const double products = kRowProducts * static_cast<double>(r.batch * r.num_heads * r.num_queries);
  for_each_item(call.runtime, num_workers(call.runtime, r.num_heads, products), r.num_heads, [&](Index h, int) {
    const T sink = r.sinks[static_cast<std::size_t>(h)];
    double sum = sums[h];
    for (Index row = 0; row < r.batch * r.num_queries && sink > -std::numeric_limits<T>::infinity(); ++row) {
      const Index b = row / r.num_queries, i = row % r.num_queries;
      const T row_max = read_element(call.saved.row_max.pointer(b, h, i));
      const T x = sink == row_max ? 0 : sink - row_max;
      T weight = 0;
      kernel.exp(&x, &weight, 1);
      weight /= read_element(call.saved.row_sum.pointer(b, h, i));
      sum -= static_cast<double>(weight) * static_cast<double>(call.delta[call.row(b, h, i)]);
    }
    sums[h] = sum;
  });
}

REGARD_INSTANTIATE_COMPUTE(fill_delta);
REGARD_INSTANTIATE_COMPUTE(add_sink_gradients);

}  // namespace regard::inline v0::internal
