// SPDX-License-Identifier: Apache-2.0
//
// The sums of grad_key and grad_value with the scheme rows: they are passed from rank to rank in the order of rows and,
// for the next query head of the same key/value head, from the last rank to the first.
//
//     keys       0 … 1535      1536 … 3071                    a range: processed, received and sent as a whole
//     head 0     rank 0 ─▶ rank 1 ─▶ rank 2 ─┐
//     head 1     ┌───────────────────────────┘
//                └▶ rank 0 ─▶ rank 1 ─▶ rank 2 ─▶ holders of the keys
//
// While a rank computes one range, others compute other ranges. Only ranks whose rows attend to a key add to its sum.
// Read next: key_gradient_chain.cpp, regard/attention_backward_continued.h.
#pragma once

#include <memory>
#include <vector>

#include "distributed/messages/pieces.h"

namespace regard::inline v0::internal {

// Consecutive keys to which the rows of the same ranks attend; the ranks in the order of their rows.
struct KeySegment {
  IndexRange keys;
  std::vector<Index> ranks;
};

// All keys, in segments that no start divides.
std::vector<KeySegment> key_segments(const DistributedPlan& plan, const std::vector<Index>& key_starts);

class KeyGradientChain {
 public:
  KeyGradientChain(const DistributedPlan& plan, std::vector<Index> key_starts, Index heads_per_kv_head,
                   Messages& messages, const std::stop_token& stop);

  // The keys whose sums each rank completes.
  const std::vector<std::vector<IndexRange>>& completed() const { return completed_; }
  // The keys that are visible to no row.
  const std::vector<IndexRange>& unseen() const { return unseen_; }
  const std::vector<Index>& key_starts() const { return key_starts_; }

  // The following are called on each rank that has rows, in order: start() for each key/value head, and then before()
  // and after() for each of its query heads and each range. The sums are (B, 1, S, …), dense, and may be in the same
  // memory for all key/value heads: a range is overwritten when it has been sent.
  struct Sums {
    HeldArray array;
    std::shared_ptr<const void> memory;
  };
  void start(std::vector<Sums> sums);
  void before(Index head, Index range);
  void after(Index head, Index range);

 private:
  // What one rank sends to another in one range.
  struct Part {
    Index peer;
    std::vector<IndexRange> keys;
  };
  // What is received from and sent to the previous and the next rank and, between two heads, the last and the first
  // rank.
  struct Range {
    std::vector<Part> from_before, from_last, to_next, to_first;
    std::vector<IndexRange> first_here;  // sums that begin on this rank
    std::vector<Messages::Ticket> sends;
  };

  std::vector<Piece> pieces(const Part& part) const;
  void post_receives(Index head, Index range);

  std::vector<Index> key_starts_;
  Index num_heads_;
  Messages& messages_;
  std::stop_token stop_;
  std::vector<std::vector<IndexRange>> completed_;
  std::vector<IndexRange> unseen_;
  std::vector<Range> ranges_;
  std::vector<Sums> sums_;
  std::vector<Arrival> arrivals_, next_arrivals_;
};

}  // namespace regard::inline v0::internal
