// SPDX-License-Identifier: Apache-2.0
//
// Which pieces are sent between a pair of ranks in a step, and in which order. Read next: head_exchange.h.
#include "head_exchange.h"

#include <algorithm>

#include "distributed/plan/row_intervals.h"

namespace regard::inline v0::internal {

HeadExchange::HeadExchange(const DistributedProblem& problem, const DistributedPlan& plan,
                           std::vector<CallArray> arrays, Messages& messages, const std::stop_token& stop,
                           bool whole_ranges)
    : problem_(problem),
      plan_(plan),
      arrays_(std::move(arrays)),
      messages_(messages),
      stop_(stop),
      rank_(messages.rank()),
      group_(problem.num_heads / problem.num_kv_heads) {
  const IndexRange own = held_range(HeldIndices::rows, rank_);
  const auto add = [&](const IndexRange& rows, bool is_own) {
    if (rows.size() == 0 && plan_.scheme != DistributedScheme::heads) return;
    parts_.push_back({rows, is_own, buffer_rows_});
    if (!is_own) buffer_rows_ += rows.size();
  };
  if (plan_.scheme == DistributedScheme::heads) {
    add({0, problem_.row_starts.back()}, false);
    return;
  }
  for (const IndexRange& rows : plan_.ranks[static_cast<std::size_t>(rank_)].rows) {
    const IndexRange held = intersection(rows, own);
    if (held.size() == 0 || (whole_ranges && held != rows)) {
      add(rows, false);
      continue;
    }
    add({rows.first, held.first}, false);
    add(held, true);
    add({held.end, rows.end}, false);
  }
}

Index HeadExchange::num_steps() const {
  Index steps = 0;
  for (const RankWork& work : plan_.ranks) steps = std::max(steps, work.kv_heads.size());
  return steps;
}
Index HeadExchange::kv_head(Index rank, Index step) const {
  const IndexRange& heads = plan_.ranks[static_cast<std::size_t>(rank)].kv_heads;
  return step < heads.size() ? heads.first + step : -1;
}
bool HeadExchange::computes(Index rank, Index step) const {
  return kv_head(rank, step) >= 0 &&
         (plan_.scheme == DistributedScheme::heads || !plan_.ranks[static_cast<std::size_t>(rank)].rows.empty());
}

IndexRange HeadExchange::held_range(HeldIndices indices, Index rank) const {
  const std::vector<Index>& starts = indices == HeldIndices::rows ? problem_.row_starts : problem_.key_starts;
  return {starts[static_cast<std::size_t>(rank)], starts[static_cast<std::size_t>(rank) + 1]};
}
// The indices of an array that a rank computes with.
std::vector<IndexRange> HeadExchange::needed(const CallArray& array, Index rank) const {
  if (!array.taken.empty()) return array.taken[static_cast<std::size_t>(rank)];
  const RankWork& work = plan_.ranks[static_cast<std::size_t>(rank)];
  if (array.indices == HeldIndices::all) return {{0, array.held.shape[2]}};
  if (array.indices == HeldIndices::rows) return work.rows;
  // A key that is visible to no row has a gradient as well.
  return array.is_output ? std::vector{IndexRange{0, problem_.key_starts.back()}} : work.keys;
}
std::vector<IndexRange> HeadExchange::copied(const CallArray& array) const {
  const IndexRange held =
      array.indices == HeldIndices::all ? IndexRange{0, array.held.shape[2]} : held_range(array.indices, rank_);
  if (array.indices != HeldIndices::rows) {
    return !array.is_output && is_sent_from_buffers(array) ? std::vector{held}
                                                           : intersection(needed(array, rank_), held);
  }
  std::vector<IndexRange> ranges;
  for (const Part& part : parts_) {
    const IndexRange rows = intersection(part.rows, held);
    if (!part.own && rows.size() > 0) ranges.push_back(rows);
  }
  return ranges;
}
Index HeadExchange::heads_per_step(const CallArray& array) const {
  return array.heads == ArrayHeads::query ? group_ : 1;
}

HeldArray HeadExchange::local(const Step& step, std::size_t n, Index kv_head, const Part& part) const {
  const CallArray& array = arrays_[n];
  const Index heads = heads_per_step(array);
  if (array.indices == HeldIndices::rows && part.own) {
    HeldArray own = array.held;
    const Index head = array.heads == ArrayHeads::shared ? 0 : kv_head * heads;
    own.data = own.at(0, head, part.rows.first);
    own.first = part.rows.first;
    own.shape[1] = heads;
    own.shape[2] = part.rows.size();
    return own;
  }
  const Index all = array.indices == HeldIndices::rows   ? buffer_rows_
                    : array.indices == HeldIndices::keys ? problem_.key_starts.back()
                                                         : array.held.shape[2];
  HeldArray buffer =
      dense(step.buffers[n].get(), array.computed_type, {array.held.shape[0], heads, all, array.held.shape[3]}, 0);
  if (array.indices == HeldIndices::rows) {
    buffer.data = buffer.at(0, 0, part.first_row);
    buffer.first = part.rows.first;
    buffer.shape[2] = part.rows.size();
  }
  return buffer;
}

// Keys that are not contiguous in the caller's memory are sent from the buffers, where they are: a copy for each
// receiver would add up to the size of the buffers.
bool HeadExchange::is_sent_from_buffers(const CallArray& array) const {
  return plan_.scheme != DistributedScheme::heads && array.indices == HeldIndices::keys && !array.held.is_dense();
}
std::vector<Piece> HeadExchange::held_pieces(bool outputs, Index step, Index kv_head, const Ranges& ranges,
                                             const Step* buffers) const {
  std::vector<Piece> pieces;
  for (std::size_t n = 0; n < arrays_.size(); ++n) {
    const CallArray& array = arrays_[n];
    if (!is_sent(array, outputs, step)) continue;
    const bool from_buffer = buffers && is_sent_from_buffers(array);
    const HeldArray memory = from_buffer ? local(*buffers, n, kv_head, parts_.front()) : array.held;
    const auto keep = from_buffer ? buffers->buffers[n] : nullptr;
    const Index heads = heads_per_step(array);
    const Index first = array.heads == ArrayHeads::shared || from_buffer ? 0 : kv_head * heads;
    for (const IndexRange& indices : ranges(array)) {
      for (Index b = 0; b < array.held.shape[0]; ++b) {
        for (Index h = 0; h < heads; ++h)
          pieces.push_back({memory, b, first + h, indices, array.computed_type, array.accumulate, keep});
      }
    }
  }
  return pieces;
}
std::vector<Piece> HeadExchange::local_pieces(bool outputs, Index step, Index kv_head, const Ranges& ranges) const {
  std::vector<Piece> pieces;
  for (std::size_t n = 0; n < arrays_.size(); ++n) {
    const CallArray& array = arrays_[n];
    if (!is_sent(array, outputs, step)) continue;
    for (const IndexRange& indices : ranges(array)) {
      const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) {
        return array.indices != HeldIndices::rows || (p.rows.first <= indices.first && indices.end <= p.rows.end);
      });
      const HeldArray in = local(step_at(step), n, kv_head, *part);
      const auto keep = step_at(step).buffers[n];
      for (Index b = 0; b < array.held.shape[0]; ++b) {
        for (Index h = 0; h < heads_per_step(array); ++h) pieces.push_back({in, b, h, indices, in.type, false, keep});
      }
    }
  }
  return pieces;
}

