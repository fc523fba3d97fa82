// SPDX-License-Identifier: Apache-2.0
//
// attention_weights: scores or weights of selected rows and keys, recomputed from query, key, row_max and row_sum.
//
//   for each wave of KV heads; for each piece of up to 60 selected rows; for each block of 64 selected keys:
//     kernels::score_block, then kernels::weights_block with the rows' final maximum and sum
//
// The scores are computed by the code of the forward pass and are bit-identical to its scores.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kernels/table.h"
#include "kv_panels.h"
#include "packed_kv.h"
#include "plan.h"
#include "row_task.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/strided_copy.h"
#include "visibility.h"

namespace regard::inline v0 {
namespace internal {
namespace {

using kernels::kBlockKeys;
using kernels::kRows;

// Consecutive selected rows of one sequence: output rows first_output … are its rows first_row ….
struct RowPiece {
  Index sequence;
  Index first_row;  // within the sequence
  Index num_rows;
  Index first_output;
};

void check_range(const std::string& name, const RowRange& range, Index limit) {
  if (range.begin >= 0 && range.begin <= range.end && range.end <= limit) return;
  reject("attention_weights", name + " is " + std::to_string(range.begin) + " to " + std::to_string(range.end) +
                                  "; expected a half-open range within 0 to " + std::to_string(limit));
}

// WeightsRequest with views of T.
template <class T>
struct TypedRequest {
  TensorView<const T, 3> row_max, row_sum;
  WeightsKind kind;
};

template <class T>
ScratchVector<RowPiece> row_pieces(const ResolvedAttention<T>& r, std::span<const RowRange> rows,
                                   const Runtime& runtime) {
  ScratchVector<RowPiece> pieces(workspace_of(runtime));
  for (std::size_t s = 0; s < r.sequences.size(); ++s) {
    const Sequence& sequence = r.sequences[s];
    Index output = 0;
    for (const RowRange& range : rows) {
      const Index begin = std::max(range.begin, sequence.first_query);
      const Index end = std::min(range.end, sequence.first_query + sequence.num_queries);
      for (Index row = begin; row < end; row += kRows) {
        pieces.push_back({static_cast<Index>(s), row - sequence.first_query, std::min(kRows, end - row),
                          output + row - range.begin});
      }
      output += range.end - range.begin;
    }
  }
  return pieces;
}

// Copies the selected ones of `count` values of one row, for keys from first_key on.
template <class T>
void write_block(const TensorView<T, 4>& output, const RowRange& keys, Index b, Index h, Index row, Index first_key,
                 Index count, const T* from) {
  const Index begin = std::max(first_key, keys.begin);
  const Index end = std::min(first_key + count, keys.end);
  if (begin >= end) return;
  copy_elements(end - begin, from + (begin - first_key), 1, output.pointer(b, h, row, begin - keys.begin),
                output.strides[3]);
}

// Writes the weights of the task's rows and these keys to output rows from first_output on.
template <class T>
void weigh(const RowTask<T>& task, const TypedRequest<T>& request, const RowRange& keys, Index first_output,
           const TensorView<T, 4>& output) {
  const ResolvedAttention<T>& r = task.r;
  const RowScratch<T>& s = task.scratch;
  const auto& kernel = kernels::active().template of<T>();
  const Sequence& sequence = task.sequence;
  const bool weights = request.kind == WeightsKind::weights;
  const T nothing = weights ? static_cast<T>(0) : -std::numeric_limits<T>::infinity();
  kernels::ScoreBlock<T> block = task.start_rows();
  const Interval& seen = s.visible_rows->all;
  if (weights) task.load_softmax_state(request.row_max, request.row_sum);
  // With packed sequences, this row also has columns for keys of other sequences.
  const auto fill = [&](Index first_column, Index end_column) {
    T filler[kBlockKeys];
    std::fill_n(filler, kBlockKeys, nothing);
    for (Index i = 0; i < task.rows.num_rows; ++i) {
      const Index end = std::min(end_column, keys.end);
      for (Index column = std::max(first_column, keys.begin); column < end; column += kBlockKeys) {
        write_block(output, keys, sequence.batch, task.rows.head, first_output + i, column,
                    std::min(kBlockKeys, end - column), filler);
      }
    }
  };
  const Index first = std::max(seen.begin, keys.begin - sequence.first_key);
  const Index last = std::min(seen.end, keys.end - sequence.first_key);
  const Index begin = first < last ? first / kBlockKeys * kBlockKeys : 0;
  const Index end = first < last ? last : 0;
  fill(0, sequence.first_key + begin);
  Index key = begin;
  for (; key < end; key += kBlockKeys) {
    throw_if_stopped(task.runtime.stop);
    if (!task.start_block(key, block)) {
      fill(sequence.first_key + key, sequence.first_key + key + block.num_keys);
      continue;
    }
    task.score_block(block);
    if (weights) kernel.weights_block(task.rows.num_rows, s.row_max, s.row_sum, s.scores);
    for (Index i = 0; i < task.rows.num_rows; ++i) {
      write_block(output, keys, sequence.batch, task.rows.head, first_output + i, sequence.first_key + key,
                  block.num_keys, s.scores + i * kBlockKeys);
    }
  }
  fill(sequence.first_key + std::min(key, sequence.key_limit), r.num_keys);
}

template <class T>
void weights_call(const AttentionCall& call, const WeightsRequest& request, const OutputView<4>& given,
                  const AttentionOptions& options, const Runtime& runtime) {
  const ResolvedAttention<T> r = resolve<T>(call, options, runtime);
  for (std::size_t i = 0; i < request.rows.size(); ++i) {
    check_range("rows[" + std::to_string(i) + "]", request.rows[i], r.num_queries);
  }
  const TensorView<T, 4> output = typed<T>(call.name, "output", given);
  const RowRange keys = request.keys.value_or(RowRange{0, r.num_keys});
  check_range("keys", keys, r.num_keys);
  const RowRange all{0, r.num_queries};
  const std::span<const RowRange> rows = request.rows.empty() ? std::span(&all, 1) : request.rows;
  Index num_rows = 0;
  for (const RowRange& range : rows) num_rows += range.end - range.begin;
  const bool needs_rows = r.batch * r.num_heads * num_rows != 0;
  const std::array<Index, 4> shape{r.batch, r.num_heads, num_rows, keys.end - keys.begin};
  if (output.absent() && needs_rows && shape[3] != 0)
    reject(call.name, "output is missing; expected " + shape_text(shape));
  expect_shape(call.name, "output", output, shape);
  Footprints inputs = input_footprints(call, options);
  TypedRequest<T> requested{.row_max = {}, .row_sum = {}, .kind = request.kind};
  if (request.kind == WeightsKind::weights) {
    requested.row_max = typed<T>(call.name, "row_max", request.row_max);
    requested.row_sum = typed<T>(call.name, "row_sum", request.row_sum);
    check_softmax_state(call.name, r, needs_rows, requested.row_max, requested.row_sum, inputs);
  }
  const std::array<Footprint, 1> written{footprint(call.name, "output", output)};
  check_overlap(call.name, inputs, written);
  if (!needs_rows || shape[3] == 0) return;

  const ScratchVector<RowPiece> pieces = row_pieces(r, rows, runtime);
  PackedKv<T> packed(r, runtime);
  const double products = static_cast<double>(r.batch * r.num_heads * num_rows) * static_cast<double>(shape[3]) *
                          static_cast<double>(r.head_size);
  const int workers = num_workers(runtime, static_cast<Index>(pieces.size()) * r.num_heads, products);
  const RowScratches<T> scratches(runtime, RowScratchLayout<T>(r, packed.padded_value_head_size()), workers);
  const Index group = r.num_heads / r.num_kv_heads;
  Progress progress(runtime, r.batch * r.num_heads * num_rows);
  const auto of_sequence = [&](Index sequence) {
    return std::ranges::equal_range(pieces, sequence, {}, &RowPiece::sequence);
  };
  if (is_planning()) {
    plan_attention(
        call.name, r, type_bytes(r.key.type), 0,
        "the scores of " + std::to_string(num_rows) + " rows of every head, " + std::to_string(shape[3]) + " keys each",
        view_bytes(output));
  }
  while (!packed.done()) {
    const ScratchVector<KvHead>& kv_heads = packed.next_wave(runtime);
    ScratchVector<std::pair<const KvHead*, const RowPiece*>> work(workspace_of(runtime));
    for (const KvHead& kv_head : kv_heads) {
      for (const RowPiece& piece : of_sequence(kv_head.sequence)) work.emplace_back(&kv_head, &piece);
    }
    for_each_item(runtime, workers, static_cast<Index>(work.size()) * group, [&](Index item, int worker) {
      const auto& [kv_head, piece] = work[static_cast<std::size_t>(item / group)];
      const RowTask<T> task{
          .r = r,
          .packed = packed,
          .runtime = runtime,
          .kv_head = *kv_head,
          .sequence = r.sequences[static_cast<std::size_t>(piece->sequence)],
          .rows = {.head = kv_head->key_head * group + item % group,
                   .first_row = piece->first_row,
                   .num_rows = piece->num_rows,
                   .rows_per_head = r.sequences[static_cast<std::size_t>(piece->sequence)].num_queries},
          .scratch = scratches[worker]};
      weigh(task, requested, keys, piece->first_output, output);
      progress.add(task.rows.num_rows);
    });
  }
}

}  // namespace
}  // namespace internal

void attention_weights(const InputView<4>& query, const InputView<4>& key, const WeightsRequest& request,
                       const OutputView<4>& output, const AttentionOptions& options, const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::with_compute_type(query.type, [&]<class T>(T) {
    const internal::AttentionCall call{"attention_weights", query, key, {}, false};
    internal::weights_call<T>(call, request, output, options, runtime);
  });
}

}  // namespace regard::inline v0
