// SPDX-License-Identifier: Apache-2.0
//
// grad_bias, in a separate pass. A task is a tile of the output, up to 60 rows by 64 keys, or a single element along an
// axis that is summed. No two tasks add to the same element.
//
//   for all b, h, row blocks and key blocks that contribute to the task's tile, in this order:
//     scores, grad_scores (kernels::grad_scores_block)       two products more than attention_backward's five
//     tile += grad_scores                                    in double
//
// Read next: backward_tiles.h.
#include "grad_bias.h"

#include <algorithm>
#include <array>

#include "instantiate.h"
#include "kernels/table.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"
#include "visibility.h"

namespace regard::inline v0::internal {
namespace {

using kernels::kBlockKeys;
using kernels::kRows;

struct Range {
  Index begin;
  Index end;
};

// Consecutive rows or keys of one sequence: stored index `stored` is index `first` of the sequence.
struct StoredRange {
  Index sequence;
  Index first;
  Index stored;
  Index count;
};

template <class T>
class BiasGradient {
 public:
  // Writes to one of the two views: `output`, or `sums`, to whose existing values it adds.
  BiasGradient(const BackwardCall<T>& call, const TensorView<T, 4>& output, bool accumulate,
               const TensorView<double, 4>& sums)
      : call_(call),
        r_(call.r),
        shape_(output.absent() ? sums.shape : output.shape),
        output_(output),
        accumulate_(accumulate),
        sums_(sums),
        rows_(workspace_of(call.runtime)),
        keys_(workspace_of(call.runtime)) {
    // Every batch entry has the same rows and keys; packed sequences are all in batch entry 0. Without batch entries,
    // the sum is 0.
    if (r_.batch == 0) {
      append_pieces(rows_, kRows, 0, 0, r_.num_queries);
      append_pieces(keys_, kBlockKeys, 0, 0, r_.num_keys);
    }
    for (std::size_t s = 0; s < r_.sequences.size(); ++s) {
      const Sequence& sequence = r_.sequences[s];
      if (sequence.batch != 0) break;
      append_pieces(rows_, kRows, static_cast<Index>(s), sequence.first_query, sequence.num_queries);
      append_pieces(keys_, kBlockKeys, static_cast<Index>(s), sequence.first_key, sequence.num_keys);
    }
  }

  void run() {
    const Index row_tasks = summed(2) ? 1 : static_cast<Index>(rows_.size());
    const Index key_tasks = summed(3) ? 1 : static_cast<Index>(keys_.size());
    const Index tasks = shape_[0] * shape_[1] * row_tasks * key_tasks;
    const double products = static_cast<double>(r_.batch * r_.num_heads * r_.num_queries) *
                            static_cast<double>(r_.num_keys) * static_cast<double>(r_.head_size + r_.value_head_size);
    const int workers = num_workers(call_.runtime, tasks, products);
    const Index bytes = BackwardTiles<T>::bytes(call_, kBlockKeys);
    const Index tile = kRows * kBlockKeys * static_cast<Index>(sizeof(double));
    const Workspace<std::byte> scratch(call_.runtime, workers * (bytes + tile));
    for_each_item(call_.runtime, workers, tasks, [&](Index task, int worker) {
      std::byte* const memory = scratch.data() + worker * (bytes + tile);
      const auto range = [](bool all, Index count, Index one) { return all ? Range{0, count} : Range{one, one + 1}; };
      const Index key = task % key_tasks, row = task / key_tasks % row_tasks;
      const Index head = task / key_tasks / row_tasks;
      run_task(range(summed(0), r_.batch, head / shape_[1]), range(summed(1), r_.num_heads, head % shape_[1]),
               range(summed(2), static_cast<Index>(rows_.size()), row),
               range(summed(3), static_cast<Index>(keys_.size()), key), reinterpret_cast<double*>(memory + bytes),
               memory);
    });
  }

 private:
  static void append_pieces(ScratchVector<StoredRange>& pieces, Index max_count, Index sequence, Index first,
                            Index count) {
    for (Index i = 0; i < count; i += max_count)
      pieces.push_back({sequence, i, first + i, std::min(max_count, count - i)});
  }

  // An extent of 1 is a sum, even if the whole axis has extent 1.
  bool summed(std::size_t axis) const { return shape_[axis] == 1; }

