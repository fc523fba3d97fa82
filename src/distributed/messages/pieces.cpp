// SPDX-License-Identifier: Apache-2.0
//
// Which pieces are separate messages, and which are joined or copied. Read next: pieces.h.
#include "pieces.h"

#include <new>

namespace regard::inline v0::internal {
namespace {

constexpr Index kMessageBytes = Index{1} << 15;

}  // namespace

std::shared_ptr<std::byte> new_bytes(Index bytes) {
  constexpr std::align_val_t kAlignment{64};
  auto* const memory = static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), kAlignment));
  return {memory, [](std::byte* p) { ::operator delete(p, kAlignment); }};
}

void send_pieces(Index to, const std::vector<Piece>& pieces, Messages& messages,
                 std::vector<Messages::Ticket>& tickets) {
  Index joined_bytes = 0;
  for (const Piece& piece : pieces) joined_bytes += piece.bytes() < kMessageBytes ? piece.bytes() : 0;
  const std::shared_ptr<std::byte> joined = joined_bytes > 0 ? new_bytes(joined_bytes) : nullptr;
  std::byte* next = joined.get();
  for (const Piece& piece : pieces) {
    const Index bytes = piece.bytes();
    if (bytes < kMessageBytes) {
      piece.array.read(piece.b, piece.head, piece.indices, next);
      next += bytes;
      continue;
    }
    std::shared_ptr<const void> keep = piece.keep;
    std::byte* from = piece.array.at(piece.b, piece.head, piece.indices.first);
    if (!piece.array.is_dense()) {
      const std::shared_ptr<std::byte> copy = new_bytes(bytes);
      from = copy.get();
      piece.array.read(piece.b, piece.head, piece.indices, from);
      keep = copy;
    }
    tickets.push_back(messages.send(to, {from, static_cast<std::size_t>(bytes)}, keep));
  }
  if (joined) tickets.push_back(messages.send(to, {joined.get(), static_cast<std::size_t>(joined_bytes)}, joined));
}

void receive_pieces(Index from, const std::vector<Piece>& pieces, Messages& messages, std::vector<Arrival>& arrivals) {
  std::vector<Piece> small;
  Index joined_bytes = 0;
  for (const Piece& piece : pieces) {
    const Index bytes = piece.bytes();
    if (bytes < kMessageBytes) {
      joined_bytes += bytes;
      small.push_back(piece);
      continue;
    }
    if (piece.is_sent_as_stored()) {
      std::byte* const to = piece.array.at(piece.b, piece.head, piece.indices.first);
      arrivals.push_back({messages.receive(from, {to, static_cast<std::size_t>(bytes)}, piece.keep), {}});
      continue;
    }
    const std::shared_ptr<std::byte> copy = new_bytes(bytes);
    arrivals.push_back({messages.receive(from, {copy.get(), static_cast<std::size_t>(bytes)}, copy),
                        [piece, copy] { piece.put(copy.get()); }});
  }
  if (joined_bytes == 0) return;
  const std::shared_ptr<std::byte> joined = new_bytes(joined_bytes);
  arrivals.push_back({messages.receive(from, {joined.get(), static_cast<std::size_t>(joined_bytes)}, joined),
                      [small = std::move(small), joined] {
                        const std::byte* next = joined.get();
                        for (const Piece& piece : small) {
                          piece.put(next);
                          next += piece.bytes();
                        }
                      }});
}

void finish(std::vector<Arrival>& arrivals, Messages& messages, const std::stop_token& stop) {
  for (const Arrival& arrival : arrivals) {
    messages.wait(arrival.ticket, stop);
    if (arrival.copy) arrival.copy();
  }
  arrivals.clear();
}
void finish(std::vector<Messages::Ticket>& tickets, Messages& messages, const std::stop_token& stop) {
  messages.wait(tickets, stop);
  tickets.clear();
}

}  // namespace regard::inline v0::internal
