// SPDX-License-Identifier: Apache-2.0
//
// How threads take turns in adding to the same sums in a fixed order: the pieces of keys of the backward pass.
//
//     slot 0    block 0 ─▶ block 6 ─▶ …        a block is one piece, or several that follow each other
//     slot 1    block 1 ─▶ block 7 ─▶ …
//
// A piece adds to its slot's sum of grad_query, one block of rows after another, each as soon as the preceding piece of
// the slot has added to it. In the list of pieces, every piece comes after its predecessor. A thread that takes pieces
// in order therefore waits only for pieces that other threads are processing.
//
//     piece        ████████
//     the next       ████████        time ─▶
//
// Read next: backward_pass.cpp.
#pragma once

#include <atomic>
#include <memory>

#include "regard/runtime.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"

namespace regard::inline v0::internal {

struct KeyPiece {
  Index kv_head;  // which KV head of the wave
  Index slot;
  Index first_key, num_keys;
  Index previous;  // the number of the piece before it in its slot, −1 for the first
};

class KeyTurns {
 public:
  KeyTurns(const Runtime& runtime, Index num_pieces) : runtime_(runtime), finished_(runtime, num_pieces) {}

  // Nothing is finished.
  void restart(Index num_pieces) {
    for (Index i = 0; i < num_pieces; ++i) std::construct_at(finished_.data() + i, 0);
  }

  // Waits until the piece before this one has finished the block of rows. Returns false if it never will, because a
  // thread has failed. Throws Cancelled if a stop is requested.
  bool wait(const KeyPiece& piece, Index row_block) const {
    if (piece.previous < 0) return true;
    const std::atomic<Index>& previous = finished_.data()[piece.previous];
    for (Index polls = 0; previous.load(std::memory_order_acquire) <= row_block; ++polls) {
      if (failed_.load(std::memory_order_relaxed)) return false;
      throw_if_stopped(runtime_.stop);
      if (polls >= kBusyPolls) let_others_run();
    }
    return true;
  }
  void finish(Index piece, Index row_block) { finished_.data()[piece].store(row_block + 1, std::memory_order_release); }
  void fail() { failed_.store(true, std::memory_order_relaxed); }

 private:
  static constexpr Index kBusyPolls = 100;

  const Runtime& runtime_;
  Workspace<std::atomic<Index>> finished_;  // blocks of rows of each piece
  std::atomic<bool> failed_{false};
};

}  // namespace regard::inline v0::internal
