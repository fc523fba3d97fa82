// SPDX-License-Identifier: Apache-2.0
//
// The ring of ranks over which `regard train --ranks` sums gradients.
// Read next: ranks_chain.cpp, regard/train/gradient_chain.h.
#pragma once

#include <cstdint>
#include <deque>

#include "regard/distributed/ranks.h"
#include "regard/train/gradient_chain.h"

namespace regard::program {

class RanksChain final : public GradientChain {
 public:
  // The ranks must outlive the object.
  explicit RanksChain(Ranks& ranks) : ranks_(ranks) {}

  Index rank() const override { return ranks_.rank(); }
  Index num_ranks() const override { return ranks_.num_ranks(); }
  void expect(std::span<std::byte> bytes) override;
  void receive(std::span<std::byte> bytes) override;
  void send(std::span<const std::byte> bytes) override;
  void finish() override;
  void abandon() noexcept override;
  Index largest(Index value) override;

 private:
  struct Message {
    std::span<const std::byte> bytes;
    std::uint64_t number;
  };

  Ranks& ranks_;
  std::deque<Message> sent_;
  std::deque<std::uint64_t> expected_;
};

}  // namespace regard::program
