// SPDX-License-Identifier: Apache-2.0
//
// Checks and writes partial results: for each chunk and row, Dv sums, a maximum and a sum of weights.
// Read next: attention_forward.cpp, attention_decode.cpp.
#include "partial_results.h"

#include <array>
#include <limits>
#include <string>

#include "instantiate.h"
#include "plan.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0::internal {

template <class T>
void TypedPartials<T>::check(const char* name, const UntypedAttention& r, std::span<const Footprint> inputs) const {
  const Index chunks = attention_num_chunks(r.num_keys);
  const std::array<Index, 4> rows{chunks, r.batch, r.num_heads, r.num_queries};
  const std::array<Index, 5> sums{chunks, r.batch, r.num_heads, r.num_queries, r.value_head_size};
  Footprints written;
  const auto check_view = [&](const char* view_name, const auto& view, const auto& shape) {
    if (view.absent() && r.batch * r.num_heads * r.num_queries * chunks != 0) {
      reject(name, std::string(view_name) + " is missing; expected " + shape_text(shape));
    }
    expect_shape(name, view_name, view, shape);
    written.push_back(footprint(name, view_name, view));
  };
  check_view("accumulator", accumulator, sums);
  check_view("row_max", row_max, rows);
  check_view("row_sum", row_sum, rows);
  if (!scaled_accumulator.absent()) check_view("scaled_accumulator", scaled_accumulator, sums);
  check_overlap(name, inputs, written);
}

template <class T>
double TypedPartials<T>::bytes() const {
  return view_bytes(accumulator) + view_bytes(row_max) + view_bytes(row_sum) + view_bytes(scaled_accumulator);
}

template <class T>
void TypedPartials<T>::write(const RowTask<T>& task, const ChunkRange& chunks, const ChunkResults<T>& results) const {
  const Index b = task.sequence.batch;
  const Index rows = task.rows.num_rows, columns = task.r.value_head_size;
  // Calls use(n, head, row, i) for every chunk n of the call and every row of the task. i: the row in results, or −1 if
  // the task did not compute the chunk.
  const auto for_each_row = [&](const auto& use) {
    for (Index n = 0; n < row_max.shape[0]; ++n) {
      const bool visited = n >= chunks.begin && n < chunks.end;
      task.rows.for_each_head([&](Index head, Index first_row, Index first, Index count) {
        for (Index i = 0; i < count; ++i)
          use(n, head, first_row + i, visited ? (n - chunks.begin) * rows + first + i : -1);
      });
    }
  };
  const auto write_sums = [&](const TensorView<T, 5>& output) {
    const T nothing = 0;
    for_each_row([&](Index n, Index head, Index row, Index i) {
      copy_elements(columns, i >= 0 ? results.accumulator + i * columns : &nothing, i >= 0 ? 1 : 0,
                    output.pointer(n, b, head, row, 0), output.strides[4]);
    });
  };
  for_each_row([&](Index n, Index head, Index row, Index i) {
    const T largest = i >= 0 ? results.row_max[i] : -std::numeric_limits<T>::infinity();
    const T sum = i >= 0 ? results.row_sum[i] : 0;
    copy_elements(1, &largest, 1, row_max.pointer(n, b, head, row), 1);
    copy_elements(1, &sum, 1, row_sum.pointer(n, b, head, row), 1);
  });
  write_sums(accumulator);
  if (scaled_accumulator.absent()) return;
  task.compute_scaled_chunks(chunks, results);
  write_sums(scaled_accumulator);
}

REGARD_INSTANTIATE_COMPUTE_CLASS(struct, TypedPartials);

}  // namespace regard::inline v0::internal
