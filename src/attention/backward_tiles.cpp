// SPDX-License-Identifier: Apache-2.0
//
// Packing of keys and rows for the backward passes, and the scores of their blocks.
// Read next: backward_tiles.h.
#include "backward_tiles.h"

#include <algorithm>

#include "dropout.h"
#include "instantiate.h"
#include "kernels/table.h"
#include "tensor/element_types.h"

namespace regard::inline v0::internal {

using kernels::kBlockKeys;
using kernels::kBlockPanels;
using kernels::kPanel;
using kernels::kRows;

template <class T>
BackwardTiles<T>::BackwardTiles(const BackwardCall<T>& call, Index max_keys, std::byte* memory)
    : call_(call), layout_(call.r, 0, 1) {
  place(memory, max_keys);
}

template <class T>
Index BackwardTiles<T>::bytes(const BackwardCall<T>& call, Index max_keys) {
  return BackwardTiles(call, max_keys, nullptr).place(nullptr, max_keys);
}

template <class T>
Index BackwardTiles<T>::place(std::byte* memory, Index max_keys) {
  const ResolvedAttention<T>& r = call_.r;
  Index used = 0;
  const auto take = [&]<class E>(E*& to, Index count) {
    to = memory ? reinterpret_cast<E*>(memory + used) : nullptr;
    used += (count * static_cast<Index>(sizeof(E)) + 63) / 64 * 64;
  };
  take(key_panels_, max_keys * r.head_size_words());
  take(key_rows_, call_.words(max_keys) * call_.padded_head_size());
  take(value_panels_, max_keys * call_.words(r.value_head_size));
  take(keys_finite_, max_keys / kPanel);
  take(query_rows_, call_.words(kBlockPanels * kPanel) * call_.padded_head_size());
  take(grad_context_, kRows * call_.words(r.value_head_size));
  take(grad_context_rows_, call_.words(kBlockPanels * kPanel) * call_.padded_value_head_size());
  take(delta_, kRows);
  take(grad_scores_, kRows * kBlockKeys);
  take(capped_, r.soft_cap != 0 ? kRows * kBlockKeys : 0);
  take(dropout_, has_dropout(r) ? kRows * kBlockKeys : 0);
  if (memory) scratch_ = layout_.at(memory + used);
  return used + layout_.bytes();
}

template <class T>
void BackwardTiles<T>::take_keys(Index sequence, Index key_head, Index first_key, Index num_keys) {
  const ResolvedAttention<T>& r = call_.r;
  kv_head_ = {sequence, key_head, (first_key + num_keys + kPanel - 1) / kPanel, 0};
  first_panel_ = first_key / kPanel;
  const Sequence& s = this->sequence();
  const Index at = s.first_key + first_key;
  with_rows<T>(r.key, r.key_pairs, s.batch, key_head, at, [&](const auto& kernel, const auto& rows) {
    kernel.pack_keys(rows, num_keys, r.head_size, key_panels_);
  });
  with_rows<T>(r.key, call_.pairs(), s.batch, key_head, at, [&](const auto& kernel, const auto& rows) {
    kernel.pack_values(rows, num_keys, r.head_size, key_rows_, keys_finite_);
  });
  with_rows<T>(r.value, call_.pairs(), s.batch, key_head, at, [&](const auto& kernel, const auto& rows) {
    kernel.pack_keys(rows, num_keys, r.value_head_size, value_panels_);
  });
}

template <class T>
void BackwardTiles<T>::take_rows(Index head, Index first_row, Index num_rows) {
  const ResolvedAttention<T>& r = call_.r;
  const Sequence& s = sequence();
  task_.emplace(
      RowTask<T>{.r = r,
                 .packed = *this,
                 .runtime = call_.runtime,
                 .kv_head = kv_head_,
                 .sequence = s,
                 .rows = {.head = head, .first_row = first_row, .num_rows = num_rows, .rows_per_head = s.num_queries},
                 .scratch = scratch_});
  score_ = task_->start_rows();
  task_->load_softmax_state(call_.saved.row_max, call_.saved.row_sum);
  const Index row = s.first_query + first_row;
  std::copy_n(call_.delta + call_.row(s.batch, head, row), num_rows, delta_);
  std::uint8_t finite[2 * kBlockPanels];
  std::fill_n(finite, 2 * kBlockPanels, std::uint8_t{1});
  with_rows<T>(r.query, call_.pairs(), s.batch, head, row, [&](const auto& kernel, const auto& rows) {
    kernel.pack_values(rows, num_rows, r.head_size, query_rows_, finite);
  });
  with_rows<T>(call_.saved.grad_context, call_.pairs(), s.batch, head, row, [&](const auto& kernel, const auto& rows) {
    kernel.pack_query(rows, num_rows, r.value_head_size, grad_context_);
    kernel.pack_values(rows, num_rows, r.value_head_size, grad_context_rows_, finite + kBlockPanels);
  });
  rows_finite_ = std::all_of(finite, finite + 2 * kBlockPanels, [](std::uint8_t x) { return x != 0; });
  block_ = {};
  block_.num_rows = num_rows;
  block_.columns = r.value_head_size;
  block_.padded_depth = call_.padded_head_size();
  block_.padded_columns = call_.padded_value_head_size();
  block_.visible_begin = scratch_.visible_rows->begin;
  block_.visible_end = scratch_.visible_rows->end;
  block_.row_max = scratch_.row_max;
  block_.row_sum = scratch_.row_sum;
  block_.delta = delta_;
  block_.soft_cap = r.soft_cap;
  block_.scale = r.scale;
  block_.grad_context = grad_context_;
  block_.scores = scratch_.scores;
  block_.grad_scores = grad_scores_;
  block_.grad_context_rows = grad_context_rows_;
  block_.query_rows = query_rows_;
}

template <class T>
bool BackwardTiles<T>::take_block(Index key) {
  const ResolvedAttention<T>& r = call_.r;
  if (!task_->start_block(key, score_)) return false;
  if (r.soft_cap != 0) {
    // The derivative of the soft cap is computed from the capped scores alone, without ALiBi and bias.
    kernels::ScoreBlock<T> capped = score_;
    capped.rules.alibi_slopes = nullptr;
    capped.rules.bias = nullptr;
    capped.scores = capped_;
    task_->score_block(capped);
    block_.capped = capped_;
  }
  task_->score_block(score_);
  if (has_dropout(r)) {
    fill_dropout_tile(r, sequence(), task_->rows, key, dropout_);
    block_.dropout = dropout_;
  }
  block_.first_key = key;
  block_.num_keys = score_.num_keys;
  block_.finite = rows_finite_;
  for (Index i = 0; i < kBlockPanels; ++i) {
    const Index panel = key / kPanel + i;
    const bool there = panel < kv_head_.num_panels;
    block_.value_panels[i] = there ? value_panel(kv_head_, panel, nullptr) : nullptr;
    block_.key_rows[i] =
        there ? key_rows_ + (panel - first_panel_) * call_.words(kPanel) * call_.padded_head_size() : nullptr;
    block_.finite = block_.finite && (!there || finite(kv_head_, panel));
  }
  return true;
}

template <class T>
void BackwardTiles<T>::run_grad_scores_block() const {
  with_kernels([&](const auto& kernels) { kernels.grad_scores_block(block_); });
}

template <class T>
void BackwardTiles<T>::run_backward_block() const {
  with_kernels([&](const auto& kernels) { kernels.backward_block(block_); });
}

REGARD_INSTANTIATE_COMPUTE_CLASS(class, BackwardTiles);

}  // namespace regard::inline v0::internal
