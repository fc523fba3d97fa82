// SPDX-License-Identifier: Apache-2.0
//
// Shared by the backward passes: one worker's packed keys and values of a few blocks, and up to 60 packed query rows of
// one head with the gradients of their context. Together, they form one kernels::BackwardBlock after another.
//
//     take_keys(…)     up to block_keys() keys          key [D][32] and [32][D], value [Dv][32]
//       take_rows(…)     up to 60 rows                  query and grad_context, by columns and by rows
//         take_block(key)  60 rows × 64 keys            their scores, and all that backward_block reads
//
// Read next: attention_backward.cpp, kernels/attention_backward.cpp.
#pragma once

#include <algorithm>
#include <optional>

#include "backward_arguments.h"
#include "kernels/table.h"
#include "kv_panels.h"
#include "row_task.h"
#include "visibility.h"

namespace regard::inline v0::internal {

template <class T>
struct BackwardCall {
  const ResolvedAttention<T>& r;
  const TypedForwardState<T>& saved;
  const T* delta;  // (B, H, L), dense
  const Runtime& runtime;

  // True if all five products are of pairs of bf16 values (kernels::PairKernels) instead of T.
  bool pairs() const { return r.key_pairs && r.value_pairs && saved.grad_context.type == ElementType::bfloat16; }
  Index per_word() const { return pairs() ? 2 : 1; }
  Index words(Index numbers) const { return (numbers + per_word() - 1) / per_word(); }
  Index padded_head_size() const { return (r.head_size + kernels::kPanel - 1) / kernels::kPanel * kernels::kPanel; }
  Index padded_value_head_size() const {
    return (r.value_head_size + kernels::kPanel - 1) / kernels::kPanel * kernels::kPanel;
  }
  Index row(Index b, Index h, Index i) const { return (b * r.num_heads + h) * r.num_queries + i; }
  // Keys that a worker holds at a time. Depends only on the head sizes and the type, because it determines the order of
  // sums.
  Index block_keys() const {
    // Packed keys and values and their gradient sums stay in a second-level cache together with a task's rows. Products
    // of pairs take half the time, and can stream these operands from the next cache level.
    const Index kibibytes = pairs() ? 1024 : 384;
    const Index max_block_keys = pairs() ? 512 : 256;
    const Index packed = 2 * words(r.head_size) + words(r.value_head_size);
    const Index bytes = (packed + r.head_size + r.value_head_size) * static_cast<Index>(sizeof(T));
    return std::clamp((kibibytes << 10) / bytes / kernels::kBlockKeys * kernels::kBlockKeys, kernels::kBlockKeys,
                      max_block_keys);
  }
};

template <class T>
class BackwardTiles final : public KvPanels<T> {
 public:
  // Bytes for one worker that holds up to max_keys keys at a time; max_keys is a multiple of kBlockKeys.
  static Index bytes(const BackwardCall<T>& call, Index max_keys);
  BackwardTiles(const BackwardCall<T>& call, Index max_keys, std::byte* memory);

  // Packs keys from first_key on, where first_key is a multiple of kBlockKeys.
  void take_keys(Index sequence, Index key_head, Index first_key, Index num_keys);
  // Packs rows of one head of the sequence given to take_keys.
  void take_rows(Index head, Index first_row, Index num_rows);
  const Interval& seen() const { return scratch_.visible_rows->all; }
  // Prepares the block of keys from `key` on, which must be among those packed. Returns false if no row attends to any
  // of them.
  bool take_block(Index key);
  kernels::BackwardBlock<T>& block() { return block_; }
  // Run the kernels of the same names on block(), choosing the variant by the call's pairs().
  void run_grad_scores_block() const;
  void run_backward_block() const;
  const KvHead& kv_head() const { return kv_head_; }

  const T* key_panel(const KvHead&, Index panel, T*) const override {
    return key_panels_ + (panel - first_panel_) * call_.r.head_size_words() * kernels::kPanel;
  }
  const T* value_panel(const KvHead&, Index panel, T*) const override {
    return value_panels_ + (panel - first_panel_) * call_.words(call_.r.value_head_size) * kernels::kPanel;
  }
  bool finite(const KvHead&, Index panel) const override { return keys_finite_[panel - first_panel_] != 0; }

 private:
  template <class F>
  void with_kernels(F f) const {
    const kernels::KernelTable& table = kernels::active();
    if constexpr (std::same_as<T, float>) {
      if (call_.pairs()) return f(table.pairs);
    }
    f(table.template of<T>());
  }
  Index place(std::byte* memory, Index max_keys);
  const Sequence& sequence() const { return call_.r.sequences[static_cast<std::size_t>(kv_head_.sequence)]; }

  BackwardCall<T> call_;
  RowScratchLayout<T> layout_;
  RowScratch<T> scratch_{};
  // Elements are T, or pairs in place of T (kernels/table.h). The packed keys, per panel:
  T* key_panels_;    // [D][32]
  T* key_rows_;      // [⌈D/32⌉][32][32]
  T* value_panels_;  // [Dv][32]
  std::uint8_t* keys_finite_;
  // Packed rows.
  T* query_rows_;         // [2][⌈D/32⌉][32][32]
  T* grad_context_;       // by pack_query
  T* grad_context_rows_;  // [2][⌈Dv/32⌉][32][32]
  T* delta_;              // [kRows]
  T* grad_scores_;        // [kRows][kBlockKeys]
  T* capped_;             // likewise, with a soft cap
  T* dropout_;            // likewise, with dropout
  bool rows_finite_ = false;
  Index first_panel_ = 0;
  KvHead kv_head_{};
  std::optional<RowTask<T>> task_;
  kernels::ScoreBlock<T> score_{};
  kernels::BackwardBlock<T> block_{};
};

}  // namespace regard::inline v0::internal
