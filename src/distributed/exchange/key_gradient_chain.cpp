// SPDX-License-Identifier: Apache-2.0
//
// Which sums are sent where, as messages of one range for each pair of ranks. Read next: key_gradient_chain.h.
#include "key_gradient_chain.h"

#include <algorithm>

#include "distributed/plan/row_intervals.h"

namespace regard::inline v0::internal {
namespace {

bool contains(const std::vector<IndexRange>& ranges, Index key) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), key,
                                      [](Index k, const IndexRange& range) { return k < range.first; });
  return after != ranges.begin() && key < std::prev(after)->end;
}

}  // namespace

std::vector<KeySegment> key_segments(const DistributedPlan& plan, const std::vector<Index>& key_starts) {
  std::vector<Index> cuts = key_starts;
  for (const RankWork& work : plan.ranks) {
    for (const IndexRange& keys : work.keys) cuts.insert(cuts.end(), {keys.first, keys.end});
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<KeySegment> segments;
  for (std::size_t n = 0; n + 1 < cuts.size(); ++n) {
    if (cuts[n] == cuts[n + 1]) continue;
    KeySegment segment{{cuts[n], cuts[n + 1]}, {}};
    for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
      if (contains(plan.ranks[r].keys, cuts[n])) segment.ranks.push_back(static_cast<Index>(r));
    }
    segments.push_back(std::move(segment));
  }
  return segments;
}

KeyGradientChain::KeyGradientChain(const DistributedPlan& plan, std::vector<Index> key_starts, Index heads_per_kv_head,
                                   Messages& messages, const std::stop_token& stop)
    : key_starts_(std::move(key_starts)),
      num_heads_(heads_per_kv_head),
      messages_(messages),
      stop_(stop),
      completed_(plan.ranks.size()),
      ranges_(key_starts_.size() - 1) {
  const Index rank = messages_.rank();
  for (const KeySegment& segment : key_segments(plan, key_starts_)) {
    if (segment.ranks.empty()) {
      unseen_.push_back(segment.keys);
      continue;
    }
    const Index first = segment.ranks.front(), last = segment.ranks.back();
    completed_[static_cast<std::size_t>(last)].push_back(segment.keys);
    const auto own = std::find(segment.ranks.begin(), segment.ranks.end(), rank);
    if (own == segment.ranks.end()) continue;
    const auto range = std::upper_bound(key_starts_.begin(), key_starts_.end(), segment.keys.first);
    Range& of = ranges_[static_cast<std::size_t>(range - key_starts_.begin()) - 1];
    const auto add = [&](std::vector<Part>& parts, Index peer) {
      auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.peer == peer; });
      if (part == parts.end()) part = parts.insert(part, {peer, {}});
      part->keys.push_back(segment.keys);
    };
    if (rank != first) add(of.from_before, *std::prev(own));
    if (rank != last) add(of.to_next, *std::next(own));
    if (rank == first) of.first_here.push_back(segment.keys);
    if (rank == first && first != last) add(of.from_last, last);
    if (rank == last && first != last) add(of.to_first, first);
  }
  for (std::vector<IndexRange>& ranges : completed_) ranges = merged(std::move(ranges));
}

std::vector<Piece> KeyGradientChain::pieces(const Part& part) const {
  std::vector<Piece> pieces;
  for (const auto& [array, memory] : sums_) {
    for (Index b = 0; b < array.shape[0]; ++b) {
      for (const IndexRange& keys : part.keys) pieces.push_back({array, b, 0, keys, array.type, false, memory});
    }
  }
  return pieces;
}

// The sums arrive in the memory of those of the previous head, which must have been sent.
void KeyGradientChain::post_receives(Index head, Index range) {
  Range& of = ranges_[static_cast<std::size_t>(range)];
  finish(of.sends, messages_, stop_);
  const auto post = [&](const std::vector<Part>& parts) {
    for (const Part& part : parts) receive_pieces(part.peer, pieces(part), messages_, next_arrivals_);
  };
  post(of.from_before);
  if (head > 0) return post(of.from_last);
  for (const auto& [array, memory] : sums_) {
    for (Index b = 0; b < array.shape[0]; ++b) {
      for (const IndexRange& keys : of.first_here)
        std::memset(array.at(b, 0, keys.first), 0, static_cast<std::size_t>(keys.size() * array.row_bytes()));
    }
  }
}

void KeyGradientChain::start(std::vector<Sums> sums) {
  sums_ = std::move(sums);
  post_receives(0, 0);
}

void KeyGradientChain::before(Index head, Index range) {
  const Index num_ranges = static_cast<Index>(ranges_.size());
  // The sums of a single range for the next head can be received only after it has been computed.
  if (num_ranges == 1 && head > 0) post_receives(head, range);
  arrivals_.swap(next_arrivals_);
  // The sums of the next range are in transit while this one is computed.
  if (range + 1 < num_ranges) {
    post_receives(head, range + 1);
  } else if (head + 1 < num_heads_ && num_ranges > 1) {
    post_receives(head + 1, 0);
  }
  finish(arrivals_, messages_, stop_);
  messages_.progress();
}

void KeyGradientChain::after(Index head, Index range) {
  Range& of = ranges_[static_cast<std::size_t>(range)];
  const auto send = [&](const std::vector<Part>& parts) {
    for (const Part& part : parts) send_pieces(part.peer, pieces(part), messages_, of.sends);
  };
  send(of.to_next);
  if (head + 1 < num_heads_) send(of.to_first);
  messages_.progress();
}

}  // namespace regard::inline v0::internal
