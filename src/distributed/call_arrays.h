// SPDX-License-Identifier: Apache-2.0
//
// The arrays of a call over several ranks: what is sent, and what a rank computes with in one step.
//
//   CallArrays    query, key, …      numbered, for HeadExchange
//   LocalArrays   number ──▶ view    of one key/value head and some rows
//
// Read next: head_exchange.h, attention.cpp, attention_backward.cpp.
#pragma once

#include <utility>
#include <vector>

#include "distributed/arguments/whole_call.h"
#include "distributed/exchange/head_exchange.h"

namespace regard::inline v0::internal {

// Every array of a call, by name, and its index among those that are sent.
class CallArrays {
 public:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t input(const HeldArray& held, HeldIndices indices, ArrayHeads heads) {
    arrays_.push_back({held, indices, heads, false});
    return arrays_.size() - 1;
  }
  // kNone if the view is absent.
  template <class View>
  std::size_t row_output(const View& view, const WholeCall& call) {
    return output(view, HeldIndices::rows, ArrayHeads::query, call.rows.first);
  }
  template <class View>
  std::size_t row_input(const View& view, const WholeCall& call) {
    return view.absent() ? kNone : input(held(view, call.rows.first), HeldIndices::rows, ArrayHeads::query);
  }
  template <class View>
  std::size_t output(const View& view, HeldIndices indices, ArrayHeads heads, Index first) {
    if (view.absent()) return kNone;
    arrays_.push_back({held(view, first), indices, heads, true});
    return arrays_.size() - 1;
  }
  // For further settings.
  CallArray* find(std::size_t n) { return n == kNone ? nullptr : &arrays_[n]; }
  std::vector<CallArray> take() { return std::move(arrays_); }

 private:
  std::vector<CallArray> arrays_;
};

// The arrays of one head, as views; absent if they are not sent.
class LocalArrays {
 public:
  explicit LocalArrays(const std::vector<HeldArray>& arrays) : arrays_(arrays) {}
  InputView<4> input(std::size_t n) const { return n == CallArrays::kNone ? InputView<4>{} : arrays_[n].input(); }
  InputView<3> input3(std::size_t n) const { return n == CallArrays::kNone ? InputView<3>{} : arrays_[n].input3(); }
  OutputView<4> output(std::size_t n) const { return n == CallArrays::kNone ? OutputView<4>{} : arrays_[n].output(); }
  OutputView<3> output3(std::size_t n) const { return n == CallArrays::kNone ? OutputView<3>{} : arrays_[n].output3(); }

 private:
  const std::vector<HeldArray>& arrays_;
};

// Elementwise masks and biases, which are sent unless each rank computes the rows that it holds.
struct MaskArrays {
  std::size_t mask = CallArrays::kNone, bias = CallArrays::kNone;

  MaskArrays(CallArrays& arrays, const WholeCall& call, const AttentionOptions& options, bool travel) {
    if (!travel) return;
    const auto add = [&](const InputView<4>& view) {
      return arrays.input(held(view, call.rows.first), HeldIndices::rows,
                          view.shape[1] == 1 ? ArrayHeads::shared : ArrayHeads::query);
    };
    if (call.mask_by_row) mask = add(options.mask);
    if (call.bias_by_row) bias = add(options.bias);
  }
};

template <class View>
View rows_of(const View& view, const IndexRange& rows) {
  return cut(view, 2, rows.first, rows.size());
}

// Calls `compute` with the options of a head and some rows, and those rows within the range of the arrays.
template <class F>
void for_each_strip(const WholeCall& call, const AttentionOptions& options, const MaskArrays& masks,
                    const HeadWork& work, const F& compute) {
  const Index group = call.extents.num_heads / call.extents.num_kv_heads;
  const IndexRange heads{work.kv_head * group, (work.kv_head + 1) * group};
  const IndexRange& rows = work.rows;
  const LocalArrays arrays(work.arrays);
  for (const IndexRange& part : strips(options, rows)) {
    LocalOptions local = local_options(options, call.extents, part, heads, call.rows.first, 0);
    const auto set_rows = [&](std::size_t n, InputView<4>& view) {
      if (n != CallArrays::kNone) view = rows_of(arrays.input(n), {part.first - rows.first, part.end - rows.first});
    };
    set_rows(masks.mask, local.options.mask);
    set_rows(masks.bias, local.options.bias);
    compute(local.options, IndexRange{part.first - rows.first, part.end - rows.first});
  }
}

}  // namespace regard::inline v0::internal
