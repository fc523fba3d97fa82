// SPDX-License-Identifier: Apache-2.0
//
// Implements ranks_chain.h. Read next: ranks_chain.h.
#include "ranks/ranks_chain.h"

#include <algorithm>
#include <functional>

namespace regard::program {

void RanksChain::expect(std::span<std::byte> bytes) {
  // Earlier messages must no longer use these bytes.
  std::erase_if(sent_, [&](const Message& sent) {
    const std::less<const std::byte*> before;
    const std::byte *const end = sent.bytes.data() + sent.bytes.size(), *const own_end = bytes.data() + bytes.size();
    if (!before(sent.bytes.data(), own_end) || !before(bytes.data(), end)) return false;
    ranks_.wait(sent.number);
    return true;
  });
  expected_.push_back(ranks_.start_receive((rank() + num_ranks() - 1) % num_ranks(), bytes));
}
void RanksChain::receive(std::span<std::byte> bytes) {
  if (expected_.empty()) expect(bytes);
  ranks_.wait(expected_.front());
  expected_.pop_front();
}
void RanksChain::send(std::span<const std::byte> bytes) {
  sent_.push_back({bytes, ranks_.start_send((rank() + 1) % num_ranks(), bytes)});
}
void RanksChain::finish() {
  for (; !sent_.empty(); sent_.pop_front()) ranks_.wait(sent_.front().number);
}
void RanksChain::abandon() noexcept { ranks_.fail("its training step ended with an exception"); }

// To rank 0 and back.
Index RanksChain::largest(Index value) {
  const auto send = [&](Index to, const Index& number) {
    ranks_.wait(ranks_.start_send(to, std::as_bytes(std::span(&number, 1))));
  };
  const auto receive = [&](Index from) {
    Index number = 0;
    ranks_.wait(ranks_.start_receive(from, std::as_writable_bytes(std::span(&number, 1))));
    return number;
  };
  if (rank() > 0) {
    send(0, value);
    return receive(0);
  }
  for (Index r = 1; r < num_ranks(); ++r) value = std::max(value, receive(r));
  for (Index r = 1; r < num_ranks(); ++r) send(r, value);
  return value;
}

}  // namespace regard::program