void HeadExchange::allocate(Step& step) {
  step.buffers.resize(arrays_.size());
  for (std::size_t n = 0; n < arrays_.size(); ++n) {
    const CallArray& array = arrays_[n];
    const Index count = array.indices == HeldIndices::rows   ? buffer_rows_
                        : array.indices == HeldIndices::keys ? problem_.key_starts.back()
                                                             : array.held.shape[2];
    const bool is_shared = array.heads == ArrayHeads::shared && !array.is_output;
    if ((is_shared || array.one_buffer) && steps_[0].buffers.size() > n) step.buffers[n] = steps_[0].buffers[n];
    if (!step.buffers[n])
      step.buffers[n] = new_bytes(array.held.shape[0] * heads_per_step(array) * count * array.held.shape[3] *
                                  type_bytes(array.computed_type));
  }
}

void HeadExchange::post_inputs(Index t) {
  Step& step = step_at(t);
  const Index own_head = kv_head(rank_, t);
  const bool own = computes(rank_, t);
  if (own) {
    allocate(step);
    for (Index other = 0; other < messages_.num_ranks(); ++other) {
      if (other == rank_) continue;
      receive_pieces(other,
                     local_pieces(false, t, own_head,
                                  [&](const CallArray& array) {
                                    return intersection(needed(array, rank_), held_range(array.indices, other));
                                  }),
                     messages_, step.inputs);
    }
    // Own keys, and rows that are computed in buffers, are copied next to those of other ranks.
    const Ranges from_own = [&](const CallArray& array) { return copied(array); };
    const std::vector<Piece> from = held_pieces(false, t, own_head, from_own);
    const std::vector<Piece> to = local_pieces(false, t, own_head, from_own);
    for (std::size_t i = 0; i < from.size(); ++i)
      from[i].array.read(from[i].b, from[i].head, from[i].indices,
                         to[i].array.at(to[i].b, to[i].head, to[i].indices.first));
  }
  for (Index other = 0; other < messages_.num_ranks(); ++other) {
    if (other == rank_ || !computes(other, t)) continue;
    send_pieces(other,
                held_pieces(
                    false, t, kv_head(other, t),
                    [&](const CallArray& array) {
                      return intersection(needed(array, other), held_range(array.indices, rank_));
                    },
                    own ? &step : nullptr),
                messages_, step.input_sends);
  }
}

