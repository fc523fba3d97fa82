// SPDX-License-Identifier: Apache-2.0
//
// Parts of arrays as messages between two ranks. Both ranks know which pieces are sent, in the same order.
//
//     large     a message each, from and to the arrays themselves if these have the layout of the message
//     small     joined to one message
//
// Read next: pieces.cpp, head_exchange.h, key_gradient_chain.h.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <vector>

#include "held_array.h"
#include "messages.h"

namespace regard::inline v0::internal {

// Memory at a multiple of 64 bytes, not initialized.
std::shared_ptr<std::byte> new_bytes(Index bytes);

// Consecutive indices of one head of an array, and the type in which they are sent.
struct Piece {
  HeldArray array;
  Index b, head;
  IndexRange indices;
  ElementType sent_type;
  bool accumulate = false;                // where they are received
  std::shared_ptr<const void> keep = {};  // the memory of the array, unless it is the caller's
  Index bytes() const { return indices.size() * array.shape[3] * type_bytes(sent_type); }
  bool is_sent_as_stored() const { return array.is_dense() && sent_type == array.type && !accumulate; }
  void put(const std::byte* from) const { array.put(b, head, indices, from, sent_type, accumulate); }
};

// A message that is copied to its destinations when it has arrived; if `copy` is empty, it has arrived there.
struct Arrival {
  Messages::Ticket ticket;
  std::function<void()> copy;
};

// The arrays must not change until the messages have been sent.
void send_pieces(Index to, const std::vector<Piece>& pieces, Messages& messages,
                 std::vector<Messages::Ticket>& tickets);
void receive_pieces(Index from, const std::vector<Piece>& pieces, Messages& messages, std::vector<Arrival>& arrivals);
// Waits for all, and forgets them.
void finish(std::vector<Messages::Ticket>& tickets, Messages& messages, const std::stop_token& stop);
void finish(std::vector<Arrival>& arrivals, Messages& messages, const std::stop_token& stop);

}  // namespace regard::inline v0::internal