  void run_task(const Range& batches, const Range& heads, const Range& rows, const Range& keys, double* sums,
                std::byte* memory) {
    BackwardTiles<T> tiles(call_, kBlockKeys, memory);
    // Along an axis that is not summed, the task is one of its pieces.
    const auto place = [&](const ScratchVector<StoredRange>& pieces, std::size_t axis, Index piece) {
      return summed(axis) ? StoredRange{0, 0, 0, 1} : pieces[static_cast<std::size_t>(piece)];
    };
    const StoredRange row = place(rows_, 2, rows.begin), key = place(keys_, 3, keys.begin);
    const Index b0 = summed(0) ? 0 : batches.begin, h0 = summed(1) ? 0 : heads.begin;
    std::fill_n(sums, kRows * kBlockKeys, 0.0);
    for (Index i = 0; i < row.count && !sums_.absent(); ++i) {
      for (Index j = 0; j < key.count; ++j)
        sums[i * kBlockKeys + j] = *sums_.pointer(b0, h0, row.stored + i, key.stored + j);
    }
    for (Index b = batches.begin; b < batches.end; ++b) {
      for (Index h = heads.begin; h < heads.end; ++h) {
        for (Index n = rows.begin; n < rows.end; ++n) {
          for (Index m = keys.begin; m < keys.end; ++m) {
            throw_if_stopped(call_.runtime.stop);
            add_block(tiles, b, h, rows_[static_cast<std::size_t>(n)], keys_[static_cast<std::size_t>(m)], sums);
          }
        }
      }
    }
    for (Index i = 0; i < row.count; ++i) write(b0, h0, row.stored + i, key, sums + i * kBlockKeys);
  }

  void write(Index b, Index h, Index row, const StoredRange& key, const double* sums) const {
    if (!sums_.absent()) {
      for (Index j = 0; j < key.count; ++j) *sums_.pointer(b, h, row, key.stored + j) = sums[j];
      return;
    }
    T numbers[kBlockKeys];
    for (Index j = 0; j < key.count; ++j) numbers[j] = static_cast<T>(sums[j]);
    write_or_add_numbers(accumulate_, kElementType<T>, key.count, numbers, output_.pointer(b, h, row, key.stored),
                         output_.strides[3]);
  }

  void add_block(BackwardTiles<T>& tiles, Index b, Index h, const StoredRange& row, const StoredRange& key,
                 double* sums) const {
    if (row.sequence != key.sequence) return;
    const Index s = r_.batch > 1 ? b : row.sequence;
    const Sequence& sequence = r_.sequences[static_cast<std::size_t>(s)];
    if (visible_interval(r_, sequence, row.first + row.count - 1).end <= key.first ||
        visible_interval(r_, sequence, row.first).begin >= key.first + key.count) {
      return;
    }
    tiles.take_keys(s, h / (r_.num_heads / r_.num_kv_heads), key.first,
                    std::min(key.count, sequence.key_limit - key.first));
    tiles.take_rows(h, row.first, row.count);
    if (tiles.seen().end <= key.first || tiles.seen().begin >= key.first + key.count || !tiles.take_block(key.first))
      return;
    kernels::BackwardBlock<T>& block = tiles.block();
    // The gradient with respect to the scores themselves, without the factor of the scale and the derivative of the
    // soft cap.
    block.scale = 1;
    block.capped = nullptr;
    tiles.run_grad_scores_block();
    for (Index i = 0; i < block.num_rows; ++i) {
      double* to = sums + (summed(2) ? 0 : i * kBlockKeys);
      const T* from = block.grad_scores + i * kBlockKeys;
      for (Index j = 0; j < block.num_keys; ++j) to[summed(3) ? 0 : j] += static_cast<double>(from[j]);
    }
  }

  const BackwardCall<T>& call_;
  const ResolvedAttention<T>& r_;
  std::array<Index, 4> shape_;
  TensorView<T, 4> output_;
  bool accumulate_;
  TensorView<double, 4> sums_;
  ScratchVector<StoredRange> rows_;
  ScratchVector<StoredRange> keys_;
};

}  // namespace

template <class T>
void write_bias_gradient(const BackwardCall<T>& call, const TensorView<T, 4>& output, bool accumulate) {
  BiasGradient<T>(call, output, accumulate, {}).run();
}

template <class T>
void add_bias_gradient(const BackwardCall<T>& call, const TensorView<double, 4>& sums) {
  BiasGradient<T>(call, {}, false, sums).run();
}

REGARD_INSTANTIATE_COMPUTE(write_bias_gradient);
REGARD_INSTANTIATE_COMPUTE(add_bias_gradient);

}  // namespace regard::inline v0::internal