void HeadExchange::post_outputs(Index t) {
  Step& step = step_at(t);
  const Index own_head = kv_head(rank_, t);
  const bool own = computes(rank_, t);
  const auto held_by = [&](const CallArray& array, Index holder) {
    return array.indices == HeldIndices::all ? IndexRange{0, array.held.shape[2]} : held_range(array.indices, holder);
  };
  for (Index other = 0; other < messages_.num_ranks(); ++other) {
    if (other == rank_) continue;
    if (own) {
      send_pieces(other,
                  local_pieces(true, t, own_head,
                               [&](const CallArray& array) {
                                 return intersection(needed(array, rank_), held_by(array, other));
                               }),
                  messages_, step.output_sends);
    }
    if (computes(other, t)) {
      receive_pieces(other,
                     held_pieces(true, t, kv_head(other, t),
                                 [&](const CallArray& array) {
                                   return intersection(needed(array, other), held_by(array, rank_));
                                 }),
                     messages_, step.outputs);
    }
  }
  if (!own) return;
  const Ranges to_own = [&](const CallArray& array) { return copied(array); };
  const std::vector<Piece> from = local_pieces(true, t, own_head, to_own);
  const std::vector<Piece> to = held_pieces(true, t, own_head, to_own);
  for (std::size_t i = 0; i < from.size(); ++i)
    to[i].put(from[i].array.at(from[i].b, from[i].head, from[i].indices.first));
}

void HeadExchange::run(const Compute& compute) {
  const Index steps = num_steps();
  const bool one_buffer =
      std::any_of(arrays_.begin(), arrays_.end(), [](const CallArray& array) { return array.one_buffer; });
  if (steps > 0) post_inputs(0);
  for (Index t = 0; t < steps; ++t) {
    Step& step = step_at(t);
    if (t + 1 < steps) post_inputs(t + 1);
    finish(step.inputs, messages_, stop_);
    // From the buffers that are written next: those of two steps ago or, with one buffer, of the previous step.
    finish(step.output_sends, messages_, stop_);
    if (one_buffer) finish(step_at(t + 1).output_sends, messages_, stop_);
    if (computes(rank_, t)) {
      for (const Part& part : parts_) {
        std::vector<HeldArray> arrays;
        for (std::size_t n = 0; n < arrays_.size(); ++n) arrays.push_back(local(step, n, kv_head(rank_, t), part));
        compute({kv_head(rank_, t), part.rows, part.own, arrays, step.buffers});
      }
    }
    finish(step.input_sends, messages_, stop_);
    // Those of two steps ago or, with one buffer, of the previous step: copies need memory until they have arrived.
    finish(step.outputs, messages_, stop_);
    if (one_buffer) finish(step_at(t + 1).outputs, messages_, stop_);
    post_outputs(t);
  }
  for (Step& step : steps_) {
    finish(step.outputs, messages_, stop_);
    finish(step.output_sends, messages_, stop_);
  }
}

}  // namespace regard::inline v0::internal
