// SPDX-License-Identifier: Apache-2.0
//
// Ranks, and sums in order. A sum is passed along the ranks in pieces, so that a rank adds to one piece while the next
// one is in transit, and the total returns from the last rank through the first:
//
//     rank 0 ──sum so far──▶ rank 1 ──▶ … ──▶ rank N − 1 ──total──▶ rank 0 ──▶ rank 1 ──▶ … ──▶ rank N − 2
//
// Read next: messages.cpp, agreement.h.
#include "regard/distributed/ranks.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "distributed/arguments/agreement.h"
#include "distributed/messages/messages.h"
#include "instantiate.h"
#include "regard/runtime.h"

namespace regard::inline v0 {

RankError::~RankError() = default;
Transport::~Transport() = default;

Ranks::Ranks() : Ranks(nullptr) {}
Ranks::Ranks(std::unique_ptr<Transport> transport, const RanksOptions& options)
    : messages_(std::make_unique<internal::Messages>(std::move(transport), options)) {}
Ranks::~Ranks() {
  if (messages_ && std::uncaught_exceptions() > 0) messages_->leave_at_once();
}
Ranks::Ranks(Ranks&&) noexcept = default;
Ranks& Ranks::operator=(Ranks&&) noexcept = default;

Index Ranks::rank() const { return messages_->rank(); }
Index Ranks::num_ranks() const { return messages_->num_ranks(); }
std::uint64_t Ranks::start_send(Index to, std::span<const std::byte> bytes) { return messages_->send(to, bytes); }
std::uint64_t Ranks::start_receive(Index from, std::span<std::byte> bytes) { return messages_->receive(from, bytes); }
void Ranks::wait(std::uint64_t message, const std::stop_token& stop) { messages_->wait(message, stop); }
void Ranks::fail(std::string_view text) noexcept { messages_->fail(text); }
internal::Messages& Ranks::messages() { return *messages_; }

namespace {

constexpr std::size_t kPieceElements = std::size_t{1} << 16;

}  // namespace

template <class T>
void sum_in_order(const TensorView<const T, 2>& terms, std::span<T> sum, Ranks& ranks, const std::stop_token& stop) {
  internal::Messages& messages = ranks.messages();
  internal::Agreement agreement("sum_in_order");
  agreement.add("size of sum", std::to_string(sum.size()));
  agreement.add("element size", std::to_string(sizeof(T)));
  if (terms.shape[0] > 0 && terms.shape[1] != static_cast<Index>(sum.size()))
    agreement.reject("terms has " + std::to_string(terms.shape[1]) + " columns; expected the size of sum, " +
                     std::to_string(sum.size()));
  agreement.exchange(ranks, stop);
  const Index rank = ranks.rank(), last = ranks.num_ranks() - 1;
  std::vector<internal::Messages::Ticket> arriving, sent;
  std::vector<std::span<T>> pieces;
  for (std::size_t first = 0; first < sum.size(); first += kPieceElements)
    pieces.push_back(sum.subspan(first, std::min(kPieceElements, sum.size() - first)));
  if (rank > 0) {
    for (const std::span<T> piece : pieces)
      arriving.push_back(messages.receive(rank - 1, std::as_writable_bytes(piece)));
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::span<T> piece = pieces[i];
    if (rank > 0) {
      messages.wait(arriving[i], stop);
    } else {
      std::fill(piece.begin(), piece.end(), T{0});
    }
    const Index column = piece.data() - sum.data();
    for (Index n = 0; n < terms.shape[0]; ++n) {
      for (std::size_t j = 0; j < piece.size(); ++j) piece[j] += terms(n, column + static_cast<Index>(j));
    }
    if (last > 0) sent.push_back(messages.send(rank < last ? rank + 1 : 0, std::as_bytes(piece)));
  }
  if (rank == last) return messages.wait(sent, stop);
  messages.wait(sent, stop);  // before the same memory is overwritten by the total
  sent.clear();
  arriving.clear();
  const Index before = rank > 0 ? rank - 1 : last;
  for (const std::span<T> piece : pieces) arriving.push_back(messages.receive(before, std::as_writable_bytes(piece)));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    messages.wait(arriving[i], stop);
    if (rank + 1 < last) sent.push_back(messages.send(rank + 1, std::as_bytes(pieces[i])));
  }
  messages.wait(sent, stop);
}

REGARD_INSTANTIATE_COMPUTE(sum_in_order);

std::vector<Index> exchange_numbers(std::string_view function, Index number, Ranks& ranks,
                                    const std::stop_token& stop) {
  const std::string name(function);
  internal::Agreement agreement(name.c_str());
  const std::size_t place = agreement.number(number);
  agreement.exchange(ranks, stop);
  return agreement.numbers(place);
}

void reject_call(std::string_view function, std::string_view mistake, Ranks& ranks, const std::stop_token& stop) {
  const std::string name(function);
  internal::Agreement agreement(name.c_str());
  agreement.reject(mistake.empty() ? "the call cannot be made" : std::string(mistake));
  agreement.exchange(ranks, stop);
  throw RankError(-1, "the ranks do not agree that the call is invalid");  // exchange() has thrown
}

}  // namespace regard::inline v0
